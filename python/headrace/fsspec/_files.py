"""What `open` returns: objects as files, with what fsspec expects of a file besides."""

from __future__ import annotations

import inspect
import io
import sys
from typing import TYPE_CHECKING, Any

from fsspec.compression import compr
from fsspec.spec import AbstractBufferedFile

from headrace._engine import ObjectInfo
from headrace._errors import PreconditionFailedError
from headrace._leftovers import patience_s_after
from headrace._reader_io import ObjectReaderIO
from headrace._store import Store
from headrace._writer_io import ObjectWriterIO

if TYPE_CHECKING:
    from headrace.fsspec._filesystem import StoreFileSystem

__all__ = ["CachedFile", "CompressedFile", "ReadFile", "TextFile", "WriteFile"]

# `__exit__` of fsspec.open, of pandas and of contextlib are a few calls away from `close`.
_FRAMES = 8


class ReadFile(ObjectReaderIO):
    """An object that is being read; pickles, with its place, pinned to its generation."""

    def __init__(
        self,
        fs: StoreFileSystem,
        path: str,
        store: Store,
        name: str | ObjectInfo,
        *,
        if_generation: str | None = None,
        prefetch_bytes: int,
    ) -> None:
        super().__init__(store, name, if_generation=if_generation, prefetch_bytes=prefetch_bytes)
        self.fs, self.path = fs, path
        self._prefetch_bytes = prefetch_bytes

    @property
    def size(self) -> int:
        """The size of the object, in bytes."""
        size_bytes: int = self._info.size_bytes
        return size_bytes

    @property
    def full_name(self) -> str:
        """The URL with which fsspec finds the file again."""
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def details(self) -> dict[str, Any]:
        """What `info` of the file system says about it."""
        return self.fs._entry(self.path, self._info)

    def __reduce_ex__(self, protocol: Any, /) -> Any:
        where = (self.fs, self.path, self._info.generation, self._prefetch_bytes, self.tell())
        return _reopened, where


def _reopened(
    fs: StoreFileSystem, path: str, generation: str, prefetch_bytes: int, position: int
) -> ReadFile:
    file = fs._reader(path, if_generation=generation or None, prefetch_bytes=prefetch_bytes)
    file.seek(position)
    return file


class CachedFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """An object that is read through one of fsspec's caches, pinned to its generation."""

    def __init__(
        self, fs: StoreFileSystem, path: str, store: Store, info: ObjectInfo, **options: Any
    ) -> None:
        self._store, self._object = store, info
        super().__init__(fs, path, "rb", size=info.size_bytes, **options)
        self._details = fs._entry(path, info)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._store.read(self._object, begin=start, end=min(end, self.size)).bytes()


class WriteFile(ObjectWriterIO):
    """An object that is being written.

    It becomes visible by `close`, or, if it was opened in a transaction, by the transaction's end.
    If an exception is on its way through a ``with``, be it that of another object which closes this
    one, nothing becomes visible.
    """

    def __init__(
        self,
        fs: StoreFileSystem,
        path: str,
        store: Store,
        name: str,
        *,
        autocommit: bool,
        exclusive: bool,
        **options: Any,
    ) -> None:
        # Before anything can fail: the writer's own __del__ looks at it.
        self._waits = False  # closed, and waiting for its transaction
        super().__init__(store.open_writer(name, **options))
        self.fs, self.path, self.autocommit = fs, path, autocommit
        self._exclusive = exclusive

    @property
    def full_name(self) -> str:
        """The URL with which fsspec finds the file again."""
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def closed(self) -> bool:
        """Whether it takes no more bytes."""
        return self._waits or super().closed

    def close(self) -> None:
        """Make the object visible, or leave that to the transaction.

        Raises:
            FileExistsError: it was opened with ``"xb"``, and somebody else has written it since.
            HeadraceError: the first error; then nothing of it is visible.
        """
        if self.closed:
            return
        error = _error_of_a_with()
        if error is not None:
            self.abort(patience_s=patience_s_after(error))
        elif self.autocommit:
            self._publish()
        else:
            self._waits = True

    def commit(self) -> None:
        """Make the object visible; unless it was given up."""
        self._waits = False
        if not self.closed:
            self._publish()

    def discard(self) -> None:
        """Give it up: nothing becomes visible."""
        self._waits = False
        self.abort()

    def _publish(self) -> None:
        try:
            super().close()
        except PreconditionFailedError as error:
            if self._exclusive:
                raise FileExistsError(f"{self.name}: exists already") from error
            raise

    def _check_open(self) -> None:
        if self._waits:
            raise ValueError(f"{self.name}: the file is closed, and waits for its transaction")
        super()._check_open()


def _error_of_a_with() -> BaseException | None:
    """Return the exception that the ``__exit__`` which has called us was given, if any.

    ``fsspec.open(...)`` and others close what they hold when a ``with`` of theirs is left, and do
    not tell why. That an exception is being handled says nothing: a handler may write a file.
    """
    error = sys.exception()
    if error is None:
        return None
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        code = frame.f_code
        if code.co_name == "__exit__":
            has_rest = bool(code.co_flags & inspect.CO_VARARGS)
            for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + has_rest]:
                given = frame.f_locals.get(name)
                if any(each is error for each in (given if isinstance(given, tuple) else (given,))):
                    return error
    return None


class TextFile(io.TextIOWrapper):
    """Text on its way into a `WriteFile` or a `CompressedFile`; an exception gives it up."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            file: Any = self.buffer
            file.abort(patience_s=patience_s_after(error))
        self.close()


class _Outlet:
    """Where a compressor writes: to a file, or, once that was given up, nowhere."""

    def __init__(self, file: WriteFile) -> None:
        self.file: WriteFile | None = file

    def write(self, data: Any) -> int:
        return len(data) if self.file is None else self.file.write(data)

    def flush(self) -> None:
        pass


class CompressedFile(io.BufferedIOBase):
    """Compresses into a `WriteFile`, and ends with it: compressors leave their files open."""

    def __init__(self, file: WriteFile, compression: str) -> None:
        self._file, self._outlet = file, _Outlet(file)
        self._compressor = compr[compression](self._outlet, mode="w")

    def write(self, data: Any, /) -> int:
        """Compress all of `data`, and return how many bytes these are."""
        with memoryview(data) as view:
            size_bytes = view.nbytes
        self._compressor.write(data)
        return size_bytes

    def writable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """End the compressed stream, and make the object visible."""
        if self.closed:
            return
        error = _error_of_a_with()
        if error is not None:
            self.abort(patience_s=patience_s_after(error))
            return
        super().close()
        try:
            self._compressor.close()
        except BaseException:
            self._file.abort()
            raise
        self._file.close()

    def abort(self, *, patience_s: float = 5.0) -> None:
        """End it without an object."""
        self._outlet.file = None
        self._file.abort(patience_s=patience_s)
        self._compressor.close()
        super().close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self.abort(patience_s=patience_s_after(error))
        self.close()

    def __del__(self) -> None:
        # Not what io's own classes do: they close. The file gives itself up.
        self._outlet.file = None
