"""What streams have in common: which pass comes next, and which of its readers this is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from torch.utils.data import get_worker_info

from headrace._base.errors import CancelledError, HeadraceError
from headrace._base.options import require
from headrace.torch._arguments import Ranks, seed_or_epoch
from headrace.torch._shared_place import Pass, SharedPlace

__all__ = ["Epochs", "failing", "made_before_fork", "reader_number", "reader_of"]

_MOST_WORKERS = 1024
Start = TypeVar("Start")


class Epochs:
    """A stream whose passes are of epochs, one after the other, in the trainer or its workers."""

    def __init__(self, notes: int = 0) -> None:
        self._shared = SharedPlace(1 + _MOST_WORKERS, notes)
        self._passes = 0  # that began here, or in the trainer process before this worker started
        self._loaded: Any = None  # the place that the trainer process loaded, for one pass
        self._loads = 0
        self._resume: Any = None  # the place that was loaded in this very worker
        self._latest: Any = None  # the reader of the latest iterator; None: of another epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._shared.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass, in workers too, be of this epoch, and those after it follow.

        If `load_state_dict` has led into the middle of this very epoch, the next pass is the rest
        of it.

        Examples:
            >>> stream.set_epoch(epoch)

        Raises:
            InvalidArgumentError: `epoch` is not an integer from 0 to 2^63 - 1.
        """
        epoch = seed_or_epoch("epoch", epoch)
        self._shared.move(epoch)
        self._latest = None
        if self._resume is not None and self._resume.epoch != epoch:
            self._resume = None

    def _load(self, place: Any) -> None:
        """Let the next pass continue from a place, which has an epoch."""
        self._latest = None
        info = get_worker_info()
        if info is not None:
            self._resume = place  # the other workers have states of their own
            self._shared.move(place.epoch, 1 + info.id)
        else:
            self._loaded, self._loads = place, self._shared.load(place.epoch)

    def _next_pass(self) -> tuple[Pass, Any]:
        """Return what the next pass is here, and the loaded place that it continues from, or None.

        Nothing changes.
        """
        info = get_worker_info()
        if info is None:
            now = self._shared.next_pass(hash((os.getpid(), self._passes)), 0)
        else:
            workers = info.num_workers
            require(workers <= _MOST_WORKERS, f"there are {workers} workers; {_MOST_WORKERS} work")
            # A DataLoader draws a seed whenever it starts workers, who add their numbers to it.
            key = hash((info.seed - info.id, workers, self._passes))
            now = self._shared.next_pass(key, 1 + info.id)
        if self._resume is not None:
            return now, self._resume
        if not now.is_loaded:
            return now, None
        require(
            self._loads == self._shared.loads,
            "a state was loaded after this worker was started: make a new DataLoader, which starts "
            "new workers",
        )
        return now, self._loaded

    def _begun(self, start_at: Callable[[int, Any], Start]) -> Start:
        """Begin the next pass, and return where, by its epoch and the loaded place."""
        while True:
            now, loaded = self._next_pass()
            start = start_at(now.epoch, loaded)
            if self._shared.begin(now):
                self._passes += 1
                self._resume = None
                return start


def made_before_fork() -> CancelledError:
    """Return the error of an iterator that another process made."""
    return CancelledError(
        "this iterator was made before a fork, in the parent process; make one here"
    )


def failing(error: HeadraceError) -> Iterator[Any]:
    """Return an iterator that raises the error; of a persistent worker, torch would lose it before.

    Raises:
        HeadraceError: the error, at once, if this is no worker.
    """
    if get_worker_info() is None:
        raise error
    return _raised(error)


def _raised(error: HeadraceError) -> Iterator[Any]:
    yield from ()
    raise error


def reader_number() -> int:
    """Return by which number a `SharedPlace` knows this process."""
    info = get_worker_info()
    return 0 if info is None else 1 + info.id


def reader_of(ranks: Ranks) -> tuple[int, int]:
    """Return which reader this is, of how many.

    The readers take the positions of an order in turn: first one worker of each rank, then the next
    worker of each rank, and so on. If the ranks share the samples evenly, worker n has the same
    number of them on every rank.
    """
    rank, world_size = ranks.now()
    info = get_worker_info()
    if info is None:
        return rank, world_size
    return info.id * world_size + rank, info.num_workers * world_size
