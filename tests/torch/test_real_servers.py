"""The three ways of reading against fake-gcs-server."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

import headrace
from headrace.torch import IterableDataset, Loader, MapDataset
from testing.servers import FakeGcsServer
from tests.torch.conftest import content
from tests.torch.test_loader import number_of
from tests.torch.test_map_dataset import numbers


@pytest.fixture
def store(fake_gcs: FakeGcsServer, gcs_bucket: str) -> headrace.Store:
    store = headrace.Store(f"gs://{gcs_bucket}/data/", endpoint=fake_gcs.url)
    for i in range(50):
        store.write(f"{i:04d}", content(i))
    headrace.Store(f"gs://{gcs_bucket}", endpoint=fake_gcs.url).write("elsewhere", b"not ours")
    return store


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
    with pytest.raises(headrace.NotFoundError, match="nothing: no object"):
        MapDataset(headrace.Store(store.url + "nothing", endpoint=store._settings.endpoint))


def test_an_iterable_dataset(store: headrace.Store) -> None:
    assert list(IterableDataset(store, number_of)) == list(range(50))
