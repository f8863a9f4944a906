"""Steps of batches that are bounded by what their samples cost."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace import _engine
from headrace.torch._grid import Order, Slice, Spot

__all__ = ["BatchLimits", "BatchSoFar", "CostSteps", "Fits", "Weigh"]

# How many samples are looked at together; fewer if Python code is called for each.
_WINDOW = 1 << 12
_CALLED_WINDOW = 1 << 8

Weigh = Callable[[memoryview], tuple[Any, Any]]
"""Returns the costs and the bytes of the samples with these numbers, as buffers of doubles; None
for what no limit needs."""


class BatchSoFar:
    """What a batch has when `CostBatchSampler` asks whether another sample still goes in.

    It is there for the duration of that call. ``len(batch)`` is the number of its samples.

    Raises:
        InvalidArgumentError: it is used after the call.

    Examples:
        >>> def fits(batch, index):  # the batch is padded to its longest sample
        ...     return (len(batch) + 1) * max(batch.largest_cost, lengths[index]) <= 16_384
        >>> sampler = CostBatchSampler(dataset, cost=lengths, fits=fits)
    """

    def __init__(self, steps: _engine.BatchSteps, order: Order) -> None:
        self._steps = steps
        self._order = order

    def __len__(self) -> int:
        return self._steps.so_far_size

    @property
    def cost(self) -> float:
        """The cost of its samples together; 0 without `cost`."""
        return self._steps.so_far_cost

    @property
    def largest_cost(self) -> float:
        """The cost of its most expensive sample; 0 without `cost`."""
        return self._steps.so_far_largest_cost

    @property
    def size_bytes(self) -> int:
        """The stored bytes of its samples together; 0 without `max_batch_bytes`."""
        return int(self._steps.so_far_bytes)

    @property
    def indices(self) -> list[int]:
        """The numbers of its samples. The list is made anew each time."""
        return self._order.pick(self._steps.so_far_positions).tolist()


Fits = Callable[[BatchSoFar, int], object]


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """When a batch is full, and what happens to samples that no batch has room for."""

    max_size: int | None = None
    max_bytes: float | None = None
    max_cost: float | None = None
    boundaries: tuple[float, ...] = ()
    """Ascending costs; samples between the same two of them are batched together."""
    skip_oversized: bool = False
    """Leave out samples that exceed a limit alone; else each is a batch of its own."""
    drop_last: bool = False
    saturation: float = 1.0
    fits: Fits | None = None
    calls: bool = False
    """Whether Python code is called for each sample."""


@dataclass(frozen=True)
class CostSteps:
    """Steps of batches that hold as many samples as the limits allow (`headrace::BatchSteps`).

    The order is cut into batches, and a step takes the next `world_size` of them. Where the order
    ends in the middle of a step, batches are halved, so that each rank has one.
    """

    count: int
    """How many positions the order has."""
    order: Order
    weigh: Weigh
    limits: BatchLimits
    rank: int
    world_size: int
    leave_out: Callable[[list[int]], None]
    """Called with the numbers of samples that are left out because they exceed a limit alone."""

    def slices(self, spot: Spot) -> Iterator[Slice]:
        steps = self._begun(spot)
        while (step := self._next(steps)) is not None:
            positions, position, waiting = step
            yield Slice(positions, Spot(position, waiting))

    def has_step(self, spot: Spot) -> bool:
        if self.limits.drop_last or self.limits.skip_oversized:
            return self._next(self._begun(spot)) is not None
        return self.count - spot.position + len(spot.waiting) >= self.world_size

    def step_count(self, spot: Spot) -> int:
        steps, count = self._begun(spot), 0
        while self._next(steps) is not None:
            count += 1
        return count

    def _begun(self, spot: Spot) -> _Adding:
        limits = self.limits
        steps = _engine.BatchSteps(
            self.count,
            spot.position,
            max_cost=math.inf if limits.max_cost is None else limits.max_cost,
            max_bytes=math.inf if limits.max_bytes is None else limits.max_bytes,
            max_samples=limits.max_size,
            boundaries=list(limits.boundaries),
            skip_oversized=limits.skip_oversized,
            world_size=self.world_size,
            drop_last=limits.drop_last,
            saturation=limits.saturation,
        )
        begun = _Adding(steps, self._asked(steps))
        if len(spot.waiting) > 0:
            positions = array("q", sorted(spot.waiting))
            self._add(begun, positions, self.order.pick(positions))
        return begun

    def _asked(self, steps: _engine.BatchSteps) -> Callable[[int], bool] | None:
        fits = self.limits.fits
        if fits is None:
            return None
        so_far = BatchSoFar(steps, self.order)
        return lambda index: bool(fits(so_far, index))

    def _next(self, begun: _Adding) -> tuple[memoryview, int, Sequence[int]] | None:
        steps = begun.steps
        window = _CALLED_WINDOW if self.limits.calls else _WINDOW
        while not steps.is_ready:
            begin = steps.position
            self._add(begun, None, self.order.indices(begin, min(begin + window, self.count)))
        return steps.next(self.rank)

    def _add(self, begun: _Adding, positions: Any, indices: memoryview) -> None:
        steps = begun.steps
        steps.add(positions, indices, *self.weigh(indices), begun.asked)
        if self.limits.skip_oversized:
            left_out = steps.take_left_out()
            if len(left_out) > 0:
                self.leave_out(self.order.pick(left_out).tolist())


@dataclass(frozen=True)
class _Adding:
    """Steps to which samples are being added, and the user's function for these."""

    steps: _engine.BatchSteps
    asked: Callable[[int], bool] | None
