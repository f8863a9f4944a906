"""Reads objects by the engine where it knows them, and others in their own way."""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from headrace import CancelledError, NotFoundError, Sample, Store, _engine
from headrace._process.freed_memory import keep_freed_memory
from headrace._store.read_ahead import ReadAhead
from headrace.compat.aistore._clients import store_of_object
from headrace.compat.aistore._errors import as_sdk_raises
from headrace.compat.aistore._objects import StoredObject
from headrace.compat.aistore._sdk import etl_config, is_object, reads_by_get

__all__ = ["Reads", "read_batches", "read_in_order", "read_one", "read_samples", "read_slowly"]

# The most that is read together. More would delay the first sample; less would cost more per
# sample.
_BLOCK_OBJECTS = 32
_BLOCK_BYTES = 8 << 20


class Reads:
    """Objects that are being read together. Those that the engine does not know are read at last,
    one by one.
    """

    def __init__(self, objects: Sequence[Any], etl_name: Any) -> None:
        self._objects = objects
        self._etl_name = etl_name
        self.size_bytes = 0
        self.opened: tuple[_engine.Engine, Any] | None = None
        self._batches: list[tuple[Any, list[int]]] = []
        self._slow: list[int] = []
        parts: dict[int, tuple[Any, list[int], list[int]]] = {}
        stores: dict[int, tuple[Any, list[str], list[int]]] = {}
        for place, each in enumerate(objects):
            if etl_name:
                found = _transforming(each, etl_name)
                if found is None:
                    self._slow.append(place)
                else:
                    loose = stores.setdefault(id(found[0]), (found[0], [], []))
                    loose[1].append(found[1])
                    loose[2].append(place)
            elif isinstance(each, StoredObject):
                entry = parts.setdefault(id(each._part), (each._part, [], []))
                entry[1].append(each._index)
                entry[2].append(place)
            elif is_object(each) and (store := store_of_object(each)) is not None:
                loose = stores.setdefault(id(store), (store, [], []))
                loose[1].append(each.name)
                loose[2].append(place)
            else:
                self._slow.append(place)
        with as_sdk_raises():
            for part, indices, places in parts.values():
                opened = part.opened()
                self.size_bytes += part.objects.sum_bytes(indices, opened[1].expected_object_bytes)
                self._add(opened, part.start(indices), places)
            for store, names, places in stores.values():
                opened = store._open()
                self.size_bytes += len(names) * opened[1].expected_object_bytes
                self._add(opened, opened[1].start(names), places)
        if self._batches:
            keep_freed_memory()

    def _add(self, opened: Any, batch: Any, places: list[int]) -> None:
        self.opened = self.opened or opened
        self._batches.append((batch, places))

    def cancel(self) -> None:
        """Ask for an early end."""
        for batch, _ in self._batches:
            batch.cancel()

    def drain(self) -> None:
        """Cancel, and wait until the engine is done with it."""
        for batch, _ in self._batches:
            batch.drain()

    def take(self) -> list[Any]:
        """Wait, and return the content of each object, or the error in its place.

        An object that the engine does not know is a function that reads it.
        """
        contents: list[Any] = [None] * len(self._objects)
        for batch, places in self._batches:
            samples = batch.take(return_errors=True)
            samples.reverse()  # the memory of each is free when it is copied
            for place in places:
                contents[place] = samples.pop()
        for place in self._slow:
            contents[place] = _Slow(self._objects[place], self._etl_name)
        return contents


def _transforming(value: Any, etl_name: Any) -> tuple[Store, str] | None:
    """Return the store that gives an object transformed, and its name there; None: not ours."""
    if not isinstance(etl_name, str):  # a pipeline of the SDK's
        return None
    if isinstance(value, StoredObject):
        store, name = value._part.store_of(value._index)
    elif is_object(value) and (found := store_of_object(value)) is not None:
        store, name = found, value.name
    else:
        return None
    return _with_etl(store, etl_name), name


@functools.lru_cache(maxsize=256)
def _with_etl(store: Store, etl_name: str) -> Store:
    provider = replace(store._settings.ais, etl_name=etl_name)
    return store._derived(provider=provider)


class _Slow:
    """An object that is read in its own way, when its turn comes."""

    def __init__(self, value: Any, etl_name: Any) -> None:
        self._value, self._etl_name = value, etl_name

    def __call__(self) -> Any:
        return read_slowly(self._value, self._etl_name)


def read_slowly(value: Any, etl_name: Any = None, **options: Any) -> Any:
    """Read an object in its own way."""
    if not hasattr(value, "get_reader") or (hasattr(value, "get") and reads_by_get()):
        if etl_name:
            options["etl_name"] = etl_name
        return value.get(**options).read_all()
    if etl_name:
        options["etl"] = etl_config(etl_name)
    return value.get_reader(**options).read_all()


def content_of(found: Any) -> bytes:
    """Return the bytes of what `Reads.take` gave for one object, or raise its error."""
    if isinstance(found, Sample):
        return found.bytes()
    if isinstance(found, Exception):
        with as_sdk_raises():
            raise found
    content: bytes = found()
    return content


def read_one(objects: Sequence[Any], etl_name: Any) -> list[bytes]:
    """Read one batch, all objects of it at the same time."""
    found = Reads(objects, etl_name).take()
    contents = []
    for place, each in enumerate(found):
        found[place] = None
        contents.append(content_of(each))
    return contents


def read_samples(objects: Sequence[Any], **options: Any) -> list[Any]:
    """Read one batch; a `headrace.Sample` where the engine has read the object.

    Args:
        objects: the objects.
        options: for those that are read in their own way.
    """
    found = Reads(objects, None).take()
    for place, each in enumerate(found):
        if isinstance(each, _Slow):
            found[place] = read_slowly(objects[place], **options)
        elif isinstance(each, Exception):
            content_of(each)  # raises it
    return found


def read_in_order(
    objects: Iterable[Any],
    etl_name: Any = None,
    *,
    block_objects: int = _BLOCK_OBJECTS,
    block_bytes: int | None = _BLOCK_BYTES,
    missing: Any = None,
    with_samples: bool = False,
) -> Generator[tuple[Any, Any]]:
    """Yield each object and its content, in order, reading ahead.

    Args:
        objects: the objects; pulled from only as far as is read ahead.
        etl_name: the ETL that transforms the content.
        block_objects: how many are read together, at most.
        block_bytes: how many bytes, at most, where sizes are known.
        missing: yielded in place of the content of an object that does not exist. Default: the
            error is raised, after the objects before it have been yielded.
        with_samples: yield a `headrace.Sample` where the engine has read the object.
    """
    forks = _engine.fork_epoch()
    blocks = _blocks(iter(objects), block_objects, block_bytes)
    with closing(_read_blocks(blocks, etl_name)) as read:
        for block, found in read:
            for place, value in enumerate(block):
                content, found[place] = found[place], None
                if missing is not None and isinstance(content, NotFoundError):
                    content = missing
                elif not (with_samples and isinstance(content, Sample)):
                    content = content_of(content)
                yield value, content
                del content
                if forks != _engine.fork_epoch():
                    raise CancelledError(
                        "this iterator was made before a fork, in the parent process; make one here"
                    )


def read_batches(batches: Iterable[Sequence[Any]], etl_name: Any) -> Generator[list[bytes]]:
    """Yield the contents of each batch, reading the next ones ahead."""
    with closing(_read_blocks(iter(batches), etl_name)) as read:
        for _, found in read:
            for place, each in enumerate(found):
                found[place] = content_of(each)
            yield found


def _read_blocks(
    blocks: Iterator[Sequence[Any]], etl_name: Any
) -> Generator[tuple[Sequence[Any], list[Any]]]:
    """Yield each block of objects, and what `Reads.take` gives for it."""
    forks = _engine.fork_epoch()
    ahead: ReadAhead[tuple[Sequence[Any], Reads]] | None = None
    waiting: tuple[Sequence[Any], Reads] | None = None  # as long as the engine has read nothing

    def fill() -> None:
        nonlocal ahead, waiting
        while waiting is None and (ahead is None or ahead.has_room()):
            block = next(blocks, None)
            if block is None:
                break
            reads = Reads(block, etl_name)
            if ahead is None and reads.opened is not None:
                ahead = ReadAhead(reads.opened, None)
            if ahead is None:
                waiting = block, reads
            else:
                ahead.append((block, reads), reads, reads.size_bytes, len(block))

    try:
        fill()
        while waiting is not None or ahead:
            if waiting is not None:
                block, reads = waiting
                waiting = None
                found = reads.take()
            else:
                assert ahead is not None
                block, reads = ahead[0]
                found = reads.take()
                ahead.popleft()
                fill()  # so that something is under way while the caller works
            del reads
            yield block, found
            del found  # the caller's now; we must not keep them alive
            fill()
    finally:
        if ahead is not None and forks == _engine.fork_epoch():
            ahead.cancel()


def _blocks(
    objects: Iterator[Any], most_objects: int, most_bytes: int | None
) -> Iterator[list[Any]]:
    block: list[Any] = []
    block_bytes = 0
    for each in objects:
        size_bytes = 0
        if most_bytes is not None:
            if not isinstance(each, StoredObject):
                # Listed page by page, maybe, and read one by one.
                if block:
                    yield block
                yield [each]
                block, block_bytes = [], 0
                continue
            size_bytes = each._part.objects.size_bytes(each._index) or 0
            if block and block_bytes + size_bytes > most_bytes:
                yield block
                block, block_bytes = [], 0
        block.append(each)
        block_bytes += size_bytes
        if len(block) == most_objects:
            yield block
            block, block_bytes = [], 0
    if block:
        yield block
