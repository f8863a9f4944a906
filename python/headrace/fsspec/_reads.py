"""Objects and ranges read together into bytes, and files by pieces."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headrace import _engine
from headrace._base.contexts import context
from headrace._base.errors import (
    InvalidArgumentError,
    ResourceError,
)
from headrace._base.options import MiB
from headrace._files.writer_io import ObjectWriterIO
from headrace._store.store import Store
from headrace.fsspec._threads import raise_if_over

__all__ = ["Reads", "Span", "local_file", "pieces", "raise_first", "with_gap"]

# What one call of read and of write moves between an object and a local file.
_COPIED_BYTES = 16 * MiB


class Span(NamedTuple):
    """What is to be read of an object."""

    at: int
    """Its place among all that is wanted."""
    name: str
    range: tuple[int, int | None] | None
    """None: all of it."""

    @property
    def size(self) -> int | None:
        """How many bytes these are, if the object has so many; None: that is not known."""
        if self.range is None or self.range[1] is None:
            return None
        return self.range[1] - self.range[0]


class Reads:
    """Objects, or ranges, of one store that are being read together into bytes.

    Ranges whose size is known go straight into the bytes that are handed out.
    """

    def __init__(self, store: Store, reader: Store, spans: list[Span]) -> None:
        self._store, self._spans = store, spans
        ranges = [span.range for span in spans if span.range is not None] or None
        self._filled = [_space(span.size) for span in spans if span.size is not None]
        self._views = [space.getbuffer() for space in self._filled]
        names = [span.name for span in spans]
        self._batch: _engine.Batch | None = reader._handle().start(
            names, self._views or None, ranges
        )

    def take(self, found: list[Any]) -> None:
        """Wait, and put bytes, or an error, into the place of each."""
        assert self._batch is not None
        samples: list[Any] = self._batch.take(return_errors=True)
        failed = [each if isinstance(each, Exception) else None for each in samples]
        if self._views:
            samples.clear()
            self._release()
        for i, (span, error) in enumerate(zip(self._spans, failed, strict=True)):
            if error is not None:
                found[span.at] = _again(self._store, span, error)
            elif self._filled:
                found[span.at] = self._filled[i].getvalue()  # no copy
            else:
                found[span.at] = samples[i].bytes()
                samples[i] = None  # its memory is free again

    def _release(self) -> None:
        # Both hold the views, and a BytesIO gives its bytes away only if nobody has a view of them.
        self._batch = None
        for view in self._views:
            view.release()

    def cancel(self) -> None:
        """End it early."""
        if self._batch is not None:
            self._batch.cancel()
            self._batch.drain()


def _again(store: Store, span: Span, error: Exception) -> Any:
    """Return what a read that has failed should have given, if there is another way to it."""
    try:
        if isinstance(error, InvalidArgumentError) and span.range is not None:
            # The range ends behind the object, or begins there: no error in Python.
            begin, end = span.range
            if begin >= store.stat(span.name).size_bytes:
                return b""
            return store.read(span.name, begin=begin, end=end).bytes()
        if isinstance(error, ResourceError):  # larger than the memory budget
            return _read_into_bytes(store, span)
    except Exception as another:
        return another
    return error


def _read_into_bytes(store: Store, span: Span) -> bytes:
    """Read what the memory budget has no room for into memory that is the caller's."""
    info = store.stat(span.name)
    begin, end = span.range or (0, None)
    end = info.size_bytes if end is None else min(end, info.size_bytes)
    filled = _space(end - begin)
    with filled.getbuffer() as into:
        if span.range is None:
            store.read(info, into=into)
        else:
            store.read(info, begin=begin, end=end, into=into)
    return filled.getvalue()


def _space(size_bytes: int) -> io.BytesIO:
    """Return memory for so many bytes, which it gives away as ``bytes`` without a copy."""
    # It takes over bytes that nobody else refers to. The system gives large ones pages when they
    # are written to, which is when they arrive.
    return io.BytesIO(bytes(size_bytes))


def with_gap(store: Store, max_gap: int) -> Store:
    parallel = dataclasses.replace(store._settings.parallel, max_gap_bytes=max_gap)
    return store._derived(parallel=parallel)


def raise_first(found: Iterable[Any]) -> None:
    for each in found:
        if isinstance(each, BaseException):
            raise each


def pieces(source: Any, size_bytes: int) -> Iterator[memoryview]:
    """Yield the bytes of a file, of about this size, by pieces, in memory that is used again."""
    buffer = bytearray(min(_COPIED_BYTES, size_bytes + 1))
    with memoryview(buffer) as view:
        while count := source.readinto(view):
            raise_if_over()
            with view[:count] as piece:
                yield piece


@context
def local_file(path: str) -> Iterator[Any]:
    """Give a local file to write, which appears when all was written."""
    if os.path.exists(path) and not os.path.isfile(path):  # a device, a pipe; or an error
        with open(path, "wb") as file:
            yield file
        return
    folder, _, name = path.rpartition("/")
    with ObjectWriterIO(Store(folder or "/").open_writer(name)) as writer:
        yield writer
