"""Stores to test files in: a directory, and the fault server."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from testing.faultserver.client import FaultServer

hypothesis.settings.register_profile("io", deadline=None, max_examples=40)
hypothesis.settings.load_profile("io")


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
