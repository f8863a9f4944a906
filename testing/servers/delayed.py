"""A server as it looks from far away: nginx in front of it, with latency and a log of requests."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testing.servers.nginx import Nginx
from testing.servers.process import Running

_GLOBALS = """
  log_format requests escape=json '{"method":"$request_method","target":"$request_uri",'
    '"status":$status,"body_bytes":$body_bytes_sent,"connection":$connection,'
    '"seconds":$request_time}';
  upstream behind {
    server %(address)s;
    keepalive 256;
  }
"""
_LOCATIONS = """
    location / {
      access_log %(log)s requests;
      client_max_body_size 0;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host %(host)s;
      proxy_request_buffering off;
      proxy_buffering off;
      # as it came: nginx would decode the %%2F of a name
      proxy_pass http://behind$request_uri;
    }
"""


@dataclass(frozen=True, kw_only=True)
class LoggedRequest:
    """One request that was answered."""

    method: str
    target: str
    """Path and query, as sent."""
    status: int
    body_bytes: int
    """Of the answer."""
    connection: int
    """Numbers the connections."""
    seconds: float
    """From the first byte of the request to the last of the answer."""

    @property
    def object_read(self) -> str | None:
        """The name of the object whose content was asked for."""
        path, _, query = self.target.partition("?")
        if self.method != "GET" or "alt=media" not in query.split("&"):
            return None
        return urllib.parse.unquote(path.partition("/o/")[2])


class DelayedServer(Running):
    """Stands in front of the plain HTTP server at `url`; every request waits `latency_s` first.

    Any number of requests wait at once, as they do on a long line.

    keeps_host:  pass on the `Host` that the client said, which is signed on S3
    """

    def __init__(self, url: str, *, latency_s: float, keeps_host: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-delayed-")
        self._log = Path(self._folder.name) / "requests"
        address = urllib.parse.urlsplit(url).netloc
        host = "$http_host" if keeps_host else address
        values = {"address": address, "host": host, "log": str(self._log)}
        try:
            self._nginx = Nginx(
                Path(self._folder.name),
                latency_s=latency_s,
                globals=_GLOBALS % values,
                locations=_LOCATIONS % values,
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.url = self._nginx.url

    def stop(self) -> None:
        """End it; the server behind it goes on."""
        self._nginx.stop()
        self._folder.cleanup()

    def requests(self) -> list[LoggedRequest]:
        """Everything that was answered so far; nginx logs a request after its last byte."""
        text = self._log.read_text() if self._log.exists() else ""
        return [LoggedRequest(**json.loads(line)) for line in text.splitlines()]

    def requests_when(
        self, condition: Callable[[list[LoggedRequest]], bool], timeout_s: float = 20.0
    ) -> list[LoggedRequest]:
        """The log once it satisfies `condition`, or after `timeout_s` whatever it is then."""
        deadline = time.monotonic() + timeout_s
        while not condition(logged := self.requests()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return logged
