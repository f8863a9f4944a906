"""A large object on its way into a file: what has arrived outlives an interruption."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from types import TracebackType

from headrace import MiB, ObjectInfo, _engine
from headrace._base.contexts import context
from headrace._files.whole_sum import crc_of, damage_of, in_order_sum_of

__all__ = ["PIECE_BYTES", "PartFile"]

PIECE_BYTES = 64 * MiB
"""What is summed, and remembered as done, at a time."""

# Behind the bytes of the object: what they are of, and for each piece whether it is done, and its
# sum. Listings leave files of these names out, and `headrace clean` removes old ones.
_HEAD_BYTES = 4096
_PIECE = struct.Struct("<I4xQ")
_DONE = 0x48524450  # not a state that empty space could be in
_NAME = ".headrace-tmp-{}-{}-{}"


class PartFile:
    """The file that an object is read into, beside its destination, until it is whole.

    It stays if the context is left by an exception: whoever opens it for the same generation of the
    same object finds the pieces that were done. `publish` gives it its name, and `discard` removes
    it. Two processes that write to one destination have a file each.

    Args:
        path: the destination.
        url: of the object.
        info: its generation, size and sum.
    """

    def __init__(self, path: str, url: str, info: ObjectInfo) -> None:
        self._path, self._size_bytes = path, info.size_bytes
        self._count = -(-info.size_bytes // PIECE_BYTES)
        known = crc_of(info)
        # What no sums of pieces tell: pieces are summed once more, in order, while they are in
        # memory.
        self._in_order = in_order_sum_of(info, "all")
        self._in_order_count, self._in_order_damage = 0, ""
        self.is_compared = known is not None or self._in_order is not None
        self.crc_kind = _engine.CrcKind("crc32c") if known is None else known[0]
        self._object_crc = None if known is None else known[1]
        self._lock = threading.Lock()
        directory = os.path.dirname(path)
        os.makedirs(directory, exist_ok=True)
        self._part_path, self._file = _open_locked(path, directory)
        try:
            self._prepare(url, info)
        except BaseException:
            os.close(self._file)
            raise

    def _prepare(self, url: str, info: ObjectInfo) -> None:
        facts = {
            "url": url,
            "generation": info.generation,
            "size_bytes": info.size_bytes,
            "checksum": [self.crc_kind.name, self._object_crc],
            "piece_bytes": PIECE_BYTES,
        }
        head = hashlib.sha256(json.dumps(facts).encode()).digest()
        # Without a generation nobody can say whether it is the same object.
        same = bool(info.generation) and os.pread(self._file, len(head), info.size_bytes) == head
        if not same:
            os.ftruncate(self._file, 0)
        # All of it now: a full disk is an error here, but would be a signal when memory is written.
        end = info.size_bytes + _HEAD_BYTES + self._count * _PIECE.size
        os.posix_fallocate(self._file, 0, end)
        if not same:
            os.pwrite(self._file, head, info.size_bytes)
        self._sums = [self._sum_of(i) for i in range(self._count)]
        self._sum_in_order()

    def _sum_of(self, i: int) -> int | None:
        """Return the sum of a piece that is done; None if it is not, or has changed since."""
        is_done, crc = _PIECE.unpack(os.pread(self._file, _PIECE.size, self._place(i)))
        if is_done != _DONE:
            return None
        # The machine may have stopped with the mark on the disk, and the bytes not.
        with self.memory(i) as memory:
            return crc if self.crc_kind.of(memory) == crc else None

    def _place(self, i: int) -> int:
        return self._size_bytes + _HEAD_BYTES + i * _PIECE.size

    # ---- the pieces

    def range_of(self, i: int) -> tuple[int, int]:
        """Return the bytes of the object that are piece `i`."""
        return i * PIECE_BYTES, min((i + 1) * PIECE_BYTES, self._size_bytes)

    @property
    def missing(self) -> list[int]:
        """The pieces that are not done."""
        return [i for i, each in enumerate(self._sums) if each is None]

    @context
    def memory(self, i: int) -> Iterator[mmap.mmap]:
        """Give the memory of a piece: what is written there is in the file."""
        begin, end = self.range_of(i)
        memory = mmap.mmap(self._file, end - begin, offset=begin)
        try:
            yield memory
        finally:
            with contextlib.suppress(BufferError):  # a traceback holds it, and will let go of it
                memory.close()

    def done(self, i: int, crc: int) -> None:
        """Remember that a piece is there, and its sum. Thread: any."""
        os.pwrite(self._file, _PIECE.pack(_DONE, crc), self._place(i))
        with self._lock:
            self._sums[i] = crc
            self._sum_in_order()

    def _sum_in_order(self) -> None:
        """Add the pieces that are next, as far as they are done, to the sum in order."""
        if self._in_order is None:
            return
        for i in range(self._in_order_count, self._count):
            if self._sums[i] is None:
                return
            with self.memory(i) as memory:
                self._in_order_damage = self._in_order.add(*self.range_of(i), memory)
            self._in_order_count = i + 1

    def damage(self) -> str:
        """Return what is wrong with all pieces, which are done, together: ``""`` for nothing."""
        whole = 0
        for i, each in enumerate(self._sums):
            assert each is not None
            begin, end = self.range_of(i)
            whole = self.crc_kind.joined(whole, each, end - begin)
        if self._object_crc is None or self._object_crc == whole:
            return self._in_order_damage
        return damage_of(self.crc_kind, whole, self._object_crc)

    # ---- the end

    def publish(self, *, may_replace: bool) -> None:
        """Make it durable, and give it its name, in one step.

        Raises:
            FileExistsError: there is such a file, and not `may_replace`.
        """
        os.ftruncate(self._file, self._size_bytes)
        os.fsync(self._file)
        if may_replace:
            os.rename(self._part_path, self._path)
        else:
            try:
                os.link(self._part_path, self._path)
            finally:
                os.unlink(self._part_path)
        directory = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def discard(self) -> None:
        """Remove it: it is of no use to anybody."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._part_path)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)


def _open_locked(path: str, directory: str) -> tuple[str, int]:
    """Open the part of `path`, with a lock that says it is in use."""
    digest = hashlib.sha256(os.fsencode(os.path.basename(path))).digest()
    numbers = [int.from_bytes(digest[at : at + 8], "little") for at in (0, 8)]
    name = os.path.join(directory, _NAME.format(0, *numbers))
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    for attempt in range(100):
        file = os.open(name, flags, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(name)
            if os.path.samestat(there, os.fstat(file)):
                return name, file
        except BlockingIOError:  # another process is at it: it gets a file of its own
            number = int.from_bytes(os.urandom(8), "little")
            name = os.path.join(directory, _NAME.format(os.getpid(), attempt, number))
        except FileNotFoundError:  # removed, or published, since it was opened
            pass
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    raise FileExistsError(f"{name}: cannot be opened: it is replaced again and again")
