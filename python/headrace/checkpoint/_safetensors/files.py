"""The headers of safetensors files in a store, of one file or of several with an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace._base.errors import CorruptDataError, NotFoundError, PreconditionFailedError
from headrace._engine import ObjectInfo
from headrace._store.store import Store
from headrace.checkpoint._object import about, corrupt, pinned, stat
from headrace.checkpoint._parallel_reads import Part, read_parts
from headrace.checkpoint._safetensors.header import Header, header_bytes_of, parse_header
from headrace.checkpoint._safetensors.names import SUFFIX, index_names_of, is_index_name

__all__ = [
    "HEADERS_KEY",
    "MAX_INDEX_BYTES",
    "File",
    "Files",
    "Index",
    "find",
    "just",
    "open_files",
    "parse_index",
    "read_index",
]

HEADERS_KEY = "headrace.headers"
"""In the metadata of an index: the CRC-32C of each file's header, which holds those of its tensors.

So a file that another save has replaced is told from the one that the index was written with.
"""

# The first read of a file: enough for the header of a hundred tensors or so, and little beside any
# file of some size.
HEAD_BYTES = 16 << 10
# An index has about as many bytes for a tensor as a header.
MAX_INDEX_BYTES = 100_000_000


@dataclass(frozen=True)
class File:
    """One file, and what its header tells."""

    info: ObjectInfo
    header: Header
    head: bytes
    """The bytes that have been read: the header, and maybe some behind it."""


@dataclass(frozen=True)
class Index:
    """What an index tells."""

    files: dict[str, str]
    """The name of the file that has each tensor, relative to the index."""
    metadata: dict[str, Any]
    header_sums: dict[str, int]
    """The CRC-32C of the headers, by the names of files; empty in an index of other programs."""


@dataclass(frozen=True)
class Files:
    """A checkpoint: one file, or the files of an index."""

    store: Store
    url: str
    """Of the file, or of the index."""
    infos: dict[str, ObjectInfo]
    """The files, by their names in the index; ``""`` for a file without one."""
    index: Index | None

    def name_of(self, key: str) -> str | None:
        """Return the file that has a tensor; None: only headers tell."""
        return None if self.index is None else self.index.files[key]

    def headers(self, names: Iterable[str], *, verify: bool) -> dict[str, File]:
        """Read the headers of these files at once.

        Raises:
            InvalidArgumentError: one is no safetensors file.
            CorruptDataError: one is damaged, or not the file that the index was written with.
        """
        wanted = {name: self.infos[name] for name in names}
        opened = open_files(self.store, list(wanted.values()), verify=verify)
        found = dict(zip(wanted, opened, strict=True))
        if self.index is not None:
            for name, file in found.items():
                self._require_same(name, file, verify)
        return found

    def _require_same(self, name: str, file: File, verify: bool) -> None:
        assert self.index is not None
        told = {key for key, each in self.index.files.items() if each == name}
        if told != set(file.header.entries):
            key = min(told ^ set(file.header.entries))
            where = "the index only" if key in told else "the file only"
            raise corrupt(
                self.url, f"its file {name} has other tensors than it says: {key!r} is in {where}"
            )
        expected = self.index.header_sums.get(name)
        if verify and expected is not None and expected != file.header.crc32c:
            raise corrupt(
                self.url,
                f"its file {name} is not the one that it was written with: another save, or another"
                " program, has replaced it",
            )


def find(store: Store, name: str) -> Files:
    """Find the file or the index called `name`, and the files of an index.

    Without an object of this name, the index of it counts: ``model.safetensors.index.json``, or
    ``model.safetensors.index.fp16.json`` for ``model.fp16.safetensors``.

    Raises:
        NotFoundError: there is neither.
        CorruptDataError: the index is damaged, or a file that it names is missing.
    """
    try:
        info = stat(store, name)
    except NotFoundError:
        if is_index_name(name):
            raise
        indexes = store.stat_many(index_names_of(name), missing_ok=True)
        found = next((each for each in indexes if each is not None), None)
        if found is None:
            raise
        info = found
    if not is_index_name(info.name):
        return just(store, info)
    while True:
        try:
            return _files_of(store, info)
        except (CorruptDataError, PreconditionFailedError):
            # A newer checkpoint removes the files of an older one.
            now = store.stat(info.name)
            if now.generation == info.generation:
                raise
            info = now


def read_index(store: Store, info: ObjectInfo) -> Index:
    """Read an index.

    Raises:
        CorruptDataError: it is damaged.
        PreconditionFailedError: it has been replaced.
    """
    url = store.url_of(info.name)
    if info.size_bytes > MAX_INDEX_BYTES:
        raise corrupt(url, f"an index has at most {MAX_INDEX_BYTES:,} bytes, and it has more")
    data = bytearray(info.size_bytes)
    pinned(store).read_ranges([(info, 0, info.size_bytes)], into=[data])
    with about(url):
        return parse_index(bytes(data))


def _files_of(store: Store, info: ObjectInfo) -> Files:
    """Return the files of an index."""
    url = store.url_of(info.name)
    index = read_index(store, info)
    folder = info.name[: info.name.rfind("/") + 1]
    names = sorted(set(index.files.values()))
    infos: dict[str, ObjectInfo] = {}
    stats = store.stat_many((folder + each for each in names), missing_ok=True)
    for each, found in zip(names, stats, strict=True):
        if found is None:
            raise corrupt(url, f"its file {each} is missing")
        infos[each] = found
    return Files(store, url, infos, index)


def just(store: Store, info: ObjectInfo) -> Files:
    """Return the checkpoint that is this file."""
    return Files(store, store.url_of(info.name), {"": info}, None)


def open_files(store: Store, infos: Sequence[ObjectInfo], *, verify: bool) -> list[File]:
    """Read the headers of files: their first bytes at once, then the rest of long headers.

    Raises:
        InvalidArgumentError: one is no safetensors file.
        CorruptDataError: one is damaged.
    """
    heads = [bytearray(min(HEAD_BYTES, info.size_bytes)) for info in infos]
    read_parts(
        store, [Part(info, 0, len(head), head) for info, head in zip(infos, heads, strict=True)]
    )
    rest: list[Part] = []
    tails: list[bytearray] = []
    for info, head in zip(infos, heads, strict=True):
        with about(store.url_of(info.name)):
            end = header_bytes_of(bytes(head[:16]), info.size_bytes)
        tails.append(bytearray(max(0, end - len(head))))
        rest.append(Part(info, len(head), len(head) + len(tails[-1]), tails[-1]))
    read_parts(store, rest)
    files = []
    for info, head, tail in zip(infos, heads, tails, strict=True):
        data = bytes(head + tail)
        with about(store.url_of(info.name)):
            header = parse_header(data, info.size_bytes, verify=verify)
        files.append(File(info, header, data))
    return files


def parse_index(data: bytes) -> Index:
    """Return what an index tells.

    Raises:
        CorruptDataError: it is not JSON of this form, or names a file elsewhere than beside it.
    """
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"it is damaged, or no index: {error}") from None
    files = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(files, dict):
        raise CorruptDataError("it is damaged, or no index: it has no weight_map")
    for key, name in files.items():
        if not isinstance(name, str) or not name.endswith(SUFFIX) or "/" in name:
            raise CorruptDataError(
                f"it is damaged: the tensor {ascii(key)[:200]} is said to be in "
                f"{ascii(name)[:200]}, which is no safetensors file beside it"
            )
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return Index(files, metadata, _header_sums(metadata.pop(HEADERS_KEY, None)))


def _header_sums(found: object) -> dict[str, int]:
    if found is None:
        return {}
    try:
        return {name: int(digits, 16) for name, digits in found.items()}  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        raise CorruptDataError("it is damaged: its sums of headers are none") from None
