"""What a listing asks of the server: how many pages, which fields, how many at a time."""

from __future__ import annotations

from itertools import islice
from urllib.parse import parse_qs, urlsplit

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.listing.conftest import OpenStore

SHAPES = [
    "flat",
    "uuid",
    "deep",
    "one_folder",
    "skewed",
    "long_prefix",
    "unicode",
    "all_unicode",
    "last_byte",
]


def list_requests(server: FaultServer) -> list[dict[str, str]]:
    queries = [urlsplit(entry["target"]).query for entry in server.log() if entry["kind"] == "list"]
    return [{name: values[0] for name, values in parse_qs(query).items()} for query in queries]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_name_once_in_order_with_few_more_requests(
    server: FaultServer, store: headrace.Store, shape: str
) -> None:
    server.synthetic("bucket", 100_000, 10, shape=shape)
    index = store.index()
    assert [index.name(i) for i in range(len(index))] == server.names("bucket")
    # 100 pages one after the other. What is guessed is bounded whatever the names.
    assert 100 <= len(list_requests(server)) <= 150


@pytest.mark.parametrize("shape", ["flat", "deep"])
def test_many_pages_cost_at_most_a_third_more(
    server: FaultServer, store: headrace.Store, shape: str
) -> None:
    server.synthetic("bucket", 300_000, 10, shape=shape)
    assert len(store.index()) == 300_000
    assert len(list_requests(server)) <= 390


@pytest.mark.parametrize("count", [0, 1, 10, 1000])
def test_one_page_is_one_request(server: FaultServer, store: headrace.Store, count: int) -> None:
    server.synthetic("bucket", count, 10, shape="flat")
    assert len(store.index()) == count
    assert len(list(store.list())) == count
    assert len(list_requests(server)) == 2


def test_an_index_asks_for_what_reading_needs(server: FaultServer, store: headrace.Store) -> None:
    server.put("bucket", "a", b"bytes", contentType="text/plain")
    (in_index,) = store.index()
    (in_list,) = store.list()
    assert in_index == headrace.ObjectInfo(
        "a", in_list.size_bytes, in_list.generation, in_list.crc32c
    )
    assert in_list == store.stat("a")
    fields = [request["fields"] for request in list_requests(server)]
    assert fields[0] == "items(name,size,generation,crc32c),nextPageToken"
    assert "contentType" in fields[1]


def test_who_takes_one_name_costs_one_request(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 100_000, 10, shape="flat")
    assert next(iter(store.list())).name == "0000000"
    assert len(list(islice(store.list(), 1000))) == 1000
    assert len(list_requests(server)) == 2


def test_a_listing_runs_ahead_by_a_multiple_of_what_was_taken(
    server: FaultServer, store: headrace.Store
) -> None:
    server.synthetic("bucket", 1_000_000, 10, shape="flat")
    names = store.list()
    assert len(list(islice(names, 3000))) == 3000
    names.close()  # type: ignore[attr-defined]
    # Three were taken: 8 pages ahead for each, and guesses, of the thousand that there are.
    assert len(list_requests(server)) <= 3 + 3 * 8 + 32


def test_no_more_in_flight_than_the_store_may(server: FaultServer) -> None:
    server.synthetic("bucket", 60_000, 10, shape="uuid")
    server.limit(in_flight=8)
    store = headrace.Store(
        "gs://bucket", endpoint=server.url, parallel=headrace.ParallelOptions(max_in_flight=8)
    )
    assert len(store.index()) == 60_000
    assert server.stats()["by_status"] == {"200": len(list_requests(server))}


def test_pages_in_flight_can_be_set_by_hand(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 20_000, 10, shape="flat", list_delay_ms=5)
    for listing in (
        store.index(max_pages_in_flight=1),
        list(store.list(max_pages_in_flight=1)),
    ):
        assert len(listing) == 20_000
    requests = list_requests(server)
    assert len(requests) == 40
    assert sum("pageToken" not in request for request in requests) == 2
    assert server.stats()["max_in_flight"] == 1
    server.synthetic("bucket", 20_000, 10, shape="flat", list_delay_ms=400)  # so that they meet
    assert len(store.index(max_pages_in_flight=4)) == 20_000
    assert server.stats()["max_in_flight"] == 4
    with pytest.raises(headrace.InvalidArgumentError, match="max_pages_in_flight is 0"):
        store.index(max_pages_in_flight=0)
    with pytest.raises(headrace.InvalidArgumentError, match="max_pages_in_flight is -1"):
        next(store.list(max_pages_in_flight=-1))


def test_a_listing_with_a_limit_asks_page_after_page(
    server: FaultServer, store: headrace.Store
) -> None:
    server.synthetic("bucket", 10_000, 10, shape="flat")
    assert len(list(store.list(max_results=2500))) == 2500
    assert [int(request["maxResults"]) for request in list_requests(server)] == [1000, 1000, 500]


def test_the_bounds_narrow_a_listing(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 50_000, 10, shape="flat", prefix="p/")
    names = [
        info.name for info in store.list("p/00", start_offset="p/0012345", end_offset="p/0034567")
    ]
    assert names == [f"p/{i:07d}" for i in range(12_345, 34_567)]
    assert len(store.index("p/004")) == 10_000
    assert len(store.index("q")) == 0


@pytest.mark.parametrize("shape", ["flat", "uuid", "deep"])
def test_a_listing_below_a_root_costs_what_one_of_the_same_names_costs(
    server: FaultServer, open_store: OpenStore, shape: str
) -> None:
    server.synthetic("bucket", 60_000, 10, shape=shape)
    alone = [info.name for info in open_store().list(max_pages_in_flight=1)]
    sent = len(list_requests(server))
    server.reset()
    server.synthetic("bucket", 60_000, 10, shape=shape, prefix="a run/")
    for neighbour in ("a run", "a run.txt", "a run0", "a ru", "b"):
        server.put("bucket", neighbour, b"")
    store = open_store("gs://bucket/a run")
    assert [info.name for info in store.list(max_pages_in_flight=1)] == alone
    assert len(list_requests(server)) == sent
    index = store.index()
    assert [index.name(i) for i in range(len(index))] == alone
    assert [info.name for info in store.list()] == alone
    # Each as many pages as there are, and the guesses that a listing of the bucket may cost, too.
    assert len(list_requests(server)) <= sent + 2 * 100
