"""Find the newest complete checkpoint below a root."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator
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
from headrace.checkpoint._safetensors import find, is_part_name, is_safetensors_name

__all__ = ["latest"]

_NUMBER = re.compile(r"[0-9]+")


def latest(url: Url = "", *, store: Store | None = None, **options: Any) -> str | None:
    """Return the URL of the newest complete checkpoint below `url`; None if there is none.

    A complete checkpoint is a single file with a whole directory and pickle, a safetensors file,
    the index of several that are all there, or a folder of `torch.distributed.checkpoint` with its
    ``.metadata``. The newest is the one updated last; of several updated at the same time, the last
    by name. A file that is replaced during the check is looked at once more, and skipped if it is
    replaced again.

    AIStore does not tell when an object was written. On ``ais://`` the newest is therefore the last
    by name, with numbers compared as numbers: ``step-10`` comes after ``step-9``, whichever was
    saved first. Names that differ in more than numbers cannot be compared so.

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
        InvalidArgumentError: no store has such a URL, or several checkpoints could be the newest:
            neither their times nor the numbers in their names tell which.
    """
    root = root_at(url, store, **options)
    candidates = list(_candidates(_all_below(root)))
    if all(info.updated is not None for info in candidates):
        candidates.sort(key=lambda each: (each.updated, each.name), reverse=True)
        return next(_checkpoints(root, candidates), None)
    by_text: dict[tuple[str, ...], list[ObjectInfo]] = {}
    for info in candidates:
        text = tuple(_NUMBER.split(_name_of(info)))
        by_text.setdefault(text, []).append(info)
    newest: list[str] = []
    for group in by_text.values():
        group.sort(key=lambda each: (_numbers(_name_of(each)), each.name), reverse=True)
        newest += itertools.islice(_checkpoints(root, group), 1)
    if len(newest) > 1:
        first, second = sorted(newest)[:2]
        raise InvalidArgumentError(
            f"{root.url}: is {first} or {second} the newest? The store does not tell when they were"
            " written, and their names differ in more than numbers; search a folder that has "
            "checkpoints of one kind, or name the checkpoint"
        )
    return newest[0] if newest else None


def _checkpoints(root: Store, candidates: Iterable[ObjectInfo]) -> Iterator[str]:
    """Yield the URLs of those that are complete."""
    for info in candidates:
        if posixpath.basename(info.name) != METADATA_NAME:
            if _is_whole(root, info):
                yield root.url_of(info.name)
        elif name := _name_of(info):
            yield root.url_of(name)
        else:
            yield root.url


def _name_of(info: ObjectInfo) -> str:
    """Return the name of the checkpoint, which may be a folder."""
    folder, _, last = info.name.rpartition("/")
    return folder if last == METADATA_NAME else info.name


def _numbers(name: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(name)]


def _candidates(infos: list[ObjectInfo]) -> Iterator[ObjectInfo]:
    folders = {
        info.name.removesuffix(METADATA_NAME)
        for info in infos
        if posixpath.basename(info.name) == METADATA_NAME
    }
    for info in infos:
        in_folder = posixpath.join(posixpath.dirname(info.name), "") in folders
        if posixpath.basename(info.name) == METADATA_NAME or not (
            in_folder or info.name.endswith(".distcp") or is_part_name(info.name)
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
    if is_safetensors_name(info.name):
        files = find(store, info.name)
        files.headers(files.infos, verify=True)
        return True
    archive = open_archive(store, info, verify=True)
    return all(f"data/{key}" in archive.entries for key in archive.outline.storages)
