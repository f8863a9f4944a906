"""Objects by number."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from headrace import ObjectIndex, Sample, _engine
from headrace._errors import InvalidArgumentError, NotFoundError
from headrace._options import require
from headrace._store import Store
from headrace.torch._arguments import as_store, refuse_keywords, seed_or_epoch
from headrace.torch._error_notes import about_sample
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._shared_place import SharedPlace
from headrace.torch._worker_store import store_in_this_process

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["MapDataset"]

_MOST_SEED = (1 << 64) - 1
_INSTEAD = {
    "target_transform": "its labels are used as they are; a transform sees sample.label",
    "root": "the first argument is the URL",
    "loader": "transform makes something of the bytes of an object",
    "shuffle": "Loader(dataset, batch_size, shuffle=True) and torch's DataLoader shuffle",
    "batch_size": "Loader(dataset, batch_size) and torch's DataLoader make batches",
}


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
                f"{self._store.url}: no object has this prefix; a prefix is what names begin with "
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

    @property
    def makes(self) -> bool:
        """Whether what comes out is more than the bytes of an object."""
        return self._transform is not None or self.labels is not None

    @property
    def maker(self) -> Callable[[Sample], Any]:
        """What makes what the user gets of each sample; its errors are those of the transform."""
        make = self._transform or Sample.tensor
        if self.labels is None:
            return make
        return lambda sample: (make(sample), sample.label)

    def make(self, sample: Sample) -> Any:
        """Return what the user gets for one object; errors say which it was."""
        try:
            return self.maker(sample)
        except Exception as error:
            told = about_sample(error, sample.url)
            if told is error:
                raise
            raise told from error

    @property
    def labels(self) -> Any:
        """Of each object in turn, or None."""
        return None

    def label(self, samples: list[Sample], indices: Sequence[int]) -> None:
        """Give each sample its label."""

    def url(self, index: int) -> str:
        """Return the URL of an object."""
        return self._store.url_of(self._objects.name(index))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None}


class MapDataset(ObjectsOfStore, Dataset[Any]):
    """The objects under a prefix, by number, for torch's DataLoader and for `Loader`.

    The objects are listed when the dataset is made; their order is the UTF-8 byte order of the
    names. It pickles as the configuration of the store and the index, so it works in DataLoader
    workers of every start method; there, unless you have set it otherwise, each worker's engine has
    one I/O thread and a share of the memory and of the requests in flight.

    Without a transform an object gives a writable one-dimensional ``uint8`` tensor that owns its
    memory (an empty one for an object of no bytes). A list of numbers is read as one batch, all at
    the same time: torch's DataLoader asks so for each of its batches.

    **Random transforms** draw from ``sample.rng()``. In a `Loader` that depends on the loader's
    seed, the epoch and the position. In torch's DataLoader, call `set_epoch` before each epoch:
    then it depends on `seed`, the epoch and the number of the object, and the global generators of
    `random`, NumPy and torch are seeded for each sample, too. Without `set_epoch` the seeds follow
    from torch's own (``torch.manual_seed``) and from how many samples this process has made; then
    the number of workers matters.

    >>> dataset = MapDataset("gs://bucket/train/", transform=decode)      # doctest: +SKIP
    >>> image, label = dataset[0]                                         # doctest: +SKIP
    >>> for images, labels in Loader(dataset, batch_size=256):            # doctest: +SKIP
    ...     train(images, labels)

    Args:
        url_or_store: a URL, a path, or a `headrace.Store` for more options (``endpoint`` and such).
        transform: makes a sample of a `headrace.Sample`, a writable buffer with ``.url``,
            ``.bytes()``, ``.numpy()``, ``.tensor()`` and ``.rng()``.
        index: the objects, if they were listed before; then nothing is listed. Such as
            ``store.index().filter(suffix=".jpg")``.
        seed: of the samples' own seeds after `set_epoch`; any integer from 0 to 2^63 - 1.

    Raises:
        NotFoundError: no object has the prefix.
        InvalidArgumentError: the URL or an option cannot work.
        TypeError: there is no such argument.
    """

    def __init__(
        self,
        url_or_store: str | os.PathLike[str] | Store,
        transform: Callable[[Sample], Any] | None = None,
        *more: Any,
        index: ObjectIndex | None = None,
        seed: int = 0,
        **unknown: Any,
    ) -> None:
        refuse_keywords("MapDataset", unknown, _INSTEAD, positional=len(more))
        self._seed = seed_or_epoch("seed", seed)
        self._made = 0  # samples, in this process and in those that it comes from
        self._shared: SharedPlace | None = None  # the epoch, once it was set
        super().__init__(url_or_store, transform, index)

    def set_epoch(self, epoch: int) -> None:
        """Let the random numbers of transforms in torch's DataLoader follow from this epoch.

        Call it before each epoch, the first time before the DataLoader's workers start; those that
        live on (``persistent_workers``) see later calls. `Loader` has epochs of its own, and pays
        no heed to it.

        >>> dataset.set_epoch(epoch)                                      # doctest: +SKIP

        Raises:
            InvalidArgumentError: `epoch` is no integer from 0 to 2^63 - 1.
        """
        epoch = seed_or_epoch("epoch", epoch)
        if self._shared is None:
            self._shared = SharedPlace()
        self._shared.move(epoch)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Any]:
        """Read one object after the other, in the order of their numbers."""
        # Without this, Python would take a transform's IndexError for the end.
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, index: int) -> Any:
        """Read one object; a negative number counts from the end.

        >>> image, label = dataset[-1]                                    # doctest: +SKIP

        Raises:
            IndexError: there are not so many objects.
            NotFoundError: the object was deleted since it was listed.
            PreconditionFailedError: it was replaced since it was listed.
        """
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read many objects at the same time, and return them in the order of `indices`.

        >>> items = dataset.__getitems__([7, 5, 3])                       # doctest: +SKIP

        Raises:
            IndexError: there are not so many objects.
            NotFoundError: an object was deleted since it was listed.
            PreconditionFailedError: one was replaced since it was listed.
        """
        samples = self.start(indices).take(return_errors=False)
        if not self.makes:
            return [sample.tensor() for sample in samples]
        self.label(samples, indices)
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
        with generators or nullcontext():
            made = []
            for i, sample in enumerate(samples):
                samples[i] = None  # type: ignore[call-overload]  # its memory is free when it is used up
                if generators is not None:
                    generators.seed(sample.seed or 0)
                made.append(self.make(sample))
            return made

    def __repr__(self) -> str:
        return f"headrace.torch.MapDataset({self._store.url!r}, {len(self)} objects)"
