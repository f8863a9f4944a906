"""The threads in which coroutines let blocking calls run, and the loop of calls that block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fsspec.asyn import get_loop, reset_lock, sync
from fsspec.callbacks import Callback

__all__ = ["LoopCallback", "in_thread", "wait_for"]

# Each waits for the engine, which needs no thread for a request: they cost memory, and no time.
_THREADS = 64

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _after_fork_in_child() -> None:
    # The threads did not survive, and the lock may have been held.
    global _lock, _pool
    _lock, _pool = threading.Lock(), None
    reset_lock()  # fsspec's loop, whose thread is gone, too: older releases would wait for it


os.register_at_fork(after_in_child=_after_fork_in_child)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="headrace-fsspec")
        return _pool


class _CarriedError(Exception):
    """Holds what would end the thread of fsspec's loop, and so hang whoever uses it next."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function`, which must not wait for another call of this kind, and await its end."""
    loop = asyncio.get_running_loop()
    call = partial(function, *args, **kwargs)
    # As a value: a future takes no StopIteration, and would wait forever.
    value, error = await loop.run_in_executor(_threads(), _outcome, call)
    if error is None:
        return value
    if not isinstance(error, Exception) and loop is get_loop():
        raise _CarriedError(error)
    raise error


class LoopCallback(Callback):  # type: ignore[misc]  # fsspec has no types
    """A user's callback for what calls it on the thread of fsspec's loop."""

    def __init__(self, callback: Any) -> None:
        super().__init__()
        self._callback = callback

    def set_size(self, size: int) -> None:
        """Tell how much there will be."""
        _carry(self._callback.set_size, size)

    def relative_update(self, inc: int = 1) -> None:
        """Tell that so much more is done."""
        _carry(self._callback.relative_update, inc)

    def branched(self, path_1: str, path_2: str, **kwargs: Any) -> Any:
        """Return the callback of one file, which threads call."""
        return _carry(self._callback.branched, path_1, path_2, **kwargs)


def _carry(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        raise _CarriedError(error) from None


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:
        return None, error


def wait_for(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a coroutine function in fsspec's loop, and wait until it ends."""

    async def run() -> tuple[Any, BaseException | None]:
        # fsspec would make an error of its own of a TimeoutError, and None of what is no Exception.
        try:
            return await function(*args, **kwargs), None
        except _CarriedError as carried:
            return None, carried.error
        except BaseException as error:
            return None, error

    value, error = sync(get_loop(), run)
    if error is not None:
        raise error
    return value
