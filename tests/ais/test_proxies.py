"""A cluster of two proxies, of which the primary moves, and the store's endpoint dies."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster, Certificates
from tests.ais.conftest import by_node, know_the_map
from tests.faults.conftest import FAST
from tests.waiting import wait_until

FIRST, SECOND = 0, 3  # The proxies; the targets are between them.
NAMES = [f"o{i:02}" for i in range(20)]
PART = 1 << 16
LARGE = bytes(i * 11 % 253 for i in range(3 * PART + 17))

both_ways = pytest.mark.parametrize("direct", [True, False], ids=["direct", "by-the-proxy"])
# With real clusters; the fault server shows the other way.
both_ways_slowly = pytest.mark.parametrize(
    "direct",
    [
        pytest.param(True, id="direct"),
        pytest.param(False, id="by-the-proxy", marks=pytest.mark.soak),
    ],
)


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


def open_at(server: FaultServer, *, direct: bool = True, **options: Any) -> headrace.Store:
    """A store that was opened at the first proxy, and knows the map."""
    options.setdefault("provider", headrace.AisOptions(direct=direct))
    store = headrace.Store("ais://bucket", endpoint=server.url, **options)
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


def asked(server: FaultServer, proxy: int) -> dict[str, int]:
    """How many requests of each kind a proxy has got."""
    kinds = [line["kind"] for line in server.log() if line["node"] == proxy]
    return {kind: kinds.count(kind) for kind in kinds}


@both_ways
def test_a_handover_costs_nothing(server: FaultServer, direct: bool) -> None:
    store = open_at(server, direct=direct)
    server.node(SECOND, primary=True)
    everything_works(store)
    assert headrace.metrics().retries_total == 0
    assert by_node(server, SECOND, "media") == 0


# ── The endpoint is gone ─────────────────────────────────────────────────────────────────────


@both_ways
def test_everything_goes_on_by_another_proxy_and_nothing_is_done_twice(
    server: FaultServer, direct: bool
) -> None:
    store = open_at(server, direct=direct)
    server.node(SECOND, primary=True)
    server.node(FIRST, up=False, in_map=False)
    before = asked(server, FIRST)
    done = server.carried_out("upload"), server.carried_out("delete")
    store.write("once", b"once")
    store.delete("once")
    assert (server.carried_out("upload"), server.carried_out("delete")) == (
        done[0] + 1,
        done[1] + 1,
    )
    assert [info.name for info in store.list()] == NAMES
    assert [store.stat(name).size_bytes for name in NAMES] == [3] * len(NAMES)
    assert [store.read(name).bytes() for name in NAMES] == [name.encode() for name in NAMES]
    sent = asked(server, SECOND)
    assert (sent["upload"], sent["delete"], sent["list"], sent["get"]) == (1, 1, 1, len(NAMES))
    assert sent.get("media", 0) == (0 if direct else len(NAMES))
    everything_works(store)
    assert asked(server, FIRST) == before
    assert headrace.metrics().retries_total == 0


def test_a_proxy_that_is_back_is_asked_again(server: FaultServer) -> None:
    store = open_at(server, direct=False)
    server.node(FIRST, up=False)
    assert store.read(NAMES[0]).bytes() == NAMES[0].encode()
    server.node(FIRST, up=True)
    before = by_node(server, FIRST, "media")
    assert store.read(NAMES[0]).bytes() == NAMES[0].encode()
    assert by_node(server, FIRST, "media") == before + 1
    assert by_node(server, SECOND, "media") == 1


@both_ways
def test_without_any_proxy_targets_are_read_and_the_rest_names_the_endpoint(
    server: FaultServer, direct: bool
) -> None:
    store = open_at(server, direct=direct, retry=FAST)
    server.node(FIRST, up=False)
    server.node(SECOND, up=False)
    if direct:
        assert [s.bytes() for s in store.read_many(NAMES)] == [name.encode() for name in NAMES]
    calls: list[Callable[[], object]] = [
        lambda: store.write("new", b"x"),
        lambda: list(store.list()),
        lambda: store.stat(NAMES[0]),
        lambda: store.delete(NAMES[0]),
    ]
    for call in calls:
        with pytest.raises(headrace.UnavailableError, match=f"127.0.0.1:{server.port}") as caught:
            call()
        assert caught.value.attempts == FAST.max_attempts
    server.node(SECOND, up=True)
    server.node(SECOND, primary=True)
    assert store.stat(NAMES[0]).size_bytes == 3


def test_a_store_that_has_seen_no_map_has_no_other_way(server: FaultServer) -> None:
    server.node(FIRST, up=False)
    store = headrace.Store("ais://bucket", endpoint=server.url, retry=FAST)
    with pytest.raises(headrace.UnavailableError, match=f"127.0.0.1:{server.port}"):
        store.write("new", b"x")
    assert asked(server, SECOND) == {}


def test_pages_of_one_listing_come_by_two_proxies(server: FaultServer) -> None:
    store = open_at(server)
    server.node(SECOND, primary=True)
    page = store.list_page(max_results=7)
    names = [info.name for info in page.objects]
    server.node(FIRST, up=False)
    while page.next_page_token:
        page = store.list_page(max_results=7, page_token=page.next_page_token)
        names += [info.name for info in page.objects]
    assert names == NAMES
    assert by_node(server, SECOND, "list") == 2


def test_a_listing_in_flight_is_asked_for_again_by_another_proxy(server: FaultServer) -> None:
    store = open_at(server)
    server.node(SECOND, primary=True)
    server.faults([{"match": {"kind": "list", "node": FIRST}, "action": "stall_head"}])
    with ThreadPoolExecutor(1) as threads:
        listing = threads.submit(lambda: [info.name for info in store.list()])
        wait_until(lambda: server.fault_counts()[0]["fired"] == 1)
        server.node(FIRST, up=False)
        assert listing.result() == NAMES
    assert headrace.metrics().retries_total == 1
    assert by_node(server, SECOND, "list") == 1


def test_what_the_endpoint_does_not_answer_in_time_is_repeated_by_another_proxy(
    server: FaultServer,
) -> None:
    store = open_at(server, timeout=headrace.TimeoutOptions(first_byte_s=2))
    server.faults([{"match": {"kind": "get", "node": FIRST}, "action": "stall_head"}])
    assert store.stat(NAMES[0]).size_bytes == 3
    assert headrace.metrics().retries_total == 1
    assert by_node(server, SECOND, "get") == 1


def test_a_change_whose_answer_is_lost_is_looked_for_by_another_proxy(server: FaultServer) -> None:
    store = open_at(server)
    server.node(FIRST, up=False)
    lost: dict[str, Any] = {"count": 1, "action": {"lost_answer": True}}
    for kind in ("delete", "upload"):
        server.faults([lost | {"match": {"kind": kind, "node": "target"}}])
        done = server.carried_out(kind)
        if kind == "delete":
            store.delete(NAMES[0])
        else:
            store.write(NAMES[0], b"again", if_generation="absent")
            assert store.read(NAMES[0]).bytes() == b"again"
            assert server.carried_out(kind) == done + 1, "it was found, and not written again"
        assert server.fault_counts()[0]["fired"] == 1


def test_a_piece_whose_answer_is_lost_is_not_sent_twice_by_another_proxy(
    server: FaultServer,
) -> None:
    store = open_at(server)
    server.cluster(personality="A")
    server.node(FIRST, up=False)
    rule = {"match": {"kind": "append", "node": "target"}, "from": 2, "count": 1}
    server.faults([rule | {"action": {"lost_answer": True}}])

    def write() -> None:
        with store.open_writer(NAMES[0], part_bytes=PART) as writer:
            writer.write(LARGE)

    with pytest.raises(headrace.UnavailableError, match="written again"):
        write()
    assert server.get("bucket", NAMES[0]) == NAMES[0].encode()


def test_another_proxy_gets_the_token_by_tls(certificates: Certificates) -> None:
    headrace.shutdown()
    with FaultServer(
        dialect="ais",
        targets=2,
        proxies=2,
        tls_cert=certificates.cert_file,
        tls_key=certificates.key_file,
    ) as server:
        server.bucket("bucket")
        server.auth(["secret"])
        store = open_at(
            server,
            credentials=headrace.BearerToken("secret"),
            provider=headrace.AisOptions(ca_file=str(certificates.ca_file)),
        )
        server.node(SECOND, primary=True)
        server.node(FIRST, up=False)
        everything_works(store)
        assert by_node(server, SECOND, "upload") == 1
        assert [line for line in server.log() if line["status"] == 401] == []
        assert headrace.metrics().retries_total == 0
        headrace.shutdown()


# ── Real nodes ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cluster() -> Iterator[AistoreCluster]:
    """Two targets and two proxies of this test's own."""
    headrace.shutdown()
    with AistoreCluster(targets=2, proxies=2) as made:
        made.make_bucket("bucket")
        yield made


def filled(cluster: AistoreCluster, direct: bool) -> headrace.Store:
    """A store at the first proxy, which is no longer the primary."""
    provider = headrace.AisOptions(direct=direct)
    store = headrace.Store("ais://bucket", endpoint=cluster.url, provider=provider)
    for name in NAMES:
        store.write(name, name.encode())
    everything_works(store)
    before = headrace.metrics().retries_total
    cluster.hand_over(SECOND)
    everything_works(store)
    assert headrace.metrics().retries_total == before
    return store


@pytest.mark.slow
@both_ways_slowly
def test_a_real_cluster_goes_on_when_its_proxy_moves_and_when_the_endpoint_is_killed(
    cluster: AistoreCluster, direct: bool
) -> None:
    store = filled(cluster, direct)
    before = headrace.metrics().retries_total
    cluster.signal(FIRST, signal.SIGKILL)
    everything_works(store)
    # No request was on its way to it, so nothing was sent twice.
    assert headrace.metrics().retries_total == before


@pytest.mark.slow
@both_ways_slowly
def test_a_real_endpoint_is_killed_under_reads_listings_and_writes(
    cluster: AistoreCluster, direct: bool
) -> None:
    store = filled(cluster, direct)
    killed = threading.Event()

    def read() -> bool:
        infos = [store.stat(name) for name in NAMES]
        return [s.bytes() for s in store.read_many(infos)] == [name.encode() for name in NAMES]

    def write(count: list[int]) -> bool:
        count[0] += 1
        name = f"w{count[0]:05}"
        store.write(name, name.encode())
        was_written = store.read(name).bytes() == name.encode()
        store.delete(name)
        return was_written and not store.exists(name)

    def repeat(rounds: list[int], work: Callable[[], bool]) -> bool:
        """Whether all went well, of what was done until the endpoint was gone and twenty more."""
        left = 20
        while left > 0:
            left -= killed.is_set()
            if not work():
                return False
            rounds[0] += 1
        return True

    written = [0]
    works: list[Callable[[], bool]] = [
        read,
        read,
        lambda: [info.name for info in store.list(prefix="o")] == NAMES,
        lambda: write(written),
    ]
    rounds = [[0] for _ in works]
    with ThreadPoolExecutor(len(works)) as threads:
        under_way = [
            threads.submit(repeat, done, work) for done, work in zip(rounds, works, strict=True)
        ]
        try:
            wait_until(lambda: min(done[0] for done in rounds) >= 3)
            cluster.signal(FIRST, signal.SIGKILL)
        finally:
            killed.set()
        assert [each.result() for each in under_way] == [True] * len(works)
    everything_works(store)


@pytest.mark.slow
def test_objects_of_a_real_cluster_are_read_and_written_although_its_primary_is_killed(
    cluster: AistoreCluster,
) -> None:
    provider = headrace.AisOptions(direct=False)
    store = headrace.Store("ais://bucket", endpoint=cluster.url, provider=provider)
    for name in NAMES:
        store.write(name, name.encode())
    everything_works(store)
    cluster.signal(FIRST, signal.SIGKILL)
    assert [s.bytes() for s in store.read_many(NAMES)] == [name.encode() for name in NAMES]
    store.write("new", b"small")
    assert store.stat("new").size_bytes == 5
    store.delete("new")
    assert not store.exists("new")
