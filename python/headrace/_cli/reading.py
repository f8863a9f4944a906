"""`headrace cat`, and how an object of any size is read and checked."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import headrace
from headrace import HeadraceError, NotFoundError, ObjectInfo, Sample, Store
from headrace._cli.large import LARGE_BYTES, with_facts
from headrace._cli.location import Location, missing_bucket, not_found
from headrace._cli.report import Report
from headrace._cli.workers import Workers
from headrace._files.whole_sum import crc_of, tell_not_compared

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer

__all__ = ["cat", "spooled", "stat"]

_AHEAD = 4


def stat(location: Location, *, of_folders: str = "cp -r") -> ObjectInfo:
    """Return what is known of the object.

    Args:
        of_folders: the command for what is a folder, which the error names.

    Raises:
        NotFoundError: it is missing, its bucket is, or there are only objects below it.
    """
    if location.info is not None:
        return location.info
    if location.is_folder or location.is_directory:
        raise _no_object(location, of_folders)
    try:
        return location.store.stat(location.name)
    except NotFoundError as error:
        missing = missing_bucket(error, location.store)
        if missing is not None:
            raise missing from None
        if not location.is_file and _has_some_below(location):
            raise _no_object(location, of_folders) from None
        raise


def _no_object(location: Location, of_folders: str) -> NotFoundError:
    return not_found(location, f"is not an object; what lies below it is for {of_folders}")


def _has_some_below(location: Location) -> bool:
    try:
        page = location.store.list_page(location.below, delimiter="/", max_results=1)
    except HeadraceError:
        return False
    return bool(page.objects or page.prefixes)


def spooled(store: Store, info: ObjectInfo) -> mmap.mmap:
    """Read a large object into memory that lies in a temporary file without a name; all checked."""
    with tempfile.TemporaryFile(prefix="headrace-") as file:
        # All of it now: a full disk is an error here, but would be a signal when memory is written.
        os.posix_fallocate(file.fileno(), 0, info.size_bytes)
        memory = mmap.mmap(file.fileno(), info.size_bytes)
    if crc_of(info) is not None:
        store.read(info, into=memory)
        return memory
    # Other sums cannot be joined from those of pieces: they are of bytes that come in order.
    with headrace.open(info, store=store) as file:
        file.readinto(memory)
    return memory


def cat(
    locations: Iterable[Location], report: Report, *, begin: int | None, end: int | None
) -> None:
    """Write the bytes of objects to stdout, one object after the other.

    While one is written the next ones are read. Of whole objects with a checksum no byte is written
    before all were checked.

    Args:
        begin: the first byte of each object.
        end: one past the last.
    """

    def start(location: Location) -> tuple[Location, Future[tuple[ObjectInfo, Sample | None]]]:
        return location, workers.submit(lambda: _begin(location, begin, end))

    with Workers(_AHEAD, _AHEAD * LARGE_BYTES, report) as workers:
        ahead = deque(map(start, islice(locations := iter(locations), _AHEAD)))
        while ahead:
            location, reading = ahead.popleft()
            ahead.extend(map(start, islice(locations, 1)))
            try:
                info, sample = reading.result()
                for piece in _pieces(location.store, info, sample, begin, end):
                    report.check()
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                raise
            except (HeadraceError, OSError) as error:
                report.error(error)


def _begin(
    location: Location, begin: int | None, end: int | None
) -> tuple[ObjectInfo, Sample | None]:
    info = stat(location)
    if _last(info, end) - (begin or 0) > LARGE_BYTES:
        return info, None
    return info, location.store.read(info, begin=begin, end=end)


def _pieces(
    store: Store, info: ObjectInfo, sample: Sample | None, begin: int | None, end: int | None
) -> Iterator[Buffer]:
    is_whole = begin is None and end is None
    if sample is None and is_whole:
        info = with_facts(store, info)
    if sample is not None:
        yield sample
    elif is_whole and info.checksum is not None:
        yield spooled(store, info)
    else:
        # There is no sum of a part, so there is nothing to wait for.
        if is_whole:
            tell_not_compared(store, info)
        last = _last(info, end)
        for at in range(begin or 0, last, LARGE_BYTES):
            yield store.read(info, begin=at, end=min(at + LARGE_BYTES, last))


def _last(info: ObjectInfo, end: int | None) -> int:
    return info.size_bytes if end is None else min(end, info.size_bytes)
