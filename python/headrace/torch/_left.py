"""Which positions of an epoch's order are left for readers that share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from headrace._base.options import require
from headrace.torch._units import Places

__all__ = ["Left"]


@dataclass(frozen=True)
class Left:
    """Positions that nobody has yielded, in their order.

    Readers share them by their places: the first reader has the first so many of them, and so on.
    After a stop, what is left of all shares is shared anew.
    """

    spans: tuple[tuple[int, int], ...]
    """Ascending, without overlaps."""

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self.spans)

    def positions(self, begin: int, end: int) -> Places:
        """Return the positions at these places; behind the last one comes the first one again."""
        count = len(self)
        spans = [
            span
            for before in range(begin // count * count, end, count)
            for span in self._cut(begin - before, end - before)
        ]
        if len(spans) == 1:
            return range(*spans[0])
        return numpy.concatenate([numpy.arange(*span) for span in spans])

    def without(self, gone: Iterable[tuple[int, int]]) -> Left:
        """Return what is left without the places of these ascending ranges."""
        spans: list[tuple[int, int]] = []
        at = 0
        for begin, end in (*gone, (len(self), len(self))):
            for span in self._cut(at, begin):
                if spans and spans[-1][1] == span[0]:
                    span = spans.pop()[0], span[1]
                spans.append(span)
            at = end
        return Left(tuple(spans))

    def _cut(self, begin: int, end: int) -> Iterable[tuple[int, int]]:
        for first, last in self.spans:
            size = last - first
            low, high = max(begin, 0), min(end, size)
            if low < high:
                yield first + low, first + high
            begin, end = begin - size, end - size

    def to_state(self) -> list[list[int]]:
        return [list(span) for span in self.spans]

    @classmethod
    def from_state(cls, state: Any, count: int) -> Left:
        """Return what `to_state` gave, of an order with so many positions."""
        good = isinstance(state, Sequence) and not isinstance(state, str | Mapping)
        last = 0
        for span in state if good else ():
            good = good and isinstance(span, Sequence) and len(span) == 2
            good = good and all(type(at) is int for at in span)
            good = good and last <= span[0] < span[1] <= count
            if not good:
                break
            last = span[1]
        require(good, f"the state's base is {state!r}, and that is none")
        return cls(tuple((begin, end) for begin, end in state))
