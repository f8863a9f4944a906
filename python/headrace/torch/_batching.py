"""How the epochs of a loader or a sampler are cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headrace.torch._batch_costs import Costs
from headrace.torch._batch_steps import BatchLimits, CostSteps
from headrace.torch._grid import Grid, Steps
from headrace.torch._place import Place

__all__ = ["Batching", "ByCost", "BySize"]


class Batching(Protocol):
    """How epochs are cut into steps."""

    @property
    def drop_last(self) -> bool:
        """Whether what is left out at the end is left out by the user's wish."""
        ...

    @property
    def is_counted_by_making(self) -> bool:
        """Whether only those who make all batches know how many there are."""
        ...

    def steps(self, place: Place, rank: int, world_size: int) -> Steps:
        """Return how the epoch of `place` is cut, from that place on."""
        ...


@dataclass(frozen=True)
class BySize:
    """Batches of a number of samples."""

    batch_size: int
    drop_last: bool

    is_counted_by_making = False

    def steps(self, place: Place, rank: int, world_size: int) -> Steps:
        count = place.count
        if len(place.spot.waiting) == 0:
            return Grid(count, self.batch_size, rank, world_size, self.drop_last)
        # Another loader has left samples behind, which come first.
        limits = BatchLimits(max_size=self.batch_size, drop_last=self.drop_last)
        order = place.order()
        return CostSteps(count, order, _nothing, limits, rank, world_size, _nobody)


@dataclass(frozen=True)
class ByCost:
    """Batches of as many samples as limits of their cost allow."""

    costs: Costs
    limits: BatchLimits
    leave_out: Callable[[list[int]], None]
    """Called with the numbers of samples that exceed a limit alone and are left out."""

    @property
    def drop_last(self) -> bool:
        return self.limits.drop_last

    is_counted_by_making = True

    def steps(self, place: Place, rank: int, world_size: int) -> Steps:
        count = place.count
        return CostSteps(
            count, place.order(), self.costs, self.limits, rank, world_size, self.leave_out
        )


def _nothing(_: memoryview) -> tuple[None, None]:
    return None, None


def _nobody(_: list[int]) -> None:
    raise AssertionError("nothing is oversized where nothing has a cost")
