"""What is saved is what is loaded, here and by stock torch, with few requests."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

import headrace
from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from headrace.checkpoint._distributed.items import DeviceItem, encode
from headrace.checkpoint._distributed.upload import Passing
from testing.faultserver.client import FaultServer
from tests.checkpoint.late import LateCopies
from tests.checkpoint_distributed.conftest import (
    Place,
    assert_same,
    blank,
    file_place,
    training_state,
)
from tests.sums import count_summed_bytes

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.mark.every_store
@pytest.mark.parametrize(
    "options", [{}, {"thread_count": 3}, {"single_file_per_rank": False}], ids=str
)
def test_a_state_comes_back_bit_for_bit(place: Place, options: dict[str, Any]) -> None:
    state = training_state()
    dcp.save(state, storage_writer=place.writer(**options))
    loaded = blank(state)
    dcp.load(loaded, storage_reader=place.reader())
    assert_same(loaded, state)


@pytest.mark.parametrize(("thread_count", "files"), [(None, 1), (1, 1), (3, 3)])
def test_thread_count_says_how_many_files_a_rank_writes(
    place: Place, thread_count: int | None, files: int
) -> None:
    state = {f"layer{i}": torch.ones(1000) for i in range(12)}
    dcp.save(state, storage_writer=place.writer(thread_count=thread_count))
    assert len(place.data_names()) == files


def test_each_tensor_gets_a_file_where_that_is_asked_for(place: Place) -> None:
    dcp.save({"a": torch.ones(3), "b": 1}, storage_writer=place.writer(single_file_per_rank=False))
    assert len(place.data_names()) == 2


def test_large_tensors_are_summed_while_they_arrive(
    gcs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"a": torch.rand(3_000_000), "b": torch.rand(700_000)}
    dcp.save(state, storage_writer=gcs.writer())
    loaded = blank(state)
    summed_bytes = count_summed_bytes(monkeypatch)
    dcp.load(loaded, storage_reader=gcs.reader())
    assert_same(loaded, state)
    assert sum(summed_bytes) < 100_000


@pytest.mark.parametrize("position", [0, 1 << 20, 11_999_999])
def test_a_wrong_bit_of_a_large_tensor_is_found_while_it_arrives(gcs: Place, position: int) -> None:
    tensor = torch.rand(3_000_000)
    dcp.save({"a": tensor}, storage_writer=gcs.writer())
    (name,) = gcs.data_names()
    data = bytearray(gcs.get(name))
    raw = tensor.numpy().tobytes()
    data[data.index(raw) + position] ^= 1
    gcs.put(name, bytes(data))
    with pytest.raises(dcp.CheckpointException, match=r"CorruptDataError: 'a' in gs://.*CRC-32C"):
        dcp.load({"a": torch.zeros(3_000_000)}, storage_reader=gcs.reader())


def test_stock_torch_reads_a_copy_without_headrace(gcs: Place, tmp_path: Path) -> None:
    state = training_state()
    dcp.save(state, storage_writer=gcs.writer(thread_count=2))
    for name in gcs.names():
        (tmp_path / name).write_bytes(gcs.get(name))
    torch.save(state, tmp_path / "expected.pt")
    program = """
import sys, warnings
sys.modules["headrace"] = None
warnings.simplefilter("ignore")
import torch, torch.distributed.checkpoint as dcp
folder = sys.argv[1]
expected = torch.load(folder + "/expected.pt")
model = {k: torch.zeros(v.shape, dtype=v.dtype) for k, v in expected["model"].items()}
state = {"model": model, "step": 0, "names": []}
dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
for name, tensor in expected["model"].items():
    assert torch.equal(state["model"][name].view(-1) if tensor.dim() == 0 else state["model"][name],
                       tensor.view(-1) if tensor.dim() == 0 else tensor), name
assert state["step"] == expected["step"] and state["names"] == expected["names"]
"""
    program = program.replace("torch.equal(", "same(").replace(
        "folder = sys",
        "same = lambda a, b: torch.equal(a.to(torch.complex64), "
        "b.to(torch.complex64))\nfolder = sys",
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("single_file_per_rank", [True, False])
def test_what_stock_torch_wrote_is_read(
    place: Place, tmp_path: Path, single_file_per_rank: bool
) -> None:
    state = training_state()
    stock = tmp_path / "stock"
    writer = dcp.FileSystemWriter(stock, single_file_per_rank=single_file_per_rank)
    dcp.save(state, storage_writer=writer)
    for path in stock.iterdir():
        place.put(path.name, path.read_bytes())
    loaded = blank(state)
    dcp.load(loaded, storage_reader=place.reader())
    assert_same(loaded, state)


def test_small_tensors_are_read_by_one_request_together(gcs: Place, server: FaultServer) -> None:
    state = {f"layer{i}": torch.full((64,), float(i)) for i in range(200)}
    dcp.save(state, storage_writer=gcs.writer())
    before = server.stats()["by_kind"]
    loaded = blank(state)
    dcp.load(loaded, storage_reader=gcs.reader())
    after = server.stats()["by_kind"]
    assert_same(loaded, state)
    assert after.get("media", 0) - before.get("media", 0) == 2  # the metadata, and all tensors
    assert after.get("get", 0) == before.get("get", 0)


def test_small_tensors_of_a_stock_checkpoint_are_read_together_too(
    gcs: Place, server: FaultServer, tmp_path: Path
) -> None:
    state = {f"layer{i}": torch.full((64,), float(i)) for i in range(200)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path))
    for path in tmp_path.iterdir():
        gcs.put(path.name, path.read_bytes())
    server.reset(keep_buckets=True)
    loaded = blank(state)
    dcp.load(loaded, storage_reader=gcs.reader())
    assert_same(loaded, state)
    assert server.stats()["by_kind"] == {"media": 2, "get": 1}


def test_a_save_sends_one_object_per_file_and_the_metadata(gcs: Place, server: FaultServer) -> None:
    state = {f"layer{i}": torch.full((64,), float(i)) for i in range(200)}
    dcp.save(state, storage_writer=gcs.writer())
    sent = [r["kind"] for r in server.log()]
    assert sent[0] == "list"
    assert len(sent) == 3


def test_one_tensor_of_ten_moves_its_own_bytes(gcs: Place, server: FaultServer) -> None:
    state = {f"layer{i}": torch.full((1_000_000,), float(i)) for i in range(10)}
    dcp.save(state, storage_writer=gcs.writer())
    server.reset(keep_buckets=True)
    loaded = {"layer3": torch.zeros(1_000_000)}
    dcp.load(loaded, storage_reader=gcs.reader())
    assert torch.equal(loaded["layer3"], state["layer3"])
    assert sum(r["bytes_sent"] for r in server.log()) < 4_100_000


@pytest.mark.parametrize("rows", [(0, 3000), (100, 101), (1, 2999), (1000, 2000)])
def test_rows_of_a_tensor_are_read_with_no_more_than_a_block_around_them(
    gcs: Place, server: FaultServer, rows: tuple[int, int]
) -> None:
    whole = torch.arange(3000 * 1000, dtype=torch.float32).reshape(3000, 1000)
    dcp.save({"w": whole}, storage_writer=gcs.writer())
    server.reset(keep_buckets=True)
    loaded = {"w": torch.zeros_like(whole)}

    class SomeRows(DefaultLoadPlanner):
        def create_local_plan(self) -> Any:
            plan = super().create_local_plan()
            (item,) = plan.items
            begin, end = rows
            offsets, lengths = torch.Size([begin, 0]), torch.Size([end - begin, 1000])
            plan.items = [
                type(item)(
                    type=item.type,
                    dest_index=item.dest_index,
                    dest_offsets=offsets,
                    storage_index=item.storage_index,
                    storage_offsets=offsets,
                    lengths=lengths,
                )
            ]
            return plan

    dcp.load(loaded, storage_reader=gcs.reader(), planner=SomeRows())
    begin, end = rows
    assert torch.equal(loaded["w"][begin:end], whole[begin:end])
    assert not loaded["w"][:begin].any()
    assert not loaded["w"][end:].any()
    moved = sum(r["bytes_sent"] for r in server.log())
    assert moved <= (end - begin) * 4000 + 2 * headrace.MiB + 16 * headrace.KiB


def test_a_column_of_a_tensor_is_read(place: Place) -> None:
    whole = torch.arange(600.0).reshape(20, 30)
    dcp.save({"w": whole}, storage_writer=place.writer())

    class OneColumn(DefaultLoadPlanner):
        def create_local_plan(self) -> Any:
            plan = super().create_local_plan()
            (item,) = plan.items
            offsets, lengths = torch.Size([2, 7]), torch.Size([11, 3])
            plan.items = [
                type(item)(
                    item.type, item.dest_index, offsets, item.storage_index, offsets, lengths
                )
            ]
            return plan

    loaded = {"w": torch.zeros_like(whole)}
    dcp.load(loaded, storage_reader=place.reader(), planner=OneColumn())
    expected = torch.zeros_like(whole)
    expected[2:13, 7:10] = whole[2:13, 7:10]
    assert torch.equal(loaded["w"], expected)


def test_other_types_and_layouts_of_the_target_are_copied_into(place: Place) -> None:
    saved = torch.arange(12.0).reshape(3, 4)
    dcp.save({"w": saved}, storage_writer=place.writer())
    double = {"w": torch.zeros(3, 4, dtype=torch.float64)}
    transposed = {"w": torch.zeros(4, 3).t()}
    for loaded in (double, transposed):
        dcp.load(loaded, storage_reader=place.reader())
        assert torch.equal(loaded["w"], saved.to(loaded["w"].dtype))


def test_a_tensor_arrives_in_the_memory_that_the_state_has(place: Place) -> None:
    dcp.save({"w": torch.ones(5)}, storage_writer=place.writer())
    loaded = {"w": torch.zeros(5)}
    alias = loaded["w"]
    dcp.load(loaded, storage_reader=place.reader())
    assert torch.equal(alias, torch.ones(5))


def test_a_missing_key_is_an_error_unless_partial_loads_are_allowed(place: Place) -> None:
    dcp.save({"a": torch.ones(3)}, storage_writer=place.writer())
    wanted = {"a": torch.zeros(3), "b": torch.zeros(2)}
    with pytest.raises(dcp.CheckpointException, match="Missing key in checkpoint state_dict: b"):
        dcp.load(dict(wanted), storage_reader=place.reader())
    dcp.load(
        wanted,
        storage_reader=place.reader(),
        planner=DefaultLoadPlanner(allow_partial_load=True),
    )
    assert torch.equal(wanted["a"], torch.ones(3))
    assert torch.equal(wanted["b"], torch.zeros(2))


def test_checkpoint_id_chooses_the_folder_save_by_save(tmp_path: Path) -> None:
    writer = DistributedWriter(tmp_path / "unused")
    reader = DistributedReader(tmp_path / "unused")
    for step in (1, 2):
        dcp.save(
            {"w": torch.tensor(step)}, checkpoint_id=tmp_path / f"{step}", storage_writer=writer
        )
    for step in (1, 2):
        loaded = {"w": torch.tensor(0)}
        dcp.load(loaded, checkpoint_id=f"file://{tmp_path}/{step}", storage_reader=reader)
        assert loaded["w"] == step
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "2"]


def test_writers_and_readers_pickle(place: Place) -> None:
    writer = pickle.loads(pickle.dumps(place.writer(thread_count=2)))
    dcp.save({"a": torch.ones(3), "b": torch.ones(4)}, storage_writer=writer)
    assert len(place.data_names()) == 2
    loaded = {"a": torch.zeros(3), "b": torch.zeros(4)}
    dcp.load(loaded, storage_reader=pickle.loads(pickle.dumps(place.reader())))
    assert torch.equal(loaded["b"], torch.ones(4))


def test_plans_that_torch_caches_do_not_make_files_be_shared(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    for step in (1, 2, 3):
        place = file_place(tmp_path / str(step % 2))
        dcp.save(
            {"w": torch.full((4,), float(step))},
            storage_writer=place.writer(),
            planner=DefaultSavePlanner(enable_plan_caching=True),
        )
        loaded = {"w": torch.zeros(4)}
        dcp.load(loaded, storage_reader=place.reader())
        assert torch.equal(loaded["w"], torch.full((4,), float(step)))


def test_progress_counts_up_to_all_bytes(place: Place) -> None:
    saves: list[tuple[int, int]] = []
    loads: list[tuple[int, int]] = []
    state = {f"w{i}": torch.ones(1000) for i in range(5)}
    dcp.save(state, storage_writer=place.writer(progress=lambda *each: saves.append(each)))
    dcp.load(blank(state), storage_reader=place.reader(progress=lambda *each: loads.append(each)))
    for reports in (saves, loads):
        assert len(reports) == 5
        done = [each for each, _ in reports]
        assert done == sorted(done)
        assert done[-1] == reports[-1][1] >= 20_000


@pytest.mark.parametrize("kind", [DistributedWriter, DistributedReader])
def test_a_url_that_pathlib_has_changed_is_refused(kind: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="pass the URL as a str"):
        kind(Path("gs://bucket/run1"))
    assert not kind.validate_checkpoint_id(Path("gs://bucket/run1"))
    assert not kind.validate_checkpoint_id("http://bucket/run1")
    assert kind.validate_checkpoint_id("gs://bucket/run1")
    assert kind.validate_checkpoint_id("/some/where")


def test_a_transformed_item_is_undone_or_refused(place: Place, tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(3)}, storage_writer=dcp.FileSystemWriter(tmp_path))
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.transform_descriptors = ["stream.unheard_of/1"]
    for path in tmp_path.iterdir():
        place.put(path.name, path.read_bytes())
    place.put(".metadata", pickle.dumps(metadata))
    with pytest.raises(dcp.CheckpointException, match=r"transformed by stream\.unheard_of/1"):
        dcp.load({"w": torch.zeros(3)}, storage_reader=place.reader())


def test_attachments_come_with_the_checkpoint_and_under_their_own_name(place: Place) -> None:
    for content in (b"first", b"second"):
        writer = place.writer()
        writer.attach({"meta.pt": content})
        dcp.save({"w": torch.ones(3)}, storage_writer=writer)
        assert place.reader().attachment("meta.pt") == content == place.get("meta.pt")
    assert len(place.names()) == 4  # data, attachment, its plain name, .metadata
    with pytest.raises(headrace.NotFoundError):
        place.reader().attachment("other.pt")


def test_latest_finds_the_folder_that_is_complete(tmp_path: Path) -> None:
    for step in (1, 2):
        dcp.save({"w": torch.tensor(step)}, storage_writer=DistributedWriter(tmp_path / f"{step}"))
    file_place(tmp_path / "3").put("__0_0.distcp", b"of a save that was killed")
    url = headrace.checkpoint.latest(tmp_path)
    assert url == f"file://{tmp_path}/2"
    loaded = {"w": torch.tensor(0)}
    dcp.load(loaded, storage_reader=DistributedReader(url))
    assert loaded["w"] == 2


def test_a_parameter_is_saved_as_the_tensor_that_it_is() -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    plain, of_parameter = encode(weight), encode(torch.nn.Parameter(weight))
    assert of_parameter.layout == plain.layout
    assert of_parameter.layout.dtype is torch.float32


@pytest.mark.parametrize("shape", [(3, 5), (1 << 21, 5), (7,), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_a_tensor_of_a_device_is_saved_as_one_of_the_host_with_two_pieces_in_memory(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    turned = tensor.movedim(0, -1) if shape else tensor
    for each in (tensor, turned, tensor.reshape(-1)[1:]):
        if each.numel() == 0:
            continue
        copies = LateCopies()
        item, expected = DeviceItem(each, copies), encode(each)
        # What passes is there until the next piece is asked for.
        found = [bytes(p.data if isinstance(p, Passing) else p) for p in item.pieces]
        assert b"".join(found) == b"".join(bytes(p) for p in expected.pieces)
        assert item.layout == expected.layout
        assert item.length_bytes == expected.length_bytes
        assert copies.buffer_sizes == [min(16 << 20, each.nbytes)] * 2


def test_a_state_of_a_device_is_loaded_as_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_if_of_a_device(data: Any) -> Any:
        is_tensor = type(data) is torch.Tensor and data.numel() > 0
        return DeviceItem(data, LateCopies()) if is_tensor else encode(data)

    monkeypatch.setattr("headrace.checkpoint._distributed.writer.encode", as_if_of_a_device)
    state = {**training_state(), "large": torch.randn(3, 3 << 20)}
    dcp.save(state, storage_writer=place.writer())
    loaded = blank(state)
    dcp.load(loaded, storage_reader=place.reader())
    assert_same(loaded, state)
