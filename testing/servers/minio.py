"""MinIO, and what makes its multipart uploads reachable for a client of Google Cloud Storage.

MinIO is licensed under the AGPL, version 3. Tests build it from its sources on the machine that
they run on, start it as a process of its own and talk to it over HTTP; no part of headrace contains
it, and nobody is handed a copy.

Multipart uploads of the XML API are those of S3: MinIO is the real server that has them. The rest
of what a large write needs (look, compose, delete, list) is JSON on Google Cloud Storage, and S3's
own on MinIO. `MinioAsGcs` answers it from what MinIO has, and passes the requests of uploads on as
they are, but for the signature.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.client
import http.server
import json
import os
import shutil
import ssl
import tempfile
import threading
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testing.servers.certificates import Certificates
from testing.servers.process import REPOSITORY, Running, ServerProcess

ACCESS_KEY, SECRET_KEY, REGION = "headrace", "headrace-password", "us-east-1"


def binary() -> Path:
    """The server that ``make servers`` builds, or the one named by HEADRACE_MINIO."""
    path = Path(os.environ.get("HEADRACE_MINIO") or REPOSITORY / "build" / "servers" / "minio")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: make servers")
    return path


def _folder_with_room() -> str | None:
    """Where its folder is made by default: where temporary files are, which is None.

    It writes nothing to a disk that is 99 % full, whatever is left there.
    """
    disk, memory = shutil.disk_usage(tempfile.gettempdir()), Path("/dev/shm")
    if disk.free > disk.total // 50 or not memory.is_dir():
        return None
    return str(memory) if shutil.disk_usage(memory).free > 1 << 30 else None


class MinioServer(Running):
    """One server on an empty folder; `url` is its endpoint, for `ACCESS_KEY` and `SECRET_KEY`.

        with MinioServer() as server:
            server.request("PUT", "/bucket/name", b"bytes")

    buckets:       empty buckets that are there from the start
    region:        the one that signatures must name
    certificates:  speak TLS
    domains:       hosts below which a bucket's name may stand, as in ``bucket.DOMAIN``
    parent:        where its folder is made; default: where temporary files are, or in memory if
                   that disk is too full for it
    """

    def __init__(
        self,
        *,
        buckets: Sequence[str] = ("bucket",),
        region: str = REGION,
        certificates: Certificates | None = None,
        domains: Sequence[str] = (),
        parent: str | os.PathLike[str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="headrace-minio-", dir=_folder_with_room() if parent is None else parent
        )
        self._region = region
        root = Path(self._folder.name)
        for bucket in buckets:
            (root / "data" / bucket).mkdir(parents=True)
        (root / "data").mkdir(exist_ok=True)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MINIO_")},
            "HOME": str(root),
            "MINIO_ROOT_USER": ACCESS_KEY,
            "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_SITE_REGION": region,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        if domains:
            environment["MINIO_DOMAIN"] = ",".join(domains)
        self._context = None
        if certificates:
            # The names of the files are MinIO's.
            folder = root / "certificates"
            folder.mkdir()
            shutil.copy(certificates.cert_file, folder / "public.crt")
            shutil.copy(certificates.key_file, folder / "private.key")
            self._context = ssl.create_default_context(cafile=str(certificates.ca_file))

        def command(port: int) -> list[str]:
            return [
                str(binary()),
                "server",
                "--quiet",
                f"--address=127.0.0.1:{port}",
                f"--certs-dir={root / 'certificates'}",
                str(root / "data"),
            ]

        def is_ready(port: int) -> bool:
            self.port = port
            # It listens before it can answer; until then every request gets 503.
            if self.request("GET", "/")[0] == 503:
                return False
            # It answers before it has read which region it is in.
            if not buckets or region == REGION:
                return True
            return region.encode() in self.request("GET", f"/{buckets[0]}?location=")[2]

        try:
            self._process = ServerProcess(
                command,
                host="127.0.0.1",
                port=0,
                log_file=root / "log",
                environment=environment,
                is_ready=is_ready,
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.url = f"{'https' if certificates else 'http'}://127.0.0.1:{self.port}"
        self.folder = root / "data"
        """Where it keeps its objects, and in ``.minio.sys`` what is unfinished."""

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def stop(self) -> None:
        """End the server; what it held is gone."""
        self._process.stop()
        self._folder.cleanup()

    def output(self) -> str:
        """What the server has printed so far."""
        return self._process.output()

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        host: str | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a signed request, and return status, headers and body of the answer.

        Args:
            target: path and query, percent-encoded, sent as it is.
            host: the `Host` to say, for a bucket that stands there.
        """
        address = f"127.0.0.1:{self.port}"
        host = host or address
        signature = _signature(method, target, host, self._region)
        all_headers = {**(headers or {}), **signature, "Host": host}
        connection = (
            http.client.HTTPSConnection(address, timeout=80.0, context=self._context)
            if self._context
            else http.client.HTTPConnection(address, timeout=80.0)
        )
        try:
            connection.request(method, target, body, all_headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, name: str) -> bytes | None:
        """The bytes of an object; None if there is none."""
        status, _, body = self.request("GET", f"/bucket/{urllib.parse.quote(name)}")
        return body if status == 200 else None

    def names(self, prefix: str = "") -> list[str]:
        """The names in the bucket."""
        query = urllib.parse.urlencode({"list-type": 2, "prefix": prefix})
        _, _, body = self.request("GET", f"/bucket?{query}")
        return [each.text or "" for each in ET.fromstring(body).iter() if each.tag.endswith("}Key")]


def _signature(method: str, target: str, host: str, region: str) -> dict[str, str]:
    """Return the headers that sign a request (AWS Signature Version 4, body unsigned)."""
    path, _, query = target.partition("?")
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    day = now[:8]
    headers = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical = "\n".join(
        [
            method,
            urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~"),
            urllib.parse.urlencode(pairs, quote_via=urllib.parse.quote, safe="-_.~"),
            *(f"{name}:{value}" for name, value in headers.items()),
            "",
            ";".join(headers),
            "UNSIGNED-PAYLOAD",
        ]
    )
    scope = f"{day}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{SECRET_KEY}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
    signed = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={ACCESS_KEY}/{scope}, SignedHeaders={';'.join(headers)}"
    del headers["host"]
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {credential}, Signature={signed}"}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing: who aborts an upload hangs up."""


class MinioAsGcs(Running):
    """Large writes to ``gs://bucket``, as multipart uploads, on MinIO; `url` is the endpoint."""

    def __init__(self) -> None:
        self.minio = MinioServer()
        self.log: list[str] = []
        """Method and query of each request of an upload that was passed on."""
        self.max_in_flight = 0
        """How many of these there were at a time."""
        self._in_flight = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, answer = outer._answer(
                    self.command, self.path, dict(self.headers.items()), body
                )
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = do_any  # noqa: N815 - the base class's names

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """End both servers."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.minio.stop()

    def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        path, _, query = target.partition("?")
        if not path.startswith("/storage/v1/b/bucket/o"):
            return self._pass_on(method, target, headers, body)
        name = path.removeprefix("/storage/v1/b/bucket/o").removeprefix("/")
        parameters = dict(urllib.parse.parse_qsl(query))
        if method == "GET" and not name:
            names = self.minio.names(parameters.get("prefix", ""))
            return _json(200, {"items": [self._resource(each) for each in names]})
        if method == "POST":
            name, source = (
                name.removesuffix("/compose"),
                json.loads(body)["sourceObjects"][0]["name"],
            )
            quoted = urllib.parse.quote(f"/bucket/{source}")
            target = f"/bucket/{urllib.parse.quote(urllib.parse.unquote(name))}"
            status, _, said = self.minio.request(
                "PUT", target, b"", {"x-amz-copy-source": quoted, "Content-Length": "0"}
            )
            assert status == 200, said
        name = urllib.parse.unquote(name)
        resource = self._resource(name)
        if resource is None:
            return _json(404, {"error": {"code": 404, "message": "no such object"}})
        if method == "DELETE":
            self.minio.request("DELETE", f"/bucket/{urllib.parse.quote(name)}")
            return 204, {}, b""
        return _json(200, resource)

    def _pass_on(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            self.log.append(f"{method} {target.partition('?')[2].partition('=')[0]}")
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
        kept = {
            name: value
            for name, value in headers.items()
            if name.lower() in ("content-type", "x-goog-hash")
        }
        status, told, answer = self.minio.request(method, target, body, kept)
        with self._lock:
            self._in_flight -= 1
        hop_by_hop = ("connection", "content-length", "transfer-encoding", "date", "server")
        kept = {name: value for name, value in told.items() if name.lower() not in hop_by_hop}
        return status, kept, answer

    def _resource(self, name: str) -> dict[str, Any] | None:
        # The sums are of the bytes that MinIO gives back.
        from headrace import _engine

        data = self.minio.get(name)
        if data is None:
            return None
        crc32c = _engine.crc32c(data).to_bytes(4, "big")
        return {
            "name": name,
            "bucket": "bucket",
            "size": str(len(data)),
            "generation": str(int(hashlib.sha256(data).hexdigest()[:15], 16) + 1),
            "crc32c": base64.b64encode(crc32c).decode(),
            "updated": "2020-01-01T00:00:00.000Z",
        }


def _json(status: int, value: Any) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()
