"""`Loader` of datasets that are read in units: Parquet, shards as streams, and mixtures."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import threading
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset

import headrace
from headrace.torch import (
    Loader,
    MapDataset,
    ParquetDataset,
    ShardStream,
    WeightedSampler,
    mix,
)
from headrace.torch._parquet_part import ParquetPart
from headrace.torch._pieces import Piece
from testing.faultserver.client import FaultServer
from tests.conftest import SEARCHED
from tests.parquet import tables
from tests.shards import tars
from tests.waiting import wait_until

ROWS, SHARDED, OBJECTS = 93, 65, 23


def row_number(row: dict[str, Any]) -> int:
    return tables.number_of(row)


def shard_number(fields: dict[str, Any]) -> int:
    return tars.number_of(fields)


def object_number(sample: headrace.Sample) -> int:
    return int(bytes(sample))


def key_number(fields: dict[str, Any]) -> int:
    return int(fields["__key__"])


class Shifted:
    """The number that `make` gives, so many higher."""

    def __init__(self, make: Any, by: int) -> None:
        self.make, self.by = make, by

    def __call__(self, value: Any) -> int:
        return int(self.make(value)) + self.by


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("streams")
    for name in ("parquet", "shards", "objects"):
        (root / name).mkdir()
    tables.fill(headrace.Store(root / "parquet"), [37, 1, 47, 8], group_rows=10)
    tars.fill(headrace.Store(root / "shards"), 5, 13)
    for number in range(OBJECTS):
        (root / "objects" / f"{number:03d}").write_bytes(b"%d" % number)
    return root


@pytest.fixture(scope="module")
def members(root: Path) -> headrace.ObjectIndex:
    return headrace.index_members(root / "shards")


KINDS = ["rows", "shards", "shards in a window", "mixture"]


def dataset_of(kind: str, root: Path, members: headrace.ObjectIndex) -> tuple[Any, int]:
    """Return a dataset whose items are the numbers below what is returned with it."""
    if kind == "rows":
        return ParquetDataset(root / "parquet", row_number, shuffle_groups=2), ROWS
    if kind == "shards":
        return ShardStream(members, shard_number), SHARDED
    if kind == "shards in a window":
        return ShardStream(members, shard_number, shuffle_window=20), SHARDED
    assert kind == "mixture"
    parts = [
        ParquetDataset(root / "parquet", row_number),
        ShardStream(members, Shifted(shard_number, ROWS), shuffle_window=5),
        MapDataset(root / "objects", Shifted(object_number, ROWS + SHARDED)),
    ]
    return mix(parts, weights=[3, 2, 1], num_samples=100), ROWS + SHARDED + OBJECTS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_each_epoch_has_every_sample_in_an_order_of_its_own(
    root: Path, members: headrace.ObjectIndex, kind: str, shuffle: bool
) -> None:
    dataset, count = dataset_of(kind, root, members)
    loader = Loader(dataset, 9, shuffle=shuffle, seed=1)
    epochs = [torch.cat(list(loader)).tolist() for _ in range(3)]
    assert loader.epoch == 3
    if kind != "mixture":
        assert all(sorted(each) == list(range(count)) for each in epochs)
        assert (epochs[0] == list(range(count))) is not shuffle
        assert (epochs[0] == epochs[1]) is not shuffle
    again = Loader(dataset, 4, shuffle=shuffle, seed=1)
    assert [torch.cat(list(again)).tolist() for _ in range(3)] == epochs


def test_a_mixture_has_its_shares_on_every_rank_and_repeats_no_sample_before_its_time(
    root: Path, members: headrace.ObjectIndex
) -> None:
    dataset, count = dataset_of("mixture", root, members)
    seen: Counter[int] = Counter()
    loaders = [Loader(dataset, 5, shuffle=True, rank=rank, world_size=2) for rank in range(2)]
    for _ in range(6):
        for loader in loaders:
            own = torch.cat(list(loader)).tolist()
            assert len(own) == 50
            rows = sum(number < ROWS for number in own)
            objects = sum(number >= ROWS + SHARDED for number in own)
            assert abs(rows - 25) <= 1
            assert abs(objects - 50 / 6) <= 1
            seen.update(own)
    for begin, end in ((0, ROWS), (ROWS, ROWS + SHARDED), (ROWS + SHARDED, count)):
        times = [seen[number] for number in range(begin, end)]
        assert max(times) - min(times) <= 1


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_each_rank_reads_row_groups_of_its_own_once(
    gcs: headrace.Store, server: FaultServer, world_size: int
) -> None:
    tables.fill(gcs, [80, 80], group_rows=10)
    dataset = ParquetDataset(gcs, columns=["number"])
    for rank in range(world_size):
        before = len(tars.media(server))
        loader = Loader(dataset, 5, shuffle=True, rank=rank, world_size=world_size)
        for _ in loader:
            pass
        assert len(tars.media(server)) - before == 16 // world_size


def test_shards_are_read_once_and_a_resume_reads_on_where_it_stopped(
    gcs: headrace.Store, server: FaultServer
) -> None:
    tars.fill(gcs, 4, 20, size_bytes=50_000)
    index = headrace.index_members(gcs)
    stream = ShardStream(index, shard_number, prefetch_bytes=1 << 20, endpoint=server.url)
    before = sum(tars.media(server))
    loader = Loader(stream, 8)
    whole = torch.cat(list(loader)).tolist()
    assert sum(tars.media(server)) - before < 4 * 20 * 53_000
    loader = Loader(stream, 8)
    batches = iter(loader)
    first = [number for _ in range(8) for number in next(batches).tolist()]
    state = loader.state_dict()
    batches.close()  # type: ignore[attr-defined]
    before = sum(tars.media(server))
    again = Loader(stream, 8)
    again.load_state_dict(state)
    assert first + torch.cat(list(again)).tolist() == whole
    assert sum(tars.media(server)) - before < 17 * 53_000


def stream_of(kind: str, root: Path, members: headrace.ObjectIndex, **how: Any) -> Any:
    """Return a dataset for torch's DataLoader, or a loop."""
    if kind == "rows":
        return ParquetDataset(root / "parquet", row_number, shuffle_groups=2, **how)
    window = 20 if kind.endswith("in a window") else 0
    source: Any = members if kind.startswith("shards") else root / "shards"
    return ShardStream(source, shard_number, shuffle_window=window, **how)


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_plain_loop_has_the_order_of_a_loader(
    root: Path, members: headrace.ObjectIndex, kind: str, shuffle: bool
) -> None:
    if kind == "shards in a window" and not shuffle:
        return  # a loop shuffles within the window; `Loader(shuffle=False)` says that nobody does
    stream = stream_of(kind, root, members, shuffle=shuffle, seed=5)
    stream.set_epoch(2)
    loader = Loader(dataset_of(kind, root, members)[0], 7, shuffle=shuffle, seed=5)
    loader.set_epoch(2)
    assert list(stream) == torch.cat(list(loader)).tolist()


class Readers:
    """All readers of a stream, each as a DataLoader worker is one."""

    def __init__(self, make: Any, ranks: int, workers: int, states: Any) -> None:
        self.streams = []
        lanes = ranks * max(1, workers)
        for lane in range(lanes):
            stream = make()
            stream._lane = lambda lane=lane: (lane, lanes)
            stream._ranks.now = lambda lane=lane: (lane % ranks, ranks)
            if states is not None:
                stream.load_state_dict(pickle.loads(pickle.dumps({"of ranks": states})))
            self.streams.append(stream)


WHOLE = ["whole shards", "whole shards in a window"]  # of which nobody knows what is in them


@pytest.mark.parametrize("kind", KINDS[:3] + WHOLE)
@settings(max_examples=SEARCHED or 30, deadline=None)
@given(data=st.data())
def test_any_history_of_readers_yields_every_sample_of_an_epoch_once(
    root: Path, members: headrace.ObjectIndex, kind: str, data: st.DataObject
) -> None:
    shuffle, epoch = data.draw(st.booleans(), "shuffle"), data.draw(st.integers(0, 3), "epoch")

    def make() -> Any:
        stream = stream_of(kind, root, members, shuffle=shuffle, seed=3, uneven="keep")
        stream.set_epoch(epoch)
        return stream

    count = ROWS if kind == "rows" else SHARDED
    seen: list[int] = []
    states = None
    for _ in range(data.draw(st.integers(0, 3), "stops")):
        readers = Readers(make, data.draw(st.integers(1, 7)), data.draw(st.integers(0, 3)), states)
        for stream in readers.streams:
            seen += itertools.islice(stream, data.draw(st.integers(0, 20), "steps"))
        states = [stream.state_dict() for stream in readers.streams]
    for stream in Readers(make, 2, 0, states).streams:
        seen += stream
    assert sorted(seen) == list(range(count))


@settings(max_examples=SEARCHED or 20, deadline=None)
@given(data=st.data())
def test_over_epochs_of_so_many_samples_each_comes_as_often_as_any_other(
    members: headrace.ObjectIndex, data: st.DataObject
) -> None:
    """With an index; whatever does not divide by the ranks is left for the next epoch."""
    ranks, workers = data.draw(st.integers(1, 7), "ranks"), data.draw(st.integers(0, 3), "workers")
    samples = data.draw(st.integers(ranks, 150), "epoch_samples")
    shuffle, window = data.draw(st.booleans(), "shuffle"), data.draw(st.integers(0, 20), "window")
    options: dict[str, Any] = {"shuffle_window": window, "epoch_samples": samples}

    def make() -> Any:
        return ShardStream(members, shard_number, shuffle=shuffle, **options)

    streams = Readers(make, ranks, workers, None).streams
    seen: Counter[int] = Counter()
    for _ in range(data.draw(st.integers(1, 4), "epochs")):
        lengths = []
        for stream in streams:
            own = list(stream)
            lengths.append(len(own))
            seen.update(own)
        assert sum(lengths) == samples - samples % ranks
        of_ranks = {sum(lengths[rank::ranks]) for rank in range(ranks)}
        assert len(of_ranks) == 1
        times = [seen[number] for number in range(SHARDED)]
        assert max(times) - min(times) <= 1


def test_rows_without_a_transform_become_columns(root: Path) -> None:
    dataset = ParquetDataset(root / "parquet", columns=["number", "text", "pair"])
    batches = list(Loader(dataset, 10, shuffle=True))
    assert [len(batch["text"]) for batch in batches] == [10] * 9 + [3]
    for batch in batches:
        assert batch["number"].dtype == torch.int64
        assert batch["text"] == [f"row {number}" for number in batch["number"].tolist()]
        assert torch.equal(batch["pair"][:, 0], batch["number"].float())
    rows = next(iter(Loader(dataset, 3, collate_fn=list)))
    assert [row["number"] for row in rows] == [0, 1, 2]


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_columns_hold_what_the_rows_hold_and_no_object_is_made_for_a_row(
    root: Path, monkeypatch: pytest.MonkeyPatch, shuffle: bool, threads: int
) -> None:
    dataset = ParquetDataset(root / "parquet", columns=["number", "text"])
    rows = list(Loader(dataset, 7, shuffle=shuffle, seed=3, collate_fn=list))
    monkeypatch.delattr(ParquetPart, "_held")
    loader = Loader(dataset, 7, shuffle=shuffle, seed=3, transform_threads=threads)
    batches = list(loader)
    assert [batch["number"].tolist() for batch in batches] == [
        [row["number"] for row in batch] for batch in rows
    ]
    assert [batch["text"] for batch in batches] == [
        [row["text"] for row in batch] for batch in rows
    ]
    assert loader.stats.samples == ROWS


@pytest.mark.parametrize("threads", [0, 3])
def test_small_batches_of_columns_are_taken_out_of_the_row_groups_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    store = headrace.Store(tmp_path)
    tables.fill(store, [1000], group_rows=500)
    dataset = ParquetDataset(store, columns=["number"])
    pieces: list[int] = []
    begun = Piece.__init__

    def counted(piece: Piece, *of: Any) -> None:
        begun(piece, *of)
        pieces.append(len(piece.numbers))

    monkeypatch.setattr(Piece, "__init__", counted)
    monkeypatch.setattr(ParquetPart, "rows_at_once", 500)
    loader = Loader(dataset, 4, shuffle=True, transform_threads=threads)
    numbers = torch.cat([batch["number"] for batch in loader]).tolist()
    assert sorted(numbers) == list(range(1000))
    assert pieces == [500, 500]


def test_a_mixture_of_tables_has_columns_with_its_exact_shares(root: Path) -> None:
    parts = [ParquetDataset(root / "parquet", columns=["number"]) for _ in range(2)]
    parts[1] = ParquetDataset(root / "parquet" / "part-002.parquet", columns=["number"])
    both = mix(parts, weights=[3, 1], num_samples=80)
    batches = list(Loader(both, 8))
    assert [len(batch["number"]) for batch in batches] == [8] * 10
    numbers = torch.cat([batch["number"] for batch in batches]).tolist()
    assert Counter(numbers) == Counter(range(60)) + Counter(range(38, 58))


@pytest.mark.parametrize("threads", [0, 3])
def test_columns_are_without_the_rows_of_a_row_group_that_cannot_be_read(
    tmp_path: Path, threads: int
) -> None:
    store = headrace.Store(tmp_path)
    tables.fill(store, [20, 20])
    dataset = ParquetDataset(store, columns=["number", "text"])
    (tmp_path / "part-000.parquet").write_bytes(b"changed")

    def batches(**arguments: Any) -> list[list[int]]:
        rules = {"transform_threads": threads, "on_error": "skip", "max_skipped": 20}
        loader = Loader(dataset, 8, **rules, **arguments)
        found = list(loader)
        assert loader.stats.skipped == 20
        for batch in found:
            assert batch["text"] == [f"row {number}" for number in batch["number"].tolist()]
        return [batch["number"].tolist() for batch in found]

    there = [list(range(20, 24)), list(range(24, 32)), list(range(32, 40))]
    assert batches() == there
    filled = [[20] * 8, [20] * 8, [20, 20, 20, 20, 20, 21, 22, 23]]
    assert batches(fill="repeat") == filled + there[1:]
    with pytest.raises(headrace.HeadraceError, match=r"part-000\.parquet"):
        list(Loader(dataset, 8, transform_threads=threads))


def test_what_the_loader_says_is_refused_of_a_stream(
    root: Path, members: headrace.ObjectIndex
) -> None:
    for odd in (
        ParquetDataset(root / "parquet", shuffle=True),
        ParquetDataset(root / "parquet", batch_size=4),
        ParquetDataset(root / "parquet", on_error="skip"),
        ShardStream(members, uneven="pad"),
        ShardStream(members, epoch_samples=10),
        ParquetDataset(root / "parquet", rank=0, world_size=2),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match="give it to the Loader"):
            Loader(odd, 4)
    rows = ParquetDataset(root / "parquet")
    with pytest.raises(headrace.InvalidArgumentError, match="units"):
        Loader(rows, 4, shuffle="block")
    with pytest.raises(headrace.InvalidArgumentError, match="units"):
        Loader(rows, batch_sampler=[[0, 1]])
    with pytest.raises(headrace.InvalidArgumentError, match="units"):
        Loader(rows, 4, sampler=[0, 1])
    with pytest.raises(headrace.InvalidArgumentError, match="units"):
        Loader(Subset(rows, [0]), 4)
    with pytest.raises(headrace.InvalidArgumentError, match="units"):
        Loader(rows, 4, max_wait_s=1.0)


def test_rows_that_cannot_be_made_are_left_out(root: Path) -> None:
    def make(row: dict[str, Any]) -> int:
        if row["number"] % 10 == 3:
            raise ValueError("a bad row")
        return int(row["number"])

    dataset = ParquetDataset(root / "parquet", make)
    told: list[Any] = []
    loader = Loader(dataset, 10, on_error=told.append, max_skipped=20)
    assert torch.cat(list(loader)).tolist() == [n for n in range(ROWS) if n % 10 != 3]
    assert [error.index for error in told] == [n for n in range(ROWS) if n % 10 == 3]
    assert loader.stats.skipped == len(told)
    with pytest.raises(ValueError, match="a bad row") as raised:
        list(Loader(dataset, 10))
    assert "row 3 of row group 0" in raised.value.__notes__[0]


def test_a_row_group_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    tables.fill(store, [20, 20])
    dataset = ParquetDataset(store, row_number)
    (tmp_path / "part-000.parquet").write_bytes(b"changed")
    loader = Loader(dataset, 8, on_error="skip", max_skipped=20)
    assert torch.cat(list(loader)).tolist() == list(range(20, 40))
    assert loader.stats.skipped == 20
    with pytest.raises(headrace.HeadraceError, match=r"part-000\.parquet"):
        list(Loader(dataset, 8))


def test_a_shard_that_is_cut_gives_what_is_whole(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    tars.fill(store, 2, 10)
    members = headrace.index_members(store)
    stream = ShardStream(members, shard_number)
    data = (tmp_path / "shard-000.tar").read_bytes()
    (tmp_path / "shard-000.tar").write_bytes(data[:5000])
    loader = Loader(stream, 5, on_error="skip", max_skipped=20)
    seen = torch.cat(list(loader)).tolist()
    assert seen[-10:] == list(range(10, 20))
    assert loader.stats.skipped == 20 - len(seen)
    with pytest.raises(headrace.HeadraceError, match=r"shard-000\.tar"):
        list(Loader(stream, 5))


@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize("kind", ["rows", "columns", "shard"])
def test_each_error_of_a_unit_that_cannot_be_read_is_of_its_own(
    tmp_path: Path, kind: str, batch_size: int
) -> None:
    store = headrace.Store(tmp_path)
    dataset: Any
    if kind == "shard":
        tars.fill(store, 1, 200)
        dataset = ShardStream(headrace.index_members(store), shard_number)
        broken = tmp_path / "shard-000.tar"
    else:
        tables.fill(store, [200])
        dataset = ParquetDataset(store, row_number if kind == "rows" else None)
        broken = tmp_path / "part-000.parquet"
    broken.write_bytes(b"changed")
    told: list[Any] = []
    rules: dict[str, Any] = {"on_error": told.append, "max_skipped": 200}
    loader = Loader(dataset, batch_size, transform_threads=0, **rules)
    with pytest.raises(headrace.CorruptDataError, match="nothing is left"):
        list(loader)
    assert [error.index for error in told] == list(range(200))
    assert max(len(list(traceback.walk_tb(error.__traceback__))) for error in told) < 20


def test_a_null_among_columns_says_what_a_transform_gets(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    headrace.Store(tmp_path).write(
        "a.parquet", tables.packed(pyarrow.table({"number": [1, None, 3]}), 3)
    )
    with pytest.raises(headrace.InvalidArgumentError, match="Loader it gets a row") as raised:
        list(Loader(ParquetDataset(tmp_path), 1))
    assert "collate_fn" not in str(raised.value)


def test_batches_by_bytes(root: Path, members: headrace.ObjectIndex) -> None:
    stream = ShardStream(members, shard_number)
    sizes = [1000 + 1] * SHARDED
    loader = Loader(stream, max_batch_bytes=5000)
    batches = [batch.tolist() for batch in loader]
    assert list(itertools.chain(*batches)) == list(range(SHARDED))
    assert max(map(len, batches)) <= 5000 // sizes[0] + 1
    assert len(batches) == len(Loader(stream, max_batch_bytes=5000))


def test_row_groups_of_unlike_sizes_are_read_once(gcs: headrace.Store, server: FaultServer) -> None:
    """A window of the mean size has many small ones, all of which are still needed."""
    gcs.write("large.parquet", tables.packed(tables.table(0, 4000), 2000))
    gcs.write("small.parquet", tables.packed(tables.table(4000, 1000), 50))
    dataset = ParquetDataset(gcs, row_number)
    before = len(tars.media(server))
    loader = Loader(dataset, 64, shuffle=True)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(5000))
    assert len(tars.media(server)) - before == 22


@pytest.mark.parametrize("seed", range(4))
def test_batches_by_bytes_are_counted_as_they_come_on_every_rank(tmp_path: Path, seed: int) -> None:
    store = headrace.Store(tmp_path)
    for shard in range(5):
        members = [
            (f"{i:03d}.bin", bytes(1 + i * 37 % 200)) for i in range(20 * shard, 20 * shard + 20)
        ]
        store.write(f"{shard}.tar", tars.tar(members))
    stream = ShardStream(headrace.index_members(store), len)
    loader = Loader(stream, 8, max_batch_bytes=300, shuffle=True, seed=seed, rank=0, world_size=3)
    told, batches = len(loader), iter(loader)
    next(batches)
    left = loader.remaining_batches
    assert sum(1 for _ in batches) == left == told - 1


def test_a_sample_that_a_mixture_has_twice_draws_other_numbers_each_time(tmp_path: Path) -> None:
    parts = []
    for name, count in (("few", 3), ("many", 50)):
        store = headrace.Store(tmp_path / name)
        tars.fill(store, 1, count)
        parts.append(ShardStream(headrace.index_members(store), drawn))
    both = mix(parts, [3, 1], num_samples=40)
    at_once = next(iter(Loader(both, 40, shuffle=True, collate_fn=list)))
    assert [each for [each] in Loader(both, 1, shuffle=True, collate_fn=list)] == at_once
    assert len({number for _, number in at_once}) == 40


def drawn(fields: dict[str, Any]) -> tuple[int, float]:
    return shard_number(fields), float(fields["jpg"].rng().python.random())


def test_a_state_is_for_any_window_unless_samples_are_shuffled(
    members: headrace.ObjectIndex,
) -> None:
    def loader(window: int, shuffle: bool) -> Loader[Any]:
        return Loader(ShardStream(members, shard_number, shuffle_window=window), 8, shuffle=shuffle)

    state = loader(5, False).state_dict()
    loader(9, False).load_state_dict(state)
    with pytest.raises(
        headrace.InvalidArgumentError, match=r"windows of 5 \(shuffle_groups=, shuf"
    ):
        loader(9, True).load_state_dict(loader(5, True).state_dict())


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_window_shuffles_a_loop_although_shards_stay_in_their_order(
    root: Path, members: headrace.ObjectIndex, shuffle: bool
) -> None:
    for source in (members, root / "shards"):
        found = list(ShardStream(source, shard_number, shuffle=shuffle, shuffle_window=9))
        assert sorted(found) == list(range(SHARDED)) != found
        if not shuffle:
            assert max(abs(at - number) for at, number in enumerate(found)) < 9


# ---- shards that nobody has counted


def whole(root: Path, window: int = 0, make: Any = shard_number, **how: Any) -> Any:
    return ShardStream(root / "shards", make, shuffle_window=window, **how)


@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_reads_shards_without_an_index_until_they_end(
    root: Path, window: int, shuffle: bool
) -> None:
    loader = Loader(whole(root, window), 7, shuffle=shuffle, seed=5)
    for epoch in range(3):
        assert loader.epoch == epoch
        batches = [batch.tolist() for batch in loader]
        assert [len(batch) for batch in batches] == [7] * 9 + [2]
        stream = whole(root, window if shuffle else 0, shuffle=shuffle, seed=5)
        stream.set_epoch(epoch)
        assert list(itertools.chain(*batches)) == list(stream)
    assert loader.stats.samples == 3 * SHARDED
    assert loader.stats.size_bytes == 3 * SHARDED * 1001
    with pytest.raises(TypeError, match=r"headrace index.*epoch_samples="):
        len(loader)
    assert len(list(Loader(whole(root), 7, drop_last=True))) == 9


@settings(max_examples=SEARCHED or 20, deadline=None)
@given(data=st.data())
def test_a_loader_of_shards_without_an_index_goes_on_exactly(
    root: Path, data: st.DataObject
) -> None:
    """On one rank, or on as many as there were; epochs follow each other."""
    ranks = data.draw(st.integers(1, 4), "ranks")
    samples = data.draw(st.integers(ranks, 100), "samples") if ranks > 1 else None
    if ranks == 1 and data.draw(st.booleans(), "of a number"):
        samples = data.draw(st.integers(1, 100), "samples")
    stream = whole(root, data.draw(st.sampled_from([0, 9, 30])), epoch_samples=samples)
    options = {"shuffle": data.draw(st.booleans(), "shuffle"), "seed": 3, "world_size": ranks}
    steps = []
    seeds = [data.draw(st.lists(st.integers(0, 9), max_size=3), "stops")] * ranks
    for rank in range(ranks):
        loader = Loader(stream, 6, rank=rank, **options)
        wanted = [[batch.tolist() for batch in loader] for _ in range(3)]
        steps.append([len(each) for each in wanted])
        if samples is not None:
            assert steps[-1] == [-(-(samples // ranks) // 6)] * 3
            assert len(loader) == steps[-1][0]
        again = Loader(stream, 6, rank=rank, **options)
        found: list[Any] = []
        for stop in seeds[rank]:
            epoch = again.epoch
            for batch in itertools.islice(again, stop):
                found.append(batch.tolist())
            state = json.loads(json.dumps(again.state_dict()))
            again = Loader(stream, 6, rank=rank, **options)
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert again.epoch in (epoch, epoch + 1)
        while again.epoch < 3:
            found += [batch.tolist() for batch in again]
        assert found == list(itertools.chain(*wanted))
    assert all(each == steps[0] for each in steps)


@settings(max_examples=SEARCHED or 20, deadline=None)
@given(data=st.data())
def test_batches_of_bytes_without_an_index_are_as_full_as_they_may_be_and_go_on_exactly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=25), "sizes")
    store = headrace.Store(tmp_path_factory.mktemp("sizes"))
    for shard in range(0, len(sizes), 7):
        named = [(f"{at:03d}.a", bytes(sizes[at])) for at in range(len(sizes))[shard : shard + 7]]
        store.write(f"{shard:03d}.tar", tars.tar(named))
    limit = data.draw(st.integers(1, 60), "limit")
    most = data.draw(st.sampled_from([None, 1, 3]), "most")
    samples = data.draw(st.sampled_from([None, 1, 10, 40]), "samples")
    drop_last = data.draw(st.booleans(), "drop_last")
    options = {"shuffle": data.draw(st.booleans(), "shuffle"), "seed": 3}
    stream = ShardStream(store, key_number, shuffle_window=9, epoch_samples=samples)

    def new() -> Loader[Any]:
        return Loader(stream, most, max_batch_bytes=limit, drop_last=drop_last, **options)

    wanted: list[list[int]] = []
    for epoch in range(2):
        one = Loader(stream, 1, **options)
        one.set_epoch(epoch)
        if epoch and samples is not None:
            one = Loader(stream, 1, **options)
            list(one)  # the second epoch goes on where it has ended
        numbers = torch.cat(list(one)).tolist()
        batches: list[list[int]] = [[]]
        for number in numbers:
            full = sum(sizes[each] for each in batches[-1]) + sizes[number] > limit
            if batches[-1] and (full or len(batches[-1]) == most):
                batches.append([])
            batches[-1].append(number)
        last = batches[-1]
        if drop_last and len(last) != most and sum(sizes[each] for each in last) < limit:
            batches.pop()
        assume(batches)
        wanted += batches
    found: list[list[int]] = []
    loader = new()
    for stop in data.draw(st.lists(st.integers(0, 9), max_size=3), "stops"):
        if loader.epoch < 2:
            found += [batch.tolist() for batch in itertools.islice(loader, stop)]
            state = json.loads(json.dumps(loader.state_dict()))
            loader = new()
            loader.load_state_dict(state)
    while loader.epoch < 2:
        found += [batch.tolist() for batch in loader]
    assert found == wanted


@pytest.mark.parametrize("samples", [5, 17])
def test_batches_of_bytes_without_an_index_are_full_before_their_number_is(
    root: Path, samples: int
) -> None:
    stream = whole(root, epoch_samples=samples)
    loader = Loader(stream, 8, max_batch_bytes=3100, drop_last=True)
    numbers = itertools.cycle(range(SHARDED))
    for _ in range(3):
        epoch = list(itertools.islice(numbers, samples))
        wanted = [epoch[at : at + 3] for at in range(0, samples - 2, 3)]
        assert [batch.tolist() for batch in itertools.islice(loader, len(wanted) - 1)] == wanted[
            :-1
        ]
        state = loader.state_dict()
        loader = Loader(stream, 8, max_batch_bytes=3100, drop_last=True)
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == wanted[-1:]


def test_batches_of_bytes_without_an_index_are_for_one_rank_and_have_no_known_number(
    root: Path,
) -> None:
    for stream, text in (
        (whole(root), "how many samples .*headrace index.*epoch_samples="),
        (whole(root, epoch_samples=9), "how large the samples .*headrace index.* batch_size alone"),
    ):
        loader = Loader(stream, max_batch_bytes=2100)
        with pytest.raises(TypeError, match=text):
            len(loader)
        assert [len(batch) for batch in loader][:4] == [2] * 4
    loader = Loader(whole(root, epoch_samples=40), max_batch_bytes=9, rank=1, world_size=2)
    with pytest.raises(
        headrace.InvalidArgumentError, match=r"2 ranks .*headrace index.*batch_size"
    ):
        next(iter(loader))


def test_ranks_without_an_index_say_what_an_epoch_is_and_stay_as_many(root: Path) -> None:
    loader = Loader(whole(root), 4, rank=0, world_size=2)
    with pytest.raises(headrace.InvalidArgumentError, match=r"headrace index.*epoch_samples="):
        next(iter(loader))
    stream = whole(root, epoch_samples=40)
    loaders = [Loader(stream, 4, rank=rank, world_size=2) for rank in range(2)]
    for loader in loaders:
        next(iter(loader))
    states = [loader.state_dict() for loader in loaders]
    for rank, world_size, state in ((0, 3, states[0]), (0, 2, states[1]), (0, 1, states[0])):
        other = Loader(stream, 4, rank=rank, world_size=world_size)
        other.load_state_dict(state)
        with pytest.raises(headrace.InvalidArgumentError, match="as many ranks as there were"):
            next(iter(other))
    for wrong, text in (
        ([*states, states[0]], "states of 3 readers, and there were 2"),
        ([states[0], Loader(stream, 4).state_dict()], "different moments"),
        ([], "no state in the list"),
        ("states", "not a state"),
        ([states], "not a state"),
    ):
        other = Loader(stream, 4, rank=0, world_size=3)
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            [other.load_state_dict(wrong), next(iter(other))]
    # An epoch's beginning has nothing of others' to lose.
    for loader in loaders:
        loader.load_state_dict(states[loaders.index(loader)])
        list(loader)
    other = Loader(stream, 4, rank=0, world_size=1)
    other.load_state_dict(loaders[0].state_dict())
    assert len(torch.cat(list(other))) == 40


@settings(max_examples=SEARCHED or 20, deadline=None)
@given(data=st.data())
def test_with_the_states_of_all_ranks_shards_without_an_index_go_on_with_any_ranks(
    root: Path, data: st.DataObject
) -> None:
    """A loader then has what streams have that were given the states of all readers."""
    window = data.draw(st.sampled_from([0, 9, 30]), "window")
    how = {"shuffle": True, "seed": 3}
    states: list[Any] = []
    of_streams: list[Any] = []
    for stop in (*data.draw(st.lists(st.integers(1, 4), max_size=3), "stops"), None):
        ranks = data.draw(st.integers(1, 4), "ranks")
        loaders = [
            Loader(whole(root, window, epoch_samples=60), 3, rank=rank, world_size=ranks, **how)
            for rank in range(ranks)
        ]
        streams = [
            whole(root, window, epoch_samples=60, rank=rank, world_size=ranks, **how)
            for rank in range(ranks)
        ]
        lengths: list[int] = []
        for loader, stream in zip(loaders, streams, strict=True):
            if states:
                loader.load_state_dict(json.loads(json.dumps(states)))
                # On as many ranks, each goes on with its own.
                is_same = len(of_streams) == ranks
                stream.load_state_dict(of_streams[len(lengths)] if is_same else of_streams)
            assert loader.epoch == 0
            own = [number for batch in itertools.islice(loader, stop) for number in batch.tolist()]
            assert own == list(itertools.islice(stream, stop and 3 * stop))
            lengths.append(len(own))
        assert len(set(lengths)) == 1
        states = [loader.state_dict() for loader in loaders]
        of_streams = [stream.state_dict() for stream in streams]
        if states[0]["epoch"] > 0:
            break
    assert states[0]["epoch"] == 1, "the epoch has not ended"
    # What follows are whole epochs, after another change of the ranks, too.
    for _ in range(3):
        if ranks := data.draw(st.sampled_from([0, 1, 2, 3]), "other ranks"):
            loaders = [
                Loader(whole(root, window, epoch_samples=60), 3, rank=rank, world_size=ranks, **how)
                for rank in range(ranks)
            ]
            for loader in loaders:
                loader.load_state_dict(states)
        counts: Counter[int] = Counter()
        for loader in loaders:
            batches = [batch.tolist() for batch in loader]
            assert len(batches) == len(loader)
            counts.update(itertools.chain.from_iterable(batches))
        assert counts.total() == 60
        states = [loader.state_dict() for loader in loaders]


@pytest.mark.parametrize("kind", ["a stream", "a mixture"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loop_that_names_epochs_and_takes_no_more_than_there_is_goes_on(
    root: Path, kind: str, shuffle: bool
) -> None:
    """As Lightning's does."""
    dataset = whole(root, epoch_samples=20) if kind == "a stream" else unindexed(root)
    how = {"shuffle": shuffle, "seed": 4}
    one, other = Loader(dataset, 4, **how), Loader(dataset, 4, **how)
    for epoch in range(6):
        one.set_epoch(epoch)
        batches = iter(one)
        found = [next(batches).tolist() for _ in range(len(one))]
        assert found == [batch.tolist() for batch in other]
    # To name an epoch that is not the next one begins it as if there were none before.
    one.set_epoch(1)
    again = Loader(dataset, 4, **how)
    again.set_epoch(1)
    assert [each.tolist() for each in one] == [each.tolist() for each in again]


@pytest.mark.parametrize("ranks", [(1, 2), (2, 3), (3, 1)])
@pytest.mark.parametrize("kind", ["a stream", "a mixture"])
def test_what_is_too_little_for_a_step_of_other_ranks_is_no_epoch_and_nothing_begins_anew(
    root: Path, kind: str, ranks: tuple[int, int]
) -> None:
    before, after = ranks

    def loaders(count: int, size: int) -> list[Loader[Any]]:
        made = []
        for rank in range(count):
            dataset = whole(root, epoch_samples=14) if kind == "a stream" else None
            dataset = dataset or unindexed(root, num_samples=14)
            made.append(Loader(dataset, size, drop_last=True, rank=rank, world_size=count))
        return made

    counts: Counter[int] = Counter()
    first = loaders(before, 4 // before or 1)
    for loader in first:
        size = 12 // (before * (4 // before or 1))
        for batch in itertools.islice(loader, size):
            counts.update(batch.tolist())
    states = [loader.state_dict() for loader in first]
    second = loaders(after, 4)
    for loader in second:
        loader.load_state_dict(states)
        assert loader.epoch == 1
        assert loader.remaining_batches == len(loader) == 14 // after // 4
        for batch in loader:
            counts.update(batch.tolist())
    uncounted = {n: c for n, c in counts.items() if n >= ROWS + OBJECTS or kind == "a stream"}
    assert set(uncounted.values()) == {1}


def test_a_loader_of_a_mixture_with_streams_is_copied(root: Path) -> None:
    for indexed in (False, True):
        loader = Loader(unindexed(root, indexed), 5, shuffle=True, seed=3)
        batches = iter(loader)
        next(batches)
        copies = [copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
        rest = [batch.tolist() for batch in batches]
        for each in copies:
            assert [batch.tolist() for batch in each] == rest


def test_states_that_cannot_be_of_shards_without_an_index_are_refused(root: Path) -> None:
    def loader(ranks: int = 3, mixed: bool = False) -> Loader[Any]:
        dataset = unindexed(root) if mixed else whole(root, epoch_samples=40)
        return Loader(dataset, 4, rank=0, world_size=ranks)

    states = []
    for rank in range(3):
        one = Loader(whole(root, epoch_samples=40), 4, rank=rank, world_size=3)
        next(iter(one))
        states.append(one.state_dict())
    # On as many ranks as well: else only some of them would go on.
    wrong: list[tuple[Any, str]] = [(states[:2], "that of reader 2 is missing")]
    forged = copy.deepcopy(states[0])
    forged["sampler"]["readers"][0][0]["base"]["left"] = 1 << 62
    wrong.append((forged, "the state's base is"))
    wrong += [
        ([{**states[0], "sampler": {"readers": [n]}} for n in (5, 6, 7)], "give each rank its own"),
        ({**states[0], "sampler": {"is_end": True, "next": 5}}, "it must be a mapping"),
        ({**states[0], "sampler": {"readers": [5]}}, "and that is none"),
    ]
    for state, text in wrong:
        one = loader()
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            [one.load_state_dict(state), next(iter(one))]
    one = loader(1, mixed=True)
    next(iter(one))
    state = json.loads(json.dumps(one.state_dict()))
    for lanes in ([1 << 62, 1], [3, 1 << 62]):
        with pytest.raises(headrace.InvalidArgumentError, match="lanes"):
            one.load_state_dict({**state, "lanes": lanes})
    for readers in state["sampler"]["readers"]:
        readers[0]["share"] = [0, 0]
        readers[0]["yielded"] = 0
    one.load_state_dict(state)
    with pytest.raises(headrace.InvalidArgumentError, match="readers have no sample"):
        list(one)


def unindexed(root: Path, indexed: bool = False, **how: Any) -> Any:
    """Return a mixture, of which two datasets are shards that nobody has counted."""
    shards = headrace.index_members(root / "shards") if indexed else root / "shards"
    above = ROWS + OBJECTS
    parts = [
        ParquetDataset(root / "parquet", row_number),
        ShardStream(shards, Shifted(shard_number, above), shuffle_window=8),
        MapDataset(root / "objects", Shifted(object_number, ROWS)),
        ShardStream(shards, Shifted(shard_number, above + SHARDED)),
    ]
    return mix(parts, weights=[3, 2, 1, 1], **{"num_samples": 70, **how})


@settings(max_examples=SEARCHED or 20, deadline=None)
@given(data=st.data())
def test_a_mixture_has_its_exact_shares_of_shards_without_an_index_too(
    root: Path, data: st.DataObject
) -> None:
    """All but these shards is as if they had an index, after any stops and with any ranks."""
    how = {"shuffle": data.draw(st.booleans(), "shuffle"), "seed": 5}
    counted, states = None, list[Any]()
    counts: Counter[int] = Counter()
    most_ranks = 1
    first_uncounted = ROWS + OBJECTS

    def owner(number: int) -> int:
        return number if number < first_uncounted else -1 - (number >= first_uncounted + SHARDED)

    for stop in data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6), "stops"):
        ranks = data.draw(st.integers(1, 4), "ranks")
        threads = data.draw(st.integers(0, 2), "threads")
        most_ranks = max(most_ranks, ranks)
        sides = [
            [
                Loader(
                    unindexed(root, indexed), 5, transform_threads=threads, rank=rank,
                    world_size=ranks, **how,
                )
                for rank in range(ranks)
            ]
            for indexed in (False, True)
        ]  # fmt: skip
        found: list[list[int]] = []
        for own, other in zip(*sides, strict=True):
            if states:
                own.load_state_dict(json.loads(json.dumps(states)))
                other.load_state_dict(counted)
            assert own.epoch == other.epoch
            assert own.remaining_batches == other.remaining_batches
            batches = [
                [batch.tolist() for batch in itertools.islice(each, stop)] for each in (own, other)
            ]
            assert [[owner(number) for number in batch] for batch in batches[0]] == [
                [owner(number) for number in batch] for batch in batches[1]
            ]
            found += batches[0]
        states = [each.state_dict() for each in sides[0]]
        counted = sides[1][0].state_dict()
        counts.update(itertools.chain.from_iterable(found))
        for begin in (first_uncounted, first_uncounted + SHARDED):
            of_shards = [counts[number] for number in range(begin, begin + SHARDED)]
            assert max(of_shards) - min(of_shards) <= most_ranks


@pytest.mark.parametrize("kind", ["a Subset", "a ConcatDataset", "a Subset of both"])
@pytest.mark.parametrize("indexed", [True, False])
def test_what_torch_has_combined_has_its_share_beside_a_stream(
    root: Path, kind: str, indexed: bool
) -> None:
    objects = [MapDataset(root / "objects", Shifted(object_number, by)) for by in (100, 200)]
    one: Any = ConcatDataset(objects)
    wanted = {by + number for by in (100, 200) for number in range(OBJECTS)}
    if kind == "a Subset":
        one, wanted = Subset(objects[0], [3, 1, 8, 5]), {103, 101, 108, 105}
    elif kind == "a Subset of both":
        one, wanted = Subset(one, [-1, 0, OBJECTS]), {200 + OBJECTS - 1, 100, 200}
    source = headrace.index_members(root / "shards") if indexed else root / "shards"
    stream = ShardStream(source, Shifted(shard_number, 1000))
    both = mix([one, stream, objects[0]], weights=[2, 2, 1], num_samples=5 * len(wanted))
    loader = Loader(both, 4, shuffle=True, seed=6)
    for _ in range(3):
        counts = Counter(number for batch in loader for number in batch.tolist())
        assert sum(counts[number] for number in range(1000, 1000 + SHARDED)) == 2 * len(wanted)
        # Twice each, and as many again of the dataset that is there by itself.
        rest = {number: count for number, count in counts.items() if number < 1000}
        assert sum(rest.values()) == 3 * len(wanted)
        assert all(rest[number] >= 2 for number in wanted)


def test_a_rank_goes_on_in_a_mixture_with_shards_without_an_index_from_its_own_state(
    root: Path,
) -> None:
    how: dict[str, Any] = {"shuffle": True, "seed": 2}
    for ranks in (1, 2):
        for rank in range(ranks):
            how |= {"rank": rank, "world_size": ranks}
            loader = Loader(unindexed(root), 4, **how)
            wanted = [batch.tolist() for _ in range(3) for batch in loader]
            for stop in range(0, len(wanted), 3):
                one = Loader(unindexed(root), 4, **how)
                got = []
                while len(got) < stop:
                    left = stop - len(got)
                    got += [batch.tolist() for batch in itertools.islice(one, left)]
                other = Loader(unindexed(root), 4, **how)
                other.load_state_dict(json.loads(json.dumps(one.state_dict())))
                while other.epoch < 3:
                    got += [batch.tolist() for batch in other]
                assert got == wanted


def test_a_mixture_reads_shards_without_an_index_once(
    gcs: headrace.Store, server: FaultServer
) -> None:
    tars.fill(gcs, 6, 10)
    both = mix(
        [ShardStream(gcs, shard_number), ShardStream(gcs, shard_number)], [1, 1], num_samples=120
    )
    for ranks in (1, 2):
        begin = len(server.log())
        loaders = [Loader(both, 4, rank=rank, world_size=ranks) for rank in range(ranks)]
        numbers = [number for loader in loaders for batch in loader for number in batch.tolist()]
        assert Counter(numbers) == dict.fromkeys(range(60), 2)
        media = (each for each in server.log()[begin:] if each["kind"] == "media")
        read = Counter(each["target"].partition("?")[0] for each in media)
        # Three are opened ahead by each reader, of the pass that follows.
        assert len(read) == 6
        assert sum(read.values()) <= 2 * (6 + 3 * ranks)


@pytest.mark.parametrize("threads", [0, 3])
def test_a_broken_shard_of_a_mixture_without_an_index_takes_the_place_of_a_sample(
    tmp_path: Path, threads: int
) -> None:
    store = headrace.Store(tmp_path / "shards")
    tars.fill(store, 3, 10)
    broken = tmp_path / "shards" / "shard-001.tar"
    broken.write_bytes(broken.read_bytes()[:50])
    for number in range(22):
        headrace.Store(tmp_path / "objects").write(f"{number:02d}", b"%d" % number)
    parts = [
        ShardStream(store, shard_number),
        MapDataset(tmp_path / "objects", Shifted(object_number, 100)),
    ]
    both = mix(parts, [1, 1], num_samples=42)
    told: list[Any] = []
    rules: dict[str, Any] = {"on_error": told.append, "transform_threads": threads}
    seen = [number for batch in Loader(both, 4, **rules) for number in batch.tolist()]
    assert sorted(seen) == [*range(10), *range(20, 30), *range(100, 121)]
    assert [error.url for error in told] == [store.url_of("shard-001.tar")]
    got: list[int] = []
    with pytest.raises(headrace.CorruptDataError, match=r"shard-001\.tar"):
        got.extend(
            int(each) for batch in Loader(both, 4, transform_threads=threads) for each in batch
        )
    assert sorted(got) == [*range(10), *range(100, 110)]


def test_mixtures_that_cannot_be_of_shards_without_an_index_are_refused(root: Path) -> None:
    stream, objects = whole(root), MapDataset(root / "objects", object_number)
    for refused, text in (
        (lambda: mix([stream, objects], [1, 1]), "say num_samples, or give an index"),
        (
            lambda: mix([whole(root, epoch_samples=9), objects], [1, 1], num_samples=9),
            "epoch_samples=: leave it out",
        ),
        (
            lambda: Loader(mix([stream, objects], [1, 1], num_samples=9), max_batch_bytes=9),
            "leave out max_batch_bytes",
        ),
        (
            lambda: Loader(
                mix([objects, stream], [1, 1], num_samples=9), 4, on_error="skip", fill="repeat"
            ),
            "were not counted",
        ),
        (lambda: mix([objects, stream], [1, 1], num_samples=9)[1], "give this mixture to a Loader"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            refused()


def test_the_states_of_all_ranks_may_be_given_of_any_dataset(root: Path) -> None:
    dataset = MapDataset(root / "objects", object_number)
    loaders = [Loader(dataset, 3, rank=rank, world_size=2) for rank in range(2)]
    seen = [int(number) for loader in loaders for number in next(iter(loader))]
    states = [loader.state_dict() for loader in loaders]
    for each in (states, tuple(states), states[:1]):
        loader = Loader(dataset, 5)
        loader.load_state_dict(each)
        rest = torch.cat(list(loader)).tolist()
        assert sorted(seen + rest) == list(range(OBJECTS))
    skipped = [states[0], {**states[1], "skipped": 2}]
    loader.load_state_dict(skipped)
    assert loader.state_dict()["skipped"] == 2
    orders = [Loader(dataset, 3, sampler=Stateful(seed)) for seed in range(2)]
    for each in orders:
        next(iter(each))
    with pytest.raises(headrace.InvalidArgumentError, match="give each rank its own"):
        orders[0].load_state_dict([each.state_dict() for each in orders])


class Stateful:
    """A sampler that says where it is."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __iter__(self) -> Any:
        return iter(range(OBJECTS))

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed = state["seed"]


@pytest.mark.parametrize("threads", [0, 3])
def test_a_broken_shard_without_an_index_is_left_out_of_a_loader(
    tmp_path: Path, threads: int
) -> None:
    store = headrace.Store(tmp_path)
    tars.fill(store, 3, 10)
    data = (tmp_path / "shard-001.tar").read_bytes()
    (tmp_path / "shard-001.tar").write_bytes(data[:9000])
    stream = ShardStream(store, shard_number)
    told: list[Any] = []
    loader = Loader(stream, 8, on_error=told.append, transform_threads=threads)
    seen = torch.cat(list(loader)).tolist()
    assert seen == [*range(len(seen) - 10), *range(20, 30)]
    assert 10 < len(seen) - 10 < 20
    assert [error.url for error in told] == [store.url_of("shard-001.tar")]
    assert loader.stats.skipped == 1
    batches, got = iter(Loader(stream, 5, transform_threads=threads)), list[Any]()
    with pytest.raises(headrace.CorruptDataError, match=r"shard-001\.tar"):
        got.extend(batch.tolist() for batch in batches)
    assert list(itertools.chain(*got)) == list(range(10))


@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize("last", [0, 8])
def test_broken_shards_in_a_row_are_each_told_once_wherever_a_loader_stops(
    tmp_path: Path, window: int, last: int
) -> None:
    store = headrace.Store(tmp_path)
    for shard, (begin, count) in enumerate([(0, 3), (3, 5), (8, 5), (13, last)]):
        store.write(f"{shard}.tar", tars.tar(tars.samples_of(begin, count)))
    for broken in ("1.tar", "2.tar"):
        (tmp_path / broken).write_bytes((tmp_path / broken).read_bytes()[:100])
    stream = ShardStream(store, shard_number, shuffle_window=window)

    def loader(told: list[Any]) -> Loader[Any]:
        return Loader(stream, 4, shuffle=window > 0, seed=2, on_error=told.append, max_skipped=9)

    told: list[Any] = []
    wanted = [batch.tolist() for batch in loader(told)]
    urls = [error.url for error in told]
    assert sorted(urls) == [store.url_of("1.tar"), store.url_of("2.tar")]
    for stop in range(1, len(wanted) + 1):
        again: list[Any] = []
        one = loader(again)
        got = [batch.tolist() for batch in itertools.islice(one, stop)]
        other = loader(again)
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        if other.epoch == 0:
            got += [batch.tolist() for batch in other]
        assert got == wanted
        assert [error.url for error in again] == urls


@pytest.mark.parametrize("by_loader", [False, True])
def test_a_window_is_restored_whole_although_its_shard_breaks_behind_it(
    tmp_path: Path, by_loader: bool
) -> None:
    store = headrace.Store(tmp_path)
    tars.fill(store, 2, 10)
    broken = tmp_path / "shard-001.tar"
    broken.write_bytes(broken.read_bytes()[:14000])

    def made(told: list[Any]) -> Any:
        rules: dict[str, Any] = {"shuffle": True, "on_error": told.append, "max_skipped": 9}
        if by_loader:
            return Loader(ShardStream(store, shard_number, shuffle_window=30), 1, **rules)
        return ShardStream(store, shard_number, shuffle_window=30, **rules)

    told: list[Any] = []
    wanted = list(made(told))
    assert 10 < len(wanted) < 20
    assert len(told) == 1
    for stop in range(1, len(wanted)):
        again: list[Any] = []
        one, other = made(again), made(again)
        got = list(itertools.islice(one, stop))
        other.load_state_dict(one.state_dict())
        assert got + list(other) == wanted
        assert len(again) == 1


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("how", [{}, {"shuffle_window": 8}, {"epoch_samples": 32}])
def test_all_batches_before_a_shard_that_may_not_be_read_come(
    gcs: headrace.Store, server: FaultServer, how: dict[str, Any], threads: int
) -> None:
    tars.fill(gcs, 4, 8)
    refused = {"kind": "media", "path_contains": "shard-002"}
    server.faults([{"match": refused, "action": {"status": 403}}])
    loader = Loader(ShardStream(gcs, shard_number, **how), 8, transform_threads=threads)
    got: list[Any] = []
    for _ in range(2):
        with pytest.raises(headrace.PermissionDeniedError):
            got.extend(batch.tolist() for batch in loader)
        assert got == [list(range(8)), list(range(8, 16))]
        loader.load_state_dict(loader.state_dict())
    server.faults([])
    assert torch.cat(list(loader)).tolist() == list(range(16, 32))


def test_an_epoch_whose_batches_were_all_taken_has_ended_although_nobody_asked_for_more(
    root: Path,
) -> None:
    def loader() -> Loader[Any]:
        return Loader(whole(root, epoch_samples=20), 5, shuffle=True, seed=3)

    one, other = loader(), loader()
    for _ in range(4):
        wanted = [batch.tolist() for batch in one]
        batches = iter(other)
        assert [next(batches).tolist() for _ in range(len(other))] == wanted


def test_a_rank_refuses_the_state_of_another_one_at_the_end_of_an_epoch_too(root: Path) -> None:
    stream = whole(root, epoch_samples=40)
    loaders = [Loader(stream, 5, rank=rank, world_size=2) for rank in range(2)]
    begin = loaders[0].state_dict()
    for loader in loaders:
        loader.load_state_dict(begin)  # nobody has yielded anything
        list(loader)
    loaders[1].load_state_dict(loaders[0].state_dict())
    with pytest.raises(headrace.InvalidArgumentError, match="rank 0 of 2, and this is rank 1 of 2"):
        next(iter(loaders[1]))


def test_an_epoch_without_a_batch_ends(root: Path, tmp_path: Path) -> None:
    few = ShardStream(root / "shards" / "shard-000.tar", shard_number)
    index = headrace.index_members(root / "shards" / "shard-000.tar")
    objects = MapDataset(root / "objects", object_number)
    for loader in (
        Loader(few, 20, drop_last=True),
        Loader(ShardStream(index, shard_number), 20, drop_last=True),
        Loader(objects, 20, drop_last=True, sampler=range(5)),
    ):
        assert [list(loader), list(loader)] == [[], []]
        assert loader.epoch == 2
    tars.fill(headrace.Store(tmp_path), 3, 0)
    for samples, ranks, text in ((2, 4, "there are 4 ranks"), (5, 1, "have no sample")):
        stream = ShardStream(tmp_path, shard_number, epoch_samples=samples)
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            next(iter(Loader(stream, 2, rank=0, world_size=ranks)))


def test_threads_transform_several_batches_of_shards_without_an_index_at_a_time(root: Path) -> None:
    together = threading.Barrier(4)

    def make(fields: dict[str, Any]) -> int:
        together.wait(20)  # until every thread has a sample
        return shard_number(fields)

    loader = Loader(whole(root, make=make, epoch_samples=60), 1, transform_threads=4)
    assert torch.cat(list(loader)).tolist() == list(range(60))


def test_the_first_batch_of_shards_without_an_index_does_not_wait_for_all_that_is_read_ahead(
    gcs: headrace.Store, server: FaultServer
) -> None:
    tars.fill(gcs, 9, 10)
    stream = ShardStream(gcs, shard_number, shards_ahead=0)
    loader = Loader(stream, 2, transform_threads=1, prefetch_bytes=16 << 20)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    assert len(tars.media(server)) <= 3  # of 9 shards, one of which is opened ahead
    assert torch.cat(list(batches)).tolist() == list(range(2, 90))


@pytest.mark.parametrize("threads", [0, 3])
def test_errors_of_transforms_name_the_sample_without_an_index_too(
    root: Path, threads: int
) -> None:
    def make(fields: dict[str, Any]) -> int:
        number = shard_number(fields)
        if number % 10 == 3:
            raise ValueError("a bad sample")
        return number

    told: list[Any] = []
    rules: dict[str, Any] = {"on_error": told.append, "max_skipped": 30}
    loader = Loader(whole(root, 9, make), 4, shuffle=True, transform_threads=threads, **rules)
    for _ in range(2):
        list(loader)
        assert sorted(error.member for error in told) == [f"{n:06d}" for n in range(3, 65, 10)]
        assert all(error.url.endswith(f"{int(error.member) // 13:03d}.tar") for error in told)
        told.clear()


@pytest.mark.parametrize("window", [4, 12])
@pytest.mark.parametrize("seed", range(6))
def test_an_epoch_goes_on_exactly_although_a_broken_shard_had_places_in_the_last_one(
    tmp_path: Path, window: int, seed: int
) -> None:
    (tmp_path / "shards").mkdir()
    tars.fill(headrace.Store(tmp_path / "shards"), 8, 9)
    for path in sorted((tmp_path / "shards").iterdir())[2:4]:
        path.write_bytes(path.read_bytes()[:50])
    stream = whole(tmp_path, window, epoch_samples=8)
    loader = Loader(stream, 2, shuffle=True, seed=seed, on_error="skip")
    # 54 samples, and two places of errors.
    numbers = [int(number) for _ in range(7) for batch in loader for number in batch]
    assert sorted(numbers) == [*range(18), *range(36, 72)]


def test_what_needs_numbers_of_samples_is_refused_without_an_index(root: Path) -> None:
    stream = whole(root)
    for refused in (
        lambda: mix([stream, stream], [1, 1]),
        lambda: WeightedSampler(stream, weights=[1.0]),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match="headrace index"):
            refused()
    for options, text in (
        ({"sampler": [0, 1]}, "leave out sampler"),
        ({"shuffle": "block"}, "say shuffle=True"),
        ({"on_error": "skip", "fill": "repeat"}, "were not counted"),
        ({"max_wait_s": 1.0}, "units"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            Loader(stream, 4, **options)
    empty = root / "empty"
    empty.mkdir(exist_ok=True)
    (empty / "a.tar").write_bytes(tars.tar([("README", b"no sample")]))
    with pytest.raises(headrace.InvalidArgumentError, match="there is no batch"):
        next(iter(Loader(ShardStream(empty), 4)))


def test_random_numbers_without_an_index_are_those_of_the_samples(root: Path) -> None:
    def of(ranks: int, threads: int, batch_size: int) -> list[Any]:
        stream = whole(root, 9, drawn, epoch_samples=64)
        loaders = [
            Loader(
                stream, batch_size, shuffle=True, seed=4, collate_fn=list,
                transform_threads=threads, rank=rank, world_size=ranks,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        return [each for loader in loaders for batch in loader for each in batch]

    wanted = dict(of(1, 0, 5))
    assert len(set(wanted.values())) == 64
    for found in (of(1, 3, 7), of(2, 3, 4)):
        assert all(wanted.get(number, value) == value for number, value in found)


def test_an_iterator_of_shards_without_an_index_that_is_left_reads_no_more(
    gcs: headrace.Store, server: FaultServer
) -> None:
    tars.fill(gcs, 4, 20, size_bytes=50_000)
    loader = Loader(ShardStream(gcs, shard_number), 4)
    copies = [copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
    next(iter(loader))
    part: Any = loader._recipe.source.parts[0]
    assert part.windows is None
    wait_until(lambda: server.stats()["in_flight"] == 0)
    for each in (loader, *copies):
        each.set_epoch(0)
        assert torch.cat(list(each)).tolist() == list(range(80))


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_random_transforms_do_not_depend_on_threads_or_a_resume(
    members: headrace.ObjectIndex, threads: int
) -> None:
    def make(fields: dict[str, Any]) -> tuple[int, float]:
        return shard_number(fields), float(fields["jpg"].rng().python.random())

    stream = ShardStream(members, make, shuffle_window=7)
    whole = [each for batch in Loader(stream, 6, shuffle=True, collate_fn=list) for each in batch]
    loader = Loader(stream, 6, shuffle=True, collate_fn=list, transform_threads=threads)
    first = next(iter(loader))
    again = Loader(stream, 6, shuffle=True, collate_fn=list, transform_threads=threads)
    again.load_state_dict(loader.state_dict())
    assert first + [each for batch in again for each in batch] == whole


def test_copies_go_on_where_the_loader_is(root: Path) -> None:
    loader = Loader(
        ParquetDataset(root / "parquet", row_number, shuffle_groups=2), 10, shuffle=True
    )
    batches = iter(loader)
    next(batches)
    copies = [copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
    rest = torch.cat(list(batches)).tolist()
    for each in copies:
        assert torch.cat(list(each)).tolist() == rest


def test_a_state_of_other_units_or_an_odd_layout_is_refused(
    root: Path, members: headrace.ObjectIndex
) -> None:
    loader = Loader(ParquetDataset(root / "parquet", row_number), 10, shuffle=True)
    next(iter(loader))
    state = loader.state_dict()
    other = Loader(ParquetDataset(root / "parquet", row_number, shuffle_groups=9), 10, shuffle=True)
    with pytest.raises(headrace.InvalidArgumentError, match="a position means something else"):
        other.load_state_dict(state)
    for lanes in (None, [1], [0, 1], [1, True], ["1", 1]):
        with pytest.raises(headrace.InvalidArgumentError, match="lanes"):
            loader.load_state_dict({**state, "lanes": lanes})


def test_the_last_batch_of_an_epoch_leaves_no_unit_in_memory(root: Path) -> None:
    rows = ParquetDataset(root / "parquet", row_number)
    loader = Loader(rows, 10, shuffle=True, prefetch_bytes=0)
    iterator = iter(loader)
    next(iterator)
    part: Any = loader._recipe.source.parts[0]
    assert len(part._kept) > 0
    iterator.close()  # type: ignore[attr-defined]
    assert len(part._kept) == 0
    list(loader)
    assert len(part._kept) == 0
