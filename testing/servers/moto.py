"""moto: a stand-in for AWS in Python, with its S3."""

from __future__ import annotations

from testing.servers.process import REPOSITORY, S3InFolder

PYTHON = REPOSITORY / ".venvs" / "moto" / "bin" / "python"
"""Of the environment that `tools/servers.sh moto` makes."""


class MotoServer(S3InFolder):
    """One server, which keeps all in memory and takes any keys."""

    def __init__(self) -> None:
        super().__init__(
            "moto",
            lambda _, port: [str(PYTHON), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        )
