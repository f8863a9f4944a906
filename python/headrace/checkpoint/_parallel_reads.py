"""Read many parts of objects into existing memory with few requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace import _engine
from headrace._engine import ObjectInfo
from headrace._store.store import NameOrInfo, Store
from headrace.checkpoint._object import pinned

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "GROUPS_AHEAD",
    "GROUP_BYTES",
    "MAX_GAP_BYTES",
    "Part",
    "PartReads",
    "Wanted",
    "ahead",
    "expect_parts",
    "grouped",
    "read_into",
    "read_parts",
]

Wanted = tuple[int, int, "Buffer"]
"""``[begin, end)`` of the object, and memory of exactly that size for these bytes."""

MAX_GAP_BYTES = 1 << 20
"""The longest gap between two wanted ranges that one request reads and drops."""
MAX_JOINED_BYTES = 16 << 20
"""The most that one request reads for several ranges."""
MIN_JOINED_BYTES = 2 << 20
"""Up to this much, neighbours are always read together."""
SMALL_BYTES = 64 << 10
"""Less than this has no request of its own beside a neighbour: the head or the tail of an item."""

GROUP_BYTES = 64 << 20
"""Storages that move on to another device are read in groups of so many bytes."""
GROUPS_AHEAD = 2
"""So many groups are read while one moves on."""

# Requests that a read is spread over, if it is large enough: a service limits each connection.
_REQUESTS = 64
# Steps in flight at once, and the bytes in each.
_STEPS_IN_FLIGHT = 16
_STEP_BYTES = 64 << 20


@dataclass(eq=False)
class Part:
    """The bytes [begin, end) of an object, and memory of exactly that size for them."""

    object: NameOrInfo
    begin: int
    end: int
    into: Buffer
    crc: int | None = field(default=None, init=False)
    """The sum of these bytes, if it was asked for, and could be computed while they arrived."""


@dataclass
class _Request:
    """One range to read, for one or several wanted parts in their order."""

    object: NameOrInfo
    begin: int
    end: int
    parts: list[int]
    """The indices of these parts."""


def read_parts(
    store: Store, parts: Iterable[Part], *, sum_kind: str = "", in_flight_bytes: int = 0
) -> None:
    """Fill memory with parts of objects.

    Ranges close to each other are read by one request, which fills the memory of each: the larger
    the whole read, the more (see `joined_bytes`). When this returns, even with an error, nothing
    more is written to the memory.

    Args:
        store: the store of the objects.
        parts: in any order; they may overlap. Reads of an `ObjectInfo` are pinned to its
            generation.
        sum_kind: sum parts by a CRC of this kind while they arrive, for `Part.crc`.
        in_flight_bytes: how much is read at the same time, if other calls read, too.

    Raises:
        NotFoundError: an object is missing.
        PreconditionFailedError: an object is no longer in that generation.
        InvalidArgumentError: an object ends before a part does.
    """
    for _ in PartReads(store, list(parts), sum_kind=sum_kind, in_flight_bytes=in_flight_bytes):
        pass


def read_into(store: Store, info: ObjectInfo, wanted: Iterable[Wanted]) -> None:
    """Fill memory with parts of one object, as `read_parts` does."""
    read_parts(store, [Part(info, *each) for each in wanted])


class PartReads:
    """Parts of objects on their way, as `read_parts` reads them; iterating yields what has come.

    Reads begin at once, and more of them while somebody iterates: each step is a list of positions
    in `parts`, which are filled now. Iterate to the end, or close it.

    Args:
        max_gap_bytes: the longest gap between two parts that one request reads and drops.
    """

    def __init__(
        self,
        store: Store,
        parts: Sequence[Part],
        *,
        sum_kind: str = "",
        in_flight_bytes: int = 0,
        max_gap_bytes: int = MAX_GAP_BYTES,
    ) -> None:
        self._parts, self._sum_kind = parts, sum_kind
        self._handle = pinned(store)._handle()
        total_bytes = sum(part.end - part.begin for part in parts)
        most_bytes = joined_bytes(max(total_bytes, in_flight_bytes))
        requests = _join(parts, most_bytes, max_gap_bytes)
        self._left = deque(grouped(requests, lambda each: each.end - each.begin, _STEP_BYTES))
        self._under_way: deque[tuple[list[_Request], _engine.Batch]] = deque()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[list[int]]:
        try:
            while self._under_way:
                step, batch = self._under_way[0]
                batch.wait()
                self._under_way.popleft()
                for request, sums in zip(step, batch.place_sums(), strict=True):
                    for i, crc in zip(request.parts, sums, strict=True):
                        self._parts[i].crc = crc
                yield [i for request in step for i in request.parts]
                self._begin()
        finally:
            self.close()

    def close(self) -> None:
        """End the reads: from here on, nothing writes to the caller's memory."""
        self._left.clear()
        while self._under_way:
            _, batch = self._under_way.pop()
            batch.drain()

    def _begin(self) -> None:
        while self._left and len(self._under_way) < _STEPS_IN_FLIGHT:
            step = self._left.popleft()
            batch = self._handle.start_scattered(
                [request.object for request in step],
                [
                    [(self._parts[i].begin, self._parts[i].end, self._parts[i].into) for i in each]
                    for each in (request.parts for request in step)
                ],
                sum_kind=self._sum_kind,
            )
            self._under_way.append((step, batch))


class _Closable(Protocol):
    def close(self) -> None: ...


_Begun = TypeVar("_Begun", bound=_Closable)
_Grouped = TypeVar("_Grouped")


def ahead(begun: Iterable[_Begun], count: int) -> Generator[_Begun]:
    """Yield reads as they are begun, in their order, with `count` more of them begun already.

    If it is closed, these are closed.
    """
    window: deque[_Begun] = deque()
    try:
        for each in begun:
            window.append(each)
            if len(window) > count:
                yield window.popleft()
        while window:
            yield window.popleft()
    finally:
        for each in window:
            each.close()


def grouped(
    those: Iterable[_Grouped], size_bytes: Callable[[_Grouped], int], enough_bytes: int | None
) -> Iterator[list[_Grouped]]:
    """Yield them in groups, each of which ends where it has `enough_bytes`; None: in one."""
    group: list[_Grouped] = []
    group_bytes = 0
    for each in those:
        group.append(each)
        group_bytes += size_bytes(each)
        if enough_bytes is not None and group_bytes >= enough_bytes:
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def expect_parts(store: Store, total_bytes: int) -> None:
    """Open the connections of a read of so many bytes, while it is found out what is where."""
    # Of the file, a little is no tensor: rounded down, so that none is opened for nothing.
    count = total_bytes // joined_bytes(total_bytes)
    if count > 1:
        store.expect_reads(min(count, _REQUESTS))


def joined_bytes(total_bytes: int) -> int:
    """Return how much one request may read for several parts, if so much is read at once.

    Few large requests cost less, and many at once are faster where each connection is slow: so a
    read has 64 of them before they grow.
    """
    return min(max(total_bytes // _REQUESTS, MIN_JOINED_BYTES), MAX_JOINED_BYTES)


def _join(
    parts: Sequence[Part], most_bytes: int, max_gap_bytes: int = MAX_GAP_BYTES
) -> Iterator[_Request]:
    """Yield the requests that cover the parts, object by object, in the order of each."""
    places = {each: i for i, each in enumerate(dict.fromkeys(part.object for part in parts))}
    current: _Request | None = None
    order = sorted(
        range(len(parts)), key=lambda i: (places[parts[i].object], parts[i].begin, parts[i].end)
    )
    for i in order:
        part = parts[i]
        if part.begin == part.end:
            continue
        if (
            current is not None
            and part.object == current.object
            and current.end <= part.begin <= current.end + max_gap_bytes
            and part.end - current.begin <= _most_bytes(current, part, most_bytes)
        ):
            current.end = part.end
            current.parts.append(i)
            continue
        if current is not None:
            yield current
        current = _Request(part.object, part.begin, part.end, [i])
    if current is not None:
        yield current


def _most_bytes(request: _Request, part: Part, most_bytes: int) -> int:
    """Return how much this request may read if it takes this part, too."""
    if min(request.end - request.begin, part.end - part.begin) < SMALL_BYTES:
        return MAX_JOINED_BYTES
    # Tensors often have as many bytes as a limit has, or a half of it, and a little beside them.
    return min(most_bytes + SMALL_BYTES, MAX_JOINED_BYTES)
