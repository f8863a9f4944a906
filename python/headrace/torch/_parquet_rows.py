"""Rows of Parquet files on their way: which come next, and as which values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch.utils.dlpack import from_dlpack

from headrace import _engine
from headrace._errors import InvalidArgumentError
from headrace._pyarrow import pyarrow_for
from headrace.torch._part_stream import Start
from headrace.torch._shard_work import Part

__all__ = ["OpenGroup", "RowReader", "Rows", "Slot", "columns_of", "picked", "rows_of"]

_WHAT = "ParquetDataset"
_Made = TypeVar("_Made")


class Rows:
    """Some rows: a ``pyarrow.Table``, and the number of each in the dataset."""

    def __init__(self, table: Any, first: int, places: range | memoryview) -> None:
        self.table = table
        # Row i has the number first + places[i], or that of row places[i] of the parts together.
        self._first, self._places = first, places
        self._parts: Sequence[Rows] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def number(self, row: int) -> int:
        """Return the number of a row."""
        place = int(self._places[row])
        for part in self._parts:
            if place < len(part):
                return part.number(place)
            place -= len(part)
        return self._first + place

    @staticmethod
    def joined(parts: Sequence[Rows], order: memoryview | None = None) -> Rows:
        """Return the rows of all parts, in the `order` of their places behind each other."""
        pyarrow, _ = pyarrow_for(_WHAT)
        if len(parts) == 1 and order is None:
            return parts[0]
        table = pyarrow.concat_tables([each.table for each in parts])
        if order is not None:
            table = table.take(_as_array(order))
        rows = Rows(table, 0, range(table.num_rows) if order is None else order)
        rows._parts = parts
        return rows


class OpenGroup:
    """A row group that was read. Its rows come in an order of their own."""

    def __init__(self, table: Any, first: int, order: _engine.Order, *, shuffled: bool) -> None:
        self._table, self._first, self._order, self._shuffled = table, first, order, shuffled

    def rows(self, begin: int, end: int) -> Rows:
        """Return the rows at these places of the order."""
        if not self._shuffled:
            return Rows(self._table.slice(begin, end - begin), self._first, range(begin, end))
        return picked(self._table, self._first, self._order.indices(begin, end))


def picked(table: Any, first: int, places: memoryview) -> Rows:
    """Return some rows of a row group, the first of which has the number `first`."""
    return Rows(table.take(_as_array(places)), first, places)


class Slot:
    """A part from which a reader takes rows, and the row group in which they are once it is open.

    Of a part that begins at its end, there are none.
    """

    def __init__(self, part: Part, group: OpenGroup | None = None) -> None:
        self.part, self.group = part, group

    @property
    def left(self) -> int:
        return self.part.end - self.part.begin

    def take(self, count: int) -> Rows:
        """Return the next rows, so many."""
        begin = self.part.begin
        self.part = replace(self.part, begin=begin + count)
        assert self.group is not None
        return self.group.rows(begin, begin + count)

    def leave_out(self) -> None:
        """Take no more rows from it."""
        self.part = replace(self.part, begin=self.part.end)


class RowReader:
    """What one reader has yielded of its share, and where it is.

    It draws each row from one of its slots. A stop loses nothing: rows that were drawn count as
    yielded from `keep` on, or one by one by `count_row`.
    """

    def __init__(self, start: Start, seed: int) -> None:
        self.start = start
        self.slots = [Slot(part) for part in start.parts]
        self.begun = start.begun
        self._seed = seed
        self._drawn = start.yielded
        self._kept = start
        self._since = 0  # rows that were counted since

    @property
    def yielded(self) -> int:
        return self._kept.yielded + self._since

    def now(self) -> Start:
        """Return where a reader begins that is to continue from here."""
        kept = self._kept
        if self._since == 0:
            return kept
        left = [part.end - part.begin for part in kept.parts]
        counts, _ = self._mix(left, kept.yielded, self._since)
        parts = (
            replace(part, begin=part.begin + count)
            for part, count in zip(kept.parts, counts, strict=True)
        )
        return replace(kept, yielded=self.yielded, parts=tuple(parts))

    def draw(self, count: int) -> Rows:
        """Return the next rows, at most so many, and none behind the last one of a slot."""
        counts, order = self._mix([slot.left for slot in self.slots], self._drawn, count)
        if counts.count(0) == len(counts) - 1:
            order = None  # all of one slot
        drawn = [slot.take(each) for slot, each in zip(self.slots, counts, strict=True) if each > 0]
        self._drawn += sum(counts)
        return Rows.joined(drawn, order)

    def count_row(self) -> None:
        """Count one row more, of those that were drawn since `keep`, as yielded."""
        self._since += 1

    def keep(self) -> None:
        """Count all rows that were drawn as yielded, and all parts that were begun as begun."""
        parts = tuple(slot.part for slot in self.slots)
        self._kept = replace(self.start, yielded=self._drawn, begun=self.begun, parts=parts)
        self._since = 0

    def _mix(self, left: list[int], first: int, count: int) -> tuple[list[int], memoryview | None]:
        if len(left) == 1:
            return [min(count, left[0])], None
        start = self.start
        counts, order = _engine.mix_rows(
            left, seed=self._seed, epoch=start.epoch, lane=start.lane, first=first, count=count
        )
        return counts, order


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Return each row as a dict: numbers and texts as Python has them, lists of numbers as tensors.

    No Python runs per value of a column of numbers.
    """
    names = table.column_names
    values = [
        _named(name, _values, column) for name, column in zip(names, table.columns, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def columns_of(table: Any) -> dict[str, Any]:
    """Return the columns: tensors of those of numbers, lists of others.

    Raises:
        InvalidArgumentError: a column of numbers has a null, which a tensor cannot hold.
    """
    made: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        if _is_number(array.type) or _is_bool(array.type) or _is_list_of_equals(array.type):
            tensor = _named(name, _tensor, array)
            if tensor is None:
                raise InvalidArgumentError(
                    f"the column {name!r} has a null, which no tensor can hold: give a transform, "
                    "which gets a pyarrow.Table and fills it, or leave the column out"
                )
            made[name] = tensor
        else:
            made[name] = _named(name, _values, column)
    return made


def _named(name: str, make: Callable[[Any], _Made], values: Any) -> _Made:
    """Make something of a column; an error says which it is."""
    pyarrow, _ = pyarrow_for(_WHAT)
    try:
        return make(values)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"the column {name!r} has a value that cannot be given: {error}; with batch_size, a "
            "transform gets it as pyarrow has it"
        ) from error


def _values(column: Any) -> list[Any]:
    """Return a value for each row of a column."""
    array = column.combine_chunks()
    kind = array.type
    if (_is_number(kind) or _is_bool(kind)) and array.null_count == 0:
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    if _is_list_of_equals(kind):
        tensor = _tensor(array)
        if tensor is not None:
            return list(tensor.unbind())
    elif _is_list(kind) and _is_number(kind.value_type) and array.null_count == 0:
        flat = _tensor(array.flatten())
        if flat is not None:
            lengths = array.value_lengths().to_numpy(zero_copy_only=False).tolist()
            return list(torch.split(flat, lengths))
    rows: list[Any] = array.to_pylist()
    return rows


def _tensor(array: Any) -> torch.Tensor | None:
    """Return the values of an array of numbers, or of lists of equally many; None: it has nulls."""
    pyarrow, _ = pyarrow_for(_WHAT)
    kind = array.type
    if array.null_count > 0:
        return None
    if _is_list_of_equals(kind):
        flat = _tensor(array.flatten())
        return None if flat is None else flat.reshape(len(array), kind.list_size)
    if len(array) == 0:
        array = pyarrow.nulls(0, kind)
    if _is_bool(kind):
        return from_dlpack(array.cast(pyarrow.uint8())).view(torch.bool)
    # torch computes with no other unsigned integers.
    signed = {
        pyarrow.uint16(): pyarrow.int32(),
        pyarrow.uint32(): pyarrow.int64(),
        pyarrow.uint64(): pyarrow.int64(),
    }.get(kind)
    return from_dlpack(array if signed is None else array.cast(signed))


def _is_number(kind: Any) -> bool:
    types = pyarrow_for(_WHAT)[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _is_bool(kind: Any) -> bool:
    return bool(pyarrow_for(_WHAT)[0].types.is_boolean(kind))


def _is_list_of_equals(kind: Any) -> bool:
    types = pyarrow_for(_WHAT)[0].types
    return bool(types.is_fixed_size_list(kind) and _is_number(kind.value_type))


def _is_list(kind: Any) -> bool:
    types = pyarrow_for(_WHAT)[0].types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _as_array(places: memoryview) -> Any:
    """Return a buffer of int64 as an array of Arrow, which shares its memory."""
    pyarrow, _ = pyarrow_for(_WHAT)
    return pyarrow.Array.from_buffers(
        pyarrow.int64(), len(places), [None, pyarrow.py_buffer(places)]
    )
