"""Ranges of one object that a batch wants together: read by how many requests, and how."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.torch import Loader, MapDataset, ShardDataset, TokenDataset
from testing.faultserver.client import FaultServer
from tests.tokens.conftest import corpus, megatron_index, put, rows, samples_of

MEMBER_BYTES = 3000


def asked(server: FaultServer) -> list[str]:
    """Return the ranges of the reads since the server was reset."""
    return [each["headers"]["range"] for each in server.log() if each["kind"] == "media"]


def with_gap(store: headrace.Store, max_gap_bytes: int | None) -> headrace.Store:
    return store._derived(parallel=headrace.ParallelOptions(max_gap_bytes=max_gap_bytes))


def test_samples_in_order_are_one_request_a_batch(gcs: headrace.Store, server: FaultServer) -> None:
    (tokens,) = put(gcs, {"a.bin": corpus(40_001)})
    dataset = TokenDataset(gcs, seq_len=100, dtype="uint16")
    server.reset(keep_buckets=True)
    assert rows(list(Loader(dataset, batch_size=40))) == samples_of([tokens], 100)
    # Each is read once, though it begins with the last token of the one before.
    assert sorted(asked(server)) == sorted(
        f"bytes={8000 * batch}-{8000 * batch + 8001}" for batch in range(10)
    )
    server.reset(keep_buckets=True)
    samples = dataset.__getitems__([7, 3, 4, 399, 5])
    assert [each.tolist() for each in samples] == [
        samples_of([tokens], 100)[i] for i in (7, 3, 4, 399, 5)
    ]
    assert sorted(asked(server)) == ["bytes=600-1601", "bytes=79800-80001"]


def test_packed_sequences_join_where_they_lie_together(
    gcs: headrace.Store, server: FaultServer
) -> None:
    gcs.write("a.bin", corpus(400).tobytes())
    gcs.write("a.idx", megatron_index([100, 100, 100, 100], "uint16"))
    dataset = TokenDataset(gcs, seq_len=99, names=["a.idx"], sequence_order=[3, 2, 1, 0])
    server.reset(keep_buckets=True)
    assert len(dataset.__getitems__([0, 1, 2, 3])) == 4
    assert asked(server) == ["bytes=0-799"]


@pytest.mark.parametrize(("max_gap_bytes", "requests"), [(None, 4), (0, 3), (99, 3), (100, 2)])
def test_the_gap_that_is_read_is_as_long_as_the_store_says(
    gcs: headrace.Store, server: FaultServer, max_gap_bytes: int | None, requests: int
) -> None:
    data = bytes(range(256)) * 10
    info = gcs.write("a", data)
    store = with_gap(gcs, max_gap_bytes)
    spans = [(0, 10), (10, 20), (120, 130), (1000, 1010)]
    server.reset(keep_buckets=True)
    parts = store.read_ranges([(info, *span) for span in spans])
    assert [part.bytes() for part in parts] == [data[begin:end] for begin, end in spans]
    assert len(asked(server)) == requests


def test_by_default_a_gap_of_four_kib_is_read(gcs: headrace.Store, server: FaultServer) -> None:
    info = gcs.write("a", bytes(20_000))
    for gap, requests in ((4096, 1), (4097, 2)):
        server.reset(keep_buckets=True)
        parts = gcs.read_ranges([(info, 0, 100), (info, 100 + gap, 200 + gap)])
        assert [len(part) for part in parts] == [100, 100]
        assert len(asked(server)) == requests


def test_of_a_file_that_shrank_the_ranges_that_are_left_are_read(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path, on_change="reread")
    data = corpus(500).tobytes()
    store.write("a", data)
    windows = store.index().windows(100, 100)
    (tmp_path / "a").write_bytes(data[:650])
    found = store.read_many(windows, on_error="return")
    assert (
        [each.bytes() for each in found[:6]]
        == [  # type: ignore[union-attr]
            data[i : i + 100] for i in range(0, 600, 100)
        ]
    )
    assert [type(each) for each in found[6:]] == [headrace.InvalidArgumentError] * 4
    assert "the range [600, 700), and only 50 bytes of it are in the object" in str(found[6])


def test_a_wrong_gap_is_refused() -> None:
    for wrong in (-1, 1.5, "1"):
        with pytest.raises(headrace.InvalidArgumentError, match="max_gap_bytes"):
            headrace.ParallelOptions(max_gap_bytes=wrong)  # type: ignore[arg-type]


def test_members_of_shards_in_order_are_read_together(
    gcs: headrace.Store, server: FaultServer
) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for i in range(20):
            member = tarfile.TarInfo(f"{i:03d}.bin")
            member.size = MEMBER_BYTES
            archive.addfile(member, io.BytesIO(bytes([i]) * MEMBER_BYTES))
    gcs.write("a.tar", file.getvalue())
    dataset = ShardDataset(gcs, lambda fields: fields["bin"].tensor())
    server.reset(keep_buckets=True)
    seen = [row for batch in Loader(dataset, batch_size=10) for row in batch.tolist()]
    assert seen == [[i] * MEMBER_BYTES for i in range(20)]
    assert len(asked(server)) == 2


def test_samples_that_overlap_share_no_memory(store: headrace.Store) -> None:
    put(store, {"a.bin": corpus(1000)})
    windows = store.index().windows(100, 50)

    def blank(sample: headrace.Sample) -> bytes:
        before = sample.bytes()
        sample.numpy()[:] = 0
        return before

    data = store.read("a.bin").bytes()
    dataset = MapDataset(store, blank, index=windows)
    assert dataset.__getitems__(range(len(windows))) == [
        data[begin : begin + 100] for begin in range(0, len(data) - 99, 50)
    ]


@pytest.mark.every_store
def test_ranges_with_checksums_are_compared_one_by_one(store: headrace.Store) -> None:
    data = corpus(5000).tobytes()
    store.write("a", data)
    spans = [(0, 100), (50, 400), (400, 500), (9000, 9100)]

    def index(*wrong: int) -> headrace.ObjectIndex:
        sums = [google_crc32c.value(data[begin:end]) for begin, end in spans]
        return headrace.ObjectIndex.from_names(
            ["a"] * len(spans),
            root=store.url,
            begins=[begin for begin, _ in spans],
            ends=[end for _, end in spans],
            checksums=[each ^ (i in wrong) for i, each in enumerate(sums)],
        )

    expected = [data[begin:end] for begin, end in spans]
    assert [each.bytes() for each in store.read_many(index())] == expected
    found = store.read_many(index(1), on_error="return")
    assert isinstance(found[1], headrace.CorruptDataError)
    assert found[1].url == store.url_of("a")
    assert [found[i].bytes() for i in (0, 2, 3)] == [expected[i] for i in (0, 2, 3)]


@pytest.mark.every_store
def test_only_the_range_behind_the_end_is_an_error(store: headrace.Store) -> None:
    data = corpus(500).tobytes()
    store.write("a", data)
    spans = [(0, 100), (900, 990), (980, 1200), (1001, 1100)]
    index = headrace.ObjectIndex.from_names(
        ["a"] * 4, root=store.url, begins=[b for b, _ in spans], ends=[e for _, e in spans]
    )
    found = store.read_many(index, on_error="return")
    assert [found[0].bytes(), found[1].bytes()] == [data[:100], data[900:990]]
    assert isinstance(found[2], headrace.InvalidArgumentError)
    assert isinstance(found[3], headrace.InvalidArgumentError)


@given(
    spans=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 400)), min_size=1, max_size=30),
    max_gap_bytes=st.none() | st.integers(0, 500),
)
def test_ranges_are_what_they_are_however_they_are_read(
    spans: Sequence[tuple[int, int]], max_gap_bytes: int | None
) -> None:
    data = corpus(1700).tobytes()
    with tempfile.TemporaryDirectory() as folder:
        store = with_gap(headrace.Store(folder), max_gap_bytes)
        info = store.write("a", data)
        wanted = [(begin, begin + size) for begin, size in spans]
        for item in (info, "a"):
            parts = store.read_ranges([(item, *span) for span in wanted])
            assert [part.bytes() for part in parts] == [data[b:e] for b, e in wanted]
            into = [bytearray(e - b) for b, e in wanted]
            store.read_ranges([(item, *span) for span in wanted], into=into)
            assert into == [data[b:e] for b, e in wanted]
