"""``aistore.pytorch.base_iter_dataset``: the base of datasets that yield objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch.utils.data as torch_utils

from headrace._process.freed_memory import keep_freed_memory
from headrace.compat.aistore._objects import ObjectList, ObjectsIter
from headrace.compat.aistore._sources import (
    as_source_list,
    foreign_objects,
    is_listed_by_engine,
    list_selections,
    object_list,
    selections,
    warn_of_folders,
    warn_of_prefixes,
)

__all__ = ["AISBaseIterDataset"]


class AISBaseIterDataset(ABC, torch_utils.IterableDataset[Any]):
    """The base of datasets that yield objects. A subclass has ``__iter__``.

    Each pass lists the objects anew: source after source, prefix after prefix, then by name. With
    two or more workers, worker *i* of *n* takes the objects *i*, *i + n* and so on. Every rank
    reads all objects.

    Args:
        ais_source_list: as for `AISBaseMapDataset`.
        prefix_map: the same.
        partition_sources_by_worker: with two or more workers, worker *i* of *n* lists and reads the
            sources *i*, *i + n* and so on, whole.

    Raises:
        ValueError: there is no source.

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
    ) -> None:
        keep_freed_memory()  # here and in forked workers: samples come out of their pipes, too
        owner = type(self).__name__
        self._ais_source_list = as_source_list(ais_source_list, owner)
        self._prefix_map = prefix_map or {}
        warn_of_prefixes(self._ais_source_list, self._prefix_map, owner)
        self._obj_iterator: Any = None
        self._partition_sources_by_worker = partition_sources_by_worker
        self._warned = False  # of a prefix that is a folder's name, in this process

    def _create_objects_iter(self, sources: list[Any] | None = None) -> Iterable[Any]:
        """Return the objects of `sources`; default: of all sources."""
        chosen = selections(
            self._ais_source_list if sources is None else sources, self._prefix_map,
            self._ais_source_list,
        )  # fmt: skip
        if not all(is_listed_by_engine(each.source) for each in chosen):
            return foreign_objects(chosen)

        def listed() -> ObjectList:
            found = list_selections(chosen)
            self._warned = self._warned or warn_of_folders(chosen, found, type(self).__name__)
            return object_list(chosen, found)

        return ObjectsIter(listed)

    def _get_worker_iter_info(self) -> tuple[Iterator[Any], str]:
        """Return the objects that this worker reads, and its label."""
        info = torch_utils.get_worker_info()
        if info is None or info.num_workers == 1:
            return self._obj_iterator, ""
        label = f" (Worker {info.id})"
        if self._partition_sources_by_worker:
            sources = self._ais_source_list[info.id :: info.num_workers]
            return iter(self._create_objects_iter(sources)), label
        if isinstance(self._obj_iterator, ObjectsIter):
            return self._obj_iterator.share(info.id, info.num_workers), label
        return islice(self._obj_iterator, info.id, None, info.num_workers), label

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Begin a pass."""

    def _reset_iterator(self) -> None:
        """Begin a pass: `_obj_iterator` is at the first object."""
        self._obj_iterator = self._create_objects_iter()

    def __len__(self) -> int:
        """Return how many objects a pass has; they are listed for that."""
        objects = self._create_objects_iter()
        if isinstance(objects, ObjectsIter):
            return len(objects.listing)
        return sum(1 for _ in objects)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_obj_iterator": None}
