"""A server whose buckets are computed, and stores on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.faults.conftest import FAST as FAST

OpenStore = Callable[..., headrace.Store]


@pytest.fixture
def server(server: FaultServer) -> FaultServer:
    server.bucket("bucket")
    return server


@pytest.fixture
def open_store(server: FaultServer) -> OpenStore:
    def open_store(url: str = "gs://bucket", **options: Any) -> headrace.Store:
        return headrace.Store(url, **{"endpoint": server.url, "retry": FAST, **options})

    return open_store


@pytest.fixture
def store(open_store: OpenStore) -> headrace.Store:
    return open_store()
