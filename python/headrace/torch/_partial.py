"""Batches that are given before they are whole, where the source is slow."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace._base.errors import CancelledError
from headrace._store.read_ahead import ReadAhead
from headrace.torch._grid import Spot
from headrace.torch._pipeline import Made, MadeStep, Others, Pipeline, Recipe, Request
from headrace.torch._source import Reads, Together

__all__ = ["PartialPipeline"]

# While nothing has arrived, all reads are looked at this often.
_LOOK_S = 0.005


class PartialPipeline(Pipeline):
    """A pipeline whose `next` waits `max_wait_s` for a batch, then gives what has arrived of it.

    Each sample is a read of its own. What is late makes a batch of its own, once it is there. The
    place after a batch is that of the furthest batch begun, and everything late waits there.
    """

    def __init__(
        self,
        recipe: Recipe,
        requests: Iterator[Request],
        transform_threads: int,
        prefetch_bytes: int | None,
        others: Others,
        max_wait_s: float,
    ) -> None:
        super().__init__(recipe, requests, transform_threads, prefetch_bytes, others)
        self._max_wait_s = max_wait_s
        self._reading: ReadAhead[_Begun] = ReadAhead(
            recipe.source.opened(), prefetch_bytes, least_entries=4
        )
        self._failure: Exception | None = None
        self._after = Spot()  # of the furthest batch of which something was given
        self._furthest = -1  # and the number of that
        self._number = 0
        self._making: deque[MadeStep] = deque()

    def _next(self) -> Made | None:
        self._fill()
        if not self._making:
            begin_ns = time.perf_counter_ns()
            arrived = self._arrived(time.monotonic() + self._max_wait_s)
            is_held = self._reading.is_full
            self._recipe.work.waited(time.perf_counter_ns() - begin_ns, is_held=is_held)
            self._promote(arrived)
        if not self._making:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            return None
        step = self._making.popleft()
        if self._threads is None:
            self._work(step)
        value = step.wait(self._is_closing)
        self._fill()
        return self._made(step, value)

    def is_ready(self) -> bool:
        """Return whether `next` has something at once, without waiting and without work."""
        return bool(self._making) and self._making[0].is_ready()

    def close(self) -> None:
        super().close()
        self._reading.cancel()

    def _fill(self, least: int = 0) -> None:  # noqa: ARG002
        source = self._recipe.source
        while self._more and self._reading.has_room():
            try:
                request = next(self._requests, None)
            except Exception as error:  # told when all before it is given
                self._more, self._failure = False, error
                break
            if request is None:
                self._more = False
                break
            begun = _Begun(self._number, request, source.start)
            self._number += 1
            size_bytes = source.sum_bytes(request.indices)
            self._reading.append(begun, begun, size_bytes, len(request.indices))
        # Whole batches are made while the trainer works, as many as the threads have use for.
        most = 0 if self._threads is None else 2
        while len(self._making) < most and self._reading and self._reading[0].is_whole():
            self._promote(self._reading[0])

    def _arrived(self, deadline: float) -> _Begun | None:
        """Wait for the first batch, or until something has arrived after the deadline."""
        while self._reading:
            first = self._reading[0]
            if first.wait_until(deadline, self._is_closing):
                return first
            for begun in self._reading:
                if begun.has_some():
                    return begun
            if self._is_closing():
                raise CancelledError("the iterator was closed")
            first.wait_until(time.monotonic() + _LOOK_S, self._is_closing)
        return None

    def _promote(self, begun: _Begun | None) -> None:
        """Make a batch of what has arrived of a request."""
        if begun is None:
            return
        given = begun.take_arrived()
        self._furthest = max(self._furthest, begun.number)
        if begun.number == self._furthest:
            self._after = begun.request.after
        late = [
            position
            for each in self._reading
            if each.number <= self._furthest
            for position in each.late_positions()
        ]
        after = Spot(self._after.position, [*self._after.waiting, *late])
        request = Request(
            [begun.request.indices[at] for at in given],
            begun.request.epoch,
            [begun.request.positions[at] for at in given],
            after,
        )
        parts = len(self._threads or ()) if self._recipe.source.makes else 1
        size_bytes = self._recipe.source.sum_bytes(request.indices)
        reads = Together([(begun.reads[at], [place]) for place, at in enumerate(given)])
        step = MadeStep(request, size_bytes, self._recipe, max(1, parts), reads)
        begun.forget(given)
        # What is late keeps no room for what was given beside it: else a few would hold up all.
        self._reading.take_part(begun, size_bytes, len(given))
        self._making.append(step)
        if self._threads is not None:
            self._threads.submit(step)


class _Begun:
    """A batch of which each sample is read by itself."""

    def __init__(
        self, number: int, request: Request, start: Callable[[Sequence[int]], Reads]
    ) -> None:
        self.number = number
        self.request = request
        indices = request.indices
        self.reads: list[Any] = [start(indices[at : at + 1]) for at in range(len(indices))]
        self.missing = list(range(len(self.reads)))
        """The places in the batch of what was not given yet."""

    def wait_until(self, deadline: float, is_closing: Callable[[], bool]) -> bool:
        """Wait until all is there; return False at the deadline."""
        for at in self.missing:
            while not self.reads[at].poll(deadline - time.monotonic()):
                if is_closing() or time.monotonic() >= deadline:
                    return False
        return True

    def is_whole(self) -> bool:
        return all(self.reads[at].poll(0) for at in self.missing)

    def has_some(self) -> bool:
        return any(self.reads[at].poll(0) for at in self.missing)

    def take_arrived(self) -> list[int]:
        """Return the places of what has arrived; what is late is what is left."""
        given: list[int] = []
        late: list[int] = []
        for at in self.missing:
            (given if self.reads[at].poll(0) else late).append(at)
        self.missing = late
        return given

    def late_positions(self) -> list[int]:
        return [self.request.positions[at] for at in self.missing]

    def forget(self, given: Sequence[int]) -> None:
        for at in given:
            self.reads[at] = None  # the batch's that is made of it

    def cancel(self) -> None:
        for each in self.reads:
            if each is not None:
                each.cancel()

    def drain(self) -> None:
        for each in self.reads:
            if each is not None:
                each.drain()
