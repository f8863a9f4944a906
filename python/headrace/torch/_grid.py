"""How an epoch is cut into steps of all ranks, and a step into the batches of the ranks."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from headrace import _engine

__all__ = ["ByteGrid", "Grid", "Slice", "Steps"]


class Slice(NamedTuple):
    """The batch of one rank: the positions ``[begin, end)`` of the order."""

    begin: int
    end: int
    step_end: int
    """The position at which the step of all ranks ends, and the next one begins."""


class Steps(Protocol):
    """The steps of one epoch, as one rank sees them.

    Every position belongs to exactly one batch. All ranks take the same number of steps, so each
    step has at least one position for each rank. If fewer positions than ranks would be left for
    the last step, the step before it leaves as many as there are ranks. If that is impossible, the
    last positions are left out. The steps from a position on depend on nothing before it.
    """

    @property
    def world_size(self) -> int: ...
    def slices(self, position: int) -> Iterator[Slice]:
        """Yield this rank's batches from the step that begins at `position` on."""
        ...

    def has_step(self, position: int) -> bool:
        """Return whether a step begins at `position`."""
        ...

    def step_count(self, position: int) -> int:
        """Return how many steps there are from `position` on."""
        ...


@dataclass(frozen=True)
class Grid:
    """Steps of ``batch_size * world_size`` positions; each rank takes a contiguous slice.

    The last positions are left out only if the batch size is 1, or if there are fewer than ranks.
    """

    count: int
    """How many positions the order has."""
    batch_size: int
    """Samples of a rank per step."""
    rank: int
    world_size: int
    drop_last: bool
    """Leave out the samples at the end that do not fill a step of all ranks."""

    @property
    def step_size(self) -> int:
        """The positions of a full step of all ranks together."""
        return self.batch_size * self.world_size

    def slices(self, position: int) -> Iterator[Slice]:
        while (end := self._step_end(position)) > position:
            size = end - position
            begin = position + size * self.rank // self.world_size
            yield Slice(begin, position + size * (self.rank + 1) // self.world_size, end)
            position = end

    def has_step(self, position: int) -> bool:
        return self._step_end(position) > position

    def step_count(self, position: int) -> int:
        full, rest = divmod(self.count - position, self.step_size)
        if self.drop_last or rest == 0:
            return full
        can_leave_some = full > 0 and self.batch_size > 1
        return full + (can_leave_some or rest >= self.world_size)

    def _step_end(self, position: int) -> int:
        """Return the end of the step that begins at `position`; `position` itself: no step."""
        left = self.count - position
        if left <= self.step_size:
            least = self.step_size if self.drop_last else self.world_size
            return self.count if left >= least else position
        spare = left - self.step_size
        if spare < self.world_size and self.batch_size > 1 and not self.drop_last:
            return self.count - self.world_size
        return position + self.step_size


# How many sizes are looked at together; more if a batch has more objects.
_WINDOW = 1 << 14


@dataclass(frozen=True)
class ByteGrid:
    """Steps of batches that hold as many objects as fit into a number of bytes.

    The order is cut into batches one after the other (`headrace::full_batches`), and a step takes
    the next `world_size` of them. Where the order ends in the middle of a step, its batches are cut
    further, so that each rank has one.
    """

    count: int
    """How many positions the order has."""
    sizes_bytes: Callable[[int, int], Sequence[int]]
    """The sizes of the objects at the positions ``[begin, end)``, as a buffer of int64."""
    max_batch_bytes: int
    """An object larger than this is a batch of its own."""
    max_batch_size: int | None
    """The most objects of a batch; None: any number."""
    rank: int
    world_size: int
    drop_last: bool
    """Leave out the samples at the end that do not fill a step of all ranks."""

    def slices(self, position: int) -> Iterator[Slice]:
        for bounds in self._steps(position):
            yield Slice(bounds[self.rank], bounds[self.rank + 1], bounds[-1])

    def has_step(self, position: int) -> bool:
        if self.drop_last:
            return next(self._steps(position), None) is not None
        return self.count - position >= self.world_size

    def step_count(self, position: int) -> int:
        return sum(1 for _ in self._steps(position))

    def _steps(self, position: int) -> Iterator[list[int]]:
        """Yield where the batches of each step begin, and where the last one ends."""
        ranks, bounds = self.world_size, [position]
        for end in self._batch_ends(position):
            bounds.append(end)
            if len(bounds) <= ranks:
                continue
            last = self.count - ranks  # where a step of one object for each rank would begin
            if last < end < self.count and last - bounds[0] >= ranks and not self.drop_last:
                yield self._cut(bounds[0], last)
                yield list(range(last, self.count + 1))
                return
            yield bounds
            bounds = [end]
        if not self.drop_last and self.count - bounds[0] >= ranks:
            yield self._cut(bounds[0], self.count)

    def _batch_ends(self, position: int) -> Iterator[int]:
        """Yield where each full batch from `position` on ends."""
        window = _WINDOW
        while position < self.count:
            end = min(position + window, self.count)
            ends = self._full_batches(self.sizes_bytes(position, end))
            for each in ends:
                yield position + each
            if len(ends):
                position += ends[-1]
            elif end == self.count:
                return
            else:
                window *= 2

    def _full_batches(self, sizes_bytes: Sequence[int]) -> Sequence[int]:
        return _engine.full_batches(sizes_bytes, self.max_batch_bytes, self.max_batch_size)

    def _cut(self, begin: int, end: int) -> list[int]:
        """Cut positions that have room in one step into a batch for each rank.

        The batch of most bytes is halved until there are enough.
        """
        sizes = self.sizes_bytes(begin, end)
        sums = [0, *accumulate(sizes)]
        cuts = {0, *self._full_batches(sizes), len(sizes)}
        ordered = sorted(cuts)
        heap = [_weighed(sums, *pair) for pair in pairwise(ordered)]
        heapq.heapify(heap)
        while len(cuts) <= self.world_size:
            _, _, first, last = heapq.heappop(heap)
            middle = bisect_left(sums, (sums[first] + sums[last] + 1) // 2, first + 1, last - 1)
            cuts.add(middle)
            heapq.heappush(heap, _weighed(sums, first, middle))
            heapq.heappush(heap, _weighed(sums, middle, last))
        return [begin + cut for cut in sorted(cuts)]


def _weighed(sums: Sequence[int], first: int, last: int) -> tuple[bool, tuple[int, int], int, int]:
    """Return an entry of a heap: the least is the one to halve next."""
    size = last - first
    return size < 2, (sums[first] - sums[last], -size), first, last
