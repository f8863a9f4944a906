"""A cluster of two proxies, the primary of which moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster
from tests.ais.conftest import by_node, know_the_map
from tests.faults.conftest import FAST

FIRST, SECOND = 0, 3  # The proxies; the targets are between them.
NAMES = [f"o{i:02}" for i in range(20)]
PART = 1 << 16
LARGE = bytes(i * 11 % 253 for i in range(3 * PART + 17))


@pytest.fixture(scope="module", params=["A", "B"])
def two_proxies(request: pytest.FixtureRequest) -> Iterator[FaultServer]:
    with FaultServer(dialect="ais", targets=2, proxies=2, personality=request.param) as server:
        yield server


@pytest.fixture
def server(two_proxies: FaultServer) -> FaultServer:
    headrace.shutdown()
    two_proxies.reset()
    two_proxies.bucket("bucket")
    return two_proxies


def open_at(server: FaultServer, *, direct: bool = True) -> headrace.Store:
    """A store that was opened at the first proxy, and knows the map."""
    provider = headrace.AisOptions(direct=direct)
    store = headrace.Store("ais://bucket", endpoint=server.url, provider=provider)
    for name in NAMES:
        store.write(name, name.encode())
    if direct:
        know_the_map(server, store)
        store.delete("known")
    else:
        while by_node(server, FIRST, "smap") == 0:
            store.exists(NAMES[0])
    return store


def everything_works(store: headrace.Store) -> None:
    infos = list(store.list())
    assert [info.name for info in infos] == NAMES
    assert [s.bytes() for s in store.read_many(infos)] == [name.encode() for name in NAMES]
    assert store.read(NAMES[3]).bytes() == NAMES[3].encode()
    assert store.stat(NAMES[4]).size_bytes == 3
    store.write("new", b"small")
    with store.open_writer("large", part_bytes=PART) as writer:
        writer.write(LARGE)
    assert store.read("new").bytes() == b"small"
    assert store.read("large").bytes() == LARGE
    store.delete("new")
    store.delete("large")
    assert not store.exists("new")


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by-the-proxy"])
def test_a_handover_costs_nothing(server: FaultServer, direct: bool) -> None:
    store = open_at(server, direct=direct)
    server.node(SECOND, primary=True)
    everything_works(store)
    assert headrace.metrics().retries_total == 0
    assert by_node(server, SECOND, "media") == 0


def test_when_the_proxy_is_gone_targets_are_read_and_the_rest_names_it(server: FaultServer) -> None:
    store = open_at(server)
    server.node(FIRST, up=False)
    assert [s.bytes() for s in store.read_many(NAMES)] == [name.encode() for name in NAMES]
    impatient = headrace.Store("ais://bucket", endpoint=server.url, retry=FAST)
    for attempt in (lambda: impatient.write("new", b"x"), lambda: list(impatient.list())):
        with pytest.raises(headrace.UnavailableError, match=f"127.0.0.1:{server.port}"):
            attempt()


# ── Real nodes ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by-the-proxy"])
def test_a_real_cluster_is_handed_over_and_nothing_is_lost(direct: bool) -> None:
    headrace.shutdown()
    with AistoreCluster(targets=2, proxies=2) as cluster:
        cluster.make_bucket("bucket")
        provider = headrace.AisOptions(direct=direct)
        store = headrace.Store("ais://bucket", endpoint=cluster.url, provider=provider)
        for name in NAMES:
            store.write(name, name.encode())
        everything_works(store)
        cluster.hand_over(SECOND)
        everything_works(store)
        assert headrace.metrics().retries_total == 0
