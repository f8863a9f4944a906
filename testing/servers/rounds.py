"""A server that counts round trips instead of taking time: what a client waits for, one by one."""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import socket
import ssl
import subprocess
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testing.servers.certificates import Certificates

__all__ = ["RoundTrips"]

_LOOK_S = 0.002  # between two looks at whether the client rests
_PAGE_PATH = re.compile(r"/storage/v1/b/[^/]+/o")


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    is_open: bool = False
    """Its SYN was answered, which takes a round trip of its own."""
    received: bytes = b""
    """From the client, and not yet delivered."""
    ended: bool = False
    to_tls: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    from_tls: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    tls: ssl.SSLObject | None = None
    shaken: bool = False
    request: bytes = b""
    requests: int = 0


class RoundTrips:
    """The objects of one bucket, by the JSON API of GCS, for one client process.

    What the client sends lies still until nothing more can happen without an answer: until all of
    its threads sleep, and none of them has run between two looks. Then all of it arrives at once,
    is answered, and that is one round trip. So the count does not depend on how fast anything is.
    A connection costs one before the server sees what is sent through it: SYN and SYN-ACK. Of one
    trip, the client sees connections become ready before answers: else it would be left to chance
    whether a request takes the connection that it waits for, or one whose answer has just come.

    Attributes:
        url: of the server, for ``endpoint=``.
        trips: how many round trips there have been.
        connections: how many connections were made ...
        unused: ... and how many of them have carried no request.
        requests: what was asked for in each round trip: method and target.
        resumed: how many TLS handshakes resumed a session.

    Args:
        objects: their contents, by name.
        certificates: speak TLS 1.3.
        has_tickets: TLS sessions can be resumed.
    """

    def __init__(
        self,
        objects: Mapping[str, bytes],
        *,
        certificates: Certificates | None = None,
        has_tickets: bool = True,
    ) -> None:
        self._objects = {name: objects[name] for name in sorted(objects)}
        self._tls: ssl.SSLContext | None = None
        if certificates is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificates.cert_file, certificates.key_file)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
            self._tls.num_tickets = 2 if has_tickets else 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connections: list[_Connection] = []
        self._answers_due: list[tuple[_Connection, bytes]] = []
        port = self._listener.getsockname()[1]
        self.url = f"http{'s' if certificates else ''}://127.0.0.1:{port}"
        self.trips = 0
        self.resumed = 0
        self.requests: list[list[tuple[str, str]]] = []

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def unused(self) -> int:
        return sum(not each.requests for each in self._connections)

    def serve(self, command: list[str]) -> str:
        """Run the client, answer it until it ends, and return what it has printed.

        Raises:
            CalledProcessError: it has failed.
        """
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            try:
                while client.poll() is None:
                    before = _threads_at_rest(client.pid)
                    if self._take() or before is None:
                        continue
                    if before == _threads_at_rest(client.pid):
                        if self._answers_due:
                            self._answer_all()
                        elif self._has_something():
                            self._deliver()
            finally:
                client.kill()
                self.close()
            assert client.stdout is not None
            output = client.stdout.read()
        if client.returncode:
            raise subprocess.CalledProcessError(client.returncode, command, output)
        return output

    def close(self) -> None:
        """Close all sockets."""
        self._selector.close()
        self._listener.close()
        for each in self._connections:
            each.socket.close()

    def _take(self) -> bool:
        """Take what the client has sent; return whether there was anything."""
        found = False
        for key, _ in self._selector.select(_LOOK_S):
            found = True
            if key.data is None:
                accepted, _ = self._listener.accept()
                accepted.setblocking(False)
                connection = _Connection(accepted)
                self._connections.append(connection)
                self._selector.register(accepted, selectors.EVENT_READ, connection)
                continue
            connection = key.data
            try:
                data = connection.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            connection.received += data
            if not data:
                connection.ended = True
                self._selector.unregister(connection.socket)
        return found

    def _has_something(self) -> bool:
        return any(
            not each.ended and (each.received or not each.is_open) for each in self._connections
        )

    def _deliver(self) -> None:
        self.trips += 1
        self.requests.append([])
        for each in self._connections:
            if not each.is_open:
                each.is_open = True
                continue
            data, each.received = each.received, b""
            if data and not each.ended:
                self._answers_due.append((each, data))
        # Handshakes that begin; the rest is answered now, or when the client rests again.
        begin, later = [], []
        for due in self._answers_due:
            (begin if self._tls and due[0].tls is None else later).append(due)
        self._answers_due = begin or later
        self._answer_all()
        self._answers_due = later if begin else []

    def _answer_all(self) -> None:
        due, self._answers_due = self._answers_due, []
        for connection, data in due:
            # A client that is gone, or has closed just now, is no business of ours.
            with contextlib.suppress(ConnectionError):
                self._answer(connection, data)

    def _answer(self, connection: _Connection, data: bytes) -> None:
        if self._tls is None:
            connection.socket.setblocking(True)
            connection.socket.sendall(self._served(connection, data))
        else:
            if connection.tls is None:
                connection.tls = self._tls.wrap_bio(
                    connection.to_tls, connection.from_tls, server_side=True
                )
            connection.to_tls.write(data)
            plain = b""
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                if not connection.shaken:
                    connection.tls.do_handshake()
                    connection.shaken = True
                    self.resumed += bool(connection.tls.session_reused)
                while True:
                    plain += connection.tls.read(1 << 16)
            if answer := self._served(connection, plain):
                connection.tls.write(answer)
            connection.socket.setblocking(True)
            connection.socket.sendall(connection.from_tls.read())
        connection.socket.setblocking(False)

    def _served(self, connection: _Connection, data: bytes) -> bytes:
        connection.request += data
        answers = b""
        while b"\r\n\r\n" in connection.request:
            head, _, connection.request = connection.request.partition(b"\r\n\r\n")
            connection.requests += 1
            lines = head.decode().split("\r\n")
            method, target, _ = lines[0].split(" ")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines[1:])
            }
            self.requests[-1].append((method, target))
            status, more, body = self._found(target, headers.get("range", ""))
            text = "".join(f"{name}: {value}\r\n" for name, value in more.items())
            answers += f"HTTP/1.1 {status}\r\n{text}Content-Length: {len(body)}\r\n\r\n".encode()
            answers += body
        return answers

    def _found(self, target: str, wanted: str) -> tuple[str, dict[str, str], bytes]:
        path, _, query = target.partition("?")
        if _PAGE_PATH.fullmatch(path):
            items = [self._info(name) for name in self._objects]
            return (
                "200 OK",
                {"Content-Type": "application/json"},
                json.dumps({"kind": "storage#objects", "items": items}).encode(),
            )
        name = urllib.parse.unquote(path.partition("/o/")[2])
        if name not in self._objects:
            return "404 Not Found", {}, b""
        content = self._objects[name]
        if "alt=media" not in query.split("&"):
            info = json.dumps(self._info(name)).encode()
            return "200 OK", {"Content-Type": "application/json"}, info
        more = {"x-goog-generation": "1", "x-goog-stored-content-length": str(len(content))}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
        if part is None:
            return "200 OK", more, content
        begin = int(part[1])
        end = min(int(part[2] or len(content)) + 1, len(content))
        more["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        return "206 Partial Content", more, content[begin:end]

    def _info(self, name: str) -> dict[str, str]:
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": "bucket",
            "generation": "1",
            "metageneration": "1",
            "size": str(len(self._objects[name])),
        }


def _threads_at_rest(pid: int) -> list[tuple[str, ...]] | None:
    """Return how often each thread has run so far; None: one of them runs now, or wants to."""
    found = []
    try:
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            lines = dict(
                line.split(":\t", 1) for line in (task / "status").read_text().splitlines()
            )
            if not lines["State"].startswith("S"):
                return None
            found.append(
                (task.name, lines["voluntary_ctxt_switches"], lines["nonvoluntary_ctxt_switches"])
            )
    except (OSError, ValueError, KeyError):
        return None
    return found
