"""`ObjectIndex` and `Order`: many objects, in little memory, in any order."""

from __future__ import annotations

import array
import copy
import datetime
import pickle
import re
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from headrace import ObjectIndex, ObjectInfo
from headrace._engine import Order
from testing.faultserver.client import FaultServer

UINT64 = st.integers(0, 2**64 - 1)
TIMES = st.datetimes(
    datetime.datetime(1700, 1, 1), datetime.datetime(2250, 1, 1), timezones=st.just(datetime.UTC)
)
OBJECTS = st.builds(
    ObjectInfo,
    name=st.text(min_size=1, max_size=60),
    size_bytes=st.integers(0, 2**50),
    generation=st.one_of(
        st.just(""), st.integers(0, 2**64).map(str), st.text(max_size=20), st.just("007")
    ),
    crc32c=st.none() | st.integers(0, 2**32 - 1),
    content_type=st.sampled_from(["", "image/png", "text/plain"]),
    content_encoding=st.sampled_from(["", "gzip"]),
    updated=st.none() | TIMES,
    storage_class=st.sampled_from(["STANDARD", "NEARLINE"]),
    component_count=st.integers(0, 2**32 - 1),
    metageneration=UINT64,
)
LISTS = st.lists(OBJECTS, max_size=40)


def put(store: headrace.Store, *names: str) -> None:
    for name in names:
        store.write(name, name[-1:].encode())


def names(index: ObjectIndex) -> list[str]:
    return [info.name for info in index]


def numbered(count: int) -> ObjectIndex:
    return ObjectIndex.from_objects(ObjectInfo(f"{i:07}", i, str(i + 1)) for i in range(count))


# ---- it is a list


@hypothesis.given(LISTS)
def test_it_gives_back_what_it_was_made_of(objects: list[ObjectInfo]) -> None:
    index = ObjectIndex.from_objects(objects)
    assert len(index) == len(objects)
    assert list(index) == objects
    assert [index[i] for i in range(len(objects))] == objects
    assert [index[i - len(objects)] for i in range(len(objects))] == objects
    assert [index.name(i) for i in range(len(objects))] == [info.name for info in objects]
    sizes = [info.size_bytes for info in objects]
    assert [index.size_bytes(i) for i in range(len(objects))] == sizes
    assert list(index.sizes(range(len(objects)))) == sizes
    assert index.total_size_bytes == index.sum_bytes(range(len(objects))) == sum(sizes)
    assert index.common_size_bytes == (sizes[0] if len(set(sizes)) == 1 else None)


@hypothesis.given(LISTS, st.data())
def test_slices_are_those_of_a_list(objects: list[ObjectInfo], data: st.DataObject) -> None:
    some = data.draw(st.slices(len(objects)))
    assert list(ObjectIndex.from_objects(objects)[some]) == objects[some]


@hypothesis.given(LISTS.filter(bool), st.data())
def test_a_selection_is_in_the_order_asked_for(
    objects: list[ObjectInfo], data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.integers(-len(objects), len(objects) - 1)))
    expected = [objects[i] for i in wanted]
    index = ObjectIndex.from_objects(objects)
    for indices in (wanted, tuple(wanted), array.array("q", wanted)):
        assert list(index.select(indices)) == expected
        assert list(index.sizes(indices)) == [info.size_bytes for info in expected]
        assert index.sum_bytes(indices) == sum(info.size_bytes for info in expected)


@hypothesis.given(LISTS, LISTS)
def test_equal_lists_make_equal_indexes(one: list[ObjectInfo], other: list[ObjectInfo]) -> None:
    first, second = ObjectIndex.from_objects(one), ObjectIndex.from_objects(other)
    assert (first == second) == (one == other)
    assert first == ObjectIndex.from_objects(one)
    assert hash(first) == hash(ObjectIndex.from_objects(one))
    key = [(info.name, info.size_bytes, info.crc32c) for info in one]
    same = key == [(info.name, info.size_bytes, info.crc32c) for info in other]
    assert (first.fingerprint == second.fingerprint) == same


@hypothesis.given(LISTS, st.sampled_from(["", "gs://bucket", "file:///data"]))
def test_it_pickles(objects: list[ObjectInfo], root: str) -> None:
    index = ObjectIndex.from_objects(objects, root=root)
    again = pickle.loads(pickle.dumps(index))
    assert again == index
    assert list(again) == objects
    assert again.roots == (root,)
    assert again.fingerprint == index.fingerprint


def test_it_is_a_value() -> None:
    index = numbered(3)
    assert copy.copy(index) is index
    assert copy.deepcopy([index])[0] is index
    assert index != [*index]
    assert repr(index) == "<headrace.ObjectIndex of 3 objects, 3 bytes>"
    assert repr(numbered(1)) == "<headrace.ObjectIndex of 1 object, 0 bytes>"


def test_positions_beyond_the_end_are_refused() -> None:
    index = numbered(3)
    for i in (3, -4, 2**40, -(2**62)):
        for call in (index.__getitem__, index.name, index.size_bytes):
            with pytest.raises(IndexError, match=r"of an index that has 3 objects"):
                call(i)
        for many in (index.select, index.sizes, index.sum_bytes):
            with pytest.raises(IndexError, match=r"of an index that has 3 objects"):
                many([0, i])
            with pytest.raises(IndexError):
                many(array.array("q", [0, i]))
    with pytest.raises(IndexError):
        index[2**70]


@pytest.mark.parametrize("indices", [5, None, ["a"], [1.5], b"ab", array.array("d", [1.0])])
def test_what_is_no_list_of_positions_is_refused(indices: object) -> None:
    # bytes are a sequence of small integers; these are beyond the end
    with pytest.raises((TypeError, IndexError)):
        numbered(3).select(indices)  # type: ignore[arg-type]


def test_objects_that_cannot_be_are_refused() -> None:
    with pytest.raises(TypeError, match="an ObjectInfo is needed, not str"):
        ObjectIndex.from_objects(["name"])  # type: ignore[list-item]
    with pytest.raises(headrace.InvalidArgumentError, match="must not be empty"):
        ObjectIndex.from_objects([ObjectInfo("", 5)])
    with pytest.raises(headrace.InvalidArgumentError, match="more than 2\\^64"):
        ObjectIndex.from_objects([ObjectInfo("a", 2**64 - 2), ObjectInfo("b", 1)])


def test_numpy_and_torch_take_and_give_positions() -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    index = numbered(100)
    wanted = [5, 99, 5, 0]
    for indices in (numpy.array(wanted), torch.tensor(wanted), torch.tensor(wanted).numpy()):
        assert names(index.select(indices)) == [f"{i:07}" for i in wanted]
    sizes = index.sizes(wanted)
    assert numpy.asarray(sizes).dtype == numpy.int64
    assert torch.frombuffer(sizes, dtype=torch.int64).tolist() == wanted
    assert names(index.select(numpy.array(wanted)[::2])) == ["0000005", "0000005"]


# ---- it is narrowed

NAMES = st.text("ab/.*", min_size=1, max_size=12)


@hypothesis.given(
    st.lists(st.builds(ObjectInfo, NAMES, st.integers(0, 20)), max_size=30),
    st.none() | st.text("ab.", max_size=2) | st.lists(st.text("ab."), min_size=1, max_size=3),
    st.none() | st.integers(0, 20),
    st.none() | st.integers(0, 20),
)
def test_a_filter_keeps_what_fits(
    objects: list[ObjectInfo],
    suffix: str | list[str] | None,
    least: int | None,
    most: int | None,
) -> None:
    kept = ObjectIndex.from_objects(objects).filter(
        suffix=suffix, min_size_bytes=least, max_size_bytes=most
    )
    suffixes = ("",) if suffix is None else (suffix,) if isinstance(suffix, str) else tuple(suffix)
    assert list(kept) == [
        info
        for info in objects
        if info.name.endswith(suffixes)
        and (least is None or info.size_bytes >= least)
        and (most is None or info.size_bytes <= most)
    ]


def regex_of(pattern: str) -> str:
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        else:
            one = {"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at]))
            out, at = out + one, at + 1
    return out


@hypothesis.settings(max_examples=500)
@hypothesis.given(st.text("ab/*?ä", max_size=10), st.lists(st.text("ab/ä\n", min_size=1)))
def test_a_glob_is_what_its_description_says(pattern: str, names: list[str]) -> None:
    index = ObjectIndex.from_objects(ObjectInfo(name, 0) for name in names)
    expected = re.compile(regex_of(pattern), re.DOTALL)
    kept = [info.name for info in index.filter(glob=pattern)]
    assert kept == [name for name in names if expected.fullmatch(name)]


def test_filters_that_make_no_sense_are_refused() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=r"'a\[b' has a '\[' without its '\]'"):
        numbered(3).filter(glob="a[b")
    with pytest.raises(headrace.InvalidArgumentError, match="empty"):
        numbered(3).filter(suffix=[])
    with pytest.raises(TypeError):
        numbered(3).filter(min_size_bytes=-1)
    for suffix in (b".jpg", [b".jpg"], "\ud800", 5):
        with pytest.raises(TypeError):
            numbered(3).filter(suffix=suffix)  # type: ignore[arg-type]


def test_a_name_that_is_no_unicode_text_is_refused() -> None:
    for name in ("\ud800", b"name", None):
        with pytest.raises(TypeError):
            ObjectInfo(name, 1)  # type: ignore[arg-type]


# ---- it is made by listing


def test_a_store_lists_into_an_index(store: headrace.Store) -> None:
    for name in ("b", "a/2", "a/1", "ä"):
        store.write(name, name.encode())
    index = store.index()
    # What reading needs, and no more: the rest would be half of a listing's bytes.
    assert [(info.name, info.size_bytes, info.generation, info.crc32c) for info in index] == [
        (info.name, info.size_bytes, info.generation, info.crc32c) for info in store.list()
    ]
    assert [index.url(i) for i in range(4)] == [store.url_of(info.name) for info in store.list()]
    some = store.index("a/")
    assert names(some) == ["a/1", "a/2"]
    assert some[1:].roots == some.roots == index.roots
    assert store.index("none").roots == index.roots
    assert len(store.index("none")) == 0


# ---- it is kept for another day


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(LISTS)
def test_a_saved_index_is_read_back(tmp_path: Path, objects: list[ObjectInfo]) -> None:
    index = ObjectIndex.from_objects(objects, root="gs://bucket/train/")
    for url in (tmp_path / "a.index", f"file://{tmp_path}/a.index"):
        written = index.save(url)
        assert written.name == "a.index"
        again = ObjectIndex.load(url)
        assert again == index
        assert list(again) == objects
        assert again.roots == ("gs://bucket/train",)


@pytest.mark.parametrize("kind", ["list", "generator", "view", "array", "scalars", "tensor"])
def test_booleans_stay_booleans_wherever_an_index_goes(tmp_path: Path, kind: str) -> None:
    given: Any = [True, False, True]
    if kind == "generator":
        given = iter(given)
    elif kind == "view":
        given = memoryview(bytearray([1, 0, 2])).cast("?")
    elif kind == "array":
        given = pytest.importorskip("numpy").array(given)
    elif kind == "scalars":
        given = list(pytest.importorskip("numpy").array(given))
    elif kind == "tensor":
        given = pytest.importorskip("torch").tensor(given)
    index = numbered(3).with_columns({"is_new": given})
    index.save(tmp_path / "a.index")
    for each in (
        index,
        ObjectIndex.load(tmp_path / "a.index"),
        pickle.loads(pickle.dumps(index)),
        index[:2] + index[2:],
        index.select([2, 1, 0]),
        index.with_columns({"is_new": index.column("is_new")}),
    ):
        values = each.column("is_new")
        assert isinstance(values, memoryview)
        assert (values.format, values.tolist()) == ("?", [True, False, True])
    assert index.column("is_new", [1]).tolist() == [False]


def test_booleans_among_numbers_become_numbers() -> None:
    true, false = pytest.importorskip("numpy").array([True, False])
    for given in ([True, 2, False], [true, 2, false]):
        assert numbered(3).with_columns({"n": given}).column("n").tolist() == [1, 2, 0]
    assert numbered(2).with_columns({"n": [True, 0.5]}).column("n").tolist() == [1.0, 0.5]
    with pytest.raises(headrace.InvalidArgumentError, match="all bool, all int"):
        numbered(2).with_columns({"n": [True, "x"]})


def test_a_saved_index_may_lie_in_the_bucket(gcs: headrace.Store, server: FaultServer) -> None:
    put(gcs, "train/a", "train/b")
    index = gcs.index("train/")
    index.save("gs://bucket/indexes/train", endpoint=server.url)
    server.reset(keep_buckets=True)
    again = ObjectIndex.load("gs://bucket/indexes/train", endpoint=server.url)
    assert again == index
    assert server.stats()["by_kind"] == {"media": 1}  # nothing is listed


def test_a_saved_index_stands_beside_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbered(5).save("a.index")
    assert ObjectIndex.load("a.index") == ObjectIndex.load(tmp_path / "a.index") == numbered(5)


def test_objects_that_changed_after_the_index_was_saved_are_noticed(
    gcs: headrace.Store, tmp_path: Path
) -> None:
    put(gcs, "a", "b", "c")
    gcs.index().save(tmp_path / "index")
    gcs.write("b", b"other")
    gcs.delete("c")
    index = ObjectIndex.load(tmp_path / "index")
    a, b, c = gcs._handle().start_indexed(index, range(3)).take(return_errors=True)
    assert a.bytes() == b"a"
    assert isinstance(b, headrace.PreconditionFailedError)
    assert isinstance(c, headrace.NotFoundError | headrace.PreconditionFailedError)


def test_a_saved_index_that_is_cut_or_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "index"
    numbered(1000).save(file)
    good = file.read_bytes()
    for cut in (0, 7, 31, 500, len(good) - 1):
        file.write_bytes(good[:cut])
        with pytest.raises(headrace.CorruptDataError) as caught:
            ObjectIndex.load(file)
        assert caught.value.url == f"file://{file}"
    for at in range(0, len(good), 97):
        changed = bytearray(good)
        changed[at] ^= 0x10
        file.write_bytes(changed)
        with pytest.raises(headrace.CorruptDataError, match="object index"):
            ObjectIndex.load(file)


@pytest.mark.parametrize(
    ("version", "advice"), [(0, "an older one"), (1, "an older one"), (3, "a newer one")]
)
def test_a_saved_index_of_another_version_is_refused_and_says_so(
    tmp_path: Path, version: int, advice: str
) -> None:
    file = tmp_path / "index"
    numbered(10).save(file)
    other = bytearray(file.read_bytes())
    other[8] = version
    file.write_bytes(other)
    message = rf"version {version}; this headrace reads version 2: {advice}"
    with pytest.raises(headrace.CorruptDataError, match=message):
        ObjectIndex.load(file)


def test_what_is_no_saved_index_is_refused(store: headrace.Store, tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(b"\xff\xd8" + bytes(1000))
    with pytest.raises(headrace.CorruptDataError, match="this is no object index"):
        ObjectIndex.load(tmp_path / "photo")
    with pytest.raises(headrace.NotFoundError):
        ObjectIndex.load(tmp_path / "none")
    for url in ("gs://bucket", "gs://bucket/", f"{tmp_path}/"):
        with pytest.raises(headrace.InvalidArgumentError, match="not an object"):
            numbered(1).save(url)


VERSION_1 = """
    484541445249445801000000980e99c365030000000000006200000000000000020000000000000000000000
    0000000012000000000000001200000000000000000000000000000000000000000000001200000000000000
    00000000000000000000000000000000120000000000000001000000000000000c0000000000000014000000
    0000000008000000000000001c00000000000000000000000000000000000000000000001c00000000000000
    000000000000000006000000000000001c00000000000000010000000000000001000000000000001e000000
    0000000001000000000000000500000000000000200000000000000001000000000000000000000000000000
    0000000000000000220000000000000000000000000000002200000000000000000000000000000000000000
    0000000022000000000000000000000000000000000000000000000022000000000000000000000000000000
    0000000000000000220000000000000001000000000000000000000000000000240000000000000000000000
    0000000000000000000000802400000000000000000000000000000000000000000000002400000000000000
    000000000000000001000000000000000100000000000000240000000000000009000000000000002d000000
    00000000000000000000000000000000000000002d0000000000000000000000000000000900000000000000
    2d00000000000000000000000000000000000000000000002d00000000000000000000000000000000000000
    0000000001000000000000002d0000000000000000000000000000002d000000000000000000000000000000
    00000000000000002d00000000000000000000000000000000000000000000002d0000000000000000000000
    0000000000000000000000002d00000000000000000000000000000000000000000000000100000000000000
    2d0000000000000000000000000000002d00000000000000000000000000000000000000000000002d000000
    00000000000000000000000000000000000000002d0000000000000000000000000000000000000000000000
    2d000000000000000000000000000000000000000000000067733a2f2f6275636b65742f747261696e2f0006
    747261696e2f61620001000112000800696d6167652f706e670000000000000000
"""


def test_a_saved_index_of_version_1_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(bytes.fromhex(VERSION_1))
    with pytest.raises(headrace.CorruptDataError, match="has version 1; this headrace reads"):
        ObjectIndex.load(tmp_path / "index")


def with_every_feature() -> ObjectIndex:
    whole = ObjectIndex.from_objects(
        [
            ObjectInfo("a", 5, "17", 7, content_type="image/png", metageneration=1),
            ObjectInfo("b", None, "v-1"),
        ],
        root="gs://bucket/train",
        columns={"label": [3, -4], "weight": [0.5, 2.0], "text": ["x", "ÿ"], "raw": [b"", b"\xff"]},
    )
    ranges = ObjectIndex.from_names(
        ["s"] * 4,
        root="file:///data",
        sizes_bytes=[100] * 4,
        begins=[0, 10, 20, 50],
        ends=[10, 20, 30, 90],
        checksums=[bytes([i]) * 32 for i in range(4)],
        checksum_kind="sha256",
        columns={"label": range(4), "weight": [1.0] * 4, "text": ["x"] * 4, "raw": [b"r"] * 4},
    )
    return whole + ranges


VERSION_2 = """
    484541445249445802000000b2ab84ce7507000000000000ba0000000000000006000000000000000200000000000000
    030000000000000000000000000000001d000000000000001d0000000000000000000000000000000000000000000000
    1d00000000000000000000000000000000000000000000001d0000000000000001000000000000001100000000000000
    1f0000000000000001000000000000000000000000000000220000000000000003000000000000002500000000000000
    000000000000000000000000000000002500000000000000000000000000000000000000000000002500000000000000
    010000000000000001000000000000002800000000000000010000000000000000000000000000002b00000000000000
    0100000000000000000000000000000001000000000000002e0000000000000003000000000000003100000000000000
    000000000000000000000000000000003100000000000000000000000000000000000000000000003100000000000000
    010000000000000000000000000000003400000000000000010000000000000000000000000000003700000000000000
    0100000000000000000000000000000000000000000000003a0000000000000000000000000000003a00000000000000
    000000000000000000000000000000803a00000000000000000000000000000000000000000000003a00000000000000
    0100000000000000000000000000000002000000000000003d0000000000000009000000000000004600000000000000
    000000000000000000000000000000004600000000000000000000000000000000000000000000004600000000000000
    000000000000000009000000000000004600000000000000010000000000000000000000000000000100000000000000
    490000000000000000000000000000004900000000000000000000000000000000000000000000004900000000000000
    000000000000000000000000000000004900000000000000000000000000000000000000000000004900000000000000
    000000000000000000000000000000000100000000000000490000000000000000000000000000004900000000000000
    000000000000000000000000000000004900000000000000000000000000000000000000000000004900000000000000
    000000000000000000000000000000004900000000000000000000000000000000000000000000000100000000000000
    06000000000000004900000000000000010000000000000000000000000000004f000000000000000000000000000000
    00000000000000004f000000000000000100000000000000000000000000000055000000000000000100000000000000
    00000000000000005b00000000000000000000000000000000000000000000005b000000000000000100000000000000
    000000000000000061000000000000000000000000000000000000000000000001000000000000006100000000000000
    200000000000000004000000000000002101000000000000120000000000000033010000000000000000000000000000
    000000000000000033010000000000000000000000000000000000000000000033010000000000000100000000000000
    0500000000000000000000000000000037010000000000000100000000000000fcffffffffffff7f0100000000000000
    3d010000000000000700000000000000000000000000e03f020000000000000001000000000000000200000000000000
    670100000000000003000000000000006a01000000000000000000000000000000000000000000006a01000000000000
    000000000000000000000000000000006a01000000000000010000000000000001000000000000006c01000000000000
    010000000000000000000000000000000300000000000000000000000000000072010000000000000500000000000000
    770100000000000000000000000000000000000000000000770100000000000000000000000000000000000000000000
    770100000000000001000000000000000000000000000000000000000000000067733a2f2f6275636b65742f74726169
    6e66696c653a2f2f2f64617461000c000001616273000102060065120000762d31000303020000070000010000696d61
    67652f706e670001010001020202020000000a143200000b0b0b29000005050505000000000000000000000000000000
    000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
    000000000000000000000000000000000000000000000000000000000000000000010101010101010101010101010101
    010101010101010101010101010101010102020202020202020202020202020202020202020202020202020202020202
    0203030303030303030303030303030303030303030303030303030303030303036c6162656c77656967687474657874
    72617700060a0d0700040506070000000000000000000000000020000000000000100000000000001000000000000010
    0000000000001078c3bf0002000100000000ff727272720001020304050000000000000000
"""


# What is saved today must be read for ever.
def test_a_saved_index_of_version_2_is_read(tmp_path: Path) -> None:
    image = bytes.fromhex(VERSION_2)
    (tmp_path / "index").write_bytes(image)
    index = ObjectIndex.load(tmp_path / "index")
    assert index == with_every_feature()
    index.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == image


# ---- the order of an epoch


@hypothesis.given(st.integers(0, 3000), UINT64, UINT64, st.booleans())
def test_an_order_is_a_permutation(count: int, seed: int, epoch: int, shuffle: bool) -> None:
    order = Order(count, seed, epoch, shuffle)
    assert len(order) == count
    indices = list(order.indices(0, count))
    assert sorted(indices) == list(range(count))
    assert indices == [order[i] for i in range(count)]
    if not shuffle:
        assert indices == list(range(count))
    half = count // 2
    assert [*order.indices(0, half), *order.indices(half, count)] == indices


def test_an_order_differs_between_seeds_and_epochs() -> None:
    def first(count: int, seed: int, epoch: int) -> list[int]:
        return list(Order(count, seed, epoch, True).indices(0, 20))

    for count in (1000, 100_000):
        seen = {tuple(first(count, seed, epoch)) for seed in range(20) for epoch in range(20)}
        assert len(seen) == 400
        assert first(count, 7, 3) == first(count, 7, 3)


# The same algorithm, written a second time.
def expected_order(count: int, seed: int, epoch: int) -> list[int]:
    word, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mixed(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & word
        x = (x ^ x >> 27) * 0x94D049BB133111EB & word
        return x ^ x >> 31

    state = mixed(seed + golden & word)
    state = mixed((state ^ epoch) + golden & word)
    state = mixed((state ^ count) + golden & word)

    def draw() -> int:
        nonlocal state
        state = state + golden & word
        return mixed(state)

    if count <= 1024:
        table = list(range(count))
        for i in range(count - 1, 0, -1):
            while True:
                product = (draw() >> 32) * (i + 1)
                if product % 2**32 >= 2**32 % (i + 1):
                    break
            j = product >> 32
            table[i], table[j] = table[j], table[i]
        return table
    keys = [draw() for _ in range(8)]
    bits = (count - 1).bit_length()
    left_bits, right_bits = bits // 2, bits - bits // 2

    def round_bits(half: int, key: int, width: int) -> int:
        x = (half ^ key) * 0x9FB21C651E98DF25 & word
        x = (x ^ x >> 32) * 0x9FB21C651E98DF25 & word
        return (x >> 32) % 2**width

    def permuted(block: int) -> int:
        left, right = block >> right_bits, block % 2**right_bits
        for i in range(0, 8, 2):
            left ^= round_bits(right, keys[i], left_bits)
            right ^= round_bits(left, keys[i + 1], right_bits)
        return left << right_bits | right

    out = []
    for position in range(count):
        index = permuted(position)
        while index >= count:
            index = permuted(index)
        out.append(index)
    return out


@hypothesis.given(st.integers(2, 3000), UINT64, UINT64)
def test_an_order_is_what_its_description_says(count: int, seed: int, epoch: int) -> None:
    assert list(Order(count, seed, epoch, True).indices(0, count)) == expected_order(
        count, seed, epoch
    )


def test_an_order_goes_to_numpy_and_torch_as_it_is() -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    indices = Order(5000, 7, 0, True).indices(10, 20)
    assert (indices.format, indices.itemsize, indices.ndim) == ("q", 8, 1)
    assert numpy.asarray(indices).tolist() == list(indices)
    assert torch.frombuffer(indices, dtype=torch.int64).tolist() == list(indices)
    assert len(Order(5000, 7, 0, True).indices(10, 10)) == 0


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (3, 2), (0, 11), (11, 11)])
def test_misplaced_positions_of_an_order_are_refused(begin: int, end: int) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="of an order of 10"):
        Order(10, 0, 0, True).indices(begin, end)


def test_orders_that_cannot_be_are_refused() -> None:
    with pytest.raises(IndexError):
        Order(10, 0, 0, True)[10]
    with pytest.raises(ValueError, match="2\\^63"):
        Order(2**63, 0, 0, True)
    for count, seed, epoch in ((-1, 0, 0), (1, -1, 0), (1, 0, 2**64)):
        with pytest.raises(TypeError):
            Order(count, seed, epoch, True)
