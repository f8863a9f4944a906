"""Any history of stops, kills and other ranks yields what one run yields, with every dataset.

``HEADRACE_EXAMPLES=500`` looks at so many histories of each kind; ``make soak`` does.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset

import headrace
from headrace.torch import (
    CostBatchSampler,
    Loader,
    MapDataset,
    ParquetDataset,
    ShardDataset,
    ShardStream,
    TokenDataset,
    WeightedSampler,
    mix,
)
from tests.conftest import SEARCHED
from tests.parquet import tables
from tests.shards import tars

ROWS, SHARDED, OBJECTS = 93, 65, 41


class Number:
    """The number that `of` finds in what was read, `above` higher."""

    def __init__(self, of: Callable[[Any], int], above: int = 0) -> None:
        self._of, self._above = of, above

    def __call__(self, value: Any) -> int:
        return int(self._of(value)) + self._above


def in_bytes(sample: headrace.Sample) -> int:
    return int(bytes(sample))


def in_labelled(item: tuple[int, int]) -> int:
    return item[0]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("histories")
    for name in ("parquet", "shards", "objects/even", "objects/odd"):
        (root / name).mkdir(parents=True)
    tables.fill(headrace.Store(root / "parquet"), [37, 1, 47, 8], group_rows=10)
    tars.fill(headrace.Store(root / "shards"), 5, 13)
    for number in range(OBJECTS):
        name = f"{'odd' if number % 2 else 'even'}/{number:03d}"
        (root / "objects" / name).write_bytes(b"%d" % number)
    (root / "tokens.bin").write_bytes(struct.pack("<400H", *range(400)))
    return root


@pytest.fixture(scope="module")
def members(root: Path) -> headrace.ObjectIndex:
    return headrace.index_members(root / "shards")


def objects(root: Path, above: int = 0) -> MapDataset[int]:
    return MapDataset(root / "objects", Number(in_bytes, above))


def rows(root: Path, above: int = 0) -> ParquetDataset[int]:
    return ParquetDataset(root / "parquet", Number(tables.number_of, above), shuffle_groups=2)


def shards(members: headrace.ObjectIndex, above: int = 0, window: int = 0) -> ShardStream[int]:
    return ShardStream(members, Number(tars.number_of, above), shuffle_window=window)


def costs(count: int) -> list[int]:
    return [number * 7 % 8 + 1 for number in range(count)]


def plain(
    dataset: Any, batch_size: int, order: dict[str, Any], threads: int, **more: Any
) -> Loader[Any]:
    return Loader(dataset, batch_size, transform_threads=threads, **order, **more)


def in_blocks(dataset: Any, batch_size: int, order: dict[str, Any], threads: int) -> Loader[Any]:
    if not order["shuffle"]:
        return plain(dataset, batch_size, order, threads)
    order = {**order, "shuffle": "block"}
    return plain(dataset, batch_size, order, threads, block_size=7, shuffle_window=20)


def by_bytes(dataset: Any, batch_size: int, order: dict[str, Any], threads: int) -> Loader[Any]:
    return Loader(dataset, max_batch_bytes=2 * batch_size, transform_threads=threads, **order)


def by_weights(dataset: Any, batch_size: int, order: dict[str, Any], threads: int) -> Loader[Any]:
    ranks = {name: value for name, value in order.items() if name != "shuffle"}
    sampler = WeightedSampler(dataset, costs(len(dataset)), 50, **ranks)
    return Loader(dataset, batch_size, sampler=sampler, transform_threads=threads)


def by_cost(dataset: Any, batch_size: int, order: dict[str, Any], threads: int) -> Loader[Any]:
    sampler = CostBatchSampler(
        dataset, cost=costs(len(dataset)), max_batch_cost=4 * batch_size, **order
    )
    return Loader(dataset, batch_sampler=sampler, transform_threads=threads)


Make = Callable[[Path, headrace.ObjectIndex], Any]
Load = Callable[..., Loader[Any]]
# What is read, and how its batches are made.
KINDS: dict[str, tuple[Make, Load]] = {
    "objects": (lambda root, _: objects(root), plain),
    "objects in blocks": (lambda root, _: objects(root), in_blocks),
    "objects by bytes": (lambda root, _: objects(root), by_bytes),
    "objects by weights": (lambda root, _: objects(root), by_weights),
    "objects by cost": (lambda root, _: objects(root), by_cost),
    "class folders": (
        lambda root, _: MapDataset.from_folders(root / "objects", Number(in_bytes)),
        plain,
    ),
    "members of shards": (
        lambda _, members: ShardDataset(members, Number(tars.number_of)),
        plain,
    ),
    "tokens": (lambda root, _: TokenDataset(root / "tokens.bin", seq_len=3, dtype="uint16"), plain),
    "rows": (lambda root, _: rows(root), plain),
    "shards": (lambda _, members: shards(members), plain),
    "shards in a window": (lambda _, members: shards(members, window=20), plain),
    "several in a row": (
        lambda root, members: ConcatDataset(
            [objects(root), ShardDataset(members, Number(tars.number_of, OBJECTS))]
        ),
        plain,
    ),
    "a mixture of objects": (
        lambda root, members: mix(
            [objects(root), ShardDataset(members, Number(tars.number_of, OBJECTS))], weights=[1, 3]
        ),
        plain,
    ),
    "a mixture of streams": (
        lambda root, members: mix(
            [rows(root), shards(members, ROWS, window=5), objects(root, ROWS + SHARDED)],
            weights=[3, 2, 1],
            num_samples=100,
        ),
        plain,
    ),
}


def numbers_of(batch: Any) -> list[int]:
    """Return what tells the samples of a batch apart."""
    if isinstance(batch, tuple | list):
        batch = batch[0]
    values = batch[:, 0] if batch.dim() == 2 else batch
    return [int(value) for value in values]


class Job:
    """All ranks of a run, one after the other, from a state to wherever they stop."""

    def __init__(self, loaders: list[Loader[Any]], epoch: int, state: Any) -> None:
        self._loaders, self._epoch = loaders, epoch
        for loader in loaders:
            if state is None:
                loader.set_epoch(epoch)
            else:
                loader.load_state_dict(state)

    def run(self, steps: int | None, lost: int = 0) -> tuple[Counter[int], dict[str, Any]]:
        """Take `steps` steps, and then `lost` more; return what the steps had, and their state."""
        seen: Counter[int] = Counter()
        states, taken = [], []
        for loader in self._loaders:
            batches = self._rest(loader)
            own = [numbers_of(batch) for batch in islice(batches, steps)]
            seen.update(chain.from_iterable(own))
            taken.append(len(own))
            states.append(loader.state_dict())
            deque(islice(batches, lost), maxlen=0)
        assert all(each == states[0] for each in states), "ranks have equal states"
        assert len(set(taken)) == 1, "ranks take equal steps"
        return seen, states[0]

    def _rest(self, loader: Loader[Any]) -> Iterator[Any]:
        # More ranks than there were may have left a rest that is no step for them: the loader is
        # in the next epoch then.
        batches = iter(loader)
        while loader.epoch == self._epoch:
            batch = next(batches, None)
            if batch is None:
                return
            yield batch


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=SEARCHED or 10)
@given(data=st.data())
def test_any_history_of_stops_and_kills_yields_what_one_run_yields(
    root: Path, members: headrace.ObjectIndex, kind: str, data: st.DataObject
) -> None:
    """Ranks take equal steps, have equal states, and repeat and lose nothing."""
    make, load = KINDS[kind]
    shuffle = data.draw(st.booleans(), "shuffle")
    epoch = data.draw(st.integers(0, 3), "epoch")

    def job(ranks: int, batch_size: int, threads: int, state: Any) -> Job:
        dataset = make(root, members)
        order = {"shuffle": shuffle, "seed": 3, "world_size": ranks}
        loaders = [
            load(dataset, batch_size, {**order, "rank": rank}, threads) for rank in range(ranks)
        ]
        return Job(loaders, epoch, state)

    wanted, _ = job(1, 7, 1, None).run(None)
    seen: Counter[int] = Counter()
    state, most_ranks = None, 1
    for _ in range(data.draw(st.integers(1, 4), "stops")):
        ranks = data.draw(st.integers(1, 7), "ranks")
        batch_size = data.draw(st.integers(2, 9), "batch size")
        threads = data.draw(st.integers(0, 3), "threads")
        steps = data.draw(st.integers(0, 5), "steps")
        lost = data.draw(st.integers(0, 3), "steps that a kill takes back")
        own, state = job(ranks, batch_size, threads, state).run(steps, lost)
        seen.update(own)
        most_ranks = max(most_ranks, ranks)
        if state["epoch"] != epoch:
            break
    else:
        own, _ = job(1, 5, 1, state).run(None)
        seen.update(own)
    assert seen <= wanted, "a sample came too often"
    assert (wanted - seen).total() < most_ranks, "a sample is missing"
