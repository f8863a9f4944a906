"""versitygw: a gateway that speaks S3 and keeps objects as files of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from testing.servers.process import REPOSITORY, S3InFolder


def binary() -> Path:
    """The server that `tools/servers.sh versitygw` builds, or the one named by
    HEADRACE_VERSITYGW."""
    named = os.environ.get("HEADRACE_VERSITYGW")
    return Path(named) if named else REPOSITORY / "build" / "servers" / "versitygw"


class VersityServer(S3InFolder):
    """One gateway."""

    def __init__(self) -> None:
        def command(folder: Path, port: int) -> list[str]:
            for each in ("data", "attributes"):
                (folder / each).mkdir(exist_ok=True)
            return [
                str(binary()),
                f"--access={self.access_key}",
                f"--secret={self.secret_key}",
                f"--port=127.0.0.1:{port}",
                "posix",
                f"--sidecar={folder / 'attributes'}",
                str(folder / "data"),
            ]

        super().__init__("versitygw", command)

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        (self.folder / "data" / name).mkdir()
