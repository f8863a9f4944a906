"""Samples of shards on their way, in windows, where nobody knows how many there are."""

from __future__ import annotations

import logging
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from headrace import _engine
from headrace._base.errors import HeadraceError
from headrace.torch._part_stream import Start
from headrace.torch._skipping import Skipping
from headrace.torch._whole_shards import Begun, Rest

__all__ = ["ShardWindows", "WholeReader", "Window"]

_logger = logging.getLogger("headrace")
_NOTHING = Begun(())
_BESIDE = 16  # samples that are taken in at the same time


class _Read(NamedTuple):
    """A sample, its shard and its number there, and where its headers begin."""

    shard: int
    number: int
    offset: int
    seed: int
    fields: dict[str, Any]


class Window:
    """Samples that are shuffled together, or that follow each other in one shard.

    Args:
        samples: those that are left, in the order in which they are yielded; None: one that could
            be read once, and cannot be read again.
        begun: where all of them are, and how many were yielded, if they are shuffled.
        behind: what is left of the shard of the last one.
    """

    def __init__(
        self,
        samples: Iterable[_Read | None] = (),
        begun: Begun = _NOTHING,
        behind: Rest | None = None,
    ) -> None:
        self._samples = list(samples)
        self._samples.reverse()
        self._begun, self._done, self._behind = begun, begun.done, behind
        self._pass_over()

    def first(self) -> _Read | None:
        """Return the next sample; None: there is none."""
        return self._samples[-1] if self._samples else None

    def leave(self) -> None:
        """Count the next sample as yielded."""
        self._samples.pop()
        if self._done >= 0:
            self._done += 1
            self._pass_over()

    def _pass_over(self) -> None:
        while self._samples and self._samples[-1] is None:
            self._samples.pop()
            self._done += 1

    @property
    def done(self) -> int:
        """How many of its samples were yielded, if they are shuffled."""
        return max(0, self._done)

    def __len__(self) -> int:
        return len(self._samples)

    def left(self) -> Iterator[Begun]:
        """Yield what is left of it, and of the shard of the last sample."""
        following = self.first()
        if following is not None and self._done < 0:
            place = {"begin": following.number, "offset": following.offset}
            yield Begun((self._begun.rests[0]._replace(**place),))
            return
        if following is not None:
            yield self._begun._replace(done=self._done)
        if self._behind is not None:
            yield Begun((self._behind,))

    def clear(self) -> None:
        """Let go of all samples; where they are remains known."""
        self._samples = [each and each._replace(fields={}) for each in self._samples]


class WholeReader:
    """What one reader has yielded of its share, and where it is."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.yielded, self.begun, self.skipped = start.yielded, start.begun, start.skipped
        self.window = Window()
        self.waiting = start.rests
        """What the state had begun, and the reader has not gone on with."""

    def now(self) -> Start:
        """Return where a reader begins that is to continue from here."""
        return replace(
            self.start,
            yielded=self.yielded,
            begun=self.begun,
            rests=(*self.window.left(), *self.waiting),
            skipped=self.skipped,
        )


class _Opened(NamedTuple):
    begun: Begun
    begins_pass: bool
    """Whether it is the first shard of a pass; a window ends before that."""
    reads: list[_engine.ShardRead | None]
    """Of each of its rests; None: it has no samples."""


class ShardWindows:
    """The windows of a reader, of which the next one is read while one is yielded.

    Args:
        reader: where it begins.
        taken: returns what it takes after so many others.
        begins_pass: returns whether it begins a pass of all shards with that.
        open_rest: begins to read; None if there are no samples.
        ahead: how many shards are opened ahead.
        size: of a window; up to 1: samples stay in their order.
        seed_of: returns the seed of a window in an epoch, given where it begins.
        rule: which errors are left out.
        shards: how many there are; if none of them has a sample, that is the end.
    """

    def __init__(
        self,
        reader: WholeReader,
        taken: Callable[[int], Begun | None],
        begins_pass: Callable[[int], bool],
        open_rest: Callable[[Rest], _engine.ShardRead | None],
        ahead: int,
        size: int,
        seed_of: Callable[[Rest, int], int],
        rule: Skipping,
        shards: int,
    ) -> None:
        self._reader, self._taken, self._begins_pass = reader, taken, begins_pass
        self._open_rest = open_rest
        self._ahead, self._size, self._seed_of = ahead, size, seed_of
        self._rule, self._shards = rule, shards
        self._begun = self._next = reader.begun
        self._to_open, self._waiting = deque(reader.waiting), deque(reader.waiting)
        self._opened: deque[_Opened] = deque()
        # The first of these, if it is being read: where its next sample is, the samples that are in
        # no window yet, and the place behind the last of these.
        self._at: Rest | None = None
        self._taken_in: deque[_Read] = deque()
        self._behind = 0, 0
        # The next window.
        self._samples: list[_Read] = []
        self._rests: list[Rest] = []
        self._error: HeadraceError | None = None
        self._lost: list[tuple[HeadraceError, Rest]] = []
        # How many samples the next windows may have together; how many shards were read to their
        # ends, and how many samples those had.
        self._most = self._ended = self._ended_samples = 0
        # Shards of which all was read since the latest sample, and that had none.
        self._empty = set[int]()
        self.broken: HeadraceError | None = None
        """Why the latest shard could not be read, if no sample has come since."""

    def next(self, most: int) -> Window:
        """Wait for the reader's next window; empty: there is none.

        Args:
            most: how many samples a new one may have. One that a state had begun has those that it
                had, of which the reader may leave some.

        Raises:
            HeadraceError: a shard cannot be read, and all samples before that were in windows.
        """
        self._most = most
        while True:
            if self._at is None and not self._samples and self._opens() and self._is_window():
                if window := self._restored(self._enter()):
                    return window
                continue  # none of its samples can be read any more
            self.fill(min(most, self._size) if self._size > 1 else most)
            if self._samples or self._error is not None or not self._is_window():
                break
        samples, begun = self._samples, Begun(tuple(self._rests))
        self._samples, self._rests = [], []
        if not samples and self._error is not None:
            raise self._error
        if samples and self._size > 1:
            begun = begun._replace(done=0, epoch=self._reader.start.epoch)
            samples = _shuffled(samples, self._seed_of(begun.rests[0], begun.epoch))
        return Window(samples, begun, self._at)

    def fill_beside(self, window: Window, most: int) -> None:
        """Take in as many samples of the next window as this one has yielded, every now and then.

        `most` is how many samples the reader may still yield, with those of this window.
        """
        if self._size > 1 and window.done % _BESIDE == 0:
            self._most = most - len(window)
            self.fill(min(window.done, self._size, self._most))

    def take_lost(self) -> list[tuple[HeadraceError, Rest]]:
        """Return what was left out before the end of the latest window, and why."""
        lost, self._lost = self._lost, []
        return lost

    def publish(self, window: Window) -> None:
        """Let the reader be where this window begins."""
        reader = self._reader
        reader.window, reader.begun, reader.waiting = window, self._begun, tuple(self._waiting)

    def fill(self, count: int) -> None:
        """Take in samples of the next window until it has so many, or until it can have no more."""
        while len(self._samples) < count and self._error is None:
            if self._taken_in:
                self._take_in(count)
                if self._size <= 1:
                    return
            elif self._at is not None:
                self._read_on(self._at)
            elif len(self._empty) < self._shards and self._opens() and self._goes_on():
                self._at = self._enter().begun.rests[0]
            else:
                return

    def close(self) -> None:
        """Cancel all reads, and wait for their end."""
        reads = [read for each in self._opened for read in each.reads if read is not None]
        for read in reads:
            read.cancel()
        for read in reads:
            read.close()

    def _opens(self) -> bool:
        """Open shards ahead, as many as may be needed; return whether there are any."""
        needed = 1 + self._ahead
        if self._ended:
            mean = max(1.0, self._ended_samples / self._ended)
            needed = min(needed, math.ceil((self._most - len(self._samples)) / mean))
        while len(self._opened) < max(1, needed):
            begins_pass = False
            if self._to_open:
                begun: Begun | None = self._to_open.popleft()
            else:
                begun, begins_pass = self._taken(self._next), self._begins_pass(self._next)
                self._next += 1
            if begun is None:
                break
            reads = [self._open_rest(rest) for rest in begun.rests]
            self._opened.append(_Opened(begun, begins_pass, reads))
        return len(self._opened) > 0

    def _is_window(self) -> bool:
        return len(self._opened) > 0 and self._opened[0].begun.done >= 0

    def _goes_on(self) -> bool:
        """Return whether the next window goes on with the first of the open ones."""
        ends = self._is_window() or (self._opened[0].begins_pass and len(self._samples) > 0)
        return not ends

    def _enter(self) -> _Opened:
        """Count the first of the open ones as begun."""
        if self._waiting:
            self._waiting.popleft()
        else:
            self._begun += 1
        return self._opened[0]

    def _restored(self, opened: _Opened) -> Window:
        """Return a window that a state had begun, as it was."""
        begun, handled = opened.begun, sys.exception()
        samples: list[_Read | None] = []
        for rest, read in zip(begun.rests, opened.reads, strict=True):
            found: list[_Read | None] = [None] * (rest.end - rest.begin)
            try:
                while read is not None and (some := read.take()):
                    for number, _, seed, fields in some:
                        found[number - rest.begin] = _Read(rest.shard, number, 0, seed, fields)
            except HeadraceError as error:
                if None in found:  # else it is about what is behind the window
                    if not self._rule.may_skip(error, handled):
                        raise
                    begin = rest.begin + found.index(None)
                    self._lost.append((error, rest._replace(begin=begin)))
                    self.broken = error
            samples += found
        self._close_first()
        left = _shuffled(samples, self._seed_of(begun.rests[0], begun.epoch))[begun.done :]
        window = Window(left, begun)
        if window:
            self._come()
        return window

    def _read_on(self, at: Rest) -> None:
        """Take samples of the shard that is being read, or end it."""
        [read] = self._opened[0].reads
        handled = sys.exception()
        try:
            samples = read.take() if read is not None else []
        except HeadraceError as error:
            if not self._rule.may_skip(error, handled):
                self._error = error
                return
            self._lost.append((error, at))
            self.broken = error
            samples = []
        else:
            for warning in read.warnings() if read is not None and not samples else ():
                _logger.warning("%s", warning)
        if not samples:
            if at.begin == 0:
                self._empty.add(at.shard)
            self._ended += 1
            self._ended_samples += at.begin
            self._at = None
            self._close_first()
            return
        self._come()
        number, offset = at.begin, at.offset
        for number, behind, seed, fields in samples:
            self._taken_in.append(_Read(at.shard, number, offset, seed, fields))
            offset = behind
        self._behind = number + 1, offset

    def _take_in(self, count: int) -> None:
        """Move samples of the shard that is being read into the next window."""
        at, taken = self._at, self._taken_in
        assert at is not None
        if len(taken) <= count - len(self._samples):
            self._samples += taken
            taken.clear()
        else:
            for _ in range(count - len(self._samples)):
                self._samples.append(taken.popleft())
        number, offset = taken[0][1:3] if taken else self._behind
        if self._size <= 1:
            self._rests = [at]
        else:
            last = self._rests[-1] if self._rests else None
            if last is not None and (last.shard, last.end) == (at.shard, at.begin):
                self._rests[-1] = last._replace(end=number)
            else:
                self._rests.append(at._replace(end=number))
        self._at = at._replace(begin=number, offset=offset)

    def _come(self) -> None:
        """Note that samples have come."""
        self.broken = None
        self._empty.clear()

    def _close_first(self) -> None:
        for read in self._opened.popleft().reads:
            if read is not None:
                read.close()


def _shuffled(samples: list[Any], seed: int) -> list[Any]:
    return [
        samples[at] for at in _engine.Order(len(samples), seed, 0, True).indices(0, len(samples))
    ]
