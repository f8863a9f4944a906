"""Threads that wait for the engine, so that many writes and copies are under way at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from headrace._cli.report import Report

__all__ = ["Workers"]

_T = TypeVar("_T")


class Workers:
    """A thread pool that takes no more than it can do.

    Leaving the context waits for what is under way. If an exception leaves it, what has not begun
    is dropped.

    Args:
        thread_count: how many works are done at a time.
        max_held_bytes: how much memory the works may hold; one may always be there.
        report: says when no more work is to be begun.
    """

    def __init__(self, thread_count: int, max_held_bytes: int, report: Report) -> None:
        self._max_held_bytes = max_held_bytes
        # What waits for a thread is little, so that memory stays bounded.
        self._max_count = 2 * thread_count
        self._pool = ThreadPoolExecutor(thread_count, "headrace-cli")
        self._report = report
        self._changed = threading.Condition()
        self._held_bytes = self._count = 0

    def submit(self, work: Callable[[], _T], held_bytes: int = 0) -> Future[_T]:
        """Start `work` when there is room for it; it holds `held_bytes` until it is done.

        Raises:
            Stopped: the command is being ended.
        """
        with self._changed:
            while self._count and (
                self._count >= self._max_count
                or self._held_bytes + held_bytes > self._max_held_bytes
            ):
                self._changed.wait()
            self._report.check()
            self._count += 1
            self._held_bytes += held_bytes
        future = self._pool.submit(self._begin, work)
        future.add_done_callback(lambda _: self._done(held_bytes))
        return future

    def _begin(self, work: Callable[[], _T]) -> _T:
        self._report.check()  # it may have waited for its thread
        return work()

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
        self._pool.shutdown(cancel_futures=kind is not None)
