"""Parquet files for tests."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

import headrace


def table(begin: int, count: int) -> pa.Table:
    """Return the rows ``begin`` and so on: a number, and others that are made of it."""
    numbers = range(begin, begin + count)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "text": pa.array([f"row {i}" for i in numbers], pa.string()),
            "image": pa.array([b"%06d." % i * 40 for i in numbers], pa.binary()),
            "even": pa.array([i % 2 == 0 for i in numbers], pa.bool_()),
            "pair": pa.array([[i, -i] for i in numbers], pa.list_(pa.float32(), 2)),
            "tokens": pa.array([list(range(i % 5)) for i in numbers], pa.list_(pa.int32())),
        }
    )


def packed(rows: pa.Table, group_rows: int = 10, **options: Any) -> bytes:
    """Return a Parquet file of these rows."""
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=group_rows, **options)
    return out.getvalue()


def fill(store: headrace.Store, counts: Iterable[int], group_rows: int = 10) -> int:
    """Write files of so many rows each, numbered on, and return how many there are."""
    begin = 0
    for file, count in enumerate(counts):
        store.write(f"part-{file:03d}.parquet", packed(table(begin, count), group_rows))
        begin += count
    return begin


def number_of(row: dict[str, Any]) -> int:
    """Return the number of a row of `table`, which its values must agree on."""
    number = row["number"]
    assert isinstance(number, int)
    assert row["text"] == f"row {number}"
    assert row["image"] == b"%06d." % number * 40
    assert row["even"] is (number % 2 == 0)
    assert row["pair"].tolist() == [number, -number]
    assert row["tokens"].tolist() == list(range(number % 5))
    return number
