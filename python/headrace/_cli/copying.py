"""`headrace cp` and `mv`: any store to any store."""

from __future__ import annotations

import dataclasses
import json
import mimetypes
import os
import stat as stat_module
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from headrace import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    MiB,
    NotFoundError,
    ObjectInfo,
    ObjectWriter,
    PermissionDeniedError,
    PreconditionFailedError,
    Sample,
    Store,
)
from headrace._base.errors import add_note
from headrace._cli.large import (
    LARGE_BYTES,
    download,
    has_sum_of,
    send,
    steps_of,
    with_facts,
)
from headrace._cli.listing import chunks
from headrace._cli.location import Connection, Location, missing_bucket, not_found, url_of
from headrace._cli.progress import Progress, progress
from headrace._cli.reading import stat
from headrace._cli.removing import remove_empty
from headrace._cli.report import (
    ExitCode,
    Report,
    Stopped,
    binary_size,
    counted,
    exit_code_of,
    shown,
)
from headrace._cli.wildcards import as_name, expanded
from headrace._cli.workers import Workers
from headrace._store.location import is_local
from headrace._store.moved_files import as_it_is, link_in, remove_moved

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Copied", "Copy", "copy_stdin", "cp", "refuse_inside", "tree"]

_BATCH_COUNT = 64
_BATCH_BYTES = 32 * MiB
_AHEAD_BYTES = 128 * MiB  # read, or being read, and not yet handed to a thread that writes
_HELD_BYTES = 128 * MiB  # being written, or waiting for that
_LARGE_AT_A_TIME = 2
# Only what Python itself knows: with the tables of a machine, copies from two would differ.
_TYPES = mimetypes.MimeTypes(filenames=())


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What became of the objects of one `cp`, `mv` or `sync`."""

    copied: int = 0
    copied_bytes: int = 0
    skipped: int = 0
    """There already, and equal, or --no-clobber; or marks of folders, where a directory is none."""
    failed: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True)
class Item:
    """One object to copy."""

    source: Store
    info: ObjectInfo
    destination: Store
    name: str
    there: ObjectInfo | None = None
    """What lies in the bucket at the destination, if that was listed."""
    skips_equal: bool = False
    """Whether an equal object at the destination is left alone; in a bucket, `there` tells."""
    link: Literal["", "itself", "above"] = ""
    """Of what is moved: whether it is a symbolic link, or a folder above it in its tree is one."""


class _End(NamedTuple):
    """What is left to do for a moved file: its source goes."""

    item: Item
    how: dict[str, int] | None
    """How its copy was counted; None if it is to be renamed."""


class There:
    """What lies at a destination in a bucket, asked for in the order of the names."""

    # So many names that are passed over cost more than a new listing that begins behind them.
    _PASSED_CHUNKS = 4

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._listing: Iterator[list[ObjectInfo]] = chunks(store, prefix)
        self._ahead: deque[ObjectInfo] = deque()
        self._is_at_end = False

    def find(self, name: str) -> ObjectInfo | None:
        """Return the object called `name`; names come in byte order.

        Raises:
            NotFoundError: there is no such bucket.
        """
        key = name.encode()
        passed = 0
        while True:
            while self._ahead and self._ahead[0].name.encode() < key:
                self._ahead.popleft()
            if self._ahead:
                return self._ahead[0] if self._ahead[0].name == name else None
            if self._is_at_end:
                return None
            if passed == self._PASSED_CHUNKS:
                self._listing = chunks(self._store, self._prefix, name)
            try:
                self._ahead.extend(next(self._listing))
            except StopIteration:
                self._is_at_end = True
            except PermissionDeniedError:  # it may be written, and not listed
                self._is_at_end = True
            passed += 1


def cp(
    sources: Sequence[Location],
    destination: Location,
    connection: Connection,
    report: Report,
    *,
    recursive: bool,
    no_clobber: bool,
    parallel: int,
    moves: bool = False,
) -> None:
    """Copy `sources` to `destination`, tell what failed, and go on with the others.

    Args:
        recursive: copy what lies below the sources.
        no_clobber: leave alone what is there already.
        parallel: how many objects are written at a time.
        moves: delete each source once it is at its destination.
    """
    goes_inside = destination.is_folder or destination.is_directory
    if not goes_inside:
        only = as_name(sources[0]) if len(sources) == 1 else None
        if only is None:
            raise InvalidArgumentError(
                f"{destination.url}: several sources need a folder as destination: end it with '/'"
            )
        sources = [only]
    copy = Copy(connection, report, progress(report), no_clobber=no_clobber, moves=moves)
    copy.run(_items(sources, destination, goes_inside, recursive, copy), parallel)
    if moves and recursive:
        for source in sources:
            if source.is_directory:
                remove_empty(f"/{source.name}", keeps_root=source.is_folder)


def copy_stdin(
    destination: Location, connection: Connection, report: Report, *, no_clobber: bool
) -> None:
    """Write what stdin gives as one object, by parallel parts while more comes."""
    if destination.is_folder or destination.is_directory:
        raise InvalidArgumentError(
            f"{destination.url}: what stdin gives needs a name, not a folder"
        )
    if sys.stdin is None:  # whoever started us has closed it
        raise InvalidArgumentError("'-' as SOURCE: stdin is closed")
    copy = Copy(connection, report, Progress(), no_clobber=no_clobber)
    copy.write_stdin(destination)


# ---- what is copied where


def _items(
    sources: Sequence[Location],
    destination: Location,
    goes_inside: bool,
    recursive: bool,
    copy: Copy,
) -> Iterator[Item]:
    taken: set[str] = set()
    # Of several trees that become one: whatever is found twice is copied once, and told.
    names: set[str] | None = set() if recursive and len(sources) > 1 else None
    for source in _each(sources, recursive, copy):
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
                refuse_inside(source, dataclasses.replace(destination, name=root))
                for item in tree(source, destination, root, copy):
                    if names is not None and item.name in names:
                        copy.stays(item)
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
                link = _link_of(source, source.name) if copy.moves else ""
                yield Item(source.store, stat(source), destination.store, root, link=link)
        except (HeadraceError, OSError) as error:
            if recursive and not isinstance(error, InvalidArgumentError | NotFoundError):
                copy.keeps_files = True  # what could not be listed may be a link to one
            copy.failed(missing_bucket(error, source.store) or error)


def _each(sources: Sequence[Location], recursive: bool, copy: Copy) -> Iterator[Location]:
    """Yield the sources, and what patterns among them match; of prefixes only if `recursive`."""
    for source in sources:
        if not source.is_pattern:
            yield source
            continue
        try:
            for found in expanded([source], prefixes=recursive):
                # As a shell would say it, unless the pattern itself asks for what lies below.
                keeps_slash = found.info is not None or source.is_folder
                yield found if keeps_slash else found.without_slash
        except (HeadraceError, OSError) as error:
            copy.failed(missing_bucket(error, source.store) or error)


def tree(source: Location, destination: Location, root: str, copy: Copy) -> Iterator[Item]:
    """Yield the object `source` and all below it, to the same places at and below `root`."""
    is_empty = True
    keeps = not (source.is_file and destination.is_file)  # files have no sums to compare
    if not source.is_folder:
        info = source.info or source.store.stat(source.name, missing_ok=True)
        if info is not None:
            is_empty = False
            there = None
            if keeps and not destination.is_file:
                there = destination.store.stat(root, missing_ok=True)
            link = _link_of(source, info.name) if copy.moves else ""
            yield Item(source.store, info, destination.store, root, there, keeps, link)
    below = f"{root}/" if root and not root.endswith("/") else root
    at_place = There(destination.store, below) if keeps and not destination.is_file else None
    for chunk in chunks(source.store, source.below):
        is_empty = is_empty and not chunk
        for info in chunk:
            name = below + info.name[len(source.below) :]
            # Objects that stand for an empty folder: for files, folders come by themselves.
            if not name or (name.endswith("/") and not info.size_bytes and destination.is_file):
                copy.count(skipped=1)
                continue
            there = None
            if at_place is not None:
                try:
                    there = at_place.find(name)
                except NotFoundError as error:
                    raise missing_bucket(error, destination.store) or error from None
            link = _link_of(source, info.name) if copy.moves else ""
            yield Item(source.store, info, destination.store, name, there, keeps, link)
    if is_empty and source.name and not source.is_directory:
        raise not_found(source, "no object, and nothing below it")


def refuse_inside(source: Location, destination: Location) -> None:
    """Refuse a destination at or below the source: a copy would find what it has written.

    Raises:
        InvalidArgumentError: it lies there.
    """
    if source.store is not destination.store:
        return
    above, below = source.below, destination.name
    if source.is_file:
        above = os.path.realpath(f"/{above}")
        below = os.path.realpath(f"/{below}")
        above = above if above.endswith("/") else f"{above}/"
    if f"{below}/".startswith(above):
        raise InvalidArgumentError(
            f"{source.url}: cannot be copied into itself ({destination.url})"
        )


# ---- copying


class Copy:
    """One `cp`, `mv` or `sync` in progress.

    Args:
        no_clobber: leave alone what is there already.
        moves: delete each source once it, or an equal object, is at its destination; files once
            everything was read that can be a link to them.
        dry_run: say what would be copied, and copy nothing.
    """

    def __init__(
        self,
        connection: Connection,
        report: Report,
        shown_progress: Progress,
        *,
        no_clobber: bool = False,
        moves: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._connection = connection
        self._report = report
        self._progress = shown_progress
        self._if_generation = "absent" if no_clobber else None
        self.moves, self._dry_run = moves, dry_run
        self.keeps_files = False
        """Whether what is moved may have links to files that were not read: then all files stay."""
        self._ends: list[_End] = []
        self._lock = threading.Lock()
        self._copied = Copied()
        self._begin_s = time.monotonic()
        self._large = threading.BoundedSemaphore(_LARGE_AT_A_TIME)
        self._given_up = False  # whatever is still to be copied would fail in the same way

    def run(self, items: Iterator[Item], parallel: int) -> None:
        """Copy `items`, and tell how many there were, also when it ends early."""
        try:
            with Workers(parallel, _HELD_BYTES, self._report) as workers:
                found = self._found(items)
                if self._dry_run:
                    for item in found:
                        workers.submit(partial(self._settle, item, self._say_would))
                    found = iter(())
                for (source, destination), group in groupby(
                    found, key=lambda item: (item.source, item.destination)
                ):
                    if source is destination:
                        for item in group:
                            if self._is_file_to_move(item) and not item.link:
                                self._ends.append(_End(item, None))
                            else:
                                workers.submit(partial(self._settle, item, self._copy))
                    else:
                        self._transfer(source, self._batches(group, workers), workers)
                self._progress.found_all()
            for names_of_files in self._ends_in_order():
                with Workers(parallel, _HELD_BYTES, self._report) as workers:
                    for names in names_of_files:
                        workers.submit(partial(self._end, names))
        finally:
            self._tell()

    def write_stdin(self, destination: Location) -> None:
        """Write what stdin gives, on this thread."""
        name = destination.name

        def steps(writer: ObjectWriter) -> Iterator[int]:
            while piece := sys.stdin.buffer.read(MiB):
                yield writer.write(piece)

        try:
            written = send(
                steps,
                self._connection.patient_store(destination.store.url),
                name,
                None,
                content_type=_TYPES.guess_type(f"/{name}")[0],
                content_encoding=None,
                if_generation=self._if_generation,
                # Ctrl-C also ends whoever writes to us: what has come then is not all.
                check=self._report.check,
            )
            self.count(copied=1, copied_bytes=written.size_bytes)
        except PreconditionFailedError as error:
            if self._if_generation is None:
                self.failed(error)
            else:
                self.count(skipped=1)
        except (HeadraceError, OSError) as error:
            self.failed(missing_bucket(error, destination.store) or error)
        finally:
            self._tell()

    def _found(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            self._report.check()
            if self._given_up:
                return
            self._progress.found(item.info.size_bytes)
            yield item

    def _batches(self, items: Iterable[Item], workers: Workers) -> Iterator[list[Item]]:
        """Yield what is small enough to be held in memory; send what is not on its way."""
        batch: list[Item] = []
        batch_bytes = 0
        for item in items:
            if item.info.size_bytes > LARGE_BYTES:
                workers.submit(partial(self._settle_large, item))
                continue
            batch.append(item)
            batch_bytes += item.info.size_bytes
            if len(batch) == _BATCH_COUNT or batch_bytes >= _BATCH_BYTES:
                yield self._wanted(batch, workers)
                batch, batch_bytes = [], 0
        if batch:
            yield self._wanted(batch, workers)

    def _wanted(self, batch: list[Item], workers: Workers) -> list[Item]:
        """Leave out what need not be read: it may not replace what is there, or equals it."""
        asked = [
            (item, workers.submit(partial(self._can_stay, item)) if self._asks(item) else None)
            for item in batch
        ]
        wanted = []
        for item, answer in asked:
            if answer is not None and answer.result():
                workers.submit(partial(self._settle, item, _stays))
            else:
                wanted.append(item)
        return wanted

    def _transfer(self, source: Store, batches: Iterator[list[Item]], workers: Workers) -> None:
        """Read batch after batch, and hand each object to a thread that writes it."""
        under_way: deque[list[Item]] = deque()

        def infos() -> Iterator[list[ObjectInfo]]:
            for batch in batches:
                under_way.append(batch)
                yield [item.info for item in batch]

        read: Iterator[list[Sample | HeadraceError]] = source.read_batches(
            infos(), prefetch_bytes=_AHEAD_BYTES, on_error="return"
        )
        for samples in read:
            for item, sample in zip(under_way.popleft(), samples, strict=True):
                if isinstance(sample, HeadraceError):
                    self._failed(item, sample)
                else:
                    work = partial(self._write, data=sample)
                    workers.submit(partial(self._settle, item, work), item.info.size_bytes)

    # ---- one object, on a thread of the workers

    def _settle(self, item: Item, work: Callable[[Item], ObjectInfo | None]) -> None:
        """Do the work for one object, and count how it ended."""
        if self._given_up:
            return
        try:
            try:
                written = work(item)
                if written is not None:
                    _verify(item, written)
                how = {"copied": 1, "copied_bytes": item.info.size_bytes}
            except _ThereAlreadyError:
                how = {"skipped": 1}
            if not self._leaves_source(item, was_copied="copied" in how):
                if "skipped" in how:
                    self.stays(item)
            elif self._is_file_to_move(item):
                with self._lock:
                    self._ends.append(_End(item, how))
                return
            else:
                self._remove_source(item)
        except Stopped:
            raise
        except Exception as error:  # nobody else would tell of it
            self._failed(item, error)
        else:
            self.count(**how)
            self._progress.done(item.info.size_bytes)

    def _leaves_source(self, item: Item, *, was_copied: bool) -> bool:
        """Whether the source is still there, and is to go."""
        if was_copied:
            is_renamed = item.source is item.destination and not item.link
            return self.moves and not is_renamed
        return (
            self.moves and self._if_generation is None
        )  # with --no-clobber, what is there may be anything

    def _remove_source(self, item: Item) -> None:
        if item.link == "above":
            self._report.note(
                f"{url_of(item.source, item.info.name)} lies behind a symbolic link to a folder: "
                "it was copied, and stays"
            )
            return
        try:
            remove_moved(item.source, item.info.name, item.info.generation)
        except (HeadraceError, OSError) as error:
            add_note(
                error, f"{url_of(item.destination, item.name)} is whole: now both objects are there"
            )
            raise

    # ---- files that are moved: their sources go last, because others can be links to them

    def _is_file_to_move(self, item: Item) -> bool:
        return self.moves and is_local(item.source.url)

    def stays(self, item: Item) -> None:
        """Note that an object is not moved; if it is a link, the file it leads to stays, too."""
        if item.link:
            self.keeps_files = True

    def _ends_in_order(self) -> Iterator[Iterable[list[_End]]]:
        """Yield the links, then the files whose sources go; names of one file go one by one."""
        if self._given_up or not self._ends:
            return
        if self.keeps_files:
            self._report.note(
                f"{counted(len(self._ends), 'file')} stay at the source, because a link, or a "
                "folder, could not be moved, and may lead to them; run it again"
            )
            for end in self._ends:
                self.count(**(end.how or {"skipped": 1}))
                self._progress.done(end.item.info.size_bytes)
            return
        yield ([end] for end in self._ends if end.item.link)
        files: dict[str, list[_End]] = {}
        for end in self._ends:
            if not end.item.link:
                files.setdefault(end.item.info.generation, []).append(end)
        yield files.values()

    def _end(self, names: list[_End]) -> None:
        for i, (item, how) in enumerate(names):
            if i > 0:  # the file is of another generation since one of its names has gone
                item = dataclasses.replace(item, info=as_it_is(item.source, item.info))
            if how is None:
                self._settle(item, self._copy)
                continue
            try:
                self._remove_source(item)
            except Stopped:
                raise
            except Exception as error:
                self._failed(item, error)
            else:
                self.count(**how)
                self._progress.done(item.info.size_bytes)

    def _say_would(self, item: Item) -> None:
        if self._asks(item) and self._can_stay(item):
            raise _ThereAlreadyError
        source, there = url_of(item.source, item.info.name), url_of(item.destination, item.name)
        facts = {"type": "would_copy", "url": source, "destination": there}
        line = f"would copy {shown(source)} to {shown(there)}"
        with self._lock:
            print(json.dumps(facts) if self._report.as_json else line)

    def _write(self, item: Item, data: Buffer) -> ObjectInfo:
        # Files have no type.
        info = item.info if is_local(item.destination.url) else with_facts(item.source, item.info)
        try:
            return item.destination.write(
                item.name,
                data,
                if_generation=self._if_generation,
                content_type=_type_of(item.name, info),
                content_encoding=info.content_encoding,
            )
        except PreconditionFailedError as error:
            if self._if_generation is None:
                raise
            raise _ThereAlreadyError from error

    def _copy(self, item: Item) -> ObjectInfo:
        """Let the store copy within itself."""
        if item.info.name == item.name:
            raise InvalidArgumentError(
                f"{url_of(item.source, item.name)}: source and destination are the same object"
            )
        if self._can_stay(item):
            raise _ThereAlreadyError
        is_renamed = self.moves and not item.link
        within = item.destination.rename if is_renamed else item.destination.copy
        try:
            return within(item.info, item.name, if_generation=self._if_generation)
        except PreconditionFailedError as error:
            # It may also be the source that is no longer what was listed.
            if self._is_there(item):
                raise _ThereAlreadyError from error
            raise

    def _settle_large(self, item: Item) -> None:
        """Copy an object that memory is too small for, and count how it ended."""
        shown_bytes = 0

        def arrived(size_bytes: int) -> None:
            nonlocal shown_bytes
            with self._lock:
                shown_bytes += size_bytes
            self._progress.arrived(size_bytes)

        def work(item: Item) -> ObjectInfo | None:
            with self._large:
                self._report.check()
                if self._given_up or self._can_stay(item):
                    raise _ThereAlreadyError
                try:
                    return self._large_copy(item, arrived)
                finally:
                    self._progress.arrived(-shown_bytes)  # it is counted as a whole

        self._settle(item, work)

    def _large_copy(self, item: Item, arrived: Callable[[int], object]) -> ObjectInfo | None:
        check = self._report.check
        info = with_facts(item.source, item.info)
        if is_local(item.destination.url):
            item.destination.stat(item.name, missing_ok=True)  # refuses what cannot be a name
            try:
                download(
                    item.source,
                    info,
                    f"/{item.name}",
                    may_replace=self._if_generation is None,
                    on_bytes=arrived,
                    check=check,
                )
            except FileExistsError as error:
                raise _ThereAlreadyError from error
            return None  # it was compared with what was listed
        store = self._connection.patient_store(item.destination.url)
        try:
            return send(
                partial(steps_of, item.source, info, arrived),
                store,
                item.name,
                info,
                content_type=_type_of(item.name, info),
                content_encoding=info.content_encoding,
                if_generation=self._if_generation,
                check=check,
            )
        except PreconditionFailedError as error:
            # It may also be the source that is no longer what was listed.
            if self._if_generation is not None and self._is_there(item):
                raise _ThereAlreadyError from error
            raise

    @property
    def failed_count(self) -> int:
        """Of objects, and of sources."""
        return self._copied.failed

    # ---- what is at the destination

    def _asks(self, item: Item) -> bool:
        """Whether `_can_stay` would have to ask, or to look."""
        return (
            self._if_generation is not None
            or item.there is not None
            or (item.skips_equal and is_local(item.destination.url))
        )

    def _can_stay(self, item: Item) -> bool:
        """Whether what is at the destination is to be left alone."""
        if self._if_generation is not None:
            return self._is_there(item)
        return item.skips_equal and _is_equal(item)

    def _is_there(self, item: Item) -> bool:
        """Whether the object may not be written because there is one."""
        if self._if_generation is None:
            return False
        if item.skips_equal and not is_local(item.destination.url):
            return item.there is not None  # as it was listed; writing makes sure
        try:
            return item.destination.exists(item.name)
        except HeadraceError:
            return False  # writing it tells what is wrong

    # ---- counting

    def _failed(self, item: Item, error: Exception) -> None:
        self.stays(item)
        self._progress.done(item.info.size_bytes)
        if self._given_up:
            return
        missing = missing_bucket(error, item.destination)
        if missing is not None:
            with self._lock:
                is_first, self._given_up = not self._given_up, True
            if is_first:
                self.failed(missing)
            return
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
        if self._dry_run:
            self._report.note(
                f"would copy {counted(copied.copied, 'object')}, "
                f"{binary_size(copied.copied_bytes)}; {copied.skipped} are there already"
            )
            return
        if self._report.as_json:
            print(json.dumps(dataclasses.asdict(copied)), flush=True)
            return
        rate = binary_size(copied.copied_bytes / max(duration_s, 1e-9))
        done = "moved" if self.moves else "copied"
        self._report.note(
            f"{done} {counted(copied.copied, 'object')}, {binary_size(copied.copied_bytes)} "
            f"in {duration_s:.1f} s ({rate}/s)"
            + (f"; {copied.skipped} skipped" if copied.skipped else "")
            + (f"; {copied.failed} failed" if copied.failed else "")
        )


class _ThereAlreadyError(Exception):
    """There is an object of this name: an equal one, or with --no-clobber any."""


def _stays(_: Item) -> None:
    raise _ThereAlreadyError


def _link_of(source: Location, name: str) -> Literal["", "itself", "above"]:
    return link_in(f"/{source.name}", f"/{name}") if source.is_file else ""


def _type_of(name: str, info: ObjectInfo) -> str | None:
    return info.content_type or _TYPES.guess_type(f"/{name}")[0]


def _is_equal(item: Item) -> bool:
    """Return whether what is at the destination has the size and the sum of what is copied."""
    try:
        if is_local(item.destination.url):
            path = f"/{item.name}"
            there = os.lstat(path)
            if not stat_module.S_ISREG(there.st_mode) or there.st_size != item.info.size_bytes:
                return False
            return has_sum_of(path, with_facts(item.source, item.info))
        if item.there is None or item.there.size_bytes != item.info.size_bytes:
            return False
        there_now = with_facts(item.destination, item.there)
        if is_local(item.source.url):
            return has_sum_of(f"/{item.info.name}", there_now)
        sum_here = with_facts(item.source, item.info).checksum
        return sum_here is not None and sum_here == there_now.checksum
    except (HeadraceError, OSError):
        return False  # copying it tells what is wrong


def _verify(item: Item, written: ObjectInfo) -> None:
    """Compare what was written with what was listed, where both stores keep sums of one kind."""
    read_sum, written_sum = item.info.checksum or ("", b""), written.checksum or ("", b"")
    differ = read_sum[0] == written_sum[0] and read_sum != written_sum
    if differ or written.size_bytes != item.info.size_bytes:
        error = CorruptDataError(
            f"{item.destination.url_of(item.name)}: what was written is not what was read"
        )
        error.url = item.destination.url_of(item.name)
        raise error
