"""What the tests of AIStore have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer

Open = Callable[..., headrace.Store]
Configure = Callable[..., None]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """`headrace.configure`, for one test."""
    headrace.shutdown()
    yield headrace.configure
    headrace.shutdown()
    headrace.configure()


@pytest.fixture
def open_store(ais_server: FaultServer) -> Open:
    """A store on the fault server, with `AisOptions` and other options."""
    ais_server.bucket("bucket")

    def open_with(
        url: str = "ais://bucket", *, direct: bool = True, **options: Any
    ) -> headrace.Store:
        options.setdefault("provider", headrace.AisOptions(direct=direct))
        return headrace.Store(url, endpoint=ais_server.url, **options)

    return open_with


@pytest.fixture(params=[True, False], ids=["direct", "by-the-proxy"])
def store(request: pytest.FixtureRequest, open_store: Open) -> headrace.Store:
    """The two ways to the targets."""
    return open_store(direct=request.param)


def by_node(server: FaultServer, node: int, kind: str) -> int:
    return sum(1 for line in server.log() if line["node"] == node and line.get("kind") == kind)


def know_the_map(server: FaultServer, store: headrace.Store) -> None:
    """Send requests until one has gone straight to a target."""
    store.write("known", b"x")
    for _ in range(1000):
        before = by_node(server, 0, "media")
        store.read("known")
        if by_node(server, 0, "media") == before:
            return
    raise AssertionError("the map never came")
