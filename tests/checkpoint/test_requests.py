"""What a load asks of the server, and in which order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import headrace
import headrace.checkpoint
from headrace import PreconditionFailedError, _engine
from headrace.checkpoint import _parallel_reads
from headrace.checkpoint._archive import END_BYTES
from headrace.checkpoint._parallel_reads import Part, joined_bytes, read_into, read_parts
from testing.faultserver.client import FaultServer
from tests.checkpoint.states import (
    assert_same,
    file_of,
    filled,
    kinds,
    large_state,
    load,
    sent_bytes,
    stock_file_of,
)
from tests.sums import count_summed_bytes
from tests.waiting import wait_until

MIB = 1 << 20

FILES = pytest.mark.parametrize("write", [file_of, stock_file_of], ids=["ours", "stock"])


def ranges(server: FaultServer) -> list[str]:
    """The ranges that were asked for, in the order of the requests."""
    return [
        each["headers"].get("range", "whole") for each in server.log() if each["kind"] == "media"
    ]


@FILES
def test_a_small_checkpoint_is_one_question_and_one_read(
    write: Any, server: FaultServer, gcs: headrace.Store
) -> None:
    state = {f"layer.{i}": filled(torch.float32, 10, seed=i) for i in range(100)}
    server.put("bucket", "a.pt", write(state))
    assert_same(load(gcs), state)
    assert kinds(server) == {"get": 1, "media": 1}


@FILES
def test_two_dependent_requests_come_before_the_storages(
    write: Any, server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state()
    data = write(state)
    server.put("bucket", "a.pt", data)
    assert_same(load(gcs), state)
    # Where the object is; both of its ends at once; then each storage by a request of its own.
    assert kinds(server) == {"get": 1, "media": 2 + len(state)}
    assert set(ranges(server)[:2]) == {
        f"bytes=0-{END_BYTES - 1}",
        f"bytes={len(data) - END_BYTES}-{len(data) - 1}",
    }
    storage_bytes = sum(each.nbytes for each in state.values())
    assert storage_bytes <= sent_bytes(server) - 2 * END_BYTES < storage_bytes + 20_000  # heads


@FILES
def test_storages_are_summed_while_they_arrive(
    write: Any, server: FaultServer, gcs: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = large_state()
    server.put("bucket", "a.pt", write(state))
    summed_bytes = count_summed_bytes(monkeypatch)
    assert_same(load(gcs), state)
    assert sum(summed_bytes) < 100_000 < sum(each.nbytes for each in state.values())


@FILES
def test_small_tensors_are_read_together(
    write: Any, server: FaultServer, gcs: headrace.Store
) -> None:
    state = {f"layer.{i}": filled(torch.float32, 4096, seed=i) for i in range(2500)}
    server.put("bucket", "a.pt", write(state))
    assert_same(load(gcs), state)
    # 40 MB in pieces of about 2 MiB; the pickle and the directory are larger than the ends.
    assert kinds(server)["media"] <= 2 + 2 + 21


def test_a_storage_is_read_by_parallel_ranges(server: FaultServer, gcs: headrace.Store) -> None:
    state = {"a": filled(torch.float32, 10 * MIB)}
    server.put("bucket", "a.pt", file_of(state))
    assert_same(load(gcs), state)
    assert kinds(server) == {"get": 1, "media": 2 + 5}


def test_one_of_ten_tensors_moves_a_tenth(server: FaultServer, gcs: headrace.Store) -> None:
    state = large_state(10, 4_000_000)
    server.put("bucket", "a.pt", file_of(state))
    reader = headrace.checkpoint.open("a.pt", store=gcs)
    assert reader.keys() == list(state)
    assert torch.equal(
        reader.tensor("layer.7").view(torch.uint8), state["layer.7"].view(torch.uint8)
    )
    assert kinds(server) == {"get": 1, "media": 3}
    assert sent_bytes(server) < 6_000_000


def test_reads_are_pinned_to_the_generation_of_the_beginning(
    server: FaultServer, gcs: headrace.Store
) -> None:
    server.put("bucket", "a.pt", file_of(large_state()))
    # The answer with the end of the object is the last that has the old bytes.
    server.faults(
        [{"match": {"kind": "media"}, "from": 2, "count": 1, "action": "old_generation_then_new"}]
    )
    with pytest.raises(PreconditionFailedError, match=r"gs://bucket/a\.pt"):
        load(gcs)


def test_a_store_that_reads_again_does_not_mix_generations(
    server: FaultServer, gcs: headrace.Store
) -> None:
    server.put("bucket", "a.pt", file_of(large_state()))
    server.faults(
        [{"match": {"kind": "media"}, "from": 2, "count": 1, "action": "old_generation_then_new"}]
    )
    with pytest.raises(PreconditionFailedError):
        load(gcs._derived(on_change="reread"))


def test_a_meta_device_reads_no_storage(server: FaultServer, gcs: headrace.Store) -> None:
    state = large_state()
    server.put("bucket", "a.pt", file_of(state))
    found = load(gcs, map_location="meta")
    assert {each.device.type for each in found.values()} == {"meta"}
    assert [each.shape for each in found.values()] == [each.shape for each in state.values()]
    assert kinds(server) == {"get": 1, "media": 2}


@pytest.mark.parametrize(
    "map_location",
    [
        "cpu",
        torch.device("cpu"),
        {"cpu": "cpu"},
        {"cuda:0": "cpu"},
        lambda storage, _: storage,
        lambda storage, location: None,
        lambda storage, location: storage.clone(),
    ],
    ids=["text", "device", "dict", "other dict", "same", "none", "copy"],
)
def test_storages_go_where_map_location_says(
    map_location: Any, server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state() | {"small": torch.arange(3)}
    server.put("bucket", "a.pt", file_of(state))
    assert_same(load(gcs, map_location=map_location), state)


def test_a_function_gets_the_bytes_and_the_place(server: FaultServer, gcs: headrace.Store) -> None:
    seen = []

    def note(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage:
        seen.append((storage.tolist(), location))
        return storage

    state = {
        "a": torch.tensor([1, 2], dtype=torch.uint8),
        "b": torch.tensor([3], dtype=torch.uint8),
    }
    server.put("bucket", "a.pt", file_of(state))
    load(gcs, map_location=note)
    assert seen == [([1, 2], "cpu"), ([3], "cpu")]


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_of_storages_that_move_on_two_groups_are_read_ahead_and_no_more(
    server: FaultServer, gcs: headrace.Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    groups, size_bytes = 8, 4 * MIB
    monkeypatch.setattr("headrace.checkpoint._loading.GROUP_BYTES", size_bytes)
    monkeypatch.setattr("headrace.checkpoint._safetensors.reader.GROUP_BYTES", size_bytes)
    state = large_state(groups, size_bytes)
    headrace.checkpoint.save(state, name, store=gcs)
    since = len(server.log())

    def begun() -> int:
        """The groups of which something was asked for, besides the ends of the file."""
        found = set()
        for each in server.log(since):
            begin, _, end = each["headers"].get("range", "-").removeprefix("bytes=").partition("-")
            if begin and end and int(end) - int(begin) >= MIB:
                found.add(int(begin) // size_bytes)
        return len(found)

    moved = 0

    def move(storage: torch.UntypedStorage, _: str) -> torch.UntypedStorage:
        nonlocal moved
        moved += 1
        wait_until(lambda: begun() >= min(moved + 2, groups))
        assert begun() <= moved + 3  # a group and the beginning of the next can share a range
        return storage

    assert_same(headrace.checkpoint.load(name, move, store=gcs), state)
    assert moved == groups


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_what_is_read_ahead_is_given_up_when_a_storage_cannot_move(
    server: FaultServer, gcs: headrace.Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("headrace.checkpoint._loading.GROUP_BYTES", 4 * MIB)
    monkeypatch.setattr("headrace.checkpoint._safetensors.reader.GROUP_BYTES", 4 * MIB)
    closed = []
    close = _parallel_reads.PartReads.close
    monkeypatch.setattr(
        _parallel_reads.PartReads,
        "close",
        lambda reads: (closed.append(len(reads._under_way)), close(reads))[1],
    )
    headrace.checkpoint.save(large_state(), name, store=gcs)

    def full(storage: torch.UntypedStorage, _: str) -> torch.UntypedStorage:
        raise torch.OutOfMemoryError("no room on the device")

    with pytest.raises(torch.OutOfMemoryError, match="no room on the device"):
        headrace.checkpoint.load(name, full, store=gcs)
    assert closed.count(1) == 2
    assert_same(headrace.checkpoint.load(name, store=gcs), large_state())


@pytest.mark.parametrize("damaged", [3, 5, 8])
@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_group_that_is_damaged_on_its_way_is_read_again_though_others_are_ahead(
    server: FaultServer,
    gcs: headrace.Store,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    damaged: int,
) -> None:
    monkeypatch.setattr("headrace.checkpoint._loading.GROUP_BYTES", 4 * MIB)
    monkeypatch.setattr("headrace.checkpoint._safetensors.reader.GROUP_BYTES", 4 * MIB)
    state = large_state()
    headrace.checkpoint.save(state, name, store=gcs)
    flip = {"match": {"kind": "media"}, "count": 1, "action": {"flip_byte": 1000}}
    server.faults([flip | {"from": damaged}])
    assert_same(headrace.checkpoint.load(name, lambda each, _: each, store=gcs), state)
    assert server.fault_counts()[0]["fired"] == 1
    server.faults([flip | {"from": damaged, "count": 100}])
    with pytest.raises(headrace.CorruptDataError):
        headrace.checkpoint.load(name, lambda each, _: each, store=gcs)


def test_progress_counts_the_bytes_of_the_storages(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state()
    server.put("bucket", "a.pt", file_of(state))
    steps: list[tuple[int, int]] = []
    load(gcs, progress=lambda done, total: steps.append((done, total)))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (40 * MIB, 40 * MIB)


# ---- reading.read_into


def test_neighbours_are_read_by_one_request(server: FaultServer, gcs: headrace.Store) -> None:
    data = filled(torch.uint8, 3 * MIB).numpy().tobytes()
    server.put("bucket", "a", data)
    info = gcs.stat("a")
    spans = [(0, 10), (20, 1000), (MIB, MIB + 7), (MIB + 7, MIB + 7), (MIB + 9, 2 * MIB)]
    buffers = [bytearray(end - begin) for begin, end in spans]
    read_into(gcs, info, [(*span, each) for span, each in zip(spans, buffers, strict=True)])
    assert buffers == [data[begin:end] for begin, end in spans]
    assert kinds(server) == {"get": 1, "media": 1}


def test_what_overlaps_is_read_by_several_requests(
    server: FaultServer, gcs: headrace.Store
) -> None:
    data = bytes(range(200))
    server.put("bucket", "a", data)
    spans = [(0, 100), (50, 150), (150, 200), (0, 200)]
    buffers = [bytearray(end - begin) for begin, end in spans]
    info = gcs.stat("a")
    read_into(gcs, info, [(*span, each) for span, each in zip(spans, buffers, strict=True)])
    assert buffers == [data[begin:end] for begin, end in spans]
    # [0, 100), [0, 200), and the other two, which are neighbours.
    assert kinds(server)["media"] == 3


def test_what_is_far_apart_is_read_by_itself(server: FaultServer, gcs: headrace.Store) -> None:
    server.put("bucket", "a", bytes(10 * MIB))
    spans = [(0, 10), (MIB + 10, MIB + 20), (2 * MIB + 21, 2 * MIB + 30), (4 * MIB, 7 * MIB)]
    read_into(gcs, gcs.stat("a"), [(*span, bytearray(span[1] - span[0])) for span in spans])
    # 1 MiB between two of them is dropped, and one byte more is not asked for.
    assert set(ranges(server)) == {
        f"bytes=0-{MIB + 19}",
        f"bytes={2 * MIB + 21}-{2 * MIB + 29}",
        f"bytes={4 * MIB}-{7 * MIB - 1}",
    }


@pytest.mark.parametrize(
    ("tensor_mib", "count", "requests"),
    [
        (1, 16, 8),  # 2 MiB at least
        (4, 16, 16),  # a small load is spread over many connections
        (3, 60, 60),
        (4, 128, 64),
        (4, 1000, 250),  # and a large one takes no more than 16 MiB at once
        (20, 10, 10),
    ],
)
def test_neighbours_share_requests_once_there_are_many(
    tensor_mib: int, count: int, requests: int
) -> None:
    size = tensor_mib * MIB
    parts = [Part("a", i * size, (i + 1) * size, b"") for i in range(count)]
    joined = list(_parallel_reads._join(parts, joined_bytes(count * size)))
    assert len(joined) == requests
    assert [i for each in joined for i in each.parts] == list(range(count))
    assert [(each.begin, each.end) for each in joined] == [
        (parts[each.parts[0]].begin, parts[each.parts[-1]].end) for each in joined
    ]


@pytest.mark.parametrize(
    ("tensor_mib", "count", "requests"),
    [(1, 64, 32), (4, 16, 16), (4, 256, 86), (8, 128, 128), (0.25, 64, 8)],
)
def test_what_lies_around_tensors_takes_no_requests_of_its_own(
    tensor_mib: float, count: int, requests: int
) -> None:
    head, data, tail = 704, int(tensor_mib * MIB), 974
    parts, begin = [], 0
    for _ in range(count):
        for size in (head, data, tail):
            parts.append(Part("a", begin, begin + size, b""))
            begin += size
    joined = list(_parallel_reads._join(parts, joined_bytes(begin)))
    assert len(joined) == requests
    assert [i for each in joined for i in each.parts] == list(range(3 * count))
    assert all(each.end - each.begin <= 16 * MIB for each in joined)


def test_all_tensors_of_a_small_checkpoint_are_read_at_once(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state(16, 4_000_000)
    server.put("bucket", "a.pt", file_of(state))
    # Nobody gets an answer until all have asked.
    server.faults([{"match": {"kind": "media"}, "from": 3, "count": 16, "action": "stall_head"}])
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, gcs)
        wait_until(lambda: server.stats()["in_flight"] == 16)
        server.release()
        assert_same(loading.result(), state)


_OBJECTS = {"a": 3 * MIB, "b": 40_000}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    parts=st.lists(
        st.sampled_from(sorted(_OBJECTS)).flatmap(
            lambda name: st.tuples(
                st.just(name),
                st.integers(0, _OBJECTS[name]),
                st.one_of(st.integers(0, 200), st.integers(0, _OBJECTS[name])),
            )
        ),
        max_size=30,
    ),
    known=st.booleans(),
)
@example(parts=[("a", 0, 3 * MIB), ("a", 0, 3 * MIB), ("b", 40_000, 0)], known=True)
@example(parts=[("a", i * 100, 100) for i in range(30)], known=False)
def test_any_parts_are_filled_and_summed(
    parts: list[tuple[str, int, int]], known: bool, server: FaultServer, gcs: headrace.Store
) -> None:
    data = {name: filled(torch.uint8, size).numpy().tobytes() for name, size in _OBJECTS.items()}
    for name, content in data.items():
        if name not in {each.name for each in gcs.list()}:
            server.put("bucket", name, content)
    objects = {name: gcs.stat(name) if known else name for name in _OBJECTS}
    wanted = []
    for name, begin, size in parts:
        end = min(begin + size, _OBJECTS[name])
        wanted.append((name, Part(objects[name], begin, end, bytearray(end - begin))))
    read_parts(gcs, [part for _, part in wanted], sum_kind="crc32c")
    for name, part in wanted:
        expected = data[name][part.begin : part.end]
        assert part.into == expected
        if expected:
            assert part.crc == _engine.crc32c(expected)


def test_nothing_wanted_is_no_request(server: FaultServer, gcs: headrace.Store) -> None:
    server.put("bucket", "a", b"abc")
    info = gcs.stat("a")
    read_into(gcs, info, [])
    read_into(gcs, info, [(1, 1, bytearray())])
    assert kinds(server) == {"get": 1}


def test_any_bytes_like_memory_is_filled(server: FaultServer, gcs: headrace.Store) -> None:
    server.put("bucket", "a", bytes(range(200)))
    tensor = torch.zeros(4, dtype=torch.int16)
    read_into(gcs, gcs.stat("a"), [(0, 8, tensor.numpy()), (100, 102, memory := bytearray(2))])
    assert tensor.view(torch.uint8).tolist() == list(range(8))
    assert memory == bytes([100, 101])


def test_parts_of_several_objects_take_a_request_for_each_neighbourhood(
    server: FaultServer, gcs: headrace.Store
) -> None:
    data = {name: filled(torch.uint8, 4 * MIB).numpy().tobytes()[i:] for i, name in enumerate("ab")}
    for name, content in data.items():
        server.put("bucket", name, content)
    objects = {"a": "a", "b": gcs.stat("b")}
    spans = [
        ("b", 10, 20),
        ("a", 0, 10),
        ("b", 20, 2 * MIB),
        ("a", 3 * MIB, 3 * MIB + 5),
        ("a", 7, 7),
        ("b", 2 * MIB + 1, 2 * MIB + 9),
        ("a", 5, 15),
    ]
    buffers = [bytearray(end - begin) for _, begin, end in spans]
    read_parts(
        gcs,
        [
            Part(objects[name], begin, end, buffer)
            for (name, begin, end), buffer in zip(spans, buffers, strict=True)
        ],
    )
    assert buffers == [data[name][begin:end] for name, begin, end in spans]
    assert sorted(ranges(server)) == sorted(
        ["bytes=0-9", "bytes=5-14", f"bytes={3 * MIB}-{3 * MIB + 4}", f"bytes=10-{2 * MIB + 8}"]
    )


def test_a_replaced_object_is_not_read(server: FaultServer, gcs: headrace.Store) -> None:
    server.put("bucket", "a", b"old")
    info = gcs.stat("a")
    server.put("bucket", "a", b"new")
    with pytest.raises(PreconditionFailedError):
        read_into(gcs, info, [(0, 3, bytearray(3))])
