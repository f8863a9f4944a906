"""A listing as the ``(name, size)`` pairs that users of dataflux work with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any, SupportsIndex, TypeAlias, TypeVar, overload

from headrace import ObjectIndex, ObjectInfo

__all__ = ["ListedObject", "ListedObjects", "grouped"]

NameAndSize: TypeAlias = tuple[str, int]
Value = TypeVar("Value")


class ListedObject(tuple[str, int]):
    """``(name, size in bytes)``, with everything else from the listing in `info`.

    A download of one knows the size, generation and checksum before the first byte.
    """

    info: ObjectInfo

    def __new__(cls, info: ObjectInfo) -> ListedObject:
        pair = super().__new__(cls, (info.name, info.size_bytes))
        pair.info = info
        return pair

    def __reduce__(self) -> tuple[Any, ...]:
        return ListedObject, (self.info,)


class ListedObjects(MutableSequence[NameAndSize]):
    """A listing that behaves like a list of pairs.

    It makes a pair when it is asked for one. The first change (shuffling, sorting, appending) turns
    it into a real list.
    """

    def __init__(self, infos: Sequence[ObjectInfo] | ObjectIndex) -> None:
        self._infos = infos
        self._pairs: list[NameAndSize] | None = None

    @overload
    def __getitem__(self, index: SupportsIndex) -> NameAndSize: ...
    @overload
    def __getitem__(self, index: slice) -> ListedObjects: ...
    def __getitem__(self, index: SupportsIndex | slice) -> NameAndSize | ListedObjects:
        if not isinstance(index, slice):
            position = operator.index(index)
            if self._pairs is not None:
                return self._pairs[position]
            return ListedObject(self._infos[position])
        if self._pairs is None:
            return ListedObjects(self._infos[index])
        part = ListedObjects(())
        part._pairs = self._pairs[index]
        return part

    def __len__(self) -> int:
        return len(self._infos if self._pairs is None else self._pairs)

    def __iter__(self) -> Iterator[NameAndSize]:
        if self._pairs is None:
            return map(ListedObject, self._infos)
        return iter(self._pairs)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._own()[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._own()[index]

    def insert(self, index: SupportsIndex, value: NameAndSize) -> None:
        self._own().insert(index, value)

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        self._own().sort(key=key, reverse=reverse)

    def copy(self) -> ListedObjects:
        return self[:]

    def __add__(self, other: Iterable[NameAndSize]) -> list[NameAndSize]:
        return [*self, *other]

    def __radd__(self, other: Iterable[NameAndSize]) -> list[NameAndSize]:
        return [*other, *self]

    def __mul__(self, times: SupportsIndex) -> list[NameAndSize]:
        return list(self) * times

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | ListedObjects):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # it can change, like a list

    def __repr__(self) -> str:
        return repr(list(self))

    def _own(self) -> list[NameAndSize]:
        if self._pairs is None:
            self._pairs, self._infos = list(self), ()
        return self._pairs


def grouped(
    values: Iterable[Value],
    size_bytes: Callable[[Value], int],
    *,
    max_objects: int,
    max_bytes: int | None,
) -> Iterator[list[Value]]:
    """Yield `values` in order, in groups of up to `max_objects` and `max_bytes`; None: any number.

    No group exceeds either limit, except that a value larger than `max_bytes` is its own group.
    """
    group: list[Value] = []
    group_bytes = 0
    for each in values:
        size = 0 if max_bytes is None else size_bytes(each)
        if group and max_bytes is not None and group_bytes + size > max_bytes:
            yield group
            group, group_bytes = [], 0
        group.append(each)
        group_bytes += size
        # A full group does not wait for the value behind it.
        if len(group) == max_objects or (max_bytes is not None and group_bytes >= max_bytes):
            yield group
            group, group_bytes = [], 0
    if group:
        yield group
