"""What runs on a CUDA device only; without one, all of it is skipped. See CONTRIBUTING.md."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from collections.abc import Callable, Iterator

import torch

Hold = Callable[..., None]
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def cuda() -> Iterator[torch.device]:
    """The first CUDA device; what a test has begun there has ended when the next one begins."""
    yield torch.device("cuda", 0)
    torch.cuda.synchronize()


@pytest.fixture
def hold(cuda: torch.device) -> Hold:
    """Let a stream (default: the current one) do nothing for so many milliseconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(1_000_000)
    begin.record()
    torch.cuda._sleep(50_000_000)
    end.record()
    end.synchronize()
    cycles_per_ms = 50_000_000 / begin.elapsed_time(end)  # type: ignore[no-untyped-call]

    def hold(duration_ms: float, stream: torch.cuda.Stream | None = None) -> None:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(int(duration_ms * cycles_per_ms))

    return hold
