"""`headrace.dlio` beside what stands in for DLIO."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import importlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy

import headrace
from testing.faultserver.client import FaultServer
from tests.dlio import stand_in


@pytest.fixture
def dlio(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`headrace.dlio`, imported beside the stand-in; gone afterwards."""
    for name, module in stand_in.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(stand_in.StorageFactory, "get_storage", stand_in.StorageFactory.get_storage)
    stand_in.configure([])
    yield importlib.import_module("headrace.dlio")
    for name in [each for each in sys.modules if each.startswith("headrace.dlio")]:
        del sys.modules[name]
    del headrace.dlio  # type: ignore[attr-defined]


@pytest.fixture
def emulator(
    gcs: headrace.Store, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> headrace.Store:
    """A bucket that URLs without options reach, as DLIO's do."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    return gcs


@pytest.fixture
def put(emulator: headrace.Store) -> Callable[..., list[str]]:
    """Write so many `.npz` of DLIO's kind; array `i` is filled with `i`. Return their URLs."""

    def write(count: int, *, samples: int = 1, compressed: bool = False) -> list[str]:
        save = numpy.savez_compressed if compressed else numpy.savez
        for i in range(count):
            out = io.BytesIO()
            values = numpy.full((3, 5, samples), i, numpy.uint8)
            values[..., :] += 100 * numpy.arange(samples, dtype=numpy.uint8)
            save(out, x=values, y=[0] * samples)
            emulator.write(f"data/train/{i:03d}.npz", out.getvalue())
        return [f"gs://bucket/data/train/{i:03d}.npz" for i in range(count)]

    return write
