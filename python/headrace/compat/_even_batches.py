"""Reads batches ahead if a dataset is asked for them at even distances."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["EvenBatches"]

Item = TypeVar("Item")


class EvenBatches(Generic[Item]):
    """The batches that a map-style dataset was asked for, and those it expects next.

    A DataLoader that does not shuffle asks each of its workers for batches at equal distances.
    After three such batches, the next ones are read ahead, until a different one is asked for. A
    DataLoader that shuffles is unpredictable, so nothing is read ahead for it.

    Threads may share it; a thread that comes while another one reads does its own reading. Copies
    and pickles begin anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def __reduce__(self) -> tuple[type[EvenBatches[Any]], tuple[()]]:
        return EvenBatches, ()

    def read(
        self,
        indices: Sequence[int],
        objects: Sequence[Item],
        read_batches: Callable[[Iterable[list[Item]]], Generator[list[bytes]]],
        source: tuple[object, ...],
    ) -> list[bytes]:
        """Return the contents of ``objects[i]`` for all `indices`, in their order.

        Args:
            indices: the batch to return.
            objects: all objects of the dataset.
            read_batches: yields the contents of batches and reads ahead as far as it sees fit.
            source: identifies how it reads; contents read in another way are never returned.

        Raises:
            HeadraceError: an object of this batch cannot be read.
        """
        wanted = [objects[index] for index in indices]
        if not wanted:
            return []
        if not self._lock.acquire(blocking=False):
            return _only(read_batches, wanted)
        try:
            # After a fork, reads in progress belong to the parent.
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
        # Batches that the stream was asked for and has not yielded.
        self._under_way: deque[list[Item]] = deque()

    def _read(
        self,
        indices: list[int],
        wanted: list[Item],
        objects: Sequence[Item],
        read_batches: Callable[[Iterable[list[Item]]], Generator[list[bytes]]],
    ) -> list[bytes]:
        distance = _distance(self._last, indices, len(objects))
        even = distance is not None and distance == self._distance
        self._last, self._distance = indices, distance
        if even and self._stream is not None:
            contents = next(self._stream, None)
            # Otherwise the dataset's list of objects was changed.
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
        self, indices: list[int], distance: int, objects: Sequence[Item]
    ) -> Iterator[list[Item]]:
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
    """Return the distance between two batches; the very last batch may be shorter."""
    if not before or not now:
        return None
    distance = now[0] - before[0]
    expected = [index + distance for index in before if index + distance < count]
    return distance if distance > 0 and before[0] >= 0 and now == expected else None


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(
        a is b or (isinstance(a, str) and a == b) for a, b in zip(one, other, strict=True)
    )


def _only(
    read_batches: Callable[[Iterable[list[Item]]], Generator[list[bytes]]], wanted: list[Item]
) -> list[bytes]:
    with contextlib.closing(read_batches([wanted])) as stream:
        return next(stream)
