"""Checkpoints of DLIO, and what it lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
from tests.conftest import Child
from tests.dlio import stand_in
from tests.dlio.stand_in import MetadataType

Put = Callable[..., list[str]]
STATE = {"a": torch.arange(1000, dtype=torch.int16), "b": {"c": torch.ones(3)}}


def checkpoints_of(dlio: Any, folder: str) -> Any:
    stand_in.configure([], checkpoint_folder=folder)
    return dlio.Checkpointing()


@pytest.mark.parametrize("version", ["2_0", "3_0"])
@pytest.mark.parametrize("place", ["url", "folder"])
def test_both_versions_of_dlio_save_what_torch_loads(
    dlio: Any, emulator: headrace.Store, tmp_path: Path, version: str, place: str
) -> None:
    folder = "gs://bucket/run" if place == "url" else str(tmp_path / "run")
    checkpoints = checkpoints_of(dlio, folder)
    getattr(checkpoints, f"checkpoint_of_{version}")("model-1-5-0", STATE)
    file = tmp_path / "loaded.pt"
    file.write_bytes(bytes(headrace.Store(folder).read("model-1-5-0.pt")))
    loaded = torch.load(file)
    assert torch.equal(loaded["a"], STATE["a"])
    assert torch.equal(loaded["b"]["c"], STATE["b"]["c"])


def test_a_load_returns_what_was_saved(dlio: Any, emulator: headrace.Store) -> None:
    checkpoints = checkpoints_of(dlio, "gs://bucket/run")
    checkpoints.save_state("x", STATE)
    assert torch.equal(checkpoints.load_state("x", STATE)["a"], STATE["a"])


def test_a_load_of_another_checkpoint_is_refused(dlio: Any, emulator: headrace.Store) -> None:
    checkpoints = checkpoints_of(dlio, "gs://bucket/run")
    checkpoints.save_state("x", {"z": STATE["a"]})
    with pytest.raises(headrace.CorruptDataError, match="another"):
        checkpoints.load_state("x", STATE)


def test_the_instance_is_one_of_ours(dlio: Any) -> None:
    first = dlio.Checkpointing.get_instance()
    assert isinstance(first, dlio.Checkpointing)
    assert dlio.Checkpointing.get_instance() is first


@pytest.mark.parametrize(
    ("datatype", "dtype"), [("int8", torch.int8), ("bf16", torch.bfloat16), ("fp32", torch.float32)]
)
def test_tensors_have_their_bytes(dlio: Any, datatype: str, dtype: torch.dtype) -> None:
    tensor = checkpoints_of(dlio, "").get_tensor_core(10, datatype)
    assert (tensor.dtype, tensor.shape) == (dtype, (10,))
    assert checkpoints_of(dlio, "").get_tensor_core(3, datatype, randomize=False).sum() == 3


def test_an_unknown_type_is_refused(dlio: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="fp8"):
        checkpoints_of(dlio, "").get_tensor_core(10, "fp8")


def test_checkpoints_at_a_url_need_no_launcher(dlio: Any) -> None:
    checkpoints_of(dlio, "gs://bucket/run")
    storage = stand_in.StorageFactory.get_storage("local_fs", "gs://bucket/run")
    assert isinstance(storage, dlio.Storage)


# ---- what DLIO lists


def test_a_url_is_listed_as_a_folder_is(dlio: Any, put: Put, emulator: headrace.Store) -> None:
    urls = put(2)
    emulator.write("data/train/sub/003.NPZ", b"")
    dlio.install()
    storage = stand_in.StorageFactory.get_storage("local_fs", "gs://bucket/data")
    assert storage.walk_node("train") == ["000.npz", "001.npz", "sub"]
    assert storage.walk_node("valid") == []
    assert storage.get_node("train/000.npz") is MetadataType.FILE
    assert storage.get_node("train") is MetadataType.DIRECTORY
    assert storage.get_node("valid") is None
    assert storage.get_uri("train/000.npz") == urls[0]
    assert storage.get_uri(urls[0]) == urls[0]
    assert storage.walk_node("train/*/*.npz", use_pattern=True) == [
        "gs://bucket/data/train/sub/003.NPZ"
    ]
    assert storage.get_basename(urls[0]) == "000.npz"


def test_objects_are_written_read_and_deleted(dlio: Any, emulator: headrace.Store) -> None:
    storage = dlio.Storage("gs://bucket/data/")
    storage.put_data("a/b", "text")
    assert bytes(storage.get_data("a/b", None)) == b"text"
    assert bytes(storage.get_data("a/b", None, 1, 2)) == b"ex"
    emulator.write("data/ab", b"")
    storage.delete_node("a")
    assert [info.name for info in emulator.list()] == ["data/ab"]


def test_paths_are_left_to_dlio(dlio: Any) -> None:
    dlio.install()
    dlio.install()  # once more changes nothing
    for path in ("./data", "/data", "bucket-of-s3"):
        found = stand_in.StorageFactory.get_storage("s3", path)
        assert found == ("DLIO's own", "s3", path)


def test_data_cannot_be_generated_into_a_bucket(dlio: Any) -> None:
    stand_in.configure([], generate_data=True)
    with pytest.raises(headrace.InvalidArgumentError, match="headrace cp -r"):
        dlio.Storage("gs://bucket").create_node("data")


def test_headrace_imports_no_dlio(run_child: Child) -> None:
    run_child(
        """
        import sys, headrace, headrace.torch, headrace.checkpoint
        assert not [name for name in sys.modules if "dlio" in name]
        """
    )
