"""Copies from a device to the host, piece by piece; all of checkpoint's code for devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

__all__ = ["Copies", "DeviceCopies", "flat", "host_pieces", "memory_of"]

PIECE_BYTES = 16 << 20


def flat(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the bytes of a storage as a one-dimensional uint8 tensor on its device. No copy."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def memory_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous uint8 tensor on the CPU."""
    memory: Any = tensor.numpy()
    return memoryview(memory)


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
