"""The threads in which coroutines let blocking calls run, and the loop of calls that block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fsspec.asyn import get_loop, sync

__all__ = ["in_thread", "wait_for"]

# Each waits for the engine, which needs no thread for a request: they cost memory, and no time.
_THREADS = 64

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _after_fork_in_child() -> None:
    # The threads did not survive, and the lock may have been held.
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork_in_child)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="headrace-fsspec")
        return _pool


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function`, which must not wait for another call of this kind, and await its end."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), partial(function, *args, **kwargs))


def wait_for(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a coroutine function in fsspec's loop, and wait until it ends."""
    return sync(get_loop(), function, *args, **kwargs)
