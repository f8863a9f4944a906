"""Which of the checkpoints under a prefix is the newest that is complete."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator

from headrace import _engine
from headrace._checkpoint_names import METADATA_NAME
from headrace._engine import ObjectInfo
from headrace._errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace._store import Store
from headrace.checkpoint._archive import open_archive
from headrace.checkpoint._location import Url

__all__ = ["latest"]


def latest(prefix: Url, *, store: Store | None = None) -> str | None:
    """Return the URL of the newest complete checkpoint below `prefix`; None if there is none.

    Checkpoints are single files whose directory and pickle are whole, and folders of
    `torch.distributed.checkpoint` with their ``.metadata``. The newest is the one that was updated
    last; of several at the same time the last by name. A file that is replaced meanwhile is looked
    at once more, and passed over if it is replaced again.

    Args:
        prefix: of the names, as for a listing: ``gs://bucket/run1/``; for files a directory. With
            `store` a prefix of names there.
        store: where to look; default: a store of the URL's bucket.
    """
    where, name = _locate_prefix(prefix, store)
    for info in _newest_first(where, name):
        folder, _, last = info.name.rpartition("/")
        if last == METADATA_NAME:
            return where.url_of(folder) if folder else where.url
        if _is_whole(where, info):
            return where.url_of(info.name)
    return None


def _locate_prefix(prefix: Url, store: Store | None) -> tuple[Store, str]:
    if store is not None:
        return store, os.fspath(prefix)
    scheme, bucket, name, _ = _engine.split_url(os.fspath(prefix))
    if scheme != "file":
        return Store(f"{scheme}://{bucket}"), name
    # A directory is no prefix of its neighbours.
    return Store("file:///"), posixpath.join(os.path.abspath(name), "").lstrip("/")


def _newest_first(store: Store, prefix: str) -> Iterator[ObjectInfo]:
    infos = list(store.list(prefix))
    folders = {
        info.name.removesuffix(METADATA_NAME)
        for info in infos
        if posixpath.basename(info.name) == METADATA_NAME
    }
    for info in sorted(infos, key=lambda each: (each.updated, each.name), reverse=True):
        in_folder = posixpath.join(posixpath.dirname(info.name), "") in folders
        if posixpath.basename(info.name) == METADATA_NAME or not (
            in_folder or info.name.endswith(".distcp")
        ):
            yield info


def _is_whole(store: Store, info: ObjectInfo) -> bool:
    try:
        try:
            return _has_all(store, info)
        except PreconditionFailedError:
            # It was replaced since it was listed, maybe by a newer checkpoint.
            return _has_all(store, store.stat(info.name))
    except (CorruptDataError, InvalidArgumentError, NotFoundError, PreconditionFailedError):
        return False


def _has_all(store: Store, info: ObjectInfo) -> bool:
    archive = open_archive(store, info, verify=True)
    return all(f"data/{key}" in archive.entries for key in archive.outline.storages)
