"""Objects by number."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from headrace import ObjectIndex, Sample, _engine
from headrace._errors import InvalidArgumentError, NotFoundError
from headrace._options import require
from headrace._store import Store
from headrace.torch._arguments import as_store
from headrace.torch._error_notes import about_sample
from headrace.torch._worker_store import store_in_this_process

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["MapDataset"]


class ObjectsOfStore:
    """Objects of a store, how to read them here, and what is made of each."""

    def __init__(
        self,
        url_or_store: str | os.PathLike[str] | Store,
        transform: Callable[[Sample], Any] | None,
        index: ObjectIndex | None,
    ) -> None:
        require(
            transform is None or callable(transform),
            f"transform is {transform!r}; it must be callable",
        )
        require(
            index is None or isinstance(index, ObjectIndex),
            f"index is a {type(index).__name__}; it must be a headrace.ObjectIndex",
        )
        self._store = as_store(url_or_store)
        self._objects = self._store.index() if index is None else index
        self._transform = transform
        self._here: tuple[int, Store] | None = None
        if len(self._objects) == 0:
            if index is not None:
                raise InvalidArgumentError("index is empty; there is nothing to read")
            error = NotFoundError(
                f"{self._store.url}: no object is below this folder "
                "(headrace.Store(...).list() shows what is there)"
            )
            error.url = self._store.url
            raise error

    @property
    def objects(self) -> ObjectIndex:
        """What was listed: ``objects[i]`` has name and size; ``objects.name(i)`` is quicker."""
        return self._objects

    @property
    def store(self) -> Store:
        """The store that the objects are in."""
        return self._store

    @property
    def transform(self) -> Callable[[Sample], Any] | None:
        """What makes a sample of each object."""
        return self._transform

    def opened(self) -> tuple[_engine.Engine, _engine.StoreHandle]:
        """Return what reads in this process."""
        here = self._here
        if here is None or here[0] != os.getpid():
            # The dataset that a worker gets by fork brings the trainer's along.
            here = self._here = os.getpid(), store_in_this_process(self._store, self._objects)
        return here[1]._open()

    def start(self, indices: Buffer | Sequence[int], into: Buffer | None = None) -> _engine.Batch:
        """Begin to read the objects with these numbers; see ``_engine.StoreHandle``."""
        return self.opened()[1].start_indexed(self._objects, indices, into)

    def make(self, sample: Sample) -> Any:
        """Return what the user gets for one object."""
        if self._transform is None:
            return sample.tensor()
        try:
            return self._transform(sample)
        except Exception as error:
            told = about_sample(error, sample.url)
            if told is error:
                raise
            raise told from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None}


class MapDataset(ObjectsOfStore, Dataset[Any]):
    """The objects below a URL, by number, for torch's DataLoader and for `Loader`.

    The objects are listed when the dataset is made; their order is the UTF-8 byte order of the
    names. It pickles as the configuration of the store and the index, so it works in DataLoader
    workers of every start method; there, unless you have set it otherwise, each worker's engine has
    one I/O thread and a share of the memory and of the requests in flight.

    Without a transform an object gives a writable one-dimensional ``uint8`` tensor that owns its
    memory (an empty one for an object of no bytes). A list of numbers is read as one batch, all at
    the same time: torch's DataLoader asks so for each of its batches.

    Args:
        url_or_store: a URL, a path, or a `headrace.Store` for more options (``endpoint`` and such).
        transform: makes a sample of a `headrace.Sample`, a writable buffer with ``.url``,
            ``.bytes()``, ``.numpy()`` and ``.tensor()``.
        index: the objects, if they were listed before; then nothing is listed. Such as
            ``store.index().filter(suffix=".jpg")``.

    Raises:
        NotFoundError: no object is below the URL.
        InvalidArgumentError: the URL or an option cannot work.
    """

    def __init__(
        self,
        url_or_store: str | os.PathLike[str] | Store,
        transform: Callable[[Sample], Any] | None = None,
        *,
        index: ObjectIndex | None = None,
    ) -> None:
        super().__init__(url_or_store, transform, index)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Any]:
        """Read one object after the other, in the order of their numbers."""
        # Without this, Python would take a transform's IndexError for the end.
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, index: int) -> Any:
        """Read one object; a negative number counts from the end.

        Raises:
            IndexError: there are not so many objects.
            NotFoundError: the object was deleted since it was listed.
            PreconditionFailedError: it was replaced since it was listed.
        """
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read many objects at the same time, and return them in the order of `indices`.

        Raises:
            IndexError: there are not so many objects.
            NotFoundError: an object was deleted since it was listed.
            PreconditionFailedError: one was replaced since it was listed.
        """
        samples = self.start(indices).take(return_errors=False)
        if self._transform is None:
            return [sample.tensor() for sample in samples]
        made = []
        for i, sample in enumerate(samples):
            samples[i] = None  # type: ignore[call-overload]  # its memory is free when it is used up
            made.append(self.make(sample))
        return made

    def __repr__(self) -> str:
        return f"headrace.torch.MapDataset({self._store.url!r}, {len(self)} objects)"
