"""DLIO's data loader and its reader."""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy
import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.dlio import stand_in
from tests.dlio.stand_in import DatasetType, Shuffle

Put = Callable[..., list[str]]


def loader_of(dlio: Any, files: list[str], **arguments: Any) -> Any:
    stand_in.configure(files, **arguments)
    made = dlio.DataLoader(stand_in.ARGUMENTS.format, DatasetType.TRAIN, 1)
    made.read()
    return made


def firsts(batches: Any) -> list[list[int]]:
    """Of each sample of each batch, its first number, which says of which file and place it is."""
    return [[int(sample.flat[0]) for sample in batch] for batch in batches]


def test_an_epoch_has_each_file_once_in_full_batches(dlio: Any, put: Put) -> None:
    loader = loader_of(dlio, put(7))
    assert firsts(loader.next()) == [[0, 1], [2, 3], [4, 5]]
    assert firsts(loader.next()) == [[0, 1], [2, 3], [4, 5]]


def test_a_sample_is_what_dlios_reader_makes_of_the_file(dlio: Any, put: Put) -> None:
    (batch,) = loader_of(dlio, put(2)).next()
    assert batch[1].shape == (3, 5, 1)
    assert batch[1].dtype == numpy.uint8
    assert (batch[1] == 1).all()


def test_compressed_files_are_read_too(dlio: Any, put: Put) -> None:
    assert firsts(loader_of(dlio, put(2, compressed=True)).next()) == [[0, 1]]


def test_each_file_is_one_request_and_each_listing_one(
    dlio: Any, put: Put, server: FaultServer
) -> None:
    files = put(6)
    server.reset(keep_buckets=True)
    for batch in loader_of(dlio, files).next():
        assert len(batch) == 2
    headrace.shutdown()
    assert len(server.log()) == 1 + 6


def test_epochs_are_shuffled_each_in_its_own_way_and_again_alike(dlio: Any, put: Put) -> None:
    files = put(16)
    loader = loader_of(dlio, files, sample_shuffle=Shuffle.SEED)
    first, second = firsts(loader.next()), firsts(loader.next())
    assert first != second
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(16))
    assert firsts(loader_of(dlio, files, file_shuffle=Shuffle.SEED).next()) == first


def test_the_order_stays_if_the_workload_says_so(dlio: Any, put: Put) -> None:
    loader = loader_of(dlio, put(16), sample_shuffle=Shuffle.SEED, seed_change_epoch=False)
    assert firsts(loader.next()) == firsts(loader.next())


def test_ranks_share_the_files(dlio: Any, put: Put) -> None:
    files = put(9)
    found = Counter[int]()
    for rank in range(2):
        batches = firsts(loader_of(dlio, files, my_rank=rank, comm_size=2).next())
        assert [len(batch) for batch in batches] == [2, 2]
        found.update(chain(*batches))
    assert found == Counter(range(8))


def test_a_file_of_several_samples_is_read_once_for_all(
    dlio: Any, put: Put, server: FaultServer
) -> None:
    files = put(4, samples=2)
    server.reset(keep_buckets=True)
    batches = firsts(loader_of(dlio, files, num_samples_per_file=2, batch_size=3).next())
    assert batches == [[0, 100, 1], [101, 2, 102]]
    headrace.shutdown()
    assert len(server.log()) == 1 + 4


def test_ranks_take_as_many_steps_where_files_do_not_come_out_even(dlio: Any, put: Put) -> None:
    files = put(3, samples=4)
    for rank in range(2):
        loader = loader_of(
            dlio, files, num_samples_per_file=4, batch_size=3, my_rank=rank, comm_size=2
        )
        assert [len(batch) for batch in loader.next()] == [3, 3]


def test_files_in_a_folder_need_no_url(dlio: Any, tmp_path: Path) -> None:
    for i in range(2):
        numpy.savez(tmp_path / f"{i}.npz", x=numpy.full((2, 2, 1), i))
    assert firsts(loader_of(dlio, [str(tmp_path / f"{i}.npz") for i in range(2)]).next()) == [
        [0, 1]
    ]


def test_a_changed_byte_in_a_folder_is_found_by_the_sum_of_the_zip(
    dlio: Any, tmp_path: Path
) -> None:
    out = io.BytesIO()
    numpy.savez(out, x=numpy.full((64, 64, 1), 9, numpy.uint8))
    body = bytearray(out.getvalue())
    body[1000] ^= 1
    for i in range(2):
        (tmp_path / f"{i}.npz").write_bytes(body)
    loader = loader_of(dlio, [str(tmp_path / f"{i}.npz") for i in range(2)])
    with pytest.raises(headrace.CorruptDataError, match="CRC-32"):
        next(loader.next())


def test_other_formats_are_bytes(dlio: Any, emulator: headrace.Store) -> None:
    for i in range(2):
        emulator.write(f"r/{i}.tfrecord", b"%d" % i)
    loader = loader_of(dlio, [f"gs://bucket/r/{i}.tfrecord" for i in range(2)], format="tfrecord")
    assert [[bytes(sample) for sample in batch] for batch in loader.next()] == [[b"0", b"1"]]


def test_npy_and_images_are_parsed(dlio: Any, tmp_path: Path) -> None:
    from PIL import Image

    pixels = numpy.arange(12, dtype=numpy.uint8).reshape(2, 2, 3)
    numpy.save(tmp_path / "a.npy", numpy.asfortranarray(pixels))
    Image.fromarray(pixels).save(tmp_path / "a.png")
    for suffix in ("npy", "png"):
        files = [str(tmp_path / f"a.{suffix}")] * 2
        (batch,) = loader_of(dlio, files, format=suffix).next()
        assert (batch[0] == pixels).all()


def test_what_is_no_npz_is_corrupt(dlio: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(zlib.compress(b"no zip"))
    with pytest.raises(headrace.CorruptDataError, match="no file of format npz"):
        next(loader_of(dlio, [str(tmp_path / "a.npz")] * 2).next())


def test_a_workload_without_files_says_so(dlio: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="generate the data first"):
        loader_of(dlio, [])


def test_several_samples_a_file_with_fewer_files_than_ranks_is_refused(dlio: Any, put: Put) -> None:
    loader = loader_of(dlio, put(1, samples=8), num_samples_per_file=8, my_rank=1, comm_size=2)
    with pytest.raises(headrace.InvalidArgumentError, match="fewer files than the 2 ranks"):
        next(loader.next())


def test_the_reader_finds_the_url_behind_dlios_path(
    dlio: Any, put: Put, server: FaultServer
) -> None:
    stand_in.configure(put(3))
    reader = dlio.Reader(DatasetType.TRAIN, 0, 1)
    assert reader.is_index_based()
    assert reader.is_iterator_based()
    server.reset(keep_buckets=True)
    assert reader.read_index(2, 1) == b"resized"
    assert [int(array.flat[0]) for array in reader.open_file_map.values()] == [2]
    assert len(server.log()) == 1
    assert len(list(reader.next())) == 3
    reader.finalize()
    assert reader.open_file_map == {}
