"""versitygw: a gateway that speaks S3 and keeps objects as files of a folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from testing.servers.process import REPOSITORY, Running, ServerProcess


def binary() -> Path:
    """The server that `tools/servers.sh versitygw` builds, or the one named by
    HEADRACE_VERSITYGW."""
    named = os.environ.get("HEADRACE_VERSITYGW")
    return Path(named) if named else REPOSITORY / "build" / "servers" / "versitygw"


class VersityServer(Running):
    """One gateway on an empty folder; `url` is its endpoint, for `access_key` and `secret_key`."""

    access_key, secret_key = "headrace", "headrace-password"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-versitygw-")
        root = Path(self._folder.name)
        self._data, attributes = root / "data", root / "attributes"
        self._data.mkdir()
        attributes.mkdir()

        def command(port: int) -> list[str]:
            return [
                str(binary()),
                f"--access={self.access_key}",
                f"--secret={self.secret_key}",
                f"--port=127.0.0.1:{port}",
                "posix",
                f"--sidecar={attributes}",
                str(self._data),
            ]

        try:
            self._process = ServerProcess(
                command, host="127.0.0.1", port=0, log_file=root / "versitygw.log"
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.url = f"http://127.0.0.1:{self._process.port}"

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        (self._data / name).mkdir()

    def stop(self) -> None:
        """End it, and remove what it keeps."""
        self._process.stop()
        self._folder.cleanup()
