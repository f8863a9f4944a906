"""`Loader(max_wait_s=)`: what has arrived of a batch, where the source is slow."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.torch import CostBatchSampler, Loader, MapDataset, WeightedSampler
from testing.faultserver.client import FaultServer
from tests.torch.conftest import fill, fill_folder, reads

COUNT = 24
# Fewer than the least limit of requests in flight, which a busy machine may have come down to.
SLOW = (1, 9, 14)


def slow_dataset(server: FaultServer) -> MapDataset:
    """Objects of which some are not answered until `let_go`."""
    store = fill(server, COUNT)
    dataset = MapDataset(store, lambda sample: sample.index)
    server.faults(
        [
            {"match": {"kind": "media", "path_contains": f"{i:04d}"}, "action": "stall_head"}
            for i in SLOW
        ]
    )
    return dataset


def let_go(server: FaultServer) -> None:
    server.faults([])
    server.release()


def loader_of(dataset: MapDataset, **options: Any) -> Loader:
    options = {"batch_size": 4, "max_wait_s": 0.0, "collate_fn": list, **options}
    if "batch_sampler" in options:
        del options["batch_size"]
    return Loader(dataset, **options)


# Of 1,000 bytes, two batches of four at a time: less than what was begun before the last late one.
@pytest.mark.parametrize("prefetch_bytes", [None, 1000])
@pytest.mark.parametrize("threads", [0, 2])
def test_late_samples_come_once_they_are_there(
    server: FaultServer, threads: int, prefetch_bytes: int | None
) -> None:
    loader = loader_of(
        slow_dataset(server), transform_threads=threads, prefetch_bytes=prefetch_bytes
    )
    iterator = iter(loader)
    seen: list[int] = []
    while len(seen) < COUNT - len(SLOW):
        batch = next(iterator)
        assert 0 < len(batch) <= 4
        seen += batch
    assert sorted(seen) == sorted(set(range(COUNT)) - set(SLOW))
    let_go(server)
    late = [index for batch in iterator for index in batch]
    assert sorted(late) == list(SLOW)
    assert loader.epoch == 1
    assert loader.stats.samples == COUNT
    assert all(reads(server)[f"data/{i:04d}"] == 1 for i in seen)


def test_a_place_knows_which_samples_are_late(server: FaultServer) -> None:
    dataset = slow_dataset(server)
    loader = loader_of(dataset)
    iterator = iter(loader)
    seen: list[int] = []
    states = []
    while len(seen) < COUNT - len(SLOW):
        seen += next(iterator)
        states.append((len(seen), loader.state_dict()))
    iterator.close()  # type: ignore[attr-defined]
    let_go(server)
    assert states[-1][1]["waiting"] or states[-1][1]["position"] < COUNT
    for done, state in states:
        for options in ({}, {"max_wait_s": None}, {"max_wait_s": None, "batch_size": 7}):
            other = loader_of(dataset, **options)
            other.load_state_dict(state)
            rest = [index for batch in other for index in batch]
            assert sorted(seen[:done] + rest) == list(range(COUNT))


def test_batches_of_a_sampler_are_given_in_parts_too(server: FaultServer) -> None:
    dataset = slow_dataset(server)
    costs = [i % 5 + 1 for i in range(COUNT)]
    sampler = CostBatchSampler(
        dataset, cost=costs, max_batch_cost=12, cost_boundaries=[3], shuffle=True, seed=3
    )
    loader = loader_of(dataset, batch_sampler=sampler)
    iterator = iter(loader)
    seen: list[int] = []
    while len(seen) < COUNT - len(SLOW):
        batch = next(iterator)
        assert sum(costs[i] for i in batch) <= 12
        seen += batch
    let_go(server)
    seen += [index for batch in iterator for index in batch]
    assert sorted(seen) == list(range(COUNT))


def test_batches_are_whole_if_nothing_is_late(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, COUNT), lambda sample: sample.index)
    patient = loader_of(dataset, max_wait_s=3600, shuffle=True)
    plain = Loader(dataset, 4, shuffle=True, collate_fn=list)
    assert list(patient) == list(plain)
    assert len(patient) == 6
    resumed = loader_of(dataset, max_wait_s=3600, shuffle=True)
    patient.set_epoch(0)
    assert patient.remaining_batches == 6
    iterator = iter(patient)
    list(islice(iterator, 2))
    assert patient.remaining_batches == 4
    resumed.load_state_dict(patient.state_dict())
    plain.set_epoch(0)
    assert list(resumed) == list(plain)[2:]


def test_without_a_transform_batches_are_tensors(tmp_path: Path) -> None:
    loader = Loader(MapDataset(fill_folder(tmp_path, 10)), 4, max_wait_s=3600)
    assert [tuple(batch.shape) for batch in loader] == [(4, 100), (4, 100), (2, 100)]


def test_a_loader_left_in_the_middle_cancels_what_is_late(server: FaultServer) -> None:
    loader = loader_of(slow_dataset(server))
    next(iter(loader))
    loader.set_epoch(3)  # would wait for the late ones for ever
    let_go(server)
    assert sum(len(batch) for batch in loader) == COUNT


def test_an_error_of_a_sample_names_it(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 6)
    dataset = MapDataset(store, lambda sample: sample.index)
    store.delete("0003")
    loader = loader_of(dataset, max_wait_s=3600, batch_size=2)
    iterator = iter(loader)
    assert next(iterator) == [0, 1]
    with pytest.raises(headrace.NotFoundError, match="0003"):
        next(iterator)
    assert loader.state_dict()["position"] == 2


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "1", True])
def test_times_that_are_none_are_refused(tmp_path: Path, wrong: Any) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 2))
    with pytest.raises(headrace.InvalidArgumentError, match=r"max_wait_s is .*number of seconds"):
        Loader(dataset, 1, max_wait_s=wrong)


def test_it_is_for_one_rank_and_an_order_of_ours(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 6))
    with pytest.raises(headrace.InvalidArgumentError, match="there are 2 ranks"):
        Loader(dataset, 1, max_wait_s=1, rank=0, world_size=2)
    with pytest.raises(headrace.InvalidArgumentError, match="which samples are late"):
        Loader(dataset, 1, max_wait_s=1, sampler=[0, 1])
    draws = WeightedSampler(dataset, [1] * 6, 12)
    loader = Loader(dataset, 5, max_wait_s=3600, sampler=draws)
    assert sum(len(batch) for batch in loader) == 12
