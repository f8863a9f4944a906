"""A bucket that the datasets find by themselves, and scripts that run in their own interpreter."""

from __future__ import annotations

import pytest

from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET
from tests.scripts import run_script as run_script


@pytest.fixture
def server(
    server: FaultServer, own_forkserver: None, monkeypatch: pytest.MonkeyPatch
) -> FaultServer:
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
