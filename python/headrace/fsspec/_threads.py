"""The threads in which coroutines let blocking calls run, and the loop of calls that block."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any

from fsspec.asyn import get_loop, reset_lock, sync
from fsspec.callbacks import Callback

__all__ = ["Changes", "LoopCallback", "change_in_thread", "in_thread", "raise_if_over", "wait_for"]

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
    """Call `function`, which must not wait for another call of this kind, and await its end.

    If this is cancelled, `function` goes on, and nobody is told how it ended.
    """
    return await _in_thread(None, partial(function, *args, **kwargs))


async def _in_thread(changes: Changes | None, call: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    # As a value: a future takes no StopIteration, and would wait forever.
    context = contextvars.copy_context()  # with the transaction of whoever waits
    future = loop.run_in_executor(_threads(), context.run, _outcome, call)
    if changes is not None:
        changes.under_way.add(future)
        future.add_done_callback(changes.under_way.discard)
        future = asyncio.shield(future)
    value, error = await future
    if error is None:
        return value
    is_cancelled = isinstance(error, asyncio.CancelledError)  # by raise_if_over: nobody waits
    if not isinstance(error, Exception) and not is_cancelled and loop is get_loop():
        raise _CarriedError(error)
    raise error


class Changes:
    """Ends when all that its calls of `change_in_thread` do has ended, however it is left.

    To cancel a coroutine ends no thread. A write that goes on would put what was given up in the
    place of what is written next. Left early, it begins no more, and lets what is under way stop
    at its next `raise_if_over`.
    """

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.under_way: set[asyncio.Future[Any]] = set()
        self._before: contextvars.Token[Changes | None] | None = None

    async def __aenter__(self) -> None:
        self._before = _changes.set(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._before is not None
        _changes.reset(self._before)
        cancelled: asyncio.CancelledError | None = None
        while True:
            if error is not None or cancelled is not None:
                self.is_over.set()
            under_way = [each for each in self.under_way if not each.done()]
            if not under_way:
                break
            try:
                await asyncio.wait(under_way)
            except asyncio.CancelledError as again:
                cancelled = again
        if error is None and cancelled is not None:
            raise cancelled


_changes: contextvars.ContextVar[Changes | None] = contextvars.ContextVar("changes", default=None)


async def change_in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Do what `in_thread` does, for what writes or removes something: see `Changes`."""
    changes = _changes.get()
    if changes is None:
        async with Changes():
            return await change_in_thread(function, *args, **kwargs)
    return await _in_thread(changes, partial(function, *args, **kwargs))


def raise_if_over() -> None:
    """End what runs in this thread, if whoever waits for it has given up.

    Raises:
        asyncio.CancelledError: they have.
    """
    changes = _changes.get()
    if changes is not None and changes.is_over.is_set():
        raise asyncio.CancelledError


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
        raise_if_over()
        return call(), None
    except BaseException as error:
        return None, error


def wait_for(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a coroutine function in fsspec's loop, and wait until it ends; also after Ctrl-C."""
    task: list[asyncio.Task[Any] | None] = []
    is_given_up, is_over = threading.Event(), threading.Event()

    async def run() -> tuple[Any, BaseException | None]:
        # fsspec would make an error of its own of a TimeoutError, and None of what is no Exception.
        task.append(asyncio.current_task())
        try:
            if is_given_up.is_set():  # before it began
                raise asyncio.CancelledError
            return await function(*args, **kwargs), None
        except _CarriedError as carried:
            return None, carried.error
        except BaseException as error:
            return None, error
        finally:
            is_over.set()

    try:
        value, error = sync(get_loop(), run)
    except BaseException:  # that of a signal's handler, since those of `run` are values
        is_given_up.set()
        if task and task[0] is not None:
            get_loop().call_soon_threadsafe(task[0].cancel)
            while not is_over.wait(0.05):  # CPython loses signals in an untimed wait
                pass
        raise
    if error is not None:
        raise error
    return value
