"""Large objects: by parallel ranges into files, by parallel parts to buckets."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import headrace
from headrace import (
    CorruptDataError,
    InvalidArgumentError,
    MiB,
    NotFoundError,
    ObjectInfo,
    ObjectWriter,
    PreconditionFailedError,
    Store,
    _engine,
)
from headrace._cli.part_file import PartFile
from headrace._files.leftovers import give_up
from headrace._files.whole_sum import damage_of, running_sum, tell_not_compared
from headrace._files.writer_io import write_file
from headrace._store.location import directory_of, is_local

__all__ = [
    "LARGE_BYTES",
    "download",
    "has_sum_of",
    "send",
    "steps_of",
    "with_facts",
]

LARGE_BYTES = 64 * MiB
"""Larger objects are not held in memory."""

_PIECES_AT_A_TIME = 2
_STEP_BYTES = 4 * MiB
_PREFETCH_BYTES = 64 * MiB


def with_facts(store: Store, info: ObjectInfo) -> ObjectInfo:
    """Return `info` with sum, type and encoding, which a listing of ``s3://`` does not tell.

    It costs a request where there is no sum. `info` stays as it is if the object has changed: who
    reads it then will be told.
    """
    if info.checksum is not None or is_local(store.url):
        return info
    known = store.stat(info.name)
    return known if known.generation == info.generation else info


def download(
    source: Store,
    info: ObjectInfo,
    path: str,
    *,
    may_replace: bool,
    on_bytes: Callable[[int], object],
    check: Callable[[], object],
) -> None:
    """Read an object into a file, which appears when all of it is there and right.

    What was read of the same generation by a call that was interrupted is not read again.

    Args:
        on_bytes: called with how many bytes are there in addition.
        check: raises if the work is to end.

    Raises:
        FileExistsError: there is such a file, and not `may_replace`.
        CorruptDataError: it is not what the store says it is.
    """
    url = source.url_of(info.name)
    _refuse_special(path)
    with PartFile(path, url, info) as part:
        missing = part.missing
        left_bytes = sum(end - begin for begin, end in map(part.range_of, missing))
        on_bytes(info.size_bytes - left_bytes)

        def fetch(i: int) -> None:
            check()
            begin, end = part.range_of(i)
            with part.memory(i) as memory:
                source.read(info, begin=begin, end=end, into=memory)
                part.done(i, part.crc_kind.of(memory))
            on_bytes(end - begin)

        try:
            _do_all(fetch, missing)
        except (NotFoundError, PreconditionFailedError):
            part.discard()  # nobody will ever read the rest
            raise
        if damage := part.damage():
            part.discard()
            raise _corrupt(url, damage)
        if not part.is_compared:
            tell_not_compared(source, info)
        check()
        part.publish(may_replace=may_replace)


def send(
    steps: Callable[[ObjectWriter], Iterable[object]],
    store: Store,
    name: str,
    info: ObjectInfo | None,
    *,
    content_type: str | None,
    content_encoding: str | None,
    if_generation: str | None,
    check: Callable[[], object],
) -> ObjectInfo:
    """Write one object, by parallel parts; it appears when all of it is there.

    Args:
        steps: writes all bytes, by as many steps as it yields.
        info: what the bytes are of, if they have a sum.

    Raises:
        CorruptDataError: the bytes are not what `info` says.
    """
    writer = store.open_writer(
        name,
        content_type=content_type,
        content_encoding=content_encoding,
        if_generation=if_generation,
        expected_size_bytes=None if info is None else info.size_bytes,
    )
    try:
        check()
        for _ in steps(writer):
            check()
        if info is not None and info.crc32c not in (None, writer.crc32c):
            kind = _engine.CrcKind("crc32c")
            raise _corrupt(writer.url, damage_of(kind, writer.crc32c, info.crc32c or 0))
        check()
        return writer.close()
    except BaseException as error:
        give_up(writer, error)
        raise


def steps_of(
    store: Store, info: ObjectInfo, on_bytes: Callable[[int], object], writer: ObjectWriter
) -> Iterator[int]:
    """Write the bytes of an object in order, and yield how many each step was.

    Of a remote one, what follows is read meanwhile.

    Raises:
        PreconditionFailedError: it has changed.
    """
    written = _of_file(store, info, writer) if is_local(store.url) else _of(store, info, writer)
    for size_bytes in written:
        on_bytes(size_bytes)
        yield size_bytes


def _of(store: Store, info: ObjectInfo, writer: ObjectWriter) -> Iterator[int]:
    buffer = memoryview(bytearray(_STEP_BYTES))
    with headrace.open(info, store=store, prefetch_bytes=_PREFETCH_BYTES) as file:
        while size_bytes := file.readinto(buffer):
            yield writer.write(buffer[:size_bytes])


def _of_file(store: Store, info: ObjectInfo, writer: ObjectWriter) -> Iterator[int]:
    with open(f"{directory_of(store)}/{info.name}", "rb", buffering=0) as file:
        yield from write_file(writer, file)
    # What was opened was another file, or was written meanwhile.
    if store.stat(info.name).generation != info.generation:
        error = PreconditionFailedError(
            f"{store.url_of(info.name)} has changed while it was copied"
        )
        error.url = store.url_of(info.name)
        raise error


def has_sum_of(path: str, info: ObjectInfo) -> bool:
    """Return whether a local file has the sum of the object, as far as that has one."""
    if info.checksum is None:
        return False
    kind, value = info.checksum
    whole = running_sum(kind)
    buffer = memoryview(bytearray(_STEP_BYTES))
    with open(path, "rb", buffering=0) as file:
        while size_bytes := file.readinto(buffer):
            whole.update(buffer[:size_bytes])
    return whole.digest() == value


def _do_all(work: Callable[[int], object], items: list[int]) -> None:
    """Do the work for all items, some at a time; after an error no more are begun."""
    with ThreadPoolExecutor(_PIECES_AT_A_TIME, "headrace-cli-piece") as pool:
        under_way = [pool.submit(work, item) for item in items]
        try:
            for each in under_way:
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _refuse_special(path: str) -> None:
    """Raise if there is something at `path` that no file should take the place of."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        error = InvalidArgumentError(f"file://{path}: not a regular file")
        error.url = f"file://{path}"
        raise error


def _corrupt(url: str, damage: str) -> CorruptDataError:
    error = CorruptDataError(f"{url}: {damage}")
    error.url = url
    return error
