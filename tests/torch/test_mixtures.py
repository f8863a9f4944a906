"""Several datasets in fixed shares."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader

import headrace
from headrace.torch import BatchSampler, Loader, MapDataset, MixtureSampler
from tests.torch.conftest import fill_folder
from tests.torch.test_samplers import _loaded, numbers, torchdata_of_today

SIZES = [30, 10, 5]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> ConcatDataset[Any]:
    """Three datasets whose items are the numbers that a mixture has for them."""
    datasets = []
    for i, size in enumerate(SIZES):
        store = fill_folder(tmp_path_factory.mktemp("objects"), size)
        first = sum(SIZES[:i])
        datasets.append(MapDataset(store, lambda sample, first=first: first + sample.index))
    return ConcatDataset(datasets)


def source_of(number: int) -> int:
    return 0 if number < 30 else 1 if number < 40 else 2


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    data=st.data(),
    count=st.integers(1, 300),
    shuffle=st.booleans(),
)
def test_each_dataset_has_its_share_at_any_time_and_each_sample_once_in_a_pass(
    sizes: list[int], data: st.DataObject, count: int, shuffle: bool
) -> None:
    weights = data.draw(
        st.lists(st.integers(1, 50), min_size=len(sizes), max_size=len(sizes)), "weights"
    )
    sampler = MixtureSampler(sizes, weights, count, shuffle=shuffle, seed=3)
    # Epochs are one sequence.
    drawn = [number for _ in range(3) for number in sampler]
    assert len(drawn) == 3 * count
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    seen: list[list[int]] = [[] for _ in sizes]
    for time, number in enumerate(drawn, start=1):
        source = max(i for i, begin in enumerate(begins) if begin <= number)
        seen[source].append(number - begins[source])
        for i, weight in enumerate(weights):
            assert abs(len(seen[i]) - weight / sum(weights) * time) < 1
    for size, ours in zip(sizes, seen, strict=True):
        for begin in range(0, len(ours), size):
            one_pass = ours[begin : begin + size]
            assert len(set(one_pass)) == len(one_pass)
            if not shuffle:
                assert one_pass == list(range(len(one_pass)))


def test_a_loader_mixes_and_resumes_with_other_ranks_and_batches(both: ConcatDataset[Any]) -> None:
    def loader(batch_size: int, rank: int = 0, world_size: int = 1) -> Loader:
        sampler = MixtureSampler(both, [3, 1, 1], 100, seed=5, rank=rank, world_size=world_size)
        return Loader(both, batch_size, sampler=sampler, collate_fn=list)

    whole = numbers(loader(7))
    assert Counter(map(source_of, whole)) == {0: 60, 1: 20, 2: 20}
    rng = random.Random(1)
    for _ in range(100):
        first = loader(rng.randint(1, 9))
        taken = numbers(islice(iter(first), rng.randint(0, 8)))
        assert taken == whole[: len(taken)]
        state, world_size = first.state_dict(), rng.randint(1, 4)
        size = rng.randint(1, 9)
        parts = [list(_loaded(loader(size, rank, world_size), state)) for rank in range(world_size)]
        rest = [number for step in zip(*parts, strict=True) for part in step for number in part]
        # Of the last samples, fewer than there are ranks may be left out.
        assert rest == whole[len(taken) : len(taken) + len(rest)]
        assert len(taken) + len(rest) > 100 - world_size


def test_the_next_epoch_continues_where_one_has_ended(both: ConcatDataset[Any]) -> None:
    sampler = MixtureSampler(both, [3, 1, 1], 25, seed=5)
    loader = Loader(both, 5, sampler=sampler, collate_fn=list)
    epochs = [numbers(loader) for _ in range(4)]
    assert numbers(epochs) == list(MixtureSampler(both, [3, 1, 1], 100, seed=5))
    # 15 of the first dataset's 30 an epoch: two epochs are a pass.
    of_first = [number for number in epochs[0] + epochs[1] if number < 30]
    assert sorted(of_first) == list(range(30))


def test_a_dataloader_and_batches_by_cost_take_it(both: ConcatDataset[Any]) -> None:
    def sampler() -> MixtureSampler:
        return MixtureSampler(both, [1, 1, 2], seed=9)

    plain = list(sampler())
    assert len(plain) == len(both)
    loader: Any = DataLoader(both, batch_size=4, sampler=sampler(), collate_fn=list)
    assert numbers(loader) == plain
    costs = [i % 4 + 1 for i in range(len(both))]
    batches = list(BatchSampler(both, cost=costs, max_batch_cost=10, sampler=sampler()))
    assert numbers(batches) == plain
    assert all(sum(costs[i] for i in batch) <= 10 for batch in batches)


@torchdata_of_today
def test_a_stateful_dataloader_resumes_it() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make() -> Any:
        sampler = MixtureSampler([5, 6], [1, 4], 40, seed=1)
        return StatefulDataLoader(range(11), batch_size=3, sampler=sampler)  # type: ignore[arg-type]

    whole = [batch.tolist() for batch in make()]
    loader = make()
    list(islice(iter(loader), 4))
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert [batch.tolist() for batch in resumed] == whole[4:]


def test_a_state_is_only_for_the_same_mixture() -> None:
    sampler = MixtureSampler([5, 6], [1, 4], 40)
    list(islice(sampler, 3))
    state = sampler.state_dict()
    MixtureSampler([5, 6], [0.2, 0.8], 40).load_state_dict(state)
    for other in (
        MixtureSampler([5, 6], [1, 3], 40),
        MixtureSampler([5, 6], [1, 4], 41),
        MixtureSampler([5, 6], [1, 4], 40, shuffle=False),
        MixtureSampler([5, 6], [1, 4], 40, seed=1),
        MixtureSampler([6, 5], [1, 4], 40),
        MixtureSampler([11], [1], 40),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match="the state "):
            other.load_state_dict(state)


@pytest.mark.parametrize(
    ("data", "weights", "message"),
    [
        ([3, 0], [1, 1], "dataset 1 has no samples"),
        ([], [], "no datasets to mix"),
        ([3, 4], [1], r"weights is \[1\], and there are 2 datasets"),
        ([3, 4], "ab", "weights is 'ab'"),
        ([3, 4], [1, "x"], "weights is a list; it must be numbers"),
        ([3, 4], [1, 0], "weight 1 is 0"),
        ([3, 4], [1, -1], "weight 1 is -1"),
        ([3, 4], [1, math.nan], "weight 1 is nan"),
        ([3, 4], [1, math.inf], "weight 1 is inf"),
        ([3, 4.5], [1, 1], r"data\[1\] is 4.5"),
        (7, [1], "data is a int"),
        ([[1, 2], [3]], [1, 1], r"has a list where a number .* one torch.utils.data.ConcatDataset"),
        ([1 << 62, 1 << 62], [1, 1], "2\\^63"),
        ([1] * 5000, [1] * 5000, "1 to 4096 sources"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(data: Any, weights: Any, message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        MixtureSampler(data, weights)
    with pytest.raises(headrace.InvalidArgumentError, match="num_samples is 0"):
        MixtureSampler([3], [1], 0)


def test_a_mixture_of_other_data_than_the_loaders_is_refused(both: ConcatDataset[Any]) -> None:
    with pytest.raises(
        headrace.InvalidArgumentError, match="is of 44 samples, and the dataset has 45"
    ):
        Loader(both, 4, sampler=MixtureSampler([44], [1]))
