"""Files that become visible together, by the end of a ``with fs.transaction``."""

from __future__ import annotations

import threading
from collections import deque
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from fsspec.transaction import Transaction

__all__ = ["StoreTransaction"]


class _Begun:
    """The files of one ``with``."""

    def __init__(self) -> None:
        self.files: deque[Any] = deque()


# Those that the thread, or the coroutine, has begun; also in the threads that work for it.
_begun_here: ContextVar[tuple[_Begun, ...]] = ContextVar("begun_here", default=())


class StoreTransaction(Transaction):  # type: ignore[misc]  # fsspec has no types
    """The transactions of a file system, each of which ends in any case.

    All threads with the same options share the file system, and so this object. Each ``with`` has
    files of its own: one in another, in the same thread, hands its files to the outer one. What a
    thread writes that has begun none goes to the one that was begun last, as fsspec has it.
    """

    fs: Any

    def __init__(self, fs: Any, **kwargs: Any) -> None:
        self._lock = threading.Lock()
        self._open: list[_Begun] = []
        self._unbegun = _Begun()  # opened with autocommit=False: their user commits them
        super().__init__(fs, **kwargs)

    @property
    def files(self) -> deque[Any]:
        """Where a file goes that is opened here and now."""
        return (self._here() or self._last()).files

    @files.setter
    def files(self, files: deque[Any]) -> None:
        self._unbegun.files = files

    def _here(self) -> _Begun | None:
        return next((each for each in reversed(_begun_here.get()) if each in self._open), None)

    def _last(self) -> _Begun:
        return self._open[-1] if self._open else self._unbegun

    def start(self) -> None:
        """Begin one."""
        begun = _Begun()
        _begun_here.set((*_begun_here.get(), begun))
        with self._lock:
            self._unbegun.files.clear()
            self._open.append(begun)
            self.fs._intrans = True
            if self.fs._transaction is None:
                self.fs._transaction = self

    @property
    def is_begun_here(self) -> bool:
        """Whether one is that this thread has begun, or that this coroutine has."""
        return self._here() is not None

    def complete(self, commit: bool = True) -> None:
        """Make all files visible, in their order, or none; after an error give up what is left.

        Raises:
            Exception: the first error. What became visible before it stays.
        """
        with self._lock:
            ending = self._here() or self._last()
            if ending in self._open:
                self._open.remove(ending)
            if not self._open:
                self.fs._intrans, self.fs._transaction = False, None
        _begun_here.set(tuple(each for each in _begun_here.get() if each is not ending))
        files, ending.files = ending.files, deque()
        outer = self._here()
        if commit and outer is not None:
            outer.files.extend(files)
            return
        failed: BaseException | None = None
        for file in files:
            try:
                if commit and failed is None:
                    file.commit()
                else:
                    file.discard()
            except BaseException as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.complete(commit=kind is None)
