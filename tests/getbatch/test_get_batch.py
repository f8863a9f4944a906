"""Objects of a batch come by one request, or as if by requests of their own."""

from __future__ import annotations

import gzip
import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
from headrace import AisOptions
from testing.faultserver.client import FaultServer
from tests.faults.conftest import OFTEN
from tests.getbatch.conftest import (
    COUNT,
    SHORT,
    Mode,
    asked_for_batches,
    at_target,
    batches,
    content,
    open_store,
    outcomes,
    read_alone,
    read_both_ways,
)

Objects = dict[str, bytes]


def test_one_request_gets_a_batch(server: FaultServer, objects: Objects) -> None:
    store = open_store(server)
    infos = [*store.list("data/")]
    samples = store.read_many(infos)
    assert [sample.bytes() for sample in samples] == [*objects.values()]
    assert [sample.generation for sample in samples] == [info.generation for info in infos]
    assert (asked_for_batches(server), batches(server)) == (1, 1)
    assert read_alone(server) == set()


def test_bytes_go_to_the_callers_memory(server: FaultServer, objects: Objects) -> None:
    store = open_store(server)
    infos = [*store.list("data/")]
    buffers = [bytearray(info.size_bytes) for info in infos]
    store.read_many(infos, into=buffers)
    assert [bytes(buffer) for buffer in buffers] == [*objects.values()]
    assert (batches(server), read_alone(server)) == (1, set())


def test_objects_of_all_sizes_come_whole(server: FaultServer) -> None:
    rng = random.Random(3)
    sizes = [0, 1, 511, 512, 513, 16_383, 16_384, 65_536, 1_000_003, 5, 0, 40_000]
    contents = {f"{i:02d}": rng.randbytes(size) for i, size in enumerate(sizes)}
    for name, data in contents.items():
        server.put("bucket", name, data)
    infos = [*open_store(server).list()]
    assert read_both_ways(server, infos) == [*contents.values()]


def test_odd_names_are_the_names(server: FaultServer) -> None:
    names = ["a b", "h#h", "q?q", "p%q", "p%20q", "é", "+", "x" * 300, "d/" * 60 + "deep", '"\\"']
    for name in names:
        server.put("bucket", name, name.encode())
    infos = [*open_store(server).list()]
    assert read_both_ways(server, infos) == [info.name.encode() for info in infos]
    assert {info.name for info in infos} == set(names)
    assert batches(server) == 1


def test_unlisted_objects_are_read_alone(server: FaultServer, objects: Objects) -> None:
    store = open_store(server)
    assert [each.bytes() for each in store.read_many([*objects])] == [*objects.values()]
    assert asked_for_batches(server) == 0


def test_what_is_stored_as_gzip_is_decompressed_as_by_single_reads(
    server: FaultServer, objects: Objects
) -> None:
    for name in [*objects][::2]:
        open_store(server).write(name, gzip.compress(objects[name]), content_encoding="gzip")
    infos = [*open_store(server).list("data/")]
    found = read_both_ways(server, infos, content_encoding="decompress")
    assert found == [*objects.values()]
    assert (asked_for_batches(server), read_alone(server)) == (0, {*objects})


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
def test_a_pickled_store_reads_the_same_way(
    server: FaultServer, objects: Objects, mode: Mode
) -> None:
    store = pickle.loads(pickle.dumps(open_store(server, mode)))
    samples = store.read_many([*store.list("data/")])
    assert [sample.bytes() for sample in samples] == [*objects.values()]
    assert batches(server) == (0 if mode == "never" else 1)


def test_auto_tries_both_ways_and_goes_on_with_one(server: FaultServer, objects: Objects) -> None:
    server.latency(first_byte_ms=20)
    store = open_store(server, "auto")
    infos = [*store.list("data/")]
    for _ in range(10):
        assert [each.bytes() for each in store.read_many(infos)] == [*objects.values()]
    alone = server.carried_out("media")
    # Whatever is faster here, each was tried.
    assert batches(server) >= 1
    assert alone >= COUNT
    assert batches(server) + alone // COUNT == 10


def test_a_cluster_without_it_is_asked_once(server: FaultServer, objects: Objects) -> None:
    server.cluster(personality="A")
    store = open_store(server)
    infos = [*store.list("data/")]
    with pytest.warns(RuntimeWarning, match="are read one by one"):
        assert outcomes(store.read_many(infos)) == [*objects.values()]
    for _ in range(2):
        assert outcomes(store.read_many(infos)) == [*objects.values()]
    assert (asked_for_batches(server), batches(server)) == (1, 0)
    assert read_alone(server) == set(objects)


@pytest.mark.parametrize("missing", ["by_owner", "ends_early", "marker"])
@pytest.mark.parametrize("stale", [1, 9, 20])
def test_objects_that_were_deleted_after_they_were_listed(
    server: FaultServer, objects: Objects, stale: int, missing: str
) -> None:
    server.cluster(moss={"missing": missing})
    store = open_store(server)
    infos = [*store.list("data/")]
    gone = random.Random(stale).sample([*objects], stale)
    for name in gone:
        store.delete(name)
    found = read_both_ways(server, infos)
    for info, outcome in zip(infos, found, strict=True):
        if info.name in gone:
            assert outcome == (headrace.NotFoundError, f"ais://bucket/{info.name}")
        else:
            assert outcome == objects[info.name]
    assert batches(server) == 1


@pytest.mark.parametrize("after", [0, 1, 17, COUNT - 1])
def test_an_archive_that_ends_early_is_completed(
    server: FaultServer, objects: Objects, after: int
) -> None:
    server.cluster(moss={"ends_after": after})
    store = open_store(server)
    infos = [*store.list("data/")]
    assert outcomes(store.read_many(infos)) == [*objects.values()]
    assert batches(server) == 1
    assert read_alone(server) == {info.name for info in infos[after:]}


@pytest.mark.parametrize("after", [0, 1, 17, 20])
def test_equal_ranges_of_an_object_that_do_not_all_come_are_read_alone(
    server: FaultServer, after: int
) -> None:
    data = b"".join(b"%010d" % i for i in range(20))
    server.bucket("bucket", checksum="none")  # so that nothing proves which range has come
    server.put("bucket", "shard", data)
    server.cluster(moss={"ends_after": after})
    alone = headrace.ParallelOptions(max_gap_bytes=None)
    store = open_store(server, parallel=alone)
    (info,) = store.list()
    ranges = [(info, begin, begin + 10) for begin in range(0, len(data), 10)]
    samples = store.read_ranges(ranges)
    assert [each.bytes() for each in samples] == [data[begin:end] for _, begin, end in ranges]
    assert (batches(server), server.carried_out("media")) == (1, 0 if after == 20 else 20)


FAULTS: dict[str, Any] = {
    "cut at once": {"cut_after_bytes": 0},
    "cut in a header": {"cut_after_bytes": 5_000},
    "cut late": {"cut_after_bytes": 60_000},
    "reset in the midst": {"reset_after_bytes": 30_000},
    "reset before the answer": "reset",
    "429": {"status": 429},
    "500": {"status": 500},
    "503": {"status": 503},
    "404": {"status": 404},
    "no head": "garbage_head",
    "an empty tar": {"status": 200, "body": ""},
    "no tar": {"status": 200, "body": "x" * 2000},
    "a wrong byte": {"flip_byte": 40_000},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_goes_wrong_the_results_are_those_of_single_reads(
    server: FaultServer, objects: Objects, fault: str
) -> None:
    server.faults([at_target(FAULTS[fault])])
    infos = [*open_store(server).list("data/")]
    assert read_both_ways(server, infos) == [*objects.values()]
    assert batches(server) == 1


@pytest.mark.parametrize("fault", ["stall_head", {"stall_after_bytes": 20_000}])
def test_a_stall_ends_with_the_time_out(server: FaultServer, objects: Objects, fault: Any) -> None:
    server.faults([at_target(fault)])
    store = open_store(server, timeout=SHORT, retry=OFTEN)
    infos = [*store.list("data/")]
    assert outcomes(store.read_many(infos)) == [*objects.values()]
    assert batches(server) == 1
    # From then on, objects are read alone for a while.
    assert outcomes(store.read_many(infos)) == [*objects.values()]
    assert batches(server) == 1


def test_a_wrong_byte_costs_one_read(server: FaultServer, objects: Objects) -> None:
    server.faults([at_target({"flip_byte": 30_000}, count=1)])
    store = open_store(server)
    infos = [*store.list("data/")]
    assert outcomes(store.read_many(infos)) == [*objects.values()]
    assert len(read_alone(server)) <= 1


def test_an_object_that_was_replaced_is_not_taken_for_the_listed_one(
    server: FaultServer, objects: Objects
) -> None:
    store = open_store(server)
    infos = [*store.list("data/")]
    server.put("bucket", "data/007", b"x" * len(objects["data/007"]))
    found = read_both_ways(server, infos)
    assert found[7] == (headrace.PreconditionFailedError, "ais://bucket/data/007")
    assert found[:7] + found[8:] == [*objects.values()][:7] + [*objects.values()][8:]


def test_a_reader_that_is_stopped_leaves_no_request(server: FaultServer, objects: Objects) -> None:
    server.faults([at_target({"stall_after_bytes": 20_000})])
    store = open_store(server)
    infos = [*store.list("data/")]
    reading = store.read_batches([infos[:20], infos[20:]])
    del reading
    headrace.shutdown()
    assert batches(server) <= 2
    server.faults([])
    assert outcomes(open_store(server).read_many(infos)) == [*objects.values()]


@pytest.fixture
def little_memory() -> Iterator[None]:
    headrace.shutdown()
    headrace.configure(io_threads=2, memory_budget_bytes=2 * headrace.MiB)
    yield
    headrace.shutdown()
    headrace.configure()


def test_a_small_budget_is_kept(server: FaultServer, little_memory: None) -> None:
    for i in range(300):
        server.put("bucket", f"{i:03d}", content(i % 40) + b"." * 20_000)
    store = open_store(server)
    infos = [*store.list()]
    for _ in store.read_batches(infos[i : i + 50] for i in range(0, 300, 50)):
        pass
    assert headrace.metrics().memory_peak_live_bytes <= 4 * headrace.MiB
    assert batches(server) >= 6


def test_ranges_beyond_an_object_are_never_asked_for(server: FaultServer, objects: Objects) -> None:
    server.cluster(moss={"out_of_range": "hangs"})
    store = open_store(server)
    infos = [*store.list("data/")][1:]
    ranges = [(info, 1, info.size_bytes + 1000) for info in infos if info.size_bytes > 1]
    samples = store.read_ranges(ranges)
    assert [each.bytes() for each in samples] == [objects[info.name][1:] for info, _, _ in ranges]


def test_the_option_is_checked() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="'auto', 'always' or 'never'"):
        AisOptions(get_batch="sometimes")  # type: ignore[arg-type]
