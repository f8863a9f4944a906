"""What a child of multiprocessing does before it exits: Python runs no exit handlers there."""

from __future__ import annotations

import os
from collections.abc import Callable

from headrace._base.imported import imported

_arranged: dict[Callable[[], object], int] = {}  # for which process


def before_child_exits(do: Callable[[], object], priority: int) -> None:
    """See to it, once for each process; what has the higher priority comes first."""
    parent = imported("multiprocessing.process", "parent_process")
    finalize = imported("multiprocessing.util", "Finalize")
    if finalize is None or parent is None or parent() is None:
        return
    if _arranged.get(do) != os.getpid():
        _arranged[do] = os.getpid()
        finalize(None, do, exitpriority=priority)
