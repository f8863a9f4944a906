"""Writers that are killed while they write."""

from __future__ import annotations

import signal
import subprocess
import sys

from testing.faultserver.client import FaultServer


def kill_when_written(server: FaultServer, script: str, *arguments: str, times: int) -> None:
    """Run `script` and kill it with SIGKILL once it has printed ``written`` so often.

    Args:
        script: Python, which gets the server's URL and `arguments`.
    """
    with subprocess.Popen(
        [sys.executable, "-c", script, server.url, *arguments], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(times):
            assert child.stdout.readline() == "written\n"
        child.send_signal(signal.SIGKILL)
    server.close_connections("rst")  # what it had sent, and the server had not read yet
