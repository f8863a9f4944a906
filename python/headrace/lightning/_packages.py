"""Lightning, under the one of its names that is used: ``lightning`` or ``pytorch_lightning``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

__all__ = ["fabric", "pytorch"]


def _names() -> tuple[str, str]:
    both = {
        "lightning": ("lightning.pytorch", "lightning.fabric"),
        "pytorch_lightning": ("pytorch_lightning", "lightning_fabric"),
    }
    installed = [name for name in both if importlib.util.find_spec(name) is not None]
    if not installed:
        raise ImportError(
            "headrace.lightning needs Lightning: pip install lightning (or pytorch-lightning)",
            name="lightning",
        )
    # Both may be installed, and their classes are different ones: what the program imports counts.
    imported = [name for name in installed if name in sys.modules]
    return both[(imported or installed)[0]]


_pytorch, _fabric = _names()


def pytorch(module: str) -> Any:
    """Return a module of ``lightning.pytorch``."""
    return importlib.import_module(f"{_pytorch}.{module}")


def fabric(module: str) -> Any:
    """Return a module of ``lightning.fabric``."""
    return importlib.import_module(f"{_fabric}.{module}")
