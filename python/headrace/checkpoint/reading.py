"""Read many parts of one object into memory that is there already, with few requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace import _engine
from headrace._engine import ObjectInfo
from headrace.checkpoint.location import pinned
from headrace.store import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Wanted", "read_into", "read_steps"]

Wanted = tuple[int, int, "Buffer"]
"""``[begin, end)`` of the object, and where these bytes go: exactly as long."""

MAX_GAP_BYTES = 1 << 20
"""What one request reads and drops between two wanted ranges, at most."""
MAX_JOINED_BYTES = 16 << 20
"""What one request reads for several ranges, at most; it is copied to where it belongs."""
DIRECT_BYTES = 2 << 20
"""Ranges from this size on are requests of their own, straight into their memory."""

# What is under way at once: steps, and in each so many bytes, and so much of them to be copied.
_STEPS_IN_FLIGHT = 3
STEP_BYTES = 64 << 20
_STEP_COPIED_BYTES = 16 << 20


@dataclass
class _Request:
    """One range that is read; by itself, or for several that are wanted."""

    begin: int
    end: int
    parts: list[int]
    """Which of those that are wanted."""
    memory: memoryview = field(default_factory=lambda: memoryview(b""))


def read_into(store: Store, info: ObjectInfo, wanted: Iterable[Wanted]) -> None:
    """Fill memory with parts of one object.

    Ranges that are close to each other are read together, and copied from the 48 MiB that are held
    for that at most; large ranges go straight to their memory.

    Args:
        store: where the object is.
        info: the object. Reads are pinned to its generation.
        wanted: ``(begin, end, buffer)``, in any order; they may overlap.

    Raises:
        PreconditionFailedError: the object is no longer in that generation.
    """
    for _ in read_steps(store, info, list(wanted)):
        pass


def read_steps(
    store: Store, info: ObjectInfo, wanted: Sequence[Wanted], *, step_bytes: int = STEP_BYTES
) -> Iterator[list[int]]:
    """The same, step by step: yield the positions in `wanted` whose memory is filled now.

    Steps are started in the order of the object, some ahead of the caller.

    Args:
        step_bytes: how much a step reads, about; a larger range is not divided.
    """
    handle = pinned(store)._handle()
    buffers = [memoryview(buffer).cast("B") for _, _, buffer in wanted]
    left = deque(_steps(_join(wanted), step_bytes))
    under_way: deque[tuple[list[_Request], _engine.Batch]] = deque()
    try:
        while left or under_way:
            while left and len(under_way) < _STEPS_IN_FLIGHT:
                step = left.popleft()
                for request in step:
                    request.memory = (
                        buffers[request.parts[0]]
                        if len(request.parts) == 1
                        else memoryview(bytearray(request.end - request.begin))
                    )
                batch = handle.start(
                    [info] * len(step),
                    [request.memory for request in step],
                    [(request.begin, request.end) for request in step],
                )
                under_way.append((step, batch))
            step, batch = under_way.popleft()
            batch.take(return_errors=False)
            yield [part for request in step for part in _distribute(request, wanted, buffers)]
    finally:
        # Nobody may write to the caller's memory any more.
        for _, batch in under_way:
            batch.drain()


def _join(wanted: Sequence[Wanted]) -> Iterator[_Request]:
    """Yield the requests that cover what is wanted, in the order of the object."""
    current: _Request | None = None
    order = sorted(range(len(wanted)), key=lambda i: wanted[i][:2])
    for i in order:
        begin, end, _ = wanted[i]
        if begin == end:
            continue
        is_small = end - begin < DIRECT_BYTES
        if (
            current is not None
            and is_small
            and begin - current.end <= MAX_GAP_BYTES
            and max(end, current.end) - current.begin <= MAX_JOINED_BYTES
        ):
            current.end = max(end, current.end)
            current.parts.append(i)
            continue
        if current is not None:
            yield current
            current = None
        if is_small:
            current = _Request(begin, end, [i])
        else:
            yield _Request(begin, end, [i])
    if current is not None:
        yield current


def _steps(requests: Iterable[_Request], step_bytes: int) -> Iterator[list[_Request]]:
    step: list[_Request] = []
    total_bytes = copied_bytes = 0
    for request in requests:
        size_bytes = request.end - request.begin
        step.append(request)
        total_bytes += size_bytes
        copied_bytes += size_bytes if len(request.parts) > 1 else 0
        if total_bytes >= step_bytes or copied_bytes >= _STEP_COPIED_BYTES:
            yield step
            step, total_bytes, copied_bytes = [], 0, 0
    if step:
        yield step


def _distribute(
    request: _Request, wanted: Sequence[Wanted], buffers: Sequence[memoryview]
) -> list[int]:
    if len(request.parts) > 1:
        for part in request.parts:
            begin, end, _ = wanted[part]
            buffers[part][:] = request.memory[begin - request.begin : end - request.begin]
    request.memory = memoryview(b"")
    return request.parts
