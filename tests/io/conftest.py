"""Stores to test files in: a directory, and the fault server."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

import headrace
from testing.faultserver.client import FaultServer

hypothesis.settings.register_profile("io", deadline=None, max_examples=40)
hypothesis.settings.load_profile("io")

Child = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def _fault_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
def server(_fault_server: FaultServer) -> FaultServer:
    """The fault server with one bucket, empty and well-behaved."""
    _fault_server.reset()
    _fault_server.bucket("bucket")
    _fault_server.min_part_bytes(1)  # tests have small ones
    return _fault_server


@pytest.fixture
def gcs(server: FaultServer) -> headrace.Store:
    return headrace.Store("gs://bucket", endpoint=server.url)


@pytest.fixture(params=["file", "gcs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> headrace.Store:
    """An empty store of each kind."""
    if request.param == "file":
        return headrace.Store(tmp_path)
    gcs: headrace.Store = request.getfixturevalue("gcs")
    return gcs


@pytest.fixture
def run_child() -> Child:
    """Run a script in a fresh interpreter."""

    def run(script: str, *arguments: str, expect_code: int = 0) -> object:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *arguments],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == expect_code, done.stdout + done.stderr
        assert "nanobind" not in done.stderr, done.stderr  # it reports leaks there
        return done

    return run  # type: ignore[return-value]
