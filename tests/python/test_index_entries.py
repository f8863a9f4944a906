"""Entries of an `ObjectIndex`: found by name, below several roots, as ranges, with columns."""

from __future__ import annotations

import array
import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from headrace import ObjectIndex, ObjectInfo, _engine
from testing.faultserver.client import FaultServer

NAMES = st.lists(st.text(min_size=1, max_size=20), max_size=30)
ROOTS = ["gs://a", "gs://b/train", "s3://c/x/y", "file:///data"]


def crc32c(data: bytes) -> int:
    return _engine.crc32c(data)


def reader(index: ObjectIndex, *stores: headrace.Store) -> _engine.IndexReader:
    return _engine.IndexReader(index, [store._handle() for store in stores])


# ---- names and numbers


@hypothesis.given(NAMES)
def test_every_name_leads_back_to_its_entry(names: list[str]) -> None:
    index = ObjectIndex.from_names(names, root="gs://bucket/train")
    for name in names:
        first = names.index(name)
        assert index.position(name) == index.position(f"gs://bucket/train/{name}") == first
        assert name in index
        assert index.name(first) == name
        assert index.url(first) == f"gs://bucket/train/{name}"


@hypothesis.given(st.lists(st.tuples(st.sampled_from(ROOTS), st.sampled_from("abcd")), max_size=12))
def test_a_name_below_several_roots_is_asked_for_by_its_url(rows: list[tuple[str, str]]) -> None:
    urls = [f"{root}/{name}" for root, name in rows]
    index = ObjectIndex.from_urls(urls, roots=ROOTS)
    for url, (_, name) in zip(urls, rows, strict=True):
        assert index.position(url) == urls.index(url)
        with_name = dict.fromkeys(f"{root}/{name}" for root, other in rows if other == name)
        if len(with_name) == 1:
            assert index.position(name) == urls.index(url)
        else:
            with pytest.raises(headrace.InvalidArgumentError) as caught:
                index.position(name)
            assert ", ".join(with_name) in str(caught.value)
            assert f"the name of {len(with_name)} objects" in str(caught.value)
            assert name in index


def test_a_name_that_is_not_there_is_not_found() -> None:
    index = ObjectIndex.from_names(["a", "b"], root="gs://bucket/train")
    message = r"'c' is not in this index of 2 entries; names are relative to gs://bucket/train"
    with pytest.raises(headrace.NotFoundError, match=message):
        index.position("c")
    for name in ("", "gs://bucket/train/", "gs://bucket/train/c", "gs://bucket/a", "train/a"):
        with pytest.raises(headrace.NotFoundError):
            index.position(name)
        assert name not in index
    assert "\ud800" not in index
    assert 5 not in index
    for wrong in (5, None, b"a"):
        with pytest.raises(TypeError, match="a name or a URL is a str"):
            index.position(wrong)  # type: ignore[arg-type]


def test_an_object_info_is_in_the_index_that_tells_it() -> None:
    index = ObjectIndex.from_objects([ObjectInfo("a", 5, "1")])
    assert ObjectInfo("a", 5, "1") in index
    assert ObjectInfo("a", 5, "2") not in index
    assert ObjectInfo("b", 5, "1") not in index


def test_threads_that_ask_at_the_same_time_are_told_the_same() -> None:
    index = ObjectIndex.from_names([f"{i:06}" for i in range(50_000)])
    told: list[list[int]] = []

    def ask() -> None:
        told.append([index.position(f"{i:06}") for i in range(0, 50_000, 97)])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [list(range(0, 50_000, 97))] * 4


def test_without_a_root_there_is_no_url() -> None:
    index = ObjectIndex.from_names(["a"])
    assert index.roots == ("",)
    with pytest.raises(headrace.InvalidArgumentError, match=r"index.at\(url\)"):
        index.url(0)
    assert index.at("gs://bucket").url(0) == "gs://bucket/a"


# ---- made of names and URLs


def test_urls_lie_below_their_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    index = ObjectIndex.from_urls(["gs://a/x/1", "gcs://a/2", "s3://a/x/1", "/d/1", "e/./1"])
    assert index.roots == ("gs://a", "s3://a", "file:///")
    assert [index.name(i) for i in range(4)] == ["x/1", "2", "x/1", "d/1"]
    assert index.url(4) == f"file://{tmp_path}/e/1"


def test_urls_lie_below_the_nearest_root_that_is_given() -> None:
    index = ObjectIndex.from_urls(
        ["gs://a/x/1", "gs://a/x/y/1", "gs://a/xy/1"], roots=["gs://a/x/", "gs://a/x/y"]
    )
    assert index.roots == ("gs://a/x", "gs://a/x/y", "gs://a")
    assert [index.name(i) for i in range(3)] == ["1", "1", "xy/1"]


def test_what_is_told_of_each_name_is_kept() -> None:
    index = ObjectIndex.from_names(
        ["a", "b", "c"],
        sizes_bytes=[5, None, -1],
        generations=["7", None, "etag"],
        checksums=[1, None, b"\0\0\0\2"],
    )
    assert [info.size_bytes for info in index] == [5, None, None]
    assert [info.generation for info in index] == ["7", "", "etag"]
    assert [info.crc32c for info in index] == [1, None, 2]
    assert [index.checksum(i) for i in range(3)] == [
        ("crc32c", b"\0\0\0\1"),
        None,
        ("crc32c", b"\0\0\0\2"),
    ]
    assert list(index.sizes(range(3))) == [5, -1, -1]
    assert (index.sum_bytes(range(3)), index.sum_bytes(range(3), 10)) == (5, 25)
    assert index.total_size_bytes is None
    assert index.common_size_bytes is None
    assert repr(index) == "<headrace.ObjectIndex of 3 objects>"
    assert [index.name(0)] == [info.name for info in index.filter(min_size_bytes=1)]


@pytest.mark.parametrize(
    ("kind", "size"),
    [("crc32", 4), ("crc64nvme", 8), ("md5", 16), ("sha1", 20), ("sha256", 32), ("xxh64", 8)],
)
def test_checksums_of_other_kinds_are_kept(kind: str, size: int) -> None:
    values = [bytes([i]) * size for i in range(3)]
    index = ObjectIndex.from_names(["a", "b", "c"], checksums=values, checksum_kind=kind)
    again = pickle.loads(pickle.dumps(index[::-1]))
    assert [again.checksum(i) for i in range(3)] == [(kind, value) for value in values[::-1]]
    assert again[0].crc32c is None


def test_long_generations_are_kept(tmp_path: Path) -> None:
    generations = ["x" * 1024, '"etag-1"', "12345678901234567890123456789"]
    ObjectIndex.from_names(["a", "b", "c"], generations=generations).save(tmp_path / "index")
    assert [info.generation for info in ObjectIndex.load(tmp_path / "index")] == generations


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ObjectIndex.from_names(["a"], sizes_bytes=[1, 2]), "sizes_bytes has 2 values"),
        (lambda: ObjectIndex.from_names(["a"], generations=[7]), "must be a str or None"),
        (lambda: ObjectIndex.from_names(["a"], begins=[5], ends=[4]), "lies outside"),
        (
            lambda: ObjectIndex.from_names(["a"], sizes_bytes=[9], begins=[0], ends=[10]),
            r"\[0, 10\) lies outside of the object, which has 9 bytes",
        ),
        (lambda: ObjectIndex.from_names(["a"], begins=[5]), "give its end or its size"),
        (lambda: ObjectIndex.from_names(["a"], begins=[-5]), "value 0 of begins is -5"),
        (lambda: ObjectIndex.from_names(["a"], begins=[2], ends=[-3]), "value 0 of ends is -3"),
        (
            lambda: ObjectIndex.from_names(["a"] * 2, sizes_bytes=array.array("q", [-1, -9])),
            "value 1 of sizes_bytes is -9; if it is not known, it is None or -1",
        ),
        (lambda: ObjectIndex.from_urls(["gs://b/a", "gs://b/x\0y"]), "cannot contain a NUL byte"),
        (lambda: ObjectIndex.from_names(["a"], checksums=[b"abc"]), "a crc32c has 4"),
        (lambda: ObjectIndex.from_names(["a"], checksums=[2**32]), "a crc32c is an int or 4"),
        (lambda: ObjectIndex.from_names(["a"], checksum_kind="sum"), "must be crc32c, crc32"),
        (lambda: ObjectIndex.from_names(["a", 5]), "name 1 is 5; it must be a str"),
        (lambda: ObjectIndex.from_names(["a", ""]), "must not be empty"),
        (lambda: ObjectIndex.from_names("ab"), "one for each entry is needed"),
        (lambda: ObjectIndex.from_names(["a"], root="ftp://x"), "unknown scheme"),
        (lambda: ObjectIndex.from_urls(["gs://bucket/"]), "names no object"),
        (lambda: ObjectIndex.from_urls(["ftp://x/y"]), "unknown scheme"),
        (lambda: ObjectIndex.from_names(["a"], columns={"x": [1, 2]}), "'x' has 2 values for 1"),
        (lambda: ObjectIndex.from_names(["a"], columns={"": [1]}), "name must not be empty"),
    ],
)
def test_what_cannot_be_an_index_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        make()


# ---- columns


COLUMNS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=5),
    st.lists(st.floats(allow_nan=False), min_size=5, max_size=5),
    st.lists(st.text(max_size=5), min_size=5, max_size=5),
    st.lists(st.binary(max_size=5), min_size=5, max_size=5),
)


@hypothesis.given(st.dictionaries(st.text(min_size=1, max_size=5), COLUMNS, max_size=4), st.data())
def test_columns_go_where_their_entries_go(
    columns: dict[str, list[Any]], data: st.DataObject
) -> None:
    index = ObjectIndex.from_names(list("abcde"), columns=columns)
    assert index.columns == tuple(columns)
    wanted = data.draw(st.lists(st.integers(-5, 4), max_size=9))
    again = pickle.loads(pickle.dumps(index.select(wanted)))
    both = index + again
    for name, values in columns.items():
        picked = [values[i] for i in wanted]
        assert list(index.column(name)) == values
        assert list(index.column(name, wanted)) == picked
        assert list(again.column(name)) == picked
        assert list(both.column(name)) == values + picked
        assert list(index[1:4].column(name)) == values[1:4]


def test_numbers_of_a_column_go_to_numpy_as_they_are() -> None:
    numpy = pytest.importorskip("numpy")
    for dtype, kept in (
        ("bool", "bool"),
        ("uint8", "int64"),
        ("int32", "int64"),
        ("uint64", "int64"),
        ("float32", "float64"),
        ("float64", "float64"),
    ):
        given = numpy.arange(10).astype(dtype)
        index = ObjectIndex.from_names(list("abcde"), columns={"x": given[::2]})
        found = numpy.asarray(index.column("x"))
        assert found.dtype == kept
        assert found.tolist() == given[::2].tolist()
    texts = numpy.array(["x", "yy"])
    assert ObjectIndex.from_names(["a", "b"], columns={"t": texts}).column("t") == ["x", "yy"]
    assert list(
        ObjectIndex.from_names(["a"], columns={"x": array.array("i", [-5])}).column("x")
    ) == [-5]


def test_columns_are_added_replaced_and_taken_out() -> None:
    index = ObjectIndex.from_names(["a", "b"], columns={"x": [1, 2], "y": ["p", "q"]})
    changed = index.with_columns({"x": [0.5, 1], "z": [b"", b"z"], "y": None})
    assert changed.columns == ("x", "z")
    assert list(changed.column("x")) == [0.5, 1.0]
    assert changed.column("z") == [b"", b"z"]
    assert index.columns == ("x", "y")
    assert changed.fingerprint == index.fingerprint


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", 5], "value 1 of the column 'x' is 5, and those before it are str"),
        ([1, "a"], "value 1 of the column 'x' is 'a'; a column's values are all bool, all int"),
        ([1, None], "value 1 of the column 'x' is None"),
        ([b"a", "a"], "those before it are bytes"),
        ([2**63, 1], "more than int64 has"),
        ("ab", "one for each entry is needed"),
        ([1, 2, 3], "has 3 values for 2 entries"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(values: Any, message: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        ObjectIndex.from_names(["a", "b"]).with_columns({"x": values})


def test_a_column_that_is_not_there_is_refused() -> None:
    index = ObjectIndex.from_names(["a"], columns={"label": [1]})
    with pytest.raises(headrace.InvalidArgumentError, match="no column 'labels'; it has label"):
        index.column("labels")
    with pytest.raises(IndexError):
        index.column("label", [1])
    with pytest.raises(headrace.InvalidArgumentError, match="has no column 'label'"):
        index + ObjectIndex.from_names(["b"])
    with pytest.raises(TypeError):
        index + ["a"]  # type: ignore[operator]
    with pytest.raises(TypeError, match="an ObjectIndex is needed"):
        ObjectIndex.concat([index, "a"])  # type: ignore[list-item]


# ---- at other roots


@hypothesis.given(NAMES, NAMES)
def test_joined_indexes_have_the_entries_of_both(one: list[str], other: list[str]) -> None:
    first = ObjectIndex.from_names(one, root="gs://a")
    second = ObjectIndex.from_names(other, root="gs://b/x")
    both = first + second
    urls = [f"gs://a/{name}" for name in one] + [f"gs://b/x/{name}" for name in other]
    assert [both.url(i) for i in range(len(both))] == urls
    assert ObjectIndex.concat([first, second]) == both
    assert list(both[len(one) :]) == list(second)
    assert both.at({"gs://b/x": "gs://c"})[len(one) :] == second.at("gs://c") or not other


@hypothesis.given(NAMES)
def test_the_same_entries_at_another_root_have_the_same_fingerprint(names: list[str]) -> None:
    index = ObjectIndex.from_names(
        names, root="gs://a/x", generations=["7"] * len(names), checksums=range(len(names))
    )
    moved = index.at("file:///data/")
    assert moved.roots == ("file:///data",)
    assert [info.name for info in moved] == names
    assert moved.fingerprint == index.fingerprint
    assert {info.generation for info in moved} <= {""}
    kept = index.at("gs://b", keep_generations=True)
    assert {info.generation for info in kept} <= {"7"}


@hypothesis.given(NAMES)
def test_a_rebased_index_has_the_same_urls(names: list[str]) -> None:
    index = ObjectIndex.from_names(names, root="gs://a/x/y", generations=["7"] * len(names))
    assert index.rebased("gs://a/x/y/") is index
    wider = index.rebased("gs://a")
    assert [info.name for info in wider] == [f"x/y/{name}" for name in names]
    assert {info.generation for info in wider} <= {"7"}
    assert wider.rebased("gs://a/x/y") == index
    both = index + ObjectIndex.from_names(["z"], root="gs://a/x")
    together = both.rebased("gs://a/x")
    assert together.roots == ("gs://a/x",)
    assert [together.url(i) for i in range(len(both))] == [both.url(i) for i in range(len(both))]


def test_entries_outside_of_a_root_are_counted() -> None:
    index = ObjectIndex.from_names(["x/1", "x/2", "y/1", "xy"], root="gs://a")
    message = (
        r"2 of the 4 entries of the index lie outside of gs://a/x, such as gs://a/y/1: .*"
        "select those that lie inside"
    )
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        index.rebased("gs://a/x")
    assert index.filter(prefix="x/").rebased("gs://a/x").name(1) == "2"


def test_another_bucket_is_not_taken_for_the_same() -> None:
    index = ObjectIndex.from_names(["1"], root="gs://a/x")
    for url in ("gs://b/x", "s3://a/x", "/a/x"):
        with pytest.raises(headrace.InvalidArgumentError, match=r"index.at\("):
            index.rebased(url)
    two = index + ObjectIndex.from_names(["1"], root="gs://b")
    with pytest.raises(headrace.InvalidArgumentError, match=r"2 roots, gs://a/x, gs://b: at\({"):
        two.at("gs://c")
    with pytest.raises(headrace.InvalidArgumentError, match="gs://c is no root of this index"):
        two.at({"gs://c": "gs://d"})


# ---- filters


def test_a_filter_takes_a_prefix() -> None:
    index = ObjectIndex.from_names(["cat/1", "cats/1", "dog/1", "cat/2"])
    assert [info.name for info in index.filter(prefix="cat/")] == ["cat/1", "cat/2"]
    assert [info.name for info in index.filter(prefix="cat", suffix="1")] == ["cat/1", "cats/1"]


def test_a_filter_says_what_it_takes() -> None:
    index = ObjectIndex.from_names(["a"])
    known = "prefix=, suffix=, glob=, min_size_bytes=, max_size_bytes= and leave_out="
    with pytest.raises(TypeError, match=rf"filter\(\) has no argument name=; it has {known}"):
        index.filter(name="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=rf"filter\(\) takes keywords only: {known}"):
        index.filter("*.jpg")  # type: ignore[misc]
    for wanted in ({"min_size_bytes": "5"}, {"max_size_bytes": -1}, {"prefix": 5}, {"glob": b"*"}):
        with pytest.raises(TypeError, match=rf"`{next(iter(wanted))}` is "):
            index.filter(**wanted)  # type: ignore[arg-type]


# ---- reading


def test_ranges_are_read_and_their_checksums_compared(store: headrace.Store) -> None:
    data = bytes(range(256)) * 40
    store.write("shard", data)
    bounds = [(0, 10), (10, 4096), (5000, 5000), (9000, 10_240)]
    sums = [crc32c(data[begin:end]) for begin, end in bounds]
    info = store.stat("shard")

    def index_with(checksums: list[int | None]) -> ObjectIndex:
        return ObjectIndex.from_names(
            ["shard"] * 4,
            root=store.url_of(""),
            sizes_bytes=[info.size_bytes] * 4,
            generations=[info.generation] * 4,
            begins=[begin for begin, _ in bounds],
            ends=[end for _, end in bounds],
            checksums=checksums,
        )

    index = index_with(list(sums))
    assert [index.range(i) for i in range(4)] == bounds
    assert [index.size_bytes(i) for i in range(4)] == [end - begin for begin, end in bounds]
    samples = reader(index, store).start([3, 0, 1, 2]).take(return_errors=False)
    assert [s.bytes() for s in samples] == [data[b:e] for b, e in (bounds[i] for i in (3, 0, 1, 2))]
    assert [(s.name, s.index) for s in samples] == [("shard", i) for i in (3, 0, 1, 2)]
    into = bytearray(index.sum_bytes(range(4)))
    reader(index, store).start(range(4), into).wait()
    assert bytes(into) == b"".join(data[begin:end] for begin, end in bounds)

    wrong = index_with([sums[0], sums[1] ^ 1, sums[2], None])
    first, second, third, fourth = reader(wrong, store).start(range(4)).take(return_errors=True)
    assert [first.bytes(), third.bytes()] == [data[:10], b""]  # type: ignore[union-attr]
    assert isinstance(second, headrace.CorruptDataError)
    assert "CRC32C" in str(second)
    assert fourth.bytes() == data[9000:]  # type: ignore[union-attr]


def test_a_large_range_is_verified_over_all_its_pieces(
    server: FaultServer, gcs: headrace.Store
) -> None:
    small = gcs._derived(
        parallel=headrace.ParallelOptions(range_threshold_bytes=1000, range_bytes=64 << 10)
    )
    data = bytes(range(250)) * 1000
    gcs.write("o", data)
    for sum_of, fails in ((crc32c(data[100:200_000]), False), (7, True)):
        index = ObjectIndex.from_names(
            ["o"],
            root="gs://bucket",
            sizes_bytes=[len(data)],
            generations=[gcs.stat("o").generation],
            begins=[100],
            ends=[200_000],
            checksums=[sum_of],
        )
        [found] = reader(index, small).start([0]).take(return_errors=True)
        if fails:
            assert isinstance(found, headrace.CorruptDataError)
        else:
            assert found.bytes() == data[100:200_000]  # type: ignore[union-attr]


def test_objects_without_a_size_are_read(store: headrace.Store) -> None:
    for i in range(5):
        store.write(f"{i}", bytes([i]) * i * 1000)
    index = ObjectIndex.from_names([f"{i}" for i in range(5)], root=store.url_of(""))
    samples = reader(index, store).start(range(5)).take(return_errors=False)
    assert [s.bytes() for s in samples] == [bytes([i]) * i * 1000 for i in range(5)]
    with pytest.raises(headrace.InvalidArgumentError, match="its size is not known"):
        reader(index, store).start(range(5), bytearray(10_000))
    infos = [ObjectInfo(f"{i}") for i in range(5)]
    assert [s.bytes() for s in store.read_many(infos)] == [s.bytes() for s in samples]
    assert infos[0].size_bytes is None
    assert pickle.loads(pickle.dumps(infos[0])) == infos[0]
    [batch] = store.read_batches([infos])
    assert [s.bytes() for s in batch] == [s.bytes() for s in samples]


@pytest.fixture
def three_stores(
    tmp_path: Path, server: FaultServer
) -> tuple[ObjectIndex, list[headrace.Store], list[bytes]]:
    """Entries that lie in two buckets and a directory, by turns."""
    stores = [headrace.Store(tmp_path / "here")]
    for bucket in ("one", "two"):
        server.bucket(bucket)
        stores.append(headrace.Store(f"gs://{bucket}", endpoint=server.url))
    contents = []
    for at, store in enumerate(stores):
        for i in range(10):
            contents.append(bytes([at, i]) * (i * 100 + at))
            store.write(f"n{i}", contents[-1])
    index = ObjectIndex.concat([store.index() for store in stores])
    order = [i * 7 % 30 for i in range(30)]
    return index.select(order), stores, [contents[i] for i in order]


def by_store(index: ObjectIndex, stores: list[headrace.Store]) -> list[headrace.Store]:
    of_root = {store.url_of("").rstrip("/"): store for store in stores}
    return [of_root[root] for root in index.roots]


def by_root(index: ObjectIndex, stores: list[headrace.Store]) -> _engine.IndexReader:
    return reader(index, *by_store(index, stores))


def test_one_batch_reads_from_several_stores(
    three_stores: tuple[ObjectIndex, list[headrace.Store], list[bytes]],
) -> None:
    index, stores, contents = three_stores
    assert len(index.roots) == 3
    readers = by_root(index, stores)
    samples = readers.start(range(30)).take(return_errors=False)
    assert [s.bytes() for s in samples] == contents
    assert [(s.name, s.url, s.index) for s in samples] == [
        (index.name(i), index.url(i), i) for i in range(30)
    ]
    assert [s.generation for s in samples] == [info.generation for info in index]
    into = bytearray(sum(map(len, contents)))
    batch = readers.start(range(30), into)
    batch.wait()
    assert bytes(into) == b"".join(contents)
    assert readers.start([]).take(return_errors=False) == []
    assert readers.useful_in_flight > 0
    assert readers.expected_object_bytes > 0


def test_what_fails_in_one_of_several_stores_is_told_in_its_place(
    three_stores: tuple[ObjectIndex, list[headrace.Store], list[bytes]],
) -> None:
    index, stores, contents = three_stores
    stores[1].delete("n3")
    at = index.position("gs://one/n3")
    found = by_root(index, stores).start(range(30)).take(return_errors=True)
    failed = [i for i, each in enumerate(found) if isinstance(each, Exception)]
    assert failed == [at]
    assert found[at].url == "gs://one/n3"
    assert all(found[i].bytes() == contents[i] for i in range(30) if i != at)  # type: ignore[union-attr]


def test_a_batch_of_several_stores_is_cancelled_in_all(
    three_stores: tuple[ObjectIndex, list[headrace.Store], list[bytes]], server: FaultServer
) -> None:
    index, stores, _ = three_stores
    server.faults([{"match": {"kind": "media"}, "action": {"stall_head": True}}])
    batch = by_root(index, stores).start(range(30))
    batch.drain()
    found = batch.take(return_errors=True)
    held = [each for each in found if isinstance(each, headrace.CancelledError)]
    assert {each.url.split("/n")[0] for each in held} >= {"gs://one", "gs://two"}


def test_a_reader_keeps_its_stores_alive(
    three_stores: tuple[ObjectIndex, list[headrace.Store], list[bytes]],
) -> None:
    index, stores, contents = three_stores
    batch = by_root(index, stores).start(range(30))
    stores.clear()
    gc.collect()
    assert [s.bytes() for s in batch.take(return_errors=False)] == contents


def test_a_reader_refuses_stores_that_are_elsewhere(
    three_stores: tuple[ObjectIndex, list[headrace.Store], list[bytes]],
) -> None:
    index, stores, _ = three_stores
    with pytest.raises(headrace.InvalidArgumentError, match="1 stores for an index of 3 roots"):
        reader(index.select(range(30)), by_store(index, stores)[0])
    with pytest.raises(headrace.InvalidArgumentError, match="one store cannot read them all"):
        stores[0]._handle().start_indexed(index, [0])
    ordered = by_store(index, stores)
    with pytest.raises(headrace.InvalidArgumentError, match="root 0 of the index is"):
        reader(index, *ordered[::-1])
    with pytest.raises(TypeError, match="a StoreHandle is needed, not str"):
        _engine.IndexReader(index, ["a", "b", "c"])  # type: ignore[list-item]


def test_a_list_may_change_while_its_values_are_converted() -> None:
    """What an index is made of was taken before."""
    names = [f"name-{i}" for i in range(1000)]

    class Root:
        def __fspath__(self) -> str:
            names.clear()
            gc.collect()
            return "gs://b"

    index = ObjectIndex.from_names(names, root=Root())
    assert not names
    assert [index.name(i) for i in range(len(index))] == [f"name-{i}" for i in range(1000)]

    class Clears:
        def __init__(self, values: list[Any]) -> None:
            self.values = values
            values[0] = self

        def __index__(self) -> int:
            self.values.clear()
            gc.collect()
            return 7

    sizes: list[Any] = [10**6 + i for i in range(1000)]
    Clears(sizes)
    columns: list[Any] = [10**6 + i for i in range(1000)]
    Clears(columns)
    index = ObjectIndex.from_names(
        [f"name-{i}" for i in range(1000)], sizes_bytes=sizes, columns={"x": columns}
    )
    expected = [7, *(10**6 + i for i in range(1, 1000))]
    assert [index.size_bytes(i) for i in range(1000)] == expected
    assert list(index.column("x")) == expected
    positions: list[Any] = list(range(1000))
    Clears(positions)
    assert len(index.select(positions)) == 1000


# ---- ranges in the calls of a store


def ranges_of_ten(store: headrace.Store, *bounds: tuple[int, int]) -> ObjectIndex:
    """Entries of the ten bytes of `ten`."""
    store.write("ten", b"0123456789")
    begins, ends = zip(*bounds, strict=True)
    return ObjectIndex.from_names(["ten"] * len(bounds), root=store.url, begins=begins, ends=ends)


def test_a_store_reads_the_ranges_of_an_index(store: headrace.Store) -> None:
    index = ranges_of_ten(store, (0, 2), (5, 8), (10, 10))
    assert [s.bytes() for s in store.read_many(index)] == [b"01", b"567", b""]
    batches = list(store.read_batches([index, ["ten"], index[1:2]]))
    assert [[s.bytes() for s in batch] for batch in batches] == [
        [b"01", b"567", b""], [b"0123456789"], [b"567"],
    ]  # fmt: skip
    with pytest.raises(headrace.InvalidArgumentError, match=r"use read_ranges\(\)"):
        store.read_many(index, into=[bytearray(2), bytearray(3), bytearray()])
    whole = bytearray(10)
    store.read_many(store.index("ten"), into=[whole])
    assert whole == b"0123456789"


def test_a_range_that_ends_behind_its_object_is_an_error(store: headrace.Store) -> None:
    index = ranges_of_ten(store, (0, 2), (5, 15))
    told = r"/ten: entry 1 of the index is the range \[5, 15\), and only 5 bytes"
    with pytest.raises(headrace.InvalidArgumentError, match=told) as caught:
        store.read_many(index)
    assert caught.value.url == store.url_of("ten")
    first, second = store.read_many(index, on_error="return")
    assert first.bytes() == b"01"  # type: ignore[union-attr]
    assert isinstance(second, headrace.InvalidArgumentError)
    with pytest.raises(headrace.InvalidArgumentError, match=told):
        list(store.read_batches([index]))


def test_an_index_of_several_stores_is_not_read_from_one(
    store: headrace.Store, tmp_path: Path
) -> None:
    other = headrace.Store(tmp_path / "other")
    for each in (store, other):
        each.write("a", b"x")
    with pytest.raises(headrace.InvalidArgumentError, match="one store cannot read them all"):
        store.read_many(store.index() + other.index())


# ---- windows


def test_windows_are_computed_in_every_entry() -> None:
    names, sizes = ["a", "b", "c"], [100, 7, 50]
    index = headrace.ObjectIndex.from_names(names, root="gs://b", sizes_bytes=sizes)
    windows = index.windows(10, 4, begins=[3, None, 0], ends=[None, None, 20])
    expected = [("a", begin) for begin in range(3, 91, 4)] + [("c", 0), ("c", 4), ("c", 8)]
    assert [windows.name(i) for i in range(len(windows))] == [name for name, _ in expected]
    assert [windows.range(i) for i in range(len(windows))] == [
        (begin, begin + 10) for _, begin in expected
    ]
    assert windows.total_size_bytes == 10 * len(expected)
    # Cut, joined, moved: the same ranges, and where nothing is changed the same data.
    assert [windows[5:9].range(i) for i in range(4)] == [windows.range(i) for i in range(5, 9)]
    assert (windows[:5] + windows[5:]).fingerprint == windows.fingerprint
    assert windows.at("gs://copy").fingerprint == windows.fingerprint
    assert windows[::-1].range(0) == windows.range(len(windows) - 1)
    assert len(index.windows(10)) == 15


def test_windows_outside_of_entries_are_refused() -> None:
    index = headrace.ObjectIndex.from_names(["a", "b"], sizes_bytes=[100, 50])
    for arguments, text in (
        ({"window_bytes": 0}, "at least 1"),
        ({"window_bytes": 1, "stride_bytes": 0}, "at least 1"),
        ({"window_bytes": 1, "begins": [0, 51]}, r"the part \[51, 50\)"),
        ({"window_bytes": 1, "ends": [101, 0]}, r"the part \[0, 101\)"),
        ({"window_bytes": 1, "ends": [1]}, "ends has 1 values for 2 entries"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            index.windows(**arguments)  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="its size is not known"):
        headrace.ObjectIndex.from_names(["a"]).windows(1)
    for window in (-1, "1", 1.5):
        with pytest.raises(TypeError, match="window_bytes"):
            index.windows(window)  # type: ignore[arg-type]
    for bad in (-1, -5, True, 1.5, "1", 1 << 64):
        for name in ("begins", "ends"):
            with pytest.raises(TypeError, match=f"`{name}` is "):
                index.windows(1, **{name: [bad, None]})
    for values in (array.array("q", [3, 50]), (3, 50), [3, 50], memoryview(bytes([3, 50]))):
        windows = index.windows(10, begins=values)
        assert [windows.range(i) for i in (0, len(windows) - 1)] == [(3, 13), (83, 93)]
    with pytest.raises(TypeError, match="`begins` is -1"):
        index.windows(1, begins=array.array("q", [-1, 0]))
    with pytest.raises(headrace.InvalidArgumentError, match="the part"):
        index.windows(1, begins=[1 << 63, None])
