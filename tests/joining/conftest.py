"""A bucket of small objects, a store that joins them, and what was asked of the server."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

import headrace
from headrace import ComposeOptions
from testing.faultserver.client import FaultServer
from tests.faults.conftest import FAST
from tests.process.conftest import run_child as run_child

# For answers that never come, with `OFTEN`. No other test has time-outs that a busy machine could
# run into.
SHORT = headrace.TimeoutOptions(first_byte_s=0.25, stall_s=0.25)
TEMPORARY = "dataflux-composed-objects/"
# Also what was begun a moment ago is swept, and a pause does not end within a test.
JOIN = ComposeOptions(pause_s=3600.0)


class OpenStore(Protocol):
    """Opens the bucket, whose small objects are composed."""

    def __call__(self, join: ComposeOptions | None = JOIN, **options: Any) -> headrace.Store: ...


@pytest.fixture
def server(server: FaultServer) -> FaultServer:
    server.bucket("bucket")
    return server


def content(i: int) -> bytes:
    """What the object with this number holds."""
    return b"%03d." % i * (20 + i)


@pytest.fixture
def objects(server: FaultServer) -> dict[str, bytes]:
    """70 small objects: two groups of 32, and one of 6."""
    contents = {f"data/{i:03d}": content(i) for i in range(70)}
    for name, data in contents.items():
        server.put("bucket", name, data)
    return contents


@pytest.fixture
def open_store(server: FaultServer) -> OpenStore:
    def open_store(join: ComposeOptions | None = JOIN, **options: Any) -> headrace.Store:
        settings = {"endpoint": server.url, "retry": FAST, **options}
        return headrace.Store(
            "gs://bucket", provider=headrace.GcsOptions(compose_small_objects=join), **settings
        )

    return open_store


def sent(server: FaultServer) -> dict[str, int]:
    """How many requests of each kind there were, but for listings and their sweep."""
    found: dict[str, int] = server.stats()["by_kind"]
    return {kind: count for kind, count in found.items() if count and kind != "list"}


def left(server: FaultServer) -> list[str]:
    """The temporary objects that are there when all that was begun has ended."""
    headrace.shutdown()
    return server.names("bucket", TEMPORARY)


def rule(kind: str, action: Any, **more: Any) -> dict[str, Any]:
    """A rule for requests of `kind`; reads are those of temporary objects."""
    match = {"kind": kind}
    if kind == "media":
        match["path_contains"] = TEMPORARY
    return {"match": match, "action": action, **more}
