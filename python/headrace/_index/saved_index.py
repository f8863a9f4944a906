"""How an `ObjectIndex` travels: to other processes, and to other days."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from headrace import _engine
from headrace._base.imported import imported
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._store.location import Url, object_at
from headrace._store.store import Store

__all__ = ["load", "reduce", "save"]


def save(
    index: ObjectIndex, url: Url, store: Store | None, options: Mapping[str, Any]
) -> ObjectInfo:
    """See `ObjectIndex.save`."""
    store, name = object_at(url, store, **options)
    return store.write(name, _engine.index_image(index))


def load(url: Url, store: Store | None, options: Mapping[str, Any]) -> ObjectIndex:
    """See `ObjectIndex.load`."""
    store, name = object_at(url, store, **options)
    sample = store.read(name)
    return _engine.index_from_image(sample, sample.url)


# ---- pickling


def reduce(index: ObjectIndex) -> tuple[Any, ...]:
    """Return what pickle needs.

    For a process that is being started (spawn, forkserver) that is a descriptor of the index's
    memory, which the child maps: no bytes are copied, nothing has a name that could be left behind,
    and either process may end first. Any other pickle may be read on another machine, or tomorrow:
    it carries the bytes.
    """
    descriptor = _engine.index_descriptor(index)
    spawning = imported("multiprocessing.context", "get_spawning_popen")
    child = None if spawning is None else spawning()
    if child is None or descriptor < 0:
        return _from_image, (_engine.index_image(index),)
    return _from_descriptor, (_duplicate_for(child, descriptor),)


# What a process that is being started was given already: the same descriptor twice is refused.
_given: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


def _duplicate_for(child: Any, descriptor: int) -> Any:
    from multiprocessing.reduction import DupFd

    given = _given.setdefault(child, {})
    if descriptor not in given:
        given[descriptor] = DupFd(descriptor)
    return given[descriptor]


def _from_image(image: bytes) -> ObjectIndex:
    return _engine.index_from_image(image)


def _from_descriptor(duplicate: Any) -> ObjectIndex:
    return _engine.index_from_descriptor(duplicate.detach())
