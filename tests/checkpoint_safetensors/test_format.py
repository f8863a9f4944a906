"""The bytes of a file, and which bytes are none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace import CorruptDataError, HeadraceError, InvalidArgumentError
from headrace.checkpoint._safetensors.files import parse_index
from headrace.checkpoint._safetensors.header import (
    SUMS_KEY,
    header_bytes_of,
    parse_header,
)
from headrace.checkpoint._safetensors.saving import file_of as our_file_of
from tests.checkpoint.states import filled
from tests.checkpoint_safetensors.tensors import (
    DTYPES,
    NAMES,
    file_of,
    header_of,
    library_reads,
    states,
)

U8 = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}


@given(states(), st.none() | st.tuples(NAMES, NAMES))
def test_the_bytes_are_those_of_the_safetensors_library(
    state: dict[str, torch.Tensor], text: tuple[str, str] | None
) -> None:
    # Of several texts the library itself writes another order each time.
    metadata = None if text is None else dict([text])
    ours = our_file_of(state, metadata, checksums=False)
    assert ours == safetensors.torch.save(state, metadata)


@given(states(), st.dictionaries(NAMES, NAMES, max_size=3))
def test_checksums_are_one_more_text_of_the_metadata(
    state: dict[str, torch.Tensor], metadata: dict[str, str]
) -> None:
    ours = our_file_of(state, metadata, checksums=True)
    found = header_of(ours)
    assert found["__metadata__"].keys() == {"format", SUMS_KEY, *metadata}
    theirs = safetensors.torch.save(state, found["__metadata__"])
    assert header_of(theirs) == found
    assert len(theirs) == len(ours)
    assert theirs[8 + int.from_bytes(theirs[:8], "little") :] == ours[8 + len_of(ours) :]


def len_of(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def test_every_dtype_of_the_library_is_covered() -> None:
    known = set(safetensors.torch._TYPES.values()) | {torch.float8_e8m0fnu}
    assert known == set(DTYPES)


@given(states(), st.data())
def test_a_wrong_bit_of_the_header_is_seen_or_changes_no_tensor(
    state: dict[str, torch.Tensor], data: st.DataObject
) -> None:
    file = bytearray(our_file_of(state, checksums=True))
    expected = parse(bytes(file)).entries
    at = data.draw(st.integers(0, 8 + len_of(file) - 1))
    file[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = parse(bytes(file))
    except HeadraceError:
        return
    # In the name of the checksums itself: then it is a file without any.
    assert found.crc32c is None
    assert {name: replace(each, crc32c=None) for name, each in expected.items()} == found.entries


def parse(data: bytes) -> Any:
    return parse_header(data[: header_bytes_of(data, len(data))], len(data))


# Not of torch: what the library reads, and headrace too, and the other way round.
PARTS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 65) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "F16", "F4", "BOOL", "F6_E2M3", "F128"]) | PARTS,
        "shape": st.lists(st.integers(0, 4), max_size=3) | PARTS,
        "data_offsets": st.tuples(st.integers(0, 8), st.integers(0, 8)).map(list) | PARTS,
    },
    optional={"more": PARTS},
)
HEADERS = st.dictionaries(st.text(max_size=3), ENTRIES | PARTS, max_size=3) | PARTS


@given(HEADERS, st.binary(max_size=12), st.binary(max_size=3))
def test_what_is_read_is_what_the_library_reads(
    header: Any, content: bytes, behind_header: bytes
) -> None:
    data = file_of(json.dumps(header).encode() + behind_header, content)
    try:
        parse(data)
    except HeadraceError:
        if library_reads(data):
            # Empty tensors with dimensions of any size are fine there; torch has none of them.
            assert "more bytes than there are" in str(_error(data))
    else:
        assert library_reads(data)


def _error(data: bytes) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised:
        parse(data)
    return raised.value


@given(states(), st.data())
def test_a_damaged_file_of_the_library_is_read_as_the_library_reads_it(
    state: dict[str, torch.Tensor], data: st.DataObject
) -> None:
    file = bytearray(safetensors.torch.save(state, {"a": "b"}))
    at = data.draw(st.integers(0, 8 + len_of(file) - 1))
    file[at] = data.draw(st.integers(0, 255))
    damaged = bytes(file)
    try:
        parse(damaged)
    except HeadraceError:
        # The library takes the last of two texts, or tensors, of one name.
        assert not library_reads(damaged) or "twice" in str(_error(damaged))
    else:
        assert library_reads(damaged)


@given(st.binary(max_size=64))
def test_any_bytes_are_an_error_of_ours_or_a_file(data: bytes) -> None:
    for each in (data, file_of(data), file_of(b"{" + data)):
        try:
            parse(each)
        except HeadraceError:
            continue
        assert library_reads(each)


DAMAGED: dict[str, tuple[bytes, str]] = {
    "a tensor twice": (
        file_of(b'{"a":%s,"a":%s}' % ((json.dumps(U8).encode(),) * 2), b"x"),
        "'a' is there twice",
    ),
    "a text twice": (file_of(b'{"__metadata__":{"a":"1","a":"2"}}'), "'a' is there twice"),
    "an overlap": (file_of({"a": U8, "b": U8}, b"x"), "tensor 'b' overlaps the tensor 'a'"),
    "a gap": (
        file_of({"a": U8 | {"data_offsets": [1, 2]}}, b"xx"),
        "tensor 'a' leaves a gap behind the header",
    ),
    "a cut": (file_of({"a": U8}), "has 63 bytes: it is truncated|it is truncated"),
    "bytes behind": (file_of({"a": U8}, b"xy"), "it is damaged"),
    "a wrong size": (
        file_of({"a": U8 | {"shape": [2]}}, b"x"),
        r"has 1 bytes, and its shape \[2\]",
    ),
    "half a byte": (file_of({"a": U8 | {"dtype": "F4", "shape": [3]}}, b"x"), "takes 1.5"),
    "a shape of everything": (
        file_of({"a": U8 | {"shape": [1 << 40, 1 << 40]}}, b"x"),
        "more bytes than there are",
    ),
    "a negative size": (file_of({"a": U8 | {"shape": [-1]}}, b"x"), "'-1' is no size"),
    "a size of many digits": (
        file_of(b'{"a":{"shape":[%s]}}' % (b"9" * 5000)),
        "is no size",
    ),
    "many dimensions": (file_of({"a": U8 | {"shape": [1] * 100_000}}, b"x"), "100,000 dimensions"),
    "a size that is none": (file_of({"a": U8 | {"shape": [1.5]}}, b"x"), "'1.5' is no size"),
    "true": (file_of({"a": U8 | {"shape": [True]}}, b"x"), "no shape of sizes"),
    "three offsets": (file_of({"a": U8 | {"data_offsets": [0, 0, 1]}}, b"x"), "no place"),
    "an end before the beginning": (
        file_of({"a": U8 | {"data_offsets": [1, 0]}}, b"x"),
        "no place",
    ),
    "no dtype": (file_of({"a": U8 | {"dtype": 3}}, b"x"), "no dtype"),
    "no object": (file_of({"a": 1}), "tensor 'a' is no object"),
    "a number as a text": (file_of({"__metadata__": {"a": 1}}), "1 of the metadata is no text"),
    "metadata that is a list": (file_of({"__metadata__": []}), "__metadata__ is no object"),
    "half a character": (file_of(b'{"\\ud800":%s}' % json.dumps(U8).encode(), b"x"), "a half"),
    "no UTF-8": (file_of(b'{"\xff":{}}'), "utf-8"),
    "no JSON": (file_of(b"{]"), "damaged, or not one of safetensors"),
    "no object at all": (file_of(b" []"), "it is not an object"),
    "brackets without end": (file_of(b'{"a":' + b"[" * 200_000), "recursion"),
    "a header longer than the file": ((1000).to_bytes(8, "little") + b"{}", "it is truncated"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_header_is_an_error_that_says_what_is_wrong(name: str) -> None:
    data, message = DAMAGED[name]
    with pytest.raises(CorruptDataError, match=message):
        parse(data)


OTHERS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it has 0 bytes"),
    "a text": (b"hello, this is no safetensors file", "begins with a brace"),
    "a header of gigabytes": ((1 << 40).to_bytes(8, "little") + b"{}", "1,099,511,627,776 bytes"),
    "a dtype of the future": (file_of({"a": U8 | {"dtype": "F128"}}, b"x"), "dtype 'F128'"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_another_format_is_refused(name: str) -> None:
    data, message = OTHERS[name]
    with pytest.raises(InvalidArgumentError, match=message):
        parse(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no index"),
        (b"\xff", "no index"),
        (b"[" * 200_000, "no index"),
        (b"[]", "it has no weight_map"),
        (b'{"weight_map": []}', "it has no weight_map"),
        (b'{"weight_map": {"a": 1}}', "'a' is said to be in 1"),
        (b'{"weight_map": {"a": "../b.safetensors"}}', "no safetensors file beside it"),
        (b'{"weight_map": {"a": "b.pt"}}', "no safetensors file beside it"),
        (b'{"weight_map": {}, "metadata": {"headrace.headers": 1}}', "its sums of headers"),
        (b'{"weight_map": {}, "metadata": {"headrace.headers": {"a": "x"}}}', "sums of headers"),
    ],
)
def test_a_damaged_index_is_an_error_that_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        parse_index(data)


def test_conjugates_and_views_are_saved_as_what_they_are() -> None:
    complex_values = torch.view_as_complex(filled(torch.float16, 3, 2).float())
    state = {"conj": complex_values.conj(), "view": torch.arange(10)[2:5]}
    found = safetensors.torch.load(our_file_of(state, checksums=True))
    assert torch.equal(found["view"], state["view"])
    assert torch.equal(found["conj"], state["conj"].resolve_conj())


SHARED = torch.arange(10)
REFUSED: dict[str, tuple[Any, str]] = {
    "a list": ([SHARED], "hold a dict of tensors by name, not list"),
    "a number": ({"step": 3}, "'step' is int"),
    "a nested dict": ({"model": {"a": SHARED}}, "'model' is dict"),
    "a name that is a number": ({3: SHARED}, "3 is Tensor|3 is"),
    "half a character": ({"\ud800": SHARED}, "a half of a character"),
    "the name of the metadata": ({"__metadata__": SHARED}, "keeps for its metadata"),
    "tied weights": ({"a": SHARED, "b": SHARED}, "'a' and 'b' share memory"),
    "views that overlap": ({"a": SHARED[:6], "b": SHARED[5:]}, "'a' and 'b' share memory"),
    "a view inside of one": (
        {"a": SHARED, "b": SHARED[2:3], "c": SHARED[8:]},
        "'a' and 'b' share memory",
    ),
    "a transpose": ({"a": SHARED.view(2, 5).t()}, "save its contiguous"),
    "a sparse tensor": ({"a": torch.eye(2).to_sparse()}, "save its to_dense"),
    "a meta tensor": ({"a": torch.empty(2, device="meta")}, "has no bytes"),
    "complex128": ({"a": torch.ones(1, dtype=torch.complex128)}, "no name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_format_cannot_express_is_refused(name: str) -> None:
    state, message = REFUSED[name]
    with pytest.raises(InvalidArgumentError, match=message):
        our_file_of(state, checksums=True)
    if name != "the name of the metadata":  # the library makes a file of it that it cannot read
        with pytest.raises(Exception, match=r".*"):  # its errors are of many classes
            safetensors.torch.save(state)


def test_views_of_one_storage_that_do_not_overlap_are_no_copies_of_each_other() -> None:
    state = {"a": SHARED[:5], "b": SHARED[5:]}
    assert our_file_of(state, checksums=False) == safetensors.torch.save(state)


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, [], {"a": "\udfff"}])
def test_metadata_other_than_texts_is_refused(metadata: Any, tmp_path: Any) -> None:
    import headrace.checkpoint

    with pytest.raises(InvalidArgumentError, match="metadata"):
        headrace.checkpoint.save({}, tmp_path / "a.safetensors", metadata=metadata)
