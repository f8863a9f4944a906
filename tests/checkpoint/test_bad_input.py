"""What is no checkpoint, or none that may be loaded: what the error says."""

from __future__ import annotations

import gzip
import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
import headrace.checkpoint
from headrace import CorruptDataError, InvalidArgumentError, NotFoundError
from tests.checkpoint.states import assert_same, file_of, load, quiet, stock_file_of


class Unsafe:
    """A class that nobody allowed."""


def _torchscript() -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), out)
    return out.getvalue()


def _zip_of(name: str, data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def _safetensors() -> bytes:
    head = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(4)


REFUSED: dict[str, tuple[Any, str]] = {
    "empty": (b"", "it is empty"),
    "text": (b"hello" * 100, "does not begin as a zip does"),
    "torchscript": (_torchscript, "torch.jit.load"),
    "safetensors": (_safetensors, "safetensors.torch.load"),
    "gzip": (lambda: gzip.compress(file_of([1])), "compressed by gzip"),
    "other zip": (lambda: _zip_of("a/b.txt", b"x"), "it has no data.pkl"),
    "empty zip": (lambda: _zip_of("a", b"")[-22:], "does not begin as a zip does"),
    "compressed zip": (
        lambda: _zip_of("a/data.pkl", b"x" * 100, zipfile.ZIP_DEFLATED),
        "is compressed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_checkpoint_is_refused_by_what_it_is(name: str, store: headrace.Store) -> None:
    data, message = REFUSED[name]
    store.write("a.pt", data if isinstance(data, bytes) else data())
    with pytest.raises(InvalidArgumentError, match=message) as raised:
        load(store)
    assert raised.value.url == store.url_of("a.pt")
    with pytest.raises(InvalidArgumentError, match=message):
        headrace.checkpoint.open("a.pt", store=store)


def test_the_format_before_zip_is_loaded_and_not_opened(store: headrace.Store) -> None:
    state = {"a": torch.arange(1000.0), "b": [torch.ones(3), 5]}
    store.write("a.pt", stock_file_of(state, _use_new_zipfile_serialization=False))
    assert_same(load(store), state)
    with pytest.raises(InvalidArgumentError, match=r"before version 1\.6.*checkpoint\.load"):
        headrace.checkpoint.open("a.pt", store=store)
    store.write("b.pt", stock_file_of([Unsafe()], _use_new_zipfile_serialization=False))
    with pytest.raises(InvalidArgumentError, match=r"b\.pt: weights_only=True refuses"):
        load(store, "b.pt")


def test_a_missing_checkpoint_is_not_found(store: headrace.Store) -> None:
    with pytest.raises(NotFoundError, match=r"a\.pt"):
        load(store)


def test_a_url_without_an_object_is_refused() -> None:
    for url in ("gs://bucket", "gs://bucket/", ""):
        with pytest.raises(InvalidArgumentError, match=r"no object|is empty"):
            headrace.checkpoint.load(url)


def test_weights_only_says_what_it_refuses_and_what_to_do(store: headrace.Store) -> None:
    store.write("a.pt", file_of({"x": Unsafe(), "t": torch.ones(3)}))
    with pytest.raises(InvalidArgumentError, match=r"Unsafe.*weights_only=False.*add_safe_globals"):
        load(store)
    assert load(store, weights_only=False)["t"].tolist() == [1, 1, 1]
    with torch.serialization.safe_globals([Unsafe]):
        assert isinstance(load(store)["x"], Unsafe)


def test_weights_only_refuses_before_the_storages_are_read(
    server: Any, gcs: headrace.Store
) -> None:
    server.put("bucket", "a.pt", file_of({"x": Unsafe(), "t": torch.zeros(1 << 20)}))
    with pytest.raises(InvalidArgumentError, match="Unsafe"):
        load(gcs)
    assert sum(each["kind"] == "media" for each in server.log()) == 2


def test_opening_executes_nothing(tmp_path: Path) -> None:
    class Shouts:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of({"x": Shouts(), "t": torch.arange(3)}))
    with quiet():
        reader = headrace.checkpoint.open("a.pt", store=store)
    assert reader.tensor("t").tolist() == [0, 1, 2]
    with pytest.raises(InvalidArgumentError):
        load(store)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("pickle", [b"", b"\x80\x02", b"\x80\x02}q\x00", b"garbage", b"\xff" * 50])
def test_a_pickle_that_cannot_be_read_is_corrupt(pickle: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", pickle))
    with pytest.raises(CorruptDataError, match=r"a\.pt: its pickle cannot be read"):
        load(headrace.Store(tmp_path), weights_only=False)


def test_a_missing_record_is_corrupt(tmp_path: Path) -> None:
    data = file_of([torch.ones(2)])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        pickle = archive.read("archive/data.pkl")
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", pickle))
    with pytest.raises(CorruptDataError, match="the record data/0 is missing"):
        load(headrace.Store(tmp_path))


def test_a_file_that_another_tool_packed_again_is_loaded(tmp_path: Path) -> None:
    state = {"a": torch.arange(1000.0), "b": torch.ones(3)}
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(stock_file_of(state))) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new,
    ):
        for each in old.infolist():
            new.writestr(each.filename, old.read(each))
    # No padding: where contents begin is known to their headers alone.
    (tmp_path / "a.pt").write_bytes(out.getvalue())
    found = load(headrace.Store(tmp_path))
    assert torch.equal(found["a"], state["a"])
    assert torch.equal(found["b"], state["b"])


def test_progress_without_tqdm_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of([torch.ones(2)]))
    with pytest.raises(InvalidArgumentError, match="tqdm"):
        load(store, progress=True)
