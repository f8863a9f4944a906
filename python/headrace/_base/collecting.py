"""Python's collector of garbage."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

from headrace._base.contexts import context

__all__ = ["without_collecting"]

_lock = threading.Lock()
_paused = 0
_was_enabled = False


@context
def without_collecting() -> Iterator[None]:
    """Let it wait, in all threads: for moments in which very many objects are made and kept."""
    global _paused, _was_enabled
    # It is counted first and last: a child forked at any moment between knows that it waits.
    counted = False
    try:
        with _lock:
            if _paused == 0:
                _was_enabled = gc.isenabled()
            _paused += 1
            counted = True
            gc.disable()
        yield
    finally:
        with _lock:
            if counted and _paused > 0:  # nobody waits in a child that was forked meanwhile
                if _paused == 1 and _was_enabled:
                    gc.enable()
                _paused -= 1


def _in_child() -> None:
    # Whoever let it wait is a thread of the parent's.
    global _lock, _paused
    _lock = threading.Lock()
    if _paused and _was_enabled:
        gc.enable()
    _paused = 0


os.register_at_fork(after_in_child=_in_child)
