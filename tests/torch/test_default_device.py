"""With another default device, as of `torch.set_default_device`, batches and states are the same.

"meta" is that device here: a tensor which lands on it by mistake has no bytes to go on with.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import ConcatDataset, Subset

import headrace
from headrace.checkpoint._staging import copy_to_host
from headrace.torch import (
    CostBatchSampler,
    Loader,
    MapDataset,
    TokenDataset,
    WeightedSampler,
)
from headrace.torch._collate import collate
from tests.torch.conftest import content, fill_folder
from tests.torch.test_loader import number_of

COUNT = 20


@pytest.fixture(autouse=True)
def other_device() -> Iterator[None]:
    with torch.device("meta"):
        assert torch.empty(1).device.type == "meta"
        yield


def numbers(loader: Loader) -> list[int]:
    """The numbers of the objects of all batches, which hold the objects' own bytes."""
    return [int(bytes(row[:4].tolist())) for batch in loader for row in batch]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("kind", ["whole", "subset", "two", "two in parts"])
def test_a_loader_yields_what_there_is(tmp_path: Path, kind: str, threads: int) -> None:
    dataset: Any = MapDataset(fill_folder(tmp_path, COUNT))
    expected = [*range(COUNT)]
    if kind == "subset":
        dataset, expected = Subset(dataset, [3, -1, 5]), [3, 19, 5]
    if kind == "two":
        dataset, expected = ConcatDataset([dataset, dataset]), 2 * expected
    if kind == "two in parts":
        dataset = ConcatDataset([dataset, Subset(dataset, [7, 8])])
        expected = [*expected, 7, 8]
    assert numbers(Loader(dataset, 2, transform_threads=threads)) == expected
    shuffled = Loader(dataset, 2, shuffle=True, transform_threads=threads)
    whole = numbers(shuffled)
    assert sorted(whole) == sorted(expected)
    shuffled.set_epoch(0)
    batches = iter(shuffled)
    begun = [int(bytes(row[:4].tolist())) for row in next(batches)]
    shuffled.load_state_dict(shuffled.state_dict())
    assert begun + numbers(shuffled) == whole


def test_batches_by_bytes_and_by_costs_are_the_same(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for i in range(COUNT):
        store.write(f"{i:04d}", content(i, 100 + 10 * i))
    dataset = MapDataset(store, number_of)
    samplers = [
        CostBatchSampler(dataset, max_batch_bytes=700),
        CostBatchSampler(dataset, cost=[1.0] * COUNT, max_batch_cost=5.0),
        CostBatchSampler(dataset, cost=np.ones(COUNT), max_batch_cost=5.0, cost_boundaries=[2.0]),
    ]
    for sampler in samplers:
        found = list(Loader(dataset, batch_sampler=sampler, collate_fn=list))
        assert [each for batch in found for each in batch] == [*range(COUNT)]
        assert len(found) > 1


def test_drawn_samples_are_the_same(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, COUNT), number_of)

    def drawn() -> list[int]:
        sampler = WeightedSampler(COUNT, np.arange(COUNT))
        batches = list(Loader(dataset, 4, sampler=sampler, collate_fn=list))
        return [each for batch in batches for each in batch]

    found = drawn()
    with torch.device("cpu"):
        assert drawn() == found


def test_tokens_are_read(tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    headrace.Store(tmp_path).write("a.bin", tokens.tobytes())
    dataset = TokenDataset(tmp_path, seq_len=9, dtype="uint16")
    [first, *_] = Loader(dataset, 5)
    assert first[0].tolist() == [*range(10)]  # with the one to predict
    assert first[1].tolist() == dataset[1].tolist()


def test_large_tensors_are_stacked_where_they_are() -> None:
    samples = [torch.full((40_000,), i, dtype=torch.int64, device="cpu") for i in range(3)]
    stacked = collate(samples)
    assert stacked.device.type == "cpu"
    assert stacked[:, -1].tolist() == [0, 1, 2]


def state() -> dict[str, Any]:
    weights = torch.arange(3_000_000, dtype=torch.float32, device="cpu").reshape(3, -1)
    return {"weights": weights, "view": weights[1:], "bias": torch.ones(3, device="cpu"), "step": 7}


def assert_state(found: Any) -> None:
    for name, value in state().items():
        if name != "step":
            assert found[name].device.type == "cpu"
            assert torch.equal(found[name], value)
    assert found["step"] == 7


def test_a_checkpoint_is_saved_and_loaded(tmp_path: Path) -> None:
    url = str(tmp_path / "a.pt")
    headrace.checkpoint.save(state(), url)
    assert_state(headrace.checkpoint.load(url))
    reader = headrace.checkpoint.open(url)
    assert reader.tensor("bias").tolist() == [1, 1, 1]
    assert reader.slice("weights", (1, slice(0, 2))).tolist() == [1e6, 1e6 + 1]
    assert_state(copy_to_host(state()))


def test_a_file_of_safetensors_is_saved_and_loaded(tmp_path: Path) -> None:
    url = str(tmp_path / "a.safetensors")
    tensors = {"bias": state()["bias"], "weights": state()["weights"]}
    headrace.checkpoint.save(tensors, url)
    found = headrace.checkpoint.load(url)
    assert torch.equal(found["weights"], tensors["weights"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_distributed_checkpoint_is_saved_and_loaded(tmp_path: Path) -> None:
    url = str(tmp_path / "step1")
    dcp.save(state(), storage_writer=headrace.checkpoint.DistributedWriter(url))
    found = state()
    for name in ("weights", "bias"):
        found[name].zero_()
    found["step"] = 0
    dcp.load(found, storage_reader=headrace.checkpoint.DistributedReader(url))
    assert_state(found)
