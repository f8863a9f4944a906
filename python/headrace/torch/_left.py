"""Which positions of an epoch's order are left for readers that share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from headrace._base.options import require
from headrace.torch._units import Places

__all__ = ["Left"]

Span = tuple[int, int]


@dataclass(frozen=True)
class Left:
    """Positions that nobody has yielded, in their order.

    Readers share them by their places: the first reader has the first so many of them, and so on.
    After a stop, what is left of all shares is shared anew.
    """

    count: int
    """How many positions the epoch has."""
    spans: tuple[Span, ...]
    """Ascending, without overlaps."""

    @classmethod
    def all_of(cls, count: int) -> Left:
        """Return the whole epoch."""
        return cls(count, ((0, count),) if count else ())

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

    def without(self, gone: Iterable[Span]) -> Left:
        """Return what is left without the places of these ascending ranges."""
        spans: list[Span] = []
        at = 0
        for begin, end in (*gone, (len(self), len(self))):
            for span in self._cut(at, begin):
                if spans and spans[-1][1] == span[0]:
                    span = spans.pop()[0], span[1]
                spans.append(span)
            at = end
        return Left(self.count, tuple(spans))

    def _cut(self, begin: int, end: int) -> Iterator[Span]:
        for first, last in self.spans:
            size = last - first
            low, high = max(begin, 0), min(end, size)
            if low < high:
                yield first + low, first + high
            begin, end = begin - size, end - size

    def to_state(self) -> dict[str, Any]:
        return {"count": self.count, "spans": [list(span) for span in self.spans]}

    @classmethod
    def from_state(cls, state: Any) -> Left:
        """Return what `to_state` gave."""
        good = isinstance(state, Mapping) and {"count", "spans"} <= state.keys()
        good = good and type(state["count"]) is int and isinstance(state["spans"], list | tuple)
        last = 0
        for span in state["spans"] if good else ():
            good = isinstance(span, Sequence) and len(span) == 2
            good = good and all(type(at) is int for at in span)
            good = good and last <= span[0] < span[1] <= state["count"]
            if not good:
                break
            last = span[1]
        require(good, f"the state's base is {state!r}, and that is none")
        return cls(state["count"], tuple((begin, end) for begin, end in state["spans"]))
