"""`Loader(max_batch_bytes=)`: batches of as many objects as fit into a number of bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import ConcatDataset, Subset

import headrace
from headrace.torch import Loader, MapDataset
from headrace.torch._batch_steps import CostSteps
from headrace.torch._grid import Spot
from testing.faultserver.client import FaultServer
from tests.torch.conftest import content, fill_folder, reads

# Some have no bytes, and some more than fit into a batch of 1000.
SIZES = random.Random(7).choices([0, 10, 100, 250, 400, 1500], k=60)
LIMIT = 1000


def fill(put: Any, sizes: Sequence[int]) -> None:
    for i, size_bytes in enumerate(sizes):
        put(f"{i:04d}", content(i, size_bytes))


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    """Files of SIZES."""
    store = headrace.Store(tmp_path_factory.mktemp("unequal"))
    fill(store.write, SIZES)
    return store


def number_and_size(sample: headrace.Sample) -> tuple[int, int]:
    assert sample.bytes() == content(sample.index, SIZES[sample.index])
    return sample.index, len(sample)


def loader_of(store: headrace.Store, **options: Any) -> Loader:
    options.setdefault("max_batch_bytes", LIMIT)
    return Loader(MapDataset(store, number_and_size), collate_fn=list, **options)


def numbers(batch: list[tuple[int, int]]) -> list[int]:
    return [number for number, _ in batch]


def size_bytes(batch: list[tuple[int, int]]) -> int:
    return sum(size for _, size in batch)


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_have_all_objects_and_as_many_as_fit(
    unequal: headrace.Store, shuffle: bool
) -> None:
    loader = loader_of(unequal, shuffle=shuffle, seed=3)
    batches = list(loader)
    order = [number for batch in batches for number in numbers(batch)]
    assert sorted(order) == list(range(len(SIZES)))
    assert (order == sorted(order)) is not shuffle
    for batch, following in pairwise(batches):
        assert size_bytes(batch) <= LIMIT or len(batch) == 1
        assert size_bytes(batch) >= LIMIT or size_bytes(batch) + following[0][1] > LIMIT
    assert any(len(batch) == 1 and size_bytes(batch) > LIMIT for batch in batches)
    assert loader.stats.size_bytes == sum(SIZES)


def test_each_object_is_read_once(server: FaultServer) -> None:
    fill(lambda name, data: server.put("bucket", name, data), SIZES)
    store = headrace.Store("gs://bucket", endpoint=server.url)
    assert sum(len(batch) for batch in loader_of(store)) == len(SIZES)
    counts = reads(server)
    assert counts == {f"{i:04d}": 1 for i in range(len(SIZES))}


def test_a_batch_size_is_then_the_most(unequal: headrace.Store) -> None:
    batches = list(loader_of(unequal, batch_size=3))
    assert [number for batch in batches for number in numbers(batch)] == list(range(len(SIZES)))
    assert max(map(len, batches)) == 3
    assert all(size_bytes(batch) <= LIMIT or len(batch) == 1 for batch in batches)


def test_objects_of_equal_size_come_as_one_tensor(tmp_path: Path) -> None:
    loader = Loader(MapDataset(fill_folder(tmp_path, 10)), max_batch_bytes=350)
    assert [tuple(batch.shape) for batch in loader] == [(3, 100)] * 3 + [(1, 100)]


def test_epochs_of_one_order_have_a_length(unequal: headrace.Store) -> None:
    loader = loader_of(unequal)
    assert len(loader) == len(list(loader)) == len(list(loader))
    left = len(loader)
    for _ in loader:
        left -= 1
        assert loader.remaining_batches == left


def test_each_shuffled_epoch_has_its_own_length(unequal: headrace.Store) -> None:
    loader = loader_of(unequal, shuffle=True, seed=5)
    lengths = []
    for epoch in range(6):
        assert loader.epoch == epoch
        lengths.append(len(loader))
        taken = 0
        for _ in loader:
            taken += 1
            assert loader.remaining_batches == lengths[-1] - taken
        assert taken == lengths[-1]
    assert len(set(lengths)) > 1


def test_an_epoch_is_counted_once_however_often_it_is_asked(
    unequal: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    step_count = CostSteps.step_count

    def counting(self: CostSteps, spot: Spot) -> int:
        counted.append(spot.position)
        return step_count(self, spot)

    monkeypatch.setattr(CostSteps, "step_count", counting)
    loader = loader_of(unequal, shuffle=True, seed=5)
    length = left = len(loader)
    for _ in loader:
        left -= 1
        assert (len(loader), loader.remaining_batches) == (length, left)
    assert counted == [0]


def test_a_loop_that_asks_for_the_length_once_is_warned(unequal: headrace.Store) -> None:
    loader = loader_of(unequal, shuffle=True, seed=5)
    length = len(loader)
    longer = next(e for e in range(1, 20) if _length_of_epoch(unequal, e) > length)
    loader.set_epoch(longer)
    it = iter(loader)
    for _ in range(length):
        next(it)
    with pytest.warns(UserWarning, match=f"left after {length} of .* epoch {longer}.*reload_dat"):
        iter(loader)
    list(loader)


def test_a_loop_that_breaks_elsewhere_is_not_warned(unequal: headrace.Store) -> None:
    loader = loader_of(unequal, shuffle=True, seed=5)
    it = iter(loader)
    for _ in range(len(loader) - 1):
        next(it)
    list(loader)


def _length_of_epoch(store: headrace.Store, epoch: int) -> int:
    loader = loader_of(store, shuffle=True, seed=5)
    loader.set_epoch(epoch)
    return len(loader)


def test_an_epoch_that_was_left_is_followed_by_a_whole_one(unequal: headrace.Store) -> None:
    loader = loader_of(unequal, shuffle=True, seed=5)
    next(iter(loader))
    left = loader.remaining_batches
    assert len(list(loader)) == left
    assert loader.epoch == 2


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_ranks_share_the_objects_in_the_same_number_of_steps(
    unequal: headrace.Store, world_size: int, drop_last: bool
) -> None:
    ranks = [
        loader_of(unequal, shuffle=True, rank=rank, world_size=world_size, drop_last=drop_last)
        for rank in range(world_size)
    ]
    batches = [list(loader) for loader in ranks]
    assert {len(own) for own in batches} == {len(ranks[0])}
    seen = [number for own in batches for batch in own for number in numbers(batch)]
    assert len(seen) == len(set(seen))
    if not drop_last:
        assert len(seen) == len(SIZES)


@pytest.mark.parametrize("threads", [0, 2])
def test_an_epoch_goes_on_after_any_batch_also_with_other_ranks(
    unequal: headrace.Store, threads: int
) -> None:
    def make(world_size: int = 1, rank: int = 0) -> Loader:
        return loader_of(
            unequal, shuffle=True, seed=9, rank=rank, world_size=world_size,
            transform_threads=threads,
        )  # fmt: skip

    whole = list(make())
    loader = make()
    taken: list[int] = []
    for at, batch in enumerate(loader):
        taken += numbers(batch)
        state = loader.state_dict()
        resumed = make()
        resumed.load_state_dict(state)
        if at + 1 == len(whole):
            assert resumed.epoch == 1
            break
        assert list(resumed) == whole[at + 1 :]
        pair = [make(2, rank) for rank in range(2)]
        for each in pair:
            each.load_state_dict(state)
            each.set_epoch(0)
        rest = [number for own in pair for batch in own for number in numbers(batch)]
        left_out = len(SIZES) - len(taken) - len(rest)
        assert left_out in (0, 1)
        assert left_out == 0 or len(SIZES) - len(taken) == 1
        assert not set(taken) & set(rest)


def test_several_datasets_share_batches(unequal: headrace.Store) -> None:
    dataset = MapDataset(unequal, number_and_size)
    both = ConcatDataset([Subset(dataset, range(10)), Subset(dataset, range(50, 60))])
    batches = list(Loader(both, max_batch_bytes=LIMIT, collate_fn=list))
    chosen = [*range(10), *range(50, 60)]
    assert [number for batch in batches for number in numbers(batch)] == chosen
    assert all(size_bytes(batch) <= LIMIT or len(batch) == 1 for batch in batches)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_bytes": None}, "give batch_size, .* or max_batch_bytes"),
        ({"max_batch_bytes": 0}, "max_batch_bytes is 0; it must be an integer of at least 1"),
        ({"max_batch_bytes": 1.5}, "max_batch_bytes is 1.5"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_limits_that_cannot_work_are_refused(
    unequal: headrace.Store, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        loader_of(unequal, **options)


def test_unknown_sizes_are_refused_with_the_remedy(unequal: headrace.Store) -> None:
    table = {"url": [unequal.url_of("0001"), unequal.url_of("0002")]}
    with pytest.raises(headrace.InvalidArgumentError, match=r"needs the sizes.*check=True"):
        Loader(MapDataset.from_table(table), max_batch_bytes=LIMIT)
    checked = MapDataset.from_table(table, check=True)
    assert len(Loader(checked, max_batch_bytes=10_000)) == 1


def test_the_limits_are_told(unequal: headrace.Store) -> None:
    loader = loader_of(unequal)
    assert (loader.batch_size, loader.max_batch_bytes) == (None, LIMIT)
    assert f"max_batch_bytes={LIMIT}, rank 0 of 1" in repr(loader)
