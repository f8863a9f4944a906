"""What is saved is what is loaded: by us and by torch, in both directions."""

from __future__ import annotations

import collections
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import InvalidArgumentError, _engine
from headrace.checkpoint._tensor_file import blob_of
from tests.checkpoint.states import (
    DTYPES,
    assert_same,
    bits,
    file_of,
    filled,
    load,
    quiet,
    special_states,
    stock_file_of,
    stock_load,
)

with quiet():
    SPECIAL = special_states()


class Tagged(torch.Tensor):
    """A class of a user's own."""


class Holder:
    """An object with a tensor in it."""

    def __init__(self) -> None:
        self.tensor = torch.arange(3)


@pytest.mark.parametrize("name", SPECIAL)
def test_torch_reads_what_we_save(name: str) -> None:
    assert_same(stock_load(file_of(SPECIAL[name]), weights_only=True), SPECIAL[name])


@pytest.mark.parametrize("write", [file_of, stock_file_of], ids=["ours", "stock"])
@pytest.mark.parametrize(
    "value",
    [{1, 2}, 1 + 2j, bytearray(b"abc"), [{3: {"a"}}, bytearray()], collections.OrderedDict(a={1})],
    ids=lambda value: type(value).__name__,
)
def test_what_a_pickle_names_as_python_2_did_is_allowed_as_torch_allows_it(
    value: Any, write: Any, store: headrace.Store
) -> None:
    data = write({"value": value, "tensor": torch.arange(3)})
    expected = stock_load(data, weights_only=True)["value"]
    store.write("a.pt", data)
    found = load(store)["value"]
    assert found == expected == value
    assert type(found) is type(expected)


def test_a_jagged_tensor_comes_back(store: headrace.Store) -> None:
    with quiet():
        rows = [torch.arange(2.0), torch.arange(3.0)]
        jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
        data = file_of({"jagged": jagged})
        store.write("a.pt", data)
        stock_load(data, weights_only=True)
        found = load(store)["jagged"]
    assert [each.tolist() for each in found.unbind()] == [each.tolist() for each in rows]


@pytest.mark.parametrize("name", SPECIAL)
def test_we_load_what_torch_saves(name: str, tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("a.pt", stock_file_of(SPECIAL[name]))
    assert_same(load(store), SPECIAL[name])


@pytest.mark.parametrize("name", SPECIAL)
def test_we_load_what_we_save(name: str, tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of(SPECIAL[name]))
    assert_same(load(store), SPECIAL[name])


def _tensors() -> st.SearchStrategy[torch.Tensor]:
    def build(dtype: torch.dtype, shape: list[int], seed: int, view: str) -> torch.Tensor:
        tensor = filled(dtype, *shape, seed=seed)
        if view == "transposed" and tensor.dim() >= 2:
            return tensor.transpose(0, 1)
        if view == "part" and tensor.dim() and tensor.shape[0] > 1:
            return tensor[1:]
        if view == "steps" and tensor.dim():
            return tensor[::2]
        return tensor

    return st.builds(
        build,
        st.sampled_from(DTYPES),
        st.lists(st.integers(0, 5), max_size=3),
        st.integers(0, 1000),
        st.sampled_from(["whole", "transposed", "part", "steps"]),
    )


def _objects() -> st.SearchStrategy[Any]:
    plain = (
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
    )
    keys = st.text(max_size=5) | st.integers(-5, 5)
    return st.recursive(
        _tensors() | plain,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(keys, inner, max_size=4)
            | st.tuples(inner, inner)
        ),
        max_leaves=8,
    )


@given(obj=_objects(), by_us=st.booleans())
def test_any_object_comes_back(obj: Any, by_us: bool, tmp_path_factory: Any) -> None:
    store = headrace.Store(tmp_path_factory.mktemp("any"))
    data = file_of(obj) if by_us else stock_file_of(obj)
    assert_same(stock_load(data), obj)
    store.write("a.pt", data)
    assert_same(load(store), obj)


@pytest.mark.parametrize("by_us", [True, False])
def test_classes_come_back_if_the_pickle_is_trusted(by_us: bool, tmp_path: Path) -> None:
    obj = {"t": torch.ones(3).as_subclass(Tagged), "h": Holder()}
    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of(obj) if by_us else stock_file_of(obj))
    found = load(store, weights_only=False)
    assert type(found["t"]) is Tagged
    assert torch.equal(found["h"].tensor, torch.arange(3))


def test_later_protocols_are_read_if_the_pickle_is_trusted(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    state = {"a": torch.arange(5), "b": [torch.ones(2)]}
    for protocol in (2, 3, 4, 5):
        data = file_of(state, protocol=protocol)
        assert_same(stock_load(data, weights_only=False), state)
        store.write("a.pt", data)
        assert_same(load(store, weights_only=False), state)


def test_a_bare_storage_comes_back_as_from_torch(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    obj = [torch.arange(10, dtype=torch.uint8).untyped_storage(), torch.arange(3.0)]
    with quiet():
        obj += [obj[1].storage()]
        data = file_of(obj)
        store.write("a.pt", data)
        ours, stock = load(store), stock_load(data)
        assert [type(each) for each in ours] == [type(each) for each in stock]
        assert [each.tolist() for each in ours] == [each.tolist() for each in stock]


def test_equal_states_make_equal_files() -> None:
    assert file_of(SPECIAL["state_dict"]) == file_of(SPECIAL["state_dict"])


def test_a_shared_storage_is_saved_once() -> None:
    base = torch.zeros(1 << 20, dtype=torch.uint8)
    data = file_of([base, base[5:], base.view(1024, 1024)])
    assert 1 << 20 < len(data) < (1 << 20) + 10_000


def test_pieces_are_the_tensors_own_memory() -> None:
    from headrace.checkpoint._tensor_file import CheckpointFile

    tensor = torch.arange(1000.0)
    lent = [piece.data for piece in CheckpointFile([tensor]).pieces() if piece.is_lent]
    tensor[0] = 77.0
    assert [bytes(piece) for piece in lent] == [bits(tensor)]


@pytest.mark.parametrize("by", ["zipfile", "torch"])
def test_other_tools_find_the_sums_right(by: str) -> None:
    data = file_of(SPECIAL["state_dict"])
    if by == "zipfile":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
    else:
        reader = torch._C.PyTorchFileReader(io.BytesIO(data))
        assert {"data.pkl", "version", "byteorder"} <= set(reader.get_all_records())


def test_our_records_are_torchs_own() -> None:
    state = SPECIAL["state_dict"]

    def records(data: bytes) -> list[tuple[str, int, int]]:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [
                (each.filename.partition("/")[2], each.file_size, each.flag_bits)
                for each in archive.infolist()
            ]

    ours, stock = file_of(state), stock_file_of(state)
    assert records(ours) == records(stock)
    # They are in the same places, too: torch.save calls the archive of a stream "archive".
    with zipfile.ZipFile(io.BytesIO(ours)) as a, zipfile.ZipFile(io.BytesIO(stock)) as b:
        assert [each.header_offset for each in a.infolist()] == [
            each.header_offset for each in b.infolist()
        ]
        for name in ("archive/data.pkl", "archive/version", "archive/byteorder"):
            assert a.read(name) == b.read(name)


@pytest.mark.slow
def test_beyond_4_gib_records_are_where_torch_has_them(tmp_path: Path) -> None:
    first_bytes = (4 << 30) + 100
    # Nothing is read or written of these: torch leaves holes, and ours only passes by.
    state = [torch.UntypedStorage(first_bytes), torch.UntypedStorage(100)]
    with torch.serialization.skip_data():
        torch.save(state, tmp_path / "archive.pt")
    with zipfile.ZipFile(tmp_path / "archive.pt") as archive:
        stock = {each.filename: each.header_offset for each in archive.infolist()}
    layout = _engine.ZipLayout()
    piece = bytes(1 << 20)
    ours = {}
    for name, offset in sorted(stock.items(), key=lambda each: each[1]):
        with zipfile.ZipFile(tmp_path / "archive.pt") as archive:
            size_bytes = archive.getinfo(name).file_size
        ours[name] = layout.offset_bytes
        assert ours[name] == offset, name
        layout.begin_record(name, size_bytes)
        for begin in range(0, size_bytes, len(piece)):
            layout.add(piece[: size_bytes - begin])
        layout.end_record()
    assert max(ours.values()) > 4 << 30


def test_memory_of_two_types_is_refused() -> None:
    base = torch.arange(4, dtype=torch.int32)
    with pytest.raises(InvalidArgumentError, match="share the same memory"):
        file_of([base, base.view(torch.float32)])


def test_a_storage_without_bytes_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="meta"):
        file_of([torch.UntypedStorage(10, device="meta")])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0),
        torch.arange(12.0)[3:7],
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(12, dtype=torch.bfloat16).view(3, 4)[1:],
        torch.zeros(0),
        torch.tensor(5),
        torch.tensor([True, False]),
        torch.tensor([1 + 1j]).conj(),
        torch.nn.Parameter(torch.ones(3)),
    ],
    ids=lambda each: f"{each.dtype}-{list(each.shape)}-{each.stride()}",
)
def test_a_blob_is_a_file_with_this_tensor_alone(tensor: torch.Tensor) -> None:
    pieces = blob_of(tensor)
    data = b"".join(pieces)
    found = stock_load(data, weights_only=True)
    assert found.dtype == tensor.dtype
    assert found.shape == tensor.shape
    assert bits(found) == bits(tensor)
    assert len(found.untyped_storage()) == tensor.numel() * tensor.element_size()
    assert sum(map(len, pieces)) == len(data)


def test_a_blob_of_a_contiguous_part_is_its_own_memory() -> None:
    base = torch.zeros(1000)
    pieces = blob_of(base[10:20])
    base[10] = 5.0
    assert stock_load(b"".join(pieces))[0] == 5.0
