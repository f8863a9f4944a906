"""Rows of Parquet files on their way: which come next, and as which values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch.utils.dlpack import from_dlpack

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.pyarrow import pyarrow_for
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
        self.skipped = start.skipped
        """How many rows were left out because of errors, of those that were drawn."""

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

    def count_row(self, *, skipped: int | None = None) -> None:
        """Count one row more, of those that were drawn since `keep`, as yielded; or as left out,
        which are then so many in all.
        """
        self._since += 1
        if skipped is not None:
            self.skipped = skipped
            self._kept = replace(self._kept, skipped=skipped)

    def keep(self) -> None:
        """Count all rows that were drawn as yielded, and all parts that were begun as begun."""
        parts = tuple(slot.part for slot in self.slots)
        self._kept = replace(
            self.start, yielded=self._drawn, begun=self.begun, parts=parts, skipped=self.skipped
        )
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

    A value is of a type that depends on itself alone, and not on other rows: a list without a null
    is a tensor, and so is a list of lists that are equally long. No Python runs per value of a
    column of numbers, or of lists of numbers without nulls inside.
    """
    names = table.column_names
    values = [
        _named(name, _values, column.combine_chunks())
        for name, column in zip(names, table.columns, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def columns_of(table: Any) -> dict[str, Any]:
    """Return the columns: tensors of those of numbers, booleans or fixed shapes, lists of others.

    Raises:
        InvalidArgumentError: what becomes a tensor has a null, which a tensor cannot hold.
    """
    made: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        if _has_one_shape(array.type):
            tensor = _named(name, _dense, array)
            if tensor is None:
                raise InvalidArgumentError(
                    f"the column {name!r} has a null, which no tensor can hold: give a transform, "
                    "which gets a pyarrow.Table and fills it, or leave the column out"
                )
            made[name] = tensor
        else:
            made[name] = _named(name, _values, array)
    return made


def _named(name: str, make: Callable[[Any], _Made], values: Any) -> _Made:
    """Make something of a column; an error says which it is."""
    pyarrow, _ = pyarrow_for(_WHAT)
    try:
        return make(values)
    # Python's own dates and durations have narrower limits than Arrow's.
    except (pyarrow.ArrowException, ArithmeticError, ValueError) as error:
        raise InvalidArgumentError(
            f"the column {name!r} has a value that cannot be given: {error}; with batch_size, a "
            "transform gets it as pyarrow has it"
        ) from error


def _values(array: Any) -> list[Any]:
    """Return a value for each row of an array."""
    kind = array.type
    values: list[Any]
    if _is_leaf(kind):
        if array.null_count > 0:
            values = array.to_pylist()
        else:
            values = array.to_numpy(zero_copy_only=False).tolist()
        return values
    if _has_one_shape(kind):
        dense = _dense(array)
        return _row_by_row(array) if dense is None else list(dense.unbind())
    if not _is_of_numbers(kind):
        values = array.to_pylist()
        return values
    flat = array.flatten()  # without the null rows
    dense = _dense(flat) if _has_one_shape(flat.type) else None
    if dense is None:
        return _row_by_row(array)
    lengths = array.value_lengths()
    if array.null_count == 0:
        return list(torch.split(dense, lengths.to_numpy(zero_copy_only=False).tolist()))
    given = iter(torch.split(dense, lengths.drop_null().to_numpy(zero_copy_only=False).tolist()))
    return [next(given) if is_given else None for is_given in array.is_valid().to_pylist()]


def _row_by_row(array: Any) -> list[Any]:
    """Return values of rows some of which hold nulls, or are lists of lists."""
    kind = array.type
    if _is_shaped(kind):
        array = array.storage
    rows: list[Any] = []
    for scalar in array:
        if not scalar.is_valid:
            rows.append(None)
        elif _is_shaped(kind) and (flat := _dense(scalar.values)) is not None:
            rows.append(_shaped(flat.unsqueeze(0), kind)[0])
        else:
            rows.append(_of_list(scalar.values))
    return rows


def _of_list(items: Any) -> Any:
    """Return a tensor of the items of one list, or a list if no tensor can hold them."""
    if _has_one_shape(items.type):
        dense = _dense(items)
        return items.to_pylist() if dense is None else dense
    rows = _values(items)
    if not rows:
        return _dense_of_none(items.type)
    is_even = all(isinstance(row, torch.Tensor) for row in rows) and (
        len({row.shape for row in rows}) == 1
    )
    return torch.stack(rows) if is_even else items.to_pylist()


def _dense_of_none(kind: Any) -> torch.Tensor:
    """Return the tensor of an empty list of lists, which has their dimensions and type."""
    dimensions = 1
    while not _has_one_shape(kind):
        kind, dimensions = kind.value_type, dimensions + 1
    empty = _dense(pyarrow_for(_WHAT)[0].nulls(0, kind))
    assert empty is not None
    return empty.reshape((*(0,) * dimensions, *empty.shape[1:]))


def _dense(array: Any) -> torch.Tensor | None:
    """Return values of one shape as the rows of one tensor; None: there is a null among them."""
    pyarrow, _ = pyarrow_for(_WHAT)
    kind = array.type
    if _is_shaped(kind):
        dense = _dense(array.storage)
        return None if dense is None else _shaped(dense, kind)
    if array.null_count > 0:
        return None
    if pyarrow.types.is_fixed_size_list(kind):
        flat = _dense(array.flatten())
        return None if flat is None else flat.reshape(len(array), kind.list_size, *flat.shape[1:])
    if len(array) == 0:
        array = pyarrow.nulls(0, kind)
    if pyarrow.types.is_boolean(kind):
        return from_dlpack(array.cast(pyarrow.uint8())).view(torch.bool)
    # torch computes with no other unsigned integers.
    signed = {
        pyarrow.uint16(): pyarrow.int32(),
        pyarrow.uint32(): pyarrow.int64(),
        pyarrow.uint64(): pyarrow.int64(),
    }.get(kind)
    return from_dlpack(array if signed is None else array.cast(signed))


def _shaped(rows: torch.Tensor, kind: Any) -> torch.Tensor:
    """Return the tensors of a type of Arrow's that names their shape, one a row."""
    shaped = rows.reshape(len(rows), *kind.shape)
    if kind.permutation is None:
        return shaped
    return shaped.permute(0, *(dimension + 1 for dimension in kind.permutation))


def _is_leaf(kind: Any) -> bool:
    types = pyarrow_for(_WHAT)[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_shaped(kind: Any) -> bool:
    """Return whether values are tensors of a shape that the type names."""
    return isinstance(kind, pyarrow_for(_WHAT)[0].FixedShapeTensorType)


def _has_one_shape(kind: Any) -> bool:
    """Return whether all values are numbers, or tensors of one shape."""
    types = pyarrow_for(_WHAT)[0].types
    while types.is_fixed_size_list(kind):
        kind = kind.value_type
    return _is_leaf(kind) or _is_shaped(kind)


def _is_of_numbers(kind: Any) -> bool:
    """Return whether values are numbers, or lists of them at any depth."""
    types = pyarrow_for(_WHAT)[0].types
    while types.is_large_list(kind) or types.is_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return _is_leaf(kind) or _is_shaped(kind)


def _as_array(places: memoryview) -> Any:
    """Return a buffer of int64 as an array of Arrow, which shares its memory."""
    pyarrow, _ = pyarrow_for(_WHAT)
    return pyarrow.Array.from_buffers(
        pyarrow.int64(), len(places), [None, pyarrow.py_buffer(places)]
    )
