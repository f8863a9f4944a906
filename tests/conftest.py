"""Servers that tests share. A test that changes a server's behaviour starts its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import Certificates, FakeGcsServer

# A shell starts what runs in its background with SIGINT ignored, and children inherit that: Ctrl-C
# could not be tested there.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


Child = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and a server certificate for 127.0.0.1, ::1 and localhost."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcsServer]:
    """A fake-gcs-server for the whole run; take a bucket of your own from `gcs_bucket`."""
    with FakeGcsServer() as server:
        yield server


@pytest.fixture
def gcs_bucket(fake_gcs: FakeGcsServer) -> str:
    """The name of a new, empty bucket on `fake_gcs`."""
    name = f"bucket-{uuid.uuid4().hex}"
    fake_gcs.make_bucket(name)
    return name


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def gcs(server: FaultServer) -> headrace.Store:
    """A bucket on the fault server that the tests of a folder share as `server`."""
    server.bucket("bucket")
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
    """Run a script in a fresh interpreter, with more of the environment if need be."""

    def run(script: str, *arguments: str, expect_code: int = 0, **environment: str) -> object:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == expect_code, done.stdout + done.stderr
        assert "nanobind" not in done.stderr, done.stderr  # it reports leaks there
        return done

    return run  # type: ignore[return-value]
