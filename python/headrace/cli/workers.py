"""Threads that wait for the engine, so that many writes and copies are under way at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import headrace

__all__ = ["Workers"]

_T = TypeVar("_T")


class Workers:
    """A thread pool that takes no more than it can do, and that an exception ends at once.

    Leaving the context waits for all work. If an exception leaves it (Ctrl-C above all), what has
    not begun is dropped and what is under way is cancelled, by stopping the engine.

    Args:
        thread_count: how many works are done at a time.
        max_held_bytes: how much memory the works may hold; one may always be there.
    """

    def __init__(self, thread_count: int, max_held_bytes: int) -> None:
        self._max_held_bytes = max_held_bytes
        # What waits for a thread is little, so that Ctrl-C finds little, and memory stays bounded.
        self._max_count = 2 * thread_count
        self._pool = ThreadPoolExecutor(thread_count, "headrace-cli")
        self._changed = threading.Condition()
        self._held_bytes = self._count = 0
        self.stopping = False

    def submit(self, work: Callable[[], _T], held_bytes: int = 0) -> Future[_T]:
        """Start `work` when there is room for it; it holds `held_bytes` until it is done."""
        with self._changed:
            while self._count and (
                self._count >= self._max_count
                or self._held_bytes + held_bytes > self._max_held_bytes
            ):
                self._changed.wait()
            self._count += 1
            self._held_bytes += held_bytes
        future = self._pool.submit(work)
        future.add_done_callback(lambda _: self._done(held_bytes))
        return future

    def _done(self, held_bytes: int) -> None:
        with self._changed:
            self._count -= 1
            self._held_bytes -= held_bytes
            self._changed.notify_all()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                with self._changed:
                    while self._count:
                        self._changed.wait()
            else:
                self._cancel()
        except BaseException:
            self._cancel()
            raise
        finally:
            self._pool.shutdown()

    def _cancel(self) -> None:
        self.stopping = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        # Again and again: a work may begin a request on an engine that it has just started anew.
        while True:
            headrace.shutdown()
            with self._changed:
                if not self._count or self._changed.wait_for(lambda: not self._count, 0.05):
                    return
