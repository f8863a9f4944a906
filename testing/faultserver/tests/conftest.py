"""One fault server for all tests of a module; every test finds it empty and well-behaved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.faultserver.client import FaultServer
from testing.faultserver.tests.raw import RawClient


@pytest.fixture(scope="module")
def running_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
def server(running_server: FaultServer) -> FaultServer:
    running_server.reset()
    return running_server


@pytest.fixture(scope="module")
def running_s3_server() -> Iterator[FaultServer]:
    with FaultServer(dialect="s3") as server:
        yield server


@pytest.fixture
def client(server: FaultServer) -> Iterator[RawClient]:
    """A connection to the server, whichever it is."""
    with RawClient(server.host, server.port) as client:
        yield client
