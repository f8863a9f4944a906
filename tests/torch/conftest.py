"""Buckets of small objects for the tests with torch, and children that have torch imported."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import collections
import functools
from collections.abc import Iterator
from pathlib import Path

import headrace
from testing.faultserver.client import FaultServer
from tests.nursery import Nursery
from tests.process.conftest import RunChild


@pytest.fixture(scope="session")
def _nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def run_child(_nursery: Nursery, tmp_path: Path) -> RunChild:
    """Run a script in an interpreter of its own, as that of tests/process, but with torch."""
    return functools.partial(_nursery.run, tmp_path)


def content(i: int, size_bytes: int = 100) -> bytes:
    """What the object with this number holds: its number, again and again."""
    return (b"%04d." % i * size_bytes)[:size_bytes]


def fill(server: FaultServer, count: int, size_bytes: int = 100) -> headrace.Store:
    """Return a store of the objects ``data/0000`` and so on."""
    for i in range(count):
        server.put("bucket", f"data/{i:04d}", content(i, size_bytes))
    return headrace.Store("gs://bucket/data/", endpoint=server.url)


def fill_folder(folder: object, count: int, size_bytes: int = 100) -> headrace.Store:
    """Return a store of the files ``0000`` and so on."""
    store = headrace.Store(folder)  # type: ignore[arg-type]
    for i in range(count):
        store.write(f"{i:04d}", content(i, size_bytes))
    return store


def reads(server: FaultServer) -> collections.Counter[str]:
    """Return how often each object was asked for."""
    return collections.Counter(
        each["target"].partition("/o/")[2].partition("?")[0].replace("%2F", "/")
        for each in server.log()
        if each["kind"] == "media"
    )


def kinds(server: FaultServer) -> dict[str, int]:
    """Return how many requests there were of each kind."""
    return dict(collections.Counter(each["kind"] for each in server.log()))
