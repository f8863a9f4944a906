"""A server that misbehaves, and stores that retry at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS

# Retries at once: what is tried is what happens, not how long it takes. Only for what a time-out
# ends are time-outs short: a busy machine runs into them, too.
FAST = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001, max_backoff_s=0.002)
# Where time-outs are short, a server that did not answer is asked until a busy machine has time for
# it.
OFTEN = replace(FAST, max_attempts=30)

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
        given = {"endpoint": server.url, "retry": FAST, **keys, **options}
        return headrace.Store(url, **given)

    return open_store


@pytest.fixture
def store(open_store: OpenStore) -> headrace.Store:
    return open_store()
