"""A bucket that the datasets find by themselves, and scripts that run in their own interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Protocol

import pytest

from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET


@pytest.fixture
def server(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    """The fault server with an empty bucket; STORAGE_EMULATOR_HOST names it."""
    server.bucket(BUCKET)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.delenv("HEADRACE_COMPOSE", raising=False)
    return server


@pytest.fixture
def objects(server: FaultServer) -> dict[str, bytes]:
    """What is in the bucket: 40 small objects of different sizes, by name."""
    contents = {f"train/{i:03d}": b"%03d" % i * (i + 1) for i in range(40)}
    for name, content in contents.items():
        server.put(BUCKET, name, content)
    return contents


class RunScript(Protocol):
    """Runs ``python -m headrace.compat script arguments`` and returns what it printed."""

    def __call__(
        self,
        script: str,
        *arguments: object,
        command: tuple[str, ...] = ("-m", "headrace.compat"),
        expect_code: int = 0,
        **environment: str,
    ) -> str: ...


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    def run(
        script: str,
        *arguments: object,
        command: tuple[str, ...] = ("-m", "headrace.compat"),
        expect_code: int = 0,
        **environment: str,
    ) -> str:
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(script))
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", *command, str(file), *map(str, arguments)],
            env={**os.environ, "NO_GCE_CHECK": "true", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A group of its own: its DataLoader workers end with it, whatever happens.
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=200)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        assert child.returncode == expect_code, f"code {child.returncode}\n{out}\n{err}"
        return out + err

    return run
