"""Samplers whose epochs are made by the engine, position by position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.torch._arguments import Ranks, class_name, seed_or_epoch
from headrace.torch._batching import BySize
from headrace.torch._epoch_sampler import EpochSampler
from headrace.torch._place import Drawn, Place
from headrace.torch._samples import Samples

__all__ = ["DrawingSampler"]

# How many positions of all ranks are looked up together.
_WINDOW = 1 << 14


class DrawingSampler(EpochSampler[int]):
    """Yields numbers of samples in an order that is not that of all samples, each once.

    The ranks take its positions in turn; the last of an epoch, fewer than there are ranks, are left
    out.
    """

    def __init__(
        self,
        data: Any,
        samples: Samples,
        drawn: Drawn,
        *,
        shuffle: bool,
        seed: int,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        place = Place(samples, seed_or_epoch("seed", seed), shuffle, drawn)
        super().__init__(place, BySize(1, drop_last=False), Ranks(rank, world_size))
        self._data = data

    def _yielded(self, place: Place) -> Iterator[int]:
        rank, world_size = self._ranks.now()
        order, number = place.order(), place.count
        if len(place.spot.waiting) > 0:
            # They come first: a BatchSampler has left them behind.
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
