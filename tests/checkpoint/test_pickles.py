"""Files of `torch.save` with all that a pickle can hold: what torch reads is whole, and found."""

from __future__ import annotations

import collections
import copyreg
import io
import itertools
import pickle
import pickletools
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import dill
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
import headrace.checkpoint
from headrace import CorruptDataError, InvalidArgumentError
from tests.checkpoint.pickled import FORMS, PLAIN, TENSORS, Outer, Units
from tests.checkpoint.states import assert_same, file_of, load, quiet, stock_file_of, stock_load

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)

# A recipe is the name of a kind of tensor, the position of a plain value, or a form and its parts.
Recipe = Any


def recipes() -> st.SearchStrategy[Recipe]:
    leaves = st.sampled_from(sorted(TENSORS)) | st.integers(0, len(PLAIN) - 1)
    return st.recursive(
        leaves,
        lambda inner: st.tuples(st.sampled_from(sorted(FORMS)), st.lists(inner, max_size=3)),
        max_leaves=8,
    )


def made_of(recipe: Recipe, tensors: list[torch.Tensor]) -> Any:
    """The value of a recipe; its tensors, of which no two are equal, are added to `tensors`."""
    if isinstance(recipe, str):
        tensors.append(TENSORS[recipe](torch.tensor([float(len(tensors) + 1)])))
        return tensors[-1]
    if isinstance(recipe, int):
        return PLAIN[recipe]
    form, parts = recipe
    return FORMS[form]([made_of(part, tensors) for part in parts])


def numbers(tensors: Any) -> list[int]:
    """What tells tensors of `made_of` from each other."""
    return sorted(int(each.detach().real.reshape(-1)[0]) for each in tensors)


def dumps(value: Any) -> bytes:
    """Equal bytes for equal values, whatever their classes think of equality."""
    with quiet():
        return stock_file_of(value, pickle_protocol=4)


def assert_read(store: headrace.Store, data: bytes, tensors: list[torch.Tensor]) -> list[str]:
    """Torch reads it, and so do we; return the keys."""
    expected = stock_load(data, weights_only=False)
    store.write("a.pt", data)
    found = load(store, weights_only=False)
    try:
        dumped = dumps(expected)
    except (AttributeError, pickle.PicklingError):  # of a class that only dill can write
        assert type(found).__name__ == type(expected).__name__
    else:
        assert dumps(found) == dumped
    reader = headrace.checkpoint.open("a.pt", store=store)
    # Under however many keys, each is one tensor.
    read = {id(each): each for each in reader.tensors(reader.keys()).values()}
    assert numbers(read.values()) == numbers(tensors)
    assert headrace.checkpoint.latest("", store=store) == store.url_of("a.pt")
    return reader.keys()


@pytest.mark.parametrize("form", FORMS)
def test_tensors_in_a_value_of_any_form_are_found_in_every_protocol(
    form: str, tmp_path: Path
) -> None:
    store = headrace.Store(tmp_path)
    tensors: list[torch.Tensor] = []
    value = made_of((form, ["plain", ("list", ["parameter", 2]), "buffer"]), tensors)
    keys = {
        tuple(assert_read(store, write(value, protocol), tensors))
        for protocol in (2, 3, 4, 5)
        for write in (_by_us, _by_torch)
    }
    # A tensor has the same keys, however it was written.
    assert len(keys) == 1


def _by_us(value: Any, protocol: int) -> bytes:
    return file_of(value, protocol=protocol)


def _by_torch(value: Any, protocol: int, **options: Any) -> bytes:
    return stock_file_of(value, pickle_protocol=protocol, **options)


def _by_dill(value: Any, protocol: int) -> bytes:
    return _by_torch(value, protocol, pickle_module=dill)


def _by_cloudpickle(value: Any, protocol: int) -> bytes:
    return _by_torch(value, protocol, pickle_module=cloudpickle)


WRITERS = [_by_us, _by_torch, _by_dill, _by_cloudpickle]


@pytest.mark.parametrize("value", [pytest.param(each, id=str(i)) for i, each in enumerate(PLAIN)])
def test_any_plain_value_is_read_in_every_protocol(value: Any, tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for protocol in PROTOCOLS:
        tensor = torch.tensor([1.0])
        keys = assert_read(store, _by_torch({"v": value, "t": tensor}, protocol), [tensor])
        assert keys == ["t"]


@given(recipe=recipes(), protocol=st.sampled_from(PROTOCOLS), write=st.sampled_from(WRITERS))
def test_what_torch_writes_and_reads_is_whole_and_found(
    recipe: Recipe, protocol: int, write: Any, tmp_path_factory: Any
) -> None:
    tensors: list[torch.Tensor] = []
    data = write(made_of(recipe, tensors), protocol)
    assert_read(headrace.Store(tmp_path_factory.mktemp("any")), data, tensors)


@pytest.mark.soak
@settings(max_examples=20_000)
@given(recipe=recipes(), protocol=st.sampled_from(PROTOCOLS), write=st.sampled_from(WRITERS))
def test_campaign_of_what_torch_writes_and_reads(
    recipe: Recipe, protocol: int, write: Any, tmp_path_factory: Any
) -> None:
    tensors: list[torch.Tensor] = []
    data = write(made_of(recipe, tensors), protocol)
    assert_read(headrace.Store(tmp_path_factory.mktemp("any")), data, tensors)


CONTAINERS: list[Any] = [dict, list, tuple, collections.OrderedDict]


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Containers and tensors, of which each may be in several others, in itself and in tuples."""
    things: list[Any] = [torch.tensor([1.0]), torch.nn.Parameter(torch.tensor([2.0]))]
    count = draw(st.integers(1, 6))
    for _ in range(count):
        kind = draw(st.sampled_from(CONTAINERS))
        inside = draw(st.lists(st.integers(0, len(things) - 1), max_size=3))
        things.append(kind(things[i] for i in inside) if kind is tuple else kind())
        _fill(things[-1], [things[i] for i in inside])
    for _ in range(draw(st.integers(0, 3))):
        into = things[draw(st.integers(2, len(things) - 1))]
        _fill(into, [things[draw(st.integers(0, len(things) - 1))]])
    return things[-1]


def _fill(into: Any, parts: list[Any]) -> None:
    if isinstance(into, list):
        into += parts
    elif isinstance(into, dict):
        into.update({f"k{len(into) + i}": part for i, part in enumerate(parts)})


def ways_to_tensors(
    thing: Any, key: tuple[str, ...] = (), above: tuple[int, ...] = ()
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every key that leads to a tensor without leading back to where it has been."""
    if isinstance(thing, torch.Tensor):
        yield ".".join(key), thing
    elif id(thing) not in above:
        items = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for name, part in items:
            yield from ways_to_tensors(part, (*key, str(name)), (*above, id(thing)))


@settings(max_examples=300)
@given(
    value=graphs(),
    protocol=st.sampled_from(PROTOCOLS),
    write=st.sampled_from(WRITERS),
)
def test_a_tensor_is_listed_under_every_key_under_which_torch_gives_it(
    value: Any, protocol: int, write: Any, tmp_path_factory: Any
) -> None:
    store = headrace.Store(tmp_path_factory.mktemp("any"))
    store.write("a.pt", write(value, protocol))
    expected = dict(ways_to_tensors(stock_load(store.read("a.pt").bytes(), weights_only=False)))
    reader = headrace.checkpoint.open("a.pt", store=store)
    assert reader.keys() == list(expected)
    found = reader.tensors(reader.keys())
    for a, b in itertools.combinations_with_replacement(expected, 2):
        assert (found[a] is found[b]) == (expected[a] is expected[b])
    for key in expected:
        assert_same(found[key], expected[key])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("write", [_by_dill, _by_cloudpickle])
def test_tensors_in_classes_and_functions_that_are_written_by_value_are_found(
    write: Any, protocol: int, tmp_path: Path
) -> None:
    captured, of_class, own = (torch.tensor([float(i)]) for i in (1, 2, 3))

    class Local:
        of_class: Any

        def __init__(self) -> None:
            self.own = own

        def method(self) -> torch.Tensor:
            return captured

    Local.of_class = [of_class]
    Local.__module__ = "__main__"
    value = {"object": Local(), "function": lambda: captured + own, "class": Local}
    store = headrace.Store(tmp_path)
    assert_read(store, write(value, protocol), [captured, of_class, own])
    found = load(store, weights_only=False)
    assert found["function"]() == 4
    assert found["object"].method() == 1
    assert found["class"].of_class == [2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tensors_of_classes_and_their_attributes_are_listed(protocol: int, tmp_path: Path) -> None:
    units = torch.tensor([1.0]).as_subclass(Units)
    units.mask = torch.tensor([2.0])  # type: ignore[attr-defined]
    store = headrace.Store(tmp_path)
    store.write("a.pt", _by_torch({"units": units, "other": torch.tensor([3.0])}, protocol))
    reader = headrace.checkpoint.open("a.pt", store=store)
    assert reader.keys() == ["units", "units.mask", "other"]
    assert reader.tensor("units.mask") == 2
    with pytest.raises(InvalidArgumentError, match=r"'units' is of the class .*pickled\.Units"):
        reader.tensor("units")
    assert type(load(store, weights_only=False)["units"]) is Units


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_that_is_read_alone_is_as_torch_loads_it(kind: str, tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("a.pt", _by_torch([TENSORS[kind](torch.tensor([5.0]))], 2))
    found = headrace.checkpoint.open("a.pt", store=store).tensor("0")
    expected = stock_load(store.read("a.pt").bytes(), weights_only=False)[0]
    assert_same(found, expected)
    # An attribute that is no plain value comes with the whole alone.
    expected_attributes = {k: v for k, v in vars(expected).items() if k != "more"}
    assert vars(found) == expected_attributes
    assert isinstance(found, torch.nn.Buffer) == isinstance(expected, torch.nn.Buffer)


def test_the_elements_of_a_named_tuple_have_the_names_of_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ModuleType("here")
    pair_class = collections.namedtuple("pair_class", "first second", module="here")
    here.pair_class = pair_class  # type: ignore[attr-defined]
    pair = pair_class(torch.tensor([1.0]), {"x": torch.tensor([2.0])})
    store = headrace.Store(tmp_path)
    for protocol in (1, *PROTOCOLS):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "here", here)
            store.write("a.pt", _by_torch({"pair": pair}, protocol))
            opened = headrace.checkpoint.open("a.pt", store=store)
        assert opened.keys() == ["pair.first", "pair.second.x"]
        # Nothing is imported for that: of a class that is not there, the positions are known.
        opened = headrace.checkpoint.open("a.pt", store=store)
        assert opened.keys() == (["pair.0", "pair.1.x"])
        assert opened.tensor("pair.0") == 1


def archive_of(pickled: bytes) -> bytes:
    """A file of torch.save with another pickle than its own, and the storages 0 and 1."""
    out = io.BytesIO()
    tensors = [torch.tensor([1.0]), torch.tensor([2.0])]
    with (
        zipfile.ZipFile(io.BytesIO(stock_file_of(tensors))) as old,
        zipfile.ZipFile(out, "w") as new,
    ):
        for each in old.namelist():
            new.writestr(each, pickled if each.endswith("/data.pkl") else old.read(each))
    return out.getvalue()


def _tensor(key: str) -> bytes:
    """The opcodes of a tensor with this storage."""
    texts = (
        b"X" + struct.pack("<I", len(text)) + text.encode() for text in ("storage", key, "cpu")
    )
    storage, key_text, cpu = texts
    reference = b"(" + storage + b"ctorch\nFloatStorage\n" + key_text + cpu + b"K\x01tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + reference + b"K\0K\x01\x85K\x01\x85\x89}tR"


T0, T1 = _tensor("0"), _tensor("1")
_8_BYTES = b"\x01" + bytes(7)  # of a length of one

# What Python reads, and writes seldom or no more; and how many of both tensors are in it.
SELDOM: dict[str, tuple[bytes, int]] = {
    "texts": (pickle.dumps([1, 1.5, True, 1 << 70, "a\n", b"b", (), {}], 0), 0),
    "strings": (b"](S'abc'\nT\x03\0\0\0abcU\x03abcI01\ne.", 0),
    "a persistent id in text": (b"}P5\n0.", 0),
    "put and get": (b"]p5\n" + T0 + b"ag5\n\x86.", 2),
    "an instance": (b"(icollections\nOrderedDict\nK\x01" + T0 + b"s.", 1),
    "an object": (b"(ccollections\nOrderedDict\noK\x01" + T0 + b"s.", 1),
    "one thing twice": (b"]" + T0 + b"a2\x86.", 2),
    "things dropped": (b"(" + T0 + b"1" + T1 + b"0}.", 1),
    "a mark dropped": (b"}(0.", 0),
    "dict at once": (b"(K\x01" + T0 + b"K\x02" + T1 + b"d.", 2),
    "a place in the memo": (b"}r\xff\xff\0\0j\xff\xff\0\0\x86.", 0),
    "a frame of two bytes": (b"\x80\x04\x95\x02" + bytes(7) + b"}K\x01" + T0 + b"s.", 1),
    "a protocol in between": (b"\x80\x02]\x80\x04" + T0 + b"a.", 1),
    "extensions": (b"\x80\x02\x82\x4d\x83\x4d\0\x84\x4d\0\0\0\x87.", 0),
    "names of Python 2": (b"\x80\x02c__builtin__\nset\n]" + T0 + b"a\x85R.", 1),
    "pairs of Python 2": (b"\x80\x02ccollections\nOrderedDict\n]((K\x01" + T0 + b"le\x85R.", 1),
    "a long number": (b"\x80\x02\x8b\x03\0\0\0\1\2\3.", 0),
    "lengths of eight bytes": (b"\x80\x04\x8d" + _8_BYTES + b"a\x8e" + _8_BYTES + b"b\x86.", 0),
    "nothing to build": (b"\x80\x02]Nb.", 0),
    "read-only already": (pickle.dumps(b"", 5)[:2] + b"C\x01a\x98.", 0),
}


@pytest.fixture
def extension() -> Iterator[None]:
    copyreg.add_extension("collections", "OrderedDict", 77)
    yield
    copyreg.remove_extension("collections", "OrderedDict", 77)
    copyreg.clear_extension_cache()


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("name", SELDOM)
def test_what_is_written_seldom_is_read_as_torch_reads_it(name: str, tmp_path: Path) -> None:
    pickled, count = SELDOM[name]
    store = headrace.Store(tmp_path)
    store.write("a.pt", archive_of(pickled))
    assert len(headrace.checkpoint.open("a.pt", store=store).keys()) == count
    assert headrace.checkpoint.latest("", store=store) == store.url_of("a.pt")
    try:
        expected = stock_load(archive_of(pickled), weights_only=False)
    except (AssertionError, pickle.UnpicklingError) as error:
        with pytest.raises((type(error), CorruptDataError)):
            load(store, weights_only=False)
    else:
        assert dumps(load(store, weights_only=False)) == dumps(expected)


def test_these_tests_read_every_opcode_that_python_writes_or_reads() -> None:
    tensors: list[torch.Tensor] = []
    every_form = [made_of((form, ["plain", "parameter"]), tensors) for form in FORMS]
    files = [_by_torch([every_form, PLAIN, 1 << 3000], protocol) for protocol in PROTOCOLS]
    pickles = [zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl") for data in files]
    pickles += [pickled for pickled, _ in SELDOM.values()]
    read = {opcode.name for each in pickles for opcode, _, _ in pickletools.genops(each)}
    # Of buffers beside the pickle, which torch.load has no way to be given.
    assert {opcode.name for opcode in pickletools.opcodes} - read == {"NEXT_BUFFER"}


def test_a_pickle_with_buffers_beside_it_is_refused_as_torch_refuses_it(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("a.pt", archive_of(b"\x80\x05]" + T0 + b"a\x97\x98\x86."))
    assert headrace.checkpoint.open("a.pt", store=store).keys() == ["0.0"]
    with pytest.raises(CorruptDataError, match="buffers"):
        load(store, weights_only=False)


EXECUTED: list[int] = []


class Shouts:
    """Something is executed where it is read."""

    def __reduce__(self) -> Any:
        return _execute, ()


def _execute() -> None:
    EXECUTED.append(1)


def _victims() -> list[bytes]:
    """Pickles with both storages and something to execute in each."""
    a, b = torch.tensor([1.0]), torch.tensor([2.0])
    module = torch.nn.Linear(1, 1, bias=False)
    state = {"a": a, "b": [b, {1: (a, None)}], "n": 1.5, "s": {1, 2}, "d": torch.float16}
    ordered = module.state_dict()
    values = [state, {"x": ordered, "b": b, "size": torch.Size([1])}, [Shouts(), a, Outer.Data(b)]]
    files = [_by_torch(value, protocol) for value in values for protocol in (2, 4)]
    return [zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl") for data in files]


VICTIMS = _victims()


def _changed(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for at, removed, added in changes:
        at %= len(data) + 1
        data = data[:at] + added + data[at + removed :]
    return data


def damaged() -> st.SearchStrategy[bytes]:
    """Pickles of which some bytes were replaced, removed or added."""
    opcodes = st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes])
    change = st.tuples(st.integers(0, 2000), st.integers(0, 3), opcodes | st.binary(max_size=3))
    return st.builds(_changed, st.sampled_from(VICTIMS), st.lists(change, max_size=3))


def _read_or_error(read: Callable[[], Any]) -> Any:
    try:
        with quiet():
            return read()
    except Exception as error:
        return error


def assert_safe(store: headrace.Store, pickled: bytes) -> None:
    """Nothing is executed, errors are ours, and what torch loads we open and load, too."""
    data = archive_of(pickled)
    store.write("a.pt", data)
    expected = _read_or_error(lambda: stock_load(data, weights_only=True))
    opened = _read_or_error(lambda: headrace.checkpoint.open("a.pt", store=store))
    loaded = _read_or_error(lambda: headrace.checkpoint.load("a.pt", store=store))
    ours = (CorruptDataError, InvalidArgumentError)
    assert isinstance(opened, (headrace.checkpoint.CheckpointReader, *ours))
    if not isinstance(expected, Exception):
        if "bytes, and its tensor" not in str(loaded):  # which torch does not compare
            assert isinstance(opened, headrace.checkpoint.CheckpointReader)
            dumped = [_read_or_error(lambda each=each: dumps(each)) for each in (loaded, expected)]
            assert dumped[0] == dumped[1] or type(dumped[0]) is type(dumped[1]) is TypeError
    elif not isinstance(loaded, ours):  # of a device that is not here
        assert type(loaded) is type(expected) is RuntimeError
    assert EXECUTED == []


@given(pickled=damaged())
def test_a_damaged_pickle_executes_nothing_and_is_told_as_one(
    pickled: bytes, tmp_path_factory: Any
) -> None:
    assert_safe(headrace.Store(tmp_path_factory.mktemp("any")), pickled)


@pytest.mark.soak
@settings(max_examples=50_000)
@given(pickled=damaged())
def test_campaign_of_damaged_pickles(pickled: bytes, tmp_path_factory: Any) -> None:
    assert_safe(headrace.Store(tmp_path_factory.mktemp("any")), pickled)
