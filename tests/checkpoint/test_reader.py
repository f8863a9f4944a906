"""Some tensors of a checkpoint, and not all."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

import headrace
import headrace.checkpoint
from headrace import CorruptDataError, InvalidArgumentError
from headrace.checkpoint import TensorInfo
from testing.faultserver.client import FaultServer
from tests.checkpoint.states import (
    assert_same,
    file_of,
    filled,
    kinds,
    quiet,
    special_states,
    stock_file_of,
)

pytestmark = pytest.mark.every_store

WRITERS = pytest.mark.parametrize("write", [file_of, stock_file_of], ids=["ours", "stock"])

with quiet():
    SPECIAL = special_states()


def open_file(store: headrace.Store, data: bytes) -> headrace.checkpoint.CheckpointReader:
    store.write("a.pt", data)
    return headrace.checkpoint.open("a.pt", store=store)


@WRITERS
def test_tensors_are_found_by_their_place(write: Any, store: headrace.Store) -> None:
    state = {
        "model": SPECIAL["state_dict"],
        "optimizer": SPECIAL["optimizer"],
        "more": [torch.ones(2), {3: (torch.zeros(1), 5)}],
        "step": 7,
    }
    reader = open_file(store, write(state))
    assert reader.keys() == [
        *(f"model.{name}" for name in state["model"]),
        *(
            f"optimizer.state.{i}.{name}"
            for i in range(4)
            for name in ("step", "exp_avg", "exp_avg_sq")
        ),
        "more.0",
        "more.1.3.0",
    ]
    assert "model.0.weight" in reader
    assert "step" not in reader
    assert len(reader) == len(reader.keys())
    assert_same(reader.tensor("model.0.weight"), state["model"]["0.weight"])
    assert_same(reader.tensor("more.1.3.0"), torch.zeros(1))


@WRITERS
@pytest.mark.parametrize(
    "name",
    [
        *("every dtype", "views", "expanded", "channels last", "zero sizes", "parameter"),
        *("frozen parameter", "requires grad", "conjugate", "negative", "state_dict", "same twice"),
    ],
)
def test_every_strided_tensor_is_as_it_was(name: str, write: Any, store: headrace.Store) -> None:
    reader = open_file(store, write({"x": SPECIAL[name]}))
    found = reader.tensors(reader.keys())
    expected = _flat("x", SPECIAL[name])
    assert_same(found, {key: expected[key] for key in found})
    assert {id(each) for each in expected.values()} == {id(expected[key]) for key in found}


def _flat(place: str, thing: Any) -> dict[str, Any]:
    if isinstance(thing, torch.Tensor):
        return {place: thing}
    items = thing.items() if isinstance(thing, dict) else enumerate(thing)
    return {k: v for key, value in items for k, v in _flat(f"{place}.{key}", value).items()}


def test_a_root_tensor_has_the_empty_place(store: headrace.Store) -> None:
    reader = open_file(store, file_of(torch.arange(3)))
    assert reader.keys() == [""]
    assert reader.tensor("").tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["sparse", "quantized", "quantized by channel"])
def test_other_tensors_are_listed_and_refused(name: str, store: headrace.Store) -> None:
    with quiet():
        reader = open_file(store, file_of({"x": SPECIAL[name], "y": torch.ones(1)}))
    assert reader.keys() == ["x", "y"]
    for ask in (reader.tensor, reader.info):
        with pytest.raises(
            InvalidArgumentError, match=r"'x' is made by .*headrace.checkpoint.load"
        ):
            ask("x")


@WRITERS
@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({5: torch.ones(1), "5": torch.zeros(1), "6": torch.ones(2)}, "5"),
        ({"a.b": {"c": torch.ones(1)}, "a": {"b.c": torch.zeros(1)}, "6": torch.ones(2)}, "a.b.c"),
    ],
)
def test_a_place_of_several_tensors_is_listed_once_and_refused(
    state: dict[Any, Any], place: str, write: Any, store: headrace.Store
) -> None:
    reader = open_file(store, write(state))
    assert reader.keys() == [place, "6"]
    for ask in (reader.tensor, reader.info):
        with pytest.raises(
            InvalidArgumentError,
            match=rf"'{place}' is one of several at .*headrace.checkpoint.load",
        ):
            ask(place)
    assert reader.tensor("6").tolist() == [1, 1]


def test_a_reader_shows_its_url_and_says_how_to_send_it(store: headrace.Store) -> None:
    reader = open_file(store, file_of({"a": torch.ones(1)}))
    assert repr(reader) == f"<headrace.checkpoint.CheckpointReader of {store.url_of('a.pt')!r}>"
    with pytest.raises(TypeError, match=r"pickle its URL, and call headrace\.checkpoint\.open"):
        pickle.dumps(reader)


def test_an_unknown_place_is_a_key_error(store: headrace.Store) -> None:
    with pytest.raises(KeyError):
        open_file(store, file_of({"a": torch.ones(1)})).tensor("b")


def test_info_reads_nothing(server: FaultServer, gcs: headrace.Store) -> None:
    reader = open_file(gcs, file_of({"a": filled(torch.bfloat16, 30, 20)[:10]}))
    before = kinds(server)
    assert reader.info("a") == TensorInfo(
        dtype=torch.bfloat16, shape=torch.Size([10, 20]), size_bytes=30 * 20 * 2
    )
    assert kinds(server) == before
    assert reader.url == "gs://bucket/a.pt"


def test_several_tensors_of_one_storage_are_read_once(
    server: FaultServer, gcs: headrace.Store
) -> None:
    base = filled(torch.float32, 1 << 20)
    reader = open_file(
        gcs, file_of({"a": base[:10], "b": base, "c": filled(torch.float32, 1 << 20)})
    )
    found = reader.tensors(["a", "b"])
    assert found["a"].untyped_storage().data_ptr() == found["b"].untyped_storage().data_ptr()
    assert kinds(server)["media"] == 2 + 1


def test_a_tensor_larger_than_its_storage_is_corrupt(store: headrace.Store) -> None:
    from headrace.checkpoint._checkpoint_reader import CheckpointReader

    data = file_of({"a": torch.ones(4)})
    reader = open_file(store, data)
    assert isinstance(reader, CheckpointReader)
    tensor = reader._tensors["a"]
    object.__setattr__(tensor, "shape", (5,))
    with pytest.raises(CorruptDataError, match="'a' does not fit into its storage"):
        reader.tensor("a")


@WRITERS
def test_a_tied_weight_is_one_tensor_under_each_of_its_keys(
    write: Any, store: headrace.Store
) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(5, 3)
            self.head = torch.nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

    model = Model()
    plain = torch.arange(4.0)
    shared = {"w": plain}
    state: dict[str, Any] = {"model": model.state_dict(), "a": shared, "b": [shared], "c": plain}
    state["itself"] = state
    reader = open_file(store, write(state))
    assert reader.keys() == ["model.embed.weight", "model.head.weight", "a.w", "b.0.w", "c"]
    found = reader.tensors(reader.keys())
    assert found["a.w"] is found["b.0.w"] is found["c"]
    assert_same(found["c"], plain)
    weights = [found["model.embed.weight"], found["model.head.weight"]]
    assert_same(weights, [model.embed.weight.detach()] * 2)


def test_lists_in_lists_with_endless_keys_are_opened_and_a_warning_says_what_is_not_listed(
    store: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    state: Any = [torch.ones(1)]
    for _ in range(40):
        state = [state, state]
    reader = open_file(store, file_of({"x": state, "y": torch.zeros(1)}))
    keys = reader.keys()
    assert keys[0] == ".".join(["x", *"0" * 41])
    assert keys[-1] == "y"
    assert len(keys) < 100_000
    assert reader.tensor(keys[-2]) == 1
    [warning] = [each for each in caplog.records if each.name == "headrace"]
    assert "every tensor has one that is" in warning.getMessage()


def test_what_repeats_without_a_tensor_leaves_no_key_out(
    store: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    state: Any = []
    for _ in range(40):
        state = [state, state]
    around: Any = {"deep": state}
    around["itself"] = [around] * 100_000
    reader = open_file(store, file_of({"x": torch.ones(1), "y": around, "z": [around] * 100_000}))
    assert reader.keys() == ["x"]
    assert not caplog.records


def test_a_tensor_whose_first_key_is_too_long_is_listed_under_a_shorter_one(
    store: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    tensor = torch.ones(1)
    reader = open_file(store, file_of({"x" * 1025: tensor, "y": tensor}))
    assert reader.keys() == ["y"]
    assert "too long" in caplog.text
