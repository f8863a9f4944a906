"""The datasets on sources of every kind: results, orders, exceptions, requests."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import headrace
from headrace.compat.aistore.pytorch import (
    AISBaseIterDataset,
    AISBaseMapDataset,
    AISBatchIterDataset,
    AISIterDataset,
    AISMapDataset,
    AISParallelMapDataset,
)
from testing.faultserver.client import FaultServer
from tests.compat_aistore.conftest import ForeignSource, keep_listing

URL = "gs://bucket"
Count = Callable[[str], int]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def names_of(loader: Any) -> list[str]:
    return [name for names, _ in loader for name in names]


def joined(lists: list[list[Any]]) -> list[Any]:
    return [each for some in lists for each in some]


def names_until_error(samples: Any) -> Iterator[str]:
    for name, _ in samples:
        yield name


# ---- map style


def test_map_items_are_names_and_bytes(objects: dict[str, bytes]) -> None:
    dataset = AISMapDataset(URL)
    assert len(dataset) == len(objects)
    assert dict(dataset) == objects
    assert dataset[-1] == ("train/099", objects["train/099"])
    assert type(dataset[0][1]) is bytes
    for index in (100, -101):
        with pytest.raises(IndexError, match="<AISMapDataset> index must be in bounds of dataset"):
            dataset[index]
    for kind in (AISMapDataset, AISParallelMapDataset):
        with pytest.raises(IndexError, match=f"<{kind.__name__}> index must be in bounds"):
            kind(URL).__getitems__([0, 100])


def test_a_list_of_objects_finds_its_own(objects: dict[str, bytes]) -> None:
    values = AISMapDataset(URL).get_obj_list()
    value = values[7]
    assert value in values
    assert (values.index(value), values.count(value)) == (7, 1)
    assert values[8] != value != 7
    assert len({*values, *values}) == 100
    assert values.copy() == [*values]
    assert values * 2 == 2 * values == [*values, *values]
    values.remove(value)
    assert len(values) == 99
    assert value not in values


def test_a_batch_is_read_by_one_call_in_the_order_of_its_indices(
    objects: dict[str, bytes], count: Count
) -> None:
    dataset = AISMapDataset(URL)
    found = dataset.__getitems__([7, 3, 7, -1])
    assert [name for name, _ in found] == ["train/007", "train/003", "train/007", "train/099"]
    assert all(objects[name] == content for name, content in found)
    assert (count("list"), count("media")) == (1, 4)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_dataloader_gets_every_object_once(
    objects: dict[str, bytes], count: Count, workers: int, shuffle: bool
) -> None:
    dataset = AISMapDataset(URL)
    loader = DataLoader(dataset, batch_size=8, num_workers=workers, shuffle=shuffle)
    found = {name: bytes(content) for batch in loader for name, content in zip(*batch, strict=True)}
    assert found == objects
    assert count("list") == 1
    # Without shuffling the next batches are read ahead, each object once.
    assert count("media") == len(objects)


def test_a_listing_takes_little_memory() -> None:
    number = 200_000
    index = headrace.ObjectIndex.from_names(
        [f"train/{i:09d}.jpg" for i in range(number)],
        root="gs://bucket",
        sizes_bytes=[1000 + i % 7 for i in range(number)],
    )
    dataset = AISMapDataset(index)
    assert len(dataset.get_obj_list()) == number
    assert len(pickle.dumps(dataset)) < 100 * number


@pytest.mark.parametrize("empty", [None, "", [], 0])
@pytest.mark.parametrize("kind", [AISMapDataset, AISIterDataset, AISParallelMapDataset])
def test_no_source_is_refused(kind: Any, empty: Any) -> None:
    with pytest.raises(ValueError, match=f"<{kind.__name__}> ais_source_list must be provided"):
        kind(empty)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(TypeError, match="a source is a int"):
        AISMapDataset([7])


def test_an_object_that_was_deleted_is_an_error_and_the_ones_before_it_come(
    server: FaultServer, objects: dict[str, bytes]
) -> None:
    mapped, stream = AISMapDataset(URL), AISIterDataset(URL)
    keep_listing(stream)
    headrace.Store(URL).delete("train/050")
    with pytest.raises(FileNotFoundError, match="train/050"):
        mapped[50]
    found: list[str] = []
    with pytest.raises(headrace.NotFoundError, match="train/050"):
        found.extend(names_until_error(stream))
    assert found == [*objects][:50]


def test_an_object_that_was_replaced_is_read_whole(
    server: FaultServer, objects: dict[str, bytes]
) -> None:
    dataset = AISMapDataset(URL)
    server.put("bucket", "train/050", b"new and longer than before" * 100)
    assert dataset[50][1] == b"new and longer than before" * 100


# ---- sources and prefixes


def test_prefixes_choose_objects_source_after_source(objects: dict[str, bytes]) -> None:
    one, other = headrace.Store(URL), headrace.Store(URL)
    chosen = AISMapDataset([one, other], {one: ["train/09", "train/00"], other: "train/01"})
    names = [value.name for value in chosen.get_obj_list()]
    assert names == [f"train/{i:03d}" for i in [*range(90, 100), *range(0, 10), *range(10, 20)]]
    for everything in (None, ""):
        assert len(AISMapDataset(one, {one: everything})) == len(objects)
    assert len(AISMapDataset(one, {one: []})) == 0
    assert list(AISIterDataset(one, {one: "none"})) == []


def test_overlapping_prefixes_give_objects_twice_and_warn(objects: dict[str, bytes]) -> None:
    store = headrace.Store(URL)
    with pytest.warns(UserWarning, match="'train/00' and 'train/005' .* overlap"):
        dataset = AISMapDataset(store, {store: ["train/00", "train/005"]})
    assert len(dataset) == 11


def test_a_key_that_is_no_source_warns(objects: dict[str, bytes]) -> None:
    with pytest.warns(UserWarning, match="the key 'elsewhere' of prefix_map is none of") as caught:
        dataset = AISMapDataset(URL, {"elsewhere": "train/00"})
    assert len(dataset) == len(objects)
    assert caught[0].filename == __file__


def test_another_object_for_the_same_place_filters_and_warns(objects: dict[str, bytes]) -> None:
    with pytest.warns(UserWarning, match="another object for the bucket"):
        dataset = AISMapDataset(headrace.Store(URL), {headrace.Store(URL): "train/00"})
    assert len(dataset) == 10


def test_foreign_sources_are_read_in_their_own_way() -> None:
    contents = {f"{i:02d}": b"%d" % i for i in range(20)}
    source = ForeignSource(contents)
    dataset = AISMapDataset(source, {source: ["0", "1"]})
    assert source.listings == ["0", "1"]
    assert source.reads == []
    assert dict(dataset) == contents
    assert source.reads == [*contents]
    assert dataset.__getitems__([3, 1]) == [("03", b"3"), ("01", b"1")]
    assert dict(AISIterDataset(source)) == contents


def test_sources_of_several_kinds_are_one_dataset(folder: Path, objects: dict[str, bytes]) -> None:
    foreign = ForeignSource({"x": b"xx", "y": b""})
    sources = [folder, foreign, URL]
    expected = [f"{i}.bin" for i in range(10)] + ["x", "y"] + [*objects]
    mapped = AISMapDataset(sources)
    assert [value.name for value in mapped.get_obj_list()] == expected
    assert mapped.__getitems__([11, 10, 9, 13]) == [
        ("y", b""), ("x", b"xx"), ("9.bin", b"9" * 9), ("train/001", b"001"),
    ]  # fmt: skip
    assert [name for name, _ in AISIterDataset(sources)] == expected


def test_an_index_is_a_manifest_that_nobody_lists(objects: dict[str, bytes], count: Count) -> None:
    index = headrace.ObjectIndex.from_names(["train/003", "train/001"], root=URL)
    assert [name for name, _ in AISIterDataset(index)] == ["train/003", "train/001"]
    assert [name for name, _ in AISMapDataset(index)] == ["train/003", "train/001"]
    assert count("list") == 0


def test_an_index_of_several_places_is_refused() -> None:
    index = headrace.ObjectIndex.from_urls(["gs://one/a.jpg", "gs://two/b.jpg"])
    with pytest.raises(headrace.InvalidArgumentError, match="give one index for each of them"):
        AISMapDataset(index)


# ---- iterable style


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_batches_of_one_come_in_the_order_of_the_listing(
    objects: dict[str, bytes], count: Count, workers: int
) -> None:
    loader = DataLoader(AISIterDataset(URL), batch_size=1, num_workers=workers)
    assert names_of(loader) == [*objects]
    # As in the original, each worker lists, and reads its share.
    assert (count("list"), count("media")) == (max(workers, 1), 100)


@pytest.mark.parametrize(
    ("method", "workers"),
    [("fork", 4), pytest.param("spawn", 2, marks=pytest.mark.soak), ("forkserver", 2)],
)
def test_each_epoch_lists_anew_whatever_started_the_workers(
    server: FaultServer, objects: dict[str, bytes], count: Count, method: str, workers: int
) -> None:
    loader = DataLoader(
        AISIterDataset(URL), batch_size=None, num_workers=workers, multiprocessing_context=method
    )
    assert dict(loader) == objects
    server.put("bucket", "train/new", b"new")
    assert dict(loader) == {**objects, "train/new": b"new"}
    assert count("media") == 201


def test_the_length_is_no_pass(objects: dict[str, bytes]) -> None:
    dataset = AISIterDataset(URL)
    stream = iter(dataset)
    first = [next(stream) for _ in range(40)]
    assert len(dataset) == 100
    assert dict([*first, *stream]) == objects


@pytest.mark.filterwarnings("ignore:Length of IterableDataset")  # of the epoch before
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("take", [list, lambda loader: (len(loader), [*iter(loader)])[1]])
def test_new_objects_appear_in_the_next_epoch_whoever_asks_for_the_length(
    server: FaultServer, objects: dict[str, bytes], workers: int, take: Any
) -> None:
    dataset = AISIterDataset(URL)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert len(dataset) == 100
    for epoch in range(3):
        assert len(take(loader)) == 100 + epoch
        server.put("bucket", f"train/new-{epoch}", b"new")
    assert len(loader) == len(dataset) == 103


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_sources_may_be_shared_among_workers_whole(
    objects: dict[str, bytes], count: Count, workers: int
) -> None:
    stores = [headrace.Store(URL) for _ in range(3)]
    prefixes = {store: f"train/0{i}" for i, store in enumerate(stores)}
    dataset = AISIterDataset(stores, prefixes, partition_sources_by_worker=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert sorted(dict(loader)) == [*objects][:30]
    assert count("list") == 3


def test_what_a_subclass_makes_of_the_iterator_is_used(objects: dict[str, bytes]) -> None:
    class Backwards(AISIterDataset):
        def _create_objects_iter(self, sources: Any = None) -> Any:
            return reversed([*super()._create_objects_iter()])

    assert [name for name, _ in Backwards(URL)] == [*objects][::-1]
    loader = DataLoader(Backwards(URL), batch_size=1, num_workers=2)
    assert names_of(loader) == [*objects][::-1]


class OwnMap(AISBaseMapDataset):
    """As users write one: it reads by the objects' own readers."""

    def __getitem__(self, index: int) -> Any:
        value = self._obj_list[index]
        return value.name, value.get_reader().read_all()

    def __len__(self) -> int:
        return len(self._obj_list)


class OwnIter(AISBaseIterDataset):
    """The same."""

    def __iter__(self) -> Any:
        self._reset_iterator()
        objects, _ = self._get_worker_iter_info()
        for value in objects:
            yield value.name, value.get_reader().read_all()


def test_batches_of_an_own_map_dataset_are_read_together(
    server: FaultServer, objects: dict[str, bytes], count: Count
) -> None:
    dataset = OwnMap(URL)
    loader = DataLoader(dataset, batch_size=10, shuffle=True)
    assert {n: bytes(c) for batch in loader for n, c in zip(*batch, strict=True)} == objects
    assert count("media") == len(objects)


class Lengths(AISBaseMapDataset):
    """Reads nothing."""

    def __getitem__(self, index: int) -> Any:
        return self._obj_list[index].props_cached.size


def test_a_dataset_that_reads_no_objects_has_none_read(
    objects: dict[str, bytes], count: Count
) -> None:
    dataset = Lengths(URL)
    sizes = [dataset.__getitems__(range(i, i + 10)) for i in range(0, 100, 10)]
    assert joined(sizes) == [len(each) for each in objects.values()]
    assert count("media") == 0


def test_objects_of_an_own_iterable_dataset_are_read_ahead(
    objects: dict[str, bytes], count: Count
) -> None:
    for workers in (0, 2):
        loader = DataLoader(OwnIter(URL), batch_size=None, num_workers=workers)
        assert dict(loader) == objects
    assert count("media") == 2 * len(objects)
    stream = iter(OwnIter(URL))
    next(stream)
    next(stream)  # the first block is here, and the next ones are under way
    assert count("media") >= 2 * len(objects) + 32


@pytest.mark.parametrize(
    ("wanted", "most"), [([7], 1), ([0, 40, 80], 3), ([99, 50, 2], 3), ([40, 41, 99], 100)]
)
def test_who_reads_objects_here_and_there_has_only_those_read(
    objects: dict[str, bytes], count: Count, wanted: list[int], most: int
) -> None:
    values = [*AISIterDataset(URL)._create_objects_iter()]
    contents = [values[i].get_reader().read_all() for i in wanted]
    assert contents == [objects[f"train/{i:03d}"] for i in wanted]
    assert len(wanted) <= count("media") <= most


def test_an_object_that_is_read_twice_or_late_is_the_right_one(objects: dict[str, bytes]) -> None:
    class Restless(OwnIter):
        def __iter__(self) -> Any:
            self._reset_iterator()
            values = [*self._get_worker_iter_info()[0]]
            for value in [values[50], values[0], values[50], values[99], values[99]]:
                yield value.name, value.get_reader().read_all()

    names = [name for name, _ in Restless(URL)]
    assert names == ["train/050", "train/000", "train/050", "train/099", "train/099"]
    assert all(objects[name] == content for name, content in Restless(URL))


def test_an_own_list_of_objects_is_used(objects: dict[str, bytes], count: Count) -> None:
    class Small(AISMapDataset):
        def _create_objects_list(self) -> Any:
            return [v for v in super()._create_objects_list() if v.props_cached.size < 30]

    dataset = Small(URL)
    assert [name for name, _ in dataset] == [n for n, c in objects.items() if len(c) < 30]
    dataset = AISMapDataset(URL)
    dataset._obj_list.reverse()
    assert [name for name, _ in dataset] == [*objects][::-1]
    del dataset._obj_list[1:]
    assert len(dataset) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_start_method_reads_map_style(objects: dict[str, bytes], method: str) -> None:
    dataset = AISMapDataset(headrace.Store(URL, timeout=headrace.TimeoutOptions(total_s=77)))
    assert dataset[0][0] == "train/000"  # so that there is an engine before the fork
    loader = DataLoader(dataset, batch_size=10, num_workers=2, multiprocessing_context=method)
    assert names_of(loader) == [*objects]


def _told_timeout(dataset: Any, queue: Any) -> None:
    queue.put(dataset.get_obj_list().parts[0].store._settings.timeout.total_s)


def test_settings_arrive_in_another_process(objects: dict[str, bytes]) -> None:
    dataset = AISMapDataset(headrace.Store(URL, timeout=headrace.TimeoutOptions(total_s=77)))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_told_timeout, args=(dataset, queue))
    child.start()
    assert queue.get(timeout=120) == 77
    child.join()


# ---- batches, parallel reads, objects


def test_batches_are_read_together_across_sources(
    folder: Path, objects: dict[str, bytes], count: Count
) -> None:
    dataset = AISBatchIterDataset([folder, URL], None, max_batch_size=16)
    assert [name for name, _ in dataset] == [f"{i}.bin" for i in range(10)] + [*objects]
    loader = DataLoader(AISBatchIterDataset(URL, None), batch_size=None, num_workers=3)
    assert dict(loader) == objects


@pytest.mark.parametrize("missing", [[0], [0, 1], [*range(20)], [99], [3, 50, 98]])
def test_missing_objects_of_a_batch_raise_or_are_left_out_exactly(
    objects: dict[str, bytes], caplog: pytest.LogCaptureFixture, missing: list[int]
) -> None:
    strict = AISBatchIterDataset(URL, None)
    tolerant = AISBatchIterDataset(URL, None, cont_on_err=True)
    keep_listing(strict, tolerant)
    store = headrace.Store(URL)
    gone = [f"train/{i:03d}" for i in missing]
    for name in gone:
        store.delete(name)
    found: list[str] = []
    with pytest.raises(RuntimeError, match=gone[0]):
        found.extend(names_until_error(strict))
    assert found == [*objects][: missing[0]]
    assert [name for name, _ in iter(tolerant)] == [n for n in objects if n not in gone]
    skipped = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Skipping")]
    assert skipped == [f"Skipping {name}: there is no such object" for name in gone]


def test_a_parallel_buffer_is_the_content(objects: dict[str, bytes]) -> None:
    dataset = AISParallelMapDataset(URL)
    assert (dataset.num_workers, len(dataset)) == (16, 100)
    name, buffer = dataset[7]
    assert (name, len(buffer), buffer.tobytes()) == ("train/007", 21, objects["train/007"])
    assert bytes(buffer.buf[:3]) == b"007"
    assert pickle.loads(pickle.dumps(buffer)).tobytes() == buffer.tobytes()
    with dataset[0][1] as empty:
        assert (len(empty), empty.tobytes()) == (0, b"")
    with pytest.raises(ValueError, match="closed"):
        empty.tobytes()
    loader = DataLoader(dataset, batch_size=10, num_workers=2, collate_fn=lambda batch: batch)
    assert {name: b.tobytes() for batch in loader for name, b in batch} == objects


def test_an_object_of_the_list_reads_itself(objects: dict[str, bytes]) -> None:
    value = AISMapDataset(URL).get_obj_list()[50]
    assert value.props_cached.size == len(objects["train/050"]) == value.props.size
    reader = value.get_reader()
    assert reader.read_all() == objects["train/050"]
    assert b"".join(value.get_reader(chunk_size=7)) == objects["train/050"]
    with reader.as_file() as file:
        assert file.read() == objects["train/050"]
    assert value.get(etl_name=None).read_all() == objects["train/050"]
    assert pickle.loads(pickle.dumps(value)).get_reader().read_all() == objects["train/050"]
    with pytest.raises(TypeError, match="byte_range need an object of AIStore's SDK"):
        value.get_reader(byte_range="bytes=0-1")


def test_show_progress_shows_a_bar(
    objects: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(dict(AISIterDataset(URL, show_progress=True))) == 100
    assert "AISIterDataset: 100 objects" in capsys.readouterr().err
    assert torch.utils.data.get_worker_info() is None
