"""``aistore.pytorch.base_iter_dataset``: the base of datasets that yield objects."""

from __future__ import annotations

import logging
import multiprocessing
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from itertools import islice
from typing import Any

import torch.utils.data as torch_utils

from headrace import InvalidArgumentError
from headrace._base.contexts import context
from headrace._base.options import require
from headrace._process.freed_memory import keep_freed_memory
from headrace.compat.aistore._objects import ObjectList
from headrace.compat.aistore._passes import ObjectsIter, Uneven
from headrace.compat.aistore._shared_listing import SharedListing
from headrace.compat.aistore._sources import (
    Found,
    as_source_list,
    foreign_objects,
    is_listed_by_engine,
    list_expected,
    object_list,
    selections,
    warn_of_folders,
    warn_of_prefixes,
)
from headrace.torch._arguments import Ranks, choice, count, flag, seed_or_epoch
from headrace.torch._epochs import Epochs
from headrace.torch._place import Place
from headrace.torch._shared_place import Reader, SharedPlace

__all__ = ["AISBaseIterDataset"]

_logger = logging.getLogger("headrace")

# A message that is given once.
_OVERLOOKED = 1

# The dataset whose objects are being counted, which is no pass over them.
_counted: ContextVar[Any] = ContextVar("_counted", default=None)


class AISBaseIterDataset(Epochs, ABC, torch_utils.IterableDataset[Any]):
    """The base of datasets that yield objects. A subclass has ``__iter__``.

    Each pass lists the objects anew: source after source, prefix after prefix, then by name. All
    workers of a DataLoader share one listing. With two or more workers, worker *i* of *n* takes the
    objects *i*, *i + n* and so on.

    By default every rank reads all objects, in the order of the listing, as with the original. The
    keyword-only arguments change that.

    Args:
        ais_source_list: as for `AISBaseMapDataset`.
        prefix_map: the same.
        partition_sources_by_worker: with two or more workers, worker *i* of *n* lists and reads the
            sources *i*, *i + n* and so on, whole.
        split_by_rank: let each rank read a part of the objects. Rank and world size are those of
            torch.distributed, unless they are given.
        rank: which of `world_size` trainer processes this is; implies `split_by_rank`.
        world_size: see `rank`.
        uneven: how to treat a remainder of fewer objects than ranks: ``"keep"`` gives it to the
            first ranks, ``"drop"`` leaves it out, ``"pad"`` repeats the first objects of the pass.
            With the last two, all ranks have the same number of samples.
        shuffle: whether each epoch has an order of its own; see `set_epoch`.
        seed: of that order.
        relist: whether each pass lists the objects anew. If not, the first listing stays.
        expected_count: how many objects there must be.

    Raises:
        ValueError: there is no source.
        InvalidArgumentError: an argument cannot work.

    Examples:
        >>> class Names(AISBaseIterDataset):
        ...     def __iter__(self):
        ...         self._reset_iterator()
        ...         objects, worker = self._get_worker_iter_info()
        ...         for value in objects:
        ...             yield value.name
        >>> list(Names("gs://bucket/train"))
        ['cat/001.jpg', 'cat/002.jpg', 'dog/001.jpg']
    """

    def __init__(
        self,
        ais_source_list: Any,
        prefix_map: dict[Any, Any] = {},  # noqa: B006 - the default that users know; only read
        partition_sources_by_worker: bool = False,
        *,
        split_by_rank: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Uneven = "keep",
        shuffle: bool = False,
        seed: int = 0,
        relist: bool = True,
        expected_count: int | None = None,
    ) -> None:
        keep_freed_memory()  # here and in forked workers: samples come out of their pipes, too
        owner = type(self).__name__
        self._ais_source_list = as_source_list(ais_source_list, owner)
        self._prefix_map = prefix_map or {}
        warn_of_prefixes(self._ais_source_list, self._prefix_map, owner)
        self._obj_iterator: Any = None
        self._partition_sources_by_worker = partition_sources_by_worker
        self._ranks = Ranks(rank, world_size)
        self._splits_ranks = flag("split_by_rank", split_by_rank) or rank is not None
        self._uneven: Any = choice("uneven", uneven, ("keep", "drop", "pad"))
        self._shuffle = flag("shuffle", shuffle)
        self._seed = seed_or_epoch("seed", seed)
        self._relists = flag("relist", relist)
        if expected_count is not None:
            count("expected_count", expected_count, minimum=0)
        self._expected_count = expected_count
        self._shared_listing = SharedListing()
        self._listing: list[Found] | None = None  # the one that stays
        # The process in which len() has listed, and what it has found.
        self._just_listed: tuple[int, list[Found]] | None = None
        self._passes = 0  # of this process
        self._warned = False  # of a prefix that is a folder's name
        self._shared = SharedPlace()
        self._state: dict[str, Any] | None = None  # what a loaded state is of
        self._resume: Reader | None = None  # the state loaded in this very worker
        self._latest: ObjectsIter | None = None

    # ---- hooks of subclasses

    def _create_objects_iter(self, sources: list[Any] | None = None) -> Iterable[Any]:
        """Return the objects of `sources`; default: of all sources."""
        chosen = selections(
            self._ais_source_list if sources is None else sources, self._prefix_map,
            self._ais_source_list,
        )  # fmt: skip
        known = all(is_listed_by_engine(each.source) for each in chosen)
        plain = self._expected_count is None and self._relists and not self._has_order()
        if not known and plain and self._state is None:
            return foreign_objects(chosen)
        rank, world_size = self._rank()
        is_pass = _counted.get() is not self
        reader = self._first_reader(rank, world_size)
        owner = type(self).__name__

        def make(expected_count: int | None = self._expected_count) -> list[Found]:
            found = list_expected(chosen, expected_count, owner)
            # Once in this process.
            self._warned = self._warned or warn_of_folders(chosen, found, owner)
            return found

        def listed() -> ObjectList:
            if sources is not None:
                return object_list(chosen, make(None))

            if is_pass:
                return object_list(chosen, self._list_pass(make, is_shared=known))
            return object_list(chosen, self._list_to_count(make))

        return ObjectsIter(
            listed, reader, begin=self._begin_pass if is_pass else None, seed=self._seed,
            shuffle=self._shuffle, uneven=self._uneven, world_size=world_size,
        )  # fmt: skip

    def _get_worker_iter_info(self) -> tuple[Iterator[Any], str]:
        """Return the objects that this worker reads, and its label."""
        info = torch_utils.get_worker_info()
        if info is None or info.num_workers == 1:
            return self._obj_iterator, ""
        label = f" (Worker {info.id})"
        if self._partition_sources_by_worker:
            sources = self._ais_source_list[info.id :: info.num_workers]
            return iter(self._create_objects_iter(sources)), label
        if not isinstance(self._obj_iterator, ObjectsIter):
            return islice(self._obj_iterator, info.id, None, info.num_workers), label
        rank, world_size = self._rank()
        lanes = info.num_workers * world_size
        reader = self._first_reader(info.id * world_size + rank, lanes)
        return self._obj_iterator.of(reader), label

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Begin a pass."""

    def _reset_iterator(self) -> None:
        """Begin a pass: `_obj_iterator` is at the first object."""
        if _counted.get() is not self:
            self._passes += 1
        self._obj_iterator = self._create_objects_iter()

    def __len__(self) -> int:
        """Return how many objects a pass has; they are listed for that."""
        with self._objects_to_count() as objects:
            if isinstance(objects, ObjectsIter):
                return objects.remaining()
            return sum(1 for _ in objects)

    @context
    def _objects_to_count(self) -> Iterator[Any]:
        """Give the objects of a whole pass, without beginning one."""
        of_a_pass = self._obj_iterator
        token = _counted.set(self)
        try:
            self._reset_iterator()
            yield self._obj_iterator
        finally:
            _counted.reset(token)
            self._obj_iterator = of_a_pass

    # ---- listing

    def _list_pass(self, make: Callable[[], list[Found]], *, is_shared: bool) -> list[Found]:
        """Return the listing of this pass, which the workers of a DataLoader share."""
        if self._listing is not None:
            return self._listing
        # What len() has listed serves one pass, as in list(dataset): of this very process, because
        # a worker is given a copy of the dataset whenever it is started.
        just_listed, self._just_listed = self._just_listed, None
        if just_listed is not None and just_listed[0] == os.getpid():
            return just_listed[1]
        info = torch_utils.get_worker_info()
        if info is None or not is_shared:
            listing = make()
        else:
            # The workers of one iterator of a DataLoader have one seed to begin with, and are
            # started one after the other. Either alone may be the same for two iterators.
            started = multiprocessing.current_process()._identity[-1:] or (0,)
            key = (info.seed - info.id, started[0] - info.id, self._passes)
            listing = self._shared_listing.get(key if self._relists else (), make)
        if not self._relists:
            self._listing = listing
        return listing

    def _list_to_count(self, make: Callable[[], list[Found]]) -> list[Found]:
        if self._listing is not None:
            return self._listing
        listing = make()
        if not self._relists:
            self._listing = listing
        elif torch_utils.get_worker_info() is None:
            self._just_listed = os.getpid(), listing
        return listing

    # ---- order, ranks and state

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the sample that the latest pass has yielded last.

        With workers, each has a place of its own: torchdata's StatefulDataLoader keeps them.

        Raises:
            InvalidArgumentError: the pass is over objects that a subclass provides.

        Examples:
            >>> state = dataset.state_dict()
        """
        latest = self._latest
        if latest is None:
            self._reset_iterator()
            objects, _ = self._get_worker_iter_info()
            require(
                isinstance(objects, ObjectsIter),
                "the objects come from an iterator that has no places to continue from",
            )
            assert isinstance(objects, ObjectsIter)
            latest = objects
        reader = latest.reader
        return {
            **Place(latest.listing, self._seed, self._shuffle).identity(),
            "epoch": reader.epoch,
            "position": reader.position,
            "lane": reader.lane,
            "lanes": reader.lanes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue from a state that `state_dict` returned.

        The objects must be the same, which the next pass checks.

        Args:
            state: the state, of a dataset with the same seed, ranks and workers.

        Raises:
            InvalidArgumentError: this is not a state.

        Examples:
            >>> dataset.load_state_dict(state)
        """
        numbers = ("epoch", "position", "lane", "lanes")
        names = {"version", "count", "fingerprint", "seed", "shuffle"}
        require(
            isinstance(state, Mapping) and {*numbers, *names} <= state.keys(),
            "this is not a state of an AIStore dataset: it must be a mapping with "
            f"{', '.join(sorted({*numbers, *names}))}",
        )
        values = {name: seed_or_epoch(f"the state's {name}", state[name]) for name in numbers}
        reader = Reader(**values)
        require(
            reader.lane < reader.lanes and reader.position % reader.lanes == 0,
            f"the state's lane is {reader.lane} of {reader.lanes}, and its position "
            f"{reader.position}: it is no state that state_dict() returned",
        )
        self._state = dict(state)
        self._latest = None
        info = torch_utils.get_worker_info()
        if info is None:
            self._shared.go_on_with(reader)
        else:
            self._resume = reader
            self._shared.move(reader.epoch)

    def _has_order(self) -> bool:
        return self._shuffle or self._splits_ranks

    def _rank(self) -> tuple[int, int]:
        if self._splits_ranks:
            return self._ranks.now()
        if self._ranks.now()[1] > 1 and self._shared.is_first_to(_OVERLOOKED):
            _logger.warning(
                "%s: every rank reads all objects; split_by_rank=True lets each read a part",
                type(self).__name__,
            )
        return 0, 1

    def _first_reader(self, lane: int, lanes: int) -> Reader:
        resume = self._loaded() if _counted.get() is not self else None
        return replace(resume) if resume is not None else Reader(self.epoch, lane, lanes)

    def _loaded(self) -> Reader | None:
        """Return the place that a loaded state leads the next pass to."""
        return self._resume or self._shared.resume

    def _begin_pass(self, objects: ObjectsIter) -> None:
        """Let this pass be the latest, and use up the loaded state if it continues from one."""
        self._latest = objects
        is_resumed = self._loaded() is not None
        state, self._resume, self._state = self._state, None, None
        self._shared.consume_resume()
        if not is_resumed:
            return
        reader = objects.reader
        lane, lanes = self._lane()
        if (reader.lane, reader.lanes) != (lane, lanes):
            raise InvalidArgumentError(
                f"the state is of reader {reader.lane} of {reader.lanes}, and this is reader "
                f"{lane} of {lanes}: go on with as many ranks and workers as there were"
            )
        if state is not None:
            Place(objects.listing, self._seed, self._shuffle).read(state, ("position",))
            objects.samples = state.get("samples", 0)

    def _lane(self) -> tuple[int, int]:
        rank, world_size = self._rank()
        info = torch_utils.get_worker_info()
        if info is None or info.num_workers == 1 or self._partition_sources_by_worker:
            return rank, world_size
        return info.id * world_size + rank, info.num_workers * world_size

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_obj_iterator": None, "_latest": None, "_just_listed": None}
