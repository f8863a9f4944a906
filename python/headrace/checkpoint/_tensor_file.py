"""The file of a checkpoint as a sequence of pieces; ``src/headrace/checkpoint/README.md`` has its
layout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from headrace import _engine
from headrace.checkpoint._device_copies import (
    Copies,
    DeviceCopies,
    copied_to_host,
    flat,
    host_pieces,
    memory_of,
)
from headrace.checkpoint._pickling import dump

__all__ = ["DEFAULT_PROTOCOL", "CheckpointFile", "Piece", "blob_of"]

# torch.load with weights_only=True reads no later one.
DEFAULT_PROTOCOL = 2

# Bytes summed in one call without the GIL; they are sent while the next are summed.
_SUMMED_BYTES = 16 << 20

# The version of torch's format, and of the order of its records.
_VERSION = b"3\n"
_ORDER_VERSION = b"1"


class Piece(NamedTuple):
    """Consecutive bytes of the file."""

    data: memoryview | bytes
    is_lent: bool
    """Whether it is a tensor's own memory, which does not change during the save. Any other piece
    must be copied or written before the next one is asked for."""
    content_bytes: int
    """How much of it belongs to a storage; progress counts this."""


class CheckpointFile:
    """One object to save: its pickle, and its storages in their own memory.

    Args:
        obj: anything that `torch.save` takes.
        protocol: the protocol of the pickle.
        copies: copies storages that are not on the CPU to the host.
    """

    def __init__(
        self, obj: Any, protocol: int = DEFAULT_PROTOCOL, copies: Copies | None = None
    ) -> None:
        self._pickle, self._storages = dump(obj, protocol)
        self._copies = copies
        self._of_device: torch.Tensor | None = None

    @classmethod
    def as_if_on_host(cls, tensor: torch.Tensor, copies: Copies) -> CheckpointFile:
        """Return the file of one tensor of a device, contiguous and dense, as if it were here."""
        # What is pickled is another one, whose memory is never written, and so takes none.
        file = cls(torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"), copies=copies)
        file._of_device = tensor.reshape(-1).view(torch.uint8)
        return file

    def stage(self, copies_of: Callable[[torch.device], Copies] = DeviceCopies) -> None:
        """Copy the storages to host memory, after which the object may change.

        Raises:
            RuntimeError: the host has too little memory for the copy, or the device has failed.
        """
        self._storages = copied_to_host(self._storages, copies_of)

    @property
    def content_bytes(self) -> int:
        """The bytes of all storages."""
        return sum(storage.nbytes() for storage in self._storages.values())

    def pieces(self) -> Iterator[Piece]:
        """Yield the file piece by piece; each is summed, without the GIL, when it is asked for."""
        layout = _engine.ZipLayout()
        names = _engine.crc32c(b"")
        contents = _engine.crc32c(b"")
        small = {
            "data.pkl": self._pickle,
            ".format_version": _ORDER_VERSION,
            ".storage_alignment": b"64",
            "byteorder": sys.byteorder.encode(),
        }
        for name, data in small.items():
            yield from _record(layout, name, data)
            names = _engine.crc32c(name.encode(), names)
            contents = _engine.crc32c(data, contents)
        for key, storage in self._storages.items():
            name = f"data/{key}"
            yield Piece(layout.begin_record(f"archive/{name}", storage.nbytes()), False, 0)
            for piece in self._contents(storage):
                layout.add(piece.data)
                yield piece
            after = layout.end_record()
            yield Piece(after, False, 0)
            names = _engine.crc32c(name.encode(), names)
            contents = _engine.crc32c(after, contents)  # it contains the checksum
        yield from _record(layout, "version", _VERSION)
        # Twenty digits of the names and twenty of the contents: equal for equal states.
        identity = f"{names:020d}{contents:020d}"
        yield from _record(layout, ".data/serialization_id", identity.encode())
        yield Piece(layout.finish(), False, 0)

    def _contents(self, storage: torch.UntypedStorage) -> Iterator[Piece]:
        if storage.nbytes() == 0:
            return
        if storage.device.type == "cpu" and self._of_device is None:
            memory = memory_of(flat(storage))
            for begin in range(0, len(memory), _SUMMED_BYTES):
                piece = memory[begin : begin + _SUMMED_BYTES]
                yield Piece(piece, True, len(piece))
            return
        source = flat(storage) if self._of_device is None else self._of_device
        copies = self._copies or DeviceCopies(source.device)
        for staged in host_pieces(source, copies):
            yield Piece(memory_of(staged), False, staged.numel())


def _record(layout: _engine.ZipLayout, name: str, data: bytes) -> Iterator[Piece]:
    before = layout.begin_record(f"archive/{name}", len(data))
    layout.add(data)
    yield Piece(before + data + layout.end_record(), False, 0)


def blob_of(tensor: torch.Tensor) -> list[memoryview | bytes]:
    """Return the pieces of a file that `torch.load` reads as this tensor.

    The file has this tensor alone, even if its storage is larger. The bytes of a contiguous tensor
    on the CPU are its own memory; they must not change while the pieces are in use.
    """
    tensor = tensor.detach()
    if tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta":
        tensor = _on_its_own(tensor)
    pieces = CheckpointFile(tensor).pieces()
    return [piece.data if piece.is_lent else bytes(piece.data) for piece in pieces]


def _on_its_own(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same tensor with a storage of its own size."""
    if type(tensor) is not torch.Tensor:
        return tensor
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    size_bytes = tensor.numel() * tensor.element_size()
    storage = tensor.untyped_storage()
    if storage.nbytes() == size_bytes:
        return tensor
    if tensor.device.type != "cpu" or size_bytes == 0:
        return tensor.clone()
    begin = tensor.storage_offset() * tensor.element_size()
    memory = memory_of(flat(storage))[begin : begin + size_bytes]
    return torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype).view(tensor.shape)
