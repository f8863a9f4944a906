"""`headrace cp`: any store to any store."""

from __future__ import annotations

import dataclasses
import json
import mimetypes
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from headrace import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    MiB,
    ObjectInfo,
    PreconditionFailedError,
    Sample,
    Store,
)
from headrace._cli.listing import pages
from headrace._cli.location import Connection, Location, not_found, url_of
from headrace._cli.progress import Progress, progress
from headrace._cli.reading import LARGE_BYTES, spooled, stat
from headrace._cli.report import ExitCode, Report, Stopped, binary_size, counted, exit_code_of
from headrace._cli.workers import Workers

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Copied", "copy_stdin", "cp"]

_BATCH_COUNT = 64
_BATCH_BYTES = 32 * MiB
_AHEAD_BYTES = 128 * MiB  # read, or being read, and not yet handed to a thread that writes
_HELD_BYTES = 128 * MiB  # being written, or waiting for that
_LARGE_AT_A_TIME = 2
# Only what Python itself knows: with the tables of a machine, copies from two would differ.
_TYPES = mimetypes.MimeTypes(filenames=())


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What became of the objects of one `cp`."""

    copied: int = 0
    copied_bytes: int = 0
    skipped: int = 0
    """There already, with --no-clobber; or marks of folders, where a directory is none."""
    failed: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True)
class _Item:
    """One object to copy."""

    source: Store
    info: ObjectInfo
    destination: Store
    name: str


def cp(
    sources: Sequence[Location],
    destination: Location,
    connection: Connection,
    report: Report,
    *,
    recursive: bool,
    no_clobber: bool,
    parallel: int,
) -> None:
    """Copy `sources` to `destination`, tell what failed, and go on with the others.

    Args:
        recursive: copy what lies below the sources.
        no_clobber: leave alone what is there already.
        parallel: how many objects are written at a time.
    """
    goes_inside = destination.is_folder or destination.is_directory
    if len(sources) > 1 and not goes_inside:
        raise InvalidArgumentError(
            f"{destination.url}: several sources need a folder as destination: end it with '/'"
        )
    copy = _Copy(connection, report, progress(report), no_clobber=no_clobber)
    copy.run(_items(sources, destination, goes_inside, recursive, copy), parallel)


def copy_stdin(
    destination: Location, connection: Connection, report: Report, *, no_clobber: bool
) -> None:
    """Write what stdin gives as one object."""
    if destination.is_folder or destination.is_directory:
        raise InvalidArgumentError(
            f"{destination.url}: what stdin gives needs a name, not a folder"
        )
    data: Buffer = sys.stdin.buffer.read(LARGE_BYTES + 1)
    size_bytes = len(data)  # type: ignore[arg-type]
    store = destination.store
    if size_bytes > LARGE_BYTES:
        with tempfile.TemporaryFile(prefix="headrace-") as file:
            file.write(data)
            shutil.copyfileobj(sys.stdin.buffer, file, MiB)
            size_bytes = file.tell()
            file.flush()
            data = mmap.mmap(file.fileno(), size_bytes)
        store = connection.patient_store(store.url)
    report.check()  # Ctrl-C also ends who wrote to us: that was not all then
    copy = _Copy(connection, report, Progress(), no_clobber=no_clobber)
    copy.write_one(_Item(store, ObjectInfo("", size_bytes), store, destination.name), data)


# ---- what is copied where


def _items(
    sources: Sequence[Location],
    destination: Location,
    goes_inside: bool,
    recursive: bool,
    copy: _Copy,
) -> Iterator[_Item]:
    taken: set[str] = set()
    # Of several trees that become one: whatever is found twice is copied once, and told.
    names: set[str] | None = set() if recursive and len(sources) > 1 else None
    for source in sources:
        root = destination.name
        if goes_inside:
            root = destination.below + source.last_name
        try:
            if root in taken and source.last_name:
                raise InvalidArgumentError(
                    f"{source.url}: another source has the same last name, and would be overwritten"
                )
            taken.add(root)
            if recursive:
                _refuse_own_inside(source, destination.store, root)
                for item in _tree(source, destination, root, copy):
                    if names is not None and item.name in names:
                        copy.failed(
                            InvalidArgumentError(
                                f"{url_of(item.source, item.info.name)}: another source gives "
                                f"{url_of(item.destination, item.name)}, too"
                            )
                        )
                        continue
                    if names is not None:
                        names.add(item.name)
                    yield item
            else:
                yield _Item(source.store, stat(source), destination.store, root)
        except (HeadraceError, OSError) as error:
            copy.failed(error)


def _tree(source: Location, destination: Location, root: str, copy: _Copy) -> Iterator[_Item]:
    """Yield the object `source` and all below it, to the same places at and below `root`."""
    is_empty = True
    if not source.is_folder:
        info = source.store.stat(source.name, missing_ok=True)
        if info is not None:
            is_empty = False
            yield _Item(source.store, info, destination.store, root)
    below = f"{root}/" if root and not root.endswith("/") else root
    for page in pages(source.store, source.below, recursive=True):
        is_empty = is_empty and not page.objects
        for info in page.objects:
            name = below + info.name[len(source.below) :]
            # Objects that stand for an empty folder: for files, folders come by themselves.
            if not name or (name.endswith("/") and not info.size_bytes and destination.is_file):
                copy.count(skipped=1)
                continue
            yield _Item(source.store, info, destination.store, name)
    if is_empty and source.name and not source.is_directory:
        raise not_found(source, "no object, and nothing below it")


def _refuse_own_inside(source: Location, destination: Store, root: str) -> None:
    """Without this, a copy would find what it has written, and copy that."""
    if source.store is not destination:
        return
    above, below = source.below, root
    if source.is_file:
        above = os.path.realpath(f"/{above}")
        below = os.path.realpath(f"/{below}")
        above = above if above.endswith("/") else f"{above}/"
    if f"{below}/".startswith(above):
        raise InvalidArgumentError(
            f"{source.url}: cannot be copied into itself ({url_of(destination, root)})"
        )


# ---- copying


class _Copy:
    """One `cp` in progress."""

    def __init__(
        self, connection: Connection, report: Report, shown_progress: Progress, *, no_clobber: bool
    ) -> None:
        self._connection = connection
        self._report = report
        self._progress = shown_progress
        self._if_generation = "absent" if no_clobber else None
        self._lock = threading.Lock()
        self._copied = Copied()
        self._begin_s = time.monotonic()
        self._spooling = threading.BoundedSemaphore(_LARGE_AT_A_TIME)

    def run(self, items: Iterator[_Item], parallel: int) -> None:
        """Copy `items`, and tell how many there were, also when it ends early."""
        try:
            with Workers(parallel, _HELD_BYTES, self._report) as workers:
                found = self._found(items)
                for (source, destination), group in groupby(
                    found, key=lambda item: (item.source, item.destination)
                ):
                    if source is destination:
                        for item in group:
                            workers.submit(partial(self._settle, item, self._copy))
                    else:
                        self._transfer(source, self._batches(group, workers), workers)
                self._progress.found_all()
        finally:
            self._tell()

    def write_one(self, item: _Item, data: Buffer) -> None:
        """Write one object on this thread."""
        try:
            self._settle(item, partial(self._write, data=data))
        finally:
            self._tell()

    def _found(self, items: Iterator[_Item]) -> Iterator[_Item]:
        for item in items:
            self._report.check()
            self._progress.found(item.info.size_bytes)
            yield item

    def _batches(self, items: Iterable[_Item], workers: Workers) -> Iterator[list[_Item]]:
        """Yield what is small enough to be held in memory; send what is not on its way."""
        batch: list[_Item] = []
        batch_bytes = 0
        for item in items:
            if item.info.size_bytes > LARGE_BYTES:
                workers.submit(partial(self._settle, item, self._spool))
                continue
            batch.append(item)
            batch_bytes += item.info.size_bytes
            if len(batch) == _BATCH_COUNT or batch_bytes >= _BATCH_BYTES:
                yield self._absent(batch, workers)
                batch, batch_bytes = [], 0
        if batch:
            yield self._absent(batch, workers)

    def _absent(self, batch: list[_Item], workers: Workers) -> list[_Item]:
        """Leave out what need not be read, since it may not replace what is there."""
        if self._if_generation is None:
            return batch
        asked = [workers.submit(partial(self._is_there, item)) for item in batch]
        wanted = []
        for item, there in zip(batch, asked, strict=True):
            if there.result():
                self._skipped(item)
            else:
                wanted.append(item)
        return wanted

    def _transfer(self, source: Store, batches: Iterator[list[_Item]], workers: Workers) -> None:
        """Read batch after batch, and hand each object to a thread that writes it."""
        under_way: deque[list[_Item]] = deque()

        def infos() -> Iterator[list[ObjectInfo]]:
            for batch in batches:
                under_way.append(batch)
                yield [item.info for item in batch]

        read: Iterator[list[Sample | HeadraceError]] = source.read_batches(
            infos(), prefetch_bytes=_AHEAD_BYTES, errors="return"
        )
        for samples in read:
            for item, sample in zip(under_way.popleft(), samples, strict=True):
                if isinstance(sample, HeadraceError):
                    self._failed(item, sample)
                else:
                    work = partial(self._write, data=sample)
                    workers.submit(partial(self._settle, item, work), item.info.size_bytes)

    # ---- one object, on a thread of the workers

    def _settle(self, item: _Item, work: Callable[[_Item], ObjectInfo]) -> None:
        """Do the work for one object, and count how it ended."""
        try:
            _verify(item, work(item))
        except _ThereAlreadyError:
            self._skipped(item)
        except Stopped:
            raise
        except Exception as error:  # nobody else would tell of it
            self._failed(item, error)
        else:
            self.count(copied=1, copied_bytes=item.info.size_bytes)
            self._progress.done(item.info.size_bytes)

    def _write(self, item: _Item, data: Buffer, store: Store | None = None) -> ObjectInfo:
        content_type = item.info.content_type or _TYPES.guess_type(f"/{item.name}")[0]
        try:
            return (store or item.destination).write(
                item.name,
                data,
                if_generation=self._if_generation,
                content_type=content_type,
                content_encoding=item.info.content_encoding,
            )
        except PreconditionFailedError as error:
            if self._if_generation is None:
                raise
            raise _ThereAlreadyError from error

    def _copy(self, item: _Item) -> ObjectInfo:
        """Let the store copy within itself."""
        if item.info.name == item.name:
            raise InvalidArgumentError(
                f"{url_of(item.source, item.name)}: source and destination are the same object"
            )
        if self._is_there(item):
            raise _ThereAlreadyError
        try:
            return item.destination.copy(item.info, item.name, if_generation=self._if_generation)
        except PreconditionFailedError as error:
            # It may also be the source that is no longer what was listed.
            if self._is_there(item):
                raise _ThereAlreadyError from error
            raise

    def _spool(self, item: _Item) -> ObjectInfo:
        """Copy a large object by way of a temporary file."""
        with self._spooling:
            self._report.check()
            if self._is_there(item):
                raise _ThereAlreadyError
            store = self._connection.patient_store(item.destination.url)
            return self._write(item, spooled(item.source, item.info), store)

    def _is_there(self, item: _Item) -> bool:
        """Whether the object may not be written because there is one."""
        if self._if_generation is None:
            return False
        try:
            return item.destination.exists(item.name)
        except HeadraceError:
            return False  # writing it tells what is wrong

    # ---- counting

    def _skipped(self, item: _Item) -> None:
        self.count(skipped=1)
        self._progress.done(item.info.size_bytes)

    def _failed(self, item: _Item, error: Exception) -> None:
        self._progress.done(item.info.size_bytes)
        # A name that its destination does not take says nothing about the command line.
        code = exit_code_of(error)
        self.failed(error, ExitCode.FAILED if code is ExitCode.USAGE else code)

    def failed(self, error: Exception, code: ExitCode | None = None) -> None:
        """Tell of an object, or a source, that was not copied."""
        self._report.check()
        self.count(failed=1)
        self._report.error(error, code=code)

    def count(self, **more: int) -> None:
        """Add to what is told in the end."""
        with self._lock:
            sums = {name: getattr(self._copied, name) + value for name, value in more.items()}
            self._copied = dataclasses.replace(self._copied, **sums)

    def _tell(self) -> None:
        duration_s = time.monotonic() - self._begin_s
        copied = dataclasses.replace(self._copied, duration_s=round(duration_s, 6))
        self._progress.close()
        if self._report.as_json:
            print(json.dumps(dataclasses.asdict(copied)), flush=True)
            return
        rate = binary_size(copied.copied_bytes / max(duration_s, 1e-9))
        self._report.note(
            f"copied {counted(copied.copied, 'object')}, {binary_size(copied.copied_bytes)} "
            f"in {duration_s:.1f} s ({rate}/s)"
            + (f"; {copied.skipped} skipped" if copied.skipped else "")
            + (f"; {copied.failed} failed" if copied.failed else "")
        )


class _ThereAlreadyError(Exception):
    """With --no-clobber: there is an object of this name."""


def _verify(item: _Item, written: ObjectInfo) -> None:
    """Compare what was written with what was listed, where both stores keep a sum."""
    sums = {item.info.crc32c, written.crc32c} - {None}
    if written.size_bytes != item.info.size_bytes or len(sums) > 1:
        error = CorruptDataError(
            f"{item.destination.url_of(item.name)}: what was written is not what was read"
        )
        error.url = item.destination.url_of(item.name)
        raise error
