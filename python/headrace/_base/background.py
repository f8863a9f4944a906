"""Work in the background, in order, whose errors are not lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["InOrder"]


class InOrder:
    """Runs one piece of work after the other, on a thread of its own.

    After an error the work that was handed over already is dropped: a save that came later may have
    been followed by the removal of an older checkpoint, which is the last good one now. Thread: one
    at a time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: list[Future[None]] = []

    def submit(self, work: Callable[[], object]) -> None:
        """Hand over work. What failed before is raised, and `work` is not taken then."""
        self._raise_what_failed()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
        before = self._under_way[-1] if self._under_way else None

        def run() -> None:
            if before is not None and before.exception() is not None:
                raise _DroppedError
            work()

        self._under_way.append(self._pool.submit(run))

    def wait(self) -> None:
        """Wait for everything; raise the first error, once."""
        for future in self._under_way:
            future.exception()
        self._raise_what_failed()

    def close(self) -> None:
        """Wait for everything and end the thread; raise the first error, once."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None

    def _raise_what_failed(self) -> None:
        done = [future for future in self._under_way if future.done()]
        failed = next((future for future in done if future.exception() is not None), None)
        if failed is None:
            # Not those that are done by now: one of these may have failed since.
            self._under_way = [future for future in self._under_way if future not in done]
            return
        for future in self._under_way:
            future.exception()  # all of them are dropped; wait until that has happened
        self._under_way = []
        error = failed.exception()
        assert error is not None
        raise error


class _DroppedError(Exception):
    """Something before it failed."""
