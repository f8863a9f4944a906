"""Page-locked memory; with `_to_device`, the only module of this package that knows CUDA.

A batch in page-locked memory is copied to the device without an intermediate copy, while the
trainer continues: ``batch.to("cuda", non_blocking=True)``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin_nested

from headrace._engine import Engine
from headrace.torch._batch_memory import lent

__all__ = ["PageLocked", "Pageable", "Pinning", "choose_pinning"]


class Pinning(Protocol):
    """Where batches lie."""

    def room(
        self, engine: Engine, count: int, size_bytes: int
    ) -> tuple[torch.Tensor, Callable[[], object]]:
        """Return a new uint8 tensor of shape ``[count, size_bytes]``, and what hands it over.

        Until that is called, its memory counts as the engine's.
        """
        ...

    def pin(self, batch: Any) -> Any:
        """Return a collated batch, moved to this memory if necessary."""
        ...


class Pageable:
    """Ordinary memory."""

    def room(
        self, engine: Engine, count: int, size_bytes: int
    ) -> tuple[torch.Tensor, Callable[[], object]]:
        return lent(engine, (count, size_bytes))

    def pin(self, batch: Any) -> Any:
        return batch


class PageLocked:
    """Page-locked memory, from torch's cache of it."""

    def room(
        self, engine: Engine, count: int, size_bytes: int
    ) -> tuple[torch.Tensor, Callable[[], object]]:
        tensor = torch.empty((count, size_bytes), dtype=torch.uint8, device="cpu", pin_memory=True)
        return tensor, engine.charge(count * size_bytes).release

    def pin(self, batch: Any) -> Any:
        # As torch's DataLoader does: tensors at any depth, and anything with a method `pin_memory`;
        # memory that is page-locked already stays.
        return pin_nested(batch)  # type: ignore[no-untyped-call]


def choose_pinning(pin_memory: bool) -> Pinning:
    """Return the kind of memory for batches; page-locked memory needs CUDA."""
    if pin_memory and torch.cuda.is_available():
        return PageLocked()
    if pin_memory:
        warnings.warn(
            "pin_memory=True has no effect: no CUDA device was found", UserWarning, stacklevel=3
        )
    return Pageable()
