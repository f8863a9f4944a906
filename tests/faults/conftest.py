"""A server that misbehaves, and stores that are not patient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS

# Retries at once, and an end within a second: what is tried is what happens, not how long it takes.
FAST = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001, max_backoff_s=0.002)
SHORT = headrace.TimeoutOptions(
    connect_s=0.5, tls_s=0.5, first_byte_s=0.15, stall_s=0.15, total_s=2.0
)

OpenStore = Callable[..., headrace.Store]


@pytest.fixture
def scheme() -> str:
    """Of `server` and of the stores; tests that run on several have it as a parameter."""
    return "gs"


@pytest.fixture
def server(request: pytest.FixtureRequest, scheme: str) -> FaultServer:
    if scheme == "s3":
        s3: FaultServer = request.getfixturevalue("s3_server")
        s3.bucket("bucket", default_checksum="CRC32C")
        return s3
    gcs: FaultServer = request.getfixturevalue("server")
    gcs.bucket("bucket")
    return gcs


@pytest.fixture
def open_store(server: FaultServer, scheme: str) -> OpenStore:
    keys = {"credentials": S3_KEYS} if scheme == "s3" else {}

    def open_store(url: str = f"{scheme}://bucket", **options: Any) -> headrace.Store:
        given = {"endpoint": server.url, "retry": FAST, "timeout": SHORT, **keys, **options}
        return headrace.Store(url, **given)

    return open_store


@pytest.fixture
def store(open_store: OpenStore) -> headrace.Store:
    return open_store()
