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


class Transactions:
    """Those of one file system, which all threads with the same options share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun: list[_Begun] = []
        self.none = _Begun()  # for what is opened with autocommit=False: its user commits it


class StoreTransaction(Transaction):  # type: ignore[misc]  # fsspec has no types
    """A transaction that ends in any case, with its own files.

    One in another one, in the same thread, hands its files to the outer one. What a thread writes
    that has begun none goes to the one that was begun last, as fsspec has it.
    """

    fs: Any

    def __init__(self, fs: Any, **kwargs: Any) -> None:
        self._all: Transactions = fs._transactions
        self._own: list[_Begun] = []
        super().__init__(fs, **kwargs)

    @property
    def files(self) -> deque[Any]:
        """Where a file goes that is opened here and now."""
        return (self._here() or self._last()).files

    @files.setter
    def files(self, files: deque[Any]) -> None:
        pass  # each has its own from its beginning

    def _here(self) -> _Begun | None:
        return next((each for each in reversed(_begun_here.get()) if each in self._all.begun), None)

    def _last(self) -> _Begun:
        return next(iter(self._all.begun[-1:]), self._all.none)

    def start(self) -> None:
        """Begin it."""
        begun = _Begun()
        self._own.append(begun)
        _begun_here.set((*_begun_here.get(), begun))
        with self._all.lock:
            self._all.none.files.clear()
            self._all.begun.append(begun)
            self.fs._intrans = True

    @property
    def is_begun_here(self) -> bool:
        """Whether one is that this thread has begun, or that this coroutine has."""
        return self._here() is not None

    def complete(self, commit: bool = True) -> None:
        """Make all files visible, in their order, or none; after an error give up what is left.

        Raises:
            Exception: the first error. What became visible before it stays.
        """
        with self._all.lock:
            # The end of a ``with`` may come in another thread, as that of a dropped generator does.
            ending = self._own.pop() if self._own else self._here() or self._last()
            if ending in self._all.begun:
                self._all.begun.remove(ending)
            self.fs._intrans = bool(self._all.begun)
        _begun_here.set(tuple(each for each in _begun_here.get() if each is not ending))
        files, ending.files = ending.files, deque()
        outer = self._here()
        if commit and outer is not None:
            outer.files.extend(files)
            return
        failed: BaseException | None = None
        while files:  # another thread may just be adding one
            file = files.popleft()
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
