"""Writing an object as a file: parts of it are in flight while more come."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import operator
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from headrace import _engine
from headrace._base.binary_file import BinaryFile
from headrace._base.errors import HeadraceError, InvalidArgumentError, text_of
from headrace._base.handled import Handled
from headrace._engine import ObjectInfo, ObjectWriter
from headrace._files.leftovers import Writer, patience_s_after, tell_left_behind

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ObjectWriterIO", "takes_files", "write_file"]

_log = logging.getLogger("headrace")

_FILE_STEP_BYTES = 16 << 20


def write_file(to: ObjectWriter | ObjectWriterIO, source: BinaryIO | io.FileIO) -> Iterator[int]:
    """Write a local file, step by step, and yield how many bytes each step was.

    Where its parts are too large for memory, it is read twice: for their sums, and while they are
    sent. If it has changed in between, nothing becomes visible.

    Args:
        to: if a file, one that `takes_files`.
        source: a regular file, which is read from its beginning, wherever it stands.

    Raises:
        CorruptDataError: the file has changed. ``close`` raises it, too.
        HeadraceError: as `ObjectWriter.write`.
    """
    file, begin = _engine.FileSource(source.fileno()), 0
    step = to._write_from if isinstance(to, ObjectWriterIO) else partial(_engine.write_from, to)
    while size_bytes := step(file, begin, _FILE_STEP_BYTES):
        yield size_bytes
        begin += size_bytes


def takes_files(file: Any) -> bool:
    """Return whether `write_file` can write to a file that is being written."""
    return isinstance(file, ObjectWriterIO) and isinstance(file._writer, ObjectWriter)


class ObjectWriterIO(BinaryFile):
    """An object that is being written, as a binary file.

    What is written goes on its way in parts while more comes. `close`, or the end of a ``with``,
    makes the object visible, whole and verified. Nothing becomes visible, and the object before
    stays, if:

    - an exception leaves the ``with``; the log says so if it is no `Exception`, as when a
      generator with the ``with`` in it is dropped;
    - `close` is called, by whatever layer, while an exception is being handled that was not when
      the file was opened, as in a ``finally`` or an ``except``; the log says so. To write a file
      from an ``except``, open it there, or use ``with``;
    - a call failed, or the file refused what Python's own would have done (`seek`, `truncate`).
      Every later call, also `close`, raises that first error, whatever a library made of it;
    - the file, or an ``io`` layer over it, is dropped without `close`, with a `ResourceWarning` and
      a line in the log.

    Then `info` stays None.

    Threads may share it; their writes come one after the other.

    Examples:
        >>> with headrace.open("gs://bucket/log/1.txt", "wb") as file:
        ...     size_bytes = file.write(b"began")
        >>> file.info.size_bytes
        5
    """

    def __init__(self, writer: Writer) -> None:
        """Make a file of what `Store.open_writer` has returned, and take it over."""
        # A copy, without the traceback: its frames hold what holds this file, and a cycle through a
        # library's writer in between, torch's for one, cannot be collected.
        self._failure: BaseException | None = None
        self._info: ObjectInfo | None = None
        self._epoch = _engine.fork_epoch()
        self._lock = threading.RLock()
        self._writer = writer
        self._handled = Handled()
        self._is_dropped = False
        self._ended = False

    # ---- what it is

    @property
    def name(self) -> str:
        """The object's URL."""
        return self._writer.url

    @property
    def mode(self) -> str:
        """The mode: ``"wb"``, also of what was opened with ``"xb"``."""
        return "wb"

    @property
    def info(self) -> ObjectInfo | None:
        """What the object is, once it is closed; until then, and after an error, None."""
        return self._info

    def readable(self) -> bool:
        """Return whether it can be read.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return False

    def writable(self) -> bool:
        """Return whether it can be written.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return whether `seek` works.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return False

    def tell(self) -> int:
        """Return the place: bytes from the beginning.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return self._writer.size_bytes

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Refuse it: what was written may have been sent.

        A refusal to go to another place is the end of the file: `close` raises it again. One to
        stay is not: libraries find out by it whether they can seek.

        Raises:
            io.UnsupportedOperation: always.
            HeadraceError: a call failed before.
            ValueError: the file is closed.
        """
        self._check_open()
        offset, here = operator.index(offset), self._writer.size_bytes
        is_here = offset == {os.SEEK_SET: here, os.SEEK_CUR: 0, os.SEEK_END: 0}.get(whence)
        raise self._refusal("one cannot seek in it", is_harmless=is_here)

    def truncate(self, size: int | None = None, /) -> int:
        """Return the place, if `size` is that or None; else refuse it, as `seek` does.

        Raises:
            io.UnsupportedOperation: it is to have another size.
            HeadraceError: a call failed before.
            ValueError: the file is closed.
        """
        self._check_open()
        here = self._writer.size_bytes
        if size is None or operator.index(size) == here:
            return here
        raise self._refusal("it cannot get another size")

    def _refusal(self, what: str, *, is_harmless: bool = False) -> BaseException:
        """Return the error of a call that is refused; unless that is harmless, keep it."""
        with self._lock:
            if self._failure is not None:
                return copy.copy(self._failure)
            error = io.UnsupportedOperation(
                f"{self.name} is written from its beginning to its end: {what}; "
                "write to a local file or to io.BytesIO first"
            )
            if not is_harmless:
                self._failure = copy.copy(error)
            return error

    # ---- writing

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`, and return how many bytes these are. It may be changed afterwards.

        Raises:
            HeadraceError: a part could not be sent; so will every later call.
            io.UnsupportedOperation: a `seek` or `truncate` was refused before.
            InvalidArgumentError: the file was opened before a fork, in the parent process.
            ValueError: the file is closed.
        """
        self._check_open()
        if self._is_dropped:  # by a layer, which still has some bytes
            with memoryview(data) as view:
                return view.nbytes
        return self._taking(lambda: self._writer.write(data))

    def _write_from(self, file: _engine.FileSource, begin: int, most_bytes: int) -> int:
        """Take bytes of a local file; see `write_file`."""
        self._check_open()
        writer: Any = self._writer
        return self._taking(lambda: _engine.write_from(writer, file, begin, most_bytes))

    def _taking(self, take: Callable[[], int]) -> int:
        """Return what `take` does; its error is that of every later call."""
        self._check_process()
        with self._lock:
            if self._failure is not None:
                raise copy.copy(self._failure)
            try:
                return take()
            except BaseException as error:
                # Python's own errors are about what gives no contiguous bytes: nothing was taken.
                is_refusal = isinstance(error, TypeError | BufferError | ValueError)
                if isinstance(error, HeadraceError) or not is_refusal:
                    self._failure = copy.copy(error)
                raise

    def flush(self) -> None:
        """Do nothing: what is written is under way, and visible by `close` only.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()

    def close(self) -> None:
        """Wait until everything is durable and verified, and make the object visible.

        While an exception is handled that was not when the file was opened, give it up instead.

        Raises:
            HeadraceError: the first error; then nothing of it is visible.
            PreconditionFailedError: something else is there than ``if_generation`` says.
            io.UnsupportedOperation: a `seek` or `truncate` was refused; nothing of it is visible.
        """
        if self.closed:
            return
        if self._is_dropped:
            self._drop()
            return
        self._check_process()
        error = self._handled.newer()
        if error is None:
            self._finish()
        else:
            self._handled.tell(self.name, error)
            self._give_up_after(error)

    def _finish(self) -> None:
        """End it by a `close` of which nothing says that the object is not whole."""
        self._publish()

    def _publish(self) -> None:
        """Make the object visible, or raise the first error."""
        self._check_process()
        with self._lock:
            if self._ended:
                return
            try:
                if self._failure is not None:
                    self._writer.abort()
                    raise copy.copy(self._failure)
                self._info = self._writer.close()
            finally:
                self._end()

    def abort(self, *, patience_s: float = 5.0) -> None:
        """End it without an object: nothing of what was written becomes visible.

        Args:
            patience_s: how long to wait until temporary objects are removed; that goes on by
                itself, also when the interpreter exits.

        Raises:
            InvalidArgumentError: the file was opened before a fork, in the parent process.

        Examples:
            >>> file = headrace.open("gs://bucket/given-up.txt", "wb")
            >>> file.abort()
            >>> headrace.Store("gs://bucket").exists("given-up.txt")
            False
        """
        if self._ended:
            return
        self._check_process()
        with self._lock:
            try:
                self._writer.abort(patience_s=patience_s)
            finally:
                self._end()

    def _end(self) -> None:
        """Mark it as closed, and say what could not be removed."""
        if self._ended:
            return
        super().close()  # calls flush(), which must not find it closed yet
        self._ended = True
        self._handled.forget()
        tell_left_behind(self._writer, self.name, is_saved=False)

    def __enter__(self) -> ObjectWriterIO:
        self._check_open()
        self._handled = Handled()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # Nobody sees the end of a generator, nor always that of a program.
            if not isinstance(error, Exception) and not self.closed:
                self._handled.tell_left(self.name, error)
            self._give_up_after(error)
        elif not self.closed:
            self._finish()

    def _give_up_after(self, error: BaseException) -> None:
        """End it because of an exception on its way; raise the first error, if that is another."""
        self.abort(patience_s=patience_s_after(error))
        # torch.save calls write() once more after an error, and raises another one of its own.
        failure = self._failure
        if failure is None or not isinstance(error, Exception):
            return
        if (type(error), text_of(error)) != (type(failure), text_of(failure)):
            raise copy.copy(failure) from error

    def __del__(self) -> None:
        # Not what io's own classes do: they close. Once the interpreter's end has taken this module
        # apart, it was given up before.
        if not getattr(self, "_ended", True) and _engine is not None:
            self._drop()

    def _dealloc_warn(self, source: object) -> None:  # noqa: ARG002 - CPython's
        # So CPython's io tells what lies below a text or buffer layer that the layer was dropped:
        # it is about to write what it still has, and to close.
        self._is_dropped = True

    def _drop(self) -> None:
        """Give it up, since nobody has closed it."""
        if self._epoch != _engine.fork_epoch():  # it is the parent's
            super().close()
            self._ended = True
            return
        told = f"unclosed {self!r}: what was written is given up"
        _log.warning("%s", told)
        try:
            warnings.warn(told, ResourceWarning, source=self, stacklevel=3)
        finally:
            with contextlib.suppress(HeadraceError):  # nobody is there to be told
                self.abort()

    def __repr__(self) -> str:
        return f"<headrace.ObjectWriterIO {self._writer.url!r}>"

    def __reduce_ex__(self, protocol: Any, /) -> Any:
        raise TypeError(f"{self!r} is being written: it cannot be pickled")

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError(f"{self._writer.url}: the file is closed")

    def _check_process(self) -> None:
        if self._epoch != _engine.fork_epoch():
            raise InvalidArgumentError(
                f"{self._writer.url} was opened before a fork: only the parent process can write it"
            )
