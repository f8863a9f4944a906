"""Read storages of a checkpoint straight into their memory and compare their checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

import torch

from headrace.checkpoint._archive import Archive
from headrace.checkpoint._device_copies import flat, memory_of, new_storage
from headrace.checkpoint._object import corrupt
from headrace.checkpoint._parallel_reads import Part, PartReads, Wanted, read_into

__all__ = ["StorageReads", "read_storages"]


def read_storages(archive: Archive, names: Sequence[str]) -> dict[str, torch.UntypedStorage]:
    """Read records into new storages on the CPU, all at once; as `StorageReads`."""
    return StorageReads(archive, names).finish()


class StorageReads:
    """Records on their way into new storages on the CPU. Finish it, or close it.

    Args:
        archive: the archive of the records.
        names: the records, ``data/0`` and so on.
        frames: offsets and expected bytes of parts of the object to read and compare, too.
        on_bytes: called with the number of further bytes that have arrived and are right.
        make: returns a storage for the record of a name, of so many bytes.
    """

    def __init__(
        self,
        archive: Archive,
        names: Sequence[str],
        *,
        frames: Sequence[tuple[int, bytes]] = (),
        on_bytes: Callable[[int], object] = lambda _: None,
        make: Callable[[str, int], torch.UntypedStorage] = lambda _, size: new_storage(size),
    ) -> None:
        self._archive, self._frames, self._on_bytes = archive, frames, on_bytes
        self._storages = {name: make(name, archive.require(name).size_bytes) for name in names}
        self._in_order = list(self._storages)
        self._buffers = [memory_of(flat(storage)) for storage in self._storages.values()]
        self._found = [bytearray(len(expected)) for _, expected in frames]
        self._wanted: list[Wanted] = [
            (*each, buffer)
            for each, buffer in zip(archive.ranges(self._in_order), self._buffers, strict=True)
        ]
        self._wanted += [
            (begin, begin + len(expected), buffer)
            for (begin, expected), buffer in zip(frames, self._found, strict=True)
        ]
        sum_kind, self._sums = archive.sums(self._in_order)
        self._parts = [Part(archive.info, *each) for each in self._wanted]
        self._reads: PartReads | None = None
        if archive.content is None:  # else all bytes are there already
            self._reads = PartReads(archive.store, self._parts, sum_kind=sum_kind)

    def finish(self) -> dict[str, torch.UntypedStorage]:
        """Wait for all of them.

        Raises:
            CorruptDataError: a record or a frame differs from what was saved; names the tensor.
        """
        with closing(self):  # also where a traceback keeps the loop alive
            for step in self._steps():
                self._check(step)
        return self._storages

    def close(self) -> None:
        """End the reads: nothing more is written to the storages."""
        if self._reads is not None:
            self._reads.close()

    def _check(self, step: Sequence[int]) -> None:
        for position in step:
            if position < len(self._in_order):
                name, crc = self._in_order[position], self._parts[position].crc
                if crc is None or crc != self._sums[name]:
                    _check_again(self._archive, name, self._wanted[position])
                self._on_bytes(len(self._buffers[position]))
                continue
            begin, expected = self._frames[position - len(self._in_order)]
            if self._found[position - len(self._in_order)] != expected:
                raise corrupt(
                    self._archive.url,
                    f"what stands between its records is damaged, in [{begin}, "
                    f"{begin + len(expected)})",
                )

    def _steps(self) -> Iterable[list[int]]:
        if self._reads is not None:
            return self._reads
        content = self._archive.content
        assert content is not None
        for begin, end, buffer in self._wanted:
            memoryview(buffer).cast("B")[:] = content[begin:end]
        return [[position] for position in range(len(self._wanted))]


def _check_again(archive: Archive, name: str, wanted: Wanted) -> None:
    buffer: Any = wanted[2]
    if archive.is_right(name, buffer):
        return
    # Bytes damaged in transit are right the second time.
    read_into(archive.store, archive.info, [wanted])
    if not archive.is_right(name, buffer):
        raise archive.wrong(name)
