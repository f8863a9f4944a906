"""Find the newest complete checkpoint below a root."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Unpack

from headrace._checkpoints.manifest import MANIFEST_NAME, step_of
from headrace._checkpoints.names import METADATA_NAME, is_data
from headrace._checkpoints.newest import By, Candidate, Objects, newest
from headrace._store.location import Url, root_at
from headrace._store.settings import StoreOptions
from headrace._store.store import Store
from headrace.checkpoint._completeness import Completeness
from headrace.checkpoint._safetensors import is_index_name, single_name_of

__all__ = ["latest"]

_log = logging.getLogger("headrace")


def latest(
    url: Url = "", *, by: By = "number", store: Store | None = None, **options: Unpack[StoreOptions]
) -> str | None:
    """Return the URL of the newest complete checkpoint below `url`; None if there is none.

    Complete is a file that `load` can read to its end; the index of several safetensors files that
    are all there; a folder of `torch.distributed.checkpoint` whose ``.metadata`` is whole and whose
    files are there; a folder of `headrace.huggingface` whose manifest and files are there. A part
    of several files is no checkpoint.

    The newest is the one written last; but where others have the same name except for whole
    numbers, it is the one of these with the greatest numbers, from left to right: ``step10`` is
    newer than ``step9``. If times contradict the numbers, the log has a warning. It also has
    everything that was passed over, with the reason.

    AIStore does not tell when an object was written: on ``ais://`` only numbers can decide.

    ``docs/guide/checkpoints.md`` has the whole rule.

    Examples:
        >>> headrace.checkpoint.latest("gs://bucket/run1")
        'gs://bucket/run1/step200'

    Args:
        url: a bucket, a folder in it, or a directory; it need not exist. Names that merely begin
            with the same text are not below it. With `store`, the name of a folder there; ``""``:
            the whole store.
        by: ``"number"``: numbers in names decide before times. ``"time"``: times alone.
        store: the store to search. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such bucket.
        InvalidArgumentError: no store has such a URL, or several checkpoints could be the newest:
            neither their times nor the numbers in their names tell which.
        HeadraceError: the store refuses to show an object, so nothing tells whether it is newer:
            `PermissionDeniedError`, or `InvalidArgumentError` for one under a customer's key.
    """
    objects = Objects(root_at(url, store, **options))
    return newest(objects.root, _candidates(objects), Completeness(objects).require, by)


def _candidates(objects: Objects) -> Iterator[Candidate]:
    """Yield what may be a checkpoint: folders by the object that makes them one, and files."""
    uploaded, saved, complete = set(), set(), set()
    for name in objects.by_name:
        folder, _, last = name.rpartition("/")
        if last == MANIFEST_NAME:
            uploaded.add(folder)
        if last == METADATA_NAME or is_data(last) or last.endswith(".distcp"):
            saved.add(folder)
        if last in (MANIFEST_NAME, METADATA_NAME):
            complete.add(folder)
    runs = {_parent_of(folder) for folder in uploaded if folder}
    unfinished = set()
    for info in objects.by_name.values():
        folder, _, last = info.name.rpartition("/")
        upload = _upload_of(folder, uploaded, runs) if uploaded else None
        if upload is not None:
            if upload in uploaded:
                if folder == upload and last == MANIFEST_NAME:
                    yield Candidate(folder, info, folder)
            else:
                unfinished.add((upload, MANIFEST_NAME))
        elif last == METADATA_NAME:
            yield Candidate(folder, info, folder)
        elif folder not in saved:
            called = single_name_of(info.name) if is_index_name(info.name) else info.name
            yield Candidate(info.name, info, called)
        elif folder not in complete:
            unfinished.add((folder, METADATA_NAME))
    for folder, missing in sorted(unfinished):
        url = objects.root.url_of(folder) if folder else objects.root.url
        _log.info("latest() passes over %s: it has no %s, which is written last", url, missing)


def _upload_of(folder: str, uploaded: set[str], runs: set[str]) -> str | None:
    """Return the uploaded folder that `folder` is, or lies in, complete or not.

    Beside folders with a manifest, one without is an upload that did not end.
    """
    while folder not in uploaded:
        parent = _parent_of(folder)
        if folder and parent in runs and step_of(folder) is not None:
            return folder
        if not folder:
            return None
        folder = parent
    return folder


def _parent_of(folder: str) -> str:
    return folder.rpartition("/")[0]
