"""What the engine of a DataLoader worker gets."""

from __future__ import annotations

import pytest

import headrace
from headrace import GiB, KiB, MiB
from headrace._base.options import EngineOptions
from headrace.torch._worker_store import worker_options


def index_of(*sizes: int) -> headrace.ObjectIndex:
    return headrace.ObjectIndex.from_objects(
        headrace.ObjectInfo(f"{i:07d}", size) for i, size in enumerate(sizes)
    )


@pytest.mark.parametrize(
    ("workers", "sizes", "budget_bytes"),
    [
        (1, (KiB,), GiB),
        (2, (KiB,), GiB // 2),
        (8, (100 * KiB,) * 10_000, GiB // 8),
        (64, (KiB,), 64 * MiB),  # not below
        (8, (300 * MiB, KiB), 600 * MiB),  # an object of 300 MiB must fit
        (8, (300 * MiB,) * 2, 600 * MiB),
        (8, (3 * GiB,), GiB),  # not more than one process would have
        (8, (KiB,) * 70_000 + (400 * MiB,), 800 * MiB),
    ],
)
def test_the_budget_is_shared_but_every_object_fits(
    workers: int, sizes: tuple[int, ...], budget_bytes: int
) -> None:
    options = worker_options(workers, index_of(*sizes))
    assert options == EngineOptions(io_threads=1, memory_budget_bytes=budget_bytes)


def test_the_environment_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_IO_THREADS", "3")
    monkeypatch.setenv("HEADRACE_MEMORY_BUDGET_BYTES", str(200 * MiB))
    options = worker_options(8, index_of(KiB))
    assert options == EngineOptions(io_threads=3, memory_budget_bytes=200 * MiB)
