"""How an epoch is cut into steps and batches: every position in exactly one batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import hypothesis
import hypothesis.strategies as st
import torch

from headrace import _engine
from headrace.torch._batch_steps import BatchLimits, CostSteps
from headrace.torch._grid import Grid, Spot, Steps

grids = st.tuples(st.integers(1, 9), st.integers(1, 6), st.booleans())
"""Batch size, world size, drop_last."""
object_sizes = st.lists(st.integers(0, 12), max_size=80)
limits = st.tuples(st.integers(1, 30), st.none() | st.integers(1, 6), st.integers(1, 6))
"""The most bytes of a batch, the most objects, world size."""


def batches_of(ranks: Sequence[Steps], position: int = 0) -> list[list[list[int]]]:
    """The batches of each rank from a position on; all ranks agree where steps end."""
    slices = [list(steps.slices(Spot(position))) for steps in ranks]
    ends = [[each.after for each in own] for own in slices]
    assert all(own == ends[0] for own in ends)
    assert all(len(spot.waiting) == 0 for spot in ends[0])
    return [[list(each.positions) for each in own] for own in slices]


def positions(batches: list[list[list[int]]]) -> list[int]:
    """All positions, step by step, and in each step rank by rank."""
    return [p for step in zip(*batches, strict=True) for batch in step for p in batch]


def grids_of_all(count: int, grid: tuple[int, int, bool]) -> list[Steps]:
    batch_size, world_size, drop_last = grid
    return [Grid(count, batch_size, rank, world_size, drop_last) for rank in range(world_size)]


def byte_grids_of_all(
    sizes: list[int], limit: tuple[int, int | None, int], drop_last: bool = False
) -> list[Steps]:
    max_bytes, max_size, world_size = limit
    return [
        CostSteps(
            len(sizes),
            _engine.Order(len(sizes), 0, 0, False),
            weighed(sizes),
            BatchLimits(max_size=max_size, max_bytes=max_bytes, drop_last=drop_last),
            rank,
            world_size,
            lambda _: None,
        )
        for rank in range(world_size)
    ]


def weighed(sizes: list[int]) -> Any:
    told = torch.tensor(sizes, dtype=torch.float64)
    return lambda indices: (None, told[list(indices)].numpy())


# ---- a number of samples


@hypothesis.given(st.integers(0, 200), grids)
def test_every_position_that_is_not_left_out_is_in_exactly_one_batch(
    count: int, grid: tuple[int, int, bool]
) -> None:
    batch_size, world_size, drop_last = grid
    ranks = grids_of_all(count, grid)
    batches = batches_of(ranks)
    seen = positions(batches)
    left_out = count - len(seen)
    assert seen == list(range(len(seen)))
    if drop_last:
        assert left_out == count % (batch_size * world_size)
    else:
        assert left_out == 0 or (left_out < world_size and (batch_size == 1 or count < world_size))
    assert all(0 < len(batch) <= batch_size for rank in batches for batch in rank)


@hypothesis.given(st.integers(0, 200), grids)
def test_every_rank_has_as_many_batches_as_len_says(
    count: int, grid: tuple[int, int, bool]
) -> None:
    ranks = grids_of_all(count, grid)
    for steps, own in zip(ranks, batches_of(ranks), strict=True):
        assert steps.step_count(Spot()) == len(own)
        assert steps.has_step(Spot()) == bool(own)


@hypothesis.given(st.integers(0, 200), grids)
def test_with_drop_last_every_batch_is_full(count: int, grid: tuple[int, int, bool]) -> None:
    batch_size, world_size, _ = grid
    for rank in batches_of(grids_of_all(count, (batch_size, world_size, True))):
        assert all(len(batch) == batch_size for batch in rank)


@hypothesis.given(st.integers(1, 200), st.integers(1, 9))
def test_one_rank_has_full_batches_and_a_rest(count: int, batch_size: int) -> None:
    (own,) = batches_of(grids_of_all(count, (batch_size, 1, False)))
    assert [len(batch) for batch in own[:-1]] == [batch_size] * (len(own) - 1)


# ---- a number of bytes


@hypothesis.given(object_sizes, limits)
def test_batches_of_bytes_have_every_position_once_and_each_rank_as_many(
    sizes: list[int], limit: tuple[int, int | None, int]
) -> None:
    ranks = byte_grids_of_all(sizes, limit)
    batches = batches_of(ranks)
    seen = positions(batches)
    assert seen == list(range(len(seen)))
    assert len(sizes) - len(seen) < limit[2]
    for steps, own in zip(ranks, batches, strict=True):
        assert steps.step_count(Spot()) == len(own)
        assert steps.has_step(Spot()) == bool(own)


@hypothesis.given(object_sizes, limits, st.booleans())
def test_a_batch_of_bytes_exceeds_its_limits_only_by_one_large_object(
    sizes: list[int], limit: tuple[int, int | None, int], drop_last: bool
) -> None:
    max_bytes, max_size, _ = limit
    for own in batches_of(byte_grids_of_all(sizes, limit, drop_last)):
        for batch in own:
            assert batch
            assert sum(sizes[at] for at in batch) <= max_bytes or len(batch) == 1
            assert max_size is None or len(batch) <= max_size


@hypothesis.given(object_sizes, limits)
def test_batches_of_bytes_are_full_but_for_those_of_the_last_two_steps(
    sizes: list[int], limit: tuple[int, int | None, int]
) -> None:
    max_bytes, max_size, _ = limit
    batches = batches_of(byte_grids_of_all(sizes, limit))
    for step in list(zip(*batches, strict=True))[:-2]:
        for batch in step:
            following = sizes[batch[-1] + 1]
            with_next = sum(sizes[at] for at in batch) + following
            is_reached = with_next - following >= max_bytes or len(batch) == max_size
            assert is_reached or with_next > max_bytes


@hypothesis.given(object_sizes, limits)
def test_with_drop_last_each_step_of_bytes_has_full_batches(
    sizes: list[int], limit: tuple[int, int | None, int]
) -> None:
    max_bytes, max_size, world_size = limit
    alone = byte_grids_of_all(sizes, (max_bytes, max_size, 1), drop_last=True)
    full = positions(batches_of(alone))
    ranks = byte_grids_of_all(sizes, limit, drop_last=True)
    (in_line,) = batches_of(alone)
    steps = len(in_line) // world_size
    assert ranks[0].step_count(Spot()) == steps
    assert positions(batches_of(ranks)) == full[: sum(map(len, in_line[: steps * world_size]))]


def test_a_batch_may_have_more_objects_than_are_looked_at_together() -> None:
    sizes = [1] * 50_000
    (own,) = batches_of(byte_grids_of_all(sizes, (40_000, None, 1)))
    assert own == [list(range(40_000)), list(range(40_000, 50_000))]


def test_ranks_share_what_is_left_by_its_bytes() -> None:
    ranks = byte_grids_of_all([10, 1, 1, 1, 1, 6], (20, None, 2))
    assert batches_of(ranks) == [[[0]], [[1, 2, 3, 4, 5]]]


# ---- both


@hypothesis.given(
    object_sizes.filter(bool), st.lists(grids | limits, min_size=1, max_size=6), st.data()
)
def test_an_epoch_may_go_on_with_any_other_steps(
    sizes: list[int], chain: list[tuple[int, int, bool] | tuple[int, int | None, int]],
    data: st.DataObject,
) -> None:  # fmt: skip
    """After some steps of one kind the next goes on from the position; the last to the end."""
    position, seen, world_size = 0, [], 1
    for i, kind in enumerate(chain):
        if isinstance(kind[2], bool):
            batch_size, world_size, _ = kind
            assert world_size is not None
            ranks = grids_of_all(len(sizes), (batch_size, world_size, False))
        else:
            world_size = kind[2]
            ranks = byte_grids_of_all(sizes, kind)
        steps = data.draw(st.integers(0, 4)) if i < len(chain) - 1 else 1000
        for step in islice(zip(*batches_of(ranks, position), strict=True), steps):
            for batch in step:
                seen += batch
                position = batch[-1] + 1
    # Where it ends fewer may be left than there are ranks.
    assert seen == list(range(position))
    assert len(sizes) - position < world_size


@hypothesis.given(object_sizes, limits)
def test_the_steps_from_a_place_on_depend_on_nothing_before_it(
    sizes: list[int], limit: tuple[int, int | None, int]
) -> None:
    ranks = byte_grids_of_all(sizes, limit)
    whole = list(ranks[0].slices(Spot()))
    for done, each in enumerate(whole, start=1):
        assert list(ranks[0].slices(each.after)) == whole[done:]
        assert ranks[0].step_count(each.after) == len(whole) - done
