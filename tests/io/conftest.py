"""Stores to test files in: a directory, and the fault server."""

from __future__ import annotations

import pytest

from testing.faultserver.client import FaultServer


@pytest.fixture
def server(server: FaultServer) -> FaultServer:
    """The fault server with one bucket, empty and well-behaved."""
    server.bucket("bucket")
    server.min_part_bytes(1)  # tests have small ones
    return server
