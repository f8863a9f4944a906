"""Datasets of entries by number."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data import Dataset

from headrace import _engine
from headrace._base.progress import CountOption
from headrace._engine import ObjectIndex, Sample
from headrace._process import tracing
from headrace._store.chosen import Chosen
from headrace.torch._arguments import seed_or_epoch
from headrace.torch._objects import Labels, Objects, Source
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._shared_place import SharedPlace
from headrace.torch._signatures import Item

__all__ = ["ByNumber"]

_MOST_SEED = (1 << 64) - 1


class ByNumber(Objects, Dataset[Item]):
    """What datasets have in common whose items are read by number: see `MapDataset`."""

    def __init__(
        self,
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Any] | None,
        index: ObjectIndex | None,
        labels: Labels | None,
        classes: bool | Sequence[str] | None,
        seed: int,
        progress: CountOption,
        options: Mapping[str, Any],
        chosen: Chosen | None = None,
    ) -> None:
        self._seed = seed_or_epoch("seed", seed)
        self._made = 0  # samples made by this process and its ancestors
        self._shared: SharedPlace | None = None  # the epoch, once it was set
        super().__init__(source, transform, index, labels, classes, progress, options, chosen)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that random transforms in torch's DataLoader depend on.

        Call it before each epoch, the first time before the DataLoader's workers start. Workers
        that are running (``persistent_workers``) see later calls. `Loader` has epochs of its own
        and ignores this.

        Examples:
            >>> dataset.set_epoch(epoch)

        Raises:
            InvalidArgumentError: `epoch` is not an integer from 0 to 2^63 - 1.
        """
        epoch = seed_or_epoch("epoch", epoch)
        if self._shared is None:
            self._shared = SharedPlace()
        self._shared.move(epoch)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Item]:
        """Read the objects one after the other, in the order of their numbers."""
        # Without this method, Python would take a transform's IndexError for the end.
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, index: int) -> Item:
        """Read one object; a negative number counts from the end.

        Examples:
            >>> image, label = dataset[-1]

        Raises:
            IndexError: a number is out of range.
            NotFoundError: the object was deleted after the listing.
            PreconditionFailedError: it was replaced after the listing.
        """
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Read many objects at the same time, and return them in the order of `indices`.

        Examples:
            >>> items = dataset.__getitems__([7, 5, 3])

        Raises:
            IndexError: a number is out of range.
            NotFoundError: an object was deleted after the listing.
            PreconditionFailedError: an object was replaced after the listing.
        """
        begin_ns = time.perf_counter_ns()
        samples: list[Any] = self._start(indices).take(return_errors=False)
        tracing.note("read", begin_ns, time.perf_counter_ns(), samples=len(samples))
        if not self._makes:
            return [sample.tensor() for sample in samples]
        self._label(samples, indices)
        if self._shared is None:
            seed, epoch, first = torch.initial_seed() & _MOST_SEED, 0, self._made
            self._made += len(samples)
            positions: Sequence[int] = range(first, first + len(samples))
            generators = None
        else:
            seed, epoch, count = self._seed, self._shared.epoch, len(self)
            positions = [operator.index(i) % count for i in indices]
            generators = GlobalGenerators()
        _engine.seed_samples(samples, seed, epoch, positions)
        begin_ns = time.perf_counter_ns()
        with generators or nullcontext():
            made: list[Item] = []
            for i, sample in enumerate(samples):
                samples[i] = None  # its memory is free when it is used up
                if generators is not None:
                    generators.seed(sample.seed or 0)
                made.append(self._make(sample))
        tracing.note("transform", begin_ns, time.perf_counter_ns(), samples=len(made))
        return made
