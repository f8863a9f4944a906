"""What is packed: objects, or the members of shards, and the stores that have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace._base.on_error import OnError
from headrace._base.options import require
from headrace._engine import ObjectIndex
from headrace._index.shards import COMPRESSED_SUFFIXES, MEMBER, ShardSource, members_of
from headrace._pack.object_source import Stores, objects_of
from headrace._store.chosen import Chosen
from headrace._store.sources import folder_labels
from headrace._store.store import Store

__all__ = ["entries_of", "with_folder_labels"]


def entries_of(
    source: ShardSource | Iterable[ShardSource],
    destination: Store,
    on_error: OnError,
    options: Mapping[str, Any],
    chosen: Chosen,
) -> tuple[ObjectIndex, Stores]:
    """Return what is to be packed, with all sizes, and the store of each of its roots.

    Raises:
        NotFoundError: there is nothing.
        InvalidArgumentError: a source cannot be, or the destination lies in one.
    """
    index, stores = objects_of(source, options, chosen, destination)
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
