"""What competes for the same memory, and what was refused rather than lost."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import headrace
from testing.faultserver.client import FaultServer

ROUNDS = 3000


def throttle_once(server: FaultServer, kind: str) -> None:
    server.faults([{"match": {"kind": kind}, "count": 1, "action": {"status": 429}}])


@pytest.fixture
def little_memory(server: FaultServer) -> Iterator[None]:
    """An engine with room for little, for one test."""
    headrace.shutdown()
    headrace.configure(io_threads=2, memory_budget_bytes=headrace.MiB)
    yield
    headrace.shutdown()
    headrace.configure()


def test_reads_that_compete_for_the_last_room_all_end(
    server: FaultServer, little_memory: None
) -> None:
    """Two I/O threads, and room for one of two objects: whoever lost must be woken."""
    for name in ("a", "b"):
        server.put("bucket", name, name.encode() * 700_000)
    store = headrace.Store("gs://bucket", endpoint=server.url)
    infos = [store.stat("a"), store.stat("b")]
    gc.collect()
    held_before = headrace.metrics().memory_live_bytes
    for _ in range(ROUNDS):
        first, second = store.read_many(infos)
        assert (first.bytes()[:1], second.bytes()[-1:]) == (b"a", b"b")
        del first, second
    assert headrace.metrics().memory_live_bytes == held_before


def test_a_create_that_was_throttled_is_not_taken_for_done(
    server: FaultServer, store: headrace.Store
) -> None:
    server.put("bucket", "lock", b"same")
    throttle_once(server, "upload")
    with pytest.raises(headrace.PreconditionFailedError, match="exists already"):
        store.write("lock", b"same", if_generation="absent")


def test_a_delete_that_was_throttled_is_not_taken_for_done(
    server: FaultServer, store: headrace.Store
) -> None:
    throttle_once(server, "delete")
    with pytest.raises(headrace.NotFoundError):
        store.delete("missing")


def test_a_range_without_bytes_fills_no_destination(
    server: FaultServer, store: headrace.Store
) -> None:
    server.put("bucket", "object", b"0123456789")
    info = store.stat("object")
    assert info is not None
    for name, begin, end in (("object", 5, 5), (info, 5, 5), (info, 10, None)):
        with pytest.raises(headrace.InvalidArgumentError, match="the read gives 0"):
            store.read(name, begin=begin, end=end, into=bytearray(100))
