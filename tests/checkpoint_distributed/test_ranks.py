"""Checkpoints of several ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from tests.checkpoint_distributed.conftest import Place
from tests.checkpoint_distributed.ranks import RankError, run_ranks

pytestmark = pytest.mark.timeout(720)

SHAPES = {"rows": (37, 12), "columns": (6, 41), "wide": (5,), "whole": (9, 4)}


def full(seed: int) -> dict[str, torch.Tensor]:
    """The same on every rank."""
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=random) for name, shape in SHAPES.items()}


def distributed(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """As this rank holds them: uneven shards, of rows and of columns, and a replica."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    placements = {
        "rows": Shard(0),
        "columns": Shard(1),
        "wide": Shard(0),
        "whole": Replicate(),
    }
    made: dict[str, Any] = {
        name: distribute_tensor(tensor, mesh, [placements[name]])
        for name, tensor in tensors.items()
    }
    made["step"] = 5
    return made


def save(rank: int, url: str, options: dict[str, Any], seed: int) -> None:
    dcp.save(
        distributed(full(seed)), storage_writer=DistributedWriter(url, thread_count=2, **options)
    )


def load(rank: int, url: str, options: dict[str, Any], seed: int) -> None:
    state = distributed({name: torch.zeros(shape) for name, shape in SHAPES.items()})
    state["step"] = None
    dcp.load(state, storage_reader=DistributedReader(url, **options))
    for name, expected in full(seed).items():
        tensor = state[name]
        assert isinstance(tensor, DTensor)
        assert torch.equal(tensor.full_tensor(), expected), name
    assert state["step"] == 5


def save_by_stock(rank: int, folder: str, seed: int) -> None:
    dcp.save(distributed(full(seed)), storage_writer=dcp.FileSystemWriter(folder))


def load_by_stock(rank: int, folder: str, seed: int) -> None:
    state = distributed({name: torch.zeros(shape) for name, shape in SHAPES.items()})
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
    for name, expected in full(seed).items():
        assert torch.equal(state[name].full_tensor(), expected), name


@pytest.mark.every_store
def test_four_ranks_become_two_and_then_three_bit_for_bit(place: Place) -> None:
    run_ranks(4, save, place.url, place.options, 1)
    assert len({name.split("_")[2] for name in place.data_names()}) == 4
    run_ranks(2, load, place.url, place.options, 1)
    run_ranks(2, save, place.url, place.options, 2)
    run_ranks(3, load, place.url, place.options, 2)
    assert all(name.startswith(("__0_", "__1_")) for name in place.data_names())


def test_stock_torch_and_we_read_each_other_in_other_numbers_of_ranks(tmp_path: Path) -> None:
    run_ranks(3, save, str(tmp_path / "ours"), {}, 1)
    run_ranks(2, load_by_stock, str(tmp_path / "ours"), 1)
    run_ranks(2, save_by_stock, str(tmp_path / "stock"), 2)
    run_ranks(3, load, str(tmp_path / "stock"), {}, 2)


def load_alone(place: Place, seed: int) -> None:
    state = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    dcp.load(state, storage_reader=place.reader(), no_dist=True)
    for name, expected in full(seed).items():
        assert torch.equal(state[name], expected), name


class OneRankFails(DefaultSavePlanner):
    """Ends one rank, by an error or for good, when it should give its data."""

    how: str

    def resolve_data(self, write_item: Any) -> Any:
        if dist.get_rank() == 1:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the disk of rank 1 is gone")
        return super().resolve_data(write_item)


def save_but_one_rank_fails(rank: int, url: str, options: dict[str, Any], how: str) -> None:
    planner = OneRankFails()
    planner.how = how
    dcp.save(
        distributed(full(9)), storage_writer=DistributedWriter(url, **options), planner=planner
    )


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_an_error_of_one_rank_is_every_ranks_error(place: Place) -> None:
    run_ranks(2, save, place.url, place.options, 1)
    with pytest.raises(RankError) as caught:
        run_ranks(3, save_but_one_rank_fails, place.url, place.options, "error")
    assert sorted(caught.value.errors) == [0, 1, 2]
    assert all("the disk of rank 1 is gone" in text for text in caught.value.errors.values())
    load_alone(place, 1)
    # The parts of the ranks that did not fail go with the next save.
    run_ranks(2, save, place.url, place.options, 2)
    assert all(name.startswith(("__0_", "__1_")) for name in place.data_names())
    assert len(place.data_names()) == 4
    load_alone(place, 2)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_rank_that_is_killed_between_shard_and_metadata_leaves_the_old_checkpoint(
    place: Place,
) -> None:
    run_ranks(2, save, place.url, place.options, 1)
    metadata = place.get(".metadata")
    with pytest.raises(RankError) as caught:
        run_ranks(2, save_but_one_rank_fails, place.url, place.options, "kill")
    assert sorted(caught.value.errors) == [0, 1]
    assert caught.value.errors[1] == "ended without an answer"
    assert place.get(".metadata") == metadata
    load_alone(place, 1)


def save_alone(rank: int, url: str, options: dict[str, Any], seed: int) -> None:
    state = {name: tensor + rank for name, tensor in full(seed).items()}
    dcp.save(state, storage_writer=DistributedWriter(url, **options), use_collectives=False)


def load_own(rank: int, url: str, options: dict[str, Any], seed: int) -> None:
    state = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    dcp.load(state, storage_reader=DistributedReader(url, **options))
    for name, expected in full(seed).items():
        assert torch.equal(state[name], expected + rank), name


def test_without_collectives_each_rank_has_a_checkpoint_of_its_own(place: Place) -> None:
    for seed in (1, 2):
        run_ranks(2, save_alone, place.url, place.options, seed)
        run_ranks(2, load_own, place.url, place.options, seed)
        assert [n for n in place.names() if n.endswith(".metadata")] == [
            "__0.metadata",
            "__1.metadata",
        ]
        assert len(place.data_names()) == 2
    with pytest.raises(RankError, match="without collectives by 2 ranks: load it with as many"):
        run_ranks(3, load_own, place.url, place.options, 2)
    # With collectives again: nothing is left of those.
    run_ranks(2, save, place.url, place.options, 3)
    assert [n for n in place.names() if n.endswith(".metadata")] == [".metadata"]
    run_ranks(2, load, place.url, place.options, 3)
    with pytest.raises(RankError, match="save without collectives to another folder"):
        run_ranks(2, save_alone, place.url, place.options, 4)
