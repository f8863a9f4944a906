"""One item of a checkpoint: the bytes that ``torch.load`` reads, and the checksums beside them.

An item is a file of ``torch.save`` with one tensor, as torch's ``FileSystemReader`` expects it: a
head (zip headers and the pickle), the tensor's memory, and a tail (the zip's directory). The
checkpoint's metadata keeps the place of the memory, its type and shape, and CRC-32Cs. So loading
finds the data without reading heads, and can verify any part that it reads.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import MiB
from headrace.checkpoint._device_copies import Copies, DeviceCopies
from headrace.checkpoint._distributed.upload import Passing
from headrace.checkpoint._tensor_file import CheckpointFile, blob_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["SUM_BLOCK_BYTES", "DeviceItem", "EncodedItem", "ItemLayout", "encode", "flat_bytes"]

# To verify a slice of a tensor, at most this much more is read at either end. The checksums of a
# terabyte, 4 bytes each, take 4 MB.
SUM_BLOCK_BYTES = 1 * MiB

# An additional attribute of _StorageInfo. Stock torch unpickles and ignores it; its value is plain,
# so unpickling needs no module of headrace.
_ATTRIBUTE = "headrace_layout"
_VERSION = 1
_CRC32C = _engine.CrcKind("crc32c")


@dataclass(frozen=True)
class ItemLayout:
    """The places of an item's bytes, counted from its begin, and their checksums."""

    head_bytes: int
    data_bytes: int
    head_sum: int
    tail_sum: int
    block_bytes: int
    block_sums: tuple[int, ...]
    """The checksums of ``data``, block by block; the last block may be short."""
    dtype: torch.dtype | None
    """None if the data is not the plain memory of one contiguous tensor."""
    shape: tuple[int, ...]

    def sum_of_blocks(self, first: int, size_bytes: int) -> int:
        """Return the CRC-32C of so much of ``data``, from a block's begin on to a block's end."""
        joined = 0
        for number in range(first, first + -(-size_bytes // self.block_bytes)):
            block_bytes = min(self.block_bytes, self.data_bytes - number * self.block_bytes)
            joined = _CRC32C.joined(joined, self.block_sums[number], block_bytes)
        return joined

    def attach(self, storage_info: Any) -> None:
        """Attach this to a ``_StorageInfo`` of torch."""
        plain = (
            _VERSION,
            self.head_bytes,
            self.data_bytes,
            self.head_sum,
            self.tail_sum,
            self.block_bytes,
            struct.pack(f"<{len(self.block_sums)}I", *self.block_sums),
            "" if self.dtype is None else str(self.dtype).removeprefix("torch."),
            self.shape,
        )
        setattr(storage_info, _ATTRIBUTE, plain)

    @staticmethod
    def of(storage_info: Any) -> ItemLayout | None:
        """Return what `attach` stored; None if another program wrote this item.

        Raises:
            InvalidArgumentError: a later version of headrace wrote it.
        """
        plain = getattr(storage_info, _ATTRIBUTE, None)
        if plain is None:
            return None
        if plain[0] != _VERSION:
            raise InvalidArgumentError(
                f"this checkpoint's layout has version {plain[0]}, and this headrace knows "
                f"{_VERSION}: load it with the version that saved it, or a later one"
            )
        _, head_bytes, data_bytes, head_sum, tail_sum, block_bytes, sums, dtype, shape = plain
        return ItemLayout(
            head_bytes,
            data_bytes,
            head_sum,
            tail_sum,
            block_bytes,
            struct.unpack(f"<{len(sums) // 4}I", sums),
            getattr(torch, dtype) if dtype else None,
            tuple(shape),
        )


@dataclass(frozen=True)
class EncodedItem:
    """An item ready to write: its pieces in order, and its layout."""

    pieces: tuple[Buffer, ...]
    length_bytes: int
    layout: ItemLayout


class DeviceItem:
    """An item with a tensor of a device, of which two pieces of 16 MiB are in host memory.

    `length_bytes` and `layout` are those of what was taken of `pieces`.
    """

    def __init__(self, tensor: torch.Tensor, copies: Copies) -> None:
        self._tensor = tensor.resolve_conj().resolve_neg().contiguous()
        self._copies = copies
        self._sizes, self._sums = [0, 0, 0], [_engine.crc32c(b"")] * 3  # of head, data and tail
        self._block_sums: list[int] = []

    @property
    def pieces(self) -> Iterator[Buffer | Passing]:
        """The bytes in order."""
        for piece in CheckpointFile.as_if_on_host(self._tensor, self._copies).pieces():
            part = 1 if piece.content_bytes else 2 if self._sizes[1] else 0
            self._sizes[part] += len(piece.data)
            if part == 1:
                self._block_sums += block_sums(piece.data)
                yield Passing(piece.data)
            else:
                self._sums[part] = _engine.crc32c(piece.data, self._sums[part])
                yield bytes(piece.data)

    @property
    def length_bytes(self) -> int:
        return sum(self._sizes)

    @property
    def layout(self) -> ItemLayout:
        return ItemLayout(
            self._sizes[0],
            self._sizes[1],
            self._sums[0],
            self._sums[2],
            SUM_BLOCK_BYTES,
            tuple(self._block_sums),
            self._tensor.dtype,
            tuple(self._tensor.shape),
        )


def encode(data: torch.Tensor | io.BytesIO) -> EncodedItem | DeviceItem:
    """Return the bytes of an item; those of a contiguous CPU tensor are its own memory.

    Raises:
        InvalidArgumentError: `data` is a tensor without data or without a strided layout, or
            neither a tensor nor bytes.
    """
    if isinstance(data, io.BytesIO):
        return _encoded(b"", data.getbuffer(), b"", None, ())
    if not isinstance(data, torch.Tensor):
        raise InvalidArgumentError(
            f"the planner gave {type(data).__name__}; it must be a tensor or io.BytesIO"
        )
    if data.device.type == "meta":
        raise InvalidArgumentError("a meta tensor has no data that could be saved")
    if data.layout is not torch.strided:
        # torch would save it but could not load it, because it takes slices of what it loads.
        raise InvalidArgumentError(
            f"torch.distributed.checkpoint cannot load a tensor of the layout {data.layout}; save "
            "its parts, such as indices() and values(), or the whole by headrace.checkpoint.save"
        )
    data = data.detach()  # of a parameter, the tensor
    if type(data) is not torch.Tensor or data.is_quantized:
        stream = io.BytesIO()
        torch.save(data.cpu(), stream)
        return _encoded(b"", stream.getbuffer(), b"", None, ())
    if data.device.type != "cpu" and data.numel() > 0:
        return DeviceItem(data, DeviceCopies(data.device))
    tensor = _tight(data)
    raw = flat_bytes(tensor)
    pieces = blob_of(tensor)
    # In the middle, the tensor's own memory comes as views of it.
    first = next((i for i, each in enumerate(pieces) if isinstance(each, memoryview)), len(pieces))
    last = first
    while last < len(pieces) and isinstance(pieces[last], memoryview):
        last += 1
    head, tail = b"".join(pieces[:first]), b"".join(pieces[last:])
    return _encoded(head, raw, tail, tensor.dtype, tuple(tensor.shape))


def flat_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor."""
    if tensor.numel() == 0:
        return memoryview(b"")
    raw: Any = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(raw)


def block_sums(data: Buffer, block_bytes: int = SUM_BLOCK_BYTES) -> tuple[int, ...]:
    """Return the CRC-32C of each block of `data`."""
    view = memoryview(data)
    return tuple(
        _engine.crc32c(view[begin : begin + block_bytes])
        for begin in range(0, len(view), block_bytes)
    )


def _encoded(
    head: Buffer, data: Buffer, tail: Buffer, dtype: torch.dtype | None, shape: Sequence[int]
) -> EncodedItem:
    head_bytes, data_bytes, tail_bytes = (memoryview(each).nbytes for each in (head, data, tail))
    layout = ItemLayout(
        head_bytes,
        data_bytes,
        _engine.crc32c(head),
        _engine.crc32c(tail),
        SUM_BLOCK_BYTES,
        block_sums(data),
        dtype,
        tuple(shape),
    )
    return EncodedItem((head, data, tail), head_bytes + data_bytes + tail_bytes, layout)


def _tight(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor on the CPU, contiguous, with a storage of its own size."""
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if tensor.untyped_storage().nbytes() == tensor.nbytes:
        return tensor
    if tensor.numel() == 0:
        return tensor.clone()
    return torch.frombuffer(flat_bytes(tensor), dtype=tensor.dtype).reshape(tensor.shape)
