"""Which save to one place came last, in this process.

Across processes the generation decides: a commit replaces the very generation that its save has
seen. Within a process we know more: of two saves that overlap, which was started later.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace._errors import PreconditionFailedError

__all__ = ["Turn", "commit", "take_turn"]

# The clock is the machine's: a save that is staged here and written by a process that we started
# compares with those of that process.
Turn = tuple[int, int]

_count = itertools.count()


def take_turn() -> Turn:
    """Return a place in the order of saves: later calls get greater ones."""
    return time.monotonic_ns(), next(_count)


@dataclass
class _Committed:
    turn: Turn
    at: Turn
    """When it was committed."""
    generation: str
    replaced: set[str] = field(default_factory=set)
    names: frozenset[str] = frozenset()


@dataclass
class _Place:
    """One URL that is committed to. Its lock is held while a commit is written."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    """Threads that hold the lock, or wait for it."""
    last: _Committed | None = None


_lock = threading.Lock()  # of the table, never held over a write
_places: dict[str, _Place] = {}
_REMEMBERED = 64  # places, the last ones that were saved to


def _after_fork_in_child() -> None:
    global _lock
    # A thread that does not exist here may hold the old ones.
    _lock = threading.Lock()
    for place in _places.values():
        place.lock, place.users = threading.Lock(), 0


os.register_at_fork(after_in_child=_after_fork_in_child)


@contextmanager
def _alone_at(url: str) -> Iterator[_Place]:
    """Wait until nobody else commits to `url`; other places go on meanwhile."""
    with _lock:
        place = _places.setdefault(url, _Place())
        place.users += 1
    try:
        with place.lock:
            yield place
    finally:
        with _lock:
            place.users -= 1
            _places[url] = _places.pop(url)  # the one that was used last
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
        seen_generation: what was there when the save began; "absent" for nothing.
        seen_at: when it was there.
        names: the data files of this save.
        write: replaces the generation that it is given, and returns the new one.

    Returns:
        The data files of the save of this process that was replaced, if any.

    Raises:
        PreconditionFailedError: another save was faster, or a later one is complete already.
    """
    with _alone_at(url) as place:
        last = place.last
        if last is not None and last.turn > turn:
            raise PreconditionFailedError(
                f"{url}: a later save of this process is complete already, so this one was dropped"
            )
        # A commit of ours since then; not one that somebody has deleted again before.
        follows = last is not None and last.at > seen_at and seen_generation in last.replaced
        generation = write(last.generation if last and follows else seen_generation)
        # A save that began in between has seen what was just replaced.
        replaced = {*last.replaced, last.generation} if last and follows else set()
        place.last = _Committed(turn, take_turn(), generation, {*replaced, seen_generation}, names)
        return last.names if last and follows else frozenset()
