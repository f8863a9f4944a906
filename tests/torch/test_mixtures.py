"""Several datasets in fixed shares."""

from __future__ import annotations

import copy
import math
import pickle
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler, Subset

import headrace
from headrace.torch import CostBatchSampler, Loader, MapDataset, ShardStream, WeightedSampler, mix
from tests.torch.conftest import fill_folder
from tests.torch.test_samplers import _loaded, numbers

SIZES = [30, 10, 5]


class Numbered:
    """Makes of each object the number that a mixture has for it."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __call__(self, sample: headrace.Sample) -> int:
        return self.first + sample.index


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[MapDataset[int]]:
    stores = [fill_folder(tmp_path_factory.mktemp("objects"), size) for size in SIZES]
    firsts = [sum(SIZES[:i]) for i in range(len(SIZES))]
    return [MapDataset(store, Numbered(first)) for store, first in zip(stores, firsts, strict=True)]


def source_of(number: int) -> int:
    return 0 if number < 30 else 1 if number < 40 else 2


def listed(sizes: list[int]) -> list[Any]:
    """Datasets of numbers, which go on from one to the next."""
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    return [[*range(begin, begin + size)] for begin, size in zip(begins, sizes, strict=True)]


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
    mixture = mix(listed(sizes), weights, count)
    shares = mixture.shares(shuffle=shuffle)
    # Epochs are one sequence.
    drawn = [number for epoch in range(3) for number in shares.order(3, epoch).indices(0, count)]
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
    if not shuffle:
        items = []
        for epoch in range(3):
            mixture.set_epoch(epoch)
            assert len(mixture) == count
            items += list(mixture)
        assert items == drawn


def test_a_loader_mixes_and_resumes_with_other_ranks_and_batches(parts: list[Any]) -> None:
    def loader(batch_size: int, rank: int = 0, world_size: int = 1) -> Loader[list[int]]:
        mixture = mix(parts, [3, 1, 1], 100)
        ranks = {"rank": rank, "world_size": world_size}
        return Loader(mixture, batch_size, shuffle=True, seed=5, collate_fn=list, **ranks)

    whole = numbers(loader(7))
    assert Counter(map(source_of, whole)) == {0: 60, 1: 20, 2: 20}
    rng = random.Random(1)
    for _ in range(100):
        first = loader(rng.randint(1, 9))
        taken = numbers(islice(iter(first), rng.randint(0, 8)))
        assert taken == whole[: len(taken)]
        state, world_size = first.state_dict(), rng.randint(1, 4)
        size = rng.randint(1, 9)
        shares = [
            list(_loaded(loader(size, rank, world_size), state)) for rank in range(world_size)
        ]
        rest = [number for step in zip(*shares, strict=True) for part in step for number in part]
        # Of the last samples, fewer than there are ranks may be left out.
        assert rest == whole[len(taken) : len(taken) + len(rest)]
        assert len(taken) + len(rest) > 100 - world_size


def test_the_next_epoch_continues_where_one_has_ended(parts: list[Any]) -> None:
    def epochs(count: int, number: int) -> list[int]:
        loader = Loader(mix(parts, [3, 1, 1], count), 5, shuffle=True, seed=5, collate_fn=list)
        return numbers([numbers(loader) for _ in range(number)])

    drawn = epochs(25, 4)
    assert drawn == epochs(100, 1)
    # 15 of the first dataset's 30 an epoch: two epochs are a pass.
    assert sorted(number for number in drawn[:50] if number < 30) == list(range(30))


def test_without_shuffle_each_dataset_comes_in_its_own_order(parts: list[Any]) -> None:
    mixture = mix(parts, [2, 1, 1])
    drawn = numbers(Loader(mixture, 4, collate_fn=list))
    assert len(drawn) == len(mixture) == 45
    assert [number for number in drawn if number < 30] == list(range(23))
    assert drawn == list(mixture) == [mixture[i] for i in range(45)]
    assert mixture[-1] == drawn[-1]
    with pytest.raises(IndexError, match="index 45 is out of range"):
        mixture[45]


def test_batches_by_bytes_and_by_cost_are_made_of_it(parts: list[Any]) -> None:
    mixture = mix(parts, [1, 1, 2])
    plain = numbers(Loader(mixture, 7, shuffle=True, seed=9, collate_fn=list))
    by_bytes = Loader(mixture, max_batch_bytes=25, shuffle=True, seed=9, collate_fn=list)
    assert numbers(by_bytes) == plain
    costs = [i % 4 + 1 for i in range(45)]
    batches = CostBatchSampler(mixture, cost=costs, max_batch_cost=10, shuffle=True, seed=9)
    found = list(Loader(mixture, batch_sampler=batches, collate_fn=list))
    assert numbers(found) == plain
    assert len(batches) == len(found)
    assert all(sum(costs[i] for i in batch) <= 10 for batch in found)
    with pytest.raises(headrace.InvalidArgumentError, match=r"for Loader\(mixture, batch_sampler"):
        list(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_dataloader_has_the_shares_of_each_epoch(parts: list[Any], workers: int) -> None:
    mixture = mix(parts, [3, 1, 1], 25)
    loader = DataLoader(
        mixture, 5, collate_fn=list, num_workers=workers, persistent_workers=workers > 0
    )
    drawn = []
    for epoch in range(4):
        mixture.set_epoch(epoch)
        drawn += numbers(loader)
    assert drawn == numbers(Loader(mix(parts, [3, 1, 1], 100), 5, collate_fn=list))
    shuffled: Any = DataLoader(mixture, 5, shuffle=True, collate_fn=list)
    assert sorted(numbers(shuffled)) == sorted(drawn[-25:])
    ranks = [DistributedSampler(mixture, 2, rank, shuffle=False) for rank in range(2)]
    assert [drawn[75 + i] for i in ranks[1]] == [mixture[i] for i in ranks[1]]


def test_an_epoch_reaches_datasets_that_torch_has_combined(parts: list[Any]) -> None:
    both = ConcatDataset([Subset(parts[0], range(10)), parts[1]])
    mix([both, parts[2]], [1, 1]).set_epoch(3)
    assert [part._shared.epoch for part in parts] == [3, 3, 3]


def test_any_datasets_of_torch_can_be_mixed_for_its_dataloader() -> None:
    class Squares(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return index**2

    mixture = mix([Squares(), Subset([10, 20, 30], [2, 0])], [1, 1], 6)
    assert [*mixture] == [0, 30, 1, 10, 4, 30]
    with pytest.raises(headrace.InvalidArgumentError, match="torch's DataLoader takes any"):
        Loader(mixture, 2)


def test_a_state_is_only_for_the_same_mixture(parts: list[Any]) -> None:
    def loader(datasets: list[Any], weights: list[float], count: int, **more: Any) -> Loader[Any]:
        return Loader(
            mix(datasets, weights, count), 3, **{"shuffle": True, "collate_fn": list} | more
        )

    two, other = parts[:2], [parts[1], parts[0]]
    first = loader(two, [1, 4], 40)
    list(islice(first, 3))
    state = first.state_dict()
    loader(two, [0.2, 0.8], 40).load_state_dict(state)
    for changed in (
        loader(two, [1, 3], 40),
        loader(two, [1, 4], 41),
        loader(two, [1, 4], 40, shuffle=False),
        loader(two, [1, 4], 40, seed=1),
        loader(other, [1, 4], 40),
        Loader(ConcatDataset(two), 3, shuffle=True, collate_fn=list),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match="the state "):
            changed.load_state_dict(state)


@pytest.mark.parametrize(
    ("sizes", "weights", "message"),
    [
        ([3, 0], [1, 1], "dataset 1 has no samples"),
        ([], [], "no datasets to mix"),
        ([3, 4], [1], r"weights is \[1\], and there are 2 datasets"),
        ([3, 4], "ab", "weights is 'ab'"),
        ([3, 4], b"ab", "weights is b'ab'.*give a list or an array"),
        ([3, 4], {1: 2, 3: 4}, "weights is {1: 2, 3: 4}.*give a list or an array"),
        ([3, 4], {1, 2}, "weights is {1, 2}.*give a list or an array"),
        ([3, 4], torch.tensor(3.0), "weights is tensor.*give a list or an array"),
        ([3, 4], [1, "x"], "weights is a list; it must be numbers"),
        ([3, 4], [1, 0], "weight 1 is 0"),
        ([3, 4], [1, -1], "weight 1 is -1"),
        ([3, 4], [1, math.nan], "weight 1 is nan"),
        ([3, 4], [1, math.inf], "weight 1 is inf"),
        ([1] * 5000, [1] * 5000, "1 to 4096 sources"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(sizes: list[int], weights: Any, message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        mix(listed(sizes), weights)
    with pytest.raises(headrace.InvalidArgumentError, match="num_samples is 0"):
        mix(listed([3]), [1], 0)
    with pytest.raises(headrace.InvalidArgumentError, match="num_samples is 9223372036854775808"):
        mix(listed([3]), [1], 1 << 63)


def test_what_is_no_dataset_with_numbers_is_refused(parts: list[Any], tmp_path: Path) -> None:
    headrace.Store(tmp_path).write("a.tar", bytes(1024))
    stream = ShardStream(tmp_path)
    for data, message in (
        (7, "datasets is a int; it must be a list"),
        ("ab", "datasets is a str; it must be a list"),
        ([parts[0], 7], "dataset 1 is a int; it must be a dataset with a length"),
        ([stream, parts[0]], "nobody knows how many samples the shards .* have.*headrace index"),
        ([parts[0], mix(parts, [1, 1, 1])], "dataset 1 is a mixture itself"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=message):
            mix(data, [1, 1])  # type: ignore[arg-type]


def test_orders_that_contradict_a_mixture_are_refused(parts: list[Any]) -> None:
    mixture = mix(parts, [1, 1, 1])
    for message, options in (
        ("a mixture says the order: leave out sampler", {"batch_size": 4, "sampler": range(45)}),
        ("single samples of each dataset in turn", {"batch_size": 4, "shuffle": "block"}),
        ("the mixture, which says the order|says the order", {"batch_sampler": [[1], [2]]}),
        ("of other data than", {"batch_sampler": CostBatchSampler(45, max_batch_size=4)}),
        ("of other data than the loader", {
            "batch_sampler": CostBatchSampler(mix(parts, [1, 2, 3]), max_batch_size=4)
        }),
    ):  # fmt: skip
        with pytest.raises(headrace.InvalidArgumentError, match=message):
            Loader(mixture, collate_fn=list, **options)  # type: ignore[call-overload]
    with pytest.raises(headrace.InvalidArgumentError, match="a mixture, which says the order"):
        CostBatchSampler(mixture, max_batch_size=4, sampler=WeightedSampler(45, torch.ones(45)))
    for combined in (ConcatDataset([mixture, parts[0]]), Subset(mixture, [0, 1])):
        with pytest.raises(headrace.InvalidArgumentError, match="its shares would be lost"):
            Loader(combined, 4)


def test_it_is_on_the_face_and_is_copied(parts: list[Any]) -> None:
    assert headrace.mix is mix
    assert "mix" in dir(headrace)
    mixture = mix(parts, [0.5, 0.25, 0.25], 40)
    mixture.set_epoch(2)
    for other in (pickle.loads(pickle.dumps(mixture)), copy.deepcopy(mixture)):
        assert [*other] == [*mixture]
        assert repr(other) == repr(mixture)
    assert repr(mixture).endswith("weights=[0.5, 0.25, 0.25], num_samples=40)")
