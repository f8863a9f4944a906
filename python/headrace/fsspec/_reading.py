"""Reading objects into bytes and into local files."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike

from headrace._base.errors import (
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace._store.store import Store
from headrace.fsspec._arguments import number_of
from headrace.fsspec._files import ReadFile
from headrace.fsspec._listing import Listing
from headrace.fsspec._reads import Reads, Span, local_file, pieces, raise_first, with_gap

__all__ = ["Reading"]

# Of what is longer it is asked first how much there is: callers give ends that no object has.
_LONG_BYTES = 1 << 30


class Reading(Listing):
    """Bytes of objects: each call is one batch of requests."""

    def _missing(self, path: str, error: NotFoundError) -> OSError:
        """Return what is to be raised where no object is."""
        store, name = self._at(path)
        try:
            is_folder = self._is_folder(path)
        except HeadraceError:  # whoever may not list is told what the read told
            is_folder = False
        if is_folder:
            return IsADirectoryError(errno.EISDIR, "it is a folder", store.url_of(name))
        return error

    def _reader(
        self, path: str, *, if_generation: str | None = None, prefetch_bytes: int | None = None
    ) -> ReadFile:
        store, name = self._object_at(path)
        ahead = self._prefetch_bytes if prefetch_bytes is None else prefetch_bytes
        try:
            return ReadFile(
                self, path, store, name, if_generation=if_generation, prefetch_bytes=ahead
            )
        except NotFoundError as error:
            raise self._missing(path, error) from None

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Return the bytes ``[start, end)`` of an object, by default all; as in slices of Python.

        Raises:
            FileNotFoundError: there is no such object.
            CorruptDataError: all was read, and does not match the object's checksum.
        """
        found: list[Any] = self._read([(path, start, end)])
        raise_first(found)
        data: bytes = found[0]
        return data

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any
    ) -> Any:
        """Return the bytes of an object, or a dict of those of several, which one batch reads.

        Args:
            path: an object; or a pattern, a list of names, or with `recursive` a folder.
            on_error: ``"raise"`` the first error, ``"omit"`` what fails, or ``"return"`` errors as
                values.
            kwargs: ``start`` and ``end``, for all of them.

        Raises:
            FileNotFoundError: there is no such object.
        """
        start, end = kwargs.get("start"), kwargs.get("end")
        paths = self.expand_path(path)
        if recursive:
            paths = sorted({found for each in paths for found in self.find(each)})
        is_one = isinstance(path, str) and paths == [self._strip_protocol(path)]
        found = self._read([(each, start, end) for each in paths])
        if on_error == "raise" or is_one:
            raise_first(found)
        if is_one:
            return found[0]
        pairs = zip(paths, found, strict=True)
        return {p: f for p, f in pairs if on_error != "omit" or not isinstance(f, Exception)}

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Return the bytes of ranges of objects, in their order, read by one batch.

        Args:
            paths: one for each range.
            starts: the first byte of each, or of all; None and negative numbers as in slices.
            ends: one past the last byte of each, or of all.
            max_gap: read ranges of one object by one request if so few bytes lie between them;
                default: `ParallelOptions.max_gap_bytes`.
            on_error: ``"return"`` errors in their places, or ``"raise"`` the first one.

        Raises:
            TypeError: `paths` is not a list.
            ValueError: there are not as many starts and ends as paths.
        """
        if not isinstance(paths, list):
            raise TypeError(f"paths is a {type(paths).__name__}; it must be a list")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(starts) == len(ends) == len(paths):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends")
        gap = number_of("max_gap", max_gap)
        found = self._read(list(zip(paths, starts, ends, strict=True)), gap)
        if on_error != "return":
            raise_first(found)
        return found

    def _read(
        self, wanted: Sequence[tuple[str, int | None, int | None]], max_gap: int | None = None
    ) -> list[Any]:
        """Return bytes, or an error, for each path with a start and an end."""
        found: list[Any] = [None] * len(wanted)
        batches: list[Reads] = []
        try:
            for store, spans in self._spans(wanted, found).items():
                reader = store if max_gap is None else with_gap(store, max_gap)
                # Whole objects apart: they have checksums. And what may be how long is not known.
                whole = [span for span in spans if span.range is None]
                rest = [span for span in spans if span.range is not None and span.size is None]
                parts = [span for span in spans if span.size is not None]
                batches += [Reads(store, reader, some) for some in (whole, rest, parts) if some]
            while batches:
                batches[0].take(found)
                batches.pop(0)
        finally:
            for reads in batches:
                reads.cancel()
        return found

    def _spans(
        self, wanted: Sequence[tuple[str, int | None, int | None]], found: list[Any]
    ) -> dict[Store, list[Span]]:
        """Return what is to be read of each store.

        What cannot be, and what is empty, is put into `found` at once.
        """
        spans: dict[Store, list[Span]] = {}
        last: tuple[str, Store, str] | None = None
        for at, (path, start, end) in enumerate(wanted):
            try:
                if last is None or path != last[0]:
                    last = (path, *self._object_at(path))
                _, store, name = last
                if min(start or 0, end or 0) < 0 or (end or 0) - (start or 0) > _LONG_BYTES:
                    start, end, _ = slice(start, end).indices(store.stat(name).size_bytes)
                begin = start or 0
                if end is not None and end <= begin:
                    store.stat(name)  # a missing object has no empty range either
                    found[at] = b""
                    continue
            except Exception as error:
                found[at] = error
                continue
            wants_all = begin == 0 and end is None
            spans.setdefault(store, []).append(Span(at, name, None if wants_all else (begin, end)))
        return spans

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **_: Any,
    ) -> None:
        """Copy an object into a local file, which appears whole and verified, or not at all.

        Args:
            rpath: the object; a folder is made as a directory.
            lpath: the path of the file, or an open file.
            callback: is told of the bytes.
            outfile: an open file.

        Raises:
            FileNotFoundError: there is no such object.
            CorruptDataError: the bytes do not match the object's checksum.
            InvalidArgumentError: `lpath` has a ``..`` from the object's name, which would lead out
                of the folder that objects are copied into.
        """
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        if outfile is None and ".." in rpath.split("/") and ".." in os.fspath(lpath).split("/"):
            raise InvalidArgumentError(
                f"{rpath}: its name has a '..', which would lead out of the folder; copy it by "
                "itself, to a path without '..'"
            )
        try:
            reader = self._reader(rpath)
        except IsADirectoryError:
            if outfile is not None:
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        with reader, contextlib.ExitStack() as stack:
            callback.set_size(reader.size)
            if outfile is None:
                outfile = stack.enter_context(local_file(os.path.abspath(lpath)))
            for piece in pieces(reader, reader.size):
                outfile.write(piece)
                callback.relative_update(len(piece))
