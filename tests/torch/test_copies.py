"""Copies of loaders and samplers: pickled, and deep."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

import headrace
from headrace.torch import CostBatchSampler, Loader, MapDataset, WeightedSampler, mix
from tests.torch.conftest import fill_folder

COUNT = 30
WAYS: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda value: pickle.loads(pickle.dumps(value)),
    "deep": copy.deepcopy,
    "shallow": copy.copy,
}


def name_of(sample: headrace.Sample) -> str:
    return sample.name


@pytest.fixture
def dataset(tmp_path: Path) -> MapDataset:
    return MapDataset(fill_folder(tmp_path, COUNT), name_of)


def names(loader: Loader) -> list[str]:
    return [name for batch in loader for name in batch]


SAMPLERS: dict[str, Callable[[MapDataset], dict[str, Any]]] = {
    "none": lambda _: {"batch_size": 4, "shuffle": True, "seed": 7},
    "weighted": lambda dataset: {
        "batch_size": 4, "sampler": WeightedSampler(dataset, torch.ones(COUNT), seed=3)
    },
    "mixture": lambda dataset: {"batch_size": 4, "shuffle": True, "seed": 3},
    "batches": lambda dataset: {
        "batch_sampler": CostBatchSampler(dataset, max_batch_size=4, shuffle=True, seed=5)
    },
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_copy_of_a_loader_continues_at_its_place(
    dataset: MapDataset, kind: str, way: str
) -> None:
    options = SAMPLERS[kind](dataset)
    parts = [Subset(dataset, range(10)), Subset(dataset, range(10, COUNT))]
    loader: Loader[Any] = Loader(mix(parts, [1, 2]) if kind == "mixture" else dataset, **options)
    batches = iter(loader)
    taken = [*next(batches), *next(batches)]
    again = WAYS[way](loader)
    assert again.stats.batches == 0
    assert again.state_dict() == loader.state_dict()
    # Each goes on by itself, and neither moves the other.
    first = [name for batch in batches for name in batch]
    assert names(again) == first
    assert len(taken) + len(first) == COUNT
    assert again.epoch == loader.epoch == 1
    assert names(again) == names(loader)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_new_loader_begins_where_it_would(dataset: MapDataset, way: str) -> None:
    loader = Loader(dataset, 4, shuffle=True)
    loader.set_epoch(3)
    again = WAYS[way](loader)
    assert names(again) == names(loader)
    assert again.epoch == loader.epoch == 4


@pytest.mark.parametrize("way", ["pickled", "deep"])
def test_samplers_are_copied_with_their_draws(dataset: MapDataset, way: str) -> None:
    weights = torch.arange(COUNT, dtype=torch.float64)
    sampler = WeightedSampler(dataset, weights, 50, seed=1)
    weights.zero_()  # it has weights of its own
    again = WAYS[way](sampler)
    assert list(again) == list(sampler)
    assert again.state_dict() == sampler.state_dict()


def test_a_loader_is_no_dataset_and_says_so(dataset: MapDataset) -> None:
    loader: Any = Loader(dataset, 4)
    with pytest.raises(TypeError, match="loop over it, or give its dataset to torch's DataLoader"):
        list(DataLoader(loader, batch_size=None))
