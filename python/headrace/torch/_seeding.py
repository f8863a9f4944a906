"""Python's, NumPy's and torch's global random generators, while transforms run."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
from torch.utils.data import get_worker_info

__all__ = ["GlobalGenerators"]


class GlobalGenerators:
    """Lends the global generators to transforms, each of which finds them seeded for its sample.

    As a context: at its end the generators are as they were before, so that the trainer's own
    random numbers do not depend on what transforms draw. In a DataLoader worker nobody else needs
    them, and they stay as they are. NumPy is only touched if somebody has imported it.

    Thread: one at a time; what other threads draw meanwhile is disturbed.
    """

    def __init__(self) -> None:
        self._own: Any = None  # NumPy's generator in place of the trainer's
        self._numpy: Any = None
        self._before: tuple[Any, Any, Any] | None = None

    def __enter__(self) -> GlobalGenerators:
        self._numpy = sys.modules.get("numpy")
        if get_worker_info() is not None:
            return self
        # Exchanging NumPy's takes a microsecond, getting and setting its state a hundred.
        theirs = None
        if self._numpy is not None:
            if self._own is None:
                self._own = self._numpy.random.MT19937(0)
            theirs = self._numpy.random.get_bit_generator()
            self._numpy.random.set_bit_generator(self._own)
        self._before = random.getstate(), torch.default_generator.get_state(), theirs
        return self

    def seed(self, seed: int) -> None:
        """Let all of them begin with `seed`, or with what they take of it."""
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        if self._numpy is not None:
            self._numpy.random.seed(seed & 0xFFFFFFFF)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        (of_python, of_torch, of_numpy), self._before = self._before, None
        random.setstate(of_python)
        torch.default_generator.set_state(of_torch)
        if of_numpy is not None:
            self._numpy.random.set_bit_generator(of_numpy)
