"""``aistore.pytorch.base_map_dataset``: the base of datasets of objects by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import Dataset

from headrace._process.freed_memory import keep_freed_memory
from headrace.compat.aistore._objects import ObjectList
from headrace.compat.aistore._sources import (
    as_source_list,
    list_selections,
    object_list,
    selections,
    warn_of_folders,
    warn_of_prefixes,
)

__all__ = ["AISBaseMapDataset"]


class AISBaseMapDataset(ABC, Dataset[Any]):
    """The base of datasets of objects by number. A subclass has ``__getitem__``.

    The objects are listed once, when the dataset is made: source after source, prefix after prefix,
    then by name. `_obj_list` is the list; it takes some 25 bytes an object, and makes objects when
    somebody asks for them. Their ``get_reader().read_all()`` is served by headrace's engine. If a
    DataLoader asks for a batch, its objects are read at the same time, when ``__getitem__`` reads
    the first of them.

    Args:
        ais_source_list: a bucket or object group of AIStore's SDK, an object with the method
            ``list_all_objects_iter``, a URL, a `headrace.Store`, a `headrace.ObjectIndex`; or
            several of these.
        prefix_map: for a source, the beginning of the names to use, or several. A bucket is found
            by another object for the same bucket, too.

    Raises:
        ValueError: there is no source.

    Examples:
        >>> class Lengths(AISBaseMapDataset):
        ...     def __getitem__(self, index):
        ...         return len(self._obj_list[index].get_reader().read_all())
        >>> Lengths("gs://bucket/train")[0]
        52113
    """

    def __init__(
        self,
        ais_source_list: Any,
        prefix_map: dict[Any, Any] = {},  # noqa: B006 - the default that users know; only read
    ) -> None:
        keep_freed_memory()  # here and in forked workers: samples come out of their pipes, too
        owner = type(self).__name__
        self._ais_source_list = as_source_list(ais_source_list, owner)
        self._prefix_map = prefix_map or {}
        warn_of_prefixes(self._ais_source_list, self._prefix_map, owner)
        self._obj_list = self._create_objects_list()

    def _create_objects_list(self) -> Any:
        """Return the objects of the dataset; a subclass may return a list of its own."""
        chosen = selections(self._ais_source_list, self._prefix_map)
        found = list_selections(chosen)
        warn_of_folders(chosen, found, type(self).__name__)
        return object_list(chosen, found)

    def get_obj_list(self) -> Any:
        """Return the list of objects, each with ``name``, ``props_cached`` and ``get_reader``.

        Examples:
            >>> [value.name for value in dataset.get_obj_list()]
            ['cat/001.jpg', 'cat/002.jpg', 'dog/001.jpg']
        """
        return self._obj_list

    def _at(self, index: Any) -> Any:
        try:
            return self._obj_list[index]
        except IndexError:
            raise IndexError(
                f"<{type(self).__name__}> index must be in bounds of dataset"
            ) from None

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """Return one sample."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the samples by number."""
        # Without this method, Python would take any IndexError for the end.
        for index in range(len(self._obj_list)):
            yield self[index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch. Their objects are read at the same time.

        Raises:
            IndexError: an index is out of range.

        Examples:
            >>> samples = dataset.__getitems__([2, 0])
        """
        # A subclass with a `__getitem__` of its own makes samples that `_read_batch` does not know.
        maker = next(kind for kind in type(self).__mro__ if "__getitem__" in vars(kind))
        if "_read_batch" in vars(maker):
            return self._read_batch(indices)
        if not isinstance(self._obj_list, ObjectList):
            return [self[index] for index in indices]
        with self._obj_list.as_batch(indices):
            return [self[index] for index in indices]

    def _read_batch(self, indices: Sequence[int]) -> list[Any]:
        """Return what ``__getitem__`` of the class that defines this gives for each index."""
        raise NotImplementedError
