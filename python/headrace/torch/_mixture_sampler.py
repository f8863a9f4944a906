"""Several datasets in fixed shares."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import ConcatDataset

from headrace import _engine
from headrace._errors import InvalidArgumentError
from headrace._options import require
from headrace.torch._arguments import count, flag
from headrace.torch._batch_costs import numbers_of
from headrace.torch._drawing_sampler import DrawingSampler
from headrace.torch._samples import samples_of

__all__ = ["MixtureSampler"]


class Mixture:
    """The order of a `MixtureSampler`."""

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
        return Mixture, (self._sizes, self._weights, self.count, self._shuffle)

    def order(self, seed: int, epoch: int) -> _engine.MixtureOrder:
        return _engine.MixtureOrder(
            self._schedule, self._sizes, self.count, seed, epoch, self._shuffle
        )


class MixtureSampler(DrawingSampler):
    """Mixes several datasets in fixed shares, for `Loader` or torch's DataLoader.

    Of the first *t* samples of all ranks, each dataset has its share times *t*, off by less than
    one sample, at any *t* (Tijdeman, "The chairman assignment problem", 1980). Weights are met
    exactly if they are in the ratio of whole numbers whose sum is at most 2^20, as 3 and 1 or 0.7
    and 0.3 are; others are rounded to about a millionth of the whole.

    Each dataset is gone through pass after pass: every sample comes once in each of its passes, and
    with `shuffle` each pass has an order of its own. An epoch is `num_samples` long, and the next
    one continues where it has ended, within the datasets, too. So a small dataset comes several
    times in an epoch, and a large one may take several epochs.

    Any position is computed without those before it: resuming costs nothing, and the order does
    not depend on the number of ranks. Give it to ``Loader(sampler=)``, which then has epochs and
    a place of its own, to ``DataLoader(sampler=)``, to torchdata's ``StatefulDataLoader``, or to
    `BatchSampler`. `Loader` and `BatchSampler` deal whole batches to ranks; the sampler itself
    deals single samples, and leaves out the last of an epoch, fewer than there are ranks.

    Examples:
        >>> code, prose = MapDataset("gs://bucket/train/cat"), MapDataset("gs://bucket/train/dog")
        >>> both = torch.utils.data.ConcatDataset([code, prose])
        >>> sampler = MixtureSampler(both, weights=[3, 1], num_samples=1000, seed=7)
        >>> for batch in Loader(both, batch_size=64, sampler=sampler, collate_fn=list):
        ...     print(len(batch))  # doctest: +SKIP

    Args:
        data: torch's ``ConcatDataset`` of the datasets; or how many samples each of them has, if
            they are numbered one after the other in this way.
        weights: of each dataset, in proportion to the others.
        num_samples: the samples of an epoch, of all ranks together. Default: as many as the
            datasets have together.
        shuffle: whether each pass through a dataset has an order of its own. If not, its samples
            come in their own order.
        seed: of these orders; any integer from 0 to 2^63 - 1. Give all ranks the same.
        rank: which of `world_size` trainer processes this is. Default for both: the values of
            torch.distributed, if it is initialised when an epoch begins; otherwise one process.
        world_size: see `rank`.

    Raises:
        InvalidArgumentError: an argument cannot work: there is not one weight for each dataset, a
            weight is not above 0 and finite, a dataset has no samples, or there are more than 4096.
    """

    def __init__(
        self,
        data: ConcatDataset[Any] | Sequence[int],
        weights: Sequence[float] | torch.Tensor,
        num_samples: int | None = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        sizes = _sizes_of(data)
        samples = samples_of(data if isinstance(data, ConcatDataset) else sum(sizes))
        given: Any = weights
        require(
            hasattr(given, "__len__") and not isinstance(given, str) and len(given) == len(sizes),
            f"weights is {given!r}, and there are {len(sizes)} datasets: give a number for each",
        )
        number = len(samples)
        if num_samples is not None:
            number = count("num_samples", num_samples, minimum=1)
        shuffle = flag("shuffle", shuffle)
        mixture = Mixture(sizes, numbers_of("weights", weights, None, len(sizes)), number, shuffle)
        super().__init__(
            data, samples, mixture, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size
        )


def _sizes_of(data: Any) -> list[int]:
    if isinstance(data, ConcatDataset):
        sizes = [len(part) for part in data.datasets]  # type: ignore[arg-type]
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        odd = next((each for each in data if hasattr(each, "__getitem__")), None)
        require(
            odd is None,
            f"data has a {type(odd).__name__} where a number of samples is wanted: give the "
            "datasets as one torch.utils.data.ConcatDataset([...])",
        )
        sizes = [count(f"data[{i}]", size, minimum=0) for i, size in enumerate(data)]
    else:
        raise InvalidArgumentError(
            f"data is a {type(data).__name__}; it must be a ConcatDataset of the datasets, or the "
            "number of samples of each"
        )
    require(len(sizes) > 0, "there are no datasets to mix")
    empty = next((i for i, size in enumerate(sizes) if size == 0), None)
    require(empty is None, f"dataset {empty} has no samples")
    require(sum(sizes) < 1 << 63, "the datasets have 2^63 samples or more")
    return sizes
