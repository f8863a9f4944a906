"""Wildcards in URLs: `*`, `?`, `[a-z]` and `**`, as `headrace.ObjectIndex.filter` knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from headrace import ObjectIndex, ObjectInfo, Store
from headrace._cli.listing import chunks, pages
from headrace._cli.location import Location, first_wildcard, not_found
from headrace._store.listing import named

__all__ = ["as_name", "expanded", "matches"]


def expanded(locations: Iterable[Location], *, prefixes: bool = True) -> Iterator[Location]:
    """Yield `locations`, each pattern replaced by what it matches.

    What has exactly the pattern for its name, an object or what lies below it, is all that is meant
    by it. Otherwise a pattern matches objects, whose locations have their `info`, and prefixes,
    whose locations end with ``/``.

    Args:
        prefixes: whether prefixes that match are wanted; if not, they are passed over.

    Raises:
        NotFoundError: a pattern matches nothing that is wanted.
        InvalidArgumentError: it makes no sense.
    """
    for location in locations:
        by_name = as_name(location)
        if by_name is not None:
            yield by_name
            continue
        exact = replace(location, is_pattern=False)
        is_empty = no_prefix = True
        for found in matches(location):
            if isinstance(found, str):
                no_prefix = False
                if prefixes:
                    yield replace(exact, name=found)
            else:
                is_empty = False
                yield replace(exact, name=found.name, info=found)
        if is_empty and (no_prefix or not prefixes):
            raise not_found(
                location,
                "nothing matches the pattern"
                if no_prefix
                else "only prefixes match the pattern; what lies below them is for -r",
            )


def as_name(location: Location) -> Location | None:
    """Return the location as that of what has it for a name; None: nothing has, it is a pattern."""
    if not location.is_pattern:
        return location
    found = named(location.store, location.name)
    if not found:
        return None
    info = found if isinstance(found, ObjectInfo) else None
    return replace(location, is_pattern=False, info=info)


def matches(location: Location) -> Iterator[ObjectInfo | str]:
    """Yield the objects and the prefixes that a pattern matches, in the order of their names.

    Only what can match is listed: one level after the other. A pattern with ``**`` matches objects
    alone, and lists everything that begins as it does, by many requests at a time.
    """
    store, pattern = location.store, location.name
    if "**" not in pattern:
        components = pattern.rstrip("/").split("/")
        yield from _level(store, "", components, only_prefixes=location.is_folder)
        return
    for chunk in chunks(store, pattern[: first_wildcard(pattern)]):
        names = _matching(pattern, [info.name for info in chunk])
        yield from (info for info in chunk if info.name in names)


def _level(
    store: Store, below: str, components: list[str], *, only_prefixes: bool
) -> Iterator[ObjectInfo | str]:
    """Yield what matches `components` below the prefix `below`."""
    plain = next((i for i, each in enumerate(components) if first_wildcard(each) < len(each)), None)
    if plain is None:
        yield from _exactly(store, below + "/".join(components), only_prefixes=only_prefixes)
        return
    below += "".join(f"{each}/" for each in components[:plain])
    pattern, rest = components[plain], components[plain + 1 :]
    for page in pages(store, below + pattern[: first_wildcard(pattern)], recursive=False):
        prefixes = {prefix[len(below) : -1]: prefix for prefix in page.prefixes}
        objects = {} if rest or only_prefixes else {i.name[len(below) :]: i for i in page.objects}
        names = _matching(pattern, [*prefixes, *objects])
        if rest:
            for name in (name for name in prefixes if name in names):
                yield from _level(store, prefixes[name], rest, only_prefixes=only_prefixes)
            continue
        found: list[ObjectInfo | str] = [prefixes[name] for name in prefixes if name in names]
        found += [objects[name] for name in objects if name in names]
        yield from sorted(found, key=lambda e: (e if isinstance(e, str) else e.name).encode())


def _exactly(store: Store, name: str, *, only_prefixes: bool) -> Iterator[ObjectInfo | str]:
    """Yield the object of this name, and the prefix, if they are there."""
    if not only_prefixes:
        info = store.stat(name, missing_ok=True)
        if info is not None:
            yield info
    page = store.list_page(f"{name}/", max_results=1, delimiter="/")
    if page.objects or page.prefixes:
        yield f"{name}/"


def _matching(pattern: str, names: list[str]) -> set[str]:
    # The engine's own, so that a pattern means the same everywhere.
    index = ObjectIndex.from_objects(ObjectInfo(name, 0) for name in names if name)
    return {info.name for info in index.filter(glob=pattern)}
