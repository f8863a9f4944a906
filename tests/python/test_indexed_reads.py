"""Reading through an `ObjectIndex`: no Python object for each name."""

from __future__ import annotations

import array
import gc
import pickle

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from headrace import ObjectIndex, ObjectInfo
from testing.faultserver.client import FaultServer

SIZES = [0, 1, 5, 300, 40_000, 0, 7]


def data_of(i: int) -> bytes:
    return bytes((i * 31 + k) % 256 for k in range(SIZES[i]))


@pytest.fixture
def index(store: headrace.Store) -> ObjectIndex:
    """Objects of all sizes."""
    for i in range(len(SIZES)):
        store.write(f"dir/ä {i}", data_of(i))
    return store.index()


def read(
    store: headrace.Store,
    index: ObjectIndex,
    indices: list[int] | array.array[int],
    into: object = None,
) -> list[headrace.Sample]:
    batch = store._handle().start_indexed(index, indices, into)  # type: ignore[arg-type]
    return batch.take(return_errors=False)


def test_objects_come_in_the_order_asked_for(store: headrace.Store, index: ObjectIndex) -> None:
    for wanted in ([], [3], [6, 5, 4, 3, 2, 1, 0], [2, 2, -1, -7], list(range(7)) * 40):
        samples = read(store, index, wanted)
        assert [sample.bytes() for sample in samples] == [data_of(i % 7) for i in wanted]
        assert [s.bytes() for s in read(store, index, array.array("q", wanted))] == [
            sample.bytes() for sample in samples
        ]


def test_samples_say_where_they_came_from(store: headrace.Store, index: ObjectIndex) -> None:
    sample = read(store, index, [5, 3])[1]
    assert sample.url == store.url_of("dir/ä 3")
    assert sample.generation == index[3].generation
    again = pickle.loads(pickle.dumps(sample))
    assert (again.url, again.generation, again.bytes()) == (
        sample.url,
        sample.generation,
        data_of(3),
    )


def test_samples_outlive_their_index(store: headrace.Store, index: ObjectIndex) -> None:
    copied = pickle.loads(pickle.dumps(index))
    sample = read(store, copied, [4])[0]
    expected = copied.name(4)
    del copied
    gc.collect()
    assert sample.url == store.url_of(expected)
    assert sample.bytes() == data_of(4)


@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=30
)
@hypothesis.given(st.lists(st.integers(-len(SIZES), len(SIZES) - 1), max_size=30))
def test_one_buffer_takes_all_objects(
    store: headrace.Store, index: ObjectIndex, wanted: list[int]
) -> None:
    buffer = bytearray(index.sum_bytes(wanted))
    samples = read(store, index, wanted, buffer)
    assert bytes(buffer) == b"".join(data_of(i % 7) for i in wanted)
    assert [sample.bytes() for sample in samples] == [data_of(i % 7) for i in wanted]
    assert [sample.url for sample in samples] == [store.url_of(index.name(i)) for i in wanted]
    for sample, i in zip(samples, wanted, strict=True):
        if SIZES[i % 7]:
            memoryview(sample)[0] ^= 0xFF
    expected = [bytes([data_of(i % 7)[0] ^ 0xFF]) + data_of(i % 7)[1:] for i in wanted if SIZES[i]]
    if len(set(wanted)) == len(wanted):
        assert bytes(buffer) == b"".join(expected)


def test_the_buffer_is_let_go_with_the_last_sample(
    store: headrace.Store, index: ObjectIndex
) -> None:
    buffer = bytearray(index.sum_bytes([3, 4]))
    batch = store._handle().start_indexed(index, [3, 4], buffer)
    samples = batch.take(return_errors=False)
    del samples[0]
    with pytest.raises(BufferError):
        buffer.clear()
    del samples[:]
    buffer.clear()


@pytest.mark.parametrize(
    ("extra_bytes", "message"),
    [
        (-1, r"`into` has 304 bytes, which is less than the 2 objects have together"),
        (9, r"`into` has 314 bytes, which is 9 more than the 2 objects have together"),
    ],
)
def test_a_buffer_that_does_not_fit_is_refused(
    store: headrace.Store, index: ObjectIndex, extra_bytes: int, message: str
) -> None:
    buffer = bytearray(305 + extra_bytes)
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        read(store, index, [2, 3], buffer)
    assert bytes(buffer) == bytes(len(buffer))
    buffer.clear()


def test_a_buffer_that_cannot_be_written_is_refused(
    store: headrace.Store, index: ObjectIndex
) -> None:
    with pytest.raises(BufferError):
        read(store, index, [2], b"12345")
    with pytest.raises(TypeError):
        read(store, index, [2], "12345")


def test_positions_are_checked_before_anything_is_read(
    gcs: headrace.Store, server: FaultServer
) -> None:
    gcs.write("a", b"hello")
    index = gcs.index()
    server.reset(keep_buckets=True)
    with pytest.raises(IndexError, match="object 1 of an index that has 1 object"):
        read(gcs, index, [0, 1])
    with pytest.raises(TypeError):
        gcs._handle().start_indexed([index[0]], [0])  # type: ignore[arg-type]
    assert "media" not in server.stats()["by_kind"]


def test_reads_are_those_of_the_listing(gcs: headrace.Store, server: FaultServer) -> None:
    gcs.write("a", b"one")
    gcs.write("b", b"two")
    index = gcs.index()
    server.reset(keep_buckets=True)
    assert [sample.bytes() for sample in read(gcs, index, [1, 0, 1])] == [b"two", b"one", b"two"]
    stats = server.stats()
    assert stats["by_kind"] == {"media": 3}  # no question about sizes, one request each
    verified = headrace.metrics().checksums_verified_total
    read(gcs, index, [0, 1])
    assert headrace.metrics().checksums_verified_total == verified + 2
    gcs.write("b", b"other")
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        read(gcs, index, [0, 1])
    assert caught.value.url == "gs://bucket/b"


def test_a_listed_checksum_that_is_wrong_is_noticed(gcs: headrace.Store) -> None:
    info = gcs.write("a", b"hello")
    index = ObjectIndex.from_objects([ObjectInfo("a", 5, info.generation, crc32c=1)])
    with pytest.raises(headrace.CorruptDataError):
        read(gcs, index, [0])


def test_an_error_for_each_object(store: headrace.Store, index: ObjectIndex) -> None:
    store.delete("dir/ä 1")
    store.delete("dir/ä 4")
    handle = store._handle()
    samples = handle.start_indexed(index, [0, 1, 2, 4]).take(return_errors=True)
    kinds = [headrace.Sample, headrace.NotFoundError] * 2
    assert [type(sample) for sample in samples] == kinds
    for finish in (lambda batch: batch.take(return_errors=False), lambda batch: batch.wait()):
        with pytest.raises(headrace.NotFoundError) as caught:
            finish(handle.start_indexed(index, [0, 1, 2, 4]))
        assert caught.value.url == store.url_of("dir/ä 1")
        assert len(caught.value.__notes__) == 1


def test_a_batch_may_only_be_waited_for(store: headrace.Store, index: ObjectIndex) -> None:
    buffer = bytearray(index.total_size_bytes)
    batch = store._handle().start_indexed(index, range(len(index)), buffer)
    batch.wait()
    assert batch.done()
    assert bytes(buffer) == b"".join(map(data_of, range(7)))
    assert [len(sample) for sample in batch.take(return_errors=False)] == SIZES
