"""Shards: which objects are meant, and what is in them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from headrace import _engine
from headrace._base.errors import NotFoundError
from headrace._base.on_error import OnError, is_of_the_data, require_on_error
from headrace._base.options import require
from headrace._base.progress import CountOption, count_names
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._store.chosen import Chosen
from headrace._store.location import (
    Url,
    before_wildcards,
    bucket_and_name,
    expand_braces,
    folder_and_name,
    has_wildcard,
    require_no_options_beside,
    root_at,
)
from headrace._store.roots import first_of_root
from headrace._store.settings import StoreOptions
from headrace._store.sources import sources_of
from headrace._store.store import Store

__all__ = [
    "COMPRESSED_SUFFIXES",
    "ShardSource",
    "index_members",
    "members_of",
    "shards_named",
    "shards_of",
    "tell_errors",
]

ShardSource = Url | Store | ObjectIndex
"""Where shards are."""

MEMBER = "member"
"""The column of an index of members that has their names."""

# The compressed ones cannot be indexed. That is told of each, rather than none of them be found.
COMPRESSED_SUFFIXES = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4")
_SUFFIXES = (".tar", *COMPRESSED_SUFFIXES)

_logger = logging.getLogger("headrace")


def index_members(
    source: ShardSource | Iterable[ShardSource],
    *,
    store: Store | None = None,
    hidden: bool = False,
    on_error: OnError = "raise",
    progress: CountOption = False,
    **options: Unpack[StoreOptions],
) -> ObjectIndex:
    """Return an index of the files in tar shards, made by reading little more than their headers.

    Each entry is the range of a shard in which the content of a member lies; the column
    ``"member"`` has the names of the members. The index is read, filtered, saved and loaded as any
    other, and is pinned to the versions of the shards that were indexed.

    Many shards are read at the same time, each from header to header. Of files of 100 KiB and more
    that is one small request for each, for 1 % of their bytes or less (1.5 % where each has an
    extended header, as webdataset writes them, down to 1 % at 150 KiB). Files below 64 KiB are read
    on through, by requests of up to 1 MiB. Hard links are the files that they lead to; directories,
    symbolic links and devices are left out.

    A warning in the log names each shard that may hold more than was found: one without the blocks
    of zeros that end a tar, since its writer may have been stopped, and one in which another tar
    follows the first.

    Args:
        source: the URL or path of a shard, or of a folder, which stands for all objects below it
            whose names end with ``.tar``; a pattern with braces (``shard-{000..099}.tar``) or
            wildcards (``*``, ``?``, ``[a-z]``, ``**``); a `headrace.Store`; a
            `headrace.ObjectIndex` of shards, such as ``store.index().filter(suffix=".tar")``; or
            several of these.
        store: what URLs and patterns are relative to.
        hidden: whether shards are taken, too, whose names have a part that begins with ``.`` below
            the folder. A pattern that has such a part takes them, and so does the name of a shard.
        on_error: ``"raise"``: the first shard that cannot be read is an error. ``"skip"``: it is
            left out, and the log says so. A function: it is left out, and the function is called
            with the error, which has the shard's ``url``. An outage or a refusal of rights says
            nothing about a shard, and is raised in any case.
        progress: shows how many shards are done: True shows a tqdm bar; a function is called with
            the number so far and None.
        options: options of `headrace.Store`, if no store is given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such shard.
        CorruptDataError: a shard is no tar, is cut, or has a member that ends behind it.
        PreconditionFailedError: a shard changed after it was listed.
        InvalidArgumentError: a shard is compressed, or has a sparse file.

    Examples:
        >>> index = headrace.index_members("gs://bucket/shards/train-{000..001}.tar")
        >>> index.column("member", [0, 1]), index.url(0), index.range(0)
        (['000000.jpg', '000000.cls'], 'gs://bucket/shards/train-000.tar', (512, 1712))
        >>> saved = index.save("gs://bucket/train.index")
    """
    shards, stores = shards_of(source, store, options, Chosen(hidden=hidden))
    return members_of(shards, stores, on_error, progress)[0]


def members_of(
    shards: ObjectIndex, stores: Sequence[Store], on_error: OnError, progress: CountOption
) -> tuple[ObjectIndex, int]:
    """Return an index of the members of `shards`, and how many of these were left out.

    `stores` has one for each of the roots.
    """
    require_on_error(on_error)
    reader = _engine.IndexReader(shards, [each._open()[1] for each in stores])
    with count_names(progress, "indexing") as on_progress:
        members, errors, warnings = reader.members(on_error != "raise", on_progress)
    for warning in warnings:
        _logger.warning("%s", warning)
    tell_errors(errors, on_error)
    return members, len(errors)


def tell_errors(errors: Sequence[Exception], on_error: OnError) -> None:
    """Tell of shards that were left out; what is not about a shard is raised.

    Raises:
        HeadraceError: an outage, for one.
    """
    for error in errors:
        if not is_of_the_data(error):
            raise error
    for error in errors:
        if callable(on_error):
            on_error(error)
        else:
            _logger.warning("left out of the index: %s", error)


def shards_of(
    source: ShardSource | Iterable[ShardSource],
    store: Store | None,
    options: Mapping[str, Any],
    chosen: Chosen,
    suffixes: tuple[str, ...] = _SUFFIXES,
) -> tuple[ObjectIndex, tuple[Store, ...]]:
    """Return the shards that are meant, with their sizes, and the stores of the index' roots.

    Of folders, those with one of the `suffixes`.

    Raises:
        NotFoundError: there is none, or not one of several.
        InvalidArgumentError: a source cannot be.
    """
    require_no_options_beside(store, options)
    sources = sources_of(source, "a URL, a path, a pattern")
    require(
        not options or not any(isinstance(each, Store) for each in sources),
        f"{', '.join(options)}: options belong to the Store that is given",
    )
    found = _Shards(store, options, chosen, suffixes)
    for each in sources:
        found.add(each)
    return found.finish()


def shards_named(
    urls: Iterable[str], options: Mapping[str, Any]
) -> tuple[ObjectIndex, tuple[Store, ...]]:
    """Return these shards, in their order, with their sizes; no URL is a pattern or a folder."""
    found = _Shards(None, options, Chosen(), _SUFFIXES, may_be_folders=False)
    for url in urls:
        found.add_named(url)
    return found.finish()


class _Shards:
    """Collects shards, source after source."""

    def __init__(
        self,
        store: Store | None,
        options: Mapping[str, Any],
        chosen: Chosen,
        suffixes: tuple[str, ...],
        *,
        may_be_folders: bool = True,
    ) -> None:
        self._may_be_folders = may_be_folders
        self._store, self._options, self._suffixes = store, options, suffixes
        self._chosen = chosen
        self._stores: dict[str, Store] = {}
        self._parts: list[ObjectIndex] = []
        # Shards that were named, one by one: the URL of their folder, and their names in it.
        self._folder = ""
        self._names: list[str] = []

    def add(self, source: Any) -> None:
        if isinstance(source, ObjectIndex):
            self._take_index(source)
        elif isinstance(source, Store):
            self._list(source, "", "")
        else:
            for text in expand_braces(os.fspath(source)):
                self._take_text(text)

    def add_named(self, text: str) -> None:
        folder, name = folder_and_name(text)
        if folder != self._folder:
            self._stat()
            self._folder = folder
        self._names.append(name)

    def finish(self) -> tuple[ObjectIndex, tuple[Store, ...]]:
        self._stat()
        index = self._parts[0] if len(self._parts) == 1 else ObjectIndex.concat(self._parts)
        return index, tuple(self._stores.get(root) or self._store_at(root) for root in index.roots)

    def _take_text(self, text: str) -> None:
        if has_wildcard(text):
            folder, pattern = folder_and_name(text, before_wildcard=True)
            self._list(self._store_at(folder), text, pattern)
        elif text.endswith(self._suffixes) and bucket_and_name(text)[1]:
            self.add_named(text)
        else:
            self._list(self._store_at(text), text, "")

    def _take_index(self, index: ObjectIndex) -> None:
        self._stat()
        require(len(index) > 0, "the index of shards is empty; there is nothing to read")
        if index.roots == ("",):
            require(
                self._store is not None, "the index does not say where its shards are: give store="
            )
            assert self._store is not None
            index = index.rebased(self._store.url)
        if index.total_size_bytes is not None:
            self._parts.append(index)
            return
        for i in range(len(index)):
            self.add_named(index.url(i))

    def _list(self, store: Store, text: str, pattern: str) -> None:
        self._stat()
        index = store.index(before_wildcards(pattern))
        if not pattern:
            index = index.filter(suffix=self._suffixes)
        index = self._chosen.of(index, text or store.url, pattern=pattern)
        if len(index) == 0:
            error = NotFoundError(
                f"{text or store.url}: "
                + (
                    "no object matches the pattern"
                    if pattern
                    else f"no object whose name ends with {self._suffixes[0]} is below this "
                    "folder; a pattern such as /* matches other names"
                )
                + self._chosen.hint
            )
            error.url = store.url
            raise error
        self._keep(store, index)

    def _stat(self) -> None:
        """Ask for the shards that were named. What is no object may be a folder, as Spark's are."""
        names, self._names = self._names, []
        if not names:
            return
        store = self._store_at(self._folder)
        if not self._may_be_folders:
            self._keep(store, _statted(store, names))
            return
        objects: list[ObjectInfo] = []
        for name, info in zip(names, store.stat_many(names, missing_ok=True), strict=True):
            if info is not None:
                objects.append(info)
                continue
            self._keep_objects(store, objects)
            objects = []
            folder = f"{store.url_of(name)}/"
            if not store.list_page(f"{name}/", max_results=1).objects:
                store.stat(name)  # which raises, and says what is missing
            self._list(self._store_at(folder), folder, "")
        self._keep_objects(store, objects)

    def _keep_objects(self, store: Store, objects: Sequence[ObjectInfo]) -> None:
        if objects:
            self._keep(store, ObjectIndex.from_objects(objects, root=store.url))

    def _keep(self, store: Store, index: ObjectIndex) -> None:
        first_of_root(self._stores, index.roots[0], store)
        self._parts.append(index)

    def _store_at(self, url: str) -> Store:
        if not url and self._store is None:
            url = "."
        return root_at(url, self._store, **self._options)


def _statted(store: Store, names: Sequence[str]) -> ObjectIndex:
    infos: list[ObjectInfo] = store.stat_many(names)
    return ObjectIndex.from_objects(infos, root=store.url)
