"""A reader's share of an epoch, in pieces of samples that are read together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

from headrace.torch._left import Left
from headrace.torch._unit_reads import UnitPart, UnitReads
from headrace.torch._units import UnitOrder

__all__ = ["Ahead", "Piece", "Pieces"]


class Ahead(NamedTuple):
    """How much of a share is read ahead."""

    samples: int
    """Of a piece."""
    most_bytes: int
    most_requests: int
    cost: Callable[[int], tuple[int, int]]
    """How many bytes and requests a unit takes."""


class Piece:
    """Some samples that were read, one after the other in the order of an epoch."""

    def __init__(self, reads: UnitReads, joined: Callable[..., Any]) -> None:
        found, lost = reads.take_units()
        self.numbers = self.there = reads.indices
        self.lost = {place: error for error, places in lost for place in map(int, places)}
        """The places of samples that could not be read, and why."""
        if lost:
            self.there = numpy.delete(self.numbers, list(self.lost))
        self.values: Any = joined(*zip(*found, strict=True)) if found else None
        """The other samples, whose numbers are in `there`."""


class Pieces:
    """The samples of a reader's share in pieces, of which further ones are read ahead.

    Args:
        part: what they are read from.
        order: the order of the epoch.
        base: the positions that all readers share.
        begin, end: the places of those that are left of this reader's share.
        ahead: how much is read ahead.
        joined: makes the values of a piece of what its units gave, and of the places of that.
    """

    def __init__(
        self,
        part: UnitPart,
        order: UnitOrder,
        base: Left,
        begin: int,
        end: int,
        ahead: Ahead,
        joined: Callable[..., Any],
    ) -> None:
        self._part, self._order, self._base, self._joined = part, order, base, joined
        self._at, self._end, self._limits = begin, end, ahead
        self._ahead: deque[UnitReads] = deque()
        self._size_bytes = self._request_count = 0  # of the units that they have begun

    def next(self) -> Piece | None:
        """Wait for the next piece; None: there is none."""
        self._fill()
        if not self._ahead:
            return None
        reads = self._ahead.popleft()
        self._count(reads, -1)
        self._fill()
        return Piece(reads, self._joined)

    def _fill(self) -> None:
        limits = self._limits
        while self._at < self._end and (
            not self._ahead
            or (self._size_bytes < limits.most_bytes and self._request_count < limits.most_requests)
        ):
            end = min(self._at + limits.samples, self._end)
            numbers = self._order.numbers(self._base.positions(self._at, end))
            self._ahead.append(self._part._start(numbers))
            self._count(self._ahead[-1], 1)
            self._at = end

    def _count(self, reads: UnitReads, sign: int) -> None:
        for unit in reads.begun:
            size_bytes, requests = self._limits.cost(unit)
            self._size_bytes += sign * size_bytes
            self._request_count += sign * requests

    def close(self, *, is_here: bool) -> None:
        """Read no more; unless this is another process than began to."""
        if is_here:
            for reads in self._ahead:
                reads.cancel()
            for reads in self._ahead:
                reads.drain()
            self._part.let_go()
        self._ahead.clear()
