"""Files of tokens, and the samples that they hold by definition."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import io
import struct
from collections.abc import Sequence

import numpy as np
import torch

import headrace

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}
"""Of the types of Megatron-Core's indexes, by its description of them."""


def corpus(count: int, seed: int = 0, dtype: str = "uint16") -> np.ndarray:
    """Return so many tokens that hardly any two windows are equal."""
    most = min(50_000, np.iinfo(dtype).max)
    return np.random.default_rng(seed).integers(0, most, count).astype(dtype)


def npy(tokens: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    """Return the tokens as NumPy writes them."""
    out = io.BytesIO()
    np.lib.format.write_array(out, tokens, version=version)
    return out.getvalue()


def megatron_index(lengths: Sequence[int], dtype: str, documents: Sequence[int] = ()) -> bytes:
    """Return the .idx of these sequences, of which each is a document unless others are given."""
    starts = np.cumsum([0, *lengths])[:-1] * np.dtype(dtype).itemsize
    ends = documents or range(len(lengths) + 1)
    return (
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, CODES[dtype], len(lengths), len(ends))
        + np.asarray(lengths, "<i4").tobytes()
        + np.asarray(starts, "<i8").tobytes()
        + np.asarray(ends, "<i8").tobytes()
    )


def llm_c(tokens: np.ndarray) -> bytes:
    """Return the tokens behind a header as llm.c writes it."""
    magic, version = {"uint16": (20240520, 1), "uint32": (20240801, 7)}[str(tokens.dtype)]
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(tokens)
    return header.tobytes() + tokens.tobytes()


def samples_of(
    files: Sequence[np.ndarray], seq_len: int, stride: int | None = None
) -> list[list[int]]:
    """Return the samples of these files by the definition: windows, one after the other."""
    found = []
    for tokens in files:
        begin = 0
        while begin + seq_len + 1 <= len(tokens):
            found.append(tokens[begin : begin + seq_len + 1].tolist())
            begin += stride or seq_len
    return found


def rows(batches: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return the samples of these batches."""
    return [row for batch in batches for row in batch.tolist()]


def put(store: headrace.Store, files: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Write the files, as their names say, and return their tokens in the order of the names."""
    for name, tokens in files.items():
        store.write(name, npy(tokens) if name.endswith(".npy") else tokens.tobytes())
    return [files[name] for name in sorted(files)]
