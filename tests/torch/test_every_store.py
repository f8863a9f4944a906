"""The three ways of reading, on every store."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

import headrace
from headrace._store.location import root_at
from headrace.torch import Loader, MapDataset
from tests.torch.conftest import content
from tests.torch.test_loader import number_of
from tests.torch.test_map_dataset import numbers

pytestmark = pytest.mark.every_store


@pytest.fixture
def store(store: headrace.Store) -> headrace.Store:
    """Fifty objects, and one beside them that belongs to nobody here."""
    store.write("elsewhere", b"not ours")
    for i in range(50):
        store.write(f"data/{i:04d}", content(i))
    return root_at("data", store)


def test_a_loader(store: headrace.Store) -> None:
    loader = Loader(MapDataset(store), 8, shuffle=True, seed=1)
    it = iter(loader)
    seen = [i for _ in range(3) for i in numbers(next(it))]
    state = loader.state_dict()
    resumed = Loader(MapDataset(store, number_of), 5, shuffle=True, seed=1)
    resumed.load_state_dict(state)
    assert sorted(seen + torch.cat(list(resumed)).tolist()) == list(range(50))


def test_a_map_dataset(store: headrace.Store) -> None:
    batches = list(DataLoader(MapDataset(store), batch_size=20))
    assert numbers(torch.cat(batches)) == list(range(50))
    with pytest.raises(headrace.NotFoundError, match="nothing"):
        MapDataset(root_at("nothing", store))
