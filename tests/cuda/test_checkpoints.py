"""Checkpoints of what is on a CUDA device, while the device is still at work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import headrace
from headrace.checkpoint import DistributedReader, DistributedWriter
from headrace.checkpoint._staging import copy_to_host
from tests.cuda.conftest import NEEDS_CUDA, Hold
from tests.ports import free_port

pytestmark = [
    NEEDS_CUDA,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]

COUNT = 12_000_000  # 48 MB of float32: three pieces of 16 MiB


@pytest.fixture
def state(cuda: torch.device) -> dict[str, Any]:
    """Of all kinds of storages: large, small, shared, none, of odd types, on both sides."""
    random = torch.Generator(cuda).manual_seed(2)
    large = torch.rand(COUNT, generator=random, device=cuda).reshape(3, -1)
    return {
        "large": large,
        "tied": large,
        "view": large[1:, ::7],
        "turned": large.T,
        "half": torch.rand(1001, generator=random, device=cuda).to(torch.bfloat16),
        "eighth": torch.rand(77, generator=random, device=cuda).to(torch.float8_e4m3fn),
        "flags": torch.tensor([True, False, True], device=cuda),
        "nothing": torch.empty(0, 3, device=cuda),
        "host": torch.arange(10),
        "step": 7,
    }


def assert_same(found: Any, expected: Any, device: str | None = None) -> None:
    """Compare bit for bit, on the host; `device`: where all of it must be."""
    assert sorted(found) == sorted(expected)  # a file of safetensors has an order of its own
    for name, value in expected.items():
        if not isinstance(value, torch.Tensor):
            assert found[name] == value
            continue
        assert found[name].device.type == (device or value.device.type)
        assert found[name].dtype == value.dtype
        here, there = (each.cpu().contiguous().view(torch.uint8) for each in (found[name], value))
        assert torch.equal(here, there), name


def test_a_state_comes_back_to_where_it_was(tmp_path: Path, state: dict[str, Any]) -> None:
    url = str(tmp_path / "a.pt")
    headrace.checkpoint.save(state, url)
    found = headrace.checkpoint.load(url)
    assert_same(found, state)
    assert found["large"].data_ptr() == found["tied"].data_ptr()
    assert_same(torch.load(url), state)  # and torch reads it, too
    assert_same(headrace.checkpoint.load(url, map_location="cpu"), state, "cpu")


def test_a_state_of_the_host_is_loaded_to_the_device(tmp_path: Path, state: dict[str, Any]) -> None:
    url = str(tmp_path / "a.pt")
    torch.save({k: v.cpu() if hasattr(v, "cpu") else v for k, v in state.items()}, url)
    assert_same(headrace.checkpoint.load(url, map_location="cuda"), state, "cuda")
    with torch.device("cuda"):
        assert_same(headrace.checkpoint.load(url), state, "cpu")


def test_a_save_waits_for_what_the_device_has_yet_to_compute(
    tmp_path: Path, cuda: torch.device, hold: Hold
) -> None:
    tensor = torch.zeros(COUNT, device=cuda)
    hold(200)
    tensor.fill_(3)
    headrace.checkpoint.save({"a": tensor}, str(tmp_path / "a.pt"))
    tensor.fill_(4)
    found = headrace.checkpoint.load(str(tmp_path / "a.pt"), map_location="cpu")["a"]
    assert found.min() == found.max() == 3


def test_what_is_staged_is_the_state_at_that_time_in_page_locked_memory(
    state: dict[str, Any], hold: Hold
) -> None:
    expected = {k: v.cpu().clone() if hasattr(v, "cpu") else v for k, v in state.items()}
    hold(100)
    staged = copy_to_host(state)
    for name in ("large", "half", "flags"):
        state[name].zero_()
    assert_same(staged, expected, "cpu")
    assert staged["large"].is_pinned()
    assert staged["large"].data_ptr() == staged["tied"].data_ptr()


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_save_in_the_background_has_the_state_of_its_call(
    tmp_path: Path, state: dict[str, Any], hold: Hold, kind: str
) -> None:
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    del state["eighth"]  # torch's planner has no size for it in every version
    expected = {k: v.cpu().clone() if hasattr(v, "cpu") else v for k, v in state.items()}
    store = str(tmp_path / "step7")
    with OwnGroup():
        hold(100)
        saving = dcp.async_save(
            state,
            storage_writer=DistributedWriter(store),
            async_checkpointer_type=AsyncCheckpointerType(kind),
        )
        for name in ("large", "half", "flags"):
            state[name].zero_()
        saving.result()
        wanted = {k: torch.zeros_like(v) if hasattr(v, "cpu") else 0 for k, v in state.items()}
        dcp.load(wanted, storage_reader=DistributedReader(store))
    torch.cuda.synchronize()
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert wanted[name].device.type == state[name].device.type
            assert torch.equal(wanted[name].cpu(), value), name


def test_a_model_sharded_by_fsdp2_comes_back(tmp_path: Path, cuda: torch.device) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def model(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        made = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 5)).to(cuda)
        return fully_shard(made, mesh=init_device_mesh("cuda", (1,)))

    store = str(tmp_path / "step1")
    with OwnGroup():
        saved, other = model(1), model(2)
        dcp.save(saved.state_dict(), storage_writer=DistributedWriter(store))
        into = other.state_dict()
        dcp.load(into, storage_reader=DistributedReader(store))
        for name, value in saved.state_dict().items():
            assert torch.equal(into[name].full_tensor(), value.full_tensor())


class OwnGroup:
    """A process group of this process alone, of gloo for the host and NCCL for the device."""

    def __enter__(self) -> None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        torch.cuda.set_device(0)
        dist.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)

    def __exit__(self, *_: object) -> None:
        dist.destroy_process_group()


def test_safetensors_are_saved_and_come_to_the_device(
    tmp_path: Path, state: dict[str, Any]
) -> None:
    url = str(tmp_path / "a.safetensors")
    tensors = {name: state[name] for name in ("large", "half", "eighth", "flags", "nothing")}
    headrace.checkpoint.save(tensors, url)
    assert_same(headrace.checkpoint.load(url, map_location="cuda"), tensors, "cuda")
    assert_same(headrace.checkpoint.load(url), tensors, "cpu")


def test_one_tensor_of_a_checkpoint_of_the_device_is_read_on_the_host(
    tmp_path: Path, state: dict[str, Any]
) -> None:
    url = str(tmp_path / "a.pt")
    headrace.checkpoint.save(state, url)
    found = headrace.checkpoint.open(url).tensor("half")
    assert torch.equal(found.cpu().view(torch.uint8), state["half"].cpu().view(torch.uint8))


def test_page_locked_memory_is_used_again(tmp_path: Path, state: dict[str, Any]) -> None:
    if not hasattr(torch.cuda, "host_memory_stats"):
        pytest.skip("this torch does not tell")

    def held_bytes() -> int:
        torch.cuda.synchronize()
        held: int = torch.cuda.host_memory_stats()["allocated_bytes.current"]
        return held

    def once() -> None:
        headrace.checkpoint.save(state, str(tmp_path / "a.pt"))
        headrace.checkpoint.load(str(tmp_path / "a.pt"), map_location="cuda")

    once()
    after_one_bytes = held_bytes()
    for _ in range(3):
        once()
    assert held_bytes() == after_one_bytes


def test_a_state_of_many_groups_comes_to_the_device(
    tmp_path: Path, cuda: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.checkpoint._loading.GROUP_BYTES", 1 << 20)
    monkeypatch.setattr("headrace.checkpoint._safetensors.reader.GROUP_BYTES", 1 << 20)
    random = torch.Generator(cuda).manual_seed(3)
    many = {
        f"layer{i}": torch.rand(1000 * (i + 1) ** 2, generator=random, device=cuda)
        for i in range(40)
    }
    for name in ("a.pt", "a.safetensors"):
        url = str(tmp_path / name)
        headrace.checkpoint.save(many, url)
        assert_same(headrace.checkpoint.load(url, map_location="cuda:0"), many, "cuda")
    saved = str(tmp_path / "a.pt")
    assert_same(headrace.checkpoint.load(saved, map_location={"cuda:0": "cpu"}), many, "cpu")
