"""Samples drawn by weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from headrace import _engine
from headrace._base.options import require
from headrace.torch._arguments import Ranks, class_name, count, seed_or_epoch
from headrace.torch._batch_costs import numbers_of
from headrace.torch._batching import BySize
from headrace.torch._epoch_sampler import EpochSampler
from headrace.torch._place import Place
from headrace.torch._samples import samples_of

__all__ = ["WeightedSampler"]

# How many positions of all ranks are looked up together.
_WINDOW = 1 << 14


class Draws:
    """What a `WeightedSampler` draws in an epoch."""

    def __init__(self, weights: torch.Tensor, number: int) -> None:
        values: Any = weights.numpy()
        self._weights = weights.clone()  # which nobody changes
        self._table = _engine.DrawTable(values)
        self.count = number
        self.is_counted = True
        hashed = hashlib.sha256(values.tobytes()).hexdigest()
        self.origin = f"{number} draws by weights of the hash {hashed[:16]}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Draws, (self._weights, self.count)

    def order(self, seed: int, epoch: int) -> _engine.WeightedOrder:
        return _engine.WeightedOrder(self._table, self.count, seed, epoch)


class WeightedSampler(EpochSampler[int]):
    """Draws samples by their weights, with replacement, for `Loader` or torch's DataLoader.

    Each draw depends only on the weights, `seed`, the epoch and its position, and is made in
    constant time (Walker's method of aliases). Resuming costs nothing, and the draws are the same
    with any number of ranks, which take them in turn. torch's ``WeightedRandomSampler`` does
    neither.

    Give it to ``Loader(sampler=)``, which then has epochs and a place of its own, to
    ``DataLoader(sampler=)``, to torchdata's ``StatefulDataLoader``, or to `CostBatchSampler`. The
    latter and `Loader` deal whole batches to ranks; the sampler itself deals single draws, and
    leaves out the last of an epoch, fewer than there are ranks.

    ``state_dict`` is the number of draws that all ranks have asked for.

    Examples:
        >>> sampler = WeightedSampler(dataset, weights=[1, 1, 4], num_samples=1000, seed=7)
        >>> for batch in Loader(dataset, batch_size=64, sampler=sampler):
        ...     train(batch)

    Args:
        data: what the numbers are of: a dataset, an `ObjectIndex`, or a number of samples.
        weights: how often each sample is drawn, in proportion to the others: one number for each,
            or the name of a column of the index.
        num_samples: the draws of an epoch, by all ranks together. Default: as many as there are
            samples.
        seed: of the draws; any integer from 0 to 2^63 - 1. Give all ranks the same.
        rank: which of `world_size` trainer processes this is. Default for both: the values of
            torch.distributed, if it is initialised when an epoch begins; otherwise one process.
        world_size: see `rank`.

    Raises:
        InvalidArgumentError: an argument cannot work: there is not one weight for each sample, a
            weight is negative, infinite or NaN, or all are 0.
    """

    def __init__(
        self,
        data: Any,
        weights: str | Sequence[float] | torch.Tensor,
        num_samples: int | None = None,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        samples = samples_of(data)
        require(
            not isinstance(weights, Callable),  # type: ignore[arg-type]
            "weights is a function; give a weight for each sample",
        )
        numbers = numbers_of("weights", weights, samples.source, len(samples))
        number = len(samples)
        if num_samples is not None:
            number = count("num_samples", num_samples, minimum=1)
        place = Place(samples, seed_or_epoch("seed", seed), True, Draws(numbers, number))
        super().__init__(place, BySize(1, drop_last=False), Ranks(rank, world_size))
        self._data = data

    def _yielded(self, place: Place) -> Iterator[int]:
        rank, world_size = self._ranks.now()
        order, number = place.order(), place.count
        if len(place.spot.waiting) > 0:
            # They come first: a CostBatchSampler has left them behind.
            for single in self._batching.steps(place, rank, world_size).slices(place.spot):
                place.spot = single.after
                yield order[single.positions[0]]
                if len(place.spot.waiting) == 0:
                    break
        for begin in range(place.position, number - world_size + 1, world_size * _WINDOW):
            end = min(begin + world_size * _WINDOW, number - (number - begin) % world_size)
            own = order.indices(begin + rank, end, world_size)
            for index in own:
                place.position += world_size
                yield index

    def __repr__(self) -> str:
        rank, world_size = self._ranks.now()
        return (
            f"{class_name(self)}({self._data!r}, {self._place.count} samples an "
            f"epoch, rank {rank} of {world_size})"
        )
