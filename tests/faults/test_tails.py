"""A server that answers some requests late: the right bytes come, by few more requests."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import Certificates
from tests.faults.conftest import FAST, OpenStore
from tests.waiting import wait_until

HEDGED = headrace.ParallelOptions(hedge=True)
LENT = 4  # hedges, one for each I/O thread, of which there are four at most


def content(i: int, size_bytes: int) -> bytes:
    block = hashlib.sha256(str(i).encode()).digest()
    return (block * (size_bytes // len(block) + 1))[:size_bytes]


def read_all(store: headrace.Store, names: list[str], rounds: int) -> list[bytes]:
    batches = (names for _ in range(rounds))
    return [sample.bytes() for batch in store.read_batches(batches) for sample in batch]


@pytest.mark.parametrize("scheme", ["gs", "s3"])
@pytest.mark.parametrize("size_bytes", [1_000, 700_000])
def test_with_a_tail_every_byte_is_right_and_few_requests_are_more(
    server: FaultServer, open_store: OpenStore, size_bytes: int
) -> None:
    store = open_store(parallel=HEDGED)
    names = [f"o{i:02d}" for i in range(50)]
    for i, name in enumerate(names):
        store.write(name, content(i, size_bytes))
    server.latency(5, tail_fraction=0.02, tail_ms=400)
    rounds = 12
    before = headrace.metrics()
    for i, found in enumerate(read_all(store, names, rounds)):
        assert found == content(i % len(names), size_bytes)
    after = headrace.metrics()
    reads = rounds * len(names)
    hedges = after.hedges_total - before.hedges_total
    assert after.requests_total - before.requests_total == reads + hedges
    assert hedges <= reads * 0.03 + LENT
    assert after.hedges_won_total - before.hedges_won_total <= hedges
    assert after.bytes_read_total - before.bytes_read_total == reads * size_bytes


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_an_answer_that_never_comes_is_replaced_by_another(
    server: FaultServer, open_store: OpenStore
) -> None:
    slow = headrace.TimeoutOptions(first_byte_s=100, total_s=100)
    store = open_store(parallel=HEDGED, timeout=slow)
    names = [f"o{i:02d}" for i in range(50)]
    for i, name in enumerate(names):
        store.write(name, content(i, 1000))
    read_all(store, names, 40)  # so that every thread knows what is late, and may pay for it
    server.faults([{"match": {"path_contains": "o07"}, "count": 1, "action": "stall_head"}])
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(read_all, store, names, 1)
        # Where a pause of the machine has used up what hedges cost, others earn it again.
        while not late.done():
            read_all(store, names[8:], 4)
        assert late.result() == [content(i, 1000) for i in range(50)]
    assert headrace.metrics().hedges_won_total >= 1
    headrace.shutdown()


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
def test_a_late_answer_that_lost_is_read_to_its_end_and_its_connection_kept(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, over_tls: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    tls = {"tls_cert": certificates.cert_file, "tls_key": certificates.key_file}
    with FaultServer(**(tls if over_tls else {})) as server:
        server.bucket("bucket")
        names = [f"o{i:02d}" for i in range(50)]
        for i, name in enumerate(names):
            server.put("bucket", name, content(i, 20_000))
        store = headrace.Store("gs://bucket", endpoint=server.url, parallel=HEDGED, retry=FAST)
        assert read_all(store, names, 40) == [content(i % 50, 20_000) for i in range(2000)]
        late = {"match": {"path_contains": "o07"}, "count": 1, "action": {"delay_ms": 2000}}
        # Where the machine is busy, others may be late, too, or the hedge as late as the first: a
        # third of the limit is read to its end at a time, and what is more is cut.
        for _ in range(10):
            server.faults([late])
            before = headrace.metrics()
            assert read_all(store, names, 1) == [content(i, 20_000) for i in range(50)]
            after = headrace.metrics()
            assert after.retries_total == before.retries_total
            cut = after.hedges_cut_total - before.hedges_cut_total
            lost = after.hedges_total - before.hedges_total - cut
            dropped = before.hedge_bytes_dropped_total + 20_000 * lost
            wait_until(lambda: headrace.metrics().hedge_bytes_dropped_total >= dropped)  # noqa: B023
            if after.hedges_won_total == before.hedges_won_total + 1 and cut == 0:
                break
        else:
            pytest.fail(f"in ten rounds, no answer that had lost was left to come: {after}")
        assert headrace.metrics().connections_open == after.connections_open
        headrace.shutdown()


def test_while_the_server_throttles_nothing_is_sent_twice(
    server: FaultServer, open_store: OpenStore
) -> None:
    store = open_store(parallel=HEDGED)
    names = [f"o{i:02d}" for i in range(50)]
    for i, name in enumerate(names):
        store.write(name, content(i, 1000))
    read_all(store, names, 10)
    server.faults([{"match": {"kind": "media"}, "count": 1, "action": {"status": 429}}])
    read_all(store, names[:1], 1)
    before = headrace.metrics().hedges_total
    server.faults([])
    server.latency(0, tail_fraction=0.1, tail_ms=200)
    read_all(store, names, 4)
    assert headrace.metrics().hedges_total == before


def test_without_hedging_every_request_is_sent_once(
    server: FaultServer, open_store: OpenStore
) -> None:
    store = open_store(parallel=headrace.ParallelOptions(hedge=False))
    names = [f"o{i:02d}" for i in range(50)]
    for i, name in enumerate(names):
        store.write(name, content(i, 1000))
    server.latency(1, tail_fraction=0.05, tail_ms=200)
    before = headrace.metrics().requests_total
    read_all(store, names, 6)
    assert headrace.metrics().requests_total == before + 300
