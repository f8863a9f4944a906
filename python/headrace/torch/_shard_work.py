"""Which samples of which shards a reader of a stream takes, and what is left when it stops."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require

__all__ = [
    "Base",
    "Deal",
    "EvenDeal",
    "Part",
    "WholeDeal",
    "left_over",
    "readers_of",
    "require_all",
    "shares",
    "with_end",
]

_PART_NUMBERS = 5


@dataclass(frozen=True)
class Part:
    """The samples ``[begin, end)`` of the shard at a position of the order.

    Positions from the number of shards on are those of another round of the same order.
    """

    position: int
    begin: int = 0
    offset: int = 0
    """Where the headers of the first sample begin in a plain tar; 0: not known."""
    end: int = -1
    """-1: all that there are."""
    index: int = -1
    """Of the first sample, among those of the reader that had begun it; -1: nobody had."""
    done: tuple[tuple[int, int, int, int], ...] = ()
    """Of earlier windows: which samples left them; see `_shard_window.Window`."""

    def to_state(self) -> list[Any]:
        return [
            self.position, self.begin, self.offset, self.end, self.index,
            [list(each) for each in self.done],
        ]  # fmt: skip

    @classmethod
    def from_state(cls, state: Any) -> Part:
        good = isinstance(state, Sequence) and len(state) == _PART_NUMBERS + 1
        if good:
            *numbers, done = state
            good = all(_is_integer(each) for each in numbers) and isinstance(done, Sequence)
        if good:
            good = min(numbers[:3]) >= 0 and min(numbers[3:]) >= -1
            good = good and all(
                isinstance(each, Sequence)
                and len(each) == 4
                and all(_is_integer(number) and number >= 0 for number in each)
                for each in done
            )
        require(good, f"the state has {state!r} for a part of a shard, and that is none")
        position, begin, offset, end, index = numbers
        return cls(position, begin, offset, end, index, tuple(tuple(each) for each in done))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


@dataclass(frozen=True)
class Base:
    """What is left of an epoch for all readers: parts, and all shards from a position on."""

    frontier: int = 0
    parts: tuple[Part, ...] = ()
    left: int = -1
    """How many samples are left of ``epoch_samples``; -1: there is no such number."""

    def at(self, number: int) -> Part:
        """Return the part with this number in the order; there is no last one."""
        if number < len(self.parts):
            return self.parts[number]
        return Part(self.frontier + number - len(self.parts))

    def to_state(self) -> dict[str, Any]:
        return {
            "frontier": self.frontier,
            "parts": [part.to_state() for part in self.parts],
            "left": self.left,
        }

    @classmethod
    def from_state(cls, state: Any) -> Base:
        good = isinstance(state, Mapping) and {"frontier", "parts", "left"} <= state.keys()
        good = good and all(_is_integer(state[name]) for name in ("frontier", "left"))
        good = good and isinstance(state["parts"], Sequence)
        require(good, f"the state's base is {state!r}, and that is none")
        require(state["frontier"] >= 0, f"the state's frontier is {state['frontier']}")
        parts = tuple(Part.from_state(part) for part in state["parts"])
        return cls(state["frontier"], parts, state["left"])


class Deal(Protocol):
    """How the parts of a base are dealt to a number of readers."""

    def item(self, lane: int, number: int) -> Part | None:
        """Return the part that a reader takes after so many others; None: there is none."""
        ...

    def rest(self, begun: Sequence[int]) -> tuple[int, list[Part]]:
        """Return what is left if each reader has begun so many parts: a frontier, and parts."""
        ...


@dataclass(frozen=True)
class WholeDeal:
    """Parts in turn, where nobody knows how many samples they have."""

    base: Base
    lanes: int
    shards: int
    rounds: bool
    """Whether another round follows the last shard."""

    def item(self, lane: int, number: int) -> Part | None:
        part = self.base.at(lane + number * self.lanes)
        return part if self.rounds or part.position < self.shards else None

    def rest(self, begun: Sequence[int]) -> tuple[int, list[Part]]:
        last = max(
            (lane + (count - 1) * self.lanes for lane, count in enumerate(begun) if count > 0),
            default=-1,
        )
        known = len(self.base.parts)
        parts = [
            self.base.at(number)
            for lane, count in enumerate(begun)
            for number in range(lane + count * self.lanes, max(last + 1, known), self.lanes)
        ]
        return self.base.frontier + max(0, last + 1 - known), parts


@dataclass(frozen=True)
class EvenDeal:
    """Parts by their numbers of samples, so that each reader gets as many as it should.

    Each part goes to the reader that has the fewest samples so far. A part that is more than its
    reader still needs is cut, and the rest dealt like the others.
    """

    base: Base
    quotas: tuple[int, ...]
    count_at: Callable[[int], int]
    """The number of samples of the shard at a position."""
    gone_of: Callable[[Part], Sequence[int]]
    """The numbers of samples of a part that have left earlier windows, in order."""
    _dealt: list[list[Part]] = field(init=False, default_factory=list)
    _end: int = field(init=False, default=0)  # how many parts of the base were dealt
    _cut: list[Part] = field(init=False, default_factory=list)  # the last of them, what is left

    def __post_init__(self) -> None:
        dealt: list[list[Part]] = [[] for _ in self.quotas]
        heap = [(0, lane) for lane, quota in enumerate(self.quotas) if quota > 0]
        number = 0
        rest: Part | None = None
        while heap:
            if rest is None:
                rest = with_end(self.base.at(number), self.count_at)
                number += 1
            gone = self.gone_of(rest)
            size = rest.end - rest.begin - len(gone)
            if size == 0:
                rest = None
                continue
            taken, lane = heapq.heappop(heap)
            if size <= self.quotas[lane] - taken:
                dealt[lane].append(rest)
                rest = None
            else:
                size = self.quotas[lane] - taken
                cut = rest.begin + size
                for each in gone:
                    cut += each < cut
                dealt[lane].append(replace(rest, end=cut))
                rest = replace(rest, begin=cut, offset=0, index=-1)
            if taken + size < self.quotas[lane]:
                heapq.heappush(heap, (taken + size, lane))
        object.__setattr__(self, "_dealt", dealt)
        object.__setattr__(self, "_end", number)
        object.__setattr__(self, "_cut", [] if rest is None else [rest])

    def item(self, lane: int, number: int) -> Part | None:
        parts = self._dealt[lane]
        return parts[number] if number < len(parts) else None

    def rest(self, begun: Sequence[int]) -> tuple[int, list[Part]]:
        parts = [
            part for dealt, count in zip(self._dealt, begun, strict=True) for part in dealt[count:]
        ]
        parts += self._cut
        known = len(self.base.parts)
        parts += self.base.parts[self._end :]
        frontier = self.base.frontier + max(0, self._end - known)
        # Whole shards at the end were touched by nobody.
        touched = {
            part.position
            for dealt, count in zip(self._dealt, begun, strict=True)
            for part in dealt[:count]
        }
        by_position: dict[int, list[Part]] = {}
        for part in parts:
            by_position.setdefault(part.position, []).append(part)
        while frontier - 1 not in touched and frontier - 1 >= self.base.frontier:
            frontier -= 1
            by_position.pop(frontier, None)
        return frontier, [part for each in by_position.values() for part in each]


def with_end(part: Part, count_at: Callable[[int], int]) -> Part:
    """Return the part with its end in numbers."""
    return replace(part, end=count_at(part.position)) if part.end < 0 else part


def left_over(deal: Deal, base: Base, readers: Sequence[tuple[int, int, Sequence[Part]]]) -> Base:
    """Return what is left for all, where each reader has yielded, begun, and still has parts.

    `readers` has, of each reader: how many samples it has yielded, how many parts it has begun, and
    what it still has of these.
    """
    frontier, parts = deal.rest([begun for _, begun, _ in readers])
    parts += [part for _, _, has in readers for part in has]
    parts.sort(key=lambda part: (part.position, part.begin))
    left = base.left
    if left >= 0:
        left = max(0, left - sum(yielded for yielded, _, _ in readers))
    # Their places in a window that is no more mean nothing to the next one.
    return Base(frontier, tuple(replace(part, index=-1) for part in parts), left)


def shares(total: int, lanes: int) -> tuple[int, ...]:
    """Return how many of `total` samples each reader yields, if they take turns."""
    return tuple(len(range(lane, total, lanes)) for lane in range(lanes))


def readers_of(states: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the states of streams in a structure, such as those of all ranks' DataLoaders."""
    if isinstance(states, Mapping):
        if {"lane", "lanes", "base"} <= states.keys():
            yield states
            return
        states = list(states.values())
    if isinstance(states, Sequence) and not isinstance(states, str | bytes):
        for each in states:
            yield from readers_of(each)


def require_all(lanes: Sequence[int], of: int) -> None:
    """Check that the states are those of all readers, each once."""
    missing = sorted(set(range(of)) - set(lanes))
    if missing or len(lanes) != of:
        raise InvalidArgumentError(
            f"there are states of {len(lanes)} readers, and there were {of}"
            + (f"; that of reader {missing[0]} is missing" if missing else "")
            + ": give the states of all workers of all ranks"
        )
