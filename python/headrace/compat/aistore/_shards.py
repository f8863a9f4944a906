"""Shards: objects that are archives of many members."""

from __future__ import annotations

import functools
import gzip
import importlib
import io
import mmap
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from itertools import groupby
from typing import Any

from headrace import CorruptDataError, Sample, _engine
from headrace._files.view_io import ViewIO
from headrace.compat.aistore._errors import as_sdk_raises
from headrace.compat.aistore._objects import StoredObject
from headrace.compat.aistore._reading import read_in_order

__all__ = ["Shard", "read_shards"]

# A larger shard is not held in memory, but in a file without a name.
_IN_MEMORY_BYTES = 32 << 20
_BLOCK_SHARDS = 8
_COPY_BYTES = 1 << 20
_AHEAD_BYTES = 16 << 20
_MOST_LINKS = 40  # as Linux follows


class Shard:
    """An archive: a tar, maybe compressed, or a zip.

    Args:
        content: the archive, as bytes in memory or as a file that is mapped.

    Raises:
        tarfile.TarError: this is no archive, or a broken one.
    """

    def __init__(self, content: Any) -> None:
        view = memoryview(content).toreadonly().cast("B")
        if len(view) == 0:
            raise tarfile.ReadError("the object is empty")
        self._view = view
        self._zip: zipfile.ZipFile | None = None
        if bytes(view[:4]) in (b"PK\x03\x04", b"PK\x05\x06"):
            self._open_zip()
            return
        opener = _opener(view)
        if opener is not None:
            self._view = view = _decompressed(view, opener)
        try:
            names, types, self._links, self._begins, self._ends, self._sparse = _engine.tar_members(
                view
            )
        except CorruptDataError as error:
            raise tarfile.ReadError(str(error)) from error
        # A folder's name may end with a slash. A name that does is never one of a file.
        self.names = [
            name.rstrip("/") if letter == "5" else name
            for name, letter in zip(names, types, strict=True)
        ]
        self._types = [
            "5" if name.endswith("/") else letter for name, letter in zip(names, types, strict=True)
        ]
        self.is_file = [letter == "0" for letter in self._types]
        self.is_folder = [letter == "5" for letter in self._types]

    def _open_zip(self) -> None:
        try:
            self._zip = zipfile.ZipFile(ViewIO(self._view))
        except zipfile.BadZipFile as error:
            raise tarfile.ReadError(str(error)) from error
        self._entries = self._zip.infolist()
        self.names = [each.filename for each in self._entries]
        self.is_folder = [each.is_dir() for each in self._entries]
        self.is_file = [not each for each in self.is_folder]
        self._links = {}

    def read(self, number: int) -> bytes:
        """Return the content of a member; of a link, that of the member it leads to.

        Raises:
            tarfile.TarError: a link leads to nothing in the archive.
        """
        if number in self._links:
            number = self._target(number)
        if self._zip is not None:
            return self._zip.read(self._entries[number])
        begin, end = self._begins[number], self._ends[number]
        if number not in self._sparse:
            return self._view[begin:end].tobytes()
        content = bytearray(end - begin)
        for first, last in self._sparse[number]:
            content[first:last] = self._view[begin : begin + last - first]
            begin += last - first
        return bytes(content)

    def _target(self, link: int) -> int:
        """Return the number of the file that a link leads to, maybe by other links."""
        number = link
        for _ in range(_MOST_LINKS):
            name = self._links[number]
            if self._types[number] == "2":
                name = posixpath.join(posixpath.dirname(self.names[number]), name)
            found = self._numbers.get(posixpath.normpath(name))
            if found is None or found == number or self.is_folder[found]:
                break
            number = found
            if number not in self._links:
                return number
        raise tarfile.ReadError(
            f"the member {self.names[link]!r} is a link to {self._links[link]!r}, which leads to "
            "no file in the archive"
        )

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {posixpath.normpath(name): number for number, name in enumerate(self.names)}


def _decompressed(view: memoryview, opener: Callable[[Any], Any]) -> memoryview:
    with tempfile.TemporaryFile() as file:
        try:
            with opener(ViewIO(view)) as plain:
                shutil.copyfileobj(plain, file, _COPY_BYTES)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise tarfile.ReadError(f"the compression is broken: {error}") from error
        content = memoryview(_mapped(file))
    if len(content) == 0:
        raise tarfile.ReadError("the archive is empty")
    return content


def _opener(view: memoryview) -> Callable[[Any], Any] | None:
    """Return what reads this compression; None if there is none."""
    head = bytes(view[:6])
    if head.startswith(b"\x1f\x8b"):
        return lambda file: gzip.GzipFile(fileobj=file)
    if head.startswith(b"\x04\x22\x4d\x18"):
        lz4: Callable[[Any], Any] = _module("lz4.frame", "lz4").open
        return lz4
    return None


def _module(name: str, kind: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise tarfile.ReadError(
            f"the shard is compressed by {kind}: install the package {name.partition('.')[0]}"
        ) from None


def read_shards(objects: Iterable[Any], etl_name: Any) -> Generator[tuple[Any, Shard]]:
    """Yield each object and the shard that it is, reading ahead.

    Small shards are in memory; a large one is copied into a temporary file.

    Raises:
        tarfile.TarError: an object is no archive, or a broken one.
    """
    for is_large, group in groupby(objects, lambda value: _is_large(value, etl_name)):
        if is_large:
            for value in group:
                yield value, _opened(value, _copied(value))
            continue
        found = read_in_order(
            group, etl_name, block_objects=_BLOCK_SHARDS, block_bytes=_IN_MEMORY_BYTES
        )
        with closing(found):
            for value, content in found:
                yield value, _opened(value, _as_buffer(content))


def _opened(value: Any, content: Any) -> Shard:
    try:
        return Shard(content)
    except tarfile.TarError as error:
        raise tarfile.ReadError(f"{value.name}: {error}") from error


def _as_buffer(content: Any) -> Any:
    return memoryview(content) if isinstance(content, Sample) else content


def _is_large(value: Any, etl_name: Any) -> bool:
    if etl_name or not isinstance(value, StoredObject):
        return False
    return value._part.size_bytes(value._index) > _IN_MEMORY_BYTES


def _copied(value: StoredObject) -> Any:
    with tempfile.TemporaryFile() as file:
        reader = value.get_reader()
        with reader.as_file(prefetch_bytes=_AHEAD_BYTES) as source, as_sdk_raises():
            shutil.copyfileobj(source, file, 4 * _COPY_BYTES)
        return _mapped(file)


def _mapped(file: Any) -> Any:
    file.flush()
    if file.seek(0, io.SEEK_END) == 0:
        return b""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
