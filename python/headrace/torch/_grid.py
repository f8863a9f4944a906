"""Which positions of the order make the next batch of a rank: pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """How an epoch is cut into steps, and a step into the batches of the ranks.

    A step takes the next ``batch_size * world_size`` positions, and each rank a contiguous slice of
    them. Every position belongs to exactly one batch. All ranks take the same number of steps, so
    each step has at least one position for each rank. If fewer positions than ranks would be left
    for the last step, the step before it leaves as many as there are ranks. If that is impossible
    (a batch size of 1, or fewer positions than ranks), the last positions are left out.
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
        """Return the end of the step that begins at `position` of `count`; `position`: no step."""
        left = count - position
        if left <= self.step_size:
            least = self.step_size if self.drop_last else self.world_size
            return count if left >= least else position
        spare = left - self.step_size
        if spare < self.world_size and self.batch_size > 1 and not self.drop_last:
            return count - self.world_size
        return position + self.step_size

    def slice_of(self, begin: int, end: int) -> tuple[int, int]:
        """Return this rank's half-open part of the step ``[begin, end)``."""
        size = end - begin
        return (
            begin + size * self.rank // self.world_size,
            begin + size * (self.rank + 1) // self.world_size,
        )

    def step_count(self, count: int) -> int:
        """Return how many batches each rank has of `count` positions."""
        full, rest = divmod(count, self.step_size)
        if self.drop_last or rest == 0:
            return full
        can_leave_some = full > 0 and self.batch_size > 1
        return full + (can_leave_some or rest >= self.world_size)

    def left_out_count(self, count: int) -> int:
        """Return how many of `count` positions no rank gets, although drop_last is not set."""
        if self.drop_last or (self.batch_size > 1 and count >= self.world_size):
            return 0
        return count % self.world_size
