"""The random generators of one sample."""

from __future__ import annotations

import random
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace._engine import Sample

if TYPE_CHECKING:
    import numpy
    import torch
    from typing_extensions import Buffer

__all__ = ["SampleRng", "make_sample"]


class SampleRng:
    """Random generators that all begin with the seed of one sample.

    Each is made when it is first asked for, and goes on from there: the second number that it draws
    is another than the first. What one draws does not change what another does.

    >>> rng = sample.rng()                                        # doctest: +SKIP
    >>> angle = rng.python.uniform(-10, 10)                       # doctest: +SKIP
    >>> noise = torch.randn(3, 8, 8, generator=rng.torch)         # doctest: +SKIP
    >>> picked = rng.numpy.permutation(8)                         # doctest: +SKIP
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        """What they begin with."""

    @cached_property
    def python(self) -> random.Random:
        """A generator of Python's module `random`."""
        return random.Random(self.seed)

    @cached_property
    def numpy(self) -> numpy.random.Generator:
        """A generator of NumPy; NumPy is imported for it."""
        import numpy

        return numpy.random.default_rng(self.seed)

    @cached_property
    def torch(self) -> torch.Generator:
        """A generator of torch, on the CPU; torch is imported for it."""
        import torch

        return torch.Generator().manual_seed(self.seed)

    def __repr__(self) -> str:
        return f"<headrace.SampleRng, seed {self.seed}>"


def make_sample(
    data: Buffer,
    url: str,
    generation: str,
    name: str,
    index: int | None,
    seed: int | None,
    label: Any,
) -> Sample:
    """Return what a pickle of a sample tells of."""
    return Sample(data, url, generation, name, index, seed=seed, label=label)
