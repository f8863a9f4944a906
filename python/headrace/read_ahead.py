"""Several batches under way at a time, in order, within the memory budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from headrace import _engine
from headrace._engine import ObjectInfo, Sample

__all__ = ["as_batch", "read_ahead"]

NameOrInfo = str | ObjectInfo


def as_batch(names: Iterable[NameOrInfo]) -> Sequence[NameOrInfo]:
    """Return `names` as a sequence that the engine takes; one name is not a batch."""
    if isinstance(names, str | ObjectInfo):
        raise TypeError(f"several names are needed, not one {type(names).__name__}")
    return names if isinstance(names, list | tuple) else list(names)


def read_ahead(
    opened: tuple[_engine.Engine, _engine.StoreHandle],
    batches: Iterator[Iterable[NameOrInfo]],
    ahead_bytes: int | None,
    return_errors: bool,
) -> Iterator[list[Sample]]:
    """Yield the samples of each batch; see `Store.read_batches`."""
    engine, store = opened
    ahead: deque[tuple[_engine.Batch, int, int]] = deque()  # with its bytes and its objects
    bytes_ahead = objects_ahead = 0
    next_bytes = 0  # what another batch is thought to take: as much as the last one
    failure: Exception | None = None
    budget_bytes = engine.budget_bytes
    limit_bytes = budget_bytes // 2 if ahead_bytes is None else ahead_bytes

    def is_room() -> bool:
        if not ahead:
            return True
        if bytes_ahead + next_bytes > limit_bytes:
            return False
        if ahead_bytes is None and len(ahead) >= 2 and objects_ahead >= 2 * store.useful_in_flight:
            return False
        return engine.live_bytes + next_bytes <= budget_bytes

    more = True

    def fill() -> None:
        nonlocal bytes_ahead, objects_ahead, next_bytes, failure, more
        while more and is_room():
            try:
                items = as_batch(next(batches))
                batch = store.start(items)
            except StopIteration:
                more = False
            except Exception as error:  # told when its turn comes
                failure, more = error, False
            else:
                next_bytes = _engine.expected_bytes(items, store.expected_object_bytes)
                ahead.append((batch, next_bytes, len(items)))
                bytes_ahead += next_bytes
                objects_ahead += len(items)

    try:
        fill()
        while ahead:
            samples = ahead[0][0].take(return_errors=return_errors)
            _, taken_bytes, taken_objects = ahead.popleft()
            bytes_ahead -= taken_bytes
            objects_ahead -= taken_objects
            fill()  # so that something is under way while the caller works
            yield samples
            del samples  # the caller's now; we must not keep them alive
            fill()
        if failure is not None:
            raise failure
    finally:
        failure = None  # its traceback refers to this frame
        for batch, _, _ in ahead:
            batch.cancel()
        for batch, _, _ in ahead:
            batch.drain()
