"""The place of an `IterableDataset` that a trainer process and its DataLoader workers share."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import get_worker_info

__all__ = ["Reader", "SharedPlace"]


@dataclass
class Reader:
    """One of the readers that share an epoch, and how far it is.

    `position` is global: where all readers together are when each has done as much as this one. A
    reader takes the positions ``position + lane``, and then it goes on by `lanes`.
    """

    epoch: int
    lane: int
    lanes: int
    position: int = 0


class SharedPlace:
    """The epoch of the next pass, and where in it a pass goes on after a state was loaded.

    It lies in shared memory, so that workers that live on see it change, and so that what one
    consumes is consumed for all. One trainer process shares it with its own workers, and with
    nobody else: every other process that gets it, by a fork or as an argument, goes on with a place
    of its own, which is at first where the other one is.
    """

    def __init__(self) -> None:
        # The epoch; what is to be gone on with: its lanes (0: nothing), lane and position; and what
        # was told already, as bits.
        self._own(torch.zeros(5, dtype=torch.int64))

    @property
    def epoch(self) -> int:
        return int(self.own()[0].item())

    @property
    def resume(self) -> Reader | None:
        """What the next pass goes on with; None: it begins at the beginning."""
        epoch, lanes, lane, position, _ = self.own().tolist()
        return Reader(epoch, lane, lanes, position) if lanes > 0 else None

    def move(self, epoch: int) -> None:
        """Go to `epoch`: to its beginning, or to what is to be gone on with in it."""
        cells = self.own()
        if int(cells[0].item()) != epoch:
            cells[1] = 0
            cells[0] = epoch

    def go_on_with(self, reader: Reader) -> None:
        self.own()[:4] = torch.tensor([reader.epoch, reader.lanes, reader.lane, reader.position])

    def consume_resume(self) -> None:
        self.own()[1] = 0

    def is_first_to(self, what: int) -> bool:
        """Return whether nobody who shares this place has done `what`, a bit, before; now it is."""
        cells = self.own()
        done = int(cells[4].item())
        cells[4] = done | what
        return not done & what

    def own(self) -> torch.Tensor:
        """Return the cells; first make them this process's own, unless it is a worker."""
        # A worker that was sent its dataset has unpickled it before it knows that it is a worker:
        # therefore this is not decided any earlier.
        if self._owner != os.getpid() and get_worker_info() is None:
            self._own(self._cells.clone())
        return self._cells

    def _own(self, cells: torch.Tensor) -> None:
        cells.share_memory_()  # type: ignore[no-untyped-call]
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
            self._own(self._cells)  # by copy.deepcopy, or by a pickle that is not multiprocessing's


_places: weakref.WeakSet[SharedPlace] = weakref.WeakSet()


def _before_fork() -> None:
    # What is forked may be a worker, which shares with this process, whoever made the dataset.
    for place in list(_places):
        place.own()


os.register_at_fork(before=_before_fork)
