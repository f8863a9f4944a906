"""Read tensors of safetensors files, and slices of them, straight into memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import torch

from headrace import _engine
from headrace._base.options import require_bytes
from headrace._base.progress import Progress, ProgressOption, choose_progress
from headrace._files.whole_sum import crc_of, damage_of
from headrace._store.store import Store
from headrace.checkpoint._checkpoint_reader import CheckpointReader, TensorInfo
from headrace.checkpoint._device_copies import (
    destination,
    flat,
    goes_to_cuda,
    memory_of,
    new_storage,
    passing_storage,
    release_page_locked,
)
from headrace.checkpoint._object import corrupt, refused
from headrace.checkpoint._parallel_reads import (
    GROUP_BYTES,
    GROUPS_AHEAD,
    Part,
    PartReads,
    ahead,
    expect_parts,
    grouped,
    read_parts,
)
from headrace.checkpoint._safetensors.dtypes import packed_shape, torch_dtype
from headrace.checkpoint._safetensors.files import File, Files
from headrace.checkpoint._safetensors.header import Entry
from headrace.checkpoint._slices import MAX_GAP_BYTES, Index, about_index, select

__all__ = ["SafetensorsReader", "load_tensors"]

Storages = dict[str, torch.UntypedStorage]


class SafetensorsReader(CheckpointReader):
    """The tensors of a safetensors file, or of several with an index."""

    def __init__(self, files: Files, verify: bool) -> None:
        self._files = files
        self._verify = verify
        self._opened: dict[str, File] = {}
        if files.index is None:
            self._open([""])

    @property
    def url(self) -> str:
        return self._files.url

    @property
    def metadata(self) -> dict[str, str]:
        self._open(self._files.infos)
        found: dict[str, str] = {}
        for file in self._opened.values():
            found |= file.header.metadata
        return found

    def keys(self) -> list[str]:
        index = self._files.index
        return list(self._opened[""].header.entries if index is None else index.files)

    def __contains__(self, key: object) -> bool:
        index = self._files.index
        return key in (self._opened[""].header.entries if index is None else index.files)

    def __len__(self) -> int:
        return len(self.keys())

    def info(self, key: str) -> TensorInfo:
        (place,) = _places(self._entries([key]), self._opened, self.url)
        return TensorInfo(
            dtype=place.dtype, shape=torch.Size(place.shape), size_bytes=place.entry.size_bytes
        )

    def tensors(self, keys: Iterable[str]) -> dict[str, torch.Tensor]:
        places = _places(self._entries(keys), self._opened, self.url)
        storages = _WholeReads(self._files.store, places).finish()
        return {place.entry.name: place.tensor_of(storages[place.entry.name]) for place in places}

    def slices(
        self, indices: Mapping[str, Index], *, max_gap_bytes: int = MAX_GAP_BYTES
    ) -> dict[str, torch.Tensor]:
        max_gap_bytes = require_bytes("max_gap_bytes", max_gap_bytes, minimum=0)
        found: dict[str, torch.Tensor] = {}
        parts: list[Part] = []
        for place in _places(self._entries(indices), self._opened, self.url):
            key, begins = place.entry.name, place.entry.begin
            with about_index(self.url, key, indices[key]):
                selection = select(place.shape, place.dtype.itemsize, indices[key], max_gap_bytes)
            size = selection.run_bytes
            buffer = torch.empty(len(selection.begins) * size, dtype=torch.uint8, device="cpu")
            memory = memory_of(buffer)
            for i, begin in enumerate(selection.begins):
                part = memory[i * size : (i + 1) * size]
                parts.append(Part(place.info, begins + begin, begins + begin + size, part))
            found[key] = torch.as_strided(
                buffer.view(place.dtype), selection.shape, selection.strides
            )
        for _ in PartReads(self._files.store, parts, max_gap_bytes=max_gap_bytes):
            pass
        # Whatever was read besides goes, and with it the memory that it takes.
        return {key: _dense(tensor) for key, tensor in found.items()}

    def _entries(self, keys: Iterable[str]) -> list[tuple[str, str]]:
        """Return the file and the name of each tensor, once, with these files open."""
        wanted = list(dict.fromkeys(keys))
        for key in wanted:
            if key not in self:
                raise KeyError(key)
        files = [(self._files.name_of(key) or "", key) for key in wanted]
        self._open({file for file, _ in files})
        return files

    def _open(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self._opened]
        self._opened |= self._files.headers(missing, verify=self._verify)


class _Place:
    """One tensor of one file, as torch has it."""

    def __init__(self, file: File, entry: Entry, url: str) -> None:
        self.file, self.entry, self.info = file, entry, file.info
        what = f"the tensor {entry.name!r} is of the dtype {entry.dtype}, and"
        dtype = torch_dtype(entry.dtype)
        if dtype is None:
            raise refused(url, f"{what} this version of torch has no such dtype")
        shape = packed_shape(entry.dtype, entry.shape)
        if shape is None:
            raise refused(
                url, f"{what} torch packs two elements into one: {list(entry.shape)} is odd"
            )
        self.dtype, self.shape = dtype, shape

    def tensor_of(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """Return the tensor with these bytes."""
        made = torch.empty(0, dtype=self.dtype, device=storage.device)
        return made.set_(storage, 0, self.shape, _contiguous(self.shape))


def _places(keys: Sequence[tuple[str, str]], opened: Mapping[str, File], url: str) -> list[_Place]:
    return [_Place(opened[file], opened[file].header.entries[key], url) for file, key in keys]


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(1, each) for each in shape[i + 1 :]) for i in range(len(shape)))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without memory beside its elements."""
    is_all = tensor.nbytes == tensor.untyped_storage().nbytes() and tensor.is_contiguous()
    if is_all:
        return tensor
    # clone() of some dtypes is not there for strided tensors: their bits are.
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]
    return tensor.view(bits).clone(memory_format=torch.contiguous_format).view(tensor.dtype)


class _WholeReads:
    """Whole tensors on their way into new storages on the CPU. Finish it, or close it.

    Args:
        store: the store of their files.
        places: the tensors.
        sum_kind: a CRC of this kind sums each tensor. Stored sums are CRC-32C.
        on_tensor: called with each tensor that has arrived and is right, and with its sum.
        make: returns a storage of so many bytes.
    """

    def __init__(
        self,
        store: Store,
        places: Sequence[_Place],
        sum_kind: str = "crc32c",
        on_tensor: Callable[[_Place, int], object] = lambda _, __: None,
        make: Callable[[int], torch.UntypedStorage] = new_storage,
    ) -> None:
        self.places = places
        self._store, self._sum_kind, self._on_tensor = store, sum_kind, on_tensor
        self._storages: Storages = {}
        self._parts: list[Part] = []
        self._there: list[int] = []
        for i, place in enumerate(places):
            entry = place.entry
            storage = make(entry.size_bytes)
            self._storages[entry.name] = storage
            memory = memory_of(flat(storage))
            part = Part(place.info, entry.begin, entry.end, memory)
            known = place.file.head[entry.begin : entry.end]
            if len(known) == entry.size_bytes:  # it came with the header
                memory[:] = known
                part.end = part.begin
                self._there.append(i)
            self._parts.append(part)
        self._reads = PartReads(store, self._parts, sum_kind=sum_kind)

    def finish(self) -> Storages:
        """Wait for all of them, and compare the sums stored with them.

        Raises:
            CorruptDataError: a tensor is not what was saved.
        """
        with closing(self._reads):  # also where a traceback keeps the loop alive
            for step in itertools.chain([self._there], self._reads):
                for i in step:
                    place = self.places[i]
                    crc = _checked(self._store, place, self._parts[i], self._sum_kind)
                    self._on_tensor(place, crc)
        return self._storages

    def close(self) -> None:
        """End the reads: nothing more is written to the storages."""
        self._reads.close()


def _checked(store: Store, place: _Place, part: Part, sum_kind: str) -> int:
    """Return the sum of a tensor that has arrived. If it is wrong, read it once more."""
    memory: Any = part.into
    crc = _engine.CrcKind(sum_kind).of(memory) if part.crc is None else part.crc
    expected = place.entry.crc32c
    if expected is None or crc == expected:
        return crc
    # Bytes damaged in transit are right the second time.
    read_parts(store, [Part(place.info, place.entry.begin, place.entry.end, memory)])
    crc = _engine.crc32c(memory)
    if crc != expected:
        raise corrupt(
            store.url_of(place.info.name),
            f"the tensor {place.entry.name!r} is damaged: its CRC-32C is not the one that was "
            "saved with it. (If another program has written this file and kept the metadata of an "
            "older one, verify=False reads it without checks.)",
        )
    return crc


def load_tensors(
    files: Files, map_location: Any, verify: bool, progress: ProgressOption
) -> dict[str, torch.Tensor]:
    """Return all tensors, by name, in the order of the files.

    Raises:
        CorruptDataError: the bytes are not those that were saved.
        InvalidArgumentError: it is no safetensors file, or `map_location` is invalid.
    """
    where = destination(map_location, "cpu")
    stays = where == "cpu"
    if stays:  # all tensors are read at once
        expect_parts(files.store, sum(info.size_bytes for info in files.infos.values()))
    opened = files.headers(files.infos, verify=verify)
    places = [
        _Place(file, entry, files.url)
        for file in opened.values()
        for entry in file.header.entries.values()
    ]
    total_bytes = sum(place.entry.size_bytes for place in places)
    if where == "meta":
        return {
            place.entry.name: torch.empty(place.shape, dtype=place.dtype, device="meta")
            for place in places
        }
    restore: Any = torch.serialization._get_restore_location(map_location)  # type: ignore[no-untyped-call]
    sums: dict[str, int] = {}
    page_locked = goes_to_cuda(map_location, "cpu")
    make = new_storage if stays else partial(passing_storage, page_locked=page_locked)

    def read(shown: Progress) -> dict[str, torch.Tensor]:
        def on_tensor(place: _Place, crc: int) -> None:
            sums[place.entry.name] = crc
            shown.add(place.entry.size_bytes)

        found: dict[str, torch.Tensor] = {}
        groups = (
            _WholeReads(files.store, group, kind, on_tensor, make)
            for kind, group in _groups(places, None if stays else GROUP_BYTES)
        )
        try:
            with closing(ahead(groups, 0 if stays else GROUPS_AHEAD)) as begun:
                for reads in begun:
                    found |= _moved(reads, restore)
                    del reads  # its memory is for the next group
        finally:
            if page_locked:
                release_page_locked(place.entry.size_bytes for place in places)
        return found

    with choose_progress(progress, files.url, total_bytes) as shown:
        found = read(shown)
        if verify and any(_damage(file, sums) for file in opened.values()):
            # Bytes damaged in transit are right the second time.
            found.clear()
            with choose_progress(False, files.url, total_bytes) as silent:
                found = read(silent)
    for file in opened.values():
        if verify and (damage := _damage(file, sums)):
            raise corrupt(files.store.url_of(file.info.name), damage)
    return found


def _moved(reads: _WholeReads, restore: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that have been read, where `restore` has put their storages."""
    storages = reads.finish()
    found: dict[str, torch.Tensor] = {}
    for place in reads.places:
        name = place.entry.name
        found[name] = place.tensor_of(restore(storages.pop(name), "cpu"))
    return found


def _sum_kind(file: File) -> str:
    """Return the kind of CRC to sum tensors by: that of their own sums, else that of the store."""
    whole = crc_of(file.info)
    return "crc32c" if file.header.crc32c is not None or whole is None else whole[0].name


def _damage(file: File, sums: Mapping[str, int]) -> str:
    """Return what is wrong if the header and all tensors have not the CRC that the store keeps.

    A file whose tensors were compared with sums of their own needs no other.
    """
    whole = crc_of(file.info)
    if file.header.crc32c is not None or whole is None:
        return ""
    crc, told = whole
    came = crc.of(file.head[: file.header.size_bytes])
    for entry in file.header.entries.values():
        came = crc.joined(came, sums[entry.name], entry.size_bytes)
    return "" if came == told else damage_of(crc, came, told)


def _groups(
    places: Sequence[_Place], limit_bytes: int | None
) -> Iterator[tuple[str, list[_Place]]]:
    """Yield what is read at a time, and the kind of its sums."""
    for kind, those in itertools.groupby(places, lambda place: _sum_kind(place.file)):
        for group in grouped(those, lambda place: place.entry.size_bytes, limit_bytes):
            yield kind, group
