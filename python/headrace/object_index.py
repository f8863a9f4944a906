"""How an `ObjectIndex` travels."""

from __future__ import annotations

from typing import Any

from headrace import _engine
from headrace._engine import ObjectIndex

__all__ = ["reduce", "restore"]


def reduce(index: ObjectIndex) -> tuple[Any, ...]:
    """Return what pickle needs: the index's image."""
    return restore, (_engine.index_image(index),)


def restore(image: bytes) -> ObjectIndex:
    """Return the index of an image."""
    return _engine.index_from_image(image)
