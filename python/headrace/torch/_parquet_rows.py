"""Rows of Parquet files as tables of pyarrow, and as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy
import torch
from torch.utils.dlpack import from_dlpack

from headrace._base.errors import InvalidArgumentError
from headrace._base.pyarrow import pyarrow_for
from headrace.torch._units import Places, is_run

__all__ = ["columns_of", "joined", "picked", "rows_of"]

_Made = TypeVar("_Made")


@cache
def _pyarrow() -> Any:
    return pyarrow_for("ParquetDataset")[0]


def picked(table: Any, places: Places) -> Any:
    """Return the rows of a table at these places."""
    if is_run(places):
        return table.slice(int(places[0]) if len(places) > 0 else 0, len(places))
    return table.take(_as_array(places))


def joined(tables: Sequence[Any], places: Sequence[Places]) -> Any:
    """Return the rows of all tables as one table, in the order of the places they are given, which
    ascend in each table.
    """
    if len(tables) == 1:
        return tables[0]
    pyarrow = _pyarrow()
    table = pyarrow.concat_tables(tables)
    if all(isinstance(each, range) for each in places):
        return table  # of one run
    return picked(table, numpy.concatenate(places).argsort(kind="stable"))


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
                    f"the column {name!r} has a null, which no tensor can hold: leave the column "
                    "out, or give a transform that fills it. In a Loader it gets a row as a dict; "
                    "of a ParquetDataset with batch_size, a pyarrow.Table"
                )
            made[name] = tensor
        else:
            made[name] = _named(name, _values, array)
    return made


def _named(name: str, make: Callable[[Any], _Made], values: Any) -> _Made:
    """Make something of a column; an error says which it is."""
    pyarrow = _pyarrow()
    try:
        return make(values)
    # Python's own dates and durations have narrower limits than Arrow's.
    except (pyarrow.ArrowException, ArithmeticError, ValueError) as error:
        raise InvalidArgumentError(
            f"the column {name!r} has a value that cannot be given: {error}; of a ParquetDataset "
            "with batch_size, a transform gets it as pyarrow has it"
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
    empty = _dense(_pyarrow().nulls(0, kind))
    assert empty is not None
    return empty.reshape((*(0,) * dimensions, *empty.shape[1:]))


def _dense(array: Any) -> torch.Tensor | None:
    """Return values of one shape as the rows of one tensor; None: there is a null among them."""
    pyarrow = _pyarrow()
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
    types = _pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_shaped(kind: Any) -> bool:
    """Return whether values are tensors of a shape that the type names."""
    return isinstance(kind, _pyarrow().FixedShapeTensorType)


def _has_one_shape(kind: Any) -> bool:
    """Return whether all values are numbers, or tensors of one shape."""
    types = _pyarrow().types
    while types.is_fixed_size_list(kind):
        kind = kind.value_type
    return _is_leaf(kind) or _is_shaped(kind)


def _is_of_numbers(kind: Any) -> bool:
    """Return whether values are numbers, or lists of them at any depth."""
    types = _pyarrow().types
    while types.is_large_list(kind) or types.is_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return _is_leaf(kind) or _is_shaped(kind)


def _as_array(numbers: Any) -> Any:
    """Return numbers of int64 as an array of Arrow, which shares their memory."""
    pyarrow = _pyarrow()
    return pyarrow.Array.from_buffers(
        pyarrow.int64(), len(numbers), [None, pyarrow.py_buffer(numbers)]
    )
