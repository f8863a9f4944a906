"""A client that hides nothing: sockets, and bytes as they come."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import quote

# An answer that never comes must end the test with a sentence, not with the run's own time limit.
TIMEOUT_S = 120.0


def media(bucket: str, name: str) -> str:
    return f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    end: str = ""  # "whole", "fin" (in mid-body) or "rst"


class RawClient:
    """One connection."""

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None = None, authority: str = "test"
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket: socket.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_S)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.waiting = b""
        self.authority = authority

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.authority}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def more(self) -> str:
        """Receive something; "fin" or "rst" when nothing more comes."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            return "rst"
        except ssl.SSLEOFError:
            return "fin"
        self.waiting += data
        return "" if data else "fin"

    def head(self) -> Answer:
        answer = Answer()
        while b"\r\n\r\n" not in self.waiting:
            answer.end = self.more()
            if answer.end:
                return answer
        head, self.waiting = self.waiting.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        answer.status = int(first.split()[1])
        for line in lines:
            name, _, value = line.partition(":")
            answer.headers[name.lower()] = value.strip()
        return answer

    def answer(self, method: str = "GET") -> Answer:
        answer = self.head()
        if answer.end:
            return answer
        if answer.headers.get("transfer-encoding") == "chunked":
            while not answer.end:
                size_text, found, rest = self.waiting.partition(b"\r\n")
                if found and len(rest) >= int(size_text, 16) + 2:
                    size = int(size_text, 16)
                    answer.body += rest[:size]
                    self.waiting = rest[size + 2 :]
                    if size == 0:
                        answer.end = "whole"
                else:
                    answer.end = self.more()
            return answer
        length = int(answer.headers.get("content-length", "0")) if method != "HEAD" else 0
        while len(self.waiting) < length and not answer.end:
            answer.end = self.more()
        answer.body, self.waiting = self.waiting[:length], self.waiting[length:]
        answer.end = answer.end or "whole"
        return answer

    def call(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        self.send(method, target, headers, body)
        return self.answer(method)

    def is_silent(self) -> bool:
        """Nothing has come. Ask the server's log first what it has done, so no time is involved."""
        self.socket.setblocking(False)
        try:
            return not self.waiting and self.socket.recv(1) == b""
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)
