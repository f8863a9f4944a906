"""Temporary objects that processes which were killed left in a bucket."""

from __future__ import annotations

import datetime
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace import _engine
from headrace._engine import ObjectInfo
from headrace.errors import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace.options import require
from headrace.store import Store

__all__ = ["Cleaned", "clean"]

_PREFIXES = ("dataflux-composed-objects/", "headrace-uploads/")
# Nothing else is ever deleted.
_OURS = re.compile(
    r"dataflux-composed-objects/headrace-[0-9a-f]{32}|headrace-uploads/[0-9a-f]{32}/[^/]+"
)
# What gs-torch-dataflux calls its own.
_DATAFLUX = re.compile(r"dataflux-composed-objects/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DELETED_AT_A_TIME = 16
_CHUNK = 1000


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What `clean` found, and what became of it."""

    deleted: list[ObjectInfo] = field(default_factory=list)
    """With ``dry_run``: what would have been deleted."""
    younger: list[ObjectInfo] = field(default_factory=list)
    """Left alone: they may be in use."""
    failed: list[tuple[ObjectInfo, HeadraceError]] = field(default_factory=list)
    """Could not be deleted, and why."""
    uploads: list[str] = field(default_factory=list)
    """Names of multipart uploads that were never completed, and were aborted, with their parts."""
    dataflux: list[ObjectInfo] = field(default_factory=list)
    """Left alone: these look like composites of gs-torch-dataflux, for its user to judge."""


def clean(
    store: Store | str | os.PathLike[str],
    *,
    older_than_s: float = 86400.0,
    dry_run: bool = False,
    on_deleted: Callable[[ObjectInfo], object] | None = None,
) -> Cleaned:
    """Delete the temporary objects that headrace left in a bucket when it was killed.

    Reading with ``join_small_objects`` and writing large objects make objects for a moment, below
    ``dataflux-composed-objects/`` and ``headrace-uploads/``, and delete them whatever happens, but
    not when the process is killed. Here names of exactly these two forms are deleted, each on
    condition that it is still the object that was listed, and multipart uploads to such names that
    were never completed are aborted; nothing else in the bucket is touched.

    Args:
        store: the bucket, or its URL. The prefix of a store plays no part.
        older_than_s: only what was written so long ago, by this machine's clock, in seconds.
            Default: one day. What is younger may be in use.
        dry_run: look, and delete nothing.
        on_deleted: called for each object that was deleted (with `dry_run`: would be).

    Raises:
        InvalidArgumentError: the store has no temporary objects (``file://``).
        HeadraceError: the listing failed.
    """
    # Needed here only, and costly for those who import headrace.
    from concurrent.futures import ThreadPoolExecutor

    found = store if isinstance(store, Store) else Store(store)
    require(older_than_s >= 0, f"older_than_s is {older_than_s!r}; it must not be negative")
    scheme = _engine.split_url(found.url)[0]
    require(scheme != "file", f"{found.url}: there are no temporary objects on {scheme}:// stores")
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=older_than_s)
    cleaned = Cleaned()

    def old() -> Iterator[ObjectInfo]:
        for info in itertools.chain.from_iterable(map(found.list, _PREFIXES)):
            if _DATAFLUX.fullmatch(info.name):
                cleaned.dataflux.append(info)
            elif _OURS.fullmatch(info.name):
                if info.updated <= before:
                    yield info
                else:
                    cleaned.younger.append(info)

    def delete(info: ObjectInfo) -> HeadraceError | None:
        try:
            if not dry_run:
                found.delete(info.name, if_generation=info.generation, missing_ok=True)
        except HeadraceError as error:
            return error
        return None

    infos = old()
    pool = ThreadPoolExecutor(_DELETED_AT_A_TIME, thread_name_prefix="headrace-clean")
    try:
        while chunk := list(itertools.islice(infos, _CHUNK)):
            for info, error in zip(chunk, pool.map(delete, chunk), strict=True):
                if error is None:
                    cleaned.deleted.append(info)
                    if on_deleted is not None:
                        on_deleted(info)
                elif isinstance(error, PreconditionFailedError):
                    cleaned.younger.append(info)  # somebody has just written it anew
                else:
                    cleaned.failed.append((info, error))
    finally:
        pool.shutdown(cancel_futures=True)
    for name, upload_id, initiated in _unfinished_uploads(found):
        if initiated:
            is_old = datetime.datetime.fromisoformat(initiated) <= before
        else:
            is_old = older_than_s == 0  # the server does not say how old it is
        if is_old:
            if not dry_run:
                found._handle().abort_upload(name, upload_id)
            cleaned.uploads.append(name)
    return cleaned


def _unfinished_uploads(store: Store) -> list[tuple[str, str, str]]:
    """Return name, id and time of our multipart uploads that were begun and not completed."""
    try:
        uploads = store._handle().list_uploads(_PREFIXES[1])
    except (CorruptDataError, InvalidArgumentError, NotFoundError):
        return []  # a server without the XML API: an emulator
    return [each for each in uploads if _OURS.fullmatch(each[0])]
