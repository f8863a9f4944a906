"""Writing an object as a file: parts of it are in flight while more come."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._engine import ObjectInfo, ObjectWriter
from headrace._errors import HeadraceError, InvalidArgumentError, text_of
from headrace._leftovers import patience_s_after, tell_left_behind

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ObjectWriterIO"]


class ObjectWriterIO(io.BufferedIOBase):
    """An object that is being written, as a binary file.

    What is written goes on its way in parts while more comes. `close` makes the object visible,
    whole and verified, or not at all; so does leaving ``with``, unless by an exception, which
    aborts. The first error is the one that every later call raises, whatever a library made of it
    in between. A file that is dropped without `close` is aborted, with a `ResourceWarning`.

    Threads may share it; their writes come one after the other.

    Examples:
        >>> with headrace.open("gs://bucket/log/1.txt", "wb") as file:
        ...     size_bytes = file.write(b"began")
        >>> file.info.size_bytes
        5
    """

    def __init__(self, writer: ObjectWriter) -> None:
        """Make a file of what `Store.open_writer` has returned, and take it over."""
        # A copy, without the traceback: its frames hold what holds this file, and a cycle through a
        # library's writer in between, torch's for one, cannot be collected.
        self._failure: BaseException | None = None
        self._info: ObjectInfo | None = None
        self._epoch = _engine.fork_epoch()
        self._lock = threading.RLock()
        self._writer = writer
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

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:  # noqa: ARG002
        """Refuse it: what was written may have been sent.

        Raises:
            io.UnsupportedOperation: always.
        """
        self._check_open()
        raise io.UnsupportedOperation(
            f"{self.name} is written from its beginning to its end: one cannot seek in it; "
            "write to a local file or to io.BytesIO first"
        )

    # ---- writing

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`, and return how many bytes these are. It may be changed afterwards.

        Raises:
            HeadraceError: a part could not be sent; so will every later call.
            InvalidArgumentError: the file was opened before a fork, in the parent process.
            ValueError: the file is closed.
        """
        self._check_open()
        self._check_process()
        with self._lock:
            if self._failure is not None:
                raise copy.copy(self._failure)
            try:
                return self._writer.write(data)
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

        Raises:
            HeadraceError: the first error; then nothing of it is visible.
            PreconditionFailedError: something else is there than ``if_generation`` says.
        """
        if self.closed:
            return
        self._check_process()
        with self._lock:
            if self._ended:
                return
            try:
                if self._failure is not None:
                    self._writer.abort()
                    raise copy.copy(self._failure)
                self._info = self._writer.close()
            except BaseException:
                self._end()
                raise
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
        tell_left_behind(self._writer, self.name, is_saved=False)

    def __enter__(self) -> ObjectWriterIO:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        self.abort(patience_s=patience_s_after(error))
        # torch.save calls write() once more after an error, and raises another one of its own.
        failure = self._failure
        if failure is None or not isinstance(error, Exception):
            return
        if (type(error), text_of(error)) != (type(failure), text_of(failure)):
            raise copy.copy(failure) from error

    def __del__(self) -> None:
        # Not what io's own classes do: they close.
        if getattr(self, "_ended", True) or self._epoch != _engine.fork_epoch():
            return
        warnings.warn(
            f"unclosed {self!r}: what was written is given up",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )
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
