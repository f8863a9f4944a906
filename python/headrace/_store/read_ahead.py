"""Several batches under way at a time, in order, within the memory budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from headrace import _engine
from headrace._engine import ObjectIndex, ObjectInfo, Sample
from headrace._store.entry_reads import EntryReads

__all__ = ["ReadAhead", "as_batch", "read_ahead", "start_batch"]

NameOrInfo = str | ObjectInfo
Opened = tuple[_engine.Engine, _engine.StoreHandle]
Entry = TypeVar("Entry")

# What is under way has memory of its own besides the bytes that are read: some hundred bytes an
# object. A limit in bytes alone would be none for objects that are all but empty.
_MOST_OBJECTS = 1 << 16


def as_batch(names: Iterable[NameOrInfo]) -> Sequence[NameOrInfo] | ObjectIndex:
    """Return `names` as a sequence that `start_batch` takes; one name is not a batch."""
    if isinstance(names, ObjectIndex):
        return names
    if isinstance(names, str | ObjectInfo):
        raise TypeError(f"several names are needed, not one {type(names).__name__}")
    return names if isinstance(names, list | tuple) else list(names)


def start_batch(
    store: _engine.StoreHandle, items: Sequence[NameOrInfo] | ObjectIndex
) -> _engine.Batch | EntryReads:
    """Begin to read the objects, or the entries of an index, which may be ranges."""
    if not isinstance(items, ObjectIndex):
        return store.start(items)
    everything = range(len(items))
    return EntryReads(store.start_indexed(items, everything), items, everything)


class Reads(Protocol):
    """Objects that are being read together, such as an engine's batch."""

    def cancel(self) -> None:
        """Ask for an early end."""
        ...

    def drain(self) -> None:
        """Cancel, and wait until the engine is done with it."""
        ...


class ReadAhead(Generic[Entry]):
    """Entries that are being read, in order, and whether there is room for another one.

    There always is if nothing is under way. Otherwise what is under way, or read and not yet taken,
    stays within a limit, and nothing is started for which the memory budget has no room now.
    It belongs to one thread at a time.

    Args:
        opened: the engine and the store that read.
        limit_bytes: the limit. Default: what keeps the connections busy while the slowest answers
            are waited for, and at most half of the memory budget.
        least_entries: what keeps the connections busy is at least so many entries.
    """

    def __init__(
        self,
        opened: tuple[_engine.Engine, _engine.StoreHandle | _engine.IndexReader],
        limit_bytes: int | None,
        *,
        least_entries: int = 2,
    ) -> None:
        self._engine, self._store = opened
        self._budget_bytes = self._engine.budget_bytes
        self._as_needed = limit_bytes is None
        self._least_entries = least_entries
        self._limit_bytes = self._budget_bytes // 2 if limit_bytes is None else limit_bytes
        # With the batch that reads the entry, its bytes and its objects.
        self._entries: deque[tuple[Entry, Reads | None, int, int]] = deque()
        self._bytes = self._objects = 0
        self.is_full = False
        """Whether `has_room` was last refused for want of memory."""
        self._next_bytes = 0  # what another entry is thought to take: as much as the last one

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: int) -> Entry:
        return self._entries[place][0]

    def __iter__(self) -> Iterator[Entry]:
        return (each[0] for each in self._entries)

    def has_room(self) -> bool:
        """Return whether another entry may be started now."""
        self.is_full = False
        if not self._entries:
            return True
        if len(self._entries) >= self._least_entries:
            most = self._store.useful_ahead if self._as_needed else _MOST_OBJECTS
            if self._objects >= most:
                return False
        self.is_full = (
            self._bytes + self._next_bytes > self._limit_bytes
            or self._engine.live_bytes + self._next_bytes > self._budget_bytes
        )
        return not self.is_full

    def append(self, entry: Entry, batch: Reads | None, size_bytes: int, objects: int) -> None:
        """Add an entry that `batch` has begun to read; None if there is nothing to read for it."""
        self._entries.append((entry, batch, size_bytes, objects))
        self._next_bytes = size_bytes
        self._bytes += size_bytes
        self._objects += objects

    def popleft(self) -> Entry:
        """Remove the first entry, which was read, and return it."""
        entry, _, size_bytes, objects = self._entries.popleft()
        self._bytes -= size_bytes
        self._objects -= objects
        return entry

    def take_part(self, taken: Entry, size_bytes: int, objects: int) -> None:
        """Make room for what was taken of an entry; one of which nothing is left is removed."""
        for at, (entry, batch, held_bytes, held) in enumerate(self._entries):
            if entry is not taken:
                continue
            if held > objects:
                size_bytes = min(size_bytes, held_bytes)  # sizes may have been guessed
                self._entries[at] = (entry, batch, held_bytes - size_bytes, held - objects)
            else:
                size_bytes = held_bytes
                del self._entries[at]
            self._bytes -= size_bytes
            self._objects -= objects
            return

    def cancel(self) -> None:
        """End all reads. When this returns nothing is written to anybody's memory any more."""
        batches = [each[1] for each in self._entries if each[1] is not None]
        self._entries.clear()
        self._bytes = self._objects = 0
        for batch in batches:
            batch.cancel()
        for batch in batches:
            batch.drain()


def read_ahead(
    opened: Opened,
    batches: Iterator[Iterable[NameOrInfo]],
    prefetch_bytes: int | None,
    return_errors: bool,
) -> Iterator[list[Sample]]:
    """Yield the samples of each batch; see `Store.read_batches`."""
    store = opened[1]
    ahead: ReadAhead[_engine.Batch | EntryReads] = ReadAhead(opened, prefetch_bytes)
    failure: Exception | None = None
    more = True

    def fill() -> None:
        nonlocal failure, more
        while more and ahead.has_room():
            try:
                items = as_batch(next(batches))
                batch = start_batch(store, items)
            except StopIteration:
                more = False
            except Exception as error:  # told when its turn comes
                failure, more = error, False
            else:
                size_bytes = _size_bytes(items, store.expected_object_bytes)
                ahead.append(batch, batch, size_bytes, len(items))

    try:
        fill()
        while ahead:
            samples = ahead[0].take(return_errors=return_errors)
            ahead.popleft()
            fill()  # so that something is under way while the caller works
            yield samples
            del samples  # the caller's now; we must not keep them alive
            fill()
        if failure is not None:
            raise failure
    finally:
        failure = None  # its traceback refers to this frame
        ahead.cancel()


def _size_bytes(items: Sequence[NameOrInfo] | ObjectIndex, unknown_bytes: int) -> int:
    if isinstance(items, ObjectIndex):
        return items.sum_bytes(range(len(items)), unknown_bytes)
    return _engine.expected_bytes(items, unknown_bytes)
