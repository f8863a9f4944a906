"""A server that misbehaves, and stores that are not patient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer

# Retries at once, and an end within a second: what is tried is what happens, not how long it takes.
FAST = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001, max_backoff_s=0.002)
SHORT = headrace.TimeoutOptions(
    connect_s=0.5, tls_s=0.5, first_byte_s=0.15, stall_s=0.15, total_s=2.0
)

OpenStore = Callable[..., headrace.Store]


@pytest.fixture(scope="session")
def _faults_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
def server(_faults_server: FaultServer) -> FaultServer:
    _faults_server.reset()
    _faults_server.bucket("bucket")
    # Connections of the test before may have been left in the midst of something.
    headrace.shutdown()
    return _faults_server


@pytest.fixture
def open_store(server: FaultServer) -> OpenStore:
    def open_store(url: str = "gs://bucket", **options: Any) -> headrace.Store:
        return headrace.Store(
            url, **{"endpoint": server.url, "retry": FAST, "timeout": SHORT, **options}
        )

    return open_store


@pytest.fixture
def store(open_store: OpenStore) -> headrace.Store:
    return open_store()
