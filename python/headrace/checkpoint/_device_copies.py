"""Copies from a device to the host, piece by piece; all of checkpoint's code for devices."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import torch

__all__ = [
    "Copies",
    "DeviceCopies",
    "copied_to_host",
    "destination",
    "flat",
    "goes_to_cuda",
    "host_pieces",
    "memory_of",
    "new_storage",
    "passing_storage",
    "release_page_locked",
]

Key = TypeVar("Key", bound=Hashable)

PIECE_BYTES = 16 << 20
_MAX_PAGE_LOCKED_BYTES = 1 << 30
# From so many bytes on, memory that only passes through is mapped.
_MAPPED_BYTES = 1 << 20
# Of storages up to this size, torch may keep the page-locked memory.
_KEPT_BYTES = 64 << 20


def flat(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the bytes of a storage as a one-dimensional uint8 tensor on its device. No copy."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def memory_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous uint8 tensor on the CPU."""
    memory: Any = tensor.numpy()
    return memoryview(memory)


def destination(map_location: Any, location: str) -> str | None:
    """Return the device, such as ``"cpu"``, to which torch moves a storage saved on `location`.

    None: a function decides.
    """
    if map_location is None:
        return location
    if isinstance(map_location, dict):
        return str(map_location.get(location, location))
    if isinstance(map_location, str | torch.device):
        return torch.device(map_location).type
    return None


def goes_to_cuda(map_location: Any, location: str) -> bool:
    """Return whether torch moves a storage saved on `location` to a CUDA device."""
    where = destination(map_location, location)
    return where is not None and where.startswith("cuda") and torch.cuda.is_available()


def new_storage(size_bytes: int) -> torch.UntypedStorage:
    """Return a new storage on the CPU."""
    new: Any = torch.UntypedStorage
    made: torch.UntypedStorage = new(size_bytes)
    return made


def passing_storage(size_bytes: int, page_locked: bool) -> torch.UntypedStorage:
    """Return a new storage on the CPU for bytes on their way to another device.

    It is in page-locked memory, if that is asked for and there is as much. Such storages that are
    given back are used again for others, see `release_page_locked`. Of all others, the memory goes
    back to the system, which the C library does not always do for sizes of some MiB.
    """
    if page_locked and size_bytes <= _MAX_PAGE_LOCKED_BYTES:
        with contextlib.suppress(RuntimeError):
            tensor = torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
            return tensor.untyped_storage()
    if size_bytes < _MAPPED_BYTES:
        return new_storage(size_bytes)
    return torch.frombuffer(mmap.mmap(-1, size_bytes), dtype=torch.uint8).untyped_storage()


def release_page_locked(sizes_bytes: Iterable[int]) -> None:
    """Return page-locked memory to the system, after storages of these sizes were in it.

    torch keeps what was given back, for copies of the same size. If none was large, it may.
    """
    # There is no public name for it yet.
    release = getattr(torch._C, "_host_emptyCache", None)
    if release is not None and max(sizes_bytes, default=0) > _KEPT_BYTES:
        release()


class Copies(Protocol):
    """Copies bytes from one device to the host."""

    def empty(self, size_bytes: int) -> torch.Tensor:
        """Return host memory to copy to, as a uint8 tensor."""
        ...

    def start(self, into: torch.Tensor, source: torch.Tensor) -> Callable[[], object]:
        """Start a copy, and return a function that waits until it is done."""
        ...


class DeviceCopies:
    """Copies that run beside the host's work if the device supports it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"

    def empty(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=self._cuda)

    def start(self, into: torch.Tensor, source: torch.Tensor) -> Callable[[], object]:
        into.copy_(source, non_blocking=self._cuda)
        if not self._cuda:
            return lambda: None
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(self._device))
        return copied.synchronize


def copied_to_host(
    storages: Mapping[Key, torch.UntypedStorage],
    copies_of: Callable[[torch.device], Copies] = DeviceCopies,
) -> dict[Key, torch.UntypedStorage]:
    """Return copies of storages in host memory. All of them start before the first is awaited."""
    copied: dict[Key, torch.UntypedStorage] = {}
    under_way = []
    for key, storage in storages.items():
        copies = copies_of(storage.device)
        into = copies.empty(storage.nbytes())
        under_way.append(copies.start(into, flat(storage)))
        copied[key] = into.untyped_storage()
    for wait in under_way:
        wait()
    return copied


def host_pieces(
    source: torch.Tensor, copies: Copies, piece_bytes: int = PIECE_BYTES
) -> Iterator[torch.Tensor]:
    """Yield the bytes of `source` (uint8, ``[n]``) in order, in host memory.

    Two buffers take turns: one is filled while the other is in use. A piece is valid until the next
    one is asked for.
    """
    size_bytes = source.numel()
    buffers = [copies.empty(min(piece_bytes, size_bytes)) for _ in range(2)]

    def start(begin: int) -> tuple[torch.Tensor, Callable[[], object]]:
        end = min(begin + piece_bytes, size_bytes)
        into = buffers[begin // piece_bytes % 2][: end - begin]
        return into, copies.start(into, source[begin:end])

    begins = range(0, size_bytes, piece_bytes)
    copied = [start(begin) for begin in begins[:1]]
    for begin in begins:
        piece, wait = copied.pop()
        wait()
        if begin + piece_bytes < size_bytes:
            copied.append(start(begin + piece_bytes))
        yield piece
