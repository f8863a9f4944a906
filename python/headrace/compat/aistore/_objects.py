"""The objects of a dataset: listed compactly, and made one by one when somebody asks for them."""

from __future__ import annotations

import functools
import hashlib
import io
import operator
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import accumulate
from typing import Any

from headrace import ObjectIndex, ObjectInfo, Store, _engine
from headrace import open as open_object
from headrace._store.entry_reads import EntryReads
from headrace.compat.aistore._clients import store_of_bucket
from headrace.compat.aistore._errors import as_sdk_raises
from headrace.compat.aistore._sdk import reads_by_get, sdk_class
from headrace.torch._here import Here

__all__ = [
    "ForeignPart",
    "ListedSize",
    "ObjectList",
    "Part",
    "Prefetched",
    "StoredObject",
    "StoredPart",
    "size_of",
    "sizes_of",
]


class ListedSize:
    """What a listing says about an object, by the names of the SDK's ``ObjectProps``."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size


class StoredPart:
    """Objects of one source that the engine reads.

    Args:
        stores: one for each of ``objects.roots``.
        objects: what was listed.
        bucket: the SDK's bucket that they are in, if the source was one.
    """

    def __init__(self, stores: Sequence[Store], objects: ObjectIndex, bucket: Any = None) -> None:
        self.objects = objects
        self.bucket = bucket
        self._stores = list(stores)
        self._token = _token_of(bucket)
        self._here: Here | None = None

    def __len__(self) -> int:
        return len(self.objects)

    @property
    def stores(self) -> list[Store]:
        """One for each of ``objects.roots``, with the token that the bucket's client has now."""
        token = _token_of(self.bucket)
        if token != self._token:
            store = store_of_bucket(self.bucket)
            if store is not None:
                self._stores, self._here = [store], None
            self._token = token
        return self._stores

    def item(self, index: int) -> StoredObject:
        """Return one object; the index is in bounds."""
        return _object_type(self.bucket)(self, index)

    def sizes(self) -> memoryview:
        """Return the sizes of all objects, as a buffer of int64."""
        return self.objects.sizes(range(len(self)))

    @property
    def fingerprint(self) -> str:
        """A hash of names, sizes and checksums in their order."""
        return self.objects.fingerprint

    def info(self, index: int) -> ObjectInfo:
        return self.objects.info(index)

    def store_of(self, index: int) -> tuple[Store, str]:
        """Return the store of an object, and its name there."""
        stores = self.stores
        if len(stores) == 1:
            return stores[0], self.objects.name(index)
        url = self.objects.url(index)
        for root, store in zip(self.objects.roots, stores, strict=True):
            if url.startswith(root.rstrip("/") + "/"):
                return store, self.objects.name(index)
        raise AssertionError(f"{url} lies below none of the roots")

    def opened(self) -> tuple[_engine.Engine, _engine.IndexReader]:
        """Return the engine and the reader of this process."""
        stores = self.stores
        here = self._here
        if here is None or not here.is_valid:
            here = self._here = Here(stores, self.objects)
        return here.opened()

    def start(self, indices: Sequence[int]) -> EntryReads:
        """Begin to read objects, all at the same time."""
        return EntryReads(self.opened()[1].start(indices), self.objects, indices)

    def only(self, index: int) -> StoredPart:
        """Return the part that has nothing but one object, for a pickle of it."""
        return StoredPart(self.stores, self.objects[index : index + 1], self.bucket)

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

    def sizes(self) -> array[int]:
        return sizes_of(self.objects)

    @property
    def fingerprint(self) -> str:
        hashed = hashlib.sha256()
        for each in self.objects:
            hashed.update(f"{each.name} {size_of(each)}\n".encode())
        return hashed.hexdigest()


Part = StoredPart | ForeignPart


def size_of(value: Any) -> int:
    """Return the size of an object as its listing told it."""
    properties = getattr(value, "props_cached", None)
    if properties is None:  # of an SDK before 1.10
        properties = value.props
    return int(properties.size)


_listed_size = operator.attrgetter("props_cached.size")


def sizes_of(objects: Sequence[Any]) -> array[int]:
    """Return the sizes of objects as their listing told them."""
    try:
        return array("q", map(_listed_size, objects))  # in two thirds of the time
    except (AttributeError, TypeError):  # of another kind; `size_of` knows more of them
        return array("q", map(size_of, objects))


class Prefetched:
    """Objects that are read together before somebody asks for them one by one.

    Args:
        part: where they are.
        indices: their numbers there.
        wait: begin when the first is asked for, to learn whether anybody asks.
    """

    def __init__(self, part: StoredPart, indices: Sequence[int], *, wait: bool = False) -> None:
        self._reads: EntryReads | None = None if wait else part.start(indices)
        self._indices = indices
        self._found: dict[int, Any] = {}
        self._lock = threading.Lock()  # a subclass may read by threads
        self.was_used = False

    def take(self, index: int) -> bytes | None:
        """Return the content of an object; None if it was taken before."""
        self.was_used = True
        with self._lock:
            reads, self._reads = self._reads, None
            if reads is not None:
                samples = reads.take(return_errors=True)
                self._found = dict(zip(self._indices, samples, strict=True))
            found = self._found.pop(index, None)
        if isinstance(found, Exception):
            raise found
        return None if found is None else found.bytes()

    def close(self) -> None:
        """Cancel what nobody has taken."""
        with self._lock:
            reads, self._reads = self._reads, None
            if reads is not None:
                reads.drain()
            self._found.clear()


class StoredObject:
    """One object, with the attributes and methods of the SDK's that datasets use.

    In a program with the SDK it is also one of the SDK's objects, which does everything else.
    """

    __slots__ = ("_index", "_part", "_prefetched")

    def __init__(self, part: StoredPart, index: int, prefetched: Prefetched | None = None) -> None:
        self._part, self._index, self._prefetched = part, index, prefetched

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
        if self._prefetched is not None:
            with as_sdk_raises():
                content = self._prefetched.take(self._index)
            if content is not None:
                return content
        with as_sdk_raises():
            sample: Any = self._part.start([self._index]).take(return_errors=False)[0]
        content = sample.bytes()
        return bytes(content)

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
        store, name = self._object._part.store_of(self._object._index)
        with as_sdk_raises():
            file: Any = open_object(name, "rb", store=store, prefetch_bytes=prefetch_bytes)
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
        self._thread = threading.local()

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
        expected = getattr(self._thread, "expected", None)
        if expected is not None and isinstance(item, StoredObject):
            item._prefetched = expected.get(id(part))
        return item

    def expect(self, prefetched: dict[int, Prefetched] | None) -> None:
        """Let objects that this thread takes from the list find their contents there."""
        self._thread.expected = prefetched

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts:
            yield from map(part.item, range(len(part)))

    def sizes(self) -> array[int]:
        """Return the sizes of all objects."""
        sizes = array("q")
        for part in self.parts:
            sizes.frombytes(memoryview(part.sizes()).cast("B"))
        return sizes

    @property
    def fingerprint(self) -> str:
        """A hash of names, sizes and checksums in their order."""
        if len(self.parts) == 1:
            return self.parts[0].fingerprint
        hashed = hashlib.sha256()
        for part in self.parts:
            hashed.update(f"{len(part)} {part.fingerprint} ".encode())
        return hashed.hexdigest()

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

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_thread"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._thread = threading.local()
