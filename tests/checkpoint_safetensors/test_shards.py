"""Several files and their index: what is there after saves, and after saves that did not end."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

import headrace
import headrace.checkpoint
from headrace import CorruptDataError, HeadraceError, InvalidArgumentError, PreconditionFailedError
from headrace.checkpoint._safetensors.saving import _split
from testing.faultserver.client import FaultServer
from tests.checkpoint.states import filled, kinds, large_state, sent_bytes
from tests.checkpoint_safetensors.tensors import assert_equal
from tests.killed import kill_when_written

NAME = "run/model.safetensors"
INDEX = "run/model.safetensors.index.json"
OLD = {f"layer.{i}": filled(torch.float32, 25, seed=i) for i in range(5)}
NEW = {name: tensor + 1 for name, tensor in OLD.items()}


def save(store: headrace.Store, state: dict[str, Any], **options: Any) -> headrace.ObjectInfo:
    return headrace.checkpoint.save(
        state, NAME, store=store, **({"max_shard_bytes": 200} | options)
    )


def load(store: headrace.Store) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = headrace.checkpoint.load(NAME, store=store)
    return found


def names(store: headrace.Store) -> list[str]:
    return sorted(info.name for info in store.list(""))


@pytest.mark.every_store
def test_several_files_and_their_index_are_saved_and_loaded(store: headrace.Store) -> None:
    info = save(store, OLD, metadata={"step": "1"})
    assert info.name == INDEX
    parts = [f"run/model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert names(store) == sorted([*parts, INDEX])
    index = json.loads(bytes(store.read(INDEX)))
    assert index["metadata"]["total_size"] == 500
    assert index["weight_map"] == {
        f"layer.{i}": f"model-0000{1 + i // 2}-of-00003.safetensors" for i in range(5)
    }
    for url in (NAME, INDEX):
        assert_equal(headrace.checkpoint.load(url, store=store), OLD)
        reader = headrace.checkpoint.open(url, store=store)
        assert sorted(reader.keys()) == sorted(OLD)
        assert "layer.4" in reader
        assert reader.info("layer.4").shape == (25,)
        assert_equal(
            reader.tensors(["layer.4", "layer.0"]), {k: OLD[k] for k in ("layer.0", "layer.4")}
        )
        assert reader.slice("layer.2", slice(3, 5)).shape == (2,)
        assert reader.metadata == {"step": "1", "format": "pt"}
    with pytest.raises(KeyError):
        reader.tensor("layer.5")
    # The library reads each file.
    for part in parts:
        for name, tensor in safetensors.torch.load(bytes(store.read(part))).items():
            assert_equal({name: tensor}, {name: OLD[name]})


def test_only_the_files_of_the_wanted_tensors_are_read(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state(8, 1 << 20)
    save(gcs, state, max_shard_bytes=2 << 20)
    since = len(server.log())
    reader = headrace.checkpoint.open(INDEX, store=gcs)
    read = [each["target"] for each in server.log(since) if each["kind"] == "media"]
    assert [".index.json" in target for target in read] == [True]
    before = sent_bytes(server)
    assert_equal(reader.tensors(["layer.5"]), {"layer.5": state["layer.5"]})
    assert sent_bytes(server) - before < 1.02 * (1 << 20)


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 12))
def test_tensors_go_into_as_few_files_as_their_order_allows(
    sizes: list[int], max_bytes: int
) -> None:
    state = {str(i): torch.empty(size, dtype=torch.uint8) for i, size in enumerate(sizes)}
    groups = _split(state, max_bytes)
    assert [int(name) for group in groups for name in group] == list(range(len(sizes)))
    for group in groups:
        assert len(group) <= 1 or sum(sizes[int(name)] for name in group) <= max_bytes
    for group, following in itertools.pairwise(groups):
        assert sum(sizes[int(name)] for name in group) + sizes[int(following[0])] > max_bytes


def test_an_empty_state_is_one_empty_file(file: headrace.Store) -> None:
    save(file, {})
    assert names(file) == ["run/model-00001-of-00001.safetensors", INDEX]
    assert load(file) == {}


@pytest.mark.every_store
def test_a_newer_checkpoint_replaces_the_older_one_and_its_files(store: headrace.Store) -> None:
    first = save(store, OLD)
    second = save(store, NEW)
    assert first.generation != second.generation
    assert_equal(load(store), NEW)
    found = names(store)
    assert len(found) == 4
    assert not [name for name in found if "model-00001" in name]  # these have names of their own
    # And once more, from such names.
    save(store, OLD, max_shard_bytes=1000)
    assert_equal(load(store), OLD)
    assert len(names(store)) == 2


def test_files_that_are_not_ours_stay(file: headrace.Store) -> None:
    save(file, OLD)
    index = json.loads(bytes(file.read(INDEX)))
    index["weight_map"]["layer.0"] = "other.safetensors"
    file.write("run/other.safetensors", b"x")
    file.write(INDEX, json.dumps(index).encode())
    save(file, NEW)
    assert "run/other.safetensors" in names(file)
    assert_equal(load(file), NEW)


def test_a_checkpoint_of_one_file_is_not_hidden(file: headrace.Store) -> None:
    headrace.checkpoint.save(OLD, NAME, store=file)
    with pytest.raises(InvalidArgumentError, match=r"model\.safetensors: there is a checkpoint of"):
        save(file, NEW)
    assert names(file) == [NAME]


def test_the_condition_is_about_the_index(gcs: headrace.Store, server: FaultServer) -> None:
    first = save(gcs, OLD, if_generation="absent")
    since = kinds(server)
    with pytest.raises(PreconditionFailedError, match=r"index\.json has the generation"):
        save(gcs, NEW, if_generation="absent")
    assert kinds(server).get("upload") == since.get("upload")  # nothing was sent
    assert_equal(load(gcs), OLD)
    save(gcs, NEW, if_generation=first.generation)
    assert_equal(load(gcs), NEW)


def test_the_index_is_written_last(gcs: headrace.Store) -> None:
    save(gcs, OLD)
    generations = {info.name: int(info.generation) for info in gcs.list("")}
    assert max(generations, key=lambda name: generations[name]) == INDEX


@pytest.mark.parametrize("is_first", [True, False])
def test_with_any_request_failing_the_checkpoint_is_the_old_or_the_new_one(
    is_first: bool, server: FaultServer
) -> None:
    store = headrace.Store(
        "gs://bucket",
        endpoint=server.url,
        retry=headrace.RetryOptions(max_attempts=1),
    )
    position, fired = 0, True
    while fired:
        position += 1
        server.reset()
        server.bucket("bucket")
        if not is_first:
            save(store, OLD)
        server.faults([{"match": {}, "from": position, "count": 1, "action": {"status": 403}}])
        saved = True
        try:
            save(store, NEW)
        except HeadraceError:
            saved = False
        fired = bool(server.fault_counts()[0]["fired"])
        server.faults([])
        try:
            found = load(store)
        except headrace.NotFoundError:
            assert is_first
            assert not saved
            assert headrace.checkpoint.latest("", store=store) is None
            assert names(store) == []
            continue
        assert_equal(found, NEW if saved else OLD)
    assert position > 5


KILLED = """
import signal
import sys
import torch
import headrace
import headrace.checkpoint
from headrace.checkpoint._safetensors import saving

store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
write = saving._write

def told(*arguments):
    info = write(*arguments)
    print("written", flush=True)
    if "00002-of" in info.name:
        signal.pause()  # until it is killed
    return info

saving._write = told
state = {f"layer.{i}": torch.zeros(25) for i in range(5)}
headrace.checkpoint.save(state, "run/model.safetensors", store=store, max_shard_bytes=200)
"""


@pytest.mark.parametrize("is_first", [True, False])
def test_a_save_that_is_killed_changes_nothing(
    is_first: bool, server: FaultServer, gcs: headrace.Store
) -> None:
    if not is_first:
        save(gcs, OLD)
    kill_when_written(server, KILLED, times=2)
    if is_first:
        assert headrace.checkpoint.latest("", store=gcs) is None
        with pytest.raises(headrace.NotFoundError):
            load(gcs)
    else:
        assert_equal(load(gcs), OLD)
    save(gcs, NEW)
    assert_equal(load(gcs), NEW)
    if is_first:
        assert len(names(gcs)) == 4  # what the killed one left was replaced


def test_a_file_that_another_save_has_replaced_is_noticed(file: headrace.Store) -> None:
    save(file, OLD)
    part = "run/model-00002-of-00003.safetensors"
    folder = Path(file.url.removeprefix("file://"))
    other = {name: NEW[name] for name in ("layer.2", "layer.3")}
    headrace.checkpoint.save(other, part, store=file)
    with pytest.raises(CorruptDataError, match=r"00002-of-00003\.safetensors is not the one"):
        load(file)
    assert headrace.checkpoint.latest(folder) != f"file://{folder}/{INDEX}"
    headrace.checkpoint.save({"layer.2": NEW["layer.2"]}, part, store=file)
    with pytest.raises(CorruptDataError, match=r"'layer\.3' is in the index only"):
        headrace.checkpoint.open(INDEX, store=file).tensor("layer.2")
    file.delete(part)
    with pytest.raises(CorruptDataError, match=r"model-00002-of-00003\.safetensors is missing"):
        headrace.checkpoint.open(INDEX, store=file)


def test_files_of_transformers_are_loaded(file: headrace.Store) -> None:
    # Without headrace's sums, as huggingface_hub writes them.
    weights = {}
    for i, keys in enumerate((["layer.0", "layer.1"], ["layer.2", "layer.3", "layer.4"]), 1):
        part = f"model-0000{i}-of-00002.safetensors"
        state = {key: OLD[key] for key in keys}
        file.write(f"run/{part}", safetensors.torch.save(state, {"format": "pt"}))
        weights |= dict.fromkeys(keys, part)
    index = {"metadata": {"total_size": 500}, "weight_map": weights}
    file.write(INDEX, json.dumps(index, indent=2, sort_keys=True).encode())
    assert_equal(load(file), OLD)


def test_the_name_of_several_files_ends_as_that_of_one(file: headrace.Store) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must end with \.safetensors"):
        headrace.checkpoint.save(
            OLD, "model", store=file, format="safetensors", max_shard_bytes=100
        )
    with pytest.raises(InvalidArgumentError, match="max_shard_bytes"):
        save(file, OLD, max_shard_bytes=0)
