"""Names that other libraries give to files, parts and indexes are found and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

import headrace
import headrace.checkpoint
from headrace import InvalidArgumentError
from headrace.checkpoint._safetensors.names import (
    index_names_of,
    is_index_name,
    is_part_of,
    is_safetensors_name,
    part_name,
    single_name_of,
    without_part_number,
)
from tests.checkpoint_safetensors.tensors import assert_equal

STATE = {f"w{i}": torch.full((4,), float(i)) for i in (1, 2)}

# The name of one file, those of parts, and that of the index: of transformers and diffusers, of
# older versions of diffusers, and of huggingface_hub with a pattern for names.
SCHEMES = [
    ("model", "model-{}", "model.safetensors.index.json"),
    ("model.fp16", "model.fp16-{}", "model.safetensors.index.fp16.json"),
    ("unet.fp16", "unet-{}.fp16", "unet.safetensors.index.fp16.json"),
    ("unet.fp16", "unet-{}.fp16", "unet.safetensors.fp16.index.json"),
    ("model.v1.fp16", "model.v1.fp16-{}", "model.safetensors.index.v1.fp16.json"),
    ("model.v1", "model.v1-{}", "model.v1.safetensors.index.json"),
]


def latest(folder: Path) -> str | None:
    found = headrace.checkpoint.latest(folder)
    return found and found.removeprefix(f"file://{folder}/")


def write_parts(folder: Path, pattern: str, index: str = "") -> list[Path]:
    """Write a tensor to each of two files, as other programs do, and the index if it has a name."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for i, (key, tensor) in enumerate(STATE.items(), 1):
        files[key] = f"{pattern.format(f'{i:05d}-of-00002')}.safetensors"
        (folder / files[key]).write_bytes(safetensors.torch.save({key: tensor}, {"format": "pt"}))
    if index:
        (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return [folder / name for name in files.values()]


@pytest.mark.parametrize(("single", "pattern", "index"), SCHEMES)
def test_parts_of_other_programs_are_one_checkpoint(
    single: str, pattern: str, index: str, tmp_path: Path
) -> None:
    parts = write_parts(tmp_path, pattern, index)
    for name in (index, f"{single}.safetensors"):
        assert_equal(headrace.checkpoint.load(tmp_path / name), STATE)
        assert sorted(headrace.checkpoint.open(tmp_path / name).keys()) == sorted(STATE)
    assert latest(tmp_path) == index
    # A part is never taken for the whole: one is missing, or the index is damaged.
    part = parts[0].read_bytes()
    parts[0].unlink()
    assert latest(tmp_path) is None
    parts[0].write_bytes(part)
    (tmp_path / index).write_text("{")
    assert latest(tmp_path) is None


@pytest.mark.parametrize("single", ["model", "model.fp16", "run.2.bf16"])
def test_headrace_replaces_its_own_parts_of_a_variant(single: str, tmp_path: Path) -> None:
    url = tmp_path / f"{single}.safetensors"
    for _ in range(2):
        info = headrace.checkpoint.save(STATE, url, max_shard_bytes=16)
        assert_equal(headrace.checkpoint.load(url), STATE)
        assert latest(tmp_path) == info.name
        assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(InvalidArgumentError, match="is the name of an index"):
        headrace.checkpoint.save(STATE, tmp_path / info.name)


def test_files_that_no_index_names_are_checkpoints_if_they_have_the_same_tensors(
    tmp_path: Path,
) -> None:
    for step in range(1, 4):
        name = f"step-{step:05d}-of-00004.safetensors"
        headrace.checkpoint.save(STATE, tmp_path / "steps" / name)
    assert latest(tmp_path / "steps") == "step-00003-of-00004.safetensors"
    headrace.checkpoint.save(STATE, tmp_path / "one" / "step-00003-of-00004.safetensors")
    assert latest(tmp_path / "one") == "step-00003-of-00004.safetensors"
    # What cannot be read tells nothing of the others.
    (tmp_path / "steps" / "step-00001-of-00004.safetensors").write_bytes(b"something else")
    (tmp_path / "steps" / "step-00002-of-00004.safetensors").write_bytes(b"")
    assert latest(tmp_path / "steps") == "step-00003-of-00004.safetensors"
    # Of an index for other files nothing follows for these.
    write_parts(tmp_path / "steps" / "sub", "model-{}", "model.safetensors.index.json")
    (tmp_path / "steps" / "sub" / "model-00002-of-00002.safetensors").unlink()
    assert latest(tmp_path / "steps") == "step-00003-of-00004.safetensors"
    # Parts that another program has left have different ones.
    for pattern in ("model-{}", "model.fp16-{}", "model-{}.fp16"):
        write_parts(tmp_path / "left", pattern)
    assert latest(tmp_path / "left") is None


def test_a_part_of_headrace_says_so_itself(tmp_path: Path) -> None:
    headrace.checkpoint.save(STATE, tmp_path / "model.safetensors", max_shard_bytes=16)
    (tmp_path / "model.safetensors.index.json").unlink()
    part = tmp_path / "model-00001-of-00002.safetensors"
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert latest(tmp_path) is None
    assert_equal(headrace.checkpoint.load(part), {"w1": STATE["w1"]})
    with safetensors.safe_open(part, "pt") as file:
        metadata = file.metadata()
    assert metadata["headrace.part"] == "1 of 2"
    # A file that is made of one is not.
    headrace.checkpoint.save(STATE, tmp_path / "step-00001-of-00002.safetensors", metadata=metadata)
    assert latest(tmp_path) == "step-00001-of-00002.safetensors"


TEXTS = st.text("ab1-", min_size=1, max_size=4)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(["", "run/", "a.b/"]))
def test_the_index_of_a_name_leads_back_to_it(pieces: list[str], folder: str) -> None:
    name = f"{folder}{'.'.join(pieces)}.safetensors"
    indexes = index_names_of(name)
    assert len(indexes) == len(set(indexes)) == 2 * len(pieces) - 1
    for index in indexes:
        assert is_index_name(index)
        assert is_safetensors_name(index)
        assert single_name_of(index) == name
    for token in ("", "-0123abcd"):
        part = part_name(name, token, 3, 12)
        assert is_part_of(name, part)
        assert not is_index_name(part)
        assert without_part_number(part) == without_part_number(part_name(name, token, 4, 12))
        assert without_part_number(part) != without_part_number(part_name(name, token, 3, 13))
    assert not is_index_name(name)
    assert not is_part_of(name, name)


@pytest.mark.parametrize(
    "name", ["model.bin.index.json", "model.safetensors.json", "config.json", "index.json"]
)
def test_other_names_are_no_index(name: str) -> None:
    assert not is_index_name(name)
