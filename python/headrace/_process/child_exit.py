"""What a child of multiprocessing does before it exits: Python runs no exit handlers there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

_arranged: dict[Callable[[], object], int] = {}  # for which process


def before_child_exits(do: Callable[[], object], priority: int) -> None:
    """See to it, once for each process; what has the higher priority comes first."""
    util = sys.modules.get("multiprocessing.util")
    if util is None or sys.modules["multiprocessing.process"].parent_process() is None:
        return
    if _arranged.get(do) != os.getpid():
        _arranged[do] = os.getpid()
        util.Finalize(None, do, exitpriority=priority)
