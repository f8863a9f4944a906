"""Several ranks: what was made before the process group reads its share, too."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import headrace
from headrace.torch import Loader, MapDataset
from tests.shards import tars
from tests.torch.conftest import fill_folder
from tests.torch.test_loader import number_of
from tests.torchrun import torchrun

SCRIPT = """
import json, sys, warnings
import torch.distributed as dist
import headrace
from headrace.torch import Loader, MapDataset, ShardStream
from torch.utils.data import DataLoader

def number_of(sample):
    return int(sample.bytes()[:4])

def number_in(fields):
    return int(fields["__key__"])

folder, shards, out = sys.argv[1:]
loader = Loader(MapDataset(folder, number_of), 10, shuffle=True, seed=1)
single = Loader(MapDataset(folder, number_of), 1)
stream = ShardStream(headrace.index_members(shards), number_in)
assert repr(loader).endswith("rank 0 of 1)")
with warnings.catch_warnings(record=True) as before:
    warnings.simplefilter("always")
    for _ in range(2):
        next(iter(loader))
        next(iter(stream))
loader.set_epoch(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
found = {
    "warnings": [str(each.message) for each in before],
    "length": len(loader),
    "batches": [batch.tolist() for batch in loader],
    "single": sum(1 for _ in single),
    "stream": list(stream),
    "workers": [
        batch.tolist()
        for batch in DataLoader(stream, 4, num_workers=2, multiprocessing_context="fork")
    ],
}
with open(f"{out}/{rank}.json", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
"""


@pytest.mark.timeout(600)
def test_torchrun_gives_each_rank_its_share_of_what_was_made_before_the_group(
    tmp_path: Path,
) -> None:
    for name in ("data", "shards"):
        (tmp_path / name).mkdir()
    fill_folder(tmp_path / "data", 101)
    tars.fill(headrace.Store(tmp_path / "shards"), 1, 101)
    ranks, said = torchrun(SCRIPT, 2, tmp_path / "data", tmp_path / "shards", out=tmp_path)
    for found in ranks:
        of_loader, of_stream = found["warnings"]  # each said it once
        assert "this loader reads all objects on every rank" in of_loader
        assert "this stream reads all objects on every rank" in of_stream
        for text in found["warnings"]:
            assert "WORLD_SIZE is 2, but torch.distributed is not initialised" in text
            assert "init_process_group() before the first epoch, or give rank= and" in text
        assert found["length"] == len(found["batches"]) == 6
        assert found["single"] == len(found["stream"]) == 50
    batches = [number for found in ranks for batch in found["batches"] for number in batch]
    assert sorted(batches) == list(range(101))
    assert sorted(number for found in ranks for number in found["stream"]) == list(range(100))
    assert [len(batch) for batch in ranks[0]["workers"]] == [
        len(batch) for batch in ranks[1]["workers"]
    ]
    workers = [number for found in ranks for batch in found["workers"] for number in batch]
    assert sorted(workers) == list(range(100))
    assert said.count("leaves out the last 1 of the 101 objects") == 1
    assert said.count("leaves out the last sample of each epoch") == 1


def test_what_leaves_ranks_without_a_step_is_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 5), number_of)
    for batch_size, index, steps in ((1, dataset.objects, 1), (4, dataset.objects[:2], 0)):
        caplog.clear()
        part = MapDataset(tmp_path, number_of, index=index)
        loaders = [Loader(part, batch_size, rank=rank, world_size=3) for rank in range(3)]
        assert {len(loader) for loader in loaders} == {steps}
        for epoch in range(2):
            assert {loader.epoch for loader in loaders} == {epoch}
            assert {len(list(loader)) for loader in loaders} == {steps}
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("headrace", logging.WARNING)
        assert "leaves out the last 2 of the" in record.getMessage()


def test_who_names_its_ranks_is_not_warned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill_folder(tmp_path, 4)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(list(Loader(MapDataset(store), 2, rank=0, world_size=2))) == 1
    with pytest.warns(UserWarning, match="WORLD_SIZE is 2, but torch.distributed is not init"):
        assert len(list(Loader(MapDataset(store), 2))) == 2
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert len(list(Loader(MapDataset(store), 2))) == 2


def test_more_ranks_than_objects_are_left_go_on_with_the_next_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 31), number_of)
    one = Loader(dataset, 7, shuffle=True)
    batches = iter(one)
    for _ in range(4):
        next(batches)
    loaders = [Loader(dataset, 2, shuffle=True, rank=rank, world_size=4) for rank in range(4)]
    for loader in loaders:
        loader.load_state_dict(one.state_dict())
        assert (loader.epoch, loader.state_dict()["epoch"]) == (1, 1)
        trained = []
        for _ in range(loader.epoch, 3):
            for at, _ in enumerate(loader):
                trained += [loader.epoch] if at == 0 else []
        assert (trained, loader.epoch) == ([1, 2], 3)
    (record,) = caplog.records
    assert "leaves out the last 3 of the 31 objects of epoch 0" in record.getMessage()
