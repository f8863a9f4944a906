"""Python's, NumPy's and torch's global random generators, while transforms run."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

import torch
from torch.utils.data import get_worker_info

__all__ = ["GlobalGenerators"]


class GlobalGenerators:
    """A context in which transforms find the global generators seeded for their sample.

    When the context ends, the generators return to their earlier state, so that the trainer's own
    random numbers do not depend on those that transforms draw. In a DataLoader worker nobody else
    uses them, and they are not restored. NumPy is touched only if it has been imported.

    Thread: one at a time. Numbers that other threads draw meanwhile are disturbed.
    """

    def __init__(self) -> None:
        self._own: Any = None  # the generator that takes the place of NumPy's own
        self._numpy: Any = None  # its module of random numbers
        self._before: tuple[Any, Any, Any] | None = None

    def __enter__(self) -> GlobalGenerators:
        # Not its attribute, which is not there yet while another thread imports NumPy.
        self._numpy = importlib.import_module("numpy.random") if "numpy" in sys.modules else None
        if get_worker_info() is not None:
            return self
        # Exchanging NumPy's generator takes 1 µs, saving and restoring its state 100 µs.
        theirs = None
        if self._numpy is not None:
            if self._own is None:
                self._own = self._numpy.MT19937(0)
            theirs = self._numpy.get_bit_generator()
            self._numpy.set_bit_generator(self._own)
        self._before = random.getstate(), torch.default_generator.get_state(), theirs
        return self

    def seed(self, seed: int) -> None:
        """Seed all of them with `seed`, or with as many of its bits as they take."""
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        if self._numpy is not None:
            self._numpy.seed(seed & 0xFFFFFFFF)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        (of_python, of_torch, of_numpy), self._before = self._before, None
        random.setstate(of_python)
        torch.default_generator.set_state(of_torch)
        if of_numpy is not None:
            self._numpy.set_bit_generator(of_numpy)
