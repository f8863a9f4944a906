"""The dtypes of safetensors, by the names that its headers have, and those of torch."""

from __future__ import annotations

import torch

__all__ = ["BITS", "dtype_name", "packed_shape", "rank_of", "torch_dtype", "unpacked_shape"]

# From the last to the first in a file, as the safetensors library sorts them.
BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""The bits of one element."""

_RANKS = {name: -i for i, name in enumerate(BITS)}

_TORCH_NAMES = {
    "BOOL": "bool",
    "F4": "float4_e2m1fn_x2",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
# Old versions of torch lack some.
_TORCH = {
    name: getattr(torch, torchs) for name, torchs in _TORCH_NAMES.items() if hasattr(torch, torchs)
}
_NAMES = {dtype: name for name, dtype in _TORCH.items()}


def rank_of(name: str) -> int:
    """Return the place of a dtype in the order of files: the smallest comes first."""
    return _RANKS[name]


def torch_dtype(name: str) -> torch.dtype | None:
    """Return torch's dtype; None if this version of torch has none."""
    return _TORCH.get(name)


def dtype_name(dtype: torch.dtype) -> str | None:
    """Return the name of torch's dtype; None if the format has none."""
    return _NAMES.get(dtype)


def packed_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape in torch, which has two elements of ``F4`` in one of its own.

    None if the last dimension is not even.
    """
    if name != "F4":
        return shape
    return (*shape[:-1], shape[-1] // 2) if shape and shape[-1] % 2 == 0 else None


def unpacked_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape in a file for one in torch; None if there is none."""
    if name != "F4":
        return shape
    return (*shape[:-1], shape[-1] * 2) if shape else None
