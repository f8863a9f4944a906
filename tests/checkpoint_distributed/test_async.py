"""Saves in the background: torch's thread and process modes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from testing.faultserver.client import FaultServer
from tests.checkpoint_distributed.conftest import Place, assert_same, blank, training_state
from tests.checkpoint_distributed.planners import SavesAfter
from tests.checkpoint_distributed.ranks import run_ranks

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.timeout(720),
]


def loaded(place: Place, state: dict[str, Any]) -> dict[str, Any]:
    made = blank(state)
    dcp.load(made, storage_reader=place.reader())
    return made


def test_training_may_go_on_when_async_save_has_returned(place: Place) -> None:
    writer = place.writer()
    assert isinstance(writer, AsyncStager)
    state = training_state()
    expected = training_state()
    go_on = threading.Event()

    def wait(_: str) -> None:
        assert go_on.wait(120)

    future = dcp.async_save(state, storage_writer=writer, planner=SavesAfter(resolve_data=wait))
    for tensor in state["model"].values():
        tensor.zero_()
    go_on.set()
    future.result()
    assert_same(loaded(place, expected), expected)


def test_an_error_of_the_background_is_the_futures(gcs: Place, server: FaultServer) -> None:
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    future = dcp.async_save({"w": torch.ones(3)}, storage_writer=gcs.writer())
    with pytest.raises(dcp.CheckpointException, match="HTTP 403"):
        future.result()
    assert gcs.names() == []


@pytest.mark.every_store
@pytest.mark.parametrize("same_writer", [True, False])
def test_of_two_saves_that_overlap_the_later_one_stays(place: Place, same_writer: bool) -> None:
    held, go_on = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        held.set()
        assert go_on.wait(120)

    planner = SavesAfter(resolve_data=wait)
    first_writer = place.writer()
    second_writer = first_writer if same_writer else place.writer()
    first = dcp.async_save({"w": torch.ones(3)}, storage_writer=first_writer, planner=planner)
    assert held.wait(120)
    second = dcp.async_save({"w": torch.full((3,), 2.0)}, storage_writer=second_writer)
    second.result()
    go_on.set()
    with pytest.raises(dcp.CheckpointException, match="a later save of this process"):
        first.result()
    assert torch.equal(loaded(place, {"w": torch.ones(3)})["w"], torch.full((3,), 2.0))
    assert len(place.names()) == 2


def test_the_folder_of_the_last_save_is_that_of_the_next_in_any_thread(tmp_path: Path) -> None:
    writer = DistributedWriter(tmp_path / "unused")
    dcp.save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "1", storage_writer=writer)
    dcp.async_save(
        {"w": torch.ones(3)}, checkpoint_id=tmp_path / "2", storage_writer=writer
    ).result()
    dcp.save({"w": torch.zeros(3)}, storage_writer=writer)
    assert writer.checkpoint_id == f"file://{tmp_path}/2"
    loaded = {"w": torch.ones(3)}
    dcp.load(loaded, storage_reader=DistributedReader(tmp_path / "2"))
    assert torch.equal(loaded["w"], torch.zeros(3))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "2"]


def save_in_a_process(rank: int, url: str, options: dict[str, Any], bad_url: str) -> str:
    def save(writer: DistributedWriter, value: float) -> Any:
        return dcp.async_save(
            {"w": torch.full((3,), value), "rank": rank},
            storage_writer=writer,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )

    writer = DistributedWriter(url, **options)
    save(writer, 1.0).result()
    save(writer, 2.0).result()
    try:
        save(DistributedWriter(bad_url, **options), 3.0).result()
    except BaseException as error:
        text = str(error)
    else:
        text = "no error"
    dist.barrier()
    # Ends the process that saved; torch leaves it to the collector.
    from torch.distributed.checkpoint import _async_process_executor

    _async_process_executor._CHECKPOINT_PROCESS = None
    return text


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_process_of_its_own_saves_and_tells_its_errors(
    gcs: Place, server: FaultServer, world_size: int
) -> None:
    texts = run_ranks(
        world_size, save_in_a_process, gcs.url, gcs.options, "gs://bucket-that-is-missing/run"
    )
    for text in texts:
        assert "bucket-that-is-missing" in text
    assert torch.equal(loaded(gcs, {"w": torch.ones(3)})["w"], torch.full((3,), 2.0))
    assert len(gcs.names()) == 1 + world_size or len(gcs.names()) == 2
