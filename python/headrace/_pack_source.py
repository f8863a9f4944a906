"""What is packed: objects, or the members of shards, and the stores that have them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from headrace._engine import ObjectIndex, ObjectInfo
from headrace._errors import NotFoundError, with_url
from headrace._location import (
    before_wildcards,
    bucket_and_name,
    expand_braces,
    folder_and_name,
    has_wildcard,
    root_at,
)
from headrace._options import require
from headrace._pack_place import FOLDER
from headrace._roots import first_of_root
from headrace._shards import COMPRESSED_SUFFIXES, MEMBER, OnError, ShardSource, members_of
from headrace._sources import folder_labels, sources_of
from headrace._store import Store

__all__ = ["entries_of", "with_folder_labels"]

Stores = tuple[Store, ...]


def entries_of(
    source: ShardSource | Iterable[ShardSource],
    destination: Store,
    on_error: OnError,
    options: dict[str, Any],
) -> tuple[ObjectIndex, Stores]:
    """Return what is to be packed, with all sizes, and the store of each of its roots.

    Raises:
        NotFoundError: there is nothing.
        InvalidArgumentError: a source cannot be, or the destination lies in one.
    """
    found = _Found(destination, options)
    for each in sources_of(source, "a URL, a path, a pattern"):
        found.add(each)
    index, stores = found.finish()
    if MEMBER in index.columns:
        return index, stores
    require(
        len(index.filter(suffix=COMPRESSED_SUFFIXES)) < len(index),
        f"the source has compressed shards, such as {index.url(0)}, and only plain tars are packed "
        "anew: decompress them first, or read them by headrace.torch.ShardStream",
    )
    tars = index.filter(suffix=".tar")
    if len(tars) == 0:
        return index, stores
    require(
        len(tars) == len(index),
        f"the source has shards, such as {tars.url(0)}, beside other objects: pack the "
        "samples of shards (by a pattern such as *.tar) and objects one after the other",
    )
    return members_of(index, stores, on_error, False)[0], stores


def with_folder_labels(index: ObjectIndex, column: str) -> tuple[ObjectIndex, list[str]]:
    """Return the entries that lie in a folder, with the number of their first folder; and those."""
    is_member = MEMBER in index.columns
    names: Any = index.column(MEMBER) if is_member else map(index.name, range(len(index)))
    inside, folders = folder_labels(list(names))
    require(
        len(inside) > 0,
        "label is 'folder', and none of the names has a folder: give the URL above the folders",
    )
    classes = sorted(set(folders))
    number_of = {name: number for number, name in enumerate(classes)}
    kept = index if len(inside) == len(index) else index.select(inside)
    return kept.with_columns({column: [number_of[folder] for folder in folders]}), classes


class _Found:
    """Collects objects, source after source."""

    def __init__(self, destination: Store, options: dict[str, Any]) -> None:
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
                f"{store.url}: what is packed is one version of each object as it is stored; leave "
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
        if bucket_and_name(text)[1].strip("/") and not text.endswith("/") and _is_object(text):
            folder, name = folder_and_name(text)
            store = self._store_at(folder)
            self._keep(store, ObjectIndex.from_objects([store.stat(name)], root=store.url))
            return
        self._list(self._store_at(text), "", text)

    def _take_index(self, index: ObjectIndex) -> None:
        require(len(index) > 0, "the index is empty; there is nothing to pack")
        require(
            index.roots != ("",),
            "the index does not say where its objects are: rebased() gives one that does",
        )
        self._parts.append(index)

    def _list(self, store: Store, pattern: str, text: str) -> None:
        below, inside = store.url_of(""), self._destination.url_of("")
        require(
            bool(pattern) or not inside.startswith(below),
            f"{self._destination.url} lies in {store.url}, which is to be packed: choose a "
            "destination outside of it, or a pattern that leaves it out",
        )
        index = store.index(before_wildcards(pattern))
        if pattern:
            index = index.filter(glob=pattern)
        elif len(index.filter(prefix=FOLDER)):  # a packing's own folder: shards are meant
            index = index.filter(suffix=".tar")
        if len(index) == 0:
            error = NotFoundError(
                f"{text}: " + ("no object matches the pattern" if pattern else "no object is below")
            )
            raise with_url(error, text)
        if inside.startswith(below):
            shards = len(index.filter(prefix=inside[len(below) :]))
            require(
                shards == 0,
                f"the pattern {text} also matches {shards} objects of the destination, "
                f"{self._destination.url}: choose one that leaves these out",
            )
        self._keep(store, index)

    def _keep(self, store: Store, index: ObjectIndex) -> None:
        first_of_root(self._stores, index.roots[0], store)
        self._parts.append(index)

    def _store_at(self, url: str) -> Store:
        return root_at(url or ".", None, **self._options)


def _is_object(text: str) -> bool:
    """Return whether a URL without a slash at its end is of an object rather than of a folder."""
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
