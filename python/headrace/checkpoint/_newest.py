"""Which of the checkpoints below a root is the newest that is complete."""

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


def latest(url: Url, *, store: Store | None = None) -> str | None:
    """Return the URL of the newest complete checkpoint below `url`; None if there is none.

    Checkpoints are single files whose directory and pickle are whole, and folders of
    `torch.distributed.checkpoint` with their ``.metadata``. The newest is the one that was updated
    last; of several at the same time the last by name. A file that is replaced meanwhile is looked
    at once more, and passed over if it is replaced again.

    Args:
        url: of a folder, with or without a slash at its end: ``gs://bucket/step200`` says nothing
            of ``gs://bucket/step2000``. With `store` the name of a folder there; ``""``: all of it.
        store: where to look; default: a store of the URL's bucket.
    """
    where, folder_name = _locate_folder(url, store)
    for info in _newest_first(where, folder_name):
        folder, _, last = info.name.rpartition("/")
        if last == METADATA_NAME:
            return where.url_of(folder) if folder else where.url
        if _is_whole(where, info):
            return where.url_of(info.name)
    return None


def _locate_folder(url: Url, store: Store | None) -> tuple[Store, str]:
    """Return the store, and what the names of all objects in the folder begin with there."""
    name = os.fspath(url)
    if store is None:
        scheme, bucket, name, _ = _engine.split_url(name)
        if scheme == "file":
            store, name = Store("file:///"), os.path.abspath(name).lstrip("/")
        else:
            store = Store(f"{scheme}://{bucket}")
    # A folder is no prefix of its neighbours.
    name = name.rstrip("/")
    return store, f"{name}/" if name else ""


def _newest_first(store: Store, folder: str) -> Iterator[ObjectInfo]:
    infos = list(store.list(folder))
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
