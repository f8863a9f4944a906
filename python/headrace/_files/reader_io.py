"""Reading an object as a file: at random places, or one after the other with read-ahead."""

from __future__ import annotations

import copy
import errno
import io
import operator
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._base.binary_file import BinaryFile
from headrace._base.contexts import context
from headrace._base.errors import CorruptDataError, HeadraceError, PreconditionFailedError
from headrace._base.options import PREFETCH_BYTES, require, require_bytes
from headrace._engine import ObjectInfo, Sample
from headrace._files.whole_sum import WholeSum, crc_of, in_order_sum_of, tell_not_compared
from headrace._store.location import is_local

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headrace._store.store import Store

__all__ = ["ObjectReaderIO", "place_of"]

# What is read along with a few bytes, at a random place, and at the ends of the object, where
# formats keep their directories.
_SMALL_BYTES = 64 << 10
_END_BYTES = 256 << 10
# More is read straight into the caller's memory.
_DIRECT_BYTES = 1 << 20
# A jump forward that still counts as reading on: an alignment, a header that is passed over.
_GAP_BYTES = 1 << 20
_MAX_FETCH_BYTES = 8 << 20
# At 30 ms, a file read by 64 KiB has its whole window after 0.10 s (twice as much: 0.16 s), and
# whoever stops after a header has fetched four times that in vain.
_AHEAD_OF_STREAK = 4
# Of the CRC by which the beginning is summed before it is known which one the object has.
_LIKELY_KIND = "crc32c"
_MAX_SMALL_FETCHES = 8


class _Fetch:
    """Bytes ``[begin, end)`` of the object, on their way or here."""

    def __init__(self, batch: _engine.Batch, begin: int, end: int, sum_kind: str) -> None:
        self.begin, self.end = begin, end
        # What was handed out of it, in order: already in the whole's sum, and not yet.
        self.summed: list[tuple[int, int]] = []
        self.pending: list[tuple[int, int]] = []
        self._batch: _engine.Batch | None = batch
        self._sample: Sample | None = None
        self._sum_kind = sum_kind
        self._crc: int | None = None

    def sample(self) -> Sample:
        """Wait for the bytes."""
        if self._sample is None:
            assert self._batch is not None
            self._sample = self._batch.take(return_errors=False)[0]
            self._crc = self._batch.sums()[0]
            self._batch = None
        return self._sample

    def crc(self, kind: str) -> int | None:
        """Wait for the bytes' CRC of this kind; None if the engine has not computed it."""
        self.sample()
        return self._crc if kind == self._sum_kind else None

    def cancel(self) -> None:
        if self._batch is not None:
            self._batch.cancel()


class ObjectReaderIO(BinaryFile):
    """An object that is being read, as a binary file.

    It is pinned to the generation that was there when it was opened: a change shows as
    `PreconditionFailedError`, never as a mixture. ``read(n)`` and ``readinto`` give all the bytes
    that are asked for, up to the end of the object. Large reads go by parallel ranges straight to
    where they are wanted.

    While it is read one piece after the other, what follows is fetched ahead, in parallel, in
    windows that grow to `prefetch_bytes` (at most a quarter of the memory budget); it keeps that
    in memory, and 10 MiB. At random places a small read fetches 64 KiB.

    Stores keep a checksum of the whole object, none of its parts. Every piece is summed as it
    arrives, and the read that would complete the object, in whatever order it was read, compares
    the sum of all pieces with the object's first: if they differ it raises `CorruptDataError` and
    returns nothing, and so does every later read. Until then the bytes are as good as the
    transport. An XXH64 (the default of AIStore) or a digest such as SHA-256 cannot be joined from
    those of pieces: an object that has one is compared if it is read from its beginning to its
    end, whatever is read again in between; with a digest only in a store with ``verify="all"``.
    An object without a checksum (a file, an `ObjectInfo` that has none) is not compared, and
    neither is one of a store with ``verify=False``.

    Threads may share it. After a fork the child reads by connections of its own.

    Examples:
        >>> with headrace.open("gs://bucket/train/cat/001.jpg") as file:
        ...     head = file.read(4)
        ...     size_bytes = file.seek(0, os.SEEK_END)
        >>> len(head), size_bytes
        (4, 52113)
    """

    def __init__(
        self,
        store: Store,
        name: str | ObjectInfo,
        *,
        if_generation: str | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
    ) -> None:
        self._ended = True  # until it is open
        self._lock, self._epoch = threading.RLock(), _engine.fork_epoch()
        self._fetches: list[_Fetch] = []
        prefetch_bytes = require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        require(
            if_generation is None or isinstance(if_generation, str),
            f"if_generation is {if_generation!r}; it must be the generation of an object as a str",
        )
        # "reread" would mix two generations here.
        self._store = store._derived(on_change="error")
        # Nothing is fetched ahead that the memory budget would not take.
        budget_bytes = self._store._open()[0].budget_bytes
        self._max_ahead_bytes = min(prefetch_bytes, budget_bytes // 4)
        self._position = 0
        self._read_end = -1  # of the last read
        self._streak_bytes = 0  # read one after the other, until now
        self._ahead_next = 0  # from this place on there is room for more to be fetched ahead
        self._pending_bytes = 0  # handed out, and not in the sum yet; rather too many than too few
        self._damage: CorruptDataError | None = None
        verify = self._store._settings.verify
        if isinstance(name, ObjectInfo):
            self._info = self._completed(name, bool(verify))
        else:
            self._info = self._open(name)
        if if_generation is not None and self._info.generation != if_generation:
            raise _wrong_generation(self._url, self._info.generation, if_generation)
        crc = crc_of(self._info) if verify else None
        self._sum = None if crc is None else WholeSum(self._info.size_bytes, *crc)
        self._in_order = in_order_sum_of(self._info, verify)
        if verify and crc is None and self._in_order is None and self._info.size_bytes:
            tell_not_compared(self._store, self._info)
        self._ended = False

    def _completed(self, info: ObjectInfo, verify: bool) -> ObjectInfo:
        """Return `info` with what is left out, such as the sum, which S3 does not list."""
        is_known = info.size_bytes is not None and info.generation
        lacks_sum = (
            verify
            and info.checksum is None
            and info.size_bytes != 0
            and not is_local(self._store.url)
        )
        # A service that has refused to tell sums is not asked for them.
        if is_known and not (lacks_sum and self._store._handle().tells_sums):
            return info
        found = self._open(info.name)
        if info.generation in ("", found.generation):
            return found
        self._fetches.clear()
        if info.size_bytes is None:
            raise _wrong_generation(
                self._store.url_of(info.name), found.generation, info.generation
            )
        return info  # whoever reads will see

    def _open(self, name: str) -> ObjectInfo:
        """Ask what is there, and for its beginning at the same time."""
        handle = self._store._handle()
        head = handle.start((name,), None, [(0, _END_BYTES)], sum_kind=_LIKELY_KIND)
        try:
            info = handle.stat(name)
            fetch = _Fetch(head, 0, min(_END_BYTES, info.size_bytes), _LIKELY_KIND)
            try:
                sample = fetch.sample()
            except HeadraceError:
                return info  # whoever reads there will see
            if sample.generation == info.generation and len(sample) == fetch.end:
                self._fetches.append(fetch)
            return info
        finally:
            head.cancel()

    # ---- what it is

    @property
    def _url(self) -> str:
        return self._store.url_of(self._info.name)

    @property
    def name(self) -> str:
        """The object's URL."""
        return self._url

    @property
    def mode(self) -> str:
        """The mode: ``"rb"``."""
        return "rb"

    @property
    def info(self) -> ObjectInfo:
        """What the object is; reads are pinned to it."""
        return self._info

    def readable(self) -> bool:
        """Return whether it can be read.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return True

    def writable(self) -> bool:
        """Return whether it can be written.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return False

    def seekable(self) -> bool:
        """Return whether `seek` works.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return True

    # ---- where it is

    def tell(self) -> int:
        """Return the place: bytes from the beginning.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to another place; it may lie behind the end. Nothing is fetched by that.

        Raises:
            OSError: the place is before the beginning.
            ValueError: `whence` is none of the three, or the file is closed.
        """
        with self._used():
            self._position = place_of(self, offset, whence, self._info.size_bytes)
            return self._position

    # ---- reading

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill `buffer`, and return how many bytes that took: fewer only at the end.

        Raises:
            PreconditionFailedError: the object is no longer the one that was opened.
            CorruptDataError: this would be the last of the object, and its CRC does not match.
            HeadraceError: the bytes could not be fetched.
            ValueError: the file is closed.
        """
        with self._used(), _bytes_of(buffer) as view:
            size_bytes = min(len(view), max(0, self._info.size_bytes - self._position))
            with view[:size_bytes] as into:
                self._fill(into)
            self._position += size_bytes
            return size_bytes

    def readinto1(self, buffer: Buffer, /) -> int:
        """Do what `readinto` does.

        Raises:
            PreconditionFailedError: the object is no longer the one that was opened.
            CorruptDataError: this would be the last of the object, and its CRC does not match.
            HeadraceError: the bytes could not be fetched.
            ValueError: the file is closed.
        """
        return self.readinto(buffer)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next `size` bytes, fewer only at the end; by default all that is left.

        Raises:
            PreconditionFailedError: the object is no longer the one that was opened.
            CorruptDataError: this would be the last of the object, and its CRC does not match.
            HeadraceError: the bytes could not be fetched.
            ValueError: the file is closed, or `size` is less than -1.
        """
        size = -1 if size is None else operator.index(size)
        with self._used():
            if size < -1:
                raise ValueError(f"size is {size}; it must be -1, for all, or not negative")
            left = max(0, self._info.size_bytes - self._position)
            size = left if size < 0 else min(size, left)
            fetch = self._fetch_at(self._position)
            if fetch is not None and self._position + size <= fetch.end:
                # The common case of small reads.
                self._note(self._position + size)
                begin = self._position - fetch.begin
                with memoryview(self._take(fetch, self._position, self._position + size)) as view:
                    found = bytes(view[begin : begin + size])
                if self._in_order is not None:
                    self._add_in_order(self._position, self._position + size, found)
                self._position += size
                if self._position >= self._ahead_next:
                    self._fetch_ahead(self._position)
                return found
            # A bytes object that is filled in place: BytesIO gives its own away without a copy.
            filled = io.BytesIO()
            if size > 0:
                filled.seek(size - 1)
                filled.write(b"\0")
                with filled.getbuffer() as view:
                    self._fill(view)
            self._position += size
            return filled.getvalue()

    def read1(self, size: int = -1, /) -> bytes:
        """Return what `read` does; by default no more than is at hand.

        Raises:
            PreconditionFailedError: the object is no longer the one that was opened.
            CorruptDataError: this would be the last of the object, and its CRC does not match.
            HeadraceError: the bytes could not be fetched.
            ValueError: the file is closed.
        """
        return self.read(_SMALL_BYTES if size < 0 else size)

    def peek(self, size: int = 0, /) -> bytes:
        """Return some of the bytes that come next, without going on.

        Examples:
            >>> with headrace.open("gs://bucket/notes.txt") as file:
            ...     file.peek()[:2], file.tell()
            (b'no', 0)

        Raises:
            PreconditionFailedError: the object is no longer the one that was opened.
            CorruptDataError: this would be the last of the object, and its CRC does not match.
            HeadraceError: the bytes could not be fetched.
            ValueError: the file is closed.
        """
        with self._used():
            if self._position >= self._info.size_bytes:
                return b""
            fetch = self._fetch_at(self._position)
            if fetch is None:
                fetch = self._fetch_around(self._position, self._position + 1)
            end = min(fetch.end, self._position + max(size, 8 << 10))
            with memoryview(self._take(fetch, self._position, end)) as view:
                return bytes(view[self._position - fetch.begin : end - fetch.begin])

    def close(self) -> None:
        """Let go of what was fetched, and end what is under way."""
        self._enter_process()
        with self._lock:
            if not self._ended:
                self._ended = True
                self._drop_all()
            super().close()

    def __repr__(self) -> str:
        return f"<headrace.ObjectReaderIO {self._store.url!r} {self._info.name!r}>"

    def __reduce_ex__(self, protocol: Any, /) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: open it anew there, by headrace.open")

    # ---- fetching

    @context
    def _used(self) -> Iterator[None]:
        self._enter_process()
        with self._lock:
            self._check_open()
            self._raise_damage()
            try:
                yield
            except BaseException as error:
                if isinstance(error, HeadraceError) or not isinstance(
                    error, TypeError | ValueError
                ):
                    self._drop_all()  # one of them failed, and is of no use any more
                raise

    def _enter_process(self) -> None:
        """In a forked child: the lock may be held, and what is under way belongs, to the parent."""
        if self._epoch == _engine.fork_epoch():
            return
        self._epoch = _engine.fork_epoch()
        self._lock = threading.RLock()
        for fetch in self._fetches:
            self._settle(fetch)
        self._fetches, self._ahead_next = [], 0

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError("the file is closed")

    def _fill(self, into: memoryview) -> None:
        """Fill `into` with the bytes at the present place; they exist."""
        begin, end = self._position, self._position + len(into)
        self._note(end)
        pieces: list[tuple[int, int, _Fetch | None]] = []
        at = begin
        while at < end:
            fetch = self._fetch_at(at)
            if fetch is not None:
                until = min(end, fetch.end)
            else:
                until = min([end, *(each.begin for each in self._fetches if each.begin > at)])
                if until - at < _DIRECT_BYTES:
                    fetch = self._fetch_around(at, until)
            pieces.append((at, until, fetch))
            at = until
        direct = [(a, b) for a, b, fetch in pieces if fetch is None]
        batch = None
        views = [into[a - begin : b - begin] for a, b in direct]
        try:
            if direct:
                batch = self._start(direct, views)
            self._fetch_ahead(end)
            for a, b, fetch in pieces:
                if fetch is None:
                    continue
                with memoryview(self._take(fetch, a, b)) as view:
                    into[a - begin : b - begin] = view[a - fetch.begin : b - fetch.begin]
            if batch is not None:
                batch.wait()
                for (a, b), view, crc in zip(direct, views, batch.sums(), strict=True):
                    self._add_to_sum(a, b, crc, view)
                self._settle_if_whole()
            if self._in_order is not None:
                self._add_in_order(begin, end, into)
        finally:
            if batch is not None:
                batch.drain()  # nothing is written to the caller's memory any more
                batch = None  # it holds the views
            for each in views:
                each.release()

    # ---- the sum of the whole

    def _take(self, fetch: _Fetch, begin: int, end: int) -> Sample:
        """Wait for the bytes, of which ``[begin, end)`` is about to be handed out."""
        sample = fetch.sample()
        if self._sum is not None:
            # The first copy of a byte counts: the sum gets copies in the order of handing out.
            for other in self._fetches:
                if other is not fetch and other.begin < end and begin < other.end:
                    self._settle(other)
            self._pending_bytes += _note_handed_out(fetch, begin, end)
            if fetch.pending == [(fetch.begin, fetch.end)] or fetch not in self._fetches:
                self._settle(fetch)
            self._settle_if_whole()
        return sample

    def _settle_if_whole(self) -> None:
        """Compare the whole's sum if nothing of it is missing any more.

        Raises:
            CorruptDataError: it is not the object's.
        """
        if self._sum is not None and 0 < self._sum.missing_bytes <= self._pending_bytes:
            for fetch in self._fetches:
                self._settle(fetch)
            self._pending_bytes = 0
        self._raise_damage()

    def _settle(self, fetch: _Fetch) -> None:
        """Have the whole's sum know what was handed out of `fetch`."""
        for begin, end in fetch.pending:
            is_all = (begin, end) == (fetch.begin, fetch.end)
            with (
                memoryview(fetch.sample()) as view,
                view[begin - fetch.begin : end - fetch.begin] as part,
            ):
                # The engine has summed all of it as it arrived.
                crc = fetch.crc(self._sum_kind) if is_all else None
                self._add_to_sum(begin, end, crc, part)
            self._pending_bytes -= end - begin
        fetch.summed = _merged([*fetch.summed, *fetch.pending])
        fetch.pending = []

    def _add_to_sum(self, begin: int, end: int, crc: int | None, data: memoryview) -> None:
        if self._sum is None or self._damage is not None:
            return
        self._note_damage(self._sum.add(begin, end, crc, data))
        if self._sum.is_hopeless:
            self._sum = None

    def _add_in_order(self, begin: int, end: int, data: Buffer) -> None:
        """Have the sum of what is read in order know what is about to be handed out.

        Raises:
            CorruptDataError: it is the last of the object, whose sum is another one.
        """
        assert self._in_order is not None
        self._note_damage(self._in_order.add(begin, end, data))
        if self._in_order.is_hopeless:
            self._in_order = None
            tell_not_compared(self._store, self._info)
        self._raise_damage()

    def _note_damage(self, wrong: str) -> None:
        if wrong:
            self._damage = CorruptDataError(f"{self._url}: {wrong}")
            self._damage.url = self._url

    def _raise_damage(self) -> None:
        if self._damage is not None:
            raise copy.copy(self._damage)

    # ---- fetching ahead

    def _note(self, end: int) -> None:
        """Take note of a read up to `end`: does it go on from the last one?"""
        gap = self._position - self._read_end
        # A parser may also step back, into what it has just read.
        if -_SMALL_BYTES <= gap <= _GAP_BYTES and self._read_end >= 0:
            self._streak_bytes += max(0, end - max(self._position, self._read_end))
            self._read_end = max(self._read_end, end)
        else:
            self._streak_bytes = self._ahead_next = 0
            self._read_end = end
            # But not what has the place that was jumped to: somebody is about to wait for it.
            here = self._fetch_at(self._position)
            self._drop(lambda fetch: fetch is not here and fetch.end - fetch.begin > _END_BYTES)
        # What was passed is not needed any more; small pieces may be.
        self._drop(
            lambda fetch: fetch.end <= self._position and fetch.end - fetch.begin > _END_BYTES
        )

    def _fetch_ahead(self, end: int) -> None:
        """Have what follows `end` fetched, as far as the window goes."""
        window_bytes = min(self._max_ahead_bytes, _AHEAD_OF_STREAK * self._streak_bytes)
        if window_bytes < _END_BYTES or self._ahead_next >= self._info.size_bytes:
            return
        fetch_bytes = max(_END_BYTES + 1, min(_MAX_FETCH_BYTES, window_bytes // 4))
        size_bytes = self._info.size_bytes
        at, limit = end, min(end + window_bytes, size_bytes)
        while at < limit:
            fetch = self._fetch_at(at)
            if fetch is None:
                # Not for every small read a small piece.
                if limit < size_bytes and limit - at < fetch_bytes:
                    break
                begins = [each.begin for each in self._fetches if each.begin > at]
                fetch = self._fetch(at, min([at + fetch_bytes, limit, *begins]))
            at = fetch.end
        # As soon as one piece has room: a window that is half empty gives half of its rate.
        self._ahead_next = at if at >= size_bytes else at - window_bytes + fetch_bytes

    def _fetch_around(self, begin: int, end: int) -> _Fetch:
        """Fetch a small piece with what lies behind it, or with all of the object's last bytes."""
        size_bytes = self._info.size_bytes
        last = max(0, size_bytes - _END_BYTES)
        small = [each for each in self._fetches if each.end - each.begin <= _END_BYTES]
        if len(small) >= _MAX_SMALL_FETCHES:
            # Not cancelled: it can be a piece of the very read that this one is for.
            self._settle(small[0])
            self._fetches.remove(small[0])
        if begin >= last:
            return self._fetch(last, size_bytes)
        return self._fetch(begin, min(size_bytes, max(end, begin + _SMALL_BYTES)))

    def _fetch(self, begin: int, end: int) -> _Fetch:
        fetch = _Fetch(self._start([(begin, end)], None), begin, end, self._sum_kind)
        self._fetches.append(fetch)
        return fetch

    def _fetch_at(self, position: int) -> _Fetch | None:
        for fetch in self._fetches:
            if fetch.begin <= position < fetch.end:
                return fetch
        return None

    def _start(self, ranges: list[tuple[int, int]], into: list[memoryview] | None) -> _engine.Batch:
        return self._store._handle().start(
            [self._info] * len(ranges), into, ranges, sum_kind=self._sum_kind
        )

    @property
    def _sum_kind(self) -> str:
        """What the engine is to sum; ``""`` for nothing."""
        return "" if self._sum is None else self._sum.kind

    def _drop_all(self) -> None:
        self._drop(lambda _: True)
        self._ahead_next = 0

    def _drop(self, unwanted: Callable[[_Fetch], bool]) -> None:
        for fetch in [each for each in self._fetches if unwanted(each)]:
            self._settle(fetch)
            self._fetches.remove(fetch)
            fetch.cancel()


def place_of(file: Any, offset: int, whence: int, size_bytes: int) -> int:
    """Return the place to which `seek` is to go in a file of so many bytes.

    Raises:
        OSError: it is before the beginning; as Python's own files have it.
        ValueError: `whence` is not 0, 1 or 2.
    """
    place = operator.index(offset)
    if whence == os.SEEK_CUR:
        place += file.tell()
    elif whence == os.SEEK_END:
        place += size_bytes
    elif whence != os.SEEK_SET:
        raise ValueError(f"whence is {whence!r}; it must be 0, 1 or 2")
    if place < 0:
        raise OSError(errno.EINVAL, f"cannot seek to {place}, before the beginning of {file!r}")
    return place


@context
def _bytes_of(buffer: Buffer) -> Iterator[memoryview]:
    with memoryview(buffer) as whole:
        if whole.readonly:
            raise TypeError(f"a {type(buffer).__name__} cannot be written to")
        # A view of no bytes cannot be cast if its shape has a zero.
        with whole.cast("B") if whole.nbytes else memoryview(bytearray()) as view:
            yield view


def _wrong_generation(url: str, found: str, wanted: str) -> PreconditionFailedError:
    error = PreconditionFailedError(f"{url}: is generation {found}, not {wanted}")
    error.url = url
    return error


def _note_handed_out(fetch: _Fetch, begin: int, end: int) -> int:
    """Note what is handed out of `fetch` for the first time; return how many bytes, at most."""
    for a, b in fetch.summed:
        if a <= begin < b:
            begin = min(b, end)
        if a < end <= b:
            end = max(a, begin)
    if begin == end:
        return 0
    if fetch.pending and fetch.pending[-1][1] == begin:
        fetch.pending[-1] = (fetch.pending[-1][0], end)  # one read after the other
    else:
        fetch.pending = _merged([*fetch.pending, (begin, end)])
    return end - begin


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same bytes in order, without overlaps."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
