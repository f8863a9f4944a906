"""What passes datasets on, and items of which nothing is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, Unpack, assert_type

import numpy
import torch
from torch.utils.data import Dataset

import headrace
from headrace import Sample
from headrace.torch import Loader, MapDataset
from headrace.types import LoaderKeywords, StoreOptions, Url

T = TypeVar("T")


class Pair(TypedDict):
    image: torch.Tensor
    label: int


def pair(sample: Sample) -> Pair:
    return {"image": sample.tensor(), "label": 1}


def batches(dataset: Dataset[T], size: int | None, **more: Unpack[LoaderKeywords]) -> Loader[Any]:
    return Loader(dataset, size, **more)


def collated(dataset: Dataset[T], collate: Callable[[list[T]], Any] | None) -> Loader[Any]:
    return Loader(dataset, 4, collate_fn=collate)


def opened(url: Url, **options: Unpack[StoreOptions]) -> MapDataset[torch.Tensor]:
    return MapDataset(url, **options)


def untyped(dataset: Dataset[Any]) -> None:
    loader = Loader(dataset, 4)
    assert_type(loader, Loader[Any])
    for batch in loader:
        print(batch.image, batch["image"])


assert_type(MapDataset("data", pair)[0], Pair)
for pairs in Loader(MapDataset("data", pair), 4):
    print(pairs["image"])
unlike = headrace.mix([opened("code"), opened("prose")], weights=numpy.array([3.0, 1.0]))
batches(unlike, 4, shuffle=True)

batches(unlike, 4, shufle=True)  # wrong
Loader(unlike)  # wrong
opened("code", endpont="http://localhost")  # wrong
