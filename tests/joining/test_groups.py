"""What is composed, and by how many requests."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace import ComposeOptions
from testing.faultserver.client import FaultServer
from tests.joining.conftest import TEMPORARY, OpenStore, left, rule, sent

Objects = dict[str, bytes]


def test_nothing_is_joined_unless_it_was_asked_for(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store(join=None)
    store.read_many(store.list())
    assert sent(server) == {"media": 70}


def test_a_group_of_32_is_one_compose_one_read_and_one_delete(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store()
    samples = store.read_many(store.list("data/"))
    assert [sample.bytes() for sample in samples] == [*objects.values()]
    assert left(server) == []
    assert sent(server) == {"compose": 3, "media": 3, "delete": 3}
    log = [each for each in server.log() if each["kind"] in ("compose", "media", "delete")]
    for each in log:
        assert TEMPORARY in unquote(each["target"])
        # Created only where nothing is; read and deleted in exactly that generation.
        generation = "0" if each["kind"] == "compose" else "1"
        assert f"ifGenerationMatch={generation}" in each["target"], each["target"]


def test_a_sample_says_what_it_is_a_sample_of(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store()
    infos = [*store.list("data/")]
    for info, sample in zip(infos, store.read_many(infos), strict=True):
        assert sample.url == f"gs://bucket/{info.name}"
        assert sample.generation == info.generation
        with memoryview(sample) as view:
            assert not view.readonly


WAYS: dict[str, Callable[[headrace.Store], list[bytes]]] = {
    "read_many": lambda store: [each.bytes() for each in store.read_many(store.list("data/"))],
    "read_batches": lambda store: [
        sample.bytes()
        for samples in store.read_batches([[*store.list("data/")]])
        for sample in samples
    ],
    "a pickled store": lambda store: [
        each.bytes() for each in pickle.loads(pickle.dumps(store)).read_many(store.list("data/"))
    ],
    "into buffers": lambda store: _into_buffers(store),
    "into one buffer, by index": lambda store: _into_one_buffer(store),
    "by index": lambda store: _by_index(store),
}


def _into_buffers(store: headrace.Store) -> list[bytes]:
    infos = [*store.list("data/")]
    buffers = [bytearray(info.size_bytes) for info in infos]
    store.read_many(infos, into=buffers)
    return [bytes(buffer) for buffer in buffers]


def _into_one_buffer(store: headrace.Store) -> list[bytes]:
    index = store.index("data/")
    buffer = bytearray(index.total_size_bytes)
    store._handle().start_indexed(index, array("q", range(len(index))), buffer).wait()
    parts, begin = [], 0
    for i in range(len(index)):
        parts.append(bytes(buffer[begin : begin + index.size_bytes(i)]))
        begin += index.size_bytes(i)
    return parts


def _by_index(store: headrace.Store) -> list[bytes]:
    index = store.index("data/")
    batch = store._handle().start_indexed(index, array("q", range(len(index))))
    return [each.bytes() for each in batch.take(return_errors=False)]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_a_batch_joins(
    server: FaultServer, objects: Objects, open_store: OpenStore, way: str
) -> None:
    assert WAYS[way](open_store()) == [*objects.values()]
    assert left(server) == []
    assert sent(server) == {"compose": 3, "media": 3, "delete": 3}


def test_the_classes_for_torch_join_without_an_option_of_their_own(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    pytest.importorskip("torch")
    from headrace.torch import Loader, MapDataset

    expected = [*objects.values()]
    dataset = MapDataset(open_store())
    assert [bytes(each.numpy()) for each in dataset.__getitems__(range(70))] == expected
    joined = [sent(server)["compose"]]
    assert joined == [3]
    loader = Loader(MapDataset(open_store()), batch_size=64, shuffle=True, seed=1, collate_fn=list)
    assert sorted(bytes(each.numpy()) for batch in loader for each in batch) == expected
    joined.append(sent(server)["compose"])
    assert joined[0] < joined[1]
    assert sent(server)["media"] == joined[1]  # nothing was read by itself
    assert left(server) == []


def test_what_is_not_known_beforehand_is_read_by_itself(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store()
    names = [*objects]
    assert [each.bytes() for each in store.read_many(names)] == [*objects.values()]
    assert sent(server) == {"media": 70}
    assert store.read(store.stat(names[0])).bytes() == objects[names[0]]
    (part,) = store.read_ranges([(store.stat(names[1]), 2, 10)])
    assert part.bytes() == objects[names[1]][2:10]
    assert sent(server) == {"media": 72, "get": 2}


def test_parts_that_look_compressed_are_read_again_by_who_decompresses(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    """Whether an object is stored as gzip only its own answer tells."""
    import gzip

    server.put("bucket", "data/000", gzip.compress(b"text" * 50), contentEncoding="gzip")
    plain = gzip.compress(b"no encoding")
    server.put("bucket", "data/001", plain)
    expected = [b"text" * 50, plain, *[*objects.values()][2:]]
    store = open_store(content_encoding="decompress")
    samples = store.read_many(store.list("data/"))
    assert [each.bytes() for each in samples] == expected
    assert left(server) == []
    assert sent(server) == {"compose": 3, "media": 3 + 2, "delete": 3}


def test_stored_bytes_of_compressed_objects_are_joined_as_they_are(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    import gzip

    stored = gzip.compress(b"text" * 50)
    server.put("bucket", "data/000", stored, contentEncoding="gzip")
    store = open_store()
    assert store.read_many(store.list("data/"))[0].bytes() == stored
    assert sent(server)["media"] == 3


def test_several_groups_are_in_flight_and_no_more_than_allowed(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    for most in (1, 3):
        headrace.shutdown()
        server.reset(keep_buckets=True)
        store = open_store(join=ComposeOptions(max_objects=2, max_in_flight=most))
        index = store.index("data/")
        # As many composes as may be are held up together; once they are let go they are sent again.
        server.faults([rule("compose", {"stall_head": True}, count=most)])
        batch = store._handle().start_indexed(index, array("q", range(20)))
        while sent(server).get("compose", 0) < most:
            pass
        server.faults([])
        server.release()
        samples = batch.take(return_errors=False)
        assert [each.bytes() for each in samples] == [*objects.values()][:20]
        assert left(server) == []
        assert _most_at_a_time(server) == most


def _most_at_a_time(server: FaultServer) -> int:
    """How many temporary objects there were at a time: from the compose until the delete ended."""
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    for each in server.log():
        if each["kind"] == "compose":
            name = unquote(each["target"]).partition("/o/")[2].partition("/compose")[0]
            begins.setdefault(name, each["t_start_s"])
        elif each["kind"] == "delete":
            ends[unquote(each["target"]).partition("/o/")[2].partition("?")[0]] = each["t_end_s"]
    assert len(begins) == 10
    assert begins.keys() == ends.keys()
    return max(
        sum(begin < other < ends[name] for name, begin in begins.items()) + 1
        for other in begins.values()
    )


def _greedy(sizes: list[int], max_bytes: int, max_objects: int) -> tuple[int, int]:
    """How many groups, and how many objects besides."""
    groups, alone = 0, 0
    group: list[int] = []
    for size in [*sizes, None]:
        if size is not None and size > max_bytes:
            alone += 1
            continue
        if size is None or len(group) == max_objects or sum(group) + size > max_bytes:
            if len(group) > 1 and sum(group):
                groups += 1
            else:
                alone += len(group)
            group = []
        if size is not None:
            group.append(size)
    return groups, alone


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 40), max_size=80),
    max_bytes=st.integers(1, 200),
    max_objects=st.integers(2, 32),
)
def test_any_sizes_come_right_by_the_fewest_groups_in_their_order(
    server: FaultServer,
    open_store: OpenStore,
    sizes: list[int],
    max_bytes: int,
    max_objects: int,
) -> None:
    server.reset()
    server.bucket("bucket")
    contents = [(b"%02d" % (i % 100)) * 20 for i in range(len(sizes))]
    for i, size in enumerate(sizes):
        server.put("bucket", f"data/{i:02d}", contents[i][:size])
    join = ComposeOptions(max_size_bytes=max_bytes, max_objects=max_objects)
    store = open_store(join=join)
    samples = store.read_many(store.list("data/"))
    assert [each.bytes() for each in samples] == [
        data[:size] for data, size in zip(contents, sizes, strict=True)
    ]
    assert left(server) == []
    groups, alone = _greedy(sizes, max_bytes, max_objects)
    expected = {"compose": groups, "media": groups + alone, "delete": groups}
    assert sent(server) == {kind: count for kind, count in expected.items() if count}


# ---- temporary objects are no data


@pytest.fixture
def with_temporaries(server: FaultServer) -> list[str]:
    names = ["a", "data/000", "e/1", "headrace-uploads", "headrace-z", "zz"]
    hidden = [f"{TEMPORARY}headrace-{1:032x}", f"{TEMPORARY}x", "headrace-uploads/y/1"]
    for name in names + hidden:
        server.put("bucket", name, b"1")
    return names


def test_temporary_objects_are_never_listed_as_data(
    server: FaultServer, with_temporaries: list[str], open_store: OpenStore
) -> None:
    store = open_store(join=None)
    assert [info.name for info in store.list()] == with_temporaries
    assert [info.name for info in store.list(max_results=1000)] == with_temporaries
    index = store.index()
    assert [info.name for info in index] == with_temporaries
    counted: list[int] = []
    store.index(progress=lambda names, total: counted.append(names))
    assert counted[-1] == len(with_temporaries)
    page = store.list_page(delimiter="/")
    assert page.prefixes == ["data/", "e/"]
    assert [info.name for info in page.objects] == ["a", "headrace-uploads", "headrace-z", "zz"]
    for prefix in ("d", "dataflux", "headrace", "headrace-u"):
        expected = [name for name in with_temporaries if name.startswith(prefix)]
        assert [info.name for info in store.list(prefix)] == expected
        assert [info.name for info in store.index(prefix)] == expected


def test_who_asks_for_temporary_objects_gets_them(
    server: FaultServer, with_temporaries: list[str], open_store: OpenStore
) -> None:
    store = open_store(join=None)
    names = [f"{TEMPORARY}headrace-{1:032x}", f"{TEMPORARY}x"]
    assert [info.name for info in store.list(TEMPORARY)] == names
    assert [info.name for info in store.list(f"{TEMPORARY}h")] == names[:1]
    assert [info.name for info in store.index("headrace-uploads/")] == ["headrace-uploads/y/1"]
    assert store.list_page("headrace-uploads/", delimiter="/").prefixes == ["headrace-uploads/y/"]


@pytest.mark.parametrize("max_page", [1, 2, 3, 7])
def test_pages_of_nothing_but_temporary_objects_end_no_listing(
    server: FaultServer, open_store: OpenStore, max_page: int
) -> None:
    names = [*(f"a{i}" for i in range(5)), *(f"z{i}" for i in range(5))]
    for name in [*names, *(f"{TEMPORARY}{i:02d}" for i in range(20))]:
        server.put("bucket", name, b"1")
    server.bucket("bucket", max_page=max_page)
    store = open_store(join=None)
    assert [info.name for info in store.list()] == names
    assert [info.name for info in store.index()] == names
    assert [info.name for info in store.list(max_results=7)] == names[:7]


def test_a_composite_that_is_there_meanwhile_is_no_sample(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store()
    infos = [*store.list()]
    server.faults([rule("delete", {"status": 500, "delay_ms": 50})])
    store.read_many(infos)
    with pytest.warns(RuntimeWarning, match="headrace clean gs://bucket"):
        names = left(server)
    assert len(names) == 3
    assert [info.name for info in open_store().list()] == [*objects]
