"""Samples of one reader of a stream on their way: shuffled within a window, and counted."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Any

from headrace.torch._shard_work import Part

__all__ = ["OpenPart", "Window", "has_left", "may_have_left"]

_FRACTION_BITS = 20
_SEED_BITS = 63
_SPREAD = 0x9E3779B97F4A7C15  # so that a sample's place says nothing about its random numbers

Fields = dict[str, Any]


def key_of(index: int, seed: int, size: int) -> int:
    """Return by what a sample is sorted in a window of `size`."""
    fraction = (seed * _SPREAD) & ((1 << _SEED_BITS) - 1)
    return (index << _FRACTION_BITS) + (fraction * size >> _SEED_BITS - _FRACTION_BITS)


def has_left(part: Part, number: int, seed: int, size: int) -> bool:
    """Return whether this sample of a part left an earlier window."""
    for begin, first, key, last in part.done:
        index = first + number - begin
        if number >= begin and (key_of(index, seed, size), index) <= (key, last):
            return True
    return False


def may_have_left(part: Part) -> int:
    """Return the end of the numbers of samples that may have left an earlier window."""
    return max(
        (begin + (key >> _FRACTION_BITS) - first + 1 for begin, first, key, _ in part.done),
        default=part.begin,
    )


class OpenPart:
    """A part that has begun, and which of its samples are still to be yielded."""

    __slots__ = ("held", "is_read", "next", "offset", "part", "shift")

    def __init__(self, part: Part, index: int) -> None:
        self.part = part
        self.next, self.offset = part.begin, part.offset  # of the sample that is read next
        self.shift = index - part.begin
        self.held: deque[_Held] = deque()  # in the window, or yielded after an earlier one
        self.is_read = False
        """Whether it has no more samples than those that are held."""

    @property
    def is_done(self) -> bool:
        return self.is_read and not self.held


class _Held:
    __slots__ = ("fields", "number", "offset", "opened", "seed", "yielded")

    def __init__(
        self, opened: OpenPart, number: int, offset: int, seed: int, fields: Fields
    ) -> None:
        self.opened, self.number, self.offset = opened, number, offset
        self.seed, self.fields = seed, fields
        self.yielded = False


class Window:
    """Gives samples another order than that in which they come.

    The sample with index i leaves in the order of ``i + random * size``, where the random number
    depends on the sample alone. So it leaves at most `size` samples earlier or later than it came,
    half of `size` are held on average, and after a stop it is known which samples have left: those
    up to the last one's key. A state needs this key alone, and the place of the first sample that
    is still held.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[int, int, _Held]] = []
        self.parts: list[OpenPart] = []
        """Those of which samples are still to be yielded, in their order."""
        self.next_index = 0
        self._last = (-1, -1)  # key and index of the last one that left

    def open(self, part: Part) -> OpenPart:
        """Begin a part; its samples come after those of all others."""
        index = self.next_index if part.index < 0 else part.index
        opened = OpenPart(part, index)
        self.parts.append(opened)
        return opened

    def end(self, opened: OpenPart) -> None:
        """Say that there are no more samples of a part."""
        opened.is_read = True
        self._forget_done()

    def add(
        self, opened: OpenPart, number: int, next_offset: int, seed: int, fields: Fields
    ) -> None:
        """Take in the next sample of a part."""
        offset, opened.offset, opened.next = opened.offset, next_offset, number + 1
        index = opened.shift + number
        self.next_index = index + 1
        if has_left(opened.part, number, seed, self._size):
            return
        held = _Held(opened, number, offset, seed, fields)
        opened.held.append(held)
        heapq.heappush(self._heap, (key_of(index, seed, self._size), index, held))

    def ready(self, *, ended: bool) -> Iterator[_Held]:
        """Yield the samples whose turn has come; `ended`: no more will come."""
        heap = self._heap
        limit = self.next_index << _FRACTION_BITS
        while heap and (ended or heap[0][0] < limit):
            yield heap[0][2]

    def leave(self, held: _Held) -> None:
        """Count the sample that `ready` has yielded last as gone."""
        key, index, _ = heapq.heappop(self._heap)
        self._last = (key, index)
        held.yielded = True
        of_part = held.opened.held
        while of_part and of_part[0].yielded:
            of_part.popleft()
        if not of_part and held.opened.is_read:
            self._forget_done()

    def drop(self) -> None:
        """Let go of all samples; where they are remains known."""
        for _, _, held in self._heap:
            held.fields = {}

    def left(self) -> list[Part]:
        """Return the parts of which samples are still to be yielded, from the first of these on."""
        return [self._rest(opened) for opened in self.parts]

    def _rest(self, opened: OpenPart) -> Part:
        part = opened.part
        number, offset = opened.next, opened.offset
        if opened.held:
            number, offset = opened.held[0].number, opened.held[0].offset
        index = opened.shift + number
        # Samples that have left have keys up to the last one's, and no key is below its index.
        done = tuple(
            each for each in part.done if each[1] + number - each[0] <= each[2] >> _FRACTION_BITS
        )
        key, last = self._last
        if opened.held and index <= key >> _FRACTION_BITS:
            done += ((number, index, key, last),)
        return Part(part.position, number, offset, part.end, index, done)

    def _forget_done(self) -> None:
        self.parts = [each for each in self.parts if not each.is_done]
