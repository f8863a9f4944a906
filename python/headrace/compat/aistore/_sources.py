"""Where the objects of a dataset come from, and how they are listed."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace import InvalidArgumentError, ObjectIndex, Store
from headrace.compat.aistore._clients import bucket_id, store_of_bucket
from headrace.compat.aistore._errors import as_sdk_raises
from headrace.compat.aistore._objects import ForeignPart, ObjectList, Part, StoredPart
from headrace.compat.aistore._sdk import is_bucket, is_group

__all__ = [
    "Found",
    "Selection",
    "as_source_list",
    "foreign_objects",
    "is_listed_by_engine",
    "list_selections",
    "object_list",
    "selections",
    "warn_of_folders",
    "warn_of_prefixes",
]


class Selection(NamedTuple):
    """The objects of a source whose names begin with a prefix."""

    source: Any
    prefix: str


def as_source_list(sources: Any, owner: str) -> list[Any]:
    """Return the sources as a list; one source may be given by itself.

    Raises:
        ValueError: there is none.
        TypeError: one of them is none.
    """
    if not isinstance(sources, ObjectIndex) and not sources:
        raise ValueError(f"<{owner}> ais_source_list must be provided")
    one = isinstance(sources, str | os.PathLike | Store | ObjectIndex)
    found = [sources] if one or hasattr(sources, "list_all_objects_iter") else list(sources)
    if not found:
        raise ValueError(f"<{owner}> ais_source_list must be provided")
    for each in found:
        known = isinstance(each, str | os.PathLike | Store | ObjectIndex)
        if not known and not hasattr(each, "list_all_objects_iter"):
            raise TypeError(
                f"<{owner}> a source is a {type(each).__name__}; it must be a bucket or an object "
                "group of AIStore's SDK, any object with list_all_objects_iter(), a URL such as "
                "ais://bucket, a headrace.Store or a headrace.ObjectIndex"
            )
        if isinstance(each, ObjectIndex) and len(each) > 0 and len(each.roots) > 1:
            raise InvalidArgumentError(
                f"<{owner}> a headrace.ObjectIndex has objects below {len(each.roots)} URLs; give "
                "one index for each of them"
            )
    return found


def selections(
    sources: Iterable[Any], prefix_map: Mapping[Any, Any], among: Sequence[Any] | None = None
) -> list[Selection]:
    """Return what is to be listed, in order: source after source, prefix after prefix.

    Args:
        sources: the sources to list.
        prefix_map: the prefixes of each.
        among: all sources that the keys of `prefix_map` may be; default: `sources`.
    """
    found = []
    sources = list(sources)
    for source in sources:
        prefixes = _prefixes(source, sources if among is None else among, prefix_map)
        for each in (
            [""] if prefixes is None else [prefixes] if isinstance(prefixes, str) else prefixes
        ):
            found.append(Selection(source, each))
    return found


def warn_of_prefixes(sources: Sequence[Any], prefix_map: Mapping[Any, Any], owner: str) -> None:
    """Warn of keys that belong to no source, or to another object for the same bucket, and of
    prefixes that lead to the same objects twice.
    """
    stacklevel = _level_of_caller()
    for key, value in prefix_map.items():
        if not any(key is source or _is_equal(key, source) for source in sources):
            same = _source_id(key)
            if same is not None and any(same == _source_id(source) for source in sources):
                text = (
                    f"a key of prefix_map is another object for the bucket {same[-1]!r} of "
                    "ais_source_list, whose objects are now filtered by it"
                )
            else:
                text = (
                    f"the key {_named(key)} of prefix_map is none of the sources in "
                    "ais_source_list, and has no effect"
                )
            warnings.warn(f"<{owner}> {text}", UserWarning, stacklevel=stacklevel)
        prefixes = [value] if isinstance(value, str) else [*(value or [])]
        for at, prefix in enumerate(prefixes):
            for other in prefixes[:at]:
                if prefix.startswith(other) or other.startswith(prefix):
                    warnings.warn(
                        f"<{owner}> the prefixes {other!r} and {prefix!r} of prefix_map overlap: "
                        "objects with both come twice",
                        UserWarning,
                        stacklevel=stacklevel,
                    )


def warn_of_folders(chosen: Sequence[Selection], found: Sequence[Found], owner: str) -> bool:
    """Warn of the first prefix for which a cluster lists less than what begins with it.

    Of a prefix that is the name of a folder, AIStore's targets list that folder alone.

    Returns:
        Whether there was one.
    """
    for each, names in zip(chosen, found, strict=True):
        prefix = each.prefix
        if not prefix or prefix.endswith("/") or not isinstance(names, ObjectIndex):
            continue
        if not is_bucket(each.source) or bucket_id(each.source)[0] != "ais":
            continue
        # Names are in order, and "0" is what follows on "/".
        begin = bisect_left(range(len(names)), f"{prefix}/", key=names.name)
        end = bisect_left(range(len(names)), f"{prefix}0", lo=begin, key=names.name)
        if not 0 < end - begin < len(names):
            continue
        warnings.warn(
            f"<{owner}> the prefix {prefix!r} of the bucket {each.source.name!r} is the name of a "
            f"folder, with {end - begin} of the {len(names)} objects that begin with it; the SDK's "
            f"plugin reads only these. Give {prefix + '/'!r} for the folder alone",
            UserWarning,
            stacklevel=_level_of_caller(),
        )
        return True
    return False


def _level_of_caller() -> int:
    """Return the `stacklevel` by which a function here blames whoever has called headrace."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("headrace."):
        level, frame = level + 1, frame.f_back
    return level


def _named(key: Any) -> str:
    name = getattr(key, "name", None)
    return repr(name) if isinstance(name, str) else repr(key)


def _prefixes(source: Any, sources: Sequence[Any], prefix_map: Mapping[Any, Any]) -> Any:
    for key, value in prefix_map.items():
        if key is source or _is_equal(key, source):
            return value
    same = _source_id(source)
    if same is not None:
        for key, value in prefix_map.items():
            # A key that is a source itself is about no other.
            if not any(key is each for each in sources) and _source_id(key) == same:
                return value
    return None


def _is_equal(key: Any, source: Any) -> bool:
    return isinstance(source, str | os.PathLike) and type(key) is type(source) and key == source


def _source_id(source: Any) -> tuple[str, ...] | None:
    """Return what two objects for one source have in common."""
    if is_bucket(source):
        return str(getattr(source.client, "base_url", "")).rstrip("/"), *bucket_id(source)
    if isinstance(source, Store):
        return source._settings.endpoint or "", source.url
    return None


# ---- listing


def is_listed_by_engine(source: Any) -> bool:
    """Return whether the engine lists and reads the objects of this source."""
    return isinstance(source, ObjectIndex) or _store(source) is not None


@functools.lru_cache(maxsize=256)
def _store_at(url: str) -> Store:
    return Store(url, on_change="reread")


def _store(source: Any) -> Store | None:
    if isinstance(source, Store):
        return source
    if isinstance(source, str | os.PathLike):
        return _store_at(os.fspath(source))
    if is_bucket(source):
        return store_of_bucket(source)
    # A group takes what it does from its bucket.
    return store_of_bucket(source.bck) if is_group(source) and is_bucket(source.bck) else None


Found = ObjectIndex | list[Any]
"""What was listed for one selection: an index, or the objects of a foreign source."""


def list_selections(chosen: Iterable[Selection]) -> list[Found]:
    """List the objects of each selection."""
    with as_sdk_raises():
        return [_listed(*each) for each in chosen]


def object_list(chosen: Iterable[Selection], found: Iterable[Found]) -> ObjectList:
    """Return the objects that were listed for the selections."""
    return ObjectList(
        [_part(each.source, one) for each, one in zip(chosen, found, strict=True) if len(one) > 0]
    )


def _listed(source: Any, prefix: str) -> Found:
    if isinstance(source, ObjectIndex):
        return source.filter(prefix=prefix) if prefix else source
    store = _store(source)
    if store is None:
        return list(source.list_all_objects_iter(prefix=prefix))
    if not is_group(source):
        return store.index(prefix)
    names = [each for each in source._obj_collection if each.startswith(prefix)]
    return ObjectIndex.from_objects(store.stat_many(names), root=store.url)


def _part(source: Any, found: Found) -> Part:
    if not isinstance(found, ObjectIndex):
        return ForeignPart(found)
    if isinstance(source, ObjectIndex):
        return StoredPart(_store_at(found.roots[0]), found)
    store = _store(source)
    assert store is not None
    bucket = source if is_bucket(source) else source.bck if is_group(source) else None
    return StoredPart(store, found, bucket)


def foreign_objects(chosen: Iterable[Selection]) -> Iterator[Any]:
    """Yield the objects of several selections, listing foreign sources as far as is asked."""
    for one in chosen:
        if is_listed_by_engine(one.source):
            yield from object_list([one], list_selections([one]))
        else:
            yield from one.source.list_all_objects_iter(prefix=one.prefix)
