"""Which of this process's saves to one place was started last.

Across processes the generation decides: a commit replaces the generation that its save has seen.
Within a process we know more: which of two overlapping saves was started later.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace._contexts import context
from headrace._errors import PreconditionFailedError

__all__ = ["Turn", "commit", "take_turn"]

# The clock is the machine's: a save staged here and written by a child process compares with saves
# of that process.
Turn = tuple[int, int]

_count = itertools.count()


def take_turn() -> Turn:
    """Return a place in the order of saves; later calls return greater ones."""
    return time.monotonic_ns(), next(_count)


@dataclass
class _Committed:
    turn: Turn
    at: Turn
    """The time of the commit."""
    generation: str
    replaced: set[str] = field(default_factory=set)
    names: frozenset[str] = frozenset()


@dataclass
class _Place:
    """One URL of commits. Its lock is held while a commit is written."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    """The number of threads that hold the lock or wait for it."""
    last: _Committed | None = None


_lock = threading.Lock()  # protects the table; never held during a write
_places: dict[str, _Place] = {}
_REMEMBERED = 64  # the number of places to remember, the latest ones


def _after_fork_in_child() -> None:
    global _lock
    # The old locks may be held by threads that do not exist here.
    _lock = threading.Lock()
    for place in _places.values():
        place.lock, place.users = threading.Lock(), 0


os.register_at_fork(after_in_child=_after_fork_in_child)


@context
def _alone_at(url: str) -> Iterator[_Place]:
    """Wait until nobody else commits to `url`; commits to other places continue."""
    with _lock:
        place = _places.setdefault(url, _Place())
        place.users += 1
    try:
        with place.lock:
            yield place
    finally:
        with _lock:
            place.users -= 1
            _places[url] = _places.pop(url)  # the latest
            unused = [each for each, its in _places.items() if its.users <= 0]
            for each in unused[: max(0, len(_places) - _REMEMBERED)]:
                del _places[each]


def commit(
    url: str,
    turn: Turn,
    seen_generation: str,
    seen_at: Turn,
    names: frozenset[str],
    write: Callable[[str], str],
) -> frozenset[str]:
    """Replace the commit object at `url`, unless a later save of this process has done so.

    Args:
        seen_generation: the generation found when the save began; "absent" for none.
        seen_at: the time at which it was found.
        names: the data files of this save.
        write: replaces the given generation and returns the new one.

    Returns:
        The data files of this process's save that was replaced, if any.

    Raises:
        PreconditionFailedError: another save was faster, or a later one is already complete.
    """
    with _alone_at(url) as place:
        last = place.last
        if last is not None and last.turn > turn:
            raise PreconditionFailedError(
                f"{url}: a later save of this process is complete already, so this one was dropped"
            )
        # Whether this process has committed since, over the generation that this save saw.
        follows = last is not None and last.at > seen_at and seen_generation in last.replaced
        generation = write(last.generation if last and follows else seen_generation)
        # A save that began in between has seen the generation just replaced.
        replaced = {*last.replaced, last.generation} if last and follows else set()
        place.last = _Committed(turn, take_turn(), generation, {*replaced, seen_generation}, names)
        return last.names if last and follows else frozenset()
