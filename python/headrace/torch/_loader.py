"""A loader that yields batches of objects without worker processes."""

from __future__ import annotations

import copy
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn, Unpack

from headrace._base.errors import CancelledError
from headrace._base.on_error import OnError
from headrace._base.options import require, require_bytes
from headrace._process import tracing
from headrace._process.process import metrics
from headrace._process.verdict import Evidence, Verdict, Watch, verdict_of
from headrace._store.keywords import refuse_keywords
from headrace.torch._arguments import (
    class_name,
    count,
    flag,
    function,
    seed_or_epoch,
    warn_of_overlooked_ranks,
)
from headrace.torch._grid import Spot, Steps
from headrace.torch._loader_order import Ordered, ordered
from headrace.torch._mix import Mixture
from headrace.torch._partial import PartialPipeline
from headrace.torch._pinning import choose_pinning
from headrace.torch._pipeline import Batches, Pipeline, Recipe, Request, WorkTimes
from headrace.torch._place import Place
from headrace.torch._sampled import ByThem
from headrace.torch._shuffling import Shuffle
from headrace.torch._signatures import (
    Batch,
    CollatedKeywords,
    Fields,
    Item,
    LoaderKeywords,
    Made,
    NamedItem,
    Stacked,
    overload,
)
from headrace.torch._skipping import NOTHING, Skipped, Skipping, Skips
from headrace.torch._source import source_of
from headrace.torch._to_device import CopiedAhead, choose_device, opened
from headrace.torch._units import Lanes

if TYPE_CHECKING:
    import numpy
    import torch
    from torch.utils.data import Dataset

__all__ = ["Loader", "LoaderStats"]

_MOST_DEFAULT_THREADS = 8
_KEPT_COUNTS = 8
_logger = logging.getLogger("headrace")
# Arguments of torch's DataLoader, and what takes their place here.
_INSTEAD = {
    "num_workers": "Loader has transform_threads instead, and no worker processes",
    "prefetch_factor": "Loader has prefetch_bytes instead",
    "persistent_workers": "Loader has no worker processes; leave it out",
    "worker_init_fn": "Loader has no worker processes; a transform's random numbers come from "
    "sample.rng()",
    "multiprocessing_context": "Loader has no worker processes; leave it out",
    "generator": "Loader has seed instead; a transform's random numbers come from sample.rng()",
    "timeout": "headrace.Store has timeout=TimeoutOptions(...); give the dataset such a store",
    "in_order": "batches of a Loader are always in order; leave it out",
    "pin_memory_device": "Loader(device=...) copies batches to the device, too",
}


@dataclass(frozen=True, kw_only=True)
class LoaderStats:
    """Counters of a loader since it was made."""

    batches: int
    samples: int
    """Those in these batches; one that ``fill="repeat"`` repeats counts once."""
    skipped: int
    """Samples that were left out because of errors (``on_error``)."""
    size_bytes: int
    """The stored size of the objects in these samples."""
    wait_s: float
    """The time that the trainer has waited for batches, inside ``next``."""
    first_batch_s: float
    """The time from the first ``next`` of the latest epoch to its first batch; 0 before that."""
    trainer_s: float
    """The time that the trainer has worked on batches, between one ``next`` and the following."""
    transform_s: float
    """The time that transforms took, summed over the threads that run them."""
    collate_s: float
    """The time that collating, and pinning, took, summed over threads."""
    requests: int
    """This and the fields below count the whole process, since the loader was made: another loader
    or store at work in the meantime is counted, too. They are of `headrace.metrics`, where an
    engine that was shut down begins anew.

    Attempts that were sent."""
    retries: int
    """Of these, not the first of their request."""
    read_bytes: int
    """Object bytes that arrived, and what hedges read in vain."""
    checksums_verified: int
    """Objects whose checksum was compared and agreed. Checksums are computed while the bodies
    arrive, so that they have no time of their own."""
    queue_s: float
    """How long reads waited for memory and a slot, summed over reads that wait in parallel."""
    first_byte_s: float
    """How long requests waited for the first byte of their answers, summed."""
    body_s: float
    """How long the rest of these answers took to arrive, summed."""

    throttled: int
    """Answers that said "slow down"."""
    bytes_wait_s: float
    """Of `wait_s`, the time in which bytes had still to arrive; the rest went into transforms."""
    held_wait_s: float
    """Of `bytes_wait_s`, the time in which memory had no room for more requests."""
    transform_cpu_s: float
    """CPU time of transforms and of collating."""
    cpu_s: float
    """CPU time of the process."""
    cores: float
    """How many the process may use, by its mask and by the quota of its cgroup."""
    starved_s: float
    """How long the engine's I/O threads could have run and had no core, as a mean over them."""

    @property
    def verdict(self) -> Verdict:
        """What limits the run, and what to do about it.

        It is text when printed; `Verdict.limit` is one word.

        Examples:
            >>> loader.stats.verdict.limit  # doctest: +SKIP
            'transform'
        """
        known = {each.name for each in fields(Evidence)} - {"duration_s"}
        seen: dict[str, Any] = {name: getattr(self, name) for name in known}
        return verdict_of(Evidence(duration_s=self.wait_s + self.trainer_s, **seen))

    @property
    def wait_fraction(self) -> float:
        """The share of the trainer's time in which it waited for batches; 0 before the first one.

        Examples:
            >>> f"{loader.stats.wait_fraction:.0%}"
            '0%'
        """
        whole_s = self.wait_s + self.trainer_s
        return self.wait_s / whole_s if whole_s > 0 else 0.0

    @property
    def read_amplification(self) -> float:
        """Bytes that arrived for each byte of the samples yielded; 0 before the first one.

        It is above 1 by what was read ahead and not yielded yet, by gaps between ranges, by hedges
        and by what was read again, and below 1 where a cache had the bytes.

        Examples:
            >>> loader.stats.read_amplification < 2
            True
        """
        return self.read_bytes / self.size_bytes if self.size_bytes else 0.0


class Loader(Generic[Batch]):
    """Batches of a dataset, read ahead by the engine, in an order that can be resumed.

    There are no worker processes. The engine reads batches ahead, and threads run the dataset's
    transform. This is fast if the transform releases the GIL most of the time, as image decoders,
    NumPy and torch do; for a transform in pure Python, use torch's DataLoader and its processes.
    Without a transform, and with objects of equal size in a batch, the engine reads straight into
    the batch, a ``uint8`` tensor of shape ``[batch_size, size_bytes]`` (unless it decompresses the
    objects, or has ``on_change="reread"``).

    **Order.** It depends on `seed` and the epoch alone and is the same on every rank. A step takes
    the next ``batch_size * world_size`` positions of it, and each rank a contiguous slice of these.
    Each object comes exactly once per epoch over all ranks; nothing is repeated to fill up. If the
    last step is not full, the ranks share its samples evenly and get smaller batches; the step
    before it leaves at least one sample for each rank. All ranks therefore take the same number of
    steps. With a batch size of 1, or with fewer objects than ranks, this is only possible if the
    last objects, fewer than there are ranks, are left out; the log says so once. With
    `max_batch_bytes`, the order is cut into batches that are as large as the limit allows, and a
    step takes the next `world_size` of them.

    **Blocks.** With ``shuffle="block"``, blocks of `block_size` consecutive objects come in a
    random order, and the objects of a window of blocks are shuffled. Where blocks begin differs
    from epoch to epoch. The neighbouring ranges of a block that are in one batch are read by one
    request (`headrace.ParallelOptions.max_gap_bytes`). If `batch_size` is a multiple of the window,
    each block is in one batch. A larger window mixes better and takes more requests.

    **Units.** Rows of a `ParquetDataset` lie in row groups, and samples of a `ShardStream` in
    shards, each of which is read once for all of its samples that a rank has. With `shuffle`, the
    units come in a random order, and samples are shuffled within a window of the size that the
    dataset says (``shuffle_groups``, ``shuffle_window``). An epoch's order is cut into as many
    pieces as there are ranks, so that each rank reads units of its own; the state keeps how, and
    after a resume with other ranks they share what is left of the pieces, until the epoch ends.
    With `max_batch_bytes`, each rank reads all units. Rows without a transform become a dict of
    columns.

    **Shards without an index.** Nobody knows how many samples a `ShardStream` without an index has,
    so there are as many steps as come, and ``len()`` is a `TypeError`. Several ranks need its
    ``epoch_samples``, by which each takes as many samples, and the length is known. Each rank
    reads shards of its own; its state is its own, too, and is for the same rank of as many; other
    ranks go on from a list of the states of all. In a mixture, the order says which samples are of
    the stream, and each rank takes the next ones of its shards. What cannot be read takes the place
    of a sample in a batch. The stream's `prefetch_bytes` says how much of the shards is read ahead;
    the loader takes as many batches of that as keep its threads busy, and at most its own
    `prefetch_bytes`.

    **Epochs.** Each ``iter(loader)`` is an epoch, from 0 on; `set_epoch` names another one. If you
    leave an iterator before its end, the next one begins the next epoch. ``next(iter(loader))``
    therefore uses up an epoch; ``set_epoch(0)`` undoes that. A loader has one place at a time:
    `iter`, `set_epoch` and `load_state_dict` end an iterator that is in use, which then raises
    `CancelledError` if it is asked for more. An iterator that has not been asked for a batch yet
    moves to the new place. When an iterator ends, is closed or dropped, the loader cancels what was
    read ahead and ends the threads.

    **Place.** `state_dict` records what all ranks together have yielded, not what was read ahead.
    After `load_state_dict`, the next iterator continues from there and reads nothing that was
    yielded before. The batch size, the world size and everything else may differ, except the data,
    the seed and `shuffle`.

    **Samplers.** A `CostBatchSampler` or `WeightedSampler` gives the loader its rules and its seed;
    the place is the loader's own, with all that is said above. Any other sampler is told each epoch
    by its `set_epoch`, if it has one, and the loader's place is that of this rank in the sampler's
    order. If the sampler or its iterator has `state_dict` and `load_state_dict`, they are saved and
    restored with the place. Otherwise `load_state_dict` lets the loader ask the sampler anew and
    pass over what was yielded, without reading it; if the sampler's order is not the same again,
    this is an `InvalidArgumentError`. Ranks cannot change then. A generator that is used for epoch
    after epoch, as by torch's ``RandomSampler``, is only restored within its first epoch.

    **Random transforms** draw from ``sample.rng()``. The numbers depend only on `seed`, the epoch
    and the position of the sample, so they are the same with any number of threads and ranks, and
    after a resume. All threads share the global generators of `random`, NumPy and torch; with
    ``transform_threads=0``, the loader seeds these for each sample, too, and restores them after
    it.

    **Errors** of a transform or of `collate_fn` keep their class and have the sample's URL in their
    text. An error ends the iterator. The place is then still before the batch that failed:
    ``loader.load_state_dict(loader.state_dict())`` lets the next iterator try that batch again.

    **Samples with errors** are left out with ``on_error="skip"``: those whose transform raises, and
    those that are not there any more, have changed, or are corrupt. An outage, a refusal of rights,
    a wrong argument, a lack of memory and an interruption still raise, and so does whatever
    `collate_fn` raises. The batch is shorter then, or with ``fill="repeat"`` has a neighbour in the
    place of each sample that is left out. The place moves by the whole batch in any case, the other
    samples have the seeds that they would have had, and all ranks take as many steps as without
    errors. If nothing is left of a batch, a single rank goes on to the next one, and so yields a
    batch less than ``len(loader)``; several ranks raise `CorruptDataError`, since they would no
    longer be in step. With ``fill="repeat"``, such a batch consists of the nearest good sample in
    the order, before it or behind it. `stats` counts what was left out, and so does the state, each
    rank for itself: ``skipped`` is all that may differ between the states of ranks, and if all
    ranks load the state of one of them, each goes on with the count of that one. The log names the
    first sample of an epoch, and says at its end how many there were.

    Examples:
        >>> loader = Loader(dataset, batch_size=256, shuffle=True, seed=7)
        >>> for epoch in range(loader.epoch, 90):
        ...     for images, labels in loader:
        ...         train(images, labels)

    Args:
        dataset: a dataset of this module: a `MapDataset`, `ShardDataset`, `TokenDataset`,
            `ParquetDataset` or `ShardStream`; a `mix` of some; or
            torch's ``ConcatDataset``, ``Subset`` or ``random_split`` of those that are not read in
            **units**. What `Loader` says itself, such as ``shuffle``, is left out in a dataset.
        batch_size: samples of this rank in each batch; with `max_batch_bytes`, the most of them.
        max_batch_bytes: let each batch have as many samples as fit into this many bytes, counted by
            the stored size of their objects. An object larger than this is a batch of its own. A
            sample of a `ShardStream` with an index counts with the tar's headers between its
            members; without an index, by its members' bytes, and for one rank only.
        shuffle: whether each epoch has an order of its own. ``"block"`` keeps neighbours together,
            so that fewer requests read them; see **Blocks**.
        block_size: with ``shuffle="block"``, how many neighbours stay together. Default: 32.
        shuffle_window: with ``shuffle="block"``, how many objects are shuffled together, rounded up
            to whole blocks. Default: one block.
        seed: of that order, and of the samples' own seeds; any integer from 0 to 2^63 - 1. Give all
            ranks the same seed.
        drop_last: leave out the samples at the end that do not fill a step of all ranks.
        sampler: what says the order in place of `shuffle`: a `WeightedSampler`, or any iterable of
            numbers, such as torch's samplers. The numbers of other samplers than ours are this
            rank's own, as in torch's DataLoader. See **Samplers**.
        batch_sampler: what makes the batches: a `CostBatchSampler`, or any iterable of batches of
            numbers.
        max_wait_s: how long `next` waits for a batch before it gives the samples that have arrived,
            at least one. The others come in batches of their own once they are there. Each sample
            still comes once per epoch, but the batches are not the same in another run. For one
            rank only. Each sample is then read by itself and copied once more.
        collate_fn: a function that makes a batch of a list of samples. Default: `collate`, which is
            torch's ``default_collate`` with clearer errors.
        transform_threads: the number of threads that transform and collate; 0: the thread that asks
            for the next batch does it. Default: one per core, at most 8.
        prefetch_bytes: how much may be read ahead, in stored bytes. Default: as much as keeps the
            connections busy, and at most half of the memory budget. One batch is always in flight.
        pin_memory: put batches into page-locked memory, for copies to a CUDA device.
        device: copy batches to this device, such as ``"cuda"``, and yield them there. On CUDA, they
            lie in page-locked memory, and up to two batches that have been read are copied ahead,
            on a stream of their own, while the trainer uses the one before; ``"cuda"`` is torch's
            current device when an epoch begins. Tensors are moved at any depth of dicts, lists and
            tuples, and so is what has a method ``to``. Without CUDA, ``"cuda"`` warns and has no
            effect.
        seed_generators: with ``transform_threads=0``, seed the global generators for each sample.
            This takes about 30 µs a sample.
        on_error: ``"raise"``: a sample that cannot be read or transformed is an error. ``"skip"``:
            it is left out; see **Samples with errors**. A function: it is called with the error, in
            the thread that asks for batches and in their order, and the sample is left out unless
            the function raises. The error has the sample's ``url``, its ``index`` in the dataset
            and, in a shard, the ``member`` or key; those attributes that its class has itself stay.
        max_skipped: how many samples each rank may leave out in an epoch; one more is a
            `CorruptDataError` that names the first ones. Default: 1 % of the epoch's samples, and
            at least 10.
        fill: ``"repeat"``: batches keep their sizes, since a sample of the batch is repeated for
            each one that is left out. A batch given to `collate_fn` may hold one object twice.
        rank: which of `world_size` trainer processes this is. Default for both: the values of
            torch.distributed, if it is initialised when an epoch begins; otherwise one process.
        world_size: see `rank`.

    Raises:
        InvalidArgumentError: an argument cannot work.
        TypeError: there is no such argument; the message names what `Loader` has instead.
    """

    @overload
    def __init__(
        self: Loader[Any],
        dataset: Dataset[Never],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[torch.Tensor],
        dataset: Dataset[torch.Tensor | float | numpy.generic | numpy.ndarray[Any, Any]],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[str]],
        dataset: Dataset[str],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[bytes]],
        dataset: Dataset[bytes],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Any],
        dataset: Dataset[NamedItem],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[Any]],
        dataset: Dataset[tuple[Never, Any]],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[torch.Tensor]],
        dataset: Dataset[tuple[torch.Tensor | float, ...]],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[Any]],
        dataset: Dataset[tuple[Any, ...]],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[dict[str, Any]],
        dataset: Dataset[Fields],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[dict[str, Stacked]],
        dataset: Dataset[dict[str, Stacked]],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[dict[str, Any]],
        dataset: Dataset[dict[str, Any]],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[Any]],
        dataset: Dataset[list[Any]],
        batch_size: int,
        **keywords: Unpack[CollatedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Made],
        dataset: Dataset[Item],
        batch_size: int,
        *,
        max_batch_bytes: int | None = None,
        collate_fn: Callable[[list[Item]], Made],
        **keywords: Unpack[LoaderKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Made],
        dataset: Dataset[Item],
        *,
        max_batch_bytes: int,
        collate_fn: Callable[[list[Item]], Made],
        **keywords: Unpack[LoaderKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Any],
        dataset: Dataset[Any],
        *,
        max_batch_bytes: int,
        collate_fn: None = None,
        **keywords: Unpack[LoaderKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Made],
        dataset: Dataset[Item],
        *,
        batch_sampler: Iterable[Iterable[int]],
        collate_fn: Callable[[list[Item]], Made],
        **keywords: Unpack[LoaderKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Any],
        dataset: Dataset[Any],
        *,
        batch_sampler: Iterable[Iterable[int]],
        collate_fn: None = None,
        **keywords: Unpack[LoaderKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Any],
        dataset: Dataset[Any],
        batch_size: int | None,
        *,
        max_batch_bytes: int | None = None,
        batch_sampler: Iterable[Iterable[int]] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **keywords: Unpack[LoaderKeywords],
    ) -> None: ...
    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = None,
        *more: Any,
        max_batch_bytes: int | None = None,
        shuffle: Shuffle = False,
        block_size: int | None = None,
        shuffle_window: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Iterable[int]] | None = None,
        max_wait_s: float | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        transform_threads: int | None = None,
        prefetch_bytes: int | None = None,
        pin_memory: bool = False,
        device: torch.device | str | int | None = None,
        seed_generators: bool = True,
        on_error: OnError = "raise",
        max_skipped: int | None = None,
        fill: Literal["repeat"] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **unknown: Any,
    ) -> None:
        refuse_keywords("Loader", unknown, _INSTEAD, positional=len(more), of=Loader)
        source = source_of(dataset)
        function("collate_fn", collate_fn)
        if prefetch_bytes is not None:
            prefetch_bytes = require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        skipping = Skipping.of(on_error, max_skipped)
        require(fill in (None, "repeat"), f"fill is {fill!r}; it must be 'repeat' or None")
        require(
            fill is None or skipping.skips,
            "fill is given, and nothing is skipped: give on_error, too ('skip', or a function)",
        )
        if transform_threads is None:
            transform_threads = min(_MOST_DEFAULT_THREADS, len(os.sched_getaffinity(0)))
        self._dataset = dataset
        order = ordered(
            source,
            mixture=dataset if isinstance(dataset, Mixture) else None,
            batch_size=batch_size,
            max_batch_bytes=max_batch_bytes,
            shuffle=shuffle,
            block_size=block_size,
            shuffle_window=shuffle_window,
            seed=seed,
            drop_last=drop_last,
            sampler=sampler,
            batch_sampler=batch_sampler,
            rank=rank,
            world_size=world_size,
        )
        self._batch_size = batch_size
        self._max_batch_bytes = max_batch_bytes
        self._batch_sampler = batch_sampler
        self._batching = order.batching
        self._ranks = order.ranks
        self._place = order.place
        require(
            max_wait_s is None or source.units is None,
            "max_wait_s is about samples that are read one by one, and the dataset is read in "
            "units of many",
        )
        require(
            fill is None or source.is_counted,
            f"fill repeats a neighbour of a sample, and the samples of {dataset!r} were not "
            "counted: give an index of the members as its source",
        )
        self._max_wait_s = _max_wait_s(max_wait_s, order)
        self._transform_threads = count("transform_threads", transform_threads, minimum=0)
        self._prefetch_bytes = prefetch_bytes
        self._device = choose_device(device)
        to_cuda = self._device is not None and self._device.type == "cuda"
        self._recipe = Recipe(
            source,
            order.seed,
            collate_fn,
            choose_pinning(flag("pin_memory", pin_memory) or to_cuda),
            flag("seed_generators", seed_generators),
            WorkTimes(),
            skipping,
            fill is not None,
        )
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Know nothing yet of iterators."""
        self._lengths: set[int] = set()  # those told, if they differ from epoch to epoch
        self._taken = 0  # batches yielded by the iterator in use
        # How many batches there are, if they have to be made to be counted, by `_key_of_count`.
        self._counts: dict[tuple[int, int, int, int], int] = {}
        self._has_warned = self._has_told = False
        self._iterator: object | None = None  # identifies the iterator in use
        self._pipeline: Batches | None = None  # of that iterator, once it was asked for a batch
        self._is_draining = False  # whether that iterator must begin no more reads
        self._batches = self._samples = self._skipped = self._size_bytes = 0
        self._wait_s = self._first_batch_s = self._trainer_s = 0.0
        self._watch = Watch()

    def __len__(self) -> int:
        """Return how many batches a whole epoch has on this rank; all ranks have as many.

        With `max_batch_bytes` and `shuffle`, each epoch has its own number of batches, and this is
        that of the current one. A loop that asks only once leaves later epochs too early; the
        loader warns of that. With a `sampler` or `batch_sampler` that does not know its length,
        this is a `TypeError`.
        """
        length = self._step_count(self._place.at(self.epoch))
        if self._batching.is_counted_by_making and self._place.shuffle:
            self._lengths.add(length)
        return length

    @property
    def remaining_batches(self) -> int:
        """The number of batches left in the iterator in use, else the number in the next one.

        Examples:
            >>> loader.load_state_dict(state)
            >>> bar = tqdm(loader, total=loader.remaining_batches)
        """
        place = self._place
        if not place.begun or self._iterator is not None:
            left = self._step_count(place)
            if left > 0 or place.begun or place.is_named:
                return left
        return self._step_count(place.at(place.epoch + 1))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: the same place, and neither an iterator in use nor statistics."""
        place = copy.copy(self._place)
        if place.begun:
            place = place.at_state(self.state_dict())
        return {**self.__dict__, "_place": place, "_iterator": None, "_pipeline": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._recipe = replace(self._recipe, work=WorkTimes())
        self._begin_anew()

    def __getitem__(self, index: Any) -> NoReturn:
        """Refuse: a loader has batches in one order, and is no dataset."""
        raise TypeError(
            "a Loader makes batches, and has no numbered items: loop over it, or give its dataset "
            "to torch's DataLoader"
        )

    def __repr__(self) -> str:
        rank, world_size = self._ranks.now()
        limits = {
            "batch_size": self._batch_size,
            "max_batch_bytes": self._max_batch_bytes,
            "batch_sampler": self._batch_sampler,
        }
        given = ", ".join(f"{name}={value}" for name, value in limits.items() if value is not None)
        return f"{class_name(self)}({self._dataset!r}, {given}, rank {rank} of {world_size})"

    @property
    def dataset(self) -> Dataset[Any]:
        """The dataset that the loader reads."""
        return self._dataset

    @property
    def batch_size(self) -> int | None:
        """Samples of this rank in a full batch, or the most of them; None: any number."""
        return self._batch_size

    @property
    def max_batch_bytes(self) -> int | None:
        """The most bytes of a batch with more than one sample; None: any number."""
        return self._max_batch_bytes

    @property
    def sampler(self) -> EpochSetter:
        """An object with `set_epoch`, for programs that call ``loader.sampler.set_epoch(epoch)``.

        Lightning does, and so names the epoch when it resumes.
        """
        return EpochSetter(self)

    @property
    def batch_sampler(self) -> None:
        """None. Programs that find a `sampler` ask for this attribute, too."""
        return None

    def _steps(self, place: Place) -> Steps:
        """Return how the epoch of `place` is cut into batches."""
        return self._batching.steps(self._laid(place), *self._ranks.now())

    def _laid(self, place: Place) -> Place:
        """Return the place with its epoch laid out for the ranks that there are."""
        return place.laid(Lanes(self._ranks.now()[1], self._batch_size or 1))

    def _has_step(self, place: Place) -> bool:
        return self._steps(place).has_step(place.spot)

    def _step_count(self, place: Place) -> int:
        """Return how many batches each rank has from `place` on."""
        steps = self._steps(place)
        if not self._batching.is_counted_by_making:
            return steps.step_count(place.spot)
        key = _key_of_count(steps.world_size, place, place.spot)
        if key not in self._counts:
            if len(self._counts) >= _KEPT_COUNTS:
                self._counts.clear()
            self._counts[key] = steps.step_count(place.spot)
        return self._counts[key]

    def _step(self, place: Place, after: Spot) -> None:
        """Move `place` by one step, and what is known of the number of steps with it."""
        if self._max_wait_s is not None:
            self._counts.clear()  # batches that are given in parts are more than were counted
        if self._counts:
            world_size = self._ranks.now()[1]
            key = _key_of_count(world_size, place, place.spot)
            left = self._counts.get(key)
            if left is not None:
                if not place.is_begin:
                    del self._counts[key]
                self._counts[_key_of_count(world_size, place, after)] = left - 1
        place.spot = after

    @property
    def epoch(self) -> int:
        """The current epoch; after its end, the next one.

        Examples:
            >>> while loader.epoch < 90:
            ...     for batch in loader:
            ...         train(batch)
        """
        return self._ahead().epoch

    @property
    def stats(self) -> LoaderStats:
        """What was yielded, where the time went, and what that took of the network."""
        work = self._recipe.work
        seen = self._watch.evidence(
            duration_s=self._wait_s + self._trainer_s,
            wait_s=self._wait_s,
            bytes_wait_s=min(work.bytes_wait_ns / 1e9, self._wait_s),
            held_wait_s=work.held_wait_ns / 1e9,
            transform_cpu_s=work.cpu_ns / 1e9,
        )
        before, now = self._watch.before, metrics()
        known = asdict(seen)
        del known["duration_s"]
        return LoaderStats(
            batches=self._batches,
            samples=self._samples,
            skipped=self._skipped,
            size_bytes=self._size_bytes,
            first_batch_s=self._first_batch_s,
            trainer_s=self._trainer_s,
            transform_s=work.spent_ns["transform"] / 1e9,
            collate_s=work.spent_ns["collate"] / 1e9,
            retries=now.retries_total - before.retries_total,
            read_bytes=now.bytes_read_total
            - before.bytes_read_total
            + now.hedge_bytes_dropped_total
            - before.hedge_bytes_dropped_total,
            checksums_verified=now.checksums_verified_total - before.checksums_verified_total,
            queue_s=now.queue_s_total - before.queue_s_total,
            **known,
        )

    # ---- the place

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterator begin this epoch.

        If `load_state_dict` or `drain` has left the loader in the middle or at the end of this very
        epoch, the next iterator yields the rest of it. A loop over epochs may therefore call this
        each time.

        Examples:
            >>> for epoch in range(state["epoch"], 90):
            ...     loader.set_epoch(epoch)

        Raises:
            InvalidArgumentError: `epoch` is not an integer from 0 to 2^63 - 1.
        """
        place = self._place
        if place.begun:
            # All batches may have been taken, and nobody asked whether there are more.
            place = self._after_end(place) or place
        place = place.named(seed_or_epoch("epoch", epoch))
        self._leave()
        self._place = place

    def _after_end(self, place: Place) -> Place | None:
        """Return the beginning of the next epoch if too few objects are left for a step here.

        More ranks than there were may have left a rest that is none for them.
        """
        if not place.is_begin and not self._has_step(place):
            return place.following()
        return None

    def _ahead(self) -> Place:
        """Return the place at which the current or the next iterator is."""
        place = self._place
        if place.begun or place.is_named:
            return place
        return self._after_end(place) or place

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the batch that was yielded last, as a few plain values.

        It is the same on all ranks that have taken the same number of steps, except for how many
        samples each has ``skipped`` (`on_error`), and of a `ShardStream` without an index, where
        each rank has its own. After the last batch of an epoch, it is the beginning of the next
        epoch.

        Examples:
            >>> checkpoint = {"model": model.state_dict(), "loader": loader.state_dict()}
        """
        place = self._place
        return (self._after_end(place) or place).state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | list[Any] | tuple[Any, ...]) -> None:
        """Go to a place that `state_dict` returned; the next iterator continues from there.

        Args:
            state: what `state_dict` returned on any rank; of shards without an index, on this one.
                Or a list of what it returned on all ranks after the same batch: with it, shards
                without an index go on with any number of ranks, too.

        Examples:
            >>> checkpoint = {"loader": loader.state_dict()}
            >>> loader.load_state_dict(checkpoint["loader"])

        Raises:
            InvalidArgumentError: the state is of other data, of another order, or of another
                version of headrace; or the states are of different moments.
        """
        # If this raises, nothing has changed.
        if isinstance(state, list | tuple):
            place = self._place.at_states(state)
        else:
            place = self._place.at_state(state)
        self._leave()
        self._place = place

    def drain(self) -> None:
        """Begin no more reads: the iterator yields what was read ahead, then ends.

        Use it in a job that knows that it will stop: nothing is read in vain, `state_dict` says
        where the rest begins, and the next iterator continues there. Without an iterator in use,
        this does nothing; an iterator that has not been asked for a batch yet then has none.

        This works with one rank only, because several ranks may have read ahead different numbers
        of batches. Let all ranks leave their loops after the same batch and call `state_dict` then.

        Examples:
            >>> before = signal.signal(signal.SIGTERM, lambda *_: loader.drain())

        Raises:
            InvalidArgumentError: there are several ranks.
        """
        _, world_size = self._ranks.now()
        require(
            world_size == 1,
            f"drain() is for one rank, and there are {world_size}, of which each may "
            "have read ahead another number of batches; stop all ranks after the same batch, and "
            "use state_dict()",
        )
        self._is_draining = self._iterator is not None
        if self._pipeline is not None:
            self._pipeline.drain()

    # ---- the batches

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch, or what is left of it after `load_state_dict` or `drain`.

        The iterator looks at rank, world size and place when it is asked for its first batch, so
        `set_epoch` has an effect until then.
        """
        self._end_iterator()
        place = self._place
        if place.begun:
            # All batches may have been taken, and nobody asked whether there are more.
            self._place = self._after_end(place) or place.at(place.epoch + 1)
        iterator = self._iterator = object()
        return self._iterate(iterator)

    def _begin(self) -> tuple[Place, Batches]:
        """Begin to read from the current place."""
        rank, world_size = self._ranks.now()
        if self._ranks.are_overlooked() and not self._has_warned:
            self._has_warned = True
            warn_of_overlooked_ranks("loader", stacklevel=4)
        _require_one_rank(self._max_wait_s, world_size)
        place = self._ahead()
        if place is not self._place:
            rest = self._place.left
            if rank == 0 and not self._batching.drop_last and rest > 0:
                _logger.warning(
                    "%r leaves out the last %d of the %d objects of epoch %d, too few for a step "
                    "of all %d ranks",
                    self, rest, self._place.count, self._place.epoch, world_size,
                )  # fmt: skip
        place = self._place = self._laid(place)
        place.begun = True
        try:
            requests = requests_of(place, self._steps(place))
            rules = self._transform_threads, self._prefetch_bytes, partial(_near, place)
            device = None if self._device is None else opened(self._device)
            pipeline: Batches
            if self._max_wait_s is None:
                pipeline = Pipeline(self._recipe, requests, *rules)
            else:
                pipeline = PartialPipeline(self._recipe, requests, *rules, self._max_wait_s)
            if device is not None:
                pipeline = CopiedAhead(pipeline, device)
            self._pipeline = pipeline
        except BaseException:
            place.begun = False
            raise
        if self._is_draining:
            pipeline.drain()
        return place, pipeline

    def _iterate(self, iterator: object) -> Iterator[Batch]:
        pipeline = place = skips = None
        is_whole = False
        try:
            while True:
                began_ns = time.perf_counter_ns()
                self._check(iterator)
                is_first = pipeline is None
                if pipeline is None or place is None or skips is None:
                    # Only now: an iterator that nobody uses has no threads.
                    place, pipeline = self._begin()
                    is_whole = place.is_begin
                    skips = self._skips_at(place)
                work = self._recipe.work
                waits_ns = work.bytes_wait_ns, work.held_wait_ns
                try:
                    found = pipeline.next()
                except Exception:
                    self._check(iterator)
                    raise
                self._check(iterator)  # another thread or a signal handler may have ended it
                ended_ns = time.perf_counter_ns()
                wait_s = (ended_ns - began_ns) / 1e9
                self._wait_s += wait_s
                tracing.note(
                    "wait for a batch",
                    began_ns,
                    ended_ns,
                    batch=self._batches,
                    bytes_wait_s=(work.bytes_wait_ns - waits_ns[0]) / 1e9,
                    held_wait_s=(work.held_wait_ns - waits_ns[1]) / 1e9,
                )
                if found is None:
                    break
                if is_first:
                    self._first_batch_s = wait_s
                request, size_bytes, value, skipped = found
                del found
                if skipped:
                    skips.seen = place.position
                    self._skipped += self._skip(skips, skipped, value)
                    self._check(iterator)  # the user's function may have sent the loader elsewhere
                    place.skipped = skips.count
                    self._samples -= len(skipped)
                self._samples += len(request.indices)
                self._size_bytes += size_bytes
                self._step(place, request.after)
                del skipped
                if value is NOTHING:
                    continue
                self._batches += 1
                self._taken += 1
                handed_over = [value]
                del value  # so that only the trainer holds the batch
                began_ns = time.perf_counter_ns()
                yield handed_over.pop()
                ended_ns = time.perf_counter_ns()
                self._trainer_s += (ended_ns - began_ns) / 1e9
                tracing.note("trainer", began_ns, ended_ns, batch=self._batches - 1)
            place.begun = False  # the next iterator begins here
            if not self._is_draining or not self._has_step(place):
                self._tell_left_out(place)
                skips.tell_total()
                place.end_epoch()
                if self._taken == 0 and is_whole and skips.count > 0:
                    raise skips.nothing_left(skips.count)
        finally:
            if pipeline is not None:
                pipeline.close()
                if iterator is self._iterator:
                    self._iterator = self._pipeline = None

    def _skips_at(self, place: Place) -> Skips:
        """Return what this rank has left out of the epoch of a place, to go on counting."""
        is_counted = place.drawn is None or place.drawn.is_counted
        samples = place.count if is_counted else place.count_of_objects
        return Skips(self._recipe.skipping, self, place.epoch, samples, place.skipped)

    def _skip(self, skips: Skips, skipped: Sequence[Skipped], value: Any) -> int:
        """Leave out samples of the next batch; `value` is what became of the others."""
        if value is NOTHING and (self._recipe.fills or self._ranks.now()[1] > 1):
            advice = (
                ", and no sample near them is good"
                if self._recipe.fills
                else ", and without that batch this rank would take a step less than the others. "
                "fill='repeat' repeats a good sample instead"
            )
            raise skips.nothing_left(len(skipped), advice, skipped) from skipped[0].error
        return skips.add(skipped)

    def _tell_left_out(self, place: Place) -> None:
        """Say once if the epoch that ends at `place` has left out objects of its own accord."""
        rank, world_size = self._ranks.now()
        left_out = place.left
        told = self._has_told or self._batching.drop_last
        if left_out > 0 and rank == 0 and not told:
            self._has_told = True
            _logger.warning(
                "%r leaves out the last %d of the %d objects of each epoch's order, so that all %d "
                "ranks do the same number of steps",
                self, left_out, place.count, world_size,
            )  # fmt: skip

    def _warn_of_a_cut(self, place: Place) -> None:
        """Warn if the iterator was left after as many batches as another epoch has."""
        if not place.begun or not self._has_step(place):
            return
        self._lengths.clear()  # until it is asked again
        length = self._step_count(place.at(place.epoch))
        warnings.warn(
            f"{self!r} was left after {self._taken} of {length} batches of epoch "
            f"{place.epoch}, so {place.left} objects were not "
            "used: len() was another epoch's. Where batches are bounded by what they cost and "
            "shuffled, ask for it in each epoch, or let the iterator end the loop (Lightning does "
            "so with Trainer(reload_dataloaders_every_n_epochs=1))",
            UserWarning,
            stacklevel=4,
        )

    def _check(self, iterator: object) -> None:
        if iterator is not self._iterator:
            raise CancelledError(
                "this iterator was ended: another one of the same loader was begun, or the loader "
                "was sent to another place"
            )

    def _leave(self) -> None:
        """End the iterator in use, unless it has not begun: then it moves to the new place."""
        if self._place.begun:
            self._end_iterator()

    def _end_iterator(self) -> None:
        if self._iterator is not None and self._taken in self._lengths:
            self._warn_of_a_cut(self._place)
        self._taken = 0
        self._iterator, self._is_draining = None, False
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()


class EpochSetter:
    """Takes the place of a sampler in programs that set its epoch; see `Loader.sampler`."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """Let the loader's next iterator begin this epoch; see `Loader.set_epoch`."""
        self._loader.set_epoch(epoch)


def _max_wait_s(value: float | None, order: Ordered) -> float | None:
    if value is None:
        return None
    require(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf,
        f"max_wait_s is {value!r}; it must be a number of seconds, at least 0",
    )
    require(
        not isinstance(order.batching, ByThem),
        "max_wait_s needs an order of this package: shuffle and seed, a WeightedSampler or a "
        "CostBatchSampler. The state of another sampler cannot say which samples are late",
    )
    _require_one_rank(value, order.ranks.now()[1])
    return float(value)


def _require_one_rank(max_wait_s: float | None, world_size: int) -> None:
    require(
        max_wait_s is None or world_size == 1,
        f"max_wait_s is given, and there are {world_size} ranks: each would wait for other samples "
        "and take another number of steps",
    )


def _near(place: Place, request: Request) -> Iterator[tuple[int, int]]:
    """Yield numbers and positions of samples near a batch, by turns before and behind it.

    If nobody knows the order, they are neighbours by number.
    """
    is_known = place.drawn is None or place.drawn.is_counted
    if is_known:
        order, begin, end = place.order(), request.positions[0], request.positions[-1] + 1
        count = place.count
    else:
        order, begin, count = None, int(request.indices[0]), place.count_of_objects
        end = begin + 1
    for distance in range(count):
        for at in (begin - 1 - distance, end + distance):
            if 0 <= at < count:
                yield (at, request.positions[0]) if order is None else (order[at], at)


def _key_of_count(world_size: int, place: Place, spot: Spot) -> tuple[int, int, int, int]:
    # Several spots of an epoch may be at one position, each with fewer waiting samples.
    return world_size, place.epoch, spot.position, len(spot.waiting)


def requests_of(place: Place, steps: Steps) -> Iterator[Request]:
    """Yield the batches of one rank from a place on."""
    epoch, order = place.epoch, None
    for positions, after, indices in steps.slices(place.spot):
        if indices is None:
            order = order or place.order()
            if isinstance(positions, range):
                indices = order.indices(positions.start, positions.stop)
            else:
                indices = order.pick(positions)
        yield Request(indices, epoch, positions, after)
