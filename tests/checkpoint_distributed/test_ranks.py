"""Checkpoints of several ranks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard as Part
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import headrace
from headrace._base.errors import text_of, travels
from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from headrace.checkpoint._saving import stage_save
from tests.awkward_errors import AWKWARD, NoNotesError
from tests.checkpoint_distributed.conftest import Place
from tests.checkpoint_distributed.planners import LoadsAfter, SavesAfter, raising
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


def save_but_one_rank_fails(rank: int, url: str, options: dict[str, Any], how: str) -> None:
    """Save; rank 1 ends, by an error or for good, when it should give its data."""

    def end(_: str) -> None:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the disk of rank 1 is gone")

    dcp.save(
        distributed(full(9)),
        storage_writer=DistributedWriter(url, **options),
        planner=SavesAfter(resolve_data=end if rank == 1 else None),
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


# torch cannot tell of an error whose notes cannot be read.
TELLABLE = [error for error in AWKWARD if error is not NoNotesError]


def raise_in_planners(rank: int, folder: str) -> list[tuple[str, str]]:
    """Return the class of each error of rank 1 that arrives here, and its text."""
    state = {f"of {rank}": torch.ones(3)}
    dcp.save(state, storage_writer=DistributedWriter(f"{folder}/good"))
    arrived = []
    for error in TELLABLE:
        fail = raising(error("a text")) if rank == 1 else len
        save_planner, load_planner = SavesAfter(resolve_data=fail), LoadsAfter(resolve_tensor=fail)
        writer, reader = DistributedWriter(f"{folder}/bad"), DistributedReader(f"{folder}/good")
        calls: list[Callable[[], None]] = [
            lambda w=writer, p=save_planner: dcp.save(state, storage_writer=w, planner=p),
            lambda r=reader, p=load_planner: dcp.load(state, storage_reader=r, planner=p),
        ]
        for call in calls:
            try:  # pytest.raises asks for the text, in which torch has that of the planner's error
                call()
            except CheckpointException as told:
                [(failed, (raised, _))] = told.failures.items()
                assert failed == 1
                arrived.append((type(raised).__name__, text_of(raised)))
    return arrived


def test_whatever_a_planner_raises_on_one_rank_is_every_ranks_error(tmp_path: Path) -> None:
    for arrived in run_ranks(2, raise_in_planners, str(tmp_path)):
        for (kind, text), error in zip(arrived, (e for e in TELLABLE for _ in "sl"), strict=True):
            if kind == "HeadraceError":
                assert text.startswith(f"{error.__name__}: ")
                assert not travels(error("a text"))
            else:
                assert kind == error.__name__


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


def sharded_parts(rank: int) -> dict[str, Any]:
    """Return a DTensor, a parameter that is one, and a ShardedTensor, as FSDP1 makes it."""
    rows = torch.arange(28.0).reshape(7, 4)
    mesh = init_device_mesh("cpu", (2,))
    mine = rows[:4] if rank == 0 else rows[4:]
    shard = Part(mine.clone(), ShardMetadata([4 * rank, 0], list(mine.shape), f"rank:{rank}/cpu"))
    return {
        "dtensor": distribute_tensor(rows.clone(), mesh, [Shard(0)]),
        "parameter": torch.nn.Parameter(distribute_tensor(rows.clone(), mesh, [Shard(1)])),
        "sharded": ShardedTensor._init_from_local_shards([shard], 7, 4),
    }


def local_parts(state: dict[str, Any]) -> list[torch.Tensor]:
    *tensors, sharded = state.values()
    parts = [tensor.detach().to_local() for tensor in tensors]
    return [*parts, *(each.tensor for each in sharded.local_shards())]


def save_in_the_background_while_it_changes(rank: int, folder: str) -> None:
    state = sharded_parts(rank)
    dcp.save(state, storage_writer=DistributedWriter(f"{folder}/now"))
    saving = dcp.async_save(state, storage_writer=DistributedWriter(f"{folder}/staged"))
    name = f"{rank}.pt"
    finish = stage_save(state, name, store=headrace.Store(folder), upload=None)
    for part in local_parts(state):
        part.fill_(-1)
    saving.result()
    finish()
    expected = local_parts(sharded_parts(rank))
    for where in ("now", "staged"):
        found = sharded_parts(rank)
        for part in local_parts(found):
            part.fill_(-2)
        dcp.load(found, storage_reader=DistributedReader(f"{folder}/{where}"))
        assert all(map(torch.equal, local_parts(found), expected)), where
    whole = torch.load(f"{folder}/{name}", weights_only=False)
    assert all(map(torch.equal, local_parts(whole), expected))
    assert [type(each) for each in whole.values()] == [type(each) for each in state.values()]


def test_parts_of_sharded_tensors_are_saved_as_they_were_when_a_save_began(tmp_path: Path) -> None:
    run_ranks(2, save_in_the_background_while_it_changes, str(tmp_path))


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
