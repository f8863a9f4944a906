"""The objects of a dataset: listed compactly, and made one by one when somebody asks for them."""

from __future__ import annotations

import functools
import io
import operator
import os
import threading
from bisect import bisect_right
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableSequence,
    Sequence,
)
from contextvars import ContextVar
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import numpy
from numpy.typing import NDArray

from headrace import ObjectIndex, Store
from headrace import open as open_object
from headrace._base.contexts import context
from headrace._process.freed_memory import keep_freed_memory
from headrace.compat._objects import grouped
from headrace.compat.aistore._clients import store_of_bucket
from headrace.compat.aistore._errors import as_sdk_raises
from headrace.compat.aistore._sdk import reads_by_get, sdk_class
from headrace.torch._worker_store import store_in_this_process

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_OBJECTS",
    "ForeignPart",
    "ListedSize",
    "ObjectList",
    "ObjectsIter",
    "Part",
    "StoredObject",
    "StoredPart",
    "size_of",
    "sizes_of",
]

_Sizes = NDArray[numpy.int64]

# The most that is read together. More would delay the first sample; less would cost more per
# sample.
BLOCK_OBJECTS = 32
BLOCK_BYTES = 8 << 20

# What gives the contents of the objects of the batch that this thread reads, by part and number.
_batch: ContextVar[Mapping[tuple[int, int], Callable[[], bytes | None]]] = ContextVar(
    "_batch", default=MappingProxyType({})
)


class ListedSize:
    """What a listing says about an object, by the names of the SDK's ``ObjectProps``."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size


class StoredPart:
    """Objects of one source that the engine reads.

    Args:
        store: what reads them.
        objects: what was listed.
        bucket: the SDK's bucket that they are in, if the source was one.
    """

    def __init__(self, store: Store, objects: ObjectIndex, bucket: Any = None) -> None:
        self.objects = objects
        self.bucket = bucket
        self._store = store
        self._token = _token_of(bucket)
        self._here: tuple[int, Store] | None = None

    def __len__(self) -> int:
        return len(self.objects)

    @property
    def store(self) -> Store:
        """What reads the objects, with the token that the bucket's client has now."""
        token = _token_of(self.bucket)
        if token != self._token:
            self._store, self._here = store_of_bucket(self.bucket) or self._store, None
            self._token = token
        return self._store

    @property
    def store_here(self) -> Store:
        """The same, with the settings of a DataLoader's worker in one."""
        store = self.store
        if self._here is None or self._here[0] != os.getpid():
            keep_freed_memory()
            self._here = os.getpid(), store_in_this_process(store, self.objects)
        return self._here[1]

    def item(self, index: int) -> StoredObject:
        """Return one object; the index is in bounds."""
        return _object_type(self.bucket)(self, index)

    def items(self, indices: range) -> Iterator[StoredObject]:
        """Yield objects whose contents are read ahead once somebody reads two neighbours."""
        ahead = Ahead(self, indices)
        for position, index in enumerate(indices):
            value = self.item(index)
            value._take = functools.partial(ahead.take, position)
            yield value

    def sizes(self) -> _Sizes:
        """Return the sizes of all objects; less than 0 where nobody knows one."""
        return numpy.asarray(self.objects.sizes(range(len(self))), numpy.int64)

    def size_bytes(self, index: int) -> int:
        """Return the size of an object; 0 if nobody knows it."""
        return self.objects.size_bytes(index) or 0

    def only(self, index: int) -> StoredPart:
        """Return the part that has nothing but one object, for a pickle of it."""
        return StoredPart(self.store, self.objects[index : index + 1], self.bucket)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None}


def _token_of(bucket: Any) -> str | None:
    return None if bucket is None else getattr(bucket.client, "token", None)


class ForeignPart:
    """Objects of a source that headrace does not know, each read in its own way."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.objects = list(objects)

    def __len__(self) -> int:
        return len(self.objects)

    def item(self, index: int) -> Any:
        return self.objects[index]

    def sizes(self) -> _Sizes:
        return sizes_of(self.objects)


Part = StoredPart | ForeignPart


def size_of(value: Any) -> int:
    """Return the size of an object as its listing told it."""
    properties = getattr(value, "props_cached", None)
    if properties is None:  # of an SDK before 1.10
        properties = value.props
    return int(properties.size)


_listed, _size = operator.attrgetter("props_cached"), operator.attrgetter("size")


def sizes_of(objects: Sequence[Any]) -> _Sizes:
    """Return the sizes of objects as their listing told them."""
    sizes: Iterable[int]
    try:
        # One level of objects after the other: that the next one is far off in memory costs less.
        sizes = map(_size, [*map(_listed, objects)])
        return numpy.fromiter(sizes, numpy.int64, len(objects))
    except (AttributeError, TypeError):  # of another kind; `size_of` knows more of them
        return numpy.fromiter(map(size_of, objects), numpy.int64, len(objects))


class Ahead:
    """The contents of objects that are asked for one by one, and read block by block, ahead.

    It begins with an object that follows on the one before, and ends where nobody asks for any of a
    block: who reads some objects here and there has each of them read alone.

    Args:
        part: where the objects are.
        indices: their numbers there, in the order in which they may be asked for.
        last: the position among them of the one that counts as asked for before the first.
    """

    def __init__(self, part: StoredPart, indices: Sequence[int], last: int = -2) -> None:
        self._part = part
        self._indices = indices
        self._last = last
        self._read: Generator[list[Any]] | None = None
        self._contents: list[Any] = []  # of the positions from begin to end
        self._begin = self._end = 0
        self._lock = threading.Lock()  # a subclass may read by threads

    def take(self, position: int) -> bytes | None:
        """Return the content of an object; None if it is to be read alone."""
        with self._lock, as_sdk_raises():
            follows, self._last = position == self._last + 1, position
            if position >= self._end and self._read is not None:
                self._next_block(self._read)
            if position >= self._end:
                if self._read is not None:
                    self._read.close()
                    self._read = None
                if not follows:
                    return None
                self._begin = self._end = position
                self._read = self._blocks(position)
                self._next_block(self._read)
            if position < self._begin:
                return None
            at = position - self._begin
            found, self._contents[at] = self._contents[at], None
            if isinstance(found, Exception):
                raise found
            return None if found is None else found.bytes()

    def _next_block(self, read: Iterator[list[Any]]) -> None:
        self._contents = next(read, [])
        self._begin, self._end = self._end, self._end + len(self._contents)

    def _blocks(self, position: int) -> Generator[list[Any]]:
        blocks = grouped(
            self._indices[position:], self._part.size_bytes,
            max_objects=BLOCK_OBJECTS, max_bytes=BLOCK_BYTES,
        )  # fmt: skip
        batches = (self._part.objects.select(block) for block in blocks)
        yield from self._part.store_here.read_batches(batches, on_error="return")


class StoredObject:
    """One object, with the attributes and methods of the SDK's that datasets use.

    In a program with the SDK it is also one of the SDK's objects, which does everything else.
    """

    __slots__ = ("_index", "_part", "_take")

    def __init__(self, part: StoredPart, index: int) -> None:
        self._part, self._index = part, index
        self._take: Callable[[], bytes | None] | None = None

    @property
    def name(self) -> str:
        """The object's name in its bucket, or below the URL of its source."""
        return self._part.objects.name(self._index)

    @property
    def props_cached(self) -> Any:
        """What the listing says: name and size."""
        return ListedSize(self.name, self._part.objects.size_bytes(self._index))

    @property
    def props(self) -> Any:
        """The same; an object of the SDK's asks the cluster."""
        return self.props_cached

    def get_reader(self, *args: Any, **options: Any) -> Any:
        """Return a reader for the content.

        Args:
            args: as the SDK's objects take them.
            options: the same. Whatever narrows or changes the content (``archive_config``,
                ``byte_range``, an ETL) is left to the SDK's own reader.

        Raises:
            TypeError: the options need the SDK, and the object's source has none.

        Examples:
            >>> content = dataset.get_obj_list()[0].get_reader().read_all()
        """
        plain = not args and not (options.keys() - {"etl", "chunk_size", "direct"})
        etl = options.get("etl")
        if plain and (etl is None or not getattr(etl, "name", etl)):
            return StoredReader(self, options.get("chunk_size"))
        return self._sdk_reader(*args, **options)

    def get(self, *args: Any, **options: Any) -> Any:
        """The name that `get_reader` had before.

        Raises:
            TypeError: as `get_reader`.

        Examples:
            >>> content = dataset.get_obj_list()[0].get().read_all()
        """
        if not options.get("etl_name"):
            options.pop("etl_name", None)
        return self.get_reader(*args, **options)

    def _sdk_reader(self, *args: Any, **options: Any) -> Any:
        raise TypeError(
            f"{self.name}: the options {', '.join(options) or 'given'} need an object of AIStore's "
            "SDK: give a bucket of its client as the source, not a URL"
        )

    def _read(self) -> bytes:
        content = None if self._take is None else self._take()
        if content is None:
            content = Ahead(self._part, [self._index], last=-1).take(0)
        assert content is not None
        return content

    def __reduce__(self) -> tuple[Any, ...]:
        return _object_in, (self._part.only(self._index),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredObject):
            return NotImplemented
        return self._part is other._part and self._index == other._index

    def __hash__(self) -> int:
        return hash((id(self._part), self._index))

    def __repr__(self) -> str:
        return f"<headrace object {self._part.objects.url(self._index)}>"


class StoredReader:
    """Reads one object by the engine, by the names of the SDK's ``ObjectReader``."""

    def __init__(self, value: StoredObject, chunk_size: int | None) -> None:
        self._object = value
        self._chunk_bytes = chunk_size or 32768

    def read_all(self) -> bytes:
        """Return the whole content.

        Raises:
            NotFoundError: the object was deleted after the listing.

        Examples:
            >>> content = reader.read_all()
        """
        return self._object._read()

    def as_file(self, *_: Any, prefetch_bytes: int = 64 << 20, **__: Any) -> io.BufferedIOBase:
        """Return the content as a file.

        Args:
            prefetch_bytes: how much is read ahead of what was asked for.

        Raises:
            NotFoundError: the object was deleted after the listing.

        Examples:
            >>> first = reader.as_file().read(10)
        """
        store = self._object._part.store
        with as_sdk_raises():
            file: Any = open_object(
                self._object.name, "rb", store=store, prefetch_bytes=prefetch_bytes
            )
        assert isinstance(file, io.BufferedIOBase)
        return file

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content, chunk by chunk."""
        with self.as_file() as file, as_sdk_raises():
            while chunk := file.read(self._chunk_bytes):
                yield chunk

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._object._sdk_reader(), name)


def _object_in(part: StoredPart) -> StoredObject:
    return part.item(0)


def _object_type(bucket: Any) -> type[StoredObject]:
    original = None if bucket is None else sdk_class("obj.object", "Object")
    return StoredObject if original is None else _sdk_object_type(original)


@functools.cache
def _sdk_object_type(original: type) -> type[StoredObject]:
    class SdkObject(StoredObject, original):  # type: ignore[misc]
        """An object of the SDK's whose content the engine reads."""

        @property
        def props_cached(self) -> Any:
            known = vars(self).get("_props")
            return super().props_cached if known is None else known

        @property
        def props(self) -> Any:
            if reads_by_get():  # then this is what the listing says
                return self.props_cached
            return original.props.__get__(self)  # type: ignore[attr-defined]

        def _sdk_reader(self, *args: Any, **options: Any) -> Any:
            read: Any = original.get if reads_by_get() else original.get_reader  # type: ignore[attr-defined]
            return read(self, *args, **options)

        def __getattr__(self, name: str) -> Any:
            # The attributes that its own constructor sets: there are many, and few are needed.
            if name.startswith("__") or "_client" in vars(self):
                raise AttributeError(name)
            self.__dict__.update(vars(self._part.bucket.object(self.name)))
            return getattr(self, name)

    return SdkObject


class ObjectList(MutableSequence[Any]):
    """The objects of a dataset, in order; a list, but a compact one until it is changed."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts: list[Part] = list(parts)
        self._count()

    def _count(self) -> None:
        self._ends = list(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def locate(self, index: int) -> tuple[Part, int]:
        """Return the part that has an object, and its index there.

        Raises:
            IndexError: there is no such object.
        """
        count = len(self)
        at = operator.index(index)
        at += count if at < 0 else 0
        if not 0 <= at < count:
            raise IndexError(f"{index} is out of range: there are {count} objects")
        place = bisect_right(self._ends, at)
        return self.parts[place], at - (self._ends[place - 1] if place else 0)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        part, local = self.locate(index)
        item = part.item(local)
        if isinstance(item, StoredObject):
            item._take = _batch.get().get((id(part), local))
        return item

    @context
    def as_batch(self, indices: Iterable[int]) -> Iterator[None]:
        """Let these objects, taken from the list in this thread, be read together."""
        parts: dict[StoredPart, dict[int, None]] = {}
        for index in indices:
            part, local = self.locate(index)
            if isinstance(part, StoredPart):
                parts.setdefault(part, {})[local] = None
        takers: dict[tuple[int, int], Callable[[], bytes | None]] = {}
        for part, wanted in parts.items():
            ahead = Ahead(part, [*wanted], last=-1)
            for position, local in enumerate(wanted):
                takers[id(part), local] = functools.partial(ahead.take, position)
        token = _batch.set(takers)
        try:
            yield
        finally:
            _batch.reset(token)

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts:
            yield from map(part.item, range(len(part)))

    def sizes(self) -> _Sizes:
        """Return the sizes of all objects."""
        return numpy.concatenate([sizes_of(()), *(part.sizes() for part in self.parts)])

    # What changes a list makes it one of objects.

    def _own(self) -> list[Any]:
        if len(self.parts) != 1 or not isinstance(self.parts[0], ForeignPart):
            self.parts = [ForeignPart(self)]
        part = self.parts[0]
        assert isinstance(part, ForeignPart)
        return part.objects

    def __setitem__(self, index: Any, value: Any) -> None:
        self._own()[index] = value
        self._count()

    def __delitem__(self, index: Any) -> None:
        del self._own()[index]
        self._count()

    def insert(self, index: int, value: Any) -> None:
        """Insert an object, as into a list.

        Examples:
            >>> dataset.get_obj_list().insert(0, other)
        """
        self._own().insert(index, value)
        self._count()

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Sort the objects, as a list is sorted.

        Examples:
            >>> dataset.get_obj_list().sort(key=lambda value: value.props_cached.size)
        """
        self._own().sort(key=key, reverse=reverse)

    def copy(self) -> list[Any]:
        """Return a list of the objects.

        Examples:
            >>> objects = dataset.get_obj_list().copy()
        """
        return [*self]

    def __mul__(self, number: int) -> list[Any]:
        return [*self] * number

    __rmul__ = __mul__

    def __add__(self, other: Any) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Any) -> list[Any]:
        return [*other, *self]

    def __repr__(self) -> str:
        return f"<{len(self)} objects>"


class ObjectsIter(Iterator[Any]):
    """The objects of a pass, or one worker's share, listed when the first is asked for.

    Args:
        listed: gives the objects, all of which the engine reads.
        worker: which of `workers` the share is for.
        workers: their number.
    """

    def __init__(self, listed: Callable[[], ObjectList], worker: int = 0, workers: int = 1) -> None:
        self._listed = listed
        self._share = worker, workers
        self._objects: Iterator[Any] | None = None

    @functools.cached_property
    def listing(self) -> ObjectList:
        """The objects of the whole pass."""
        return self._listed()

    def share(self, worker: int, workers: int) -> ObjectsIter:
        """Return the share of one of several workers."""
        return ObjectsIter(self._listed, worker, workers)

    def __next__(self) -> Any:
        if self._objects is None:
            self._objects = self._taken()
        return next(self._objects)

    def _taken(self) -> Iterator[Any]:
        worker, workers = self._share
        begin = 0
        for part in self.listing.parts:
            assert isinstance(part, StoredPart)
            yield from part.items(range((worker - begin) % workers, len(part), workers))
            begin += len(part)
