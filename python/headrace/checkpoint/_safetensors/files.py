"""The headers of safetensors files in a store, of one file or of several with an index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace._engine import ObjectInfo
from headrace._errors import CorruptDataError, NotFoundError
from headrace._store import Store
from headrace.checkpoint._object import about, corrupt, pinned, stat
from headrace.checkpoint._parallel_reads import Part, read_parts
from headrace.checkpoint._safetensors.header import Header, header_bytes_of, parse_header

__all__ = [
    "INDEX_SUFFIX",
    "SUFFIX",
    "File",
    "Files",
    "Index",
    "find",
    "is_part_name",
    "is_part_of",
    "is_safetensors_name",
    "just",
    "open_files",
    "parse_index",
]

SUFFIX = ".safetensors"
INDEX_SUFFIX = f"{SUFFIX}.index.json"

HEADERS_KEY = "headrace.headers"
"""In the metadata of an index: the CRC-32C of each file's header, which holds those of its tensors.

So a file that another save has replaced is told from the one that the index was written with.
"""

# The first read of a file: enough for the header of a hundred tensors or so, and little beside any
# file of some size.
HEAD_BYTES = 16 << 10
# An index has about as many bytes for a tensor as a header.
_MAX_INDEX_BYTES = 100_000_000

# "model-00001-of-00003.safetensors"; with eight more digits where a checkpoint replaces another.
_PART = re.compile(r"(-[0-9a-f]{8})?-\d{5}-of-\d{5}\.safetensors$")


def is_safetensors_name(name: str) -> bool:
    """Return whether an object of this name is a safetensors file, or an index of some."""
    return name.endswith((SUFFIX, INDEX_SUFFIX))


def is_part_name(name: str) -> bool:
    """Return whether an object of this name is one of several files with an index."""
    return _PART.search(name) is not None


def is_part_of(stem: str, name: str) -> bool:
    """Return whether `name` is that of a file of the index ``STEM.safetensors.index.json``."""
    match = _PART.search(name)
    return match is not None and name[: match.start()] == stem


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

    Without an object of this name, the index of it counts: ``model.safetensors.index.json``.

    Raises:
        NotFoundError: there is neither.
        CorruptDataError: the index is damaged, or a file that it names is missing.
    """
    try:
        info = stat(store, name)
    except NotFoundError:
        if not name.endswith(SUFFIX):
            raise
        index_info = store.stat(f"{name}{INDEX_SUFFIX.removeprefix(SUFFIX)}", missing_ok=True)
        if index_info is None:
            raise
        info = index_info
    url = store.url_of(info.name)
    if not info.name.endswith(INDEX_SUFFIX):
        return just(store, info)
    if info.size_bytes > _MAX_INDEX_BYTES:
        raise corrupt(url, f"an index has at most {_MAX_INDEX_BYTES:,} bytes, and it has more")
    data = bytearray(info.size_bytes)
    pinned(store).read_ranges([(info, 0, info.size_bytes)], into=[data])
    with about(url):
        index = parse_index(bytes(data))
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
        assert isinstance(found, dict)
        return {name: int(digits, 16) for name, digits in found.items()}
    except (AssertionError, TypeError, ValueError):
        raise CorruptDataError("it is damaged: its sums of headers are none") from None
