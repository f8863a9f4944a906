"""Listings of a bucket of a cloud behind a real cluster: pages and tokens are the cloud's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import headrace
from testing.servers import AistoreCluster, MinioServer
from testing.servers.minio import ACCESS_KEY, SECRET_KEY
from testing.servers.s3_client import client_of

NAMES = sorted(
    [f"d/train/{i:04}" for i in range(1300)]
    + [f"d/train-{i:04}" for i in range(1100)]
    + ["d/train.tar", "d/train small/x", "d/trainz", "e#f", "g/ü"],
    key=str.encode,
)
PAGES = 3  # of 1,000 names


@pytest.fixture(scope="module")
def cluster() -> Iterator[AistoreCluster]:
    """Three targets before a MinIO with `NAMES`."""
    key = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    with (
        MinioServer(buckets=["cloud"]) as cloud,
        AistoreCluster(targets=3, cloud=cloud) as made,
        client_of(cloud.url, key=key) as client,
    ):
        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(
                    lambda name: client.put_object(Bucket="cloud", Key=name, Body=name.encode()),
                    NAMES,
                )
            )
        yield made


@pytest.fixture
def store(cluster: AistoreCluster) -> headrace.Store:
    return headrace.Store("ais+s3://cloud", endpoint=cluster.url)


def first_requests() -> int:
    """Those that were not sent again because the cluster was slow."""
    now = headrace.metrics()
    return now.requests_total - now.retries_total - now.hedges_total


def test_all_pages_of_a_cloud_are_listed(store: headrace.Store) -> None:
    before = first_requests()
    assert [info.name for info in store.list()] == NAMES
    # And the map of the cluster, if it was not known.
    assert first_requests() - before <= PAGES + 1
    for prefix in ("d/train", "d/train-", "d/train/", "d/train-1", "e", "none"):
        expected = [name for name in NAMES if name.startswith(prefix)]
        assert [info.name for info in store.list(prefix)] == expected, prefix
    found = store.list(start_offset="d/train/1290", end_offset="d/trainz")
    assert [info.name for info in found] == [f"d/train/{i:04}" for i in range(1290, 1300)]


@pytest.mark.parametrize("most", [190, 1000])
def test_short_pages_of_a_cloud_go_on_where_they_ended(store: headrace.Store, most: int) -> None:
    names: list[str] = []
    token, pages = "", 0
    while pages == 0 or token:
        page = store.list_page(page_token=token, max_results=most)
        names += [info.name for info in page.objects]
        token, pages = page.next_page_token, pages + 1
    assert names == NAMES
    assert pages == -(-len(NAMES) // most)


def test_a_cloud_is_listed_level_by_level(store: headrace.Store) -> None:
    flat = [name for name in NAMES if name.startswith("d/train-")]
    expected = ["d/train small/", *flat, "d/train.tar", "d/train/", "d/trainz"]
    assert [entry.name for entry in store.list("d/", delimiter="/")] == expected
    assert [entry.name for entry in store.list(delimiter="/")] == ["d/", "e#f", "g/"]
    after = store.list(delimiter="/", start_offset="d/trainz0")
    assert [entry.name for entry in after] == ["e#f", "g/"]
    within = store.list("d/", delimiter="/", start_offset="d/train/1")
    assert [entry.name for entry in within] == ["d/train/", "d/trainz"]
    # Pages that end within one of the cloud's.
    names: list[str] = []
    token = ""
    while not names or token:
        page = store.list_page("d/", delimiter="/", page_token=token, max_results=300)
        assert len(page.objects) + len(page.prefixes) <= 300
        names += sorted([*(info.name for info in page.objects), *page.prefixes], key=str.encode)
        token = page.next_page_token
    assert names == expected


def test_what_the_cluster_keeps_and_what_it_does_not_are_listed_alike(
    cluster: AistoreCluster, store: headrace.Store
) -> None:
    read = NAMES[5:1500:400]
    assert [store.read(name).bytes() for name in read] == [name.encode() for name in read]
    value = {"prefix": "", "props": "name", "pagesize": 0, "flags": "1"}
    body = json.dumps({"action": "list", "value": value}).encode()
    status, _, answer = cluster.request("GET", "/v1/buckets/cloud?provider=aws", body)
    assert status == 200
    assert {entry["name"] for entry in json.loads(answer)["entries"]} >= {*read}
    infos = list(store.list())
    assert [info.name for info in infos] == NAMES
    assert all(info.size_bytes == len(info.name.encode()) for info in infos)


def test_what_was_listed_cold_can_be_read_cold_and_warm(store: headrace.Store) -> None:
    infos = [info for info in store.list() if info.name in NAMES[2000:2006]]
    for _ in range(2):
        assert [s.bytes() for s in store.read_many(infos)] == [i.name.encode() for i in infos]
