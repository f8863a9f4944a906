"""Which positions of the order make the next batch of a rank. Arithmetic, no more."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """How an epoch is cut into steps, and a step into the batches of the ranks.

    A step takes the next ``batch_size * world_size`` positions, and each rank a contiguous slice of
    them. Every position belongs to exactly one batch. So that all ranks agree on the number of
    steps, the last one must have something for each: if fewer positions than ranks would be left
    for it, the step before leaves it as many as there are ranks. (With a batch size of 1 it cannot.
    Then some ranks have a step less than the others.)
    """

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

    def step_end(self, position: int, count: int) -> int:
        """Return where the step that begins at `position` of `count` ends; `position`: no step."""
        left = count - position
        if left <= self.step_size:
            return position if self.drop_last and left < self.step_size else count
        spare = left - self.step_size
        if spare < self.world_size and self.batch_size > 1 and not self.drop_last:
            return count - self.world_size
        return position + self.step_size

    def slice_of(self, begin: int, end: int) -> tuple[int, int]:
        """Return this rank's half-open part of the step ``[begin, end)``; it may be empty."""
        size = end - begin
        return (
            begin + size * self.rank // self.world_size,
            begin + size * (self.rank + 1) // self.world_size,
        )

    def step_count(self, count: int) -> int:
        """Return how many batches this rank has in an epoch of `count` samples."""
        full, rest = divmod(count, self.step_size)
        if self.drop_last or rest == 0:
            return full
        if full > 0 and self.batch_size > 1:
            return full + 1
        begin, end = self.slice_of(0, rest)
        return full + (begin < end)
