"""What `open` returns: objects as files, with what fsspec expects of a file besides."""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fsspec.compression import compr, register_compression
from fsspec.spec import AbstractBufferedFile

from headrace._base.errors import PreconditionFailedError
from headrace._engine import ObjectInfo
from headrace._files.leftovers import Writer
from headrace._files.reader_io import ObjectReaderIO, place_of
from headrace._files.writer_io import ObjectWriterIO
from headrace._store.store import Store

if TYPE_CHECKING:
    from headrace.fsspec._filesystem import StoreFileSystem

__all__ = ["CachedFile", "ReadFile", "TextFile", "WriteFile", "own_compressions"]

_log = logging.getLogger("headrace")


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

    def seek(self, loc: int, whence: int = os.SEEK_SET) -> int:
        """Go to another place, as in a `ReadFile`."""
        if not self.closed:  # of that the base tells
            loc, whence = place_of(self, loc, whence, self.size), os.SEEK_SET
        place: int = super().seek(loc, whence)
        return place

    def readline(self, size: int | None = -1) -> bytes:
        """Return the next line, of at most `size` bytes; fsspec's class takes no size."""
        begin = self.tell()
        line: bytes = super().readline()
        if size is None or not 0 <= size < len(line):
            return line
        self.seek(begin + size)
        return line[:size]

    readlines = io.IOBase.readlines  # with a hint

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._store.read(self._object, begin=start, end=min(end, self.size)).bytes()


class WriteFile(ObjectWriterIO):
    """An object that is being written.

    It becomes visible by `close`, as every `ObjectWriterIO`, or, if it was opened in a transaction,
    by the transaction's end.
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
        self._closed_by = 0  # the thread
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

    def compress(self, make: Callable[[Any], Any]) -> None:
        """Compress what is written from now on; `make` lays a compressor over a file."""
        self._writer = _CompressingWriter(self._writer, make)

    def _finish(self) -> None:
        if self.autocommit or self._failure is not None:
            self._publish()
        else:
            self._waits, self._closed_by = True, threading.get_ident()

    def commit(self) -> None:
        """Make the object visible; unless it was given up.

        Raises:
            ValueError: it is still open, so that nobody knows whether it is whole; nothing becomes
                visible.
        """
        if not self._waits and not self.closed:
            self.abort()
            raise ValueError(f"{self.name}: it was not closed before its transaction ended")
        self._waits = False
        if not self.closed:
            self._publish()

    def discard(self) -> None:
        """Give it up: nothing becomes visible."""
        # A transaction takes in what all threads write by its file system; this one sees its error.
        if self._waits and self._closed_by != threading.get_ident():
            _log.warning("%s is given up with its transaction, which has failed", self.name)
        self._waits = False
        self.abort()

    def _publish(self) -> None:
        try:
            super()._publish()
        except PreconditionFailedError as error:
            if self._exclusive:
                raise FileExistsError(f"{self.name}: exists already") from error
            raise

    def _check_open(self) -> None:
        if self._waits:
            raise ValueError(f"{self.name}: the file is closed, and waits for its transaction")
        super()._check_open()


class TextFile(io.TextIOWrapper):
    """Text on its way into a `WriteFile`, which decides how it ends."""

    buffer: WriteFile

    def __init__(self, buffer: WriteFile, **how: Any) -> None:
        super().__init__(buffer, **how)
        # Python leaves it out where a file cannot seek. Of utf-8-sig it does not.
        name = codecs.lookup(self.encoding).name
        self._mark = {"utf-16": codecs.BOM_UTF16, "utf-32": codecs.BOM_UTF32}.get(name, b"")

    def write(self, text: str, /) -> int:
        """Write text; what is encoded as utf-16 or utf-32 begins with a byte-order mark."""
        if self._mark:
            mark, self._mark = self._mark, b""
            if self.buffer.tell() == 0:
                self.buffer.write(mark)
        return super().write(text)

    def seek(self, cookie: int, whence: int = os.SEEK_SET, /) -> int:
        """Refuse it, as the file does."""
        self.flush()
        return self.buffer.seek(cookie, whence)

    def tell(self) -> int:
        """Return the place in bytes, which says whether something was written."""
        self.flush()
        return self.buffer.tell()

    def __enter__(self) -> TextFile:
        self.buffer.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None or self.closed:
            self.buffer.__exit__(kind, error, trace)
            return
        with self.buffer:
            self.flush()


class _Outlet:
    """Where a compressor writes: to a writer, or, once that has ended, nowhere."""

    def __init__(self, writer: Writer) -> None:
        self.writer: Writer | None = writer

    def write(self, data: Any) -> int:
        return len(data) if self.writer is None else self.writer.write(data)

    def flush(self) -> None:
        pass


class _CompressingWriter:
    """Compresses into a writer, and ends with it: fsspec's compressors leave their files open."""

    def __init__(self, writer: Writer, make: Callable[[Any], Any]) -> None:
        self._writer, self._outlet = writer, _Outlet(writer)
        self._compressor = make(self._outlet)
        self.size_bytes = 0

    @property
    def url(self) -> str:
        return self._writer.url

    @property
    def left_behind(self) -> str | None:
        return self._writer.left_behind

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            size_bytes = view.nbytes
            if not view.c_contiguous:
                raise BufferError(f"{self.url}: a buffer must be contiguous to be written")
        self._compressor.write(data)
        self.size_bytes += size_bytes
        return size_bytes

    def close(self) -> ObjectInfo:
        try:
            self._compressor.close()
        except BaseException:
            self.abort()
            raise
        return self._writer.close()

    def abort(self, *, patience_s: float = 5.0) -> None:
        self._outlet.writer = None
        self._writer.abort(patience_s=patience_s)
        with contextlib.suppress(Exception):  # it can be what has failed
            self._compressor.close()

    def __del__(self) -> None:
        # The compressor writes its end when it is dropped.
        outlet = getattr(self, "_outlet", None)
        if outlet is not None:
            outlet.writer = None


class _Compression:
    """One of fsspec's compressions, which a `WriteFile` does itself.

    fsspec's own layer ends without a word to the file below it, which then looks dropped.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, file: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(file, WriteFile):
            return self._make(file, *args, **kwargs)
        file.compress(functools.partial(self._make, **{**kwargs, "mode": "w"}))
        return file


def own_compressions() -> None:
    """Have fsspec's compressions, also those that were registered since, know a `WriteFile`."""
    for name, make in list(compr.items()):
        if name is not None and not isinstance(make, _Compression):
            register_compression(name, _Compression(make), [], force=True)
