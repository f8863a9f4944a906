"""Samplers: those of torch and of others in `Loader`, and draws by weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import headrace
from headrace.torch import CostBatchSampler, Loader, MapDataset, WeightedSampler
from testing.faultserver.client import FaultServer
from tests.torch.conftest import fill, fill_folder, reads

COUNT = 60
# torchdata 0.11 calls what torch 2.14 deprecates.
torchdata_of_today = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> MapDataset:
    """Objects whose items are their numbers."""
    store = fill_folder(tmp_path_factory.mktemp("objects"), COUNT)
    return MapDataset(store, lambda sample: sample.index)


def loader_of(dataset: MapDataset, sampler: Any, batch_size: int = 4, **options: Any) -> Loader:
    return Loader(dataset, batch_size, sampler=sampler, collate_fn=list, **options)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch]


class Steps(Sampler[int]):
    """A sampler of another order in each epoch, which says how often it was asked."""

    def __init__(self) -> None:
        self.epoch = 0
        self.asked: Counter[int] = Counter()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.asked[self.epoch] += 1
        return iter([(7 * i + self.epoch) % COUNT for i in range(COUNT)])

    def __len__(self) -> int:
        return COUNT


# ---- somebody else's


def test_the_samplers_order_is_that_of_the_batches(dataset: MapDataset) -> None:
    sampler = Steps()
    loader = loader_of(dataset, sampler)
    for epoch in range(3):
        assert loader.epoch == epoch
        sampler.epoch = epoch
        expected = list(sampler)
        assert len(loader) == 15
        assert numbers(loader) == expected


def test_a_list_is_a_sampler_and_may_repeat_numbers(dataset: MapDataset) -> None:
    loader = loader_of(dataset, [5, 5, -1, 3, np.int64(2)], 2)
    assert list(loader) == [[5, 5], [COUNT - 1, 3], [2]]
    assert list(loader_of(dataset, [5, 5, 3], 2, drop_last=True)) == [[5, 5]]


def test_numbers_are_read_once_for_each_time_they_come(server: FaultServer) -> None:
    store = fill(server, 4)
    loader = Loader(MapDataset(store), 2, sampler=[1, 1, 3])
    assert sum(len(batch) for batch in loader) == 3
    assert reads(server) == {"data/0001": 2, "data/0003": 1}


@pytest.mark.parametrize("done", [1, 7, 14])
def test_a_sampler_without_a_state_is_passed_over(dataset: MapDataset, done: int) -> None:
    loader = loader_of(dataset, Steps())
    list(loader)  # epoch 0
    expected = list(loader_of(dataset, Steps()))  # epoch 0
    loader.set_epoch(0)
    iterator = iter(loader)
    assert list(islice(iterator, done)) == expected[:done]
    sampler = Steps()
    resumed = loader_of(dataset, sampler)
    resumed.load_state_dict(loader.state_dict())
    assert resumed.remaining_batches == 15 - done
    assert list(resumed) == expected[done:]
    assert sampler.asked == {0: 1}
    assert resumed.epoch == 1
    # Another batch size goes on at the same sample.
    other = loader_of(dataset, Steps(), 7)
    other.load_state_dict(loader.state_dict())
    assert numbers(other) == numbers(expected[done:])


def test_an_order_that_nobody_can_repeat_is_refused(dataset: MapDataset) -> None:
    loader = loader_of(dataset, RandomSampler(range(COUNT)))
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(headrace.InvalidArgumentError, match="RandomSampler yields another order"):
        next(iter(_loaded(loader_of(dataset, RandomSampler(range(COUNT))), state)))
    with pytest.raises(headrace.InvalidArgumentError, match="ended after 3 samples"):
        next(iter(_loaded(loader_of(dataset, RandomSampler(range(3))), state)))


def test_a_seeded_generator_repeats_its_order(dataset: MapDataset) -> None:
    def make() -> Loader:
        return loader_of(dataset, RandomSampler(range(COUNT), generator=seeded(5)))

    whole = list(make())
    loader = make()
    list(islice(iter(loader), 5))
    assert list(_loaded(make(), loader.state_dict())) == whole[5:]


@torchdata_of_today
def test_a_sampler_with_a_state_gets_it_back(dataset: MapDataset) -> None:
    from torchdata.stateful_dataloader.sampler import RandomSampler as OfTorchdata
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    def distributed() -> Any:
        return StatefulDistributedSampler(range(COUNT), 2, 1, seed=3)  # type: ignore[arg-type]

    def random() -> Any:
        return OfTorchdata(range(COUNT), generator=seeded(3))

    for kind in (distributed, random):
        whole = list(loader_of(dataset, kind()))
        loader = loader_of(dataset, kind())
        iterator = iter(loader)
        for done in range(1, len(whole)):
            next(iterator)
            state = loader.state_dict()
            assert {"sampler", "iterator"} & state["sampler"].keys()
            other = kind() if kind is distributed else OfTorchdata(range(COUNT))
            assert list(_loaded(loader_of(dataset, other), state)) == whole[done:]


class Drawing(Sampler[int]):
    """A sampler whose order depends on all that it has drawn before, in earlier epochs, too."""

    def __init__(self) -> None:
        self.generator = seeded(3)
        self.loaded = 0

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(COUNT, generator=self.generator).tolist())

    def __len__(self) -> int:
        return COUNT

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded += 1
        self.generator.set_state(state["generator"])


@torchdata_of_today
@pytest.mark.parametrize("kind", ["of its own", "of its iterator", "of its place"])
@pytest.mark.parametrize("names_epochs", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_samplers_state_survives_the_end_of_an_epoch(
    dataset: MapDataset, kind: str, names_epochs: bool, drop_last: bool
) -> None:
    from torchdata.stateful_dataloader.sampler import RandomSampler as OfTorchdata
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    def make(seed: int) -> Loader:
        if kind == "of its own":
            sampler: Any = Drawing()
            sampler.generator = seeded(seed)
        elif kind == "of its iterator":
            sampler = OfTorchdata(range(COUNT), generator=seeded(seed))
        else:
            sampler = StatefulDistributedSampler(range(COUNT), 1, 0)  # type: ignore[arg-type]
        return loader_of(dataset, sampler, 7, drop_last=drop_last)

    def epoch_of(loader: Loader, epoch: int) -> list[Any]:
        if names_epochs:
            loader.set_epoch(epoch)
        return list(loader)

    loader = make(3)
    epochs, states = [], []
    for epoch in range(4):
        epochs.append(epoch_of(loader, epoch))
        states.append(loader.state_dict())
    assert all(len(numbers(each)) == COUNT - COUNT % 7 * drop_last for each in epochs)
    assert len({tuple(numbers(each)) for each in epochs}) == 4
    for epoch in range(3):
        resumed = _loaded(make(4), states[epoch])
        # The epoch that has ended has nothing left, and what comes then is as before.
        assert not names_epochs or epoch_of(resumed, epoch) == []
        assert [epoch_of(resumed, each) for each in range(epoch + 1, 4)] == epochs[epoch + 1 :]


def test_a_sampler_that_goes_on_by_itself_gets_no_state(dataset: MapDataset) -> None:
    sampler = Drawing()
    loader = loader_of(dataset, sampler)
    for _ in range(3):
        list(loader)
    assert sampler.loaded == 0
    # Who changes it between epochs has the last word.
    sampler.generator = seeded(3)
    assert numbers(loader) == torch.randperm(COUNT, generator=seeded(3)).tolist()


def test_a_samplers_numbers_are_this_ranks_own(dataset: MapDataset) -> None:
    def make(rank: int) -> Loader:
        sampler = DistributedSampler(range(COUNT), 2, rank, seed=1)  # type: ignore[arg-type]
        return loader_of(dataset, sampler, rank=rank, world_size=2)

    whole = [list(make(rank)) for rank in range(2)]
    assert sorted(numbers(whole[0] + whole[1])) == list(range(COUNT))
    loader = make(0)
    list(islice(iter(loader), 3))
    # The state of one rank serves all.
    for rank in range(2):
        assert list(_loaded(make(rank), loader.state_dict())) == whole[rank][3:]


def _loaded(loader: Loader, state: dict[str, Any]) -> Loader:
    loader.load_state_dict(state)
    return loader


def test_any_batch_sampler_makes_the_batches(dataset: MapDataset) -> None:
    def make() -> Loader:
        inner = SubsetRandomSampler(range(20), generator=seeded(2))
        batches = TorchBatchSampler(inner, 3, drop_last=False)
        return Loader(dataset, batch_sampler=batches, collate_fn=list)

    loader = make()
    whole = list(loader)
    assert sorted(numbers(whole)) == list(range(20))
    assert [len(batch) for batch in whole] == [3, 3, 3, 3, 3, 3, 2]
    assert len(loader) == 7
    loader = make()
    list(islice(iter(loader), 4))
    resumed = _loaded(make(), loader.state_dict())
    assert resumed.remaining_batches == 3
    assert list(resumed) == whole[4:]


def test_the_epoch_is_told_to_the_sampler_in_a_batch_sampler(dataset: MapDataset) -> None:
    batches = TorchBatchSampler(Steps(), 10, drop_last=False)
    loader = Loader(dataset, batch_sampler=batches, collate_fn=list)
    loader.set_epoch(4)
    assert next(iter(loader))[0] == 4


def test_a_sampler_without_a_length_gives_none(dataset: MapDataset) -> None:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            return iter(range(10))

    loader = loader_of(dataset, Endless())
    assert numbers(loader) == list(range(10))
    with pytest.raises(TypeError, match="has no len"):
        len(loader)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ([0, COUNT], f"the sampler yielded {COUNT}; the dataset has the numbers 0 to {COUNT - 1}"),
        ([-COUNT - 1], "the sampler yielded -61"),
        ([0.5], "the sampler yielded 0.5"),
        (["a"], "the sampler yielded 'a'"),
    ],
)
def test_numbers_that_are_none_are_refused(dataset: MapDataset, sampler: Any, message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        list(loader_of(dataset, sampler))


def test_arguments_that_contradict_a_sampler_are_refused(dataset: MapDataset) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"sampler": [1], "shuffle": True}, "sampler says the order: leave out shuffle"),
        ({"sampler": iter([1])}, "sampler is an iterator, which has one epoch alone"),
        ({"sampler": 3}, "sampler is a int; it must be iterable"),
        ({"sampler": [1], "max_batch_bytes": 9}, "max_batch_bytes works with a WeightedSampler"),
        ({"batch_sampler": [[1]]}, "batch_sampler makes the batches: leave out batch_size"),
    ]
    for options, message in cases:
        with pytest.raises(headrace.InvalidArgumentError, match=message):
            Loader(dataset, 2, **options)
    with pytest.raises(headrace.InvalidArgumentError, match="yielded an empty batch"):
        list(Loader(dataset, batch_sampler=[[1], []]))


def test_a_state_is_for_the_kind_of_sampler_it_came_from(dataset: MapDataset) -> None:
    loader = loader_of(dataset, Steps())
    next(iter(loader))
    with pytest.raises(headrace.InvalidArgumentError, match="the order of a Steps, but here it is"):
        Loader(dataset, 4).load_state_dict(loader.state_dict())
    plain = Loader(dataset, 4)
    next(iter(plain))
    with pytest.raises(headrace.InvalidArgumentError, match="each object once per epoch, but here"):
        loader.load_state_dict(plain.state_dict())


def test_an_error_of_a_sampler_comes_after_the_batches_before_it(dataset: MapDataset) -> None:
    class Failing:
        def __iter__(self) -> Iterator[int]:
            yield from range(10)
            raise OSError("the list of numbers ends here")

    loader = loader_of(dataset, Failing())
    iterator = iter(loader)
    assert next(iterator) == list(range(4))
    with pytest.raises(OSError, match="ends here"):
        next(iterator)


# ---- draws by weights


def weights() -> list[float]:
    return [float(i % 4) for i in range(COUNT)]


def test_draws_are_in_proportion_to_the_weights() -> None:
    draws = Counter(WeightedSampler(COUNT, weights(), 60_000, seed=1))
    for index, weight in enumerate(weights()):
        expected = weight / sum(weights()) * 60_000
        assert abs(draws[index] - expected) <= 6 * math.sqrt(expected)
    assert all(draws[index] == 0 for index in range(0, COUNT, 4))
    theirs = Counter(WeightedRandomSampler(weights(), 60_000, generator=seeded(1)))
    assert theirs.keys() == draws.keys()


def test_weights_may_be_any_numbers_or_a_column(dataset: MapDataset) -> None:
    expected = list(WeightedSampler(COUNT, weights(), 100, seed=3))
    kinds: list[Any] = [np.array(weights()), torch.tensor(weights()), [int(w) for w in weights()]]
    for kind in kinds:
        assert list(WeightedSampler(dataset, kind, 100, seed=3)) == expected
    index = dataset.objects.with_columns({"weight": weights()})
    assert list(WeightedSampler(index, "weight", 100, seed=3)) == expected


@pytest.mark.parametrize("world_size", [1, 2, 7])
def test_ranks_take_draws_in_turn_and_resume_as_other_ranks(world_size: int) -> None:
    whole = list(WeightedSampler(COUNT, weights(), 100))

    def make(rank: int, world_size: int = world_size) -> WeightedSampler:
        return WeightedSampler(COUNT, weights(), 100, rank=rank, world_size=world_size)

    ranks = [list(make(rank)) for rank in range(world_size)]
    steps = 100 // world_size
    assert [len(own) for own in ranks] == [steps] * world_size == [len(make(0))] * world_size
    in_turn = [draw for step in zip(*ranks, strict=True) for draw in step]
    assert in_turn == whole[: steps * world_size]
    sampler = make(world_size - 1)
    list(islice(iter(sampler), 9))
    state = sampler.state_dict()
    rest = []
    for rank in range(3):
        other = make(rank, 3)
        other.load_state_dict(state)
        rest.append(list(other))
    done = 9 * world_size
    together = [draw for step in zip(*rest, strict=True) for draw in step]
    assert together == whole[done : done + len(together)]
    assert 100 - done - len(together) < 3


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("done", [3, 30])
def test_draws_that_wait_in_bands_come_first_in_a_sampler_without_bands(
    world_size: int, done: int
) -> None:
    costs = [i % 6 for i in range(COUNT)]

    def draws(rank: int = 0, world_size: int = 1) -> WeightedSampler:
        return WeightedSampler(COUNT, weights(), 200, seed=4, rank=rank, world_size=world_size)

    whole = list(draws())
    banded = CostBatchSampler(
        COUNT, cost=costs, max_batch_size=5, cost_boundaries=[1, 2, 4], sampler=draws()
    )
    before = numbers(islice(iter(banded), done))
    state = banded.state_dict()
    waiting = state["waiting"]
    assert waiting
    ranks = []
    for rank in range(world_size):
        other = draws(rank, world_size)
        other.load_state_dict(state)
        ranks.append(list(other))
    assert len({len(own) for own in ranks}) == 1
    rest = [draw for step in zip(*ranks, strict=True) for draw in step]
    expected = [whole[at] for at in waiting] + whole[state["position"] :]
    assert rest == expected[: len(expected) // world_size * world_size]
    assert Counter(before + expected) == Counter(whole)
    # Its own states lead to the same draws, among those that waited and behind them.
    for taken in (1, len(waiting), len(waiting) + 2):
        sampler = draws()
        sampler.load_state_dict(state)
        list(islice(iter(sampler), taken))
        again = draws()
        again.load_state_dict(sampler.state_dict())
        assert list(again) == expected[taken:]


def test_a_loader_draws_by_weights_and_resumes(dataset: MapDataset) -> None:
    def sampler(**options: Any) -> WeightedSampler:
        return WeightedSampler(dataset, weights(), 50, seed=9, **options)

    loader = loader_of(dataset, sampler())
    whole = list(loader)
    assert numbers(whole) == list(sampler())
    assert [len(batch) for batch in whole] == [4] * 12 + [2]
    assert loader.epoch == 1
    assert numbers(loader) != numbers(whole)
    loader.set_epoch(0)
    list(islice(iter(loader), 5))
    state = loader.state_dict()
    assert numbers(_loaded(loader_of(dataset, sampler(), 7), state)) == numbers(whole[5:])
    pair = [
        list(_loaded(loader_of(dataset, sampler(rank=rank, world_size=2)), state))
        for rank in range(2)
    ]
    steps = [draw for step in zip(*pair, strict=True) for batch in step for draw in batch]
    assert steps == numbers(whole[5:])


def test_weighted_draws_are_batched_by_cost(dataset: MapDataset) -> None:
    costs = [i % 5 + 1 for i in range(COUNT)]
    draws = WeightedSampler(dataset, weights(), 200, seed=4)
    sampler = CostBatchSampler(dataset, cost=costs, max_batch_cost=12, sampler=draws)
    batches = list(sampler)
    assert numbers(batches) == list(WeightedSampler(dataset, weights(), 200, seed=4))
    assert all(sum(costs[i] for i in batch) <= 12 for batch in batches)
    assert list(Loader(dataset, batch_sampler=sampler, collate_fn=list)) == batches
    assert numbers(Loader(dataset, max_batch_bytes=450, sampler=draws, collate_fn=list)) == numbers(
        batches
    )


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return index


@torchdata_of_today
@pytest.mark.parametrize("workers", [0, 2])
def test_dataloaders_take_it(workers: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make(kind: Any) -> Any:
        sampler = WeightedSampler(COUNT, weights(), 50, seed=2)
        return kind(Numbers(), batch_size=4, sampler=sampler, num_workers=workers)

    whole = [batch.tolist() for batch in make(DataLoader)]
    assert numbers(whole) == list(WeightedSampler(COUNT, weights(), 50, seed=2))
    loader = make(StatefulDataLoader)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = loader.state_dict()
    del iterator
    resumed = make(StatefulDataLoader)
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == whole[5:]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, -1, 1], "weight 1 is -1"),
        ([1, 1, math.nan], "weight 2 is nan"),
        ([0, 0, 0], "all weights are 0"),
        ([1, 1], r"weights has the shape \(2,\), and there are 3 samples"),
        ("weight", "weights is the column 'weight', but data is only a number"),
        ((lambda i: i), "weights is a function"),
    ],
)
def test_weights_that_are_none_are_refused(given: Any, message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        WeightedSampler(3, given)


@pytest.mark.parametrize(
    "options", [{"world_size": 2}, {"rank": 0}, {"rank": 0, "world_size": 1}, {"seed": 1}]
)
def test_a_batch_sampler_takes_ranks_and_seed_of_its_sampler(options: dict[str, Any]) -> None:
    draws = WeightedSampler(3, [1, 2, 3], rank=1, world_size=2)
    with pytest.raises(headrace.InvalidArgumentError, match="has a seed and ranks of its own"):
        CostBatchSampler(3, max_batch_size=2, sampler=draws, **options)
    batches = CostBatchSampler(3, max_batch_size=1, sampler=draws)
    assert len(list(batches)) == 1  # of three draws by two ranks


def test_a_state_of_other_weights_is_refused() -> None:
    sampler = WeightedSampler(3, [1, 2, 3])
    next(iter(sampler))
    with pytest.raises(headrace.InvalidArgumentError, match="3 draws by weights of the hash"):
        WeightedSampler(3, [1, 2, 4]).load_state_dict(sampler.state_dict())
    with pytest.raises(headrace.InvalidArgumentError, match="num_samples is 0"):
        WeightedSampler(3, [1, 2, 4], 0)
