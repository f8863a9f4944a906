"""The epochs of a dataset, shared by a trainer process and its DataLoader workers."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from headrace import _engine
from headrace._base.errors import ResourceError

__all__ = ["Pass", "SharedPlace"]

# The cells: the epoch that was named last; the passes since, as `_packed`; the messages that were
# given already, as bits; how many states were loaded; the epoch of the last of them, plus 1, until
# a pass has continued from it. Behind them, for the trainer and each worker, the numbers of the two
# latest passes that it has begun; and behind these, what each has noted.
_EPOCH, _PASSES, _TOLD, _LOADS, _LOADED, _LATEST = range(6)
_KEY_BITS = 20
_MOST_KEY = (1 << _KEY_BITS) - 1
_NUMBER_BITS = 63 - 2 * _KEY_BITS
_MOST_NUMBER = (1 << _NUMBER_BITS) - 1
_MOST_EPOCH = (1 << 63) - 1


class Pass(NamedTuple):
    """A pass that a process is about to begin; see `SharedPlace.next_pass`."""

    epoch: int
    is_loaded: bool
    """Whether it continues from the state that was loaded last."""
    reader: int
    latest: int
    passes: tuple[int, int]
    """What is noted of passes before and after it."""


class SharedPlace:
    """The epoch of each pass, and whether a pass continues from a loaded state.

    Each pass is of the epoch behind that of the one before; the first one since `move` or `load` is
    of the epoch named there.

    The place lies in shared memory: workers that are running see it change. A trainer process
    shares it with its own workers only. Any other process that receives it, by a fork or as an
    argument, continues with a copy.

    The workers of a DataLoader begin a pass one by one, and nobody tells them which of them belong
    together. They have a *key* in common. The first worker with a new key begins the next pass, and
    the others join it. Which pass is under way is one number, which is exchanged in one step. It
    also has the key of the pass before, for two iterators of a
    DataLoader at the same time, whose workers begin by turns. A worker that has begun that pass
    already begins another one, even by the same key, which a seed of torch's generator can bring
    about.

    The memory is shared, which takes a descriptor, when the first process is started; with torch's
    pickle for processes, torch does it.

    Args:
        readers: how many processes may begin passes: the trainer, and the workers of a DataLoader.
        notes: how many numbers each of them may leave for whoever is this reader in a later pass.
    """

    def __init__(self, readers: int = 0, notes: int = 0) -> None:
        self._readers, self._notes = readers, notes
        size = _LATEST + readers * (1 + notes)
        self._own(torch.zeros(size, dtype=torch.int64, device="cpu"))

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        named, passes = self.own()[[_EPOCH, _PASSES]].tolist()
        return int(named + _unpacked(passes)[2]) & _MOST_EPOCH

    @property
    def loads(self) -> int:
        """How many states were loaded."""
        return int(self.own()[_LOADS].item())

    def move(self, epoch: int, reader: int | None = None) -> None:
        """Let the next pass be of this epoch, or the rest of it, if a state of it was loaded.

        Args:
            epoch: the epoch.
            reader: the worker that goes there by itself; others may have begun already.
        """
        cells = self.own()
        named, passes, _, _, loaded = cells[:_LATEST].tolist()
        if passes and loaded == named + 1:
            cells[_LOADED] = 0  # a pass has continued from it
        cells[_EPOCH], cells[_PASSES] = epoch, 0
        if reader is None:
            cells[_LATEST : _LATEST + self._readers] = 0
        else:
            cells[_LATEST + reader] = 0

    def load(self, epoch: int) -> int:
        """Let the next pass continue from a state of this epoch; return how many were loaded."""
        self.move(epoch)
        cells = self.own()
        cells[_LOADS] += 1
        cells[_LOADED] = epoch + 1
        return self.loads

    def next_pass(self, key: int, reader: int) -> Pass:
        """Return the pass that a process is to begin now; nothing changes before `begin`.

        Args:
            key: what the processes that begin this pass have in common, as a hash.
            reader: which of them this is: 0 is the trainer, 1 its first worker.
        """
        cells = self.own()
        named, passes, _, _, loaded = cells[:_LATEST].tolist()
        latest = int(cells[_LATEST + reader].item())
        key = key % _MOST_KEY + 1
        current, before, number = _unpacked(passes)
        joined, after = None, passes
        if key == current:
            joined = number
        elif key == before:
            joined = number - 1
        if joined is None or joined in (latest & _MOST_NUMBER, latest >> _NUMBER_BITS):
            joined = number = min(number + 1, _MOST_NUMBER)
            after = _packed(key, current, number)
        return Pass(
            epoch=(named + joined - 1) & _MOST_EPOCH,
            is_loaded=joined == 1 and loaded == named + 1,
            reader=reader,
            latest=(latest & _MOST_NUMBER) << _NUMBER_BITS | joined,
            passes=(passes, after),
        )

    def begin(self, now: Pass) -> bool:
        """Begin a pass that `next_pass` has just returned.

        False if another one has begun since: then nothing has changed, and another pass is next.
        """
        cells = self.own()
        memory: Any = cells.numpy()
        if not _engine.exchange_if_equal(memory, _PASSES, *now.passes):
            return False
        cells[_LATEST + now.reader] = now.latest
        return True

    def note(self, reader: int, numbers: Sequence[int]) -> None:
        """Leave numbers for whoever is this reader in a later pass."""
        self._notes_of(reader)[:] = torch.tensor(numbers, device="cpu")

    def noted(self, reader: int) -> list[int]:
        """Return the numbers that this reader has left; zeros: none."""
        return [int(each) for each in self._notes_of(reader).tolist()]

    def _notes_of(self, reader: int) -> torch.Tensor:
        begin = _LATEST + self._readers + reader * self._notes
        return self.own()[begin : begin + self._notes]

    def is_first_to(self, what: int) -> bool:
        """Set the bit `what`, and return whether nobody who shares this place had set it before."""
        cells = self.own()
        done = int(cells[_TOLD].item())
        cells[_TOLD] = done | what
        return not done & what

    def own(self) -> torch.Tensor:
        """Return the cells, copied first if they are another process's and this is no worker."""
        # A worker unpickles its dataset before it knows that it is a worker, so this cannot be
        # decided any earlier.
        if self._owner != os.getpid():
            if get_worker_info() is None:
                self._own(self._cells.clone())
            elif not self._cells.is_shared():  # type: ignore[no-untyped-call]
                raise ResourceError(
                    "this DataLoader worker shares no memory with its trainer process, which could "
                    "not make any when it started the worker: raise its limit of open files "
                    "(ulimit -n)"
                )
        return self._cells

    def share(self) -> None:
        """Put the place where processes that are forked from now on see it."""
        self.own().share_memory_()  # type: ignore[no-untyped-call]

    def _own(self, cells: torch.Tensor) -> None:
        self._cells = cells
        self._owner = os.getpid()
        _places.add(self)

    def __getstate__(self) -> dict[str, Any]:
        self.own()
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _places.add(self)
        if not self._cells.is_shared():  # type: ignore[no-untyped-call]
            self._own(self._cells)  # made by copy.deepcopy, or by a pickle outside multiprocessing


def _packed(key: int, before: int, number: int) -> int:
    """Return the keys of a pass and of the one before, and the pass's number, as one number."""
    return (number << 2 * _KEY_BITS) | (before << _KEY_BITS) | key


def _unpacked(passes: int) -> tuple[int, int, int]:
    key, before = passes & ((1 << _KEY_BITS) - 1), passes >> _KEY_BITS & ((1 << _KEY_BITS) - 1)
    return key, before, passes >> 2 * _KEY_BITS


_places: weakref.WeakSet[SharedPlace] = weakref.WeakSet()


def _before_fork() -> None:
    # The child may be a worker, which shares the place with this process whoever made the
    # dataset.
    for place in list(_places):
        place.share()


os.register_at_fork(before=_before_fork)
