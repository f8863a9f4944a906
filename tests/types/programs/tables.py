"""Columns of Parquet files, and tables of objects."""

from __future__ import annotations

from typing import Any, assert_type

import torch
from torch.utils.data import DataLoader

from headrace import Sample
from headrace.torch import Loader, MapDataset, ParquetDataset
from headrace.types import Fields


def pair(row: dict[str, Any]) -> tuple[torch.Tensor, int]:
    return row["image"], row["label"]


def size(sample: Sample) -> int:
    return len(sample)


rows = ParquetDataset("gs://bucket/tables/", columns=["image", "label"], shuffle=True)
assert_type(next(iter(rows)), Fields)
assert_type(Loader(ParquetDataset("tables"), 4), Loader[dict[str, Any]])
assert_type(next(iter(ParquetDataset("tables", pair))), tuple[torch.Tensor, int])
DataLoader(ParquetDataset("tables", columns=["label"], batch_size=256), batch_size=None)
assert_type(MapDataset.from_table("train.csv", size, label=None)[0], int)
labelled = MapDataset.from_table("train.csv", size, label="class")
assert_type(labelled[0], tuple[int, int | float | str | bytes])
assert_type(Loader(labelled, 4), Loader[list[Any]])

ParquetDataset("tables", colums=["label"])  # wrong
ParquetDataset("tables", columns=[1])  # wrong
MapDataset.from_table("train.csv", size, lable="class")  # wrong
