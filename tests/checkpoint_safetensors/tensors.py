"""Tensors of every dtype that safetensors has, and files of them."""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import torch
from hypothesis import strategies as st

from tests.checkpoint.states import bits, filled

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32),
    *(torch.int64, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz),
    *(torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
]

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
# Whatever JSON has an escape for, and what UTF-8 has more than one byte for.
NAMES = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name != METADATA)
METADATA = "__metadata__"


@st.composite
def states(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    """A dict of tensors of any dtypes and shapes."""
    described = draw(st.dictionaries(NAMES, st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=6))
    return {
        name: filled(dtype, *shape, seed=i)
        for i, (name, (dtype, shape)) in enumerate(described.items())
    }


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor."""
    return bits(tensor.contiguous().view(torch.uint8)) if tensor.dim() else bits(tensor)


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare tensors by name: dtype, shape and bits."""
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert found[name].is_contiguous(), name
        assert raw(found[name]) == raw(tensor), name


def file_of(header: Any, data: bytes = b"") -> bytes:
    """A file with this header, text or something that becomes JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def header_of(data: bytes) -> dict[str, Any]:
    """The header of a file, as JSON."""
    found: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return found


def library_reads(data: bytes) -> bool:
    """Whether the safetensors library accepts a file."""
    try:
        safetensors.deserialize(data)
    except Exception:
        return False
    return True
