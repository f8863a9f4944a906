"""`CostBatchSampler`: batches by what samples cost, dealt to ranks, that can be resumed."""

from __future__ import annotations

import copy
import math
import random
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

import headrace
from headrace.torch import (
    CostBatchSampler,
    Loader,
    MapDataset,
    WeightedSampler,
    mix,
)
from headrace.types import BatchSoFar
from tests.torch.conftest import content
from tests.torchrun import torchrun

Batches = list[list[int]]

# ---- a slow model


@dataclass
class Model:
    """Says in plain Python which batches a sampler makes of an order."""

    costs: Sequence[float]
    max_size: int | None = None
    max_cost: float | None = None
    boundaries: Sequence[float] = ()
    oversized: str = "alone"
    fits: Callable[[list[int], int], bool] | None = None
    skipped: set[int] = field(default_factory=set)

    def batches(self, order: Sequence[int]) -> Batches:
        """Return all batches in the order in which they become full, then the rests."""
        made: Batches = []
        bands: dict[int, list[int]] = {at: [] for at in range(len(self.boundaries) + 1)}
        for index in order:
            cost = self.costs[index]
            if self.max_cost is not None and cost > self.max_cost and self.oversized == "skip":
                self.skipped.add(index)
                continue
            band = bands[bisect_right(self.boundaries, cost)]
            if band and not self._joins(band, index):
                made.append(band.copy())
                band.clear()
            band.append(index)
            if self._is_full(band):
                made.append(band.copy())
                band.clear()
        return made + [band for band in bands.values() if band]

    def _joins(self, band: list[int], index: int) -> bool:
        cost = math.fsum(self.costs[i] for i in [*band, index])
        if self.max_cost is not None and cost > self.max_cost:
            return False
        return self.fits is None or self.fits(band, index)

    def _is_full(self, band: list[int]) -> bool:
        cost = math.fsum(self.costs[i] for i in band)
        return (self.max_cost is not None and cost >= self.max_cost) or (
            self.max_size is not None and len(band) >= self.max_size
        )


costs_of_samples = st.lists(st.integers(0, 12), min_size=1, max_size=70)
limits = st.fixed_dictionaries(
    {"max_size": st.none() | st.integers(1, 6), "max_cost": st.integers(1, 30)}
)
bands = st.lists(st.integers(1, 11), max_size=3, unique=True).map(sorted)


def sampler_of(
    costs: Sequence[float],
    max_cost: float | None,
    max_size: int | None = None,
    boundaries: Sequence[float] = (),
    **options: Any,
) -> CostBatchSampler:
    if max_cost is not None and min(costs) > max_cost:
        max_cost = min(costs)
    return CostBatchSampler(
        len(costs), cost=list(costs), max_batch_cost=max_cost, max_batch_size=max_size,
        cost_boundaries=boundaries or None, **options,
    )  # fmt: skip


def of_all_ranks(make: Callable[[int], CostBatchSampler], world_size: int) -> list[Batches]:
    """Return the batches of all ranks, step by step; they have the same number of steps."""
    samplers = [make(rank) for rank in range(world_size)]
    batches = [list(sampler) for sampler in samplers]
    for sampler, own in zip(samplers, batches, strict=True):
        sampler.set_epoch(0)
        assert len(sampler) == len(own)
    return [list(step) for step in zip(*batches, strict=True)]


@hypothesis.given(costs_of_samples, limits, bands, st.booleans())
def test_one_rank_has_the_batches_of_the_model(
    costs: list[int], limit: dict[str, Any], boundaries: list[int], shuffle: bool
) -> None:
    hypothesis.assume(min(costs) <= limit["max_cost"])
    order = list(headrace._engine.Order(len(costs), 7, 0, shuffle).indices(0, len(costs)))
    model = Model(costs, boundaries=boundaries, **limit)
    sampler = sampler_of(costs, boundaries=boundaries, shuffle=shuffle, seed=7, **limit)
    assert list(sampler) == model.batches(order)
    assert sampler.epoch == 1


@hypothesis.given(costs_of_samples, limits, bands)
def test_oversized_samples_are_skipped_and_named(
    costs: list[int], limit: dict[str, Any], boundaries: list[int]
) -> None:
    hypothesis.assume(min(costs) <= limit["max_cost"])
    model = Model(costs, boundaries=boundaries, oversized="skip", **limit)
    sampler = sampler_of(costs, boundaries=boundaries, oversized="skip", **limit)
    assert list(sampler) == model.batches(range(len(costs)))
    assert sampler.skipped == sorted(model.skipped)


@hypothesis.given(costs_of_samples, limits, bands, st.integers(1, 5))
def test_ranks_take_the_batches_in_turn_and_each_sample_once(
    costs: list[int], limit: dict[str, Any], boundaries: list[int], world_size: int
) -> None:
    def make(rank: int) -> CostBatchSampler:
        return sampler_of(
            costs, boundaries=boundaries, shuffle=True, rank=rank, world_size=world_size, **limit
        )

    steps = of_all_ranks(make, world_size)
    seen = Counter(index for step in steps for batch in step for index in batch)
    assert set(seen.values()) <= {1}
    assert len(costs) - seen.total() < world_size
    alone = [*sampler_of(costs, boundaries=boundaries, shuffle=True, **limit)]
    in_line = [batch for step in steps for batch in step]
    untouched = max(0, (len(steps) - 2) * world_size)  # the last two steps may be cut
    assert in_line[:untouched] == alone[:untouched]
    most = max(limit["max_cost"], min(costs))
    for batch in in_line:
        assert batch
        assert sum(costs[i] for i in batch) <= most or len(batch) == 1
        assert limit["max_size"] is None or len(batch) <= limit["max_size"]
        assert len({bisect_right(boundaries, costs[i]) for i in batch}) == 1


@hypothesis.given(
    costs_of_samples, st.lists(st.tuples(limits, bands, st.integers(1, 4)), min_size=1, max_size=6),
    st.booleans(), st.data(),
)  # fmt: skip
def test_an_epoch_may_go_on_with_any_other_ranks_and_limits(
    costs: list[int],
    chain: list[tuple[dict[str, Any], list[int], int]],
    shuffle: bool,
    data: st.DataObject,
) -> None:
    """After some steps, another number of ranks with other limits goes on from the state."""
    seen: Counter[int] = Counter()
    state = None
    for at, (limit, boundaries, world_size) in enumerate(chain):
        samplers = [
            sampler_of(
                costs, boundaries=boundaries, shuffle=shuffle, seed=3, rank=rank,
                world_size=world_size, **limit,
            )
            for rank in range(world_size)
        ]  # fmt: skip
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(copy.deepcopy(state))
            sampler.set_epoch(0)
        iterators = [iter(sampler) for sampler in samplers]
        is_last = at == len(chain) - 1
        steps = 1000 if is_last else data.draw(st.integers(0, 4))
        for step in islice(zip(*iterators, strict=True), steps):
            for batch in step:
                seen.update(batch)
        states = [sampler.state_dict() for sampler in samplers]
        assert all(each == states[0] for each in states)
        state = states[0]
        if state["epoch"] == 1:
            break
    assert set(seen.values()) <= {1}
    assert len(costs) - seen.total() < world_size


@hypothesis.given(costs_of_samples, limits, bands, st.integers(1, 3), st.data())
def test_a_resumed_sampler_yields_what_was_left(
    costs: list[int],
    limit: dict[str, Any],
    boundaries: list[int],
    world_size: int,
    data: st.DataObject,
) -> None:
    def make(rank: int = 0) -> CostBatchSampler:
        return sampler_of(
            costs, boundaries=boundaries, shuffle=True, rank=rank, world_size=world_size, **limit
        )

    whole = of_all_ranks(make, world_size)
    hypothesis.assume(len(whole) > 0)
    done = data.draw(st.integers(0, len(whole) - 1))
    sampler = make()
    iterator = iter(sampler)
    for _ in range(done):
        next(iterator)
    state = sampler.state_dict()

    def resumed(rank: int) -> list[list[int]]:
        other = make(rank)
        other.load_state_dict(state)
        return list(other)

    left = [list(step) for step in zip(*map(resumed, range(world_size)), strict=True)]
    assert left == whole[done:]


def test_killed_at_100_random_steps_and_resumed_on_other_ranks_and_limits() -> None:
    """Each time, what was yielded before and after are all samples, once."""
    draw = random.Random(11)
    costs = [draw.choice([1, 2, 3, 5, 8, 13, 40]) for _ in range(3000)]

    def make(rank: int, world_size: int, choice: random.Random) -> CostBatchSampler:
        return sampler_of(
            costs,
            choice.choice([40, 64, 200]),
            choice.choice([None, 4, 16]),
            choice.choice([(), (4,), (3, 6, 20)]),
            shuffle=True,
            seed=1,
            rank=rank,
            world_size=world_size,
        )

    for seed in range(100):
        chance = random.Random(seed)
        seen: Counter[int] = Counter()
        state = None
        for is_last in (False, True):
            world_size, rules = chance.randrange(1, 5), chance.randrange(1000)
            samplers = [make(rank, world_size, random.Random(rules)) for rank in range(world_size)]
            for sampler in samplers:
                if state is not None:
                    sampler.load_state_dict(state)
            steps = 10**6 if is_last else chance.randrange(len(samplers[0]))
            for step in islice(zip(*map(iter, samplers), strict=True), steps):
                for batch in step:
                    seen.update(batch)
            state = samplers[-1].state_dict()
        assert set(seen.values()) == {1}
        assert len(costs) - seen.total() < world_size


def test_each_epoch_has_its_own_order_and_an_iterator_begins_the_next() -> None:
    sampler = sampler_of([1] * 50, 7, shuffle=True)
    epochs = [list(sampler) for _ in range(3)]
    assert all(sorted(chain(*batches)) == list(range(50)) for batches in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1]
    next(iter(sampler))  # uses up epoch 2
    assert sampler.epoch == 2
    list(sampler)
    assert sampler.epoch == 4


# ---- limits


def test_both_bytes_and_cost_limit_a_batch() -> None:
    index = headrace.ObjectIndex.from_names(
        [f"{i}" for i in range(6)], root="gs://bucket", sizes_bytes=[10, 10, 10, 95, 5, 5],
        columns={"tokens": [1, 1, 5, 1, 1, 1]},
    )  # fmt: skip
    sampler = CostBatchSampler(index, max_batch_bytes=100, cost="tokens", max_batch_cost=6)
    assert list(sampler) == [[0, 1], [2], [3, 4], [5]]
    assert list(sampler) == list(
        CostBatchSampler(index, max_batch_bytes=100, cost=[1, 1, 5, 1, 1, 1], max_batch_cost=6)
    )


def test_a_cost_may_be_any_kind_of_numbers() -> None:
    costs = [3, 1, 4, 1, 5, 9, 2, 6]
    expected = list(sampler_of(costs, 9))
    kinds: list[Any] = [
        tuple(costs), np.array(costs), np.array(costs, np.float32), torch.tensor(costs),
        array("d", costs), costs.__getitem__, lambda i: np.int64(costs[i]),
    ]  # fmt: skip
    for kind in kinds:
        assert list(CostBatchSampler(8, cost=kind, max_batch_cost=9)) == expected


def test_a_cost_function_is_called_once_for_each_sample() -> None:
    calls: Counter[int] = Counter()

    def cost(index: int) -> int:
        calls[index] += 1
        return index % 5

    sampler = CostBatchSampler(1000, cost=cost, max_batch_cost=10, shuffle=True)
    assert len(sampler) == len(list(sampler))
    list(sampler)
    assert calls == dict.fromkeys(range(1000), 1)


def test_columns_are_found_behind_subsets_and_concatenations(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for i in range(8):
        store.write(f"{i}", content(i, 10))
    index = store.index()
    parts = [
        MapDataset(store, index=index.with_columns({"tokens": [float(i + add) for i in range(8)]}))
        for add in (0, 10)
    ]
    both = ConcatDataset([Subset(parts[0], [3, 1]), parts[1]])
    sampler = CostBatchSampler(both, cost="tokens", max_batch_cost=14)
    # 3 and 1, then 10 to 17.
    assert list(sampler) == [[0, 1, 2], [3], [4], [5], [6], [7], [8], [9]]
    with pytest.raises(headrace.InvalidArgumentError, match="no such column; it has 'tokens'"):
        CostBatchSampler(both, cost="length", max_batch_cost=14)


def test_a_subclass_with_its_own_items_has_sizes_too(tmp_path: Path) -> None:
    class Doubled(MapDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index) * 2

    store = headrace.Store(tmp_path)
    for i in range(4):
        store.write(f"{i}", content(i, 10 * (i + 1)))
    assert list(CostBatchSampler(Doubled(store), max_batch_bytes=30)) == [[0, 1], [2], [3]]


def test_one_limit_may_be_the_number_alone() -> None:
    assert list(CostBatchSampler(TensorDataset(torch.zeros(5)), max_batch_size=2)) == [
        [0, 1],
        [2, 3],
        [4],
    ]


def test_bands_need_no_limit_of_cost() -> None:
    sampler = sampler_of([1, 9, 1, 9, 1], None, 2, [5])
    assert list(sampler) == [[0, 2], [1, 3], [4]]


def test_a_cost_at_a_boundary_belongs_to_the_dearer_ones() -> None:
    assert list(sampler_of([4, 5, 4, 5], None, 2, [5])) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("saturation", "kept"), [(None, 2), (1.0, 2), (0.5, 2), (0.49, 3), (0.0, 3)]
)
def test_with_drop_last_a_rest_is_kept_if_it_is_filled_to_more_than_the_saturation(
    saturation: float | None, kept: int
) -> None:
    sampler = sampler_of([5, 5, 5, 5, 5], 10, drop_last=True, saturation=saturation)
    assert len(list(sampler)) == kept
    assert sampler.epoch == 1


@pytest.mark.parametrize("saturation", [0.0, 0.3, 0.7])
def test_a_place_may_be_one_before_rests_that_are_dropped(saturation: float) -> None:
    costs = random.Random(5).choices(range(1, 20), k=200)
    options: dict[str, Any] = {"drop_last": True, "saturation": saturation, "boundaries": (5, 10)}
    whole = list(sampler_of(costs, 20, **options))
    sampler = sampler_of(costs, 20, **options)
    iterator = iter(sampler)
    for done in range(1, len(whole)):
        next(iterator)
        other = sampler_of(costs, 20, **options)
        other.load_state_dict(sampler.state_dict())
        assert list(other) == whole[done:]


def test_drop_last_leaves_out_batches_too_few_for_a_step() -> None:
    ranks = [
        list(sampler_of([1] * 25, 5, drop_last=True, rank=rank, world_size=2)) for rank in (0, 1)
    ]
    assert ranks == [
        [list(range(5)), list(range(10, 15))], [list(range(5, 10)), list(range(15, 20))]
    ]  # fmt: skip


# ---- the user's function


def test_a_function_says_whether_a_sample_goes_in() -> None:
    lengths = random.Random(2).choices(range(1, 50), k=300)

    def padded(batch: BatchSoFar, index: int) -> bool:
        longest = max(lengths[i] for i in batch.indices)
        assert batch.largest_cost == longest
        assert batch.cost == sum(lengths[i] for i in batch.indices)
        assert len(batch) == len(batch.indices)
        return (len(batch) + 1) * max(longest, lengths[index]) <= 200

    model = Model(lengths, fits=lambda b, i: (len(b) + 1) * max(lengths[j] for j in [*b, i]) <= 200)
    sampler = CostBatchSampler(300, cost=lengths, fits=padded)
    assert list(sampler) == model.batches(range(300))


@hypothesis.given(costs_of_samples, bands, st.integers(1, 3), st.data())
def test_with_a_function_an_epoch_is_resumed_as_well(
    costs: list[int], boundaries: list[int], world_size: int, data: st.DataObject
) -> None:
    def fits(batch: BatchSoFar, index: int) -> bool:
        return (batch.indices[-1] + index) % 3 > 0 and len(batch) < 5

    def make(rank: int = 0) -> CostBatchSampler:
        return sampler_of(
            costs, None, boundaries=boundaries, fits=fits, shuffle=True, rank=rank,
            world_size=world_size,
        )  # fmt: skip

    whole = of_all_ranks(make, world_size)
    hypothesis.assume(len(whole) > 0)
    done = data.draw(st.integers(0, len(whole) - 1))
    sampler = make()
    list(islice(iter(sampler), done))
    state = sampler.state_dict()

    def resumed(rank: int) -> list[list[int]]:
        other = make(rank)
        other.load_state_dict(state)
        return list(other)

    left = [list(step) for step in zip(*map(resumed, range(world_size)), strict=True)]
    assert left == whole[done:]


def test_the_function_is_not_asked_where_the_limits_decide() -> None:
    asked: list[int] = []

    def fits(batch: BatchSoFar, index: int) -> bool:
        asked.append(index)
        return True

    assert list(sampler_of([5, 5, 5, 1, 5], 10, fits=fits)) == [[0, 1], [2, 3], [4]]
    assert set(asked) == {1, 3}


def test_a_batch_is_there_for_one_call_alone() -> None:
    kept: list[BatchSoFar] = []
    list(CostBatchSampler(3, max_batch_size=2, fits=lambda batch, _: kept.append(batch) is None))
    with pytest.raises(headrace.InvalidArgumentError, match="for one call of `fits`"):
        len(kept[0])


def test_an_error_of_the_function_names_the_sample(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for i in range(3):
        store.write(f"{i}", content(i))

    def fits(batch: BatchSoFar, index: int) -> bool:
        raise KeyError(index)

    sampler = CostBatchSampler(MapDataset(store), max_batch_size=2, fits=fits)
    with pytest.raises(KeyError) as raised:
        list(sampler)
    assert any(
        f"fits, asked about sample 1 (file://{tmp_path}/1)" in note
        for note in raised.value.__notes__
    )


# ---- bad input


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([1, math.nan, 1], "the cost of sample 1 is nan; it must be a finite number of at least 0"),
        ([1, 1, -2], "the cost of sample 2 is -2.0"),
        ([math.inf, 1, 1], "the cost of sample 0 is inf"),
        ([1, 1], r"cost has the shape \(2,\), and there are 3 samples"),
        (["a", 1, 1], "cost is a list; it must be numbers"),
        ([1, 10**400, 1], "cost is a list; it must be numbers, one for each .*too large"),
        ("tokens", "cost is the column 'tokens', but data is only a number of samples"),
        (7, "cost is a int; it must be numbers"),
    ],
)
def test_costs_that_are_none_are_refused(cost: Any, message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        CostBatchSampler(3, cost=cost, max_batch_cost=10)


@pytest.mark.parametrize("wrong", [math.nan, -1, math.inf, None, "7a"])
def test_a_function_that_returns_no_cost_is_named(wrong: Any) -> None:
    sampler = CostBatchSampler(9, cost=lambda i: wrong if i == 4 else 1, max_batch_cost=2)
    with pytest.raises(headrace.InvalidArgumentError, match=r"cost of sample 4 is .*finite number"):
        list(sampler)


def test_a_cost_function_that_raises_keeps_its_error() -> None:
    def cost(index: int) -> int:
        raise ValueError("no such row")

    with pytest.raises(ValueError, match=r"no such row \(in cost, asked about sample 0\)"):
        list(CostBatchSampler(9, cost=cost, max_batch_cost=2))


def test_oversized_samples_are_refused_before_the_epoch() -> None:
    with pytest.raises(
        headrace.InvalidArgumentError,
        match=r"sample 2 costs 11: it exceeds max_batch_cost=10 alone\. oversized='alone'",
    ):
        CostBatchSampler(4, cost=[1, 1, 11, 1], max_batch_cost=10, oversized="raise")
    late = CostBatchSampler(4, cost=[1, 1, 11, 1].__getitem__, max_batch_cost=10, oversized="raise")
    with pytest.raises(headrace.InvalidArgumentError, match="sample 2 costs 11"):
        list(late)


def test_skipped_samples_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = headrace.Store(tmp_path)
    for i, size_bytes in enumerate([10, 90, 10, 95]):
        store.write(f"{i}", content(i, size_bytes))
    sampler = CostBatchSampler(MapDataset(store), max_batch_bytes=50, oversized="skip")
    for _ in range(2):
        assert list(sampler) == [[0, 2]]
    (told,) = [record.getMessage() for record in caplog.records]
    assert "leaves out 2 samples that exceed a limit alone: sample 1 (" in told
    assert str(tmp_path / "3") in told
    assert sampler.skipped == [1, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "something has to say when a batch is full"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"max_batch_bytes": 10}, "max_batch_bytes needs the sizes of the samples: give the data"),
        ({"max_batch_cost": 10}, "cost does not say of what"),
        (
            {"max_batch_size": 2, "cost": [1, 1, 1]},
            "none of max_batch_cost, cost_boundaries and fits, which use it",
        ),
        ({"cost": [1, 1, 1], "max_batch_cost": 0}, "max_batch_cost is 0.0; it must be a finite"),
        ({"cost": [1, 1, 1], "max_batch_cost": math.nan}, "max_batch_cost is nan"),
        ({"cost": [2, 3, 2], "max_batch_cost": 1}, "max_batch_cost=1: each of the 3 samples exc"),
        ({"cost": [1, 1, 1], "max_batch_size": 2, "cost_boundaries": [2, 1]}, "must be ascending"),
        ({"max_batch_size": 2, "cost_boundaries": [2]}, "there is no cost"),
        (
            {"cost": [1, 1, 1], "max_batch_size": 2, "cost_boundaries": "123"},
            "cost_boundaries is '123'; it must be ascending, finite numbers",
        ),
        (
            {"cost": [1, 1, 1], "max_batch_size": 2, "cost_boundaries": [1, 10**400]},
            "it must be ascending, finite numbers",
        ),
        ({"max_batch_size": 2, "oversized": "keep"}, "oversized is 'keep'; it must be one of"),
        ({"max_batch_size": 2, "saturation": 0.5}, "which batches drop_last=True keeps"),
        ({"max_batch_size": 2, "saturation": 2, "drop_last": True}, "saturation is 2; it must be"),
        ({"max_batch_size": 2, "rank": 3, "world_size": 2}, "rank is 3; it must be less than"),
        ({"max_batch_size": 2, "fits": 3}, "fits is 3; it must be callable"),
        (
            {"max_batch_size": 2, "sampler": [1]},
            "sampler is a list; CostBatchSampler takes a Weighted",
        ),
    ],
)
def test_arguments_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        CostBatchSampler(3, **options)


@pytest.mark.parametrize("data", [0, [], "abc", iter([1]), None])
def test_data_without_samples_is_refused(data: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="data"):
        CostBatchSampler(data, max_batch_size=2)


def test_a_state_of_other_data_or_a_changed_one_is_refused() -> None:
    sampler = sampler_of([1] * 20, None, 2, [5])
    next(iter(sampler))
    state = sampler.state_dict()
    with pytest.raises(headrace.InvalidArgumentError, match="other data"):
        sampler_of([1] * 21, None, 2, [5]).load_state_dict(state)
    with pytest.raises(headrace.InvalidArgumentError, match="shuffle"):
        sampler_of([1] * 20, None, 2, [5], shuffle=True).load_state_dict(state)
    for waiting in ([5], [1, 1], [-1], "12", [True]):
        with pytest.raises(headrace.InvalidArgumentError, match="waiting positions"):
            sampler.load_state_dict({**state, "waiting": waiting})
    with pytest.raises(headrace.InvalidArgumentError, match="position is 99"):
        sampler.load_state_dict({**state, "position": 99})
    weighted = WeightedSampler(20, [1] * 20)
    with pytest.raises(headrace.InvalidArgumentError, match="each object once per epoch, but here"):
        weighted.load_state_dict({**state, "shuffle": True})


# ---- with DataLoader and Loader


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_dataloader_takes_it(workers: int) -> None:
    costs = [i % 7 + 1 for i in range(100)]
    sampler = sampler_of(costs, 20, shuffle=True)
    batches = DataLoader(Numbers(), batch_sampler=sampler, num_workers=workers)
    assert len(batches) == len(sampler)
    expected = list(sampler_of(costs, 20, shuffle=True))
    assert [batch.tolist() for batch in batches] == expected


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("boundaries", [(), (3, 5)])
def test_a_stateful_dataloader_resumes_after_any_batch(
    workers: int, boundaries: Sequence[float]
) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader  # after the filter is in place

    costs = [i % 7 + 1 for i in range(100)]

    def make() -> Any:
        sampler = sampler_of(costs, 20, boundaries=boundaries, shuffle=True)
        return StatefulDataLoader(Numbers(), batch_sampler=sampler, num_workers=workers)

    def drained(loader: Any) -> Batches:
        return [batch.tolist() for batch in loader]

    whole = drained(make())
    for done in range(1, len(whole), 1 if workers == 0 else 8):
        loader = make()
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(done)] == whole[:done]
        state = loader.state_dict()
        del iterator
        resumed = make()
        resumed.load_state_dict(state)
        assert drained(resumed) == whole[done:]


def loader_over(folder: Path, count: int) -> Callable[..., Loader]:
    store = headrace.Store(folder)
    for i in range(count):
        store.write(f"{i:04d}", content(i, 10 + i % 40))
    dataset = MapDataset(store, lambda sample: sample.index)

    def make(rules: dict[str, Any], **options: Any) -> Loader:
        sampler = CostBatchSampler(dataset, **rules)
        return Loader(dataset, batch_sampler=sampler, collate_fn=list, **options)

    return make


def test_a_loader_yields_its_batches_and_resumes_with_others(tmp_path: Path) -> None:
    make = loader_over(tmp_path, 60)
    costs = [10 + i % 40 for i in range(60)]
    banded = {"cost": costs, "max_batch_cost": 100, "cost_boundaries": [20, 35], "shuffle": True}
    loader = make(banded)
    whole = list(loader)
    assert whole == list(CostBatchSampler(60, **banded))  # type: ignore[arg-type]
    assert loader.epoch == 1
    loader.set_epoch(0)
    assert len(loader) == len(whole)
    taken: list[int] = []
    iterator = iter(loader)
    for done in range(1, len(whole)):
        taken += next(iterator)
        assert loader.remaining_batches == len(whole) - done
        resumed = make(banded)
        resumed.load_state_dict(loader.state_dict())
        assert list(resumed) == whole[done:]
        # Other ranks, with batches by another rule.
        for rules in ({"max_batch_bytes": 300, "shuffle": True}, None):
            rest = []
            for rank in range(2):
                if rules is not None:
                    other = make(rules, rank=rank, world_size=2)
                else:
                    other = Loader(
                        loader.dataset, 4, shuffle=True, collate_fn=list, rank=rank, world_size=2
                    )
                other.load_state_dict(loader.state_dict())
                other.set_epoch(0)
                rest += [index for batch in other for index in batch]
            assert not set(rest) & set(taken)
            assert len(rest) == len(set(rest))
            assert 60 - len(taken) - len(rest) < 2


def test_a_samplers_numbers_are_those_of_its_own_samples(tmp_path: Path) -> None:
    """Random numbers of samples depend on their positions, in whatever batch they come."""
    make = loader_over(tmp_path, 40)
    dataset = make({"max_batch_size": 4}).dataset
    random_dataset = MapDataset(
        tmp_path, lambda sample: (sample.index, sample.rng().python.getrandbits(60))
    )

    def drawn(loader: Loader) -> dict[int, int]:
        return dict(pair for batch in loader for pair in batch)

    banded = CostBatchSampler(
        dataset,
        cost=[i % 9 for i in range(40)],
        max_batch_size=4,
        cost_boundaries=[3],
        shuffle=True,
    )
    plain = Loader(random_dataset, 5, shuffle=True, collate_fn=list)
    assert drawn(Loader(random_dataset, batch_sampler=banded, collate_fn=list)) == drawn(plain)


def test_a_loader_refuses_what_its_batch_sampler_decides(tmp_path: Path) -> None:
    make = loader_over(tmp_path, 4)
    for options in ({"batch_size": 2}, {"shuffle": True}, {"drop_last": True}):
        with pytest.raises(headrace.InvalidArgumentError, match=f"leave out {next(iter(options))}"):
            make({"max_batch_size": 2}, **options)
    with pytest.raises(headrace.InvalidArgumentError, match="seed is 4, but that of the CostBa"):
        make({"max_batch_size": 2, "seed": 3}, seed=4)
    with pytest.raises(headrace.InvalidArgumentError, match="is of 5 samples, and the dataset has"):
        Loader(
            make({"max_batch_size": 2}).dataset, batch_sampler=CostBatchSampler(5, max_batch_size=2)
        )


def test_an_error_of_the_users_function_comes_when_its_batch_would(tmp_path: Path) -> None:
    make = loader_over(tmp_path, 40)

    def fits(batch: BatchSoFar, index: int) -> bool:
        if index == 30:
            raise KeyError("broken")
        return len(batch) < 4

    loader = make({"fits": fits})
    with pytest.raises(KeyError, match="broken"):
        for _ in loader:
            pass
    assert loader.state_dict()["position"] == 0 or loader.state_dict()["position"] % 4 == 0


# ---- torchrun

SCRIPT = """
import json, random, sys
import torch.distributed as dist
from headrace.torch import CostBatchSampler, Loader, MapDataset, mix
from torch.utils.data import ConcatDataset

folder, out = sys.argv[1:]
costs = random.Random(1).choices(range(1, 30), k=203)
rules = dict(cost=costs, max_batch_cost=60, cost_boundaries=[8, 20], shuffle=True, seed=5)
dataset = MapDataset(folder, lambda sample: sample.index)
sampler = CostBatchSampler(dataset, **rules)
dist.init_process_group("gloo")
rank = dist.get_rank()
loader = Loader(dataset, batch_sampler=sampler, collate_fn=list)
first = []
for batch in loader:
    first.append(batch)
    dist.barrier()  # hangs if a rank has another number of steps
    if len(first) == 5:
        break
state = loader.state_dict()
states = [None] * dist.get_world_size()
dist.all_gather_object(states, state)
others = CostBatchSampler(dataset, **(rules | dict(max_batch_cost=45)))
again = Loader(dataset, batch_sampler=others, collate_fn=list)
again.load_state_dict(state)
rest = []
for batch in again:
    rest.append(batch)
    dist.barrier()
# The same with a mixture of two datasets, and with blocks.
parts = [dataset.objects[:150], dataset.objects[150:]]
both = ConcatDataset(
    [MapDataset(folder, lambda sample: int(sample.bytes()[:4]), index=part) for part in parts]
)
others = {}
for kind in ("mixture", "blocks"):
    def make(size):
        if kind == "blocks":
            return Loader(both, size, shuffle="block", block_size=6, seed=5, collate_fn=list)
        mixture = mix(both.datasets, [2, 1], 150)
        return Loader(mixture, size, shuffle=True, seed=5, collate_fn=list)

    taken, loader = [], make(7)
    for batch in loader:
        taken.append(batch)
        dist.barrier()
        if len(taken) == 3:
            break
    again = make(5)
    again.load_state_dict(loader.state_dict())
    for batch in again:
        taken.append(batch)
        dist.barrier()
    others[kind] = taken
found = {
    "first": first, "rest": rest, "states": states, "length": len(list(sampler)), "others": others
}
with open(f"{out}/{rank}.json", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
"""


@pytest.mark.timeout(600)
def test_torchrun_with_four_ranks_takes_equal_steps_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    store = headrace.Store(tmp_path / "data")
    for i in range(203):
        store.write(f"{i:04d}", content(i, 10))
    ranks, _ = torchrun(SCRIPT, 4, tmp_path / "data", out=tmp_path)
    assert all(found["states"] == [ranks[0]["states"][0]] * 4 for found in ranks)
    assert {len(found["rest"]) for found in ranks} == {len(ranks[0]["rest"])}
    assert {found["length"] for found in ranks} == {ranks[0]["length"]}
    seen = [i for found in ranks for batch in found["first"] + found["rest"] for i in batch]
    assert len(seen) == len(set(seen))
    assert 203 - len(seen) < 4
    for kind, count in (("mixture", 150), ("blocks", 203)):
        of_kind = [found["others"][kind] for found in ranks]
        assert {len(own) for own in of_kind} == {len(of_kind[0])}
        seen = [i for step in zip(*of_kind, strict=True) for batch in step for i in batch]
        order = (
            mix([range(150), range(53)], [2, 1], 150)
            .shares(shuffle=True)
            .order(5, 0)
            .indices(0, 150)
            .tolist()
            if kind == "mixture"
            else headrace._engine.BlockOrder(203, 5, 0, 6, 1).indices(0, 203).tolist()
        )
        assert seen == order[: len(seen)]
        assert count - len(seen) < 4
