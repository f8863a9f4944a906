"""`Loader` of datasets that are read in units: Parquet, shards as streams, and mixtures."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset

import headrace
from headrace.torch import (
    Loader,
    MapDataset,
    ParquetDataset,
    ShardStream,
    mix,
)
from testing.faultserver.client import FaultServer
from tests.conftest import SEARCHED
from tests.parquet import tables
from tests.shards import tars

ROWS, SHARDED, OBJECTS = 93, 65, 23


def row_number(row: dict[str, Any]) -> int:
    return tables.number_of(row)


def shard_number(fields: dict[str, Any]) -> int:
    return tars.number_of(fields)


def object_number(sample: headrace.Sample) -> int:
    return int(bytes(sample))


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
@settings(max_examples=SEARCHED or 20)
@given(data=st.data())
def test_any_history_of_stops_yields_what_one_run_yields(
    root: Path, members: headrace.ObjectIndex, kind: str, data: st.DataObject
) -> None:
    """Ranks take equal steps, have equal states, and repeat and lose nothing."""
    dataset, _ = dataset_of(kind, root, members)
    shuffle = data.draw(st.booleans(), "shuffle")
    epoch = data.draw(st.integers(0, 3), "epoch")
    whole = Loader(dataset, 7, shuffle=shuffle, seed=3)
    whole.set_epoch(epoch)
    wanted = Counter(torch.cat(list(whole)).tolist())
    seen: Counter[int] = Counter()
    state = None
    for _ in range(data.draw(st.integers(1, 3), "stops")):
        ranks = data.draw(st.integers(1, 7), "ranks")
        batch_size = data.draw(st.integers(2, 9), "batch_size")
        steps = data.draw(st.integers(0, 5), "steps")
        states, lengths = [], []
        for rank in range(ranks):
            loader = Loader(
                dataset, batch_size, shuffle=shuffle, seed=3, rank=rank, world_size=ranks
            )
            if state is None:
                loader.set_epoch(epoch)
            else:
                loader.load_state_dict(state)
            taken = 0
            batches = iter(loader)
            # More ranks than there were may have left a rest that is no step for them.
            while taken < steps and loader.epoch == epoch:
                batch = next(batches, None)
                if batch is None:
                    break
                seen.update(batch.tolist())
                taken += 1
            states.append(loader.state_dict())
            lengths.append(taken)
        assert all(each == states[0] for each in states)
        assert len(set(lengths)) == 1
        state = states[0]
        if state["epoch"] != epoch:
            break
    else:
        loader = Loader(dataset, 5, shuffle=shuffle, seed=3)
        loader.load_state_dict(state)
        for batch in loader:
            seen.update(batch.tolist())
    assert seen <= wanted
    assert (wanted - seen).total() < 7


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


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_plain_loop_has_the_order_of_a_loader(root: Path, shuffle: bool) -> None:
    rows = ParquetDataset(root / "parquet", row_number, shuffle=shuffle, seed=5)
    rows.set_epoch(2)
    loader = Loader(ParquetDataset(root / "parquet", row_number), 7, shuffle=shuffle, seed=5)
    loader.set_epoch(2)
    assert list(rows) == torch.cat(list(loader)).tolist()


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
    with pytest.raises(headrace.InvalidArgumentError, match="index_members"):
        Loader(ShardStream(root / "shards"), 4)
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
