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

# As DLPack numbers them: the kind, and the bits.
_TYPES = {
    torch.bool: (6, 8),
    torch.uint8: (1, 8),
    torch.int8: (0, 8),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.complex64: (5, 64),
    torch.complex128: (5, 128),
}


def lent(
    engine: Engine, shape: Sequence[int], dtype: torch.dtype = torch.uint8
) -> tuple[torch.Tensor, Callable[[], object]]:
    """Return a tensor whose numbers are yet to be written, and what hands it over.

    Until that is called, its memory counts as the engine's. The tensor keeps the memory, and is
    like one of `torch.empty`, but that its storage cannot grow.
    """
    count = math.prod(shape)
    if count == 0 or dtype not in _TYPES:
        return torch.empty(shape, dtype=dtype), lambda: None
    code, bits = _TYPES[dtype]
    memory = engine.batch_memory(count * bits // 8)
    tensor = torch.utils.dlpack.from_dlpack(memory.dlpack(shape, code, bits))
    return tensor, memory.give_away


def given(engine: Engine, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return such a tensor, handed over already."""
    tensor, hand_over = lent(engine, shape, dtype)
    hand_over()
    return tensor
