"""A server whose buckets are computed, and stores on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.faults.conftest import FAST as FAST

OpenStore = Callable[..., headrace.Store]


@pytest.fixture(scope="session")
def _listing_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
def server(_listing_server: FaultServer) -> FaultServer:
    _listing_server.reset()
    _listing_server.bucket("bucket")
    # Connections of the test before may have been left in the midst of something.
    headrace.shutdown()
    return _listing_server


@pytest.fixture
def open_store(server: FaultServer) -> OpenStore:
    def open_store(url: str = "gs://bucket", **options: Any) -> headrace.Store:
        return headrace.Store(url, **{"endpoint": server.url, "retry": FAST, **options})

    return open_store


@pytest.fixture
def store(open_store: OpenStore) -> headrace.Store:
    return open_store()
