"""Targets that leave, die, freeze and come back, while objects are read."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster
from tests.ais.conftest import Open, by_node, know_the_map
from tests.waiting import wait_until

NAMES = [f"o{i:03}" for i in range(60)]


def filled(server: FaultServer, store: headrace.Store) -> list[headrace.ObjectInfo]:
    for name in NAMES:
        server.put("bucket", name, name.encode())
    infos = list(store.list())
    while by_node(server, 0, "smap") == 0:  # or there is no map before the change
        store.exists(NAMES[0])
    return infos


def test_a_member_that_leaves_and_comes_back_costs_no_error(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    infos = filled(ais_server, store)
    assert len(list(store.read_many(infos))) == len(NAMES)
    ais_server.node(2, in_map=False)  # its objects are not found for now
    back = threading.Timer(1.0, lambda: ais_server.node(2, in_map=True))
    back.start()
    try:
        assert [s.bytes() for s in store.read_many(infos)] == [n.encode() for n in NAMES]
    finally:
        back.join()


def test_an_object_that_is_gone_is_missing_at_once(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    infos = filled(ais_server, store)
    assert len(list(store.read_many(infos))) == len(NAMES)
    store.delete(NAMES[7])
    with pytest.raises(headrace.NotFoundError) as caught:
        store.read(infos[7])
    assert caught.value.url == f"ais://bucket/{NAMES[7]}"
    assert headrace.metrics().retries_total == 0


def test_a_target_that_is_down_is_waited_for(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    infos = filled(ais_server, store)
    assert len(list(store.read_many(infos))) == len(NAMES)
    ais_server.node(1, up=False)
    back = threading.Timer(1.0, lambda: ais_server.node(1, up=True))
    back.start()
    try:
        assert [s.bytes() for s in store.read_many(infos)] == [n.encode() for n in NAMES]
    finally:
        back.join()


def test_objects_that_have_moved_are_found(ais_server: FaultServer, open_store: Open) -> None:
    store = open_store()
    infos = filled(ais_server, store)
    assert len(list(store.read_many(infos))) == len(NAMES)
    ais_server.node(3, in_map=False)
    ais_server.cluster(rebalance=True)
    assert [s.bytes() for s in store.read_many(infos)] == [n.encode() for n in NAMES]


def test_what_is_written_while_the_map_is_old_is_found_by_everybody(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.node(3, in_map=False)
    store = open_store()
    know_the_map(ais_server, store)
    ais_server.node(3, in_map=True)
    part_bytes = 1 << 16
    before = ais_server.stats()["by_node"][0]["body_bytes_in"]
    for name in NAMES:
        if name.endswith("0"):
            with store.open_writer(name, part_bytes=part_bytes) as writer:
                writer.write(name.encode() * part_bytes)
        else:
            store.write(name, name.encode())
    other = open_store(direct=False)
    for name in NAMES:
        assert other.read(name).bytes()[: len(name)] == name.encode()
        assert other.stat(name).generation == store.stat(name).generation
    sent = ais_server.stats()["by_node"][0]["body_bytes_in"] - before
    assert sent < part_bytes, "commands, and no bytes of objects"


def test_what_this_process_has_written_it_reads_although_its_map_is_old(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.node(3, in_map=False)
    store = open_store()
    for name in NAMES:
        store.write(name, b"before")
    know_the_map(ais_server, store)
    ais_server.node(3, in_map=True)  # the others keep what they have
    maps, reads = by_node(ais_server, 0, "smap"), by_node(ais_server, 0, "media")
    for name in NAMES:
        store.write(name, name.encode())
        assert store.read(name).bytes() == name.encode()
    assert by_node(ais_server, 0, "smap") - maps == 1
    # Once there is the new map, nothing goes by the proxy any more.
    while by_node(ais_server, 0, "media") > reads:
        reads = by_node(ais_server, 0, "media")
        assert [store.read(name).bytes() for name in NAMES] == [name.encode() for name in NAMES]


def test_what_this_process_has_deleted_is_gone_although_its_map_is_old(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.node(3, in_map=False)
    store = open_store()
    for name in NAMES:
        store.write(name, b"before")
    know_the_map(ais_server, store)
    ais_server.node(3, in_map=True)
    for name in NAMES:
        ais_server.put("bucket", name, b"moved")  # to where it belongs now
    for name in NAMES:
        store.delete(name)
        with pytest.raises(headrace.NotFoundError):
            store.read(name)


# ── Real nodes ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cluster() -> Iterator[AistoreCluster]:
    """Three targets of this test's own."""
    with AistoreCluster(targets=3) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["frozen", "killed", "stopped in order"])
def test_a_restart_of_a_target_costs_time_and_no_error(cluster: AistoreCluster, fault: str) -> None:
    cluster.make_bucket("bucket")
    store = headrace.Store("ais://bucket", endpoint=cluster.url)
    for name in NAMES:
        store.write(name, name.encode())
    infos = list(store.list())
    assert [s.bytes() for s in store.read_many(infos)] == [n.encode() for n in NAMES]

    def read_all() -> list[bytes]:
        return [sample.bytes() for sample in store.read_many(infos)]

    ends = {"frozen": signal.SIGSTOP, "killed": signal.SIGKILL, "stopped in order": signal.SIGTERM}
    cluster.signal(2, ends[fault])
    before = headrace.metrics()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read_all)
        # Nodes are started by this thread: they would end with one that ends.
        if fault == "frozen":
            wait_until(lambda: headrace.metrics().objects_read_total > before.objects_read_total)
            assert not reading.done()
            cluster.signal(2, signal.SIGCONT)
        else:
            wait_until(lambda: headrace.metrics().retries_total > before.retries_total + 20)
            cluster.revive(2)
        assert reading.result() == [name.encode() for name in NAMES]
    cluster.wait_until_ready()
    assert read_all() == [name.encode() for name in NAMES]
    store.delete(NAMES[0])
    assert not store.exists(NAMES[0])
