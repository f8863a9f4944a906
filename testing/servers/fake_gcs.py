"""fake-gcs-server: the JSON and XML API of Google Cloud Storage, in memory or in a folder."""

from __future__ import annotations

import json
import os
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

from testing.servers.certificates import Certificates
from testing.servers.process import REPOSITORY, Running, ServerProcess


def binary() -> Path:
    """The server that `make servers` built, or the one named by HEADRACE_FAKE_GCS_SERVER."""
    path = Path(
        os.environ.get("HEADRACE_FAKE_GCS_SERVER")
        or REPOSITORY / "build" / "servers" / "fake-gcs-server"
    )
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: make servers")
    return path


class FakeGcsServer(Running):
    """One server with no buckets yet; `url` is its endpoint.

        with FakeGcsServer() as server:
            server.make_bucket("b")
            server.put("b", "name", b"bytes")

    `host` may be `::1`. With `certificates` it speaks TLS. With `objects_folder`, which exists, it
    keeps a file per object there instead of a list in memory, through which it would look for each:
    with tens of thousands of objects that is most of its work.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        certificates: Certificates | None = None,
        objects_folder: Path | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-fake-gcs-")
        authority = f"[{host}]" if ":" in host else host
        scheme = "https" if certificates else "http"
        tls = (
            [f"-cert-location={certificates.cert_file}"]
            + [f"-private-key-location={certificates.key_file}"]
            if certificates
            else []
        )
        backend = (
            ["-backend=filesystem", f"-filesystem-root={objects_folder}"]
            if objects_folder
            else ["-backend=memory"]
        )

        def command(port: int) -> list[str]:
            return [
                str(binary()),
                f"-scheme={scheme}",
                f"-host={authority}",
                f"-port={port}",
                *backend,
                f"-public-host={authority}:{port}",
                # Goes into the Location of a resumable upload.
                f"-external-url={scheme}://{authority}:{port}",
                "-log-level=warn",
                *tls,
            ]

        try:
            self._process = ServerProcess(
                command, host=host, port=port, log_file=Path(self._folder.name) / "log"
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.port = self._process.port
        self.url = f"{scheme}://{authority}:{self.port}"
        self._context = None
        if certificates:
            import ssl

            self._context = ssl.create_default_context(cafile=str(certificates.ca_file))

    def stop(self) -> None:
        """End the server; what it held is gone."""
        self._process.stop()
        self._folder.cleanup()

    def output(self) -> str:
        """What the server has printed so far."""
        return self._process.output()

    def _request(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        request = urllib.request.Request(
            self.url + path, data=body, method=method, headers={"Content-Type": content_type}
        )
        # No proxy of the environment may stand between a test and its server.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )
        with opener.open(request, timeout=80.0) as answer:
            return bytes(answer.read())

    def make_bucket(self, bucket: str, *, versioning: bool = False) -> None:
        """Create an empty bucket."""
        body = {"name": bucket, "versioning": {"enabled": versioning}}
        self._request(
            "POST", "/storage/v1/b?project=test", json.dumps(body).encode(), "application/json"
        )

    def put(
        self,
        bucket: str,
        name: str,
        data: bytes,
        *,
        content_type: str = "application/octet-stream",
    ) -> None:
        """Store an object, replacing the one that was there."""
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        quoted = urllib.parse.quote(bucket, safe="")
        self._request("POST", f"/upload/storage/v1/b/{quoted}/o?{query}", data, content_type)

    def get(self, bucket: str, name: str) -> bytes:
        """The bytes of an object, read without headrace."""
        path = f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        return self._request("GET", path, None, "")

    def names(self, bucket: str) -> list[str]:
        """Every name in a bucket, sorted."""
        page = json.loads(self._request("GET", f"/storage/v1/b/{bucket}/o", None, ""))
        return sorted(item["name"] for item in page.get("items", []))
