"""What gives keys on AWS, on loopback: STS, SSO, container and instance metadata."""

from __future__ import annotations

import datetime
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

IMDS_ROLE = "/latest/meta-data/iam/security-credentials/"
IMDS_TOKEN, CONTAINER_TOKEN, SSO_TOKEN = "imds-token", "container-token", "sso-token"


@dataclass(frozen=True)
class Keys:
    """Temporary keys."""

    name: str
    life_s: float = 3600.0

    @property
    def access_key(self) -> str:
        return f"AKID{self.name}"

    @property
    def secret_key(self) -> str:
        return f"secret-of-{self.name}"

    @property
    def token(self) -> str:
        return f"token-of-{self.name}"

    @property
    def for_server(self) -> dict[str, Any]:
        """As the fault server takes them."""
        return {
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "session_token": self.token,
        }

    @property
    def expires_at(self) -> str:
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.life_s)
        # Instance metadata are read with a format that has no fractions of a second.
        return end.strftime("%Y-%m-%dT%H:%M:%SZ")

    def members(self, token: str) -> dict[str, str]:
        """As JSON has them, with the token under this name."""
        return {
            "AccessKeyId": self.access_key,
            "SecretAccessKey": self.secret_key,
            token: self.token,
            "Expiration": self.expires_at,
        }


class AwsServices:
    """All of them at one address. They give `keys`, to whoever proves that he may have them.

    `asked` has a word for each time that they were given.
    """

    def __init__(self) -> None:
        self.keys = Keys("FIRST")
        self.asked: list[str] = []
        self.status = 200
        """Of answers that give keys."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, answer = outer.answer(self.command, self.path, headers, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer.encode())

            do_GET = do_PUT = do_POST = do_any  # noqa: N815 - the base class's names

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(
        self, method: str, target: str, headers: dict[str, str], body: str
    ) -> tuple[int, str]:
        """Return status and body."""
        path = target.partition("?")[0]
        if (method, path) == ("PUT", "/latest/api/token"):
            return 200, IMDS_TOKEN
        if path.startswith(IMDS_ROLE):
            if headers.get("x-aws-ec2-metadata-token") != IMDS_TOKEN:
                return 401, ""
            if path == IMDS_ROLE:
                return 200, "role"
            return self._give("instance", {"Code": "Success", **self.keys.members("Token")})
        if path == "/container" and headers.get("authorization") == CONTAINER_TOKEN:
            return self._give("container", self.keys.members("Token"))
        if path == "/federation/credentials":
            if headers.get("x-amz-sso_bearer_token") != SSO_TOKEN:
                return 401, "{}"
            end = datetime.datetime.fromisoformat(self.keys.expires_at)
            of_role = {
                "accessKeyId": self.keys.access_key,
                "secretAccessKey": self.keys.secret_key,
                "sessionToken": self.keys.token,
                "expiration": int(end.timestamp() * 1000),
            }
            return self._give("sso", {"roleCredentials": of_role})
        if method == "POST":
            asked = parse_qs(body)
            return self._assume(asked["Action"][0], asked)
        return 404, ""

    def _give(self, word: str, answer: dict[str, Any]) -> tuple[int, str]:
        self.asked.append(word)
        return self.status, json.dumps(answer)

    def _assume(self, action: str, asked: dict[str, list[str]]) -> tuple[int, str]:
        if action == "AssumeRoleWithWebIdentity" and asked["WebIdentityToken"] != ["web-token"]:
            return 400, _sts_error("InvalidIdentityToken", "who is that?")
        self.asked.append(action)
        if self.status != 200:
            return self.status, _sts_error("AccessDenied", "you may not assume that role")
        members = self.keys.members("SessionToken")
        elements = "".join(f"<{name}>{value}</{name}>" for name, value in members.items())
        return 200, (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<{action}Result><Credentials>{elements}</Credentials></{action}Result>"
            f"</{action}Response>"
        )


def _sts_error(code: str, message: str) -> str:
    return (
        '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>'
        f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    )
