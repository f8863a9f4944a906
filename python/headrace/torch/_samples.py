"""What the numbers are of that a sampler yields."""

from __future__ import annotations

from typing import Any

from torch.utils.data import ConcatDataset, Subset

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace._engine import ObjectIndex
from headrace.torch._arguments import count
from headrace.torch._mix import Mixture
from headrace.torch._objects import Objects
from headrace.torch._source import Source, source_of

__all__ = ["Samples", "samples_of"]


class Samples:
    """Numbered samples, and the objects behind them, if they are known."""

    def __init__(self, number: int, source: Source | None) -> None:
        self._number = number
        self.source = source

    def __len__(self) -> int:
        return self._number

    @property
    def fingerprint(self) -> str:
        """A hash of what the numbers depend on, as far as that is known."""
        return f"{self._number} samples" if self.source is None else self.source.fingerprint


def samples_of(data: Any) -> Samples:
    """Return what a sampler was given as `data`.

    Raises:
        InvalidArgumentError: it has no samples, or nobody knows how many.
    """
    source: Source | None = None
    if isinstance(data, ObjectIndex):
        require(len(data) > 0, "the index is empty; it has no samples")
        part: Any = _OfIndex(data)
        source = Source([part])
    elif _is_ours(data):
        source = source_of(data, reads=False)
    if source is not None:
        number = len(source)
    elif isinstance(data, Mixture):
        number = sum(map(len, data.datasets))
    elif hasattr(data, "__len__") and not isinstance(data, str | bytes):
        number = len(data)
    elif isinstance(data, int):
        number = count("data", data, minimum=1)
    else:
        raise InvalidArgumentError(
            f"data is a {type(data).__name__}; it must be a dataset that has a length, a "
            "headrace.ObjectIndex, or the number of samples"
        )
    require(number > 0, "data has no samples")
    return Samples(number, source)


class _OfIndex:
    """The entries of an index as a part of a `Source` that is not read."""

    def __init__(self, index: ObjectIndex) -> None:
        self.objects = index
        self._fingerprint = index.fingerprint

    def url(self, index: int) -> str:
        if self.objects.roots[0] == "":
            return self.objects.name(index)
        return self.objects.url(index)

    def __repr__(self) -> str:
        return f"the index of {len(self.objects)} entries"


def _is_ours(data: Any) -> bool:
    """Return whether all parts of a dataset are of this package."""
    if isinstance(data, Subset):
        return _is_ours(data.dataset)
    if isinstance(data, ConcatDataset | Mixture):
        return all(_is_ours(part) for part in data.datasets)
    return isinstance(data, Objects)
