"""Batches that follow each other evenly are read before they are asked for."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from headrace.compat._objects import NameAndSize

__all__ = ["EvenBatches"]

Batch = list[NameAndSize]
ReadBatches = Callable[[Iterable[Batch]], Generator[list[bytes]]]


class EvenBatches:
    """What a map-style dataset knows of the batches it was asked for.

    A DataLoader that does not shuffle asks each of its workers for batches that are the same
    distance apart. Once three of them were, the next ones are read ahead, until another one is
    asked for. One that shuffles asks for nothing that could be foretold; nothing is read in vain.

    Threads may share it: who comes while another one is reading reads by itself. A copy, and the
    pickle of one, begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def __reduce__(self) -> tuple[type[EvenBatches], tuple[()]]:
        return EvenBatches, ()

    def read(
        self,
        indices: Sequence[int],
        objects: Sequence[NameAndSize],
        read_batches: ReadBatches,
        source: tuple[object, ...],
    ) -> list[bytes]:
        """Return the contents of ``objects[i]`` for all `indices`, in their order.

        Args:
            indices: the batch that is asked for.
            objects: all of the dataset.
            read_batches: yields the contents of batches, reading ahead as far as it sees fit.
            source: what it reads by; nothing that was read by something else is returned.

        Raises:
            HeadraceError: an object of this batch cannot be read.
        """
        wanted = [objects[index] for index in indices]
        if not wanted:
            return []
        if not self._lock.acquire(blocking=False):
            return _only(read_batches, wanted)
        try:
            # Forked: what is under way is the parent's.
            if self._process != os.getpid() or not _same(self._source, source):
                self._forget(source)
            return self._read(list(indices), wanted, objects, read_batches)
        except BaseException:
            self._forget()
            raise
        finally:
            self._lock.release()

    def _forget(self, source: tuple[object, ...] = ()) -> None:
        self._process = os.getpid()
        self._source = source
        self._last: list[int] = []
        self._distance: int | None = None
        self._stream: Generator[list[bytes]] | None = None
        # What the stream has been asked for and has not yielded yet.
        self._under_way: deque[Batch] = deque()

    def _read(
        self,
        indices: list[int],
        wanted: Batch,
        objects: Sequence[NameAndSize],
        read_batches: ReadBatches,
    ) -> list[bytes]:
        distance = _distance(self._last, indices, len(objects))
        even = distance is not None and distance == self._distance
        self._last, self._distance = indices, distance
        if even and self._stream is not None:
            contents = next(self._stream, None)
            # Else the dataset's list of objects was changed.
            if contents is not None and self._under_way.popleft() == wanted:
                return contents
        self._stop()
        if not even or distance is None:
            return _only(read_batches, wanted)
        self._stream = read_batches(self._follow(indices, distance, objects))
        contents = next(self._stream)
        self._under_way.popleft()
        return contents

    def _follow(
        self, indices: list[int], distance: int, objects: Sequence[NameAndSize]
    ) -> Iterator[Batch]:
        while indices:
            batch = [objects[index] for index in indices]
            self._under_way.append(batch)
            yield batch
            indices = [index + distance for index in indices if index + distance < len(objects)]

    def _stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._under_way.clear()


def _distance(before: list[int], now: list[int], count: int) -> int | None:
    """How far apart two batches are; the last batch of all may be cut short."""
    if not before or not now:
        return None
    distance = now[0] - before[0]
    expected = [index + distance for index in before if index + distance < count]
    return distance if distance > 0 and before[0] >= 0 and now == expected else None


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(
        a is b or (isinstance(a, str) and a == b) for a, b in zip(one, other, strict=True)
    )


def _only(read_batches: ReadBatches, wanted: Batch) -> list[bytes]:
    with contextlib.closing(read_batches([wanted])) as stream:
        return next(stream)
