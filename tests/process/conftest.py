"""Child interpreters, and a server that they talk to."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Protocol

import pytest

from testing.faultserver.client import FaultServer

FOLDER = Path(__file__).resolve().parent


class RunChild(Protocol):
    """Runs `script` in an interpreter of its own and returns what it printed.

    The script is a file, so that multiprocessing can import it again, and finds `in_child`. It must
    end with `expect_code`, in time, with an empty stderr.
    """

    def __call__(
        self,
        script: str,
        *arguments: object,
        expect_code: int = 0,
        timeout_s: float = 220.0,
        stderr: str | None = "",
        **environment: str,
    ) -> str: ...


def child_command(folder: Path, script: str, *arguments: object) -> list[str]:
    file = folder / "child.py"
    file.write_text(textwrap.dedent(script))
    return [sys.executable, "-X", "faulthandler", str(file), *map(str, arguments)]


def child_environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    # Newer Pythons warn of any fork in a process with threads, which is what is tried here.
    warnings = "error,ignore:This process:DeprecationWarning"
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": warnings, **more}


@pytest.fixture
def run_child(tmp_path: Path) -> RunChild:
    def run(
        script: str,
        *arguments: object,
        expect_code: int = 0,
        timeout_s: float = 220.0,
        stderr: str | None = "",
        **environment: str,
    ) -> str:
        child = subprocess.Popen(
            child_command(tmp_path, script, *arguments),
            env=child_environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A group of its own: what it has started ends with it, whatever happens.
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGABRT)  # faulthandler says where every thread is
            try:
                out, err = child.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                out, err = "", "and it holds its pipes"
            raise AssertionError(f"no end within {timeout_s} s\n{out}\n{err}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        assert child.returncode == expect_code, f"code {child.returncode}\n{out}\n{err}"
        if stderr is not None:
            assert err == stderr
        return out

    return run


def open_connections(server: FaultServer) -> int:
    """Those that carried requests; the server's own control connection does not count."""
    return sum(each["end"] == "open" for each in server.stats()["connections"])


def wait_until_closed(server: FaultServer, timeout_s: float = 40.0) -> None:
    """Until the server has seen the end of every connection."""
    deadline = time.monotonic() + timeout_s
    while open_connections(server) > 0:
        assert time.monotonic() < deadline, server.stats()["connections_closed_by"]
        time.sleep(0.002)


@pytest.fixture
def server(server: FaultServer) -> FaultServer:
    """A server with the objects 000 to 099 and `stalls`, whose first answer never comes."""
    for i in range(100):
        server.put("bucket", f"{i:03d}", b"%03d" % i * 1000)
    server.put("bucket", "stalls", b"late")
    server.faults([{"match": {"path_contains": "stalls"}, "count": 1, "action": "stall_head"}])
    return server
