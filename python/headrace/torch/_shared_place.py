"""The place of a dataset in its epochs, shared by a trainer process and its DataLoader workers."""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import get_worker_info

from headrace._base.errors import ResourceError

__all__ = ["Reader", "SharedPlace"]


_CELLS = 7
_REPEATS = 1 << 30  # a message that is given once

_logger = logging.getLogger("headrace")


@dataclass
class Reader:
    """One of the readers that share an epoch, and its place.

    `position` is global: the place of all readers together once each has read as many samples as
    this one. A reader takes position ``position + lane`` and then advances by `lanes`. `skipped` is
    how many samples it has left out because of errors.
    """

    epoch: int
    lane: int
    lanes: int
    position: int = 0
    skipped: int = 0


class SharedPlace:
    """The epoch of the next pass, and where in it a pass continues after a state was loaded.

    The place lies in shared memory: workers that are running see it change, and a loaded state that
    one of them consumes is consumed for all. A trainer process shares it with its own workers only.
    Any other process that receives it, by a fork or as an argument, continues with a copy.

    The memory is shared, which takes a descriptor, when the first process is started; with torch's
    pickle for processes, torch does it.
    """

    def __init__(self, more: int = 0) -> None:
        # The epoch; the loaded state to continue from: its lanes (0: none), lane and position; the
        # messages that were given already, as bits; the epoch of the latest whole pass, plus 1,
        # until somebody names one; how many samples were skipped before the loaded state; and so
        # many `more` cells for whoever owns it.
        self._own(torch.zeros(_CELLS + more, dtype=torch.int64, device="cpu"))

    @property
    def epoch(self) -> int:
        return int(self.own()[0].item())

    @property
    def resume(self) -> Reader | None:
        """The place from which the next pass continues; None: the beginning."""
        epoch, lanes, lane, position, *_, skipped = self.own()[:_CELLS].tolist()
        return Reader(epoch, lane, lanes, position, skipped) if lanes > 0 else None

    def move(self, epoch: int) -> None:
        """Go to `epoch`: to its beginning, or to the loaded place in it."""
        cells = self.own()
        cells[5] = 0
        if int(cells[0].item()) != epoch:
            cells[1] = 0
            cells[0] = epoch

    def go_on_with(self, reader: Reader) -> None:
        self.own()[:4] = torch.tensor(
            [reader.epoch, reader.lanes, reader.lane, reader.position], device="cpu"
        )
        self.own()[5] = 0
        self.own()[6] = reader.skipped

    def note_pass(self, stream: Any, epoch: int, *, shuffle: bool) -> None:
        """Note that a whole pass begins, and warn once if it has the order of the one before."""
        cells = self.own()
        is_same = int(cells[5].item()) == epoch + 1
        cells[5] = epoch + 1
        if is_same and shuffle and self.is_first_to(_REPEATS):
            _logger.warning(
                "%r begins another pass in the order of the one before: its order changes with the "
                "epoch, and the epoch is still %d. Call set_epoch(n) before each pass",
                stream, epoch,
            )  # fmt: skip

    def consume_resume(self) -> None:
        self.own()[1] = 0

    def is_first_to(self, what: int) -> bool:
        """Set the bit `what`, and return whether nobody who shares this place had set it before."""
        cells = self.own()
        done = int(cells[4].item())
        cells[4] = done | what
        return not done & what

    @property
    def more(self) -> torch.Tensor:
        """The cells of the owner."""
        return self.own()[_CELLS:]

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


_places: weakref.WeakSet[SharedPlace] = weakref.WeakSet()


def _before_fork() -> None:
    # The child may be a worker, which shares the place with this process whoever made the
    # dataset.
    for place in list(_places):
        place.share()


os.register_at_fork(before=_before_fork)
