"""The contents of a checkpoint's file: its directory, and the records that describe the rest."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from headrace import _engine
from headrace._base.errors import CorruptDataError, InvalidArgumentError
from headrace._engine import ObjectInfo, ZipEntry
from headrace._store.store import Store
from headrace.checkpoint._object import about, corrupt, pinned, refused
from headrace.checkpoint._outline import Outline, StorageReference, outline_of
from headrace.checkpoint._parallel_reads import Wanted, read_into

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Archive", "Ends", "is_legacy", "is_safetensors", "read_ends"]

Ends = list[tuple[int, bytes]]
"""The bytes read from both ends of an object, or all of it: each with its offset."""

# How much the first step reads from each end of the object: enough for the pickle and the directory
# of a few thousand tensors.
END_BYTES = 256 << 10

_PICKLE = "data.pkl"
# The records besides the storages; any others are ignored.
_SMALL_RECORDS = (
    _PICKLE,
    ".format_version",
    ".storage_alignment",
    "byteorder",
    "version",
    ".data/serialization_id",
)


class Archive:
    """One checkpoint's file. Records have torch's names: ``data.pkl``, ``data/0``.

    Attributes:
        entries: the records, by name.
        verify: whether sums are compared.
    """

    def __init__(self, store: Store, info: ObjectInfo, ends: Ends, verify: bool) -> None:
        self.store, self.info, self.verify = store, info, verify
        self.url = store.url_of(info.name)
        self._ends = ends
        begin, directory = self._directory()
        with about(self.url):
            entries, self._frames, self._whole = _engine.parse_directory(directory, begin)
        if not entries:
            raise refused(self.url, "it is an empty zip, not a file of torch.save")
        prefix = entries[0].name.partition("/")[0] + "/"
        self.entries: dict[str, ZipEntry] = {
            entry.name.removeprefix(prefix): entry for entry in entries
        }
        # torch can be configured to write no checksums: then all of them are zero.
        self._has_crc32 = any(entry.crc32 for entry in entries)
        self._begins: dict[str, int] = {}
        self._require_checkpoint()
        self._find([name for name in self.entries if name in _SMALL_RECORDS])
        self.small = self._read_small()

    @property
    def pickle(self) -> bytes:
        return self.small[_PICKLE]

    @cached_property
    def outline(self) -> Outline:
        try:
            return outline_of(self.pickle)
        except pickle.UnpicklingError as error:
            raise corrupt(self.url, f"its pickle cannot be read: {error}") from None

    def forget_outline(self) -> None:
        """Let go of the outline; whoever asks for it again, to tell a place, gets another."""
        self.__dict__.pop("outline", None)

    @property
    def frames(self) -> list[tuple[int, bytes]]:
        """The bytes around the contents, if no other checksum covers them.

        They are known only for files that headrace wrote. If the store has a CRC-32C, that covers
        them.
        """
        return self._frames if self.verify and self.info.crc32c is None else []

    @property
    def content(self) -> bytes | None:
        """All of a small object, which was read at once; None: it is larger."""
        begin, data = self._ends[0]
        return data if begin == 0 and len(data) == self.info.size_bytes else None

    def require_whole(self) -> None:
        """Raise unless the store's CRC-32C, if it has one, is that of the saved file.

        Call this once all records are known to be right: a mismatch is then between them.
        """
        sums = (self._whole, self.info.crc32c)
        if self.verify and None not in sums and sums[0] != sums[1]:
            raise corrupt(
                self.url,
                "what stands between its records is damaged: the CRC-32C that the store keeps is "
                "not that of the file that was saved",
            )

    def require(self, name: str) -> ZipEntry:
        """Return a record's entry."""
        entry = self.entries.get(name)
        if entry is None:
            raise corrupt(self.url, f"the record {name} is missing")
        return entry

    def require_sized(self, name: str, size_bytes: int | None) -> ZipEntry:
        """Return the entry of a storage's record, which has this size unless that is None."""
        entry = self.require(name)
        if size_bytes is not None and entry.size_bytes != size_bytes:
            place = self.outline.place_of(name.removeprefix("data/"))
            raise corrupt(
                self.url,
                f"the record {name}{place and f' of {place!r}'} has {entry.size_bytes} bytes, and "
                f"its tensor {size_bytes}",
            )
        return entry

    def require_storage(self, storage: StorageReference) -> ZipEntry:
        """Return the entry of a storage's record, which is as long as the pickle says."""
        return self.require_sized(f"data/{storage.key}", storage.size_bytes)

    def ranges(self, names: list[str]) -> list[tuple[int, int]]:
        """Return the ranges of these records' contents."""
        self._find(names)
        return [
            (self._begins[name], self._begins[name] + self.entries[name].size_bytes)
            for name in names
        ]

    def sums(self, names: Iterable[str]) -> tuple[str, dict[str, int]]:
        """Return a kind of CRC and the records' sums; ``("", {})`` without one kind for all."""
        found = {name: self._sum_of(name) for name in names}
        kinds = {kind for kind, _ in found.values()}
        if len(kinds) != 1 or "" in kinds:
            return "", {}
        return kinds.pop(), {name: crc for name, (_, crc) in found.items()}

    def _sum_of(self, name: str) -> tuple[str, int]:
        """Return the kind and the value of a record's best checksum; ``""``: nothing to compare."""
        entry = self.entries[name]
        if self.verify and entry.crc32c is not None:
            return "crc32c", entry.crc32c
        return "crc32" if self.verify and self._has_crc32 else "", entry.crc32

    def is_right(self, name: str, data: Buffer) -> bool:
        """Return whether these are the record's bytes, by the best checksum available."""
        kind, crc = self._sum_of(name)
        if not kind:
            return True
        return (_engine.crc32c if kind == "crc32c" else _engine.crc32)(data) == crc

    def wrong(self, name: str) -> CorruptDataError:
        """Return the error for a record with wrong bytes."""
        sum_name = "CRC-32" if self.entries[name].crc32c is None else "CRC-32C"
        what = f"the record {name}"
        if name.startswith("data/"):
            place = self.outline.place_of(name.removeprefix("data/"))
            what = f"the tensor {place!r} (record {name})" if place else what
        return corrupt(
            self.url, f"{what} is damaged: its {sum_name} is not the one that was saved with it"
        )

    def _directory(self) -> tuple[int, bytes]:
        tail_begin, tail = self._ends[-1]
        if not self._ends[0][1].startswith(b"PK\x03\x04"):
            raise _not_a_checkpoint(self.url, self._ends[0][1])
        with about(self.url):
            begin = _engine.find_directory(tail, self.info.size_bytes)
        if begin >= tail_begin:
            return begin, tail[begin - tail_begin :]
        missing = bytearray(tail_begin - begin)
        read_into(self.store, self.info, [(begin, tail_begin, missing)])
        return begin, bytes(missing) + tail

    def _require_checkpoint(self) -> None:
        if "constants.pkl" in self.entries:
            raise refused(self.url, "it is a TorchScript archive: read it with torch.jit.load")
        if _PICKLE not in self.entries:
            raise refused(
                self.url, f"it is a zip, but not a file of torch.save: it has no {_PICKLE}"
            )

    def _find(self, names: list[str]) -> None:
        """Find where contents begin; read local headers if the directory does not tell."""
        unknown = []
        for name in names:
            begin = self.require(name).begin
            if begin is not None:
                self._begins[name] = begin
            elif name not in self._begins:
                unknown.append(name)
        headers = {name: bytearray(30) for name in unknown}
        self._fill(
            [(self.entries[name].header_offset_bytes, header) for name, header in headers.items()]
        )
        for name, header in headers.items():
            with about(self.url):
                self._begins[name] = self.entries[name].content_begin(header)

    def _read_small(self) -> dict[str, bytes]:
        names = [name for name in _SMALL_RECORDS if name in self.entries]
        contents = {name: bytearray(self.entries[name].size_bytes) for name in names}
        ranges = self.ranges(names)
        self._fill(
            [(begin, contents[name]) for name, (begin, _) in zip(names, ranges, strict=True)]
        )
        for name, content in contents.items():
            if not self.is_right(name, content):
                raise self.wrong(name)
        return {name: bytes(content) for name, content in contents.items()}

    def _fill(self, wanted: list[tuple[int, bytearray]]) -> None:
        """Fill memory with parts of the object, from the ends already read where possible."""
        missing: list[Wanted] = []
        for begin, memory in wanted:
            end = begin + len(memory)
            if end > self.info.size_bytes:
                raise corrupt(self.url, "a record lies outside of it")
            for at, data in self._ends:
                if at <= begin and end <= at + len(data):
                    memory[:] = data[begin - at : end - at]
                    break
            else:
                missing.append((begin, end, memory))
        read_into(self.store, self.info, missing)


def read_ends(store: Store, info: ObjectInfo) -> Ends:
    """Read both ends of an object at once, or all of it if it is small.

    Raises:
        InvalidArgumentError: it is empty.
    """
    size_bytes = info.size_bytes
    if size_bytes == 0:
        raise refused(store.url_of(info.name), "it is empty, not a checkpoint")
    spans = (
        [(0, size_bytes)]
        if size_bytes <= 2 * END_BYTES
        else [(0, END_BYTES), (size_bytes - END_BYTES, size_bytes)]
    )
    memory = [bytearray(end - begin) for begin, end in spans]
    pinned(store).read_ranges([(info, begin, end) for begin, end in spans], into=memory)
    return [(begin, bytes(data)) for (begin, _), data in zip(spans, memory, strict=True)]


def is_legacy(head: bytes) -> bool:
    """Return whether a file has the format of torch.save before version 1.6."""
    # torch's magic number, pickled.
    return b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19" in head[:16]


def is_safetensors(head: bytes) -> bool:
    """Return whether a file begins as one of safetensors does."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32


def _not_a_checkpoint(url: str, head: bytes) -> InvalidArgumentError:
    if is_legacy(head):
        return refused(
            url,
            "it has the format that torch.save wrote before version 1.6 (or writes with "
            "_use_new_zipfile_serialization=False), which has no directory: read the whole by "
            "headrace.checkpoint.load",
        )
    if head[:2] == b"\x1f\x8b":
        return refused(url, "it is compressed by gzip: decompress it first")
    return refused(url, "it is not a file of torch.save: it does not begin as a zip does")
