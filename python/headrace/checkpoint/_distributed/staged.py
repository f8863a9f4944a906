"""A staged state, and what was settled about its save when it was staged."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from headrace.checkpoint._distributed import ordering
from headrace.checkpoint._distributed.folder import Folder

__all__ = ["Settled", "Staged", "take_settled"]


@dataclass(frozen=True)
class Settled:
    """What of a save does not change any more, whatever becomes of its writer."""

    turn: ordering.Turn
    writer: str
    """The id of the writer that staged the state; folder and attachments are for this one only."""
    folder: Folder
    attachments: Mapping[str, bytes]


class _OfThread(threading.local):
    staged: Callable[[], Staged | None] = staticmethod(lambda: None)


_of_thread = _OfThread()


class Staged(dict[str, Any]):
    """A copy of a state, to which its save belongs.

    torch gives the writer no state, but takes the items of the state right before it asks the
    writer for its `storage_meta`, in the same thread. In between, the thread knows whose they are.
    A process that saves it gets it whole; anywhere else it is pickled as a plain dict.
    """

    settled: Settled

    @classmethod
    def of(cls, settled: Settled, state: Mapping[str, Any] | None = None) -> Staged:
        """Return a staged state, empty by default."""
        staged = cls(state or {})
        staged.settled = settled
        return staged

    def items(self) -> Any:
        # Weak: should torch fail right now, it belongs to no later save of this thread.
        _of_thread.staged = weakref.ref(self)
        return super().items()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (), None, None, iter(super().items())


def take_settled() -> Settled | None:
    """Return what is settled about the save of this thread, once; None for nothing."""
    staged = _of_thread.staged()
    vars(_of_thread).pop("staged", None)
    return None if staged is None else staged.settled


def _to_process(staged: Staged) -> tuple[Callable[..., Staged], tuple[Any, ...]]:
    return Staged.of, (staged.settled, dict(dict.items(staged)))


ForkingPickler.register(Staged, _to_process)
