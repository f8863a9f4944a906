"""Shards whose numbers of samples nobody knows: who reads which, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace._base.options import require

__all__ = ["Begun", "Rest", "Whole"]

_MOST_AHEAD = 1 << 22  # shards that a reader has begun more than another, in the same steps
Order = Callable[[int], Sequence[int]]
"""Returns the shards in the order with a number."""
Span = tuple[int, int]


class Rest(NamedTuple):
    """The samples ``[begin, end)`` of a shard."""

    shard: int
    begin: int = 0
    offset: int = 0
    """Where the headers of the first sample begin in a plain tar; 0: not known."""
    end: int = -1
    """-1: all that there are."""


class Begun(NamedTuple):
    """What is left of a shard; or a window, whose samples are shuffled."""

    rests: tuple[Rest, ...]
    done: int = -1
    """How many samples of the window were yielded; -1: this is none, but one shard."""
    epoch: int = 0
    """That shuffled the window."""

    def to_state(self) -> list[Any]:
        return [self.done, self.epoch, *(list(rest) for rest in self.rests)]

    @classmethod
    def from_state(cls, state: Any, shards: int, window: int) -> Begun:
        """Return what `to_state` gave, of so many shards and windows of so many samples."""
        good = isinstance(state, Sequence) and len(state) > 2
        good = good and _is_number(state[0], -1) and _is_number(state[1])
        for rest in state[2:] if good else ():
            good = good and isinstance(rest, Sequence) and len(rest) == len(Rest._fields)
            good = good and all(_is_number(each) for each in rest[:3]) and _is_number(rest[3], -1)
            good = good and rest[0] < shards and (rest[3] < 0) == (state[0] < 0)
        if good and state[0] < 0:
            good = len(state) == 3
        elif good:
            counts = [end - begin for _, begin, _, end in state[2:]]
            good = min(counts) > 0 and state[0] <= sum(counts) <= window
        require(good, f"the state has {state!r} for what is left of a shard, and that is nothing")
        return cls(tuple(Rest(*rest) for rest in state[2:]), state[0], state[1])


@dataclass(frozen=True)
class Whole:
    """What is left of an epoch for all readers: shards that were begun, and whole ones.

    Readers take what is begun, and the shards of `passes`, in turn. If an epoch has so many samples
    (``epoch_samples``), each of them then goes through all shards again and again. The shards of an
    order are in as many groups as there are readers; a reader begins with a group of its own, and
    goes on with those of the others, until it has had each shard once. Then the next order follows.
    """

    begun: tuple[Begun, ...] = ()
    passes: tuple[tuple[int, tuple[Span, ...]], ...] = ()
    """Numbers of orders, and spans of places in them."""
    following: int = -1
    """The number of the order that follows, and others after it; -1: none does."""
    left: int = -1
    """How many samples are left of ``epoch_samples``; -1: as many as there are."""

    @property
    def count(self) -> int:
        """How many shards there are but for the orders that follow."""
        spans = (span for _, spans in self.passes for span in spans)
        return len(self.begun) + sum(end - begin for begin, end in spans)

    def taken(self, lane: int, lanes: int, shards: int, number: int, order: Order) -> Begun | None:
        """Return what a reader takes after so many others; None: there is nothing more."""
        place = lane + number * lanes
        if place < len(self.begun):
            return self.begun[place]
        at = place - len(self.begun)
        for turn, spans in self.passes:
            for begin, end in spans:
                if at < end - begin:
                    return Begun((Rest(order(turn)[begin + at]),))
                at -= end - begin
        if self.following < 0:
            return None
        groups = min(lanes, shards)
        passed, at = _following(lane % groups, groups, shards, number - self._dealt(lane, lanes))
        return Begun((Rest(order(self.following + passed // groups)[at]),))

    def begins_pass(self, lane: int, lanes: int, shards: int, number: int) -> bool:
        """Return whether a reader that has taken so many begins to go through all shards."""
        number -= self._dealt(lane, lanes)
        return self.following >= 0 and number >= 0 and number % shards == 0

    def without(self, readers: Sequence[tuple[int, int, Iterable[Begun]]], shards: int) -> Whole:
        """Return what is left if each reader has yielded so many samples and begun so many shards.

        The last one is what it still has of these.
        """
        lanes, counts = len(readers), [begun for _, begun, _ in readers]

        def is_left(place: int) -> bool:
            return place // lanes >= counts[place % lanes]

        begun = [each for _, _, has in readers for each in has]
        begun += [each for place, each in enumerate(self.begun) if is_left(place)]
        passes, place = [], len(self.begun)
        for turn, spans in self.passes:
            left = []
            for begin, end in spans:
                left += [at for at in range(begin, end) if is_left(place + at - begin)]
                place += end - begin
            passes.append((turn, left))
        following = self.following
        if following >= 0:
            groups = min(lanes, shards)
            further = [max(0, counts[n] - self._dealt(n, lanes)) for n in range(lanes)]
            heads = [max(further[group::groups]) for group in range(groups)]
            require(
                max(heads) - min(heads) <= _MOST_AHEAD,
                f"the states are of readers of which one has begun {max(heads)} shards and another "
                f"{min(heads)}: they are not of one moment",
            )
            last = max(
                _following(group, groups, shards, head - 1)[0] if head else -1
                for group, head in enumerate(heads)
            )
            # All shards have come equally often when what others have begun is read, too.
            missing: dict[int, list[int]] = {}
            for group, head in enumerate(heads):
                number = head
                while (cell := _following(group, groups, shards, number))[0] <= last:
                    missing.setdefault(cell[0], []).append(cell[1])
                    number += 1
            passes += [(following + each // groups, missing[each]) for each in sorted(missing)]
            following += -(-(last + 1) // groups)
        begun.sort(key=lambda each: (each.done < 0, each.rests))
        samples = self.left
        if samples >= 0:
            samples = max(0, samples - sum(yielded for yielded, _, _ in readers))
        spans_of = tuple((turn, _spans(left)) for turn, left in passes if left)
        return Whole(tuple(begun), spans_of, following, samples)

    def _dealt(self, lane: int, lanes: int) -> int:
        return len(range(lane, self.count, lanes))

    def to_state(self) -> dict[str, Any]:
        return {
            "begun": [each.to_state() for each in self.begun],
            "passes": [[turn, *(list(span) for span in spans)] for turn, spans in self.passes],
            "following": self.following,
            "left": self.left,
        }

    @classmethod
    def from_state(cls, state: Any, shards: int, window: int) -> Whole:
        """Return what `to_state` gave, of so many shards and windows of so many samples."""
        good = isinstance(state, Mapping) and {"begun", "passes", "following", "left"} <= {*state}
        good = good and all(_is_number(state[name], -1) for name in ("following", "left"))
        good = good and all(isinstance(state[name], Sequence) for name in ("begun", "passes"))
        for each in state["passes"] if good else ():
            good = good and isinstance(each, Sequence) and len(each) > 0 and _is_number(each[0])
            for span in each[1:] if good else ():
                good = good and isinstance(span, Sequence) and len(span) == 2
                good = good and all(map(_is_number, span)) and span[0] < span[1] <= shards
        require(good, f"the state's base is {state!r}, and that is none")
        begun = tuple(Begun.from_state(each, shards, window) for each in state["begun"])
        passes = tuple(
            (turn, tuple((begin, end) for begin, end in spans)) for turn, *spans in state["passes"]
        )
        return cls(begun, passes, state["following"], state["left"])


def _following(group: int, groups: int, shards: int, number: int) -> tuple[int, int]:
    """Return in which pass a reader of this group takes a shard after so many, and its place."""
    turn, number = divmod(number, shards)
    for shift in range(groups):
        own = range((group - shift) % groups, shards, groups)
        if number < len(own):
            return turn * groups + shift, own[number]
        number -= len(own)
    raise AssertionError("all groups together have all shards")


def _spans(places: list[int]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for at in sorted(places):
        if spans and spans[-1][1] == at:
            spans[-1] = spans[-1][0], at + 1
        else:
            spans.append((at, at + 1))
    return tuple(spans)


def _is_number(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value < 1 << 63
