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
from weakref import WeakSet

from headrace._base.contexts import context
from headrace._base.errors import PreconditionFailedError

__all__ = ["Look", "Turn", "begin", "commit", "end", "take_turn"]

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
    replaced: tuple[str, ...] = ()
    """The generations before it, without another process's in between; the last ones."""
    names: frozenset[str] = frozenset()


@dataclass
class _Place:
    """One URL of commits. Its lock is held while a commit is written."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    """The number of threads that hold the lock or wait for it."""
    last: _Committed | None = None


@dataclass(eq=False)
class Look:
    """What a save has found in its folder, before it has written anything itself."""

    folder: str
    names: frozenset[str]
    strangers: frozenset[str] = frozenset()
    """Those of `names` that belong to no save of this process that has not ended."""


_lock = threading.Lock()  # protects the tables; never held during a write
_places: dict[str, _Place] = {}
_under_way: WeakSet[Look] = WeakSet()  # of saves that have not ended
_REMEMBERED = 64  # the number of places, and of generations of one, to remember: the latest


def _after_fork_in_child() -> None:
    global _lock
    # The old locks may be held by threads that do not exist here.
    _lock = threading.Lock()
    _under_way.clear()
    for place in _places.values():
        place.lock, place.users = threading.Lock(), 0


os.register_at_fork(after_in_child=_after_fork_in_child)


def begin(folder: str, names: frozenset[str], url: str, seen_generation: str) -> Look:
    """Remember that a save is under way, which has found objects of these names.

    Args:
        url: where it will commit.
        seen_generation: the generation found there; "absent" for none.
    """
    with _lock:
        # What another save found is not its own, since it writes only afterwards.
        others = [each.names for each in _under_way if each.folder == folder]
        strangers = names.intersection(*others)
        last = _places[url].last if url in _places else None
        if last is not None and last.generation == seen_generation:  # that save has ended
            strangers |= names & last.names
        look = Look(folder, names, strangers)
        _under_way.add(look)
    return look


def end(look: Look) -> None:
    """Forget a save that has ended. One that is never ended is forgotten with its look."""
    with _lock:
        _under_way.discard(look)


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
        expected = last.generation if last and follows else seen_generation
        generation = write(expected)
        # Saves under way may have seen any of them.
        before = last.replaced if last and last.generation == expected else ()
        replaced = (*before, expected)[-_REMEMBERED:]
        place.last = _Committed(turn, take_turn(), generation, replaced, names)
        return last.names if last and follows else frozenset()
