"""Several datasets in fixed shares."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset
from torch.utils.data import IterableDataset as TorchIterableDataset

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace.torch._arguments import int64_count, seed_or_epoch
from headrace.torch._batch_costs import numbers_of
from headrace.torch._part_stream import PartStream
from headrace.torch._shared_place import SharedPlace
from headrace.torch._signatures import Item
from headrace.torch._units import Units, UnitsDrawn

if TYPE_CHECKING:
    import numpy

__all__ = ["Mixture", "Shares", "mix"]


def mix(
    datasets: Sequence[Dataset[Item]],
    weights: Sequence[float] | numpy.ndarray[Any, Any] | torch.Tensor,
    num_samples: int | None = None,
) -> Mixture[Item]:
    """Mix several datasets in fixed shares: the result is a dataset for `Loader`.

    Of the first *t* samples of all ranks, each dataset has its share times *t*, off by less than
    one sample, at any *t* (Tijdeman, "The chairman assignment problem", 1980). Weights are met
    exactly if they are in the ratio of whole numbers whose sum is at most 2^20, as 3 and 1 or 0.7
    and 0.3 are; others are rounded to about a millionth of the whole.

    Each dataset is gone through pass after pass: every sample comes once in each of its passes, and
    with ``Loader(shuffle=True)`` each pass has an order of its own. An epoch is `num_samples` long,
    and the next one continues where it has ended, within the datasets, too. So a small dataset
    comes several times in an epoch, and a large one may take several epochs.

    Any position is computed without those before it: resuming costs nothing, and the order does not
    depend on the number of ranks; but for the samples of a `ShardStream` without an index, whose
    shards the ranks divide, and which draw the same random numbers each time within an epoch.

    For torch's DataLoader, and for samplers, it is a map-style dataset of `num_samples` samples in
    the order of the shares, which the DataLoader may shuffle; call its `set_epoch` before each
    epoch, as that of a `MapDataset`.

    Examples:
        >>> code, prose = MapDataset("gs://bucket/train/cat"), MapDataset("gs://bucket/train/dog")
        >>> both = mix([code, prose], weights=[3, 1], num_samples=1000)
        >>> for batch in Loader(both, 64, shuffle=True, collate_fn=list):
        ...     print(len(batch))  # doctest: +SKIP

    Args:
        datasets: the datasets, each with a length; for `Loader`, of this package, and there
            `ParquetDataset` and `ShardStream` are taken, too. Of a `ShardStream` without an index,
            each rank goes through the shards as `ShardStream` says of ``epoch_samples``.
        weights: of each dataset, in proportion to the others.
        num_samples: the samples of an epoch, of all ranks together. Default: as many as the
            datasets have together; a `ShardStream` without an index has no such number.

    Raises:
        InvalidArgumentError: an argument cannot work: there is not one weight for each dataset, a
            weight is not above 0 and finite, a dataset is a mixture or has no samples, nobody
            knows how many it has and `num_samples` is not given, or there are more than 4096.
    """
    return Mixture(datasets, weights, num_samples)


class Shares:
    """The order of a mixture."""

    def __init__(
        self, sizes: Sequence[int], weights: torch.Tensor, number: int, shuffle: bool
    ) -> None:
        values: Any = weights.numpy()
        self._weights = weights.clone()  # which nobody changes
        self._schedule = _engine.MixtureSchedule(values)
        self._sizes = sizes
        self._shuffle = shuffle
        self.count = number
        self.is_counted = True
        hashed = hashlib.sha256(repr((list(sizes), self._schedule.parts)).encode()).hexdigest()
        self.origin = f"{number} samples of a mixture of the hash {hashed[:16]}"
        self.order(0, 0)  # raises what would be raised later

    def __reduce__(self) -> tuple[Any, ...]:
        return Shares, (self._sizes, self._weights, self.count, self._shuffle)

    def order(self, seed: int, epoch: int) -> _engine.MixtureOrder:
        return _engine.MixtureOrder(
            self._schedule, self._sizes, self.count, seed, epoch, self._shuffle
        )


class Mixture(Dataset[Item]):
    """What `mix` returns."""

    def __init__(
        self,
        datasets: Sequence[Dataset[Item]],
        weights: Sequence[float] | numpy.ndarray[Any, Any] | torch.Tensor,
        num_samples: int | None = None,
    ) -> None:
        self.datasets = _checked(datasets)
        given: Any = weights
        is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        require(
            (is_list or getattr(given, "ndim", 0) == 1) and len(given) == len(self.datasets),
            f"weights is {given!r}, and there are {len(self.datasets)} datasets: give a list or an "
            "array with a number for each",
        )
        self._weights = numbers_of("weights", weights, None, len(self.datasets))
        sizes: list[int] = [_size(part, num_samples) for part in self.datasets]
        empty = next((i for i, size in enumerate(sizes) if size == 0), None)
        require(empty is None, f"dataset {empty} has no samples")
        *self._begins, total = itertools.accumulate(sizes, initial=0)
        require(total < 1 << 63, "the datasets have 2^63 samples or more")
        self._sizes = sizes
        self._count = total
        if num_samples is not None:
            self._count = int64_count("num_samples", num_samples, minimum=1)
        self._in_order = self.shares(shuffle=False)
        self._shared = SharedPlace()  # the epoch of torch's DataLoader

    def shares(self, *, shuffle: bool) -> Shares:
        """Return the order of an epoch's positions, as numbers of samples of all datasets."""
        return Shares(self._sizes, self._weights, self._count, shuffle)

    def drawn_in_units(self, units: Sequence[Units], shuffle: bool) -> UnitsDrawn:
        """Return the order, if some of the datasets are read in units."""
        return UnitsDrawn(units, self._count, shuffle, tuple(self._weights.tolist()))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that torch's DataLoader reads, as `MapDataset.set_epoch`."""
        self._shared.move(seed_or_epoch("epoch", epoch))
        parts: list[Any] = [*self.datasets]
        while parts:
            part = parts.pop()
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
            elif isinstance(part, Subset):
                parts.append(part.dataset)
            elif isinstance(part, ConcatDataset):
                parts += part.datasets

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        # Without this method, Python would take a transform's IndexError for the end.
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, index: int) -> Item:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Read many samples at the same time, and return them in the order of `indices`."""
        positions = [operator.index(i) for i in indices]
        odd = next((i for i in positions if not -self._count <= i < self._count), None)
        if odd is not None:
            raise IndexError(f"index {odd} is out of range: there are {self._count} samples")
        order = self._in_order.order(0, self._shared.epoch)
        places: dict[int, list[tuple[int, int]]] = {}
        for at, number in enumerate(order.pick([i % self._count for i in positions])):
            owner = bisect.bisect_right(self._begins, number) - 1
            places.setdefault(owner, []).append((at, number - self._begins[owner]))
        made: list[Any] = [None] * len(positions)
        for owner, own in places.items():
            part: Any = self.datasets[owner]
            require(
                not isinstance(part, TorchIterableDataset),
                f"{part!r} has no samples by number: give this mixture to a Loader",
            )
            numbers = [number for _, number in own]
            read = getattr(part, "__getitems__", None)
            items = [part[i] for i in numbers] if read is None else read(numbers)
            for (at, _), item in zip(own, items, strict=True):
                made[at] = item
        return made

    def __repr__(self) -> str:
        weights = ", ".join(f"{weight:g}" for weight in self._weights.tolist())
        return f"mix({self.datasets!r}, weights=[{weights}], num_samples={self._count})"


def _checked(datasets: Any) -> list[Any]:
    if isinstance(datasets, str | bytes) or not isinstance(datasets, Sequence):
        raise InvalidArgumentError(
            f"datasets is a {type(datasets).__name__}; it must be a list of datasets"
        )
    require(len(datasets) > 0, "there are no datasets to mix")
    for i, part in enumerate(datasets):
        name = type(part).__name__
        require(
            not isinstance(part, Mixture),
            f"dataset {i} is a mixture itself: give its datasets to the outer mix",
        )
        is_ours = isinstance(part, PartStream)
        require(
            is_ours or not isinstance(part, TorchIterableDataset),
            f"dataset {i} is a {name}, a stream that is not of headrace, and has no numbers",
        )
        require(
            is_ours
            or (
                hasattr(part, "__getitem__")
                and hasattr(part, "__len__")
                and not isinstance(part, str)
            ),
            f"dataset {i} is a {name}; it must be a dataset with a length",
        )
    return list(datasets)


def _size(part: Any, num_samples: int | None) -> int:
    """Return how many samples a dataset has, or may have, if nobody knows.

    A stream has no length, for torch's sake.
    """
    if not isinstance(part, PartStream):
        return len(part)
    if part._firsts:
        return int(part._firsts[-1])
    require(
        num_samples is not None,
        f"nobody knows how many samples the shards of {part!r} have, and so how many an epoch of "
        "the mixture has: say num_samples, or give an index of the members as the source "
        "(`headrace index`)",
    )
    require(
        part._epoch_samples is None,
        f"{part!r} was made with epoch_samples=: leave it out there; num_samples says how many "
        "samples an epoch of the mixture has",
    )
    return part._as_part().units.samples
