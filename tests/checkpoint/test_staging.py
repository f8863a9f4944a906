"""From a device to the host: the order of events, with a device that takes its time."""

from __future__ import annotations

import collections
import io
import threading
import tracemalloc
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import headrace
from headrace.checkpoint._device_copies import (
    DeviceCopies,
    goes_to_cuda,
    host_pieces,
    new_storage,
    passing_storage,
    release_page_locked,
)
from headrace.checkpoint._saving import stage_save
from headrace.checkpoint._staging import copy_to_host
from tests.checkpoint.late import LateCopies
from tests.checkpoint.mutable import Pair, change_all, states
from tests.checkpoint.states import file_of


@pytest.mark.parametrize("size_bytes", [0, 1, 9, 10, 11, 20, 35])
def test_pieces_are_the_bytes_in_order(size_bytes: int) -> None:
    source = torch.arange(size_bytes, dtype=torch.uint8)
    for copies in (LateCopies(), DeviceCopies(torch.device("cpu"))):
        found = [piece.clone() for piece in host_pieces(source, copies, piece_bytes=10)]
        assert [len(piece) for piece in found] == [
            min(10, size_bytes - begin) for begin in range(0, size_bytes, 10)
        ]
        assert torch.equal(torch.cat([torch.empty(0, dtype=torch.uint8), *found]), source)


def test_the_next_piece_is_on_its_way_while_one_is_used() -> None:
    copies = LateCopies()
    for piece in host_pieces(torch.arange(25, dtype=torch.uint8), copies, piece_bytes=10):
        copies.events.append(f"use {len(piece)}")
    assert copies.events == [
        *("start 10", "wait 10", "start 10", "use 10"),
        *("wait 10", "start 5", "use 10"),
        *("wait 5", "use 5"),
    ]
    assert copies.most_under_way == 1


def test_a_piece_stays_as_it_is_until_the_next_is_asked_for() -> None:
    copies = LateCopies()
    pieces = host_pieces(torch.arange(30, dtype=torch.uint8), copies, piece_bytes=10)
    first = next(pieces)
    assert first.tolist() == list(range(10))
    second = next(pieces)
    assert first.tolist() == list(range(10))
    assert second.tolist() == list(range(10, 20))


# ---- whole states


def test_copies_share_what_the_originals_share() -> None:
    pair = namedtuple("pair", "a b")
    base = torch.arange(10.0)
    state = OrderedDict(tied=base[2:5], whole=base, nested=[pair(base[5:].clone(), 4)])
    state._metadata = {"version": 1}  # type: ignore[attr-defined]
    made = copy_to_host(state)
    assert isinstance(made, OrderedDict)
    assert made._metadata == {"version": 1}
    base.zero_()
    assert torch.equal(made["tied"], torch.tensor([2.0, 3.0, 4.0]))
    made["whole"][2] = 7
    assert made["tied"][0] == 7
    assert made["nested"][0].b == 4
    assert torch.equal(made["nested"][0].a, torch.arange(5.0, 10.0))
    assert torch.equal(
        copy_to_host(torch.ones(2, dtype=torch.complex64).conj()), torch.ones(2) + 0j
    )


def test_all_copies_are_started_before_one_is_awaited() -> None:
    copies = LateCopies()
    weight = torch.arange(6, dtype=torch.uint8)
    state = {"w": weight, "tied": weight[2:], "b": torch.arange(4, dtype=torch.uint8), "step": 3}
    staged = copy_to_host(state, lambda _: copies)
    assert copies.events == ["start 6", "start 4", "wait 6", "wait 4"]
    assert copies.most_under_way == 2
    assert {key: each if key == "step" else each.tolist() for key, each in staged.items()} == {
        "w": [0, 1, 2, 3, 4, 5],
        "tied": [2, 3, 4, 5],
        "b": [0, 1, 2, 3],
        "step": 3,
    }


def test_other_values_are_copied_too() -> None:
    state = {"callback": {"seen": {1, 2}}, "name": "x", "empty": torch.empty(0, 3)}
    staged = copy_to_host(state)
    state["callback"]["seen"].add(3)  # type: ignore[index]
    assert staged["callback"] == {"seen": {1, 2}}
    assert staged["empty"].shape == (0, 3)


def later_bytes_of(obj: Any, url: str) -> bytes:
    """The file of a save in the background, during which everything is changed."""
    save = stage_save(obj, url, store=None, upload=None)
    change_all(obj)
    save()
    return Path(url).read_bytes()


# Of kinds of tensors that it calls new or old.
torch_warns = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::UserWarning:tests")


@torch_warns
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=states())
def test_a_staged_save_is_the_file_of_a_save_at_that_time_byte_for_byte(
    tmp_path: Path, state: dict[str, Any]
) -> None:
    expected = file_of(state)
    assert later_bytes_of(state, str(tmp_path / "a.pt")) == expected


@torch_warns
@given(state=states())
def test_a_staged_copy_is_saved_like_the_state_at_that_time(state: dict[str, Any]) -> None:
    expected = file_of(state)
    staged = copy_to_host(state)
    change_all(state)
    assert reloaded(file_of(staged)) == reloaded(expected)


def reloaded(file: bytes) -> bytes:
    """The file once more: which equal texts are one object may differ before."""
    return file_of(torch.load(io.BytesIO(file), weights_only=False))


def test_what_cannot_be_staged_is_named_at_once() -> None:
    state = {"fine": torch.ones(2), "callback": {"lock": threading.Lock()}}
    with pytest.raises(TypeError, match="cannot pickle") as raised:
        copy_to_host(state)
    assert raised.value.__notes__ == ["while copying 'callback'"]


def test_what_no_load_could_make_is_staged_for_a_file_and_refused_as_a_copy(tmp_path: Path) -> None:
    state = {"pair": Pair(torch.ones(2), 1)}
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        copy_to_host(state)
    expected = file_of(state)
    assert later_bytes_of(state, str(tmp_path / "a.pt")) == expected


def test_a_copy_may_have_what_a_file_may_not() -> None:
    class Local(dict):  # type: ignore[type-arg]
        pass

    made = Local(values=collections.defaultdict(lambda: 3, a=torch.ones(2)))
    staged = copy_to_host({"state": made, "mixed": [torch.ones(4), torch.ones(4).view(torch.int)]})
    made["values"]["a"].zero_()
    assert type(staged["state"]) is Local
    assert staged["state"]["values"]["a"].tolist() == [1, 1]
    assert staged["state"]["values"]["b"] == 3


def test_arrays_are_copied_once() -> None:
    array = np.zeros(4 << 20, np.uint8)
    tracemalloc.start()
    try:
        staged = copy_to_host({"a": array})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert staged["a"].flags.writeable
    assert peak < 1.5 * array.nbytes


def test_a_distributed_tensor_keeps_its_mesh_and_placements(
    run_child: Callable[..., object],
) -> None:
    run_child("""
        import torch, torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        from headrace.checkpoint._staging import copy_to_host
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        tensor = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
        staged = copy_to_host({"w": tensor})["w"]
        assert type(staged) is type(tensor)
        assert (staged.device_mesh, staged.placements) == (mesh, (Shard(0),))
        assert staged.to_local().data_ptr() != tensor.to_local().data_ptr()
        tensor.to_local().zero_()
        assert staged.full_tensor().tolist() == [0, 1, 2, 3, 4, 5]
        dist.destroy_process_group()
    """)


@pytest.mark.parametrize(
    ("map_location", "saved_on", "goes"),
    [
        (None, "cuda:1", True),
        (None, "cpu", False),
        ("cuda", "cpu", True),
        (torch.device("cuda", 3), "cpu", True),
        ("cpu", "cuda:0", False),
        ("meta", "cuda:0", False),
        ({"cuda:1": "cuda:0"}, "cuda:1", True),
        ({"cuda:1": "cpu"}, "cuda:1", False),
        ({"cuda:1": "cpu"}, "cuda:2", True),
        (lambda storage, _: storage, "cuda:0", False),
    ],
)
def test_it_is_known_which_storages_go_to_cuda(
    monkeypatch: pytest.MonkeyPatch, map_location: Any, saved_on: str, goes: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert goes_to_cuda(map_location, saved_on) is goes
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not goes_to_cuda(map_location, saved_on)


def test_without_room_in_page_locked_memory_storages_are_in_ordinary_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **options: Any) -> torch.Tensor:
        assert options["pin_memory"]
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch, "empty", full)
    storage = passing_storage(10, page_locked=True)
    assert (storage.nbytes(), storage.device.type) == (10, "cpu")


def test_much_page_locked_memory_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    released = []
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: released.append(1), raising=False)
    for sizes_bytes in ([], [1, 64 << 20]):
        release_page_locked(sizes_bytes)
        assert released == []
    release_page_locked([1, 65 << 20, 2])
    assert released == [1]


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_page_locked_memory_is_given_back_after_all_storages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    alive: list[weakref.ref[torch.UntypedStorage]] = []
    seen: list[int] = []

    def passing(size_bytes: int, page_locked: bool) -> torch.UntypedStorage:
        assert page_locked
        storage = new_storage(size_bytes)
        alive.append(weakref.ref(storage))
        return storage

    def release(sizes_bytes: Iterable[int]) -> None:
        assert list(sizes_bytes) == [4_000_000] * 5
        seen.append(sum(each() is not None for each in alive))

    for module in ("_loading", "_safetensors.reader"):
        for function, instead in (
            ("goes_to_cuda", lambda *_: True),
            ("passing_storage", passing),
            ("release_page_locked", release),
            ("GROUP_BYTES", 4_000_000),
        ):
            monkeypatch.setattr(f"headrace.checkpoint.{module}.{function}", instead)
    url = str(tmp_path / name)
    headrace.checkpoint.save({f"{i}": torch.ones(1_000_000) for i in range(5)}, url)
    found = headrace.checkpoint.load(url, map_location=lambda storage, _: storage.clone())
    assert all(each.min() == 1 for each in found.values())
    assert len(alive) == 5
    assert seen == [0]
