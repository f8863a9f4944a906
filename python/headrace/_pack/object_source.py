"""Which objects a source stands for, with all sizes, and the stores that have them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace._base.errors import NotFoundError, with_url
from headrace._base.options import require
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._index.shards import ShardSource
from headrace._pack.place import FOLDER
from headrace._store.chosen import Chosen
from headrace._store.location import (
    before_wildcards,
    bucket_and_name,
    expand_braces,
    folder_and_name,
    folder_without_links,
    has_wildcard,
    root_at,
)
from headrace._store.roots import first_of_root
from headrace._store.sources import sources_of
from headrace._store.store import Store

__all__ = ["Stores", "objects_of"]

Stores = tuple[Store, ...]


def objects_of(
    source: ShardSource | Iterable[ShardSource],
    options: Mapping[str, Any],
    chosen: Chosen,
    destination: Store | None = None,
) -> tuple[ObjectIndex, Stores]:
    """Return the objects, each with its size, and the store of each of the roots.

    Args:
        source: a URL or path, a pattern, a store, an index, or several of these.
        options: of `Store`, for URLs.
        chosen: chooses from listings.
        destination: what is read will be written there.

    Raises:
        NotFoundError: there is nothing.
        InvalidArgumentError: a source cannot be, or the destination lies in one.
    """
    found = _Found(destination, options, chosen)
    for each in sources_of(source, "a URL, a path, a pattern"):
        found.add(each)
    return found.finish()


class _Found:
    """Collects objects, source after source."""

    def __init__(
        self, destination: Store | None, options: Mapping[str, Any], chosen: Chosen
    ) -> None:
        self._chosen = chosen
        self._destination, self._options = destination, options
        self._stores: dict[str, Store] = {}
        self._parts: list[ObjectIndex] = []

    def add(self, source: Any) -> None:
        if isinstance(source, ObjectIndex):
            self._take_index(source)
        elif isinstance(source, Store):
            self._list(source, "", source.url)
        else:
            for text in expand_braces(os.fspath(source)):
                self._take_text(text)

    def finish(self) -> tuple[ObjectIndex, Stores]:
        index = self._parts[0] if len(self._parts) == 1 else ObjectIndex.concat(self._parts)
        stores = tuple(self._stores.get(root) or self._store_at(root) for root in index.roots)
        for store in stores:
            settings = store._settings
            require(
                settings.content_encoding == "stored" and settings.on_change == "error",
                f"{store.url}: what is read is one version of each object, as it is stored; leave "
                "out content_encoding= and on_change= of the store",
            )
        if index.total_size_bytes is None:
            index = _with_sizes(index, stores)
        return index, stores

    def _take_text(self, text: str) -> None:
        if has_wildcard(text):
            folder, pattern = folder_and_name(text, before_wildcard=True)
            self._list(self._store_at(folder), pattern, text)
            return
        if bucket_and_name(text)[1].strip("/") and not text.endswith("/") and _may_be_object(text):
            folder, name = folder_and_name(text)
            store = self._store_at(folder)
            info = store.stat(name, missing_ok=True)
            if info is not None:
                self._keep(store, ObjectIndex.from_objects([info], root=store.url))
                return
        self._list(self._store_at(text), "", text)

    def _take_index(self, index: ObjectIndex) -> None:
        require(len(index) > 0, "the index is empty; there is nothing to read")
        require(
            index.roots != ("",),
            "the index does not say where its objects are: rebased() gives one that does",
        )
        self._parts.append(index)

    def _list(self, store: Store, pattern: str, text: str) -> None:
        below = folder_without_links(store.url)
        destination = "" if self._destination is None else self._destination.url
        inside = folder_without_links(destination) if destination else None
        if inside is not None and not inside.startswith(below):
            inside = None
        require(
            bool(pattern) or inside is None,
            f"{destination} lies in {store.url}, which is to be "
            "packed: choose a destination outside of it, or a pattern that leaves it out",
        )
        index = store.index(before_wildcards(pattern))
        if not pattern and len(index.filter(prefix=FOLDER)):
            index = index.filter(suffix=".tar")  # a packing's own folder: shards are meant
        index = self._chosen.of(index, text, pattern=pattern)
        if len(index) == 0:
            error = NotFoundError(
                f"{text}: "
                + ("no object matches the pattern" if pattern else "no object is below")
                + self._chosen.hint
            )
            raise with_url(error, text)
        if inside is not None:
            shards = len(index.filter(prefix=inside[len(below) :]))
            require(
                shards == 0,
                f"the pattern {text} also matches {shards} objects of the destination, "
                f"{destination}: choose one that leaves these out",
            )
        self._keep(store, index)

    def _keep(self, store: Store, index: ObjectIndex) -> None:
        first_of_root(self._stores, index.roots[0], store)
        self._parts.append(index)

    def _store_at(self, url: str) -> Store:
        return root_at(url or ".", None, **self._options)


def _may_be_object(text: str) -> bool:
    """Return whether to ask if a URL without a slash at its end is of an object.

    Those of folders rarely have a dot.
    """
    return "." in text.rpartition("/")[2] and not os.path.isdir(text)


def _with_sizes(index: ObjectIndex, stores: Sequence[Store]) -> ObjectIndex:
    """Ask the stores for objects whose size the index does not have."""
    require(
        all(index.range(i) is None for i in range(len(index))),
        "the index has ranges whose ends are not known; give begins and ends",
    )
    infos: list[ObjectInfo | None] = [None] * len(index)
    parts = []
    order: list[int] = []
    for root, store in zip(index.roots, stores, strict=True):
        mine = [i for i in range(len(index)) if index.url(i) == store.url_of(index.name(i))]
        mine = [i for i in mine if infos[i] is None]
        for i, info in zip(mine, store.stat_many([index.name(i) for i in mine]), strict=True):
            infos[i] = info
        parts.append(ObjectIndex.from_objects([infos[i] for i in mine], root=root))  # type: ignore[misc]
        order += mine
    whole = ObjectIndex.concat(parts)
    in_order = sorted(range(len(index)), key=order.__getitem__)
    columns = {name: index.column(name) for name in index.columns}
    return whole.select(in_order).with_columns(columns)
