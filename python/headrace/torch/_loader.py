"""Batches of a bucket's objects, without worker processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace._errors import CancelledError
from headrace._options import require, require_bytes
from headrace.torch._arguments import count, flag, rank_and_world_size, seed_or_epoch
from headrace.torch._grid import Grid
from headrace.torch._map_dataset import MapDataset
from headrace.torch._pinning import choose_pinning
from headrace.torch._pipeline import Pipeline, Recipe, Request
from headrace.torch._place import Place

__all__ = ["Loader", "LoaderStats"]

_MOST_DEFAULT_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class LoaderStats:
    """What a loader has done since it was made."""

    batches: int
    samples: int
    size_bytes: int
    """Of the objects in these samples, as they are stored."""
    wait_s: float
    """How long the trainer waited for batches: the time inside ``next``."""
    first_batch_s: float
    """From the first ``next`` of the latest epoch to its first batch; 0 before that."""


class Loader:
    """Batches of a `MapDataset`, read ahead by the engine, in an order that can be resumed.

    There are no worker processes. The engine reads batches ahead; `transform` runs in threads,
    which is quick if it lets the GIL go most of the time, as decoders of images, NumPy and torch
    do. (A transform in pure Python is better off with torch's DataLoader and its processes.)
    Without a transform, and with objects of equal size in a batch, the engine reads straight into
    the batch (unless it decompresses them), a ``uint8`` tensor of ``[batch_size, size_bytes]``.

    **Order.** It depends on `seed` and the epoch alone and is the same on every rank. A step takes
    the next ``batch_size * world_size`` positions of it, each rank a contiguous slice. Each object
    comes exactly once per epoch over all ranks: nothing is repeated to fill up. If the last step is
    not full, its samples are dealt evenly, so its batches are smaller; and so that all ranks have
    the same number of steps, the step before leaves at least one sample for each rank. Only with a
    batch size of 1, or fewer objects than ranks, some ranks have a step less; with
    ``drop_last=True`` never.

    **Epochs.** Each ``iter(loader)`` is an epoch, from 0 on; `set_epoch` names another. If an
    iterator is left before its end, the next one begins the next epoch. A loader is at one place at
    a time: `iter`, `set_epoch` and `load_state_dict` end an iterator that is still in use, and it
    raises `CancelledError` if it is asked for more. When an iterator ends, is closed or dropped,
    what was read ahead is cancelled, and the threads end.

    **Place.** `state_dict` is what was yielded so far, of all ranks together, not what was read
    ahead. After `load_state_dict` the next iterator goes on from there, and reads nothing that was
    yielded before. Batch size and world size may differ then, and everything else but the data, the
    seed and `shuffle`, too.

    **Errors** of a transform or of `collate_fn` come as they are, with the sample's URL in them. An
    error ends the iterator; the place is still before the batch that failed, so
    ``loader.load_state_dict(loader.state_dict())`` lets the next iterator try that batch again.

    Args:
        dataset: what is read.
        batch_size: samples of this rank in each batch.
        shuffle: whether each epoch has an order of its own.
        seed: of that order, any integer from 0 to 2^63 - 1; give the same to every rank.
        drop_last: leave out the samples at the end that do not fill a step of all ranks.
        collate_fn: makes a batch of a list of samples. Default: `collate`, which is torch's
            ``default_collate`` with clearer errors.
        transform_threads: threads that transform and collate; 0: the thread that asks for the next
            batch does. Default: one per core, at most 8.
        prefetch_bytes: how much may be read ahead, in stored bytes. Default: what keeps the
            connections busy, and at most half of the memory budget. One batch is always under way.
        pin_memory: whether batches lie in page-locked memory, for copies to a CUDA device.
        rank: which of `world_size` trainer processes this is. Default for both: what
            torch.distributed says if it is initialised when the loader is made; else there is one.
        world_size: see `rank`.

    Raises:
        InvalidArgumentError: an argument cannot work.
    """

    def __init__(
        self,
        dataset: MapDataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        transform_threads: int | None = None,
        prefetch_bytes: int | None = None,
        pin_memory: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        require(
            isinstance(dataset, MapDataset),
            f"dataset is a {type(dataset).__name__}; it must be a headrace.torch.MapDataset "
            "(torch's DataLoader takes any dataset)",
        )
        require(
            collate_fn is None or callable(collate_fn),
            f"collate_fn is {collate_fn!r}; it must be callable",
        )
        if prefetch_bytes is not None:
            require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        if transform_threads is None:
            transform_threads = min(_MOST_DEFAULT_THREADS, len(os.sched_getaffinity(0)))
        rank, world_size = rank_and_world_size(rank, world_size)
        self._dataset = dataset
        self._grid = Grid(
            count("batch_size", batch_size, minimum=1),
            rank,
            world_size,
            flag("drop_last", drop_last),
        )
        self._place = Place(dataset.objects, seed_or_epoch("seed", seed), flag("shuffle", shuffle))
        self._transform_threads = count("transform_threads", transform_threads, minimum=0)
        self._prefetch_bytes = prefetch_bytes
        self._recipe = Recipe(dataset, collate_fn, choose_pinning(flag("pin_memory", pin_memory)))
        self._iterator: object | None = None  # stands for the one that is in use
        self._pipeline: Pipeline | None = None  # its own, once it was asked for a batch
        self._is_draining = False  # whether that iterator is to begin no more reads
        self._batches = self._samples = self._size_bytes = 0
        self._wait_s = self._first_batch_s = 0.0

    def __len__(self) -> int:
        """Return how many batches a whole epoch has on this rank."""
        return self._grid.step_count(len(self._dataset.objects))

    def __repr__(self) -> str:
        grid = self._grid
        return (
            f"headrace.torch.Loader({self._dataset!r}, batch_size={grid.batch_size}, "
            f"rank {grid.rank} of {grid.world_size})"
        )

    @property
    def dataset(self) -> MapDataset:
        """What is read."""
        return self._dataset

    @property
    def epoch(self) -> int:
        """The epoch that the loader is in, or, after its end, the next one."""
        return self._place.epoch

    @property
    def stats(self) -> LoaderStats:
        """What was yielded, and how long the trainer waited for it."""
        return LoaderStats(
            batches=self._batches,
            samples=self._samples,
            size_bytes=self._size_bytes,
            wait_s=self._wait_s,
            first_batch_s=self._first_batch_s,
        )

    # ---- the place

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterator begin this epoch.

        The rest of it, if `load_state_dict` or `drain` has left the loader in the middle of this
        very epoch: a loop over epochs may call this each time.
        """
        epoch = seed_or_epoch("epoch", epoch)
        self._end_iterator()
        place = self._place
        is_rest = epoch == place.epoch and not place.begun
        self._place = place.at(epoch, place.position if is_rest else 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the batch that was yielded last: small, and plain values.

        It is the same on all ranks that have done the same number of steps.
        """
        return self._place.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a place that `state_dict` has told; the next iterator goes on from there.

        Raises:
            InvalidArgumentError: it is a place in other data, or in another order.
        """
        place = self._place.at_state(state)  # if it raises, nothing has changed
        self._end_iterator()
        self._place = place

    def drain(self) -> None:
        """Read nothing more: the iterator yields what was read ahead, then it ends.

        For a job that knows that it will stop: so nothing is read in vain, and `state_dict` says
        where the rest begins. The next iterator goes on with it. Where no iterator is in use, there
        is nothing to drain; where one was not yet asked for a batch, it has none.

        Only for one rank, since of several each may have read ahead another number of batches. Let
        them all leave their loops after the same batch instead, and take the `state_dict` there.

        Raises:
            InvalidArgumentError: there are several ranks.
        """
        require(
            self._grid.world_size == 1,
            f"drain() is for one rank, and there are {self._grid.world_size}, of which each may "
            "have read ahead another number of batches; stop all ranks after the same batch, and "
            "use state_dict()",
        )
        self._is_draining = self._iterator is not None
        if self._pipeline is not None:
            self._pipeline.drain()

    # ---- the batches

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, or what is left of it after `load_state_dict` or `drain`."""
        self._end_iterator()
        place = self._place
        if place.begun:
            place = self._place = place.at(place.epoch + 1, 0)
        iterator = self._iterator = object()
        return self._iterate(iterator, place)

    def _iterate(self, iterator: object, place: Place) -> Iterator[Any]:
        pipeline = requests = None
        try:
            while True:
                began = time.perf_counter()
                self._check(iterator)
                is_first = pipeline is None
                if pipeline is None or requests is None:
                    # Not before it is asked for: an iterator that nobody uses has no threads.
                    requests = Requests(place, self._grid)
                    pipeline = self._pipeline = Pipeline(
                        self._recipe, requests, self._transform_threads, self._prefetch_bytes
                    )
                    place.begun = True
                    if self._is_draining:
                        pipeline.drain()
                try:
                    found = pipeline.next()
                except Exception:
                    self._check(iterator)
                    raise
                self._check(iterator)  # another thread or a signal's handler may have ended it
                wait_s = time.perf_counter() - began
                self._wait_s += wait_s
                if found is None:
                    break
                if is_first:
                    self._first_batch_s = wait_s
                request, size_bytes, value = found
                del found
                self._batches += 1
                self._samples += len(request.indices)
                self._size_bytes += size_bytes
                place.position = request.end
                handed_over = [value]
                del value  # the trainer's alone, as soon as it has it
                yield handed_over.pop()
            place.begun = False  # it is where the next iterator begins
            if requests.at_end:
                place.end_epoch()
        finally:
            if pipeline is not None:
                pipeline.close()
                if iterator is self._iterator:
                    self._iterator = self._pipeline = None

    def _check(self, iterator: object) -> None:
        if iterator is not self._iterator:
            raise CancelledError(
                "this iterator was ended: another one of the same loader was begun, or the loader "
                "was sent to another place"
            )

    def _end_iterator(self) -> None:
        self._iterator, self._is_draining = None, False
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()


class Requests:
    """The batches of one rank from a place on."""

    def __init__(self, place: Place, grid: Grid) -> None:
        self._order = place.order()
        self._count = place.count
        self._position = place.position
        self._grid = grid
        self.at_end = False
        """Whether the last batch of the epoch has been asked for."""

    def __iter__(self) -> Iterator[Request]:
        return self

    def __next__(self) -> Request:
        end = self._grid.step_end(self._position, self._count)
        begin, slice_end = self._grid.slice_of(self._position, end)
        if begin == slice_end:
            # Also where only other ranks have a last batch.
            self.at_end = True
            raise StopIteration
        self._position = end
        return Request(self._order.indices(begin, slice_end), end)
