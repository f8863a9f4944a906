"""Reads objects by the engine where it knows them, and others in their own way."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Any

from headrace import NotFoundError, Sample, Store
from headrace.compat._objects import grouped
from headrace.compat.aistore._clients import store_of_object
from headrace.compat.aistore._errors import as_sdk_raises
from headrace.compat.aistore._objects import BLOCK_BYTES, BLOCK_OBJECTS, StoredObject, StoredPart
from headrace.compat.aistore._sdk import etl_config, is_object, reads_by_get

__all__ = ["as_bytes", "read_in_order", "read_slowly", "read_together"]

# What the engine reads an object from, and what the object is called there.
Readable = tuple[StoredPart, int] | tuple[Store, str]


def read_together(objects: Sequence[Any], etl_name: Any = None, **options: Any) -> list[Any]:
    """Read one batch: all objects of a source at the same time.

    Args:
        objects: the objects.
        etl_name: the ETL that transforms the content.
        options: for those that are read in their own way, which are read at last.

    Returns:
        A `headrace.Sample` where the engine has read the object, else what its reader gives.
    """
    contents: list[Any] = [None] * len(objects)
    by_engine: dict[int, tuple[Any, list[Any], list[int]]] = {}
    slow = []
    for place, each in enumerate(objects):
        readable = _readable(each, etl_name)
        if readable is None:
            slow.append(place)
            continue
        _, keys, places = by_engine.setdefault(id(readable[0]), (readable[0], [], []))
        keys.append(readable[1])
        places.append(place)
    for source, keys, places in by_engine.values():
        with as_sdk_raises():
            samples = _store(source).read_many(_batch(source, keys))
        for place, sample in zip(places, samples, strict=True):
            contents[place] = sample
    for place in slow:
        contents[place] = read_slowly(objects[place], etl_name, **options)
    return contents


def read_in_order(
    objects: Iterable[Any],
    etl_name: Any = None,
    *,
    block_objects: int = BLOCK_OBJECTS,
    block_bytes: int | None = BLOCK_BYTES,
    missing: Any = None,
) -> Generator[tuple[Any, Any]]:
    """Yield each object and its content as `read_together` gives it, in order, reading ahead.

    Args:
        objects: the objects; pulled from only as far as is read ahead.
        etl_name: the ETL that transforms the content.
        block_objects: how many are read together, at most.
        block_bytes: how many bytes, at most, where sizes are known.
        missing: yielded in place of the content of an object that does not exist. Default: the
            error is raised, after the objects before it have been yielded.
    """
    found = ((each, _readable(each, etl_name)) for each in objects)
    for source, run in groupby(found, lambda pair: pair[1] and pair[1][0]):
        if source is None:
            for value, _ in run:
                yield value, read_slowly(value, etl_name)
            continue
        with closing(_read_run(source, run, block_objects, block_bytes)) as contents:
            for value, content in contents:
                if not isinstance(content, Exception):
                    yield value, content
                elif missing is not None and isinstance(content, NotFoundError):
                    yield value, missing
                else:
                    with as_sdk_raises():
                        raise content
                del content


def _read_run(
    source: Any, run: Iterable[tuple[Any, Any]], block_objects: int, block_bytes: int | None
) -> Generator[tuple[Any, Any]]:
    """Yield the objects of one source, and a sample or an error for each."""
    under_way: deque[list[Any]] = deque()

    def size_bytes(pair: tuple[Any, Any]) -> int:
        value = pair[0]
        if isinstance(value, StoredObject):
            return value._part.size_bytes(value._index)
        return block_bytes or 0  # listed page by page, maybe: each is a block of its own

    def batches() -> Iterator[Any]:
        for block in grouped(run, size_bytes, max_objects=block_objects, max_bytes=block_bytes):
            under_way.append([value for value, _ in block])
            yield _batch(source, [readable[1] for _, readable in block])

    with (
        as_sdk_raises(),
        closing(_store(source).read_batches(batches(), on_error="return")) as read,
    ):
        for contents in read:
            contents.reverse()  # the memory of each is free when it is copied
            for value in under_way.popleft():
                yield value, contents.pop()


def _readable(value: Any, etl_name: Any) -> Readable | None:
    """Return what the engine reads `value` from, and its number or name there; None: not ours."""
    if isinstance(value, StoredObject):
        if not etl_name:
            return value._part, value._index
        store = value._part.store
    elif is_object(value):
        found = store_of_object(value)
        if found is None or not etl_name:
            return None if found is None else (found, value.name)
        store = found
    else:
        return None
    # A pipeline of the SDK's is no text.
    return (_with_etl(store, etl_name), value.name) if isinstance(etl_name, str) else None


@functools.lru_cache(maxsize=256)
def _with_etl(store: Store, etl_name: str) -> Store:
    provider = replace(store._settings.ais, etl_name=etl_name)
    return store._derived(provider=provider)


def _store(source: Any) -> Any:
    return source.store_here if isinstance(source, StoredPart) else source


def _batch(source: Any, keys: list[Any]) -> Any:
    return source.objects.select(keys) if isinstance(source, StoredPart) else keys


def read_slowly(value: Any, etl_name: Any = None, **options: Any) -> Any:
    """Read an object in its own way."""
    if not hasattr(value, "get_reader") or (hasattr(value, "get") and reads_by_get()):
        if etl_name:
            options["etl_name"] = etl_name
        return value.get(**options).read_all()
    if etl_name:
        options["etl"] = etl_config(etl_name)
    return value.get_reader(**options).read_all()


def as_bytes(content: Any) -> Any:
    """Return what `read_together` gives, with a sample copied."""
    return content.bytes() if isinstance(content, Sample) else content
