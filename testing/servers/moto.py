"""moto: a stand-in for AWS in Python, with its S3."""

from __future__ import annotations

import tempfile
import urllib.request
from pathlib import Path

from testing.servers.process import REPOSITORY, Running, ServerProcess


class MotoServer(Running):
    """One server that keeps all in memory; `url` is its endpoint, for any keys.

    `tools/servers.sh moto` installs it, in an environment of its own.
    """

    access_key, secret_key = "headrace", "headrace-password"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-moto-")
        python = REPOSITORY / ".venvs" / "moto" / "bin" / "python"

        def command(port: int) -> list[str]:
            return [str(python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

        try:
            self._process = ServerProcess(
                command, host="127.0.0.1", port=0, log_file=Path(self._folder.name) / "moto.log"
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.url = f"http://127.0.0.1:{self._process.port}"

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT")).close()

    def stop(self) -> None:
        """End it."""
        self._process.stop()
        self._folder.cleanup()
