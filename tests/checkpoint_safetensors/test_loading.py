"""Loading files and parts of them: what comes, how many bytes it takes, and what is compared."""

from __future__ import annotations

import json
import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

import headrace
import headrace.checkpoint
from headrace import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    _engine,
)
from headrace._files.whole_sum import crc_of as whole_crc_of
from headrace.checkpoint._safetensors import reader as reader_module
from headrace.checkpoint._safetensors.files import HEAD_BYTES
from headrace.checkpoint._safetensors.saving import file_of as our_file_of
from headrace.checkpoint._slices import MAX_GAP_BYTES, select
from testing.faultserver.client import FaultServer
from tests.checkpoint.states import filled, kinds, large_state, sent_bytes
from tests.checkpoint_safetensors.tensors import DTYPES, SHAPES, assert_equal, file_of
from tests.sums import count_summed_bytes

MIB = 1 << 20
STATE = {str(dtype): filled(dtype, 3, 5, seed=i) for i, dtype in enumerate(DTYPES)} | {
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(1.5),
    "parameter": torch.nn.Parameter(torch.ones(2)),
}
PLAIN = {name: tensor.detach() for name, tensor in STATE.items()}
NAME = "run/model.safetensors"
FLIP = {"match": {"kind": "media"}, "from": 3, "count": 1, "action": {"flip_byte": 100}}


@pytest.mark.every_store
def test_what_is_saved_is_loaded(store: headrace.Store) -> None:
    info = headrace.checkpoint.save(STATE, NAME, store=store, metadata={"step": "3"})
    assert info.size_bytes == store.stat(NAME).size_bytes
    assert_equal(headrace.checkpoint.load(NAME, store=store), PLAIN)
    reader = headrace.checkpoint.open(NAME, store=store)
    assert set(reader.keys()) == set(STATE)
    assert len(reader) == len(STATE)
    assert "scalar" in reader
    assert "other" not in reader
    assert reader.metadata == {"step": "3", "format": "pt"}
    assert reader.info("torch.bfloat16").dtype == torch.bfloat16
    assert reader.info("torch.bfloat16").shape == (3, 5)
    assert reader.info("torch.bfloat16").size_bytes == 30
    assert_equal(reader.tensors(STATE), PLAIN)
    assert_equal({"scalar": reader.tensor("scalar")}, {"scalar": PLAIN["scalar"]})


@pytest.mark.every_store
def test_both_directions_agree_with_the_library(store: headrace.Store, tmp_path: Path) -> None:
    headrace.checkpoint.save(STATE, NAME, store=store)
    file = tmp_path / "ours.safetensors"
    file.write_bytes(bytes(store.read(NAME)))
    known = set(safetensors.torch._TYPES.values())
    with safetensors.safe_open(file, "pt") as theirs:
        found = {key: theirs.get_tensor(key) for key in theirs.keys()}  # noqa: SIM118
    assert_equal(found, PLAIN)
    state = {name: each for name, each in PLAIN.items() if each.dtype in known}
    store.write("theirs.safetensors", safetensors.torch.save(state, {"a": "b"}))
    assert_equal(headrace.checkpoint.load("theirs.safetensors", store=store), state)
    assert headrace.checkpoint.open("theirs.safetensors", store=store).metadata == {"a": "b"}


def test_a_file_is_known_by_its_contents_too(file: headrace.Store) -> None:
    headrace.checkpoint.save(PLAIN, "model.bin", store=file, format="safetensors")
    assert_equal(headrace.checkpoint.load("model.bin", store=file), PLAIN)
    assert headrace.checkpoint.open("model.bin", store=file).info("scalar").shape == ()
    headrace.checkpoint.save([1], "model.pt", store=file)
    assert headrace.checkpoint.load("model.pt", store=file) == [1]
    file.write("odd.safetensors", bytes(file.read("model.pt")))
    with pytest.raises(InvalidArgumentError, match=r"odd\.safetensors: it is no safetensors file"):
        headrace.checkpoint.load("odd.safetensors", store=file)


def test_options_of_the_other_format_are_refused(file: headrace.Store) -> None:
    for options in ({"metadata": {}}, {"max_shard_bytes": 5}):
        with pytest.raises(InvalidArgumentError, match="for safetensors files"):
            headrace.checkpoint.save({}, "a.pt", store=file, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="format is 'zip'"):
        headrace.checkpoint.save({}, "a.pt", store=file, format="zip")  # type: ignore[arg-type]
    for name in ("a.safetensors", "a.safetensors.index.json"):
        with pytest.raises(InvalidArgumentError, match="is the name of a safetensors file"):
            headrace.checkpoint.save({}, name, store=file, format="torch")
    with pytest.raises(InvalidArgumentError, match="the name of an index"):
        headrace.checkpoint.save({}, "a.safetensors.index.json", store=file)
    assert list(file.list("")) == []


def test_map_location_moves_tensors(file: headrace.Store) -> None:
    headrace.checkpoint.save(PLAIN, NAME, store=file)
    seen = []

    def location(storage: Any, place: str) -> Any:
        seen.append((storage.nbytes(), place))
        return storage

    for each in ("cpu", torch.device("cpu"), {"cpu": "cpu"}, location):
        assert_equal(headrace.checkpoint.load(NAME, each, store=file), PLAIN)
    assert len(seen) == len(PLAIN)
    assert {place for _, place in seen} == {"cpu"}
    found = headrace.checkpoint.load(NAME, "meta", store=file)
    assert {each.device.type for each in found.values()} == {"meta"}
    assert {name: each.shape for name, each in found.items()} == {
        name: each.shape for name, each in PLAIN.items()
    }


def test_progress_counts_the_bytes_of_the_tensors(file: headrace.Store) -> None:
    total = sum(each.nbytes for each in PLAIN.values())
    for run in (
        lambda told: headrace.checkpoint.save(PLAIN, NAME, store=file, progress=told),
        lambda told: headrace.checkpoint.load(NAME, store=file, progress=told),
    ):
        told: list[tuple[int, int]] = []
        run(lambda *each: told.append(each))  # noqa: B023 - called before the next one
        assert told[-1] == (total, total)


# ---- bytes and requests


def test_a_load_takes_the_bytes_of_the_file_and_no_more(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state()
    data = our_file_of(state, checksums=True)
    server.put("bucket", NAME, data)
    assert_equal(headrace.checkpoint.load(NAME, store=gcs), state)
    # Where it is; the header; ten tensors.
    assert kinds(server) == {"get": 1, "media": 1 + len(state)}
    assert sent_bytes(server) <= len(data) + HEAD_BYTES < 1.02 * len(data)


def test_a_tensor_takes_its_bytes_and_those_of_the_header(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state(10, 4 * MIB)
    server.put("bucket", NAME, our_file_of(state, checksums=True))
    reader = headrace.checkpoint.open(NAME, store=gcs)
    assert_equal(reader.tensors(["layer.7"]), {"layer.7": state["layer.7"]})
    assert sent_bytes(server) < 1.02 * 4 * MIB
    # Two that do not follow each other: what lies between them is not read.
    assert_equal(
        reader.tensors(["layer.1", "layer.3"]),
        {name: state[name] for name in ("layer.1", "layer.3")},
    )
    assert sent_bytes(server) < 1.02 * 12 * MIB


@pytest.mark.parametrize(
    ("index", "max_gap_bytes", "requests"),
    [
        (numpy.s_[100:400], MAX_GAP_BYTES, 1),  # rows of 64 KiB
        (numpy.s_[..., :6000], 0, 1024),
        (numpy.s_[::2, 1000:], 0, 512),
        (numpy.s_[5], MAX_GAP_BYTES, 1),
    ],
)
def test_a_slice_takes_its_bytes(
    index: Any, max_gap_bytes: int, requests: int, server: FaultServer, gcs: headrace.Store
) -> None:
    state = {"a": filled(torch.float32, 1024, 16 * 1024)}
    server.put("bucket", NAME, our_file_of(state, checksums=True))
    reader = headrace.checkpoint.open(NAME, store=gcs)
    before, asked = sent_bytes(server), kinds(server)["media"]
    found = reader.slices({"a": index}, max_gap_bytes=max_gap_bytes)["a"]
    assert_equal({"a": found}, {"a": state["a"][index].contiguous()})
    # No more than the elements that were asked for.
    assert sent_bytes(server) - before == found.nbytes
    assert kinds(server)["media"] - asked == pytest.approx(requests, rel=0.02, abs=8)
    assert found.untyped_storage().nbytes() == found.nbytes


def test_columns_of_a_narrow_tensor_are_read_with_what_lies_between(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = {"a": filled(torch.int16, 4096, 64)}
    server.put("bucket", NAME, our_file_of(state, checksums=True))
    reader = headrace.checkpoint.open(NAME, store=gcs)
    asked = kinds(server)["media"]
    found = reader.slice("a", numpy.s_[:, 3:5])
    assert_equal({"a": found}, {"a": state["a"][:, 3:5].contiguous()})
    assert kinds(server)["media"] - asked == 1
    assert found.untyped_storage().nbytes() == found.nbytes


def test_a_small_file_comes_with_its_header(server: FaultServer, gcs: headrace.Store) -> None:
    server.put("bucket", NAME, our_file_of(PLAIN, checksums=True))
    assert_equal(headrace.checkpoint.load(NAME, store=gcs), PLAIN)
    assert kinds(server) == {"get": 1, "media": 1}


def test_a_long_header_takes_two_requests(server: FaultServer, gcs: headrace.Store) -> None:
    state = {f"layer.{i}": torch.full((1,), i) for i in range(2000)}
    data = our_file_of(state, checksums=True)
    server.put("bucket", NAME, data)
    reader = headrace.checkpoint.open(NAME, store=gcs)
    assert kinds(server) == {"get": 1, "media": 2}
    assert sent_bytes(server) <= len(data)
    assert reader.tensor("layer.1999").tolist() == [1999]


def test_tensors_are_summed_while_they_arrive(
    server: FaultServer, gcs: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = large_state()
    server.put("bucket", NAME, our_file_of(state, checksums=True))
    summed_bytes = count_summed_bytes(monkeypatch)
    assert_equal(headrace.checkpoint.load(NAME, store=gcs), state)
    assert sum(summed_bytes) < 100_000


def test_reads_are_pinned_to_the_generation_of_the_beginning(
    server: FaultServer, gcs: headrace.Store
) -> None:
    # The answer with the header is the last that has the old bytes.
    rule = {"match": {"kind": "media"}, "count": 1, "action": "old_generation_then_new"}
    for store in (gcs, gcs._derived(on_change="reread")):
        server.put("bucket", NAME, our_file_of(large_state(), checksums=True))
        server.faults([rule])
        with pytest.raises(PreconditionFailedError, match=r"gs://bucket/run/model"):
            headrace.checkpoint.load(NAME, store=store)


# ---- slices


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index of a tensor of this shape."""
    parts: list[Any] = []
    for size in draw(st.sampled_from([shape[:i] for i in range(len(shape) + 1)])):
        part = st.slices(size).filter(lambda each: each.step is None or each.step > 0)
        parts.append(draw(part | st.integers(-size, size - 1) if size else part))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(parts)))
        # Behind the dots the last dimensions are meant.
        if len(parts) == len(shape) or at == len(parts):
            parts.insert(at, ...)
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


@given(st.data(), SHAPES, st.sampled_from([0, 1, 4, 16, 1 << 20]))
def test_a_slice_is_what_torch_takes_of_the_tensor(
    data: st.DataObject, shape: tuple[int, ...], max_gap_bytes: int
) -> None:
    index = data.draw(indices(shape))
    tensor = torch.arange(torch.Size(shape).numel(), dtype=torch.int32).reshape(shape)
    expected = tensor[index]
    selection = select(shape, 4, index, max_gap_bytes)
    content = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    read = [content[begin : begin + selection.run_bytes] for begin in selection.begins]
    assert all(len(each) == selection.run_bytes for each in read)
    assert list(selection.begins) == sorted(selection.begins)
    buffer = torch.cat(read).view(torch.int32) if read else torch.empty(0, dtype=torch.int32)
    found = torch.as_strided(buffer, selection.shape, selection.strides)
    assert found.shape == expected.shape
    assert torch.equal(found, expected)
    # With no gap allowed, nothing is read twice, and nothing but the tensor's elements.
    if max_gap_bytes == 0:
        assert sum(map(len, read)) == expected.nbytes


def test_slices_of_a_file_of_torch_are_those_of_its_tensors(file: headrace.Store) -> None:
    state = {"a": torch.arange(12).view(3, 4), "b": torch.arange(3)}
    headrace.checkpoint.save(state, "a.pt", store=file)
    reader = headrace.checkpoint.open("a.pt", store=file)
    assert reader.metadata == {}
    found = reader.slices({"a": numpy.s_[1:, ::2], "b": -1})
    assert found["a"].tolist() == [[4, 6], [8, 10]]
    assert found["b"].item() == 2
    assert found["a"].untyped_storage().nbytes() == 32


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_numbers_of_numpy_and_steps_of_any_size_are_taken(name: str, file: headrace.Store) -> None:
    headrace.checkpoint.save({"w": torch.arange(12).view(3, 4)}, name, store=file)
    reader = headrace.checkpoint.open(name, store=file)
    one: Any = numpy.int64(-1)
    assert reader.slice("w", one).tolist() == [8, 9, 10, 11]
    assert reader.slice("w", (one, numpy.s_[one:])).tolist() == [11]
    assert reader.slice("w", numpy.s_[1 :: 1 << 62, 1]).tolist() == [5]


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
@pytest.mark.parametrize(
    ("index", "message"),
    [
        (3, "index 3 is outside of a dimension of 3"),
        (numpy.s_[0, 0, 0], "3 indices for 2 dimensions"),
        (numpy.s_[..., ...], "one '...' at most"),
        (numpy.s_[::-1], "step of a slice must be above 0"),
        (None, "None is no number"),
        (True, "True is no number"),
        ("a", "'a' is no number"),
        (slice("a"), "slice indices must be integers"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    index: Any, message: str, name: str, file: headrace.Store
) -> None:
    headrace.checkpoint.save({"w": torch.zeros(3, 4)}, name, store=file)
    reader = headrace.checkpoint.open(name, store=file)
    with pytest.raises(InvalidArgumentError, match=f"tensor 'w': .*{re.escape(message)}"):
        reader.slice("w", index)
    with pytest.raises(KeyError):
        reader.slice("other", 0)
    with pytest.raises(InvalidArgumentError, match="max_gap_bytes"):
        reader.slices({"w": 0}, max_gap_bytes=-1)


# ---- bad files


def test_what_is_missing_is_not_found(store: headrace.Store) -> None:
    with pytest.raises(NotFoundError, match=r"model\.safetensors"):
        headrace.checkpoint.load(NAME, store=store)
    with pytest.raises(NotFoundError, match=r"index\.json"):
        headrace.checkpoint.open("a.safetensors.index.json", store=store)


def test_a_truncated_file_is_an_error(store: headrace.Store) -> None:
    data = our_file_of(PLAIN, checksums=True)
    for size in (len(data) - 1, len(data) // 2, 100, 9):
        store.write(NAME, data[:size])
        for read in (headrace.checkpoint.load, headrace.checkpoint.open):
            with pytest.raises(CorruptDataError, match=r"model\.safetensors: it"):
                read(NAME, store=store)


def test_a_dtype_without_one_in_torch_hinders_only_its_tensor(file: headrace.Store) -> None:
    header = {
        "six": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]},
        "odd": {"dtype": "F4", "shape": [2, 3], "data_offsets": [3, 6]},
        "four": {"dtype": "F4", "shape": [3, 2], "data_offsets": [6, 9]},
        "byte": {"dtype": "U8", "shape": [2], "data_offsets": [9, 11]},
    }
    file.write(NAME, file_of(header, bytes(range(11))))
    reader = headrace.checkpoint.open(NAME, store=file)
    assert reader.tensor("byte").tolist() == [9, 10]
    assert reader.keys() == ["six", "odd", "four", "byte"]
    with pytest.raises(InvalidArgumentError, match="'six' is of the dtype F6_E2M3"):
        reader.info("six")
    with pytest.raises(InvalidArgumentError, match=r"'odd' .* two elements"):
        reader.tensor("odd")
    four = reader.tensor("four")
    assert four.shape == (3, 1)
    assert four.view(torch.uint8).tolist() == [[6], [7], [8]]
    header_only = our_file_of({"four": four}, checksums=False)
    assert b'"dtype":"F4","shape":[3,2]' in header_only


def test_a_reader_is_not_pickled(file: headrace.Store) -> None:
    headrace.checkpoint.save(PLAIN, NAME, store=file)
    with pytest.raises(TypeError, match="pickle its URL"):
        pickle.dumps(headrace.checkpoint.open(NAME, store=file))


# ---- verification


def test_every_wrong_bit_of_a_file_with_checksums_is_seen_or_changes_no_tensor(
    tmp_path: Path,
) -> None:
    state = {"a": filled(torch.bfloat16, 50, 3), "b": filled(torch.int64, 7)}
    data = our_file_of(state, checksums=True)
    store = headrace.Store(tmp_path)
    rng = random.Random(7)
    seen = 0
    for _ in range(150):
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        (tmp_path / "a.safetensors").write_bytes(flipped)
        for read in (
            lambda: headrace.checkpoint.load("a.safetensors", store=store),
            lambda: headrace.checkpoint.open("a.safetensors", store=store).tensors(["a", "b"]),
        ):
            try:
                assert_equal(read(), state)
            except headrace.HeadraceError:
                seen += 1
    # What is left is in the name that the checksums have.
    assert seen > 280


def test_a_wrong_tensor_is_named_and_read_once_more(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state(3)
    data = bytearray(our_file_of(state, checksums=True))
    data[-1] ^= 1
    server.put("bucket", NAME, bytes(data))
    with pytest.raises(CorruptDataError, match=r"the tensor 'layer\.2' is damaged"):
        headrace.checkpoint.load(NAME, store=gcs)
    assert kinds(server)["media"] == 1 + 3 + 1
    reader = headrace.checkpoint.open(NAME, store=gcs)
    assert_equal(reader.tensors(["layer.1"]), {"layer.1": state["layer.1"]})
    found = headrace.checkpoint.load(NAME, store=gcs, verify=False)
    assert_equal({"layer.1": found["layer.1"]}, {"layer.1": state["layer.1"]})


def test_damage_in_transit_is_read_again(server: FaultServer, gcs: headrace.Store) -> None:
    state = large_state(3)
    server.put("bucket", NAME, our_file_of(state, checksums=True))
    server.faults([FLIP])
    assert_equal(headrace.checkpoint.load(NAME, store=gcs), state)


def test_a_file_of_the_library_is_compared_with_the_checksum_of_the_store(
    server: FaultServer, gcs: headrace.Store
) -> None:
    state = large_state(3)
    server.put("bucket", NAME, safetensors.torch.save(state))
    assert_equal(headrace.checkpoint.load(NAME, store=gcs), state)
    # Damage in transit is read again.
    server.faults([FLIP])
    assert_equal(headrace.checkpoint.load(NAME, store=gcs), state)
    server.faults([FLIP | {"from": 2, "count": 100}])
    with pytest.raises(CorruptDataError, match=r"model\.safetensors: the bytes that came have CRC"):
        headrace.checkpoint.load(NAME, store=gcs)
    server.faults([FLIP | {"from": 2, "count": 100}])
    assert headrace.checkpoint.load(NAME, store=gcs, verify=False).keys() == state.keys()


@pytest.mark.parametrize("damaged", [1, 2])
def test_files_with_checksums_of_different_kinds_are_all_compared(
    damaged: int, server: FaultServer, gcs: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = large_state(2)
    files = {f"m-0000{i}-of-00002.safetensors": f"layer.{i - 1}" for i in (1, 2)}
    data = {
        name: safetensors.torch.save({f"layer.{i}": state[f"layer.{i}"]})
        for i, name in enumerate(files)
    }
    for name, each in data.items():
        server.put("bucket", name, each)
    index = {"weight_map": {key: name for name, key in files.items()}}
    server.put("bucket", "m.safetensors.index.json", json.dumps(index).encode())
    first = next(iter(files))
    crc64 = _engine.CrcKind("crc64nvme")

    def crc_of(info: headrace.ObjectInfo) -> Any:
        return (crc64, crc64.of(data[first])) if info.name == first else whole_crc_of(info)

    monkeypatch.setattr(reader_module, "crc_of", crc_of)
    assert_equal(headrace.checkpoint.load("m.safetensors", store=gcs), state)
    name = f"m-0000{damaged}-of-00002.safetensors"
    match = {"kind": "media", "path_contains": name}
    server.faults([{"match": match, "from": 2, "count": 100, "action": {"flip_byte": 100}}])
    with pytest.raises(CorruptDataError, match=f"{name}: the bytes that came have CRC"):
        headrace.checkpoint.load("m.safetensors", store=gcs)


def test_checksums_that_came_along_from_another_file_are_left_out(file: headrace.Store) -> None:
    headrace.checkpoint.save({"a": torch.ones(3)}, "old.safetensors", store=file)
    with safetensors.safe_open(
        Path(file.url.removeprefix("file://")) / "old.safetensors", "pt"
    ) as f:
        metadata = f.metadata()
    assert "headrace.crc32c" in metadata
    headrace.checkpoint.save(
        {"a": torch.zeros(3)}, "new.safetensors", store=file, metadata=metadata, checksums=False
    )
    reader = headrace.checkpoint.open("new.safetensors", store=file)
    assert reader.metadata == {"format": "pt"}
    assert reader.tensor("a").tolist() == [0, 0, 0]


def test_the_newest_checkpoint_may_be_one_of_safetensors(tmp_path: Path) -> None:
    import os

    store = headrace.Store(tmp_path)
    for step, options in ((1, {}), (2, {"max_shard_bytes": 8}), (3, {}), (4, {})):
        state = {"a": torch.ones(3), "b": torch.ones(2)}
        headrace.checkpoint.save(state, f"step{step}/model.safetensors", store=store, **options)  # type: ignore[arg-type]
        for each in (tmp_path / f"step{step}").iterdir():
            os.utime(each, (step * 100, step * 100))

    def latest() -> str:
        found = headrace.checkpoint.latest(tmp_path)
        assert found is not None
        return found.removeprefix(f"file://{tmp_path}/")

    assert latest() == "step4/model.safetensors"
    (tmp_path / "step4" / "model.safetensors").write_bytes(b"")
    (tmp_path / "step3" / "model.safetensors").unlink()
    assert latest() == "step2/model.safetensors.index.json"
    (tmp_path / "step2" / "model-00002-of-00002.safetensors").unlink()
    assert latest() == "step1/model.safetensors"
