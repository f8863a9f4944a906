"""Find the newest complete checkpoint below a root."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from headrace._checkpoint_names import METADATA_NAME
from headrace._engine import ObjectInfo
from headrace._errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace._location import Url, is_local, root_at
from headrace._store import Store
from headrace.checkpoint._archive import open_archive

__all__ = ["latest"]


def latest(url: Url = "", *, store: Store | None = None, **options: Any) -> str | None:
    """Return the URL of the newest complete checkpoint below `url`; None if there is none.

    A complete checkpoint is a single file with a whole directory and pickle, or a folder of
    `torch.distributed.checkpoint` with its ``.metadata``. The newest is the one updated last; of
    several updated at the same time, the last by name. A file that is replaced during the check is
    looked at once more, and skipped if it is replaced again.

    Examples:
        >>> headrace.checkpoint.latest("gs://bucket/run1")
        'gs://bucket/run1/step200'

    Args:
        url: a bucket, a folder in it, or a directory; it need not exist. Names that merely begin
            with the same text are not below it. With `store`, the name of a folder there; ``""``:
            the whole store.
        store: the store to search. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such bucket.
        InvalidArgumentError: no store has such a URL.
    """
    root = root_at(url, store, **options)
    for info in _newest_first(root):
        folder, _, last = info.name.rpartition("/")
        if last == METADATA_NAME:
            return root.url_of(folder) if folder else root.url
        if _is_whole(root, info):
            return root.url_of(info.name)
    return None


def _newest_first(root: Store) -> Iterator[ObjectInfo]:
    infos = _all_below(root)
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


def _all_below(root: Store) -> list[ObjectInfo]:
    infos: list[ObjectInfo] = []
    token = ""
    try:
        # By pages, which raise no error if there is nothing yet: before a run's first save.
        while True:
            page = root.list_page(page_token=token)
            infos += page.objects
            token = page.next_page_token
            if not token:
                return infos
    except NotFoundError:
        if not is_local(root.url):
            raise
        return []  # a directory that does not exist yet


def _is_whole(store: Store, info: ObjectInfo) -> bool:
    try:
        try:
            return _has_all(store, info)
        except PreconditionFailedError:
            # It was replaced after the listing, maybe by a newer checkpoint.
            return _has_all(store, store.stat(info.name))
    except (CorruptDataError, InvalidArgumentError, NotFoundError, PreconditionFailedError):
        return False


def _has_all(store: Store, info: ObjectInfo) -> bool:
    archive = open_archive(store, info, verify=True)
    return all(f"data/{key}" in archive.entries for key in archive.outline.storages)
