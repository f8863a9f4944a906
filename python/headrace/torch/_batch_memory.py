"""Tensors in memory that the engine uses again.

What `torch.empty` takes of the system for a large batch goes back to it with the batch, and each
page of the next one is a fault: for objects of 100 KiB as much CPU as half of the read, for images
of 600 KB twice that of the whole loader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from headrace._engine import Engine

__all__ = ["given", "lent"]

# As DLPack numbers them.
_KINDS = {
    **dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64), 0),
    torch.uint8: 1,
    **dict.fromkeys((torch.float16, torch.float32, torch.float64), 2),
    torch.bfloat16: 4,
    **dict.fromkeys((torch.complex64, torch.complex128), 5),
    torch.bool: 6,
}


def lent(
    engine: Engine, shape: Sequence[int], dtype: torch.dtype = torch.uint8
) -> tuple[torch.Tensor, Callable[[], object]]:
    """Return a tensor whose numbers are yet to be written, and what hands it over.

    Until that is called, its memory counts as the engine's. The tensor keeps the memory, and is
    like one of `torch.empty`, but that its storage cannot grow.
    """
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes == 0 or dtype not in _KINDS:
        return torch.empty(shape, dtype=dtype, device="cpu"), lambda: None
    memory = engine.batch_memory(size_bytes)
    capsule = memory.dlpack(shape, _KINDS[dtype], 8 * dtype.itemsize)
    tensor = torch.utils.dlpack.from_dlpack(capsule)
    return tensor, memory.give_away


def given(engine: Engine, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return such a tensor, handed over already."""
    tensor, hand_over = lent(engine, shape, dtype)
    hand_over()
    return tensor
