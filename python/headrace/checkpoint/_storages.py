"""Read storages of a checkpoint straight into their memory and compare their checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from headrace.checkpoint._archive import Archive
from headrace.checkpoint._device_copies import flat, memory_of
from headrace.checkpoint._object import corrupt
from headrace.checkpoint._parallel_reads import Wanted, read_into, read_steps

__all__ = ["read_storages"]


def read_storages(
    archive: Archive,
    names: Sequence[str],
    *,
    frames: Sequence[tuple[int, bytes]] = (),
    on_bytes: Callable[[int], object] = lambda _: None,
) -> dict[str, torch.UntypedStorage]:
    """Read records into new storages on the CPU, all at once.

    Args:
        archive: the archive of the records.
        names: the records, ``data/0`` and so on.
        frames: offsets and expected bytes of parts of the object to read and compare, too.
        on_bytes: called with the number of further bytes that have arrived and are right.

    Raises:
        CorruptDataError: a record or a frame differs from what was saved; names the tensor.
    """
    new: Any = torch.UntypedStorage
    storages = {name: new(archive.require(name).size_bytes) for name in names}
    buffers = [memory_of(flat(storage)) for storage in storages.values()]
    found = [bytearray(len(expected)) for _, expected in frames]
    wanted: list[Wanted] = [
        (*each, buffer)
        for each, buffer in zip(archive.ranges(list(storages)), buffers, strict=True)
    ]
    wanted += [
        (begin, begin + len(expected), buffer)
        for (begin, expected), buffer in zip(frames, found, strict=True)
    ]
    in_order = list(storages)
    sum_kind, sums = archive.sums(in_order)
    for step in _filled(archive, wanted, sum_kind):
        for position, crc in step:
            if position < len(in_order):
                name = in_order[position]
                if crc is None or crc != sums[name]:
                    _check(archive, name, wanted[position])
                on_bytes(len(buffers[position]))
                continue
            begin, expected = frames[position - len(in_order)]
            if found[position - len(in_order)] != expected:
                raise corrupt(
                    archive.url,
                    f"what stands between its records is damaged, in [{begin}, "
                    f"{begin + len(expected)})",
                )
    return storages


def _filled(
    archive: Archive, wanted: list[Wanted], sum_kind: str
) -> Iterable[list[tuple[int, int | None]]]:
    """Fill what is wanted, as `read_steps`; of a small object, all bytes are there already."""
    content = archive.content
    if content is None:
        return read_steps(archive.store, archive.info, wanted, sum_kind=sum_kind)
    for begin, end, buffer in wanted:
        memoryview(buffer).cast("B")[:] = content[begin:end]
    return [[(position, None) for position in range(len(wanted))]]


def _check(archive: Archive, name: str, wanted: Wanted) -> None:
    buffer: Any = wanted[2]
    if archive.is_right(name, buffer):
        return
    # Bytes damaged in transit are right the second time.
    read_into(archive.store, archive.info, [wanted])
    if not archive.is_right(name, buffer):
        raise archive.wrong(name)
