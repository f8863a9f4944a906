"""What killed processes left: temporary objects, uploads and files, and unfinished saves."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Unpack

from headrace._base.errors import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionFailedError,
    UnavailableError,
)
from headrace._base.options import require
from headrace._checkpoints.checked_metadata import require_whole
from headrace._checkpoints.names import file_id, ids_in, is_metadata
from headrace._engine import ObjectInfo
from headrace._store.location import bucket_of, directory_of, root_at, scheme_of
from headrace._store.settings import StoreOptions
from headrace._store.store import Store

__all__ = ["Cleaned", "UnfinishedUpload", "clean"]

# Of the objects and files of these names, and of those in `_checkpoint_names`, and of no others,
# anything is ever deleted. Objects are judged by their names behind the temporary prefix.
_PREFIXES = ("dataflux-composed-objects/", "headrace-uploads/")
_TEMPORARY_OBJECT = re.compile(
    r"dataflux-composed-objects/headrace-[0-9a-f]{32}|headrace-uploads/[0-9a-f]{32}/[^/]+"
)
_TEMPORARY_FILE = re.compile(r"\.headrace-tmp-\d+-\d+-\d+")
# What gs-torch-dataflux calls its own.
_DATAFLUX = re.compile(r"dataflux-composed-objects/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_DELETED_AT_A_TIME = 16
_CHUNK = 1000


@dataclass(frozen=True, kw_only=True)
class UnfinishedUpload:
    """A multipart upload that was begun and neither completed nor aborted. Its parts are billed."""

    name: str
    """Of the object that it would have made."""
    upload_id: str
    began: datetime.datetime | None
    """None where the server does not say."""


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What `clean` found, and what became of it.

    Names are those inside the bucket, whole, whatever the store's root is; for a directory they are
    relative to it.
    """

    deleted: list[ObjectInfo] = field(default_factory=list)
    """With ``dry_run``: what would have been deleted."""
    younger: list[ObjectInfo] = field(default_factory=list)
    """Left alone: they may be in use, or are."""
    failed: list[tuple[str, HeadraceError]] = field(default_factory=list)
    """Names that could not be deleted or looked into, and why. The rest was gone on with."""
    uploads: list[str] = field(default_factory=list)
    """Names of multipart uploads that were never completed, and were aborted, with their parts."""
    unfinished: list[UnfinishedUpload] = field(default_factory=list)
    """Old ones on ``s3://`` that were left alone, since anybody may have begun them."""
    dataflux: list[ObjectInfo] = field(default_factory=list)
    """Left alone: these look like composites of gs-torch-dataflux, for its user to judge."""


def clean(
    url: str | os.PathLike[str] | Store = "",
    *,
    store: Store | None = None,
    older_than_s: float = 86400.0,
    checkpoints: bool = False,
    uploads: bool = False,
    dry_run: bool = False,
    on_deleted: Callable[[ObjectInfo], object] | None = None,
    **options: Unpack[StoreOptions],
) -> Cleaned:
    """Delete what headrace left in a bucket or directory when it was killed.

    In a bucket: reading with ``compose_small_objects`` and writing large objects make objects for a
    moment, below ``dataflux-composed-objects/`` and ``headrace-uploads/``, and delete them whatever
    happens, but not when the process is killed. Names of exactly these two forms are deleted, each
    on condition that it is still the object that was listed, and multipart uploads to such names
    that were never completed are aborted. That is done in the whole bucket, whatever the store's
    root is; for a store with a ``temporary_prefix``, below that prefix.

    On ``s3://`` a large write is a multipart upload to the object's own name, and the service does
    not tell who began one. Old uploads below the store's root are therefore listed, in
    `Cleaned.unfinished`, and aborted only with `uploads`; with `checkpoints`, also those to names
    that only files of distributed checkpoints have.

    In a directory, and all below it that is reached without symbolic links: files called
    ``.headrace-tmp-...``, which no living process of this machine is writing. There are few, since
    most file systems let files be written that have no name yet.

    With `checkpoints`, also the files of `headrace.checkpoint.DistributedWriter` that belong to no
    checkpoint, below the store's root, which is listed whole: those of saves that were killed
    before they were complete, and those of a replaced checkpoint that could not be deleted. A file
    stays if any ``.metadata`` in its folder names it, and all stay where one cannot be read or is
    damaged. Files under torch's own names (``__0_0.distcp``), and what symbolic links lead to,
    always stay.

    Args:
        url: of a bucket, of a folder in it, or of a directory; or a `Store`. With `store`: the name
            of a folder there, or a whole URL below the store's; default: the store itself.
        store: where that is, instead of options.
        older_than_s: only what was written so long ago, by this machine's clock, in seconds. On
            ``ais://``, what was neither written nor read since: AIStore keeps no time of the write.
            Default: one day. What is younger may be in use: with `checkpoints` this must be longer
            than any save takes.
        checkpoints: look for files of distributed checkpoints, too.
        uploads: abort all unfinished multipart uploads below the root that are older than
            `older_than_s`, whoever began them: it must be longer than any upload takes. On
            ``s3://``; elsewhere headrace knows its own and aborts them anyway.
        dry_run: look, and delete nothing.
        on_deleted: called for each object that was deleted (with `dry_run`: would be).
        options: of `Store`, if there is none: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such bucket or directory.
        InvalidArgumentError: there are both a store and options of one, or two stores.
        HeadraceError: the listing of objects failed. What fails of a single name is in `failed`.

    Examples:
        >>> left = headrace.clean("gs://bucket", dry_run=True)
        >>> [info.name for info in left.deleted]
        []
    """
    if isinstance(url, Store):
        require(store is None, "there are two stores: the first argument, and store=")
        store, url = url, ""
    found = root_at(url, store, **options)
    require(older_than_s >= 0, f"older_than_s is {older_than_s!r}; it must not be negative")
    sweep = _Sweep(found, older_than_s, dry_run, on_deleted)
    if sweep.root is not None:
        sweep.temporary_files()
    elif scheme_of(found.url) == "s3":
        sweep.temporary_objects()
        sweep.uploads_of_anybody(abort=uploads, checkpoints=checkpoints)
    else:
        sweep.temporary_objects()
        sweep.temporary_uploads()
    if checkpoints:
        sweep.checkpoint_files()
    return sweep.cleaned


class _Sweep:
    """One call of `clean`."""

    def __init__(
        self,
        store: Store,
        older_than_s: float,
        dry_run: bool,
        on_deleted: Callable[[ObjectInfo], object] | None,
    ) -> None:
        self.root = directory_of(store)
        """The directory, if the store is one."""
        # All that follows is about names inside the bucket, whole.
        self._store, root = bucket_of(store)
        self._below = f"{root}/" if root else ""
        temporary = store._settings.gcs.temporary_prefix.rstrip("/")
        self._temporary = f"{temporary}/" if temporary else ""
        self.cleaned = Cleaned()
        self._is_any_age = older_than_s == 0
        self._before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(
            seconds=older_than_s
        )
        self._dry_run = dry_run
        self._on_deleted = on_deleted

    def temporary_objects(self) -> None:
        def old() -> Iterator[ObjectInfo]:
            prefixes = [self._temporary + prefix for prefix in _PREFIXES]
            for info in itertools.chain.from_iterable(map(self._store.list, prefixes)):
                name = info.name.removeprefix(self._temporary)
                if _DATAFLUX.fullmatch(name):
                    self.cleaned.dataflux.append(info)
                elif _TEMPORARY_OBJECT.fullmatch(name) and self._is_old(info):
                    yield info

        self._delete(old(), self._delete_object)

    def temporary_files(self) -> None:
        def old() -> Iterator[ObjectInfo]:
            for name in self._temporary_file_names():
                info = self._store.stat(name, missing_ok=True)
                if info is not None and self._is_old(info):
                    yield info

        self._delete(old(), self._delete_unless_locked)

    def temporary_uploads(self) -> None:
        """Abort those to names that only headrace uses."""
        prefix = self._temporary + _PREFIXES[1]
        try:
            uploads = self._old_uploads(prefix)
        except (CorruptDataError, InvalidArgumentError, NotFoundError):
            return  # a server without the XML API: an emulator
        except HeadraceError as error:
            self.cleaned.failed.append((prefix, error))
            return
        for upload in uploads:
            if _TEMPORARY_OBJECT.fullmatch(upload.name.removeprefix(self._temporary)):
                self._abort(upload)

    def uploads_of_anybody(self, *, abort: bool, checkpoints: bool) -> None:
        """Note those below the root, or abort them."""
        try:
            # MinIO finds nothing by a prefix that is not a whole name.
            uploads = self._old_uploads("")
        except HeadraceError as error:
            self.cleaned.failed.append((self._below, error))
            return
        for upload in uploads:
            if not upload.name.startswith(self._below):
                continue
            is_ours = checkpoints and file_id(upload.name.rpartition("/")[2]) is not None
            if abort or is_ours:
                self._abort(upload)
            else:
                self.cleaned.unfinished.append(upload)

    def _old_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        uploads = [
            UnfinishedUpload(
                name=name,
                upload_id=upload_id,
                began=datetime.datetime.fromisoformat(began) if began else None,
            )
            for name, upload_id, began in self._store._handle().list_uploads(prefix)
        ]
        # Some servers do not say how old it is.
        return [
            upload
            for upload in uploads
            if self._is_any_age or (upload.began is not None and upload.began <= self._before)
        ]

    def _abort(self, upload: UnfinishedUpload) -> None:
        try:
            if not self._dry_run:
                self._store._handle().abort_upload(upload.name, upload.upload_id)
        except HeadraceError as error:
            self.cleaned.failed.append((upload.name, error))
        else:
            self.cleaned.uploads.append(upload.name)

    def checkpoint_files(self) -> None:
        by_folder: dict[str, list[tuple[str, ObjectInfo]]] = {}
        for info in self._store.list(self._below):
            folder, slash, last = info.name.rpartition("/")
            own_id = file_id(last)
            if own_id is not None and not self._is_linked(folder):
                by_folder.setdefault(folder + slash, []).append((own_id, info))

        def old() -> Iterator[ObjectInfo]:
            for folder, files in by_folder.items():
                needed = self._needed_ids(folder)
                if needed is None:
                    continue
                for own_id, info in files:
                    if own_id not in needed and self._is_old(info):
                        yield info

        self._delete(old(), self._delete_object)

    def _needed_ids(self, folder: str) -> set[str] | None:
        """Return the ids of all files that some metadata in `folder` could mean.

        None if one cannot be read, or is damaged: then it could mean any. The metadata is listed
        and read after the files: what was completed meanwhile counts.
        """
        needed: set[str] = set()
        name = folder
        try:
            for entry in self._store.list(folder, delimiter="/"):
                name = entry.name
                if isinstance(entry, ObjectInfo) and is_metadata(name.removeprefix(folder)):
                    data = self._store.read(name).bytes()
                    require_whole(data, self._store.url_of(name))
                    needed |= ids_in(data)
        except HeadraceError as error:
            self.cleaned.failed.append((name, error))
            return None
        return needed

    def _is_linked(self, folder: str) -> bool:
        """Whether symbolic links lead there: it is somewhere else, and not ours to sweep."""
        if self.root is None:
            return False
        root = os.path.realpath(self.root)
        return os.path.realpath(os.path.join(root, folder)) != os.path.normpath(
            os.path.join(root, folder)
        )

    def _is_old(self, info: ObjectInfo) -> bool:
        if self._is_any_age:
            return True
        try:
            written = self._last_change(info)
        except HeadraceError as error:
            self.cleaned.failed.append((info.name, error))
            return False
        if written is not None and written <= self._before:
            return True
        self.cleaned.younger.append(info)
        return False

    def _last_change(self, info: ObjectInfo) -> datetime.datetime | None:
        """Return a time that the object was not written after; None if nobody tells one."""
        if self.root is not None:
            # Tools that copy files keep the time of the last change, but cannot keep this one.
            with contextlib.suppress(OSError):
                changed_s = os.stat(os.path.join(self.root, info.name)).st_ctime
                changed = datetime.datetime.fromtimestamp(changed_s, datetime.UTC)
                return max(info.updated or changed, changed)
        if info.updated is not None:
            return info.updated
        # AIStore tells only when it was last used.
        found = self._store.stat(info.name, missing_ok=True)
        if found is None or found.generation != info.generation:
            return None
        last_use: datetime.datetime | None = found._last_use
        return last_use

    def _temporary_file_names(self) -> Iterator[str]:
        assert self.root is not None
        if not os.path.isdir(self.root):
            error = NotFoundError(f"{self._store.url}: no such directory")
            error.url = self._store.url
            raise error

        def note(error: OSError) -> None:
            try:
                _raise(error)
            except HeadraceError as told:
                self.cleaned.failed.append((os.path.relpath(error.filename, self.root), told))

        for directory, subdirectories, files in os.walk(self.root, onerror=note):
            # Names in URLs are UTF-8: below others nothing is ours.
            subdirectories[:] = filter(_is_utf8, subdirectories)
            for name in filter(_TEMPORARY_FILE.fullmatch, files):
                yield os.path.relpath(os.path.join(directory, name), self.root)

    def _delete_object(self, info: ObjectInfo) -> None:
        if not self._dry_run:
            self._store.delete(info.name, if_generation=info.generation, missing_ok=True)

    def _delete_unless_locked(self, info: ObjectInfo) -> None:
        assert self.root is not None
        try:
            descriptor = os.open(
                os.path.join(self.root, info.name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            )
        except FileNotFoundError:
            return
        except OSError as error:
            _raise(error)
        try:
            # Whoever writes it holds the lock for itself. Where there are no locks, age decides.
            with contextlib.suppress(OSError):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise PreconditionFailedError(f"{info.name}: it is being written") from None
            self._delete_object(info)
        finally:
            os.close(descriptor)

    def _delete(
        self, infos: Iterable[ObjectInfo], delete_one: Callable[[ObjectInfo], object]
    ) -> None:
        # Needed here only, and costly for those who import headrace.
        from concurrent.futures import ThreadPoolExecutor

        def error_of(info: ObjectInfo) -> HeadraceError | None:
            try:
                delete_one(info)
            except HeadraceError as error:
                return error
            return None

        left = iter(infos)
        pool = ThreadPoolExecutor(_DELETED_AT_A_TIME, thread_name_prefix="headrace-clean")
        try:
            while chunk := list(itertools.islice(left, _CHUNK)):
                for info, error in zip(chunk, pool.map(error_of, chunk), strict=True):
                    if error is None:
                        self.cleaned.deleted.append(info)
                        if self._on_deleted is not None:
                            self._on_deleted(info)
                    elif isinstance(error, PreconditionFailedError):
                        self.cleaned.younger.append(info)  # somebody writes it, or has just done so
                    else:
                        self.cleaned.failed.append((info.name, error))
        finally:
            pool.shutdown(cancel_futures=True)


def _raise(error: OSError) -> None:
    """Raise `error` as one of ours; what is gone meanwhile is none."""
    if isinstance(error, FileNotFoundError):
        return
    kind = PermissionDeniedError if isinstance(error, PermissionError) else UnavailableError
    raise kind(f"{error.filename}: {error.strerror}") from error


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
