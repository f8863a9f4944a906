"""How an epoch is cut into steps and batches: every position in exactly one batch."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st

from headrace.torch._grid import Grid

grids = st.tuples(st.integers(1, 9), st.integers(1, 6), st.booleans())


def batches(count: int, batch_size: int, world_size: int, drop_last: bool) -> list[list[range]]:
    """The batches of each rank; empty where a rank has nothing."""
    ranks = [Grid(batch_size, rank, world_size, drop_last) for rank in range(world_size)]
    out: list[list[range]] = [[] for _ in ranks]
    position = 0
    while (end := ranks[0].step_end(position, count)) > position:
        for rank, grid in enumerate(ranks):
            assert grid.step_end(position, count) == end
            out[rank].append(range(*grid.slice_of(position, end)))
        position = end
    return out


@hypothesis.given(st.integers(0, 200), grids)
def test_every_position_that_is_not_left_out_is_in_exactly_one_batch(
    count: int, grid: tuple[int, int, bool]
) -> None:
    batch_size, world_size, drop_last = grid
    ranks = batches(count, *grid)
    seen = [p for step in zip(*ranks, strict=True) for batch in step for p in batch]
    grid_of_all = Grid(batch_size, 0, world_size, drop_last)
    dropped = grid_of_all.left_out_count(count)
    assert dropped == 0 or (dropped < world_size and (batch_size == 1 or count < world_size))
    if drop_last:
        dropped = count % (batch_size * world_size)
    assert seen == list(range(count - dropped))
    assert all(0 < len(batch) <= batch_size for rank in ranks for batch in rank)


@hypothesis.given(st.integers(0, 200), grids)
def test_every_rank_has_as_many_batches_as_len_says(
    count: int, grid: tuple[int, int, bool]
) -> None:
    batch_size, world_size, drop_last = grid
    for rank, own in enumerate(batches(count, *grid)):
        assert Grid(batch_size, rank, world_size, drop_last).step_count(count) == len(own)


@hypothesis.given(st.integers(0, 200), grids)
def test_with_drop_last_every_batch_is_full(count: int, grid: tuple[int, int, bool]) -> None:
    batch_size, world_size, _ = grid
    for rank in batches(count, batch_size, world_size, drop_last=True):
        assert all(len(batch) == batch_size for batch in rank)


@hypothesis.given(st.integers(1, 200), st.integers(1, 9))
def test_one_rank_has_full_batches_and_a_rest(count: int, batch_size: int) -> None:
    (own,) = batches(count, batch_size, 1, drop_last=False)
    assert [len(batch) for batch in own[:-1]] == [batch_size] * (len(own) - 1)


@hypothesis.given(st.integers(1, 120), st.lists(grids, min_size=1, max_size=6), st.data())
def test_an_epoch_may_go_on_with_any_other_grid(
    count: int, chain: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    """After some steps with one grid the next goes on from the position; the last to the end."""
    position, seen, grid = 0, [], [Grid(1, 0, 1, False)]
    for i, (batch_size, world_size, _) in enumerate(chain):
        grid = [Grid(batch_size, rank, world_size, False) for rank in range(world_size)]
        steps = data.draw(st.integers(0, 4)) if i < len(chain) - 1 else 1000
        while steps > 0 and (end := grid[0].step_end(position, count)) > position:
            for each in grid:
                seen += range(*each.slice_of(position, end))
            position, steps = end, steps - 1
    # Where it ends fewer may be left than there are ranks.
    assert seen == list(range(position))
    assert count - position < len(grid)
