"""Read many parts of objects into existing memory with few requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace import _engine
from headrace._engine import ObjectInfo
from headrace._store import NameOrInfo, Store
from headrace.checkpoint._object import pinned

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Part", "Wanted", "read_into", "read_parts", "read_steps"]

Wanted = tuple[int, int, "Buffer"]
"""``[begin, end)`` of the object, and memory of exactly that size for these bytes."""

MAX_GAP_BYTES = 1 << 20
"""The longest gap between two wanted ranges that one request reads and drops."""
MAX_JOINED_BYTES = 16 << 20
"""The most that one request reads for several ranges; the bytes are then copied."""
DIRECT_BYTES = 2 << 20
"""Ranges of this size or more have requests of their own, straight into their memory."""

# Steps in flight at once, the bytes in each, and the bytes of a step that must be copied.
_STEPS_IN_FLIGHT = 3
_STEP_BYTES = 64 << 20
_STEP_COPIED_BYTES = 16 << 20


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
    """One range to read, for one or several wanted parts."""

    object: NameOrInfo
    begin: int
    end: int
    parts: list[int]
    """The indices of these parts."""
    memory: memoryview = field(default_factory=lambda: memoryview(b""))


def read_parts(store: Store, parts: Iterable[Part], *, sum_kind: str = "") -> None:
    """Fill memory with parts of objects.

    Ranges close to each other are read together and then copied; at most 48 MiB are held for that.
    Large ranges go straight to their memory. When this returns, even with an error, nothing more is
    written to the memory.

    Args:
        store: the store of the objects.
        parts: in any order; they may overlap. Reads of an `ObjectInfo` are pinned to its
            generation.
        sum_kind: sum parts by a CRC of this kind while they arrive, as far as that is free, for
            `Part.crc`.

    Raises:
        NotFoundError: an object is missing.
        PreconditionFailedError: an object is no longer in that generation.
        CorruptDataError: an object ends before a part does.
    """
    for _ in _read(store, list(parts), sum_kind):
        pass


def read_into(store: Store, info: ObjectInfo, wanted: Iterable[Wanted]) -> None:
    """Fill memory with parts of one object, as `read_parts` does."""
    read_parts(store, [Part(info, *each) for each in wanted])


def read_steps(
    store: Store, info: ObjectInfo, wanted: Iterable[Wanted], *, sum_kind: str
) -> Iterator[list[tuple[int, int | None]]]:
    """Do the same step by step: yield what is now filled, as positions in `wanted` and `Part.crc`.

    Steps start in the order of the object, some of them ahead of the caller.
    """
    parts = [Part(info, *each) for each in wanted]
    for filled in _read(store, parts, sum_kind):
        yield [(i, parts[i].crc) for i in filled]


def _read(store: Store, parts: Sequence[Part], sum_kind: str) -> Iterator[list[int]]:
    handle = pinned(store)._handle()
    buffers = [memoryview(part.into) for part in parts]
    left = deque(_steps(_join(parts)))
    under_way: deque[tuple[list[_Request], _engine.Batch]] = deque()
    try:
        while left or under_way:
            while left and len(under_way) < _STEPS_IN_FLIGHT:
                step = left.popleft()
                for request in step:
                    request.memory = (
                        buffers[request.parts[0]].cast("B")
                        if len(request.parts) == 1
                        else memoryview(bytearray(request.end - request.begin))
                    )
                batch = handle.start(
                    [request.object for request in step],
                    [request.memory for request in step],
                    [(request.begin, request.end) for request in step],
                    sum_kind=sum_kind,
                )
                under_way.append((step, batch))
            step, batch = under_way.popleft()
            batch.take(return_errors=False)
            for request, crc in zip(step, batch.sums(), strict=True):
                if len(request.parts) == 1:
                    parts[request.parts[0]].crc = crc
            yield [part for request in step for part in _distribute(request, parts, buffers)]
    finally:
        # From here on, nothing may write to the caller's memory.
        for _, batch in under_way:
            batch.drain()


def _join(parts: Sequence[Part]) -> Iterator[_Request]:
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
        is_small = part.end - part.begin < DIRECT_BYTES
        if (
            current is not None
            and is_small
            and part.object == current.object
            and part.begin - current.end <= MAX_GAP_BYTES
            and max(part.end, current.end) - current.begin <= MAX_JOINED_BYTES
        ):
            current.end = max(part.end, current.end)
            current.parts.append(i)
            continue
        if current is not None:
            yield current
            current = None
        request = _Request(part.object, part.begin, part.end, [i])
        if is_small:
            current = request
        else:
            yield request
    if current is not None:
        yield current


def _steps(requests: Iterable[_Request]) -> Iterator[list[_Request]]:
    step: list[_Request] = []
    total_bytes = copied_bytes = 0
    for request in requests:
        size_bytes = request.end - request.begin
        step.append(request)
        total_bytes += size_bytes
        copied_bytes += size_bytes if len(request.parts) > 1 else 0
        if total_bytes >= _STEP_BYTES or copied_bytes >= _STEP_COPIED_BYTES:
            yield step
            step, total_bytes, copied_bytes = [], 0, 0
    if step:
        yield step


def _distribute(
    request: _Request, parts: Sequence[Part], buffers: Sequence[memoryview]
) -> list[int]:
    if len(request.parts) > 1:
        for i in request.parts:
            begin, end = parts[i].begin - request.begin, parts[i].end - request.begin
            buffers[i].cast("B")[:] = request.memory[begin:end]
    request.memory = memoryview(b"")
    return request.parts
