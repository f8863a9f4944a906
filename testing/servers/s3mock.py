"""S3Mock: Adobe's stand-in for S3, in Java."""

from __future__ import annotations

import tempfile
import urllib.request
from pathlib import Path

from testing.servers.process import REPOSITORY, Running, ServerProcess


class S3MockServer(Running):
    """One server that keeps objects as files of a folder; `url` is its endpoint, for any keys.

    `tools/servers.sh s3mock` fetches it; it needs a Java runtime.
    """

    access_key, secret_key = "headrace", "headrace-password"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-s3mock-")
        root = Path(self._folder.name)
        jar = REPOSITORY / "build" / "servers" / "s3mock.jar"

        def command(port: int) -> list[str]:
            return [
                "java",
                "-jar",
                str(jar),
                "--server.port=0",  # for TLS
                "--server.address=127.0.0.1",
                f"--com.adobe.testing.s3mock.httpPort={port}",
                f"--com.adobe.testing.s3mock.store.root={root / 'data'}",
            ]

        try:
            self._process = ServerProcess(
                command, host="127.0.0.1", port=0, log_file=root / "s3mock.log"
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.url = f"http://127.0.0.1:{self._process.port}"

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT")).close()

    def stop(self) -> None:
        """End it, and remove what it keeps."""
        self._process.stop()
        self._folder.cleanup()
