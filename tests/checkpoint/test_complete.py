"""`latest` finds what can be loaded, in any format, and nothing else."""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

import headrace
import headrace.checkpoint
import headrace.huggingface
from headrace import HeadraceError
from headrace.checkpoint import DistributedReader, DistributedWriter
from testing.faultserver.client import FaultServer
from tests.checkpoint.states import file_of, stock_file_of

STATE = {"a": torch.arange(10), "b": torch.ones(3, 2, dtype=torch.float16)}
OLD = {"_use_new_zipfile_serialization": False}

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def _load_folder(folder: Path) -> Any:
    state = {"a": torch.zeros_like(STATE["a"]), "b": torch.zeros_like(STATE["b"])}
    dcp.load(state, storage_reader=DistributedReader(folder))
    return state


def _download(folder: Path) -> Any:
    headrace.huggingface.download(folder, folder.parent.parent / "downloaded")
    return STATE


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _save(name: str, **options: Any) -> Callable[[Path], None]:
    return lambda folder: headrace.checkpoint.save(STATE, folder / name, **options) and None


def _save_by_torch(folder: Path) -> None:
    dcp.save(STATE, storage_writer=dcp.FileSystemWriter(folder / "step7"))


def _save_by_headrace(folder: Path) -> None:
    writer = DistributedWriter(folder / "step7")
    writer.attach({"config.json": b"{}"})
    dcp.save(STATE, storage_writer=writer)


def _upload(folder: Path) -> None:
    made = folder.parent / "made" / "checkpoint-7"
    _write(made / "state.json", b"{}")
    _write(made / "sub" / "scheduler.json", b"{}")
    with headrace.huggingface.CheckpointUploads(folder) as uploads:
        uploads.submit(made)


# How a checkpoint is made, what `latest` gives, and how that is loaded.
FORMATS: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], Any]]] = {
    "a file of save": (_save("step7.pt"), "step7.pt", headrace.checkpoint.load),
    "a file of torch.save": (
        lambda folder: _write(folder / "step7.pt", stock_file_of(STATE)),
        "step7.pt",
        headrace.checkpoint.load,
    ),
    "torch's format before 1.6": (
        lambda folder: _write(folder / "step7.pt", stock_file_of(STATE, **OLD)),
        "step7.pt",
        headrace.checkpoint.load,
    ),
    "safetensors": (_save("step7.safetensors"), "step7.safetensors", headrace.checkpoint.load),
    "safetensors by another name": (
        _save("step7", format="safetensors"),
        "step7",
        headrace.checkpoint.load,
    ),
    "safetensors in parts": (
        _save("step7.safetensors", max_shard_bytes=20),
        "step7.safetensors.index.json",
        headrace.checkpoint.load,
    ),
    "a variant in parts": (
        _save("model.fp16.safetensors", max_shard_bytes=20),
        "model.safetensors.index.fp16.json",
        headrace.checkpoint.load,
    ),
    "a folder of torch": (_save_by_torch, "step7", _load_folder),
    "a folder of DistributedWriter": (_save_by_headrace, "step7", _load_folder),
    "an uploaded folder": (_upload, "checkpoint-7", _download),
}


def _latest(folder: Path) -> str | None:
    found = headrace.checkpoint.latest(folder)
    return found and found.removeprefix(f"file://{folder}/")


def _is_loaded(folder: Path, name: str, load: Callable[[Path], Any]) -> bool:
    try:
        found = load(folder / name)
    except (HeadraceError, dcp.api.CheckpointException, pickle.UnpicklingError, RuntimeError):
        return False
    return all(torch.equal(found[key], value) for key, value in STATE.items())


@pytest.mark.parametrize("kind", FORMATS)
def test_it_is_complete_when_it_can_be_loaded_wherever_a_file_is_cut(
    kind: str, tmp_path: Path
) -> None:
    make, name, load = FORMATS[kind]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    make(whole)
    assert _latest(whole) == name
    assert _is_loaded(whole, name, load)
    for file in sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file()):
        data = (whole / file).read_bytes()
        for size_bytes in {None, 0, len(data) // 2, max(0, len(data) - 1)}:
            shutil.rmtree(cut, ignore_errors=True)
            shutil.copytree(whole, cut)
            (cut / file).unlink()
            if size_bytes is not None:
                (cut / file).write_bytes(data[:size_bytes])
            expected = name if _is_loaded(cut, name, load) else None
            if ".attached-" in file.name:
                expected = None if size_bytes is None else name  # only `attachment` reads it
            assert _latest(cut) == expected, (file, size_bytes)


@pytest.mark.parametrize("make", [_save_by_torch, _save_by_headrace])
def test_a_folder_takes_one_listing_and_its_metadata(
    make: Callable[[Path], None], tmp_path: Path, server: FaultServer, gcs: headrace.Store
) -> None:
    make(tmp_path)
    for path in (tmp_path / "step7").iterdir():
        server.put("bucket", f"step7/{path.name}", path.read_bytes())
    assert headrace.checkpoint.latest(store=gcs) == "gs://bucket/step7"
    by_kind = server.stats()["by_kind"]
    assert {kind: count for kind, count in by_kind.items() if count} == {"list": 1, "media": 1}


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('the pickle ran')",)


@pytest.mark.parametrize("options", [{}, OLD], ids=["zip", "before 1.6"])
def test_nothing_of_a_pickle_runs(options: dict[str, Any], tmp_path: Path) -> None:
    state = {"a": torch.ones(2), "evil": Evil()}
    _write(tmp_path / "step1.pt", stock_file_of(state, **options))
    assert _latest(tmp_path) == "step1.pt"
    metadata = dcp.metadata.Metadata({}, planner_data=Evil())
    _write(tmp_path / "step2" / ".metadata", pickle.dumps(metadata))
    assert _latest(tmp_path) == "step2"


def test_what_is_pickled_but_no_metadata_makes_no_folder(tmp_path: Path) -> None:
    for data in (b"x", pickle.dumps({"step": 1}), pickle.dumps(dcp.metadata.Metadata({})) + b"x"):
        _write(tmp_path / "step1" / ".metadata", data)
        assert _latest(tmp_path) is None


def test_the_old_format_of_a_module_and_of_shared_storages_is_whole(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    states: list[Any] = [
        {},
        [base, base[2:], base.view(2, 3)],
        torch.nn.Linear(2, 2),
        {str(dtype): torch.zeros(3, dtype=dtype) for dtype in (torch.bool, torch.bfloat16)},
    ]
    for i, state in enumerate(states):
        data = stock_file_of(state, **OLD)
        _write(tmp_path / f"{i}" / "a.pt", data)
        assert _latest(tmp_path / f"{i}") == "a.pt"
        assert torch.load(io.BytesIO(data), weights_only=False) is not None
        _write(tmp_path / f"{i}" / "a.pt", data[:-1])
        assert _latest(tmp_path / f"{i}") is None


def test_beside_uploaded_folders_one_without_a_manifest_is_an_upload_that_did_not_end(
    tmp_path: Path,
) -> None:
    _upload(tmp_path)
    for name in ("checkpoint-8/optimizer.pt", "checkpoint-9/sub/optimizer.pt"):
        _write(tmp_path / name, file_of(STATE))
    assert _latest(tmp_path) == "checkpoint-7"
    _write(tmp_path / "final" / "model.pt", file_of(STATE))
    assert _latest(tmp_path) == "final/model.pt"


@pytest.mark.parametrize("name", ["__0_0.distcp", "model__0_0.distcp"])
def test_files_of_an_unfinished_folder_are_no_checkpoints(name: str, tmp_path: Path) -> None:
    _write(tmp_path / "step8" / name, file_of(STATE))
    _write(tmp_path / "step8" / "meta.pt", file_of(STATE))
    assert _latest(tmp_path) is None
