"""What streams have in common: the epoch of the next pass, and which of its readers this is."""

from __future__ import annotations

from typing import Any

from torch.utils.data import get_worker_info

from headrace.torch._arguments import Ranks, seed_or_epoch
from headrace.torch._shared_place import SharedPlace

__all__ = ["Epochs", "reader_of", "worker_count"]


class Epochs:
    """A stream whose passes are of epochs."""

    _shared: SharedPlace
    _latest: Any  # the reader of the latest iterator; None: there is none of this epoch
    _resume: Any  # the place that was loaded in this very worker, with its epoch; or None

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._shared.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let passes that begin from now on, in workers too, be of this epoch.

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


def worker_count() -> int:
    """Return the number of workers of the DataLoader if this is one of them, else 0."""
    info = get_worker_info()
    return 0 if info is None else info.num_workers
