"""One fault server for all tests of a module; every test finds it empty and well-behaved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.faultserver.client import FaultServer


@pytest.fixture(scope="module")
def running_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
def server(running_server: FaultServer) -> FaultServer:
    running_server.reset()
    return running_server
