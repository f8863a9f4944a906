"""How an epoch is cut into steps of all ranks, and a step into the batches of the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

__all__ = ["Grid", "Order", "Slice", "Spot", "Steps"]


class Order(Protocol):
    """Position in an epoch → number of the sample."""

    def __getitem__(self, position: int) -> int: ...
    def indices(self, begin: int, end: int, step: int = 1) -> memoryview: ...
    def pick(self, positions: Sequence[int]) -> memoryview: ...


class Spot(NamedTuple):
    """Where in an epoch a step of all ranks begins."""

    position: int = 0
    """All positions before this one have been in a batch, but for those that wait."""
    waiting: Sequence[int] = ()
    """Positions before `position` that no batch has had yet, in any order: samples whose batch was
    not full when later ones were."""
    sampler: Mapping[str, Any] | None = None
    """The place of somebody else's sampler, or the ``"readers"`` of shards that nobody has counted.
    At the end of an epoch, its ``"next"`` is the place at which the next epoch begins."""

    def after_end(self) -> Spot:
        """Return where the next epoch begins, if this is the end of one."""
        sampler = self.sampler or {}
        if "next" not in sampler and "readers" in sampler:
            # The ranks that there were had not come to its end.
            return Spot(0, (), {"readers": sampler["readers"]})
        return Spot(0, (), sampler.get("next"))


class Slice(NamedTuple):
    """The batch of one rank in one step."""

    positions: Sequence[int]
    """The positions of its samples in the order."""
    after: Spot
    """Where the step of all ranks ends, and the next one begins."""
    indices: Sequence[int] | None = None
    """The numbers of its samples, if nobody's order says which they are."""


class Steps(Protocol):
    """The steps of one epoch, as one rank sees them.

    Every position belongs to exactly one batch. All ranks take the same number of steps, so each
    step has at least one position for each rank. If fewer positions than ranks would be left for
    the last step, the step before it leaves as many as there are ranks. If that is impossible, the
    last positions are left out. The steps from a position on depend on nothing before it.
    """

    @property
    def world_size(self) -> int: ...
    def slices(self, spot: Spot) -> Iterator[Slice]:
        """Yield this rank's batches from the step that begins at `spot` on."""
        ...

    def has_step(self, spot: Spot) -> bool:
        """Return whether a step begins at `spot`."""
        ...

    def step_count(self, spot: Spot) -> int:
        """Return how many steps there are from `spot` on."""
        ...


@dataclass(frozen=True)
class Grid:
    """Steps of ``batch_size * world_size`` positions; each rank takes a contiguous slice.

    The last positions are left out only if the batch size is 1, or if there are fewer than ranks.
    At no spot does a sample wait.
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

    def slices(self, spot: Spot) -> Iterator[Slice]:
        position = spot.position
        while (end := self._step_end(position)) > position:
            size = end - position
            begin = position + size * self.rank // self.world_size
            own = range(begin, position + size * (self.rank + 1) // self.world_size)
            yield Slice(own, Spot(end))
            position = end

    def has_step(self, spot: Spot) -> bool:
        return self._step_end(spot.position) > spot.position

    def step_count(self, spot: Spot) -> int:
        full, rest = divmod(self.count - spot.position, self.step_size)
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
