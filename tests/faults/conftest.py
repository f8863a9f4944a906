"""A server that misbehaves, and stores that are not patient."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.fixture
def server(server: FaultServer) -> FaultServer:
    server.bucket("bucket")
    return server


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
