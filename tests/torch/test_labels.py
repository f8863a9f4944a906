"""Labels, tables, and several sources as one dataset."""

from __future__ import annotations

import logging
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

import headrace
from headrace import ObjectIndex
from headrace.torch import Loader, MapDataset
from testing.faultserver.client import FaultServer
from tests.torch.conftest import content, fill, fill_folder
from tests.torch.test_loader import epoch_of, number_of
from tests.torch.test_map_dataset import numbers


@pytest.fixture
def pets(tmp_path: Path) -> headrace.Store:
    """Three cats, two dogs, and a file in no folder."""
    store = headrace.Store(tmp_path / "pets")
    for i, name in enumerate(["cat/0", "cat/a/1", "cat/2", "dog/3", "dog/4"]):
        store.write(name, content(i))
    store.write("README", content(9))
    return store


# ---- labels beside the objects


def test_folders_are_classes_as_with_torchvision(pets: headrace.Store) -> None:
    dataset = MapDataset.from_folders(pets)
    assert dataset.classes == ("cat", "dog")
    assert dataset.class_to_idx == {"cat": 0, "dog": 1}
    assert list(dataset.labels or ()) == [0, 0, 0, 1, 1]
    tensor, label = dataset[3]
    assert (number_of(headrace.Sample(tensor.numpy())), label) == (3, 1)
    (batch, labels) = next(iter(Loader(dataset, 5)))
    assert (batch.shape, labels.tolist()) == ((5, 100), [0, 0, 0, 1, 1])
    only = MapDataset.from_folders(pets, number_of, classes=["dog"])
    assert list(only) == [(3, 0), (4, 0)]  # type: ignore[call-overload]


def test_folders_of_a_bucket_begin_below_the_url(server: FaultServer) -> None:
    for name in ("train/cat/1", "train/dog/2", "test/cat/3"):
        server.put("bucket", name, content(1))
    dataset = MapDataset.from_folders("gs://bucket/train", endpoint=server.url)
    assert dataset.classes == ("cat", "dog")
    assert len(dataset) == 2


def test_without_any_folder_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        headrace.InvalidArgumentError, match="none of the 3 objects lies in a folder"
    ):
        MapDataset.from_folders(fill_folder(tmp_path, 3))


@pytest.mark.parametrize("kind", ["mapping", "function", "sequence", "tensor", "column"])
def test_labels_come_from_whatever_there_is(pets: headrace.Store, kind: str) -> None:
    index = pets.index().filter(prefix="dog")
    given: Any = {
        "mapping": {"dog/3": 30, "dog/4": 40, "cat/7": 70},
        "function": lambda name: int(name[-1]) * 10,
        "sequence": [30, 40],
        "tensor": torch.tensor([30, 40]),
        "column": "weight",
    }[kind]
    if kind == "column":
        index = index.with_columns({"weight": [30, 40]})
    dataset = MapDataset(pets, number_of, index=index, labels=given)
    assert list(dataset) == [(3, 30), (4, 40)]  # type: ignore[call-overload]
    again = pickle.loads(pickle.dumps(MapDataset(pets, index=index, labels=index.column("weight")
                                                 if kind == "column" else given)
                                      if kind != "function" else dataset))  # fmt: skip
    assert list(again.labels) == [30, 40]


def test_a_transform_sees_the_label_name_and_index(pets: headrace.Store) -> None:
    def look(sample: headrace.Sample) -> tuple[str, int | None, Any]:
        return sample.name, sample.index, sample.label

    dataset = MapDataset(pets, look, labels=lambda name: name.split("/")[0], classes=True)
    assert dataset.classes == ("README", "cat", "dog")
    assert dataset[4] == (("dog/3", 4, 2), 2)


def test_labels_that_are_missing_or_unknown_are_told(pets: headrace.Store) -> None:
    with pytest.raises(
        headrace.InvalidArgumentError, match="none for 5 of 6 objects, such as 'REA"
    ):
        MapDataset(pets, labels={"dog/3": 1})
    with pytest.raises(headrace.InvalidArgumentError, match="2 values, and there are 6 objects"):
        MapDataset(pets, labels=[1, 2])
    with pytest.raises(headrace.InvalidArgumentError, match="no such column"):
        MapDataset(pets, labels="label")
    with pytest.raises(headrace.InvalidArgumentError, match="which is not among the classes"):
        MapDataset(pets, labels=["a"] * 6, classes=["b"])
    for classes, told in (
        (["dog", "cat", "dog"], "classes has 'dog' twice"),
        ("dog", "classes is 'dog'; it must be True or a list"),
        (3, "classes is 3; it must be"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=told):
            MapDataset(pets, labels=["dog"] * 6, classes=classes)  # type: ignore[arg-type]
        with pytest.raises(headrace.InvalidArgumentError, match=told):
            MapDataset.from_folders(pets, classes=classes)  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="label 0 is None; labels must be"):
        MapDataset(pets, labels=[None] * 6)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([1, "a", 2], "label 1 is 'a', and label 0 is 1; labels must be all"),
        (["1", 2, 3], "label 1 is 2, and label 0 is '1'"),
        (["a", None, "b"], "label 1 is None"),
        ([b"a", "a", b"a"], "label 1 is 'a', and label 0 is b'a'"),
    ],
)
def test_labels_of_several_types_are_refused_by_number(
    tmp_path: Path, labels: list[Any], told: str
) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=told):
        MapDataset(fill_folder(tmp_path, 3), labels=labels)


# ---- tables


def rows(*stores: headrace.Store) -> list[dict[str, Any]]:
    return [
        {"url": store.url_of(info.name), "label": i * 10 + at, "split": "a"}
        for at, store in enumerate(stores)
        for i, info in enumerate(store.list())
    ]


class Frame:
    """What a data frame has of pandas'."""

    def __init__(self, table: list[dict[str, Any]]) -> None:
        self.columns = list(table[0])
        self._table = table

    def __getitem__(self, name: str) -> Any:
        return [row[name] for row in self._table]


@pytest.mark.parametrize("kind", ["csv", "columns", "rows", "frame", "arrow", "parquet"])
@pytest.mark.parametrize("check", [False, True])
def test_a_table_names_objects_of_several_stores(
    server: FaultServer, tmp_path: Path, kind: str, check: bool
) -> None:
    (tmp_path / "files").mkdir()
    table = rows(fill(server, 3), fill_folder(tmp_path / "files", 3))
    table.reverse()
    given: Any = table
    if kind == "csv":
        given = tmp_path / "table.csv"
        lines = ["url,label,split", *(",".join(map(str, row.values())) for row in table)]
        given.write_text("\n".join(lines) + "\n")
    elif kind == "columns":
        given = {name: [row[name] for row in table] for name in table[0]}
    elif kind == "frame":
        given = Frame(table)
    elif kind == "arrow":
        given = pyarrow.Table.from_pylist(table)
    elif kind == "parquet":
        given = tmp_path / "table"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), given)
    dataset = MapDataset.from_table(given, number_of, check=check, endpoint=server.url)
    wanted = [(2, 21), (1, 11), (0, 1), (2, 20), (1, 10), (0, 0)]
    assert list(dataset) == wanted  # type: ignore[call-overload]
    assert dataset.objects.column("split") == ["a"] * 6
    assert (dataset.objects.total_size_bytes is None) is not check
    batches = list(Loader(dataset, 4, shuffle=True, collate_fn=list))
    assert sorted(pair for batch in batches for pair in batch) == sorted(wanted)
    assert len(MapDataset(dataset.stores, index=dataset.objects)) == 6
    plain = MapDataset.from_table(given, label=None, check=check, endpoint=server.url)
    assert numbers(next(iter(Loader(plain, 6)))) == [2, 1, 0, 2, 1, 0]


@pytest.mark.parametrize("check", [False, True])
def test_a_table_may_name_parts_of_objects(
    server: FaultServer, tmp_path: Path, check: bool
) -> None:
    server.put("b", "one", bytes(range(100)))
    store = headrace.Store("gs://b", endpoint=server.url)
    folder = headrace.Store(tmp_path)
    folder.write("two", bytes(range(100, 200)))
    one, two = store.url_of("one"), folder.url_of("two")
    table = {
        "url": [one, two, one, two, one],
        "from": [10, 0, 90, 50.0, None],
        "to": [20, 5, 100, 50.0, float("nan")],
        "label": [0, 1, 2, 3, 4],
    }
    dataset = MapDataset.from_table(
        table, lambda sample: sample.bytes(), begin="from", end="to", check=check,
        endpoint=server.url,
    )  # fmt: skip
    assert list(dataset) == [  # type: ignore[call-overload]
        (bytes(range(10, 20)), 0), (bytes(range(100, 105)), 1), (bytes(range(90, 100)), 2),
        (b"", 3), (bytes(range(100)), 4),
    ]  # fmt: skip
    assert dataset.objects.columns == ("label",)
    loader = Loader(dataset, 2, shuffle=True, collate_fn=list)
    assert sorted(label for batch in loader for _, label in batch) == [0, 1, 2, 3, 4]
    # Each object is asked about once, and reads are pinned to what was found.
    assert sum(entry["kind"] == "get" for entry in server.log()) == check
    server.put("b", "one", bytes(100))
    if check:
        with pytest.raises(headrace.PreconditionFailedError):
            dataset[0]
    else:
        assert dataset[0] == (bytes(10), 0)


@pytest.mark.parametrize(
    ("begins", "ends", "told"),
    [
        ([0, 5], [1, 4], "row 1 of the table has begin=5 and end=4"),
        ([0, None], [1, 4], "row 1 of the table has begin=None and end=4"),
        ([0, -1], [1, 4], "row 1 of the table has begin=-1; it must be a number of bytes"),
        ([0, 0], [1, 1.5], "row 1 of the table has end=1.5"),
        ([0, 0], [1, "x"], "row 1 of the table has end='x'"),
        ([0, float("inf")], [1, 1], "row 1 of the table has begin=inf"),
    ],
)
def test_parts_that_cannot_be_are_refused(begins: list[Any], ends: list[Any], told: str) -> None:
    table = {"url": ["/a", "/b"], "begin": begins, "end": ends}
    with pytest.raises(headrace.InvalidArgumentError, match=told):
        MapDataset.from_table(table, begin="begin", end="end")


def test_parts_in_a_csv_may_be_missing(tmp_path: Path) -> None:
    store = fill_folder(tmp_path / "files", 2)
    lines = ["url,begin,end", f"{store.url_of('0000')},0,5", f"{store.url_of('0001')},,"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    dataset = MapDataset.from_table(tmp_path / "t.csv", begin="begin", end="end")
    assert [len(sample) for sample in dataset] == [5, 100]  # type: ignore[attr-defined]


def test_a_parquet_file_with_two_columns_of_one_name_says_so(tmp_path: Path) -> None:
    table = pyarrow.table([["/a"], ["/b"]], names=["url", "url"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(headrace.InvalidArgumentError, match="the column 'url' twice"):
        MapDataset.from_table(tmp_path / "t.parquet")


def test_both_ends_of_parts_must_be_named() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="name three columns"):
        MapDataset.from_table({"url": ["/a"], "b": [1]}, begin="b", end="b")
    table = {"url": ["/a"], "begin": [0]}
    with pytest.raises(headrace.InvalidArgumentError, match="name both columns, or none"):
        MapDataset.from_table(table, begin="begin")
    with pytest.raises(
        headrace.InvalidArgumentError, match="no column 'end'; it has 'url', 'begin'"
    ):
        MapDataset.from_table(table, begin="begin", end="end")


def test_a_parquet_file_that_is_cut_or_none_is_corrupt(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"url": ["/a"] * 100}), whole)
    content = whole.read_bytes()
    for kept in (0, 3, 4, 8, len(content) // 2, len(content) - 1):
        cut = tmp_path / "cut.parquet"
        cut.write_bytes(content[:kept])
        with pytest.raises(headrace.CorruptDataError, match=r"cut\.parquet: it is no whole"):
            MapDataset.from_table(cut)
    other = tmp_path / "other.parquet"
    other.write_text("url\n/a\n")
    with pytest.raises(headrace.CorruptDataError, match="no whole Parquet file"):
        MapDataset.from_table(other)


def test_without_pyarrow_a_parquet_file_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"url": ["/a"]}), tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(headrace.HeadraceError, match=r"pip install 'headrace\[parquet\]'"):
        MapDataset.from_table(tmp_path / "t.parquet")


def test_a_tables_names_may_lie_below_a_root(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 3)
    table = {"file": ["0002", "0000"], "class": ["dog", "cat"]}
    dataset = MapDataset.from_table(
        table, number_of, url="file", label="class", classes=True, root=store
    )
    assert list(dataset) == [(2, 1), (0, 0)]  # type: ignore[call-overload]
    with pytest.raises(
        headrace.InvalidArgumentError, match=r"row 0 .*'0002', which is not a whole URL"
    ):
        MapDataset.from_table(table, url="file")
    with pytest.raises(headrace.NotFoundError, match="0009"):
        MapDataset.from_table({"url": ["0000", "0009"]}, root=store, check=True)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"uri": ["/x"]}, "no column 'url'; it has 'uri'"),
        ({"url": []}, "no rows"),
        ({"url": ["/x"], "label": [1, 2]}, "unequal lengths"),
        ([{"url": "/x"}, {"name": "/x"}], "row 1 has other columns"),
        (3, "the table is a int"),
        ({"url": ["/x", None]}, "row 1 of the table has url=None; it must be a URL"),
        ({"url": ["/x", float("nan")]}, "row 1 of the table has url=nan"),
        ({"url": ["/x", ""]}, "row 1 of the table has url=''"),
        ({"url": [b"/x"]}, "row 0 of the table has url=b'/x'"),
    ],
)
def test_a_table_that_cannot_be_one(table: Any, text: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        MapDataset.from_table(table)


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "the table is empty"), ("url,label\n/x\n", "row 0 of the table has 1 values"),
     ('url\n"/x\n', "line 2 of the table"), ("url\n", "no rows"),
     ("url, label\n/x,1\n", "the column ' label': write it without the space"),
     ("url,label,label\n/x,1,2\n", "the column 'label' twice"),
     ("url,label\n/x,1\n/y,\n", "row 1 of the table has no label")],
)  # fmt: skip
def test_a_csv_that_cannot_be_a_table(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(headrace.InvalidArgumentError, match=told):
        MapDataset.from_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["cat", None, "dog"], "row 1 of the table has label=None; labels must be all"),
        ([0, "x", 1], "row 1 of the table has label='x'"),
        ([[1, 2], [3], [4]], r"row 0 of the table has label=\[1, 2\]"),
    ],
)
@pytest.mark.parametrize("column", ["label", "y"])
def test_labels_of_a_table_that_no_column_can_hold_are_refused(
    tmp_path: Path, labels: list[Any], told: str, column: str
) -> None:
    urls = [str(tmp_path / name) for name in "abc"]
    with pytest.raises(headrace.InvalidArgumentError, match=told.replace("label=", f"{column}=")):
        MapDataset.from_table({"url": urls, column: labels}, label=column)


def test_integers_among_floats_become_floats(tmp_path: Path) -> None:
    dataset = MapDataset.from_table({"url": ["/a", "/b", "/c"], "label": [1, 2.5, 3]})
    assert list(dataset.labels or ()) == [1.0, 2.5, 3.0]
    (tmp_path / "t.csv").write_text("url,label\n/a,1\n/b,-2.5e1\n/c,.5\n")
    assert list(MapDataset.from_table(tmp_path / "t.csv").labels or ()) == [1.0, -25.0, 0.5]


@pytest.mark.parametrize("kind", ["csv", "columns", "numpy", "pandas", "arrow", "parquet"])
def test_booleans_of_a_table_are_booleans_in_batches(tmp_path: Path, kind: str) -> None:
    store = fill_folder(tmp_path / "files", 3)
    urls = [store.url_of(info.name) for info in store.list()]
    truths = [True, False, True]
    given: Any = {"url": urls, "label": truths, "is_new": truths[::-1]}
    if kind == "csv":
        given = tmp_path / "table.csv"
        pandas.DataFrame({"url": urls, "label": truths, "is_new": truths[::-1]}).to_csv(given)
    elif kind == "numpy":
        given["label"] = [np.bool_(each) for each in truths]
        given["is_new"] = np.array(truths[::-1])
    elif kind == "pandas":
        given = pandas.DataFrame(given).astype({"is_new": "boolean"})
    elif kind in ("arrow", "parquet"):
        given = pyarrow.table(given)
    if kind == "parquet":
        pyarrow.parquet.write_table(given, tmp_path / "table")
        given = tmp_path / "table"
    dataset = MapDataset.from_table(given)
    for each in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert np.asarray(each.labels).dtype == np.asarray(each.objects.column("is_new")).dtype
        assert list(each.labels) == truths
        ((_, labels),) = Loader(each, 3)
        assert (labels.dtype, labels.tolist()) == (torch.bool, truths)
        assert list(each.objects.column("is_new")) == truths[::-1]
    by_class = MapDataset.from_table(given, classes=True)
    assert (by_class.classes, list(by_class.labels or ())) == ((False, True), [1, 0, 1])


def test_a_column_with_a_missing_boolean_is_no_column_of_booleans() -> None:
    table = {"url": ["/a", "/b"], "is_new": pandas.array([True, None], "boolean"), "n": [True, 2]}
    dataset = MapDataset.from_table(table, label="n")
    assert dataset.objects.columns == ("n",)
    assert list(dataset.labels or ()) == [1, 2]
    with pytest.raises(headrace.InvalidArgumentError, match="row 1 of the table has is_new="):
        MapDataset.from_table(table, label="is_new")


def test_a_column_that_cannot_be_kept_is_told_by_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")
    table = {"url": ["/a", "/b"], "boxes": ["x", None], "split": ["a", "b"]}
    assert MapDataset.from_table(table).objects.columns == ("split",)
    (record,) = caplog.records
    assert record.levelname == "INFO"  # nobody asked for it
    assert "no column 'boxes', because row 1 of the table has boxes=None" in record.message


@pytest.mark.parametrize(
    "cells",
    [("000", "001", "002"), ("1_0", "2", "3"), (" 1", "2", "3"), ("1", "2", str(1 << 63)),
     ("1.5", "2", str((1 << 53) + 1)), ("+1", "2", "3"), ("1" * 5000, "2", "3"),
     ("infinity", "2", "3")],
)  # fmt: skip
def test_a_csv_keeps_what_no_number_is_written_like(tmp_path: Path, cells: tuple[str, ...]) -> None:
    lines = [f"/{i},{cell}" for i, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["url,label", *lines]))
    assert MapDataset.from_table(tmp_path / "t.csv").labels == [*cells]


@pytest.mark.parametrize("names", [("0001", "0000"), ("1", "0")])
def test_names_in_a_csv_stay_as_they_are_written(tmp_path: Path, names: tuple[str, ...]) -> None:
    store = headrace.Store(tmp_path)
    for name in names:
        store.write(name, content(int(name)))
    (tmp_path / "t.csv").write_text("\n".join(["url,label", *(f"{name},{name}" for name in names)]))
    dataset = MapDataset.from_table(tmp_path / "t.csv", number_of, label=None, root=store)
    assert list(dataset) == [1, 0]  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["/lead", "/etc/hostname", "https://a.org/b", "a"])
def test_names_below_a_root_in_a_bucket_may_look_like_paths(server: FaultServer, name: str) -> None:
    server.put("bucket", name, content(7))
    store = headrace.Store("gs://bucket", endpoint=server.url)
    dataset = MapDataset.from_table({"url": [name]}, number_of, root=store)
    assert (dataset.url(0), dataset[0]) == (f"gs://bucket/{name}", 7)


def test_whole_urls_beside_names_may_lie_elsewhere(server: FaultServer, tmp_path: Path) -> None:
    files = fill_folder(tmp_path, 2)
    server.put("bucket", "a/b", content(7))
    store = headrace.Store("gs://bucket/a", endpoint=server.url)
    dataset = MapDataset.from_table(
        {"url": ["b", files.url_of("0001"), "gs://bucket/a/b"]}, number_of, root=store
    )
    assert list(dataset) == [7, 1, 7]  # type: ignore[call-overload]
    beside = MapDataset.from_table({"url": [f"{tmp_path}/0001", "0000"]}, number_of, root=files)
    assert list(beside) == [1, 0]  # type: ignore[call-overload]


def test_a_root_that_is_a_store_brings_its_own_options(tmp_path: Path) -> None:
    with pytest.raises(
        headrace.InvalidArgumentError, match="endpoint=: options belong to the Store that is given"
    ):
        MapDataset.from_table(
            {"url": ["a"]}, root=headrace.Store(tmp_path), endpoint="http://127.0.0.1:1"
        )


# ---- several sources


def test_several_sources_are_one_dataset(server: FaultServer, tmp_path: Path) -> None:
    """Of several providers, read straight into batches, and shuffled together."""
    store = fill_folder(tmp_path, 10)
    dataset = MapDataset([fill(server, 10), store])
    assert len(dataset) == 20
    assert len(dataset.stores) == 2
    assert dataset.url(10) == store.url_of("0000")
    loader = Loader(dataset, 20, shuffle=True)
    (batch,) = loader
    assert sorted(numbers(batch)) == sorted([*range(10)] * 2)
    assert numbers(batch)[:10] != sorted(numbers(batch)[:10])
    workers = DataLoader(dataset, 20, num_workers=1, multiprocessing_context="spawn")
    assert numbers(next(iter(workers))) == [*range(10)] * 2


def test_each_of_several_sources_must_have_objects(server: FaultServer, tmp_path: Path) -> None:
    train, files = fill(server, 3), fill_folder(tmp_path, 2)
    mistyped = headrace.Store("gs://bucket/vaild", endpoint=server.url)
    with pytest.raises(headrace.NotFoundError, match="gs://bucket/vaild: no object") as caught:
        MapDataset([train, mistyped])
    assert caught.value.url == mistyped.url
    with pytest.raises(headrace.InvalidArgumentError, match="source 1 is an empty index"):
        MapDataset([train, files.index()[:0]])
    with pytest.raises(
        headrace.InvalidArgumentError, match=f"the index has no objects below {files.url}"
    ):
        MapDataset([train, files], index=train.index())
    assert len(MapDataset([train, files], index=train.index() + files.index()).objects) == 5


def test_classes_may_lie_in_some_of_the_sources_only(
    server: FaultServer, pets: headrace.Store
) -> None:
    server.put("bucket", "train/bird/5", content(5))
    birds = headrace.Store("gs://bucket/train", endpoint=server.url)
    dataset = MapDataset.from_folders([birds, pets], number_of, classes=["dog"])
    assert list(dataset) == [(3, 0), (4, 0)]  # type: ignore[call-overload]


def test_an_index_that_says_where_its_objects_are_is_a_source(tmp_path: Path) -> None:
    index = fill_folder(tmp_path, 5).index()
    dataset = MapDataset(index.select([4, 1]), number_of)
    assert list(dataset) == [4, 1]  # type: ignore[call-overload]
    with pytest.raises(headrace.InvalidArgumentError, match="does not say where"):
        MapDataset(ObjectIndex.from_names(["a"]))


def parts(store: headrace.Store) -> tuple[MapDataset, MapDataset]:
    index = store.index()
    return (
        MapDataset(store, lambda s: ("a", number_of(s)), index=index[:10]),
        MapDataset(store, lambda s: ("b", number_of(s)), index=index[10:30]),
    )


@pytest.mark.parametrize("threads", [0, 2])
def test_a_loader_reads_what_torch_has_put_together(tmp_path: Path, threads: int) -> None:
    """The transform of each part makes its samples; order, resume and ranks are as of one."""
    first, second = parts(fill_folder(tmp_path, 30))
    both = ConcatDataset([first, Subset(second, [3, -1, 0])])
    wanted = [("a", i) for i in range(10)] + [("b", 13), ("b", 29), ("b", 10)]

    def make(**options: Any) -> Loader:
        return Loader(both, 4, collate_fn=list, transform_threads=threads, **options)

    assert [item for batch in make() for item in batch] == wanted
    loader = make(shuffle=True, seed=3)
    it = iter(loader)
    seen = next(it) + next(it)
    resumed = make(shuffle=True, seed=3)
    resumed.load_state_dict(loader.state_dict())
    seen += [item for batch in resumed for item in batch]
    assert sorted(seen) == sorted(wanted)
    assert seen != wanted
    ranks = [make(rank=rank, world_size=2) for rank in range(2)]
    assert sorted(i for each in ranks for batch in each for i in batch) == sorted(wanted)
    other = Loader(ConcatDataset([first, Subset(second, [3, 0, 1])]), 4)
    with pytest.raises(headrace.InvalidArgumentError, match="of other data"):
        other.load_state_dict(loader.state_dict())


def test_a_random_split_is_read_straight_into_batches(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 10))
    split = random_split(dataset, [8, 2], generator=torch.Generator().manual_seed(1))
    assert [epoch_of(Loader(part, 4)) for part in split] == [list(part.indices) for part in split]
    nested = Subset(split[0], [1, 0])
    assert epoch_of(Loader(nested, 4)) == [split[0].indices[1], split[0].indices[0]]


def test_an_error_in_a_part_names_its_sample(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 3)
    whole = ConcatDataset([MapDataset(store), MapDataset(store, lambda s: 1 // number_of(s))])
    with pytest.raises(ZeroDivisionError, match=store.url_of("0000")):
        list(Loader(Subset(whole, [5, 3]), 2))

    class Own(Subset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return 3

        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [3 for _ in indices]

    with pytest.raises(headrace.InvalidArgumentError, match="Own has a __getitem__ of its own"):
        Loader(Own(whole, [1]), 2)
    with pytest.raises(
        headrace.InvalidArgumentError, match="the number 6, but its dataset has only"
    ):
        Loader(Subset(whole, [6]), 2)
    with pytest.raises(headrace.InvalidArgumentError, match="dataset is a list"):
        Loader(ConcatDataset([[1]]), 2)  # type: ignore[list-item]


def test_options_of_the_store_are_keywords(server: FaultServer) -> None:
    fill(server, 3)
    assert len(MapDataset("gs://bucket/data/", endpoint=server.url)) == 3
    with pytest.raises(headrace.InvalidArgumentError, match="options belong to the Store"):
        MapDataset(headrace.Store("gs://bucket", endpoint=server.url), endpoint=server.url)
    with pytest.raises(TypeError, match=r"MapDataset has no argument 'shuffle': .*Loader"):
        MapDataset("gs://bucket/data/", shuffle=True)


def test_a_listing_shows_its_progress(
    server: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    store = fill(server, 5)
    counts: list[int] = []
    MapDataset([store, store], progress=lambda names, total: counts.append(names))
    assert counts[-1] == 10
    MapDataset(store, progress=True)
    assert "listing: 5" in capsys.readouterr().err


def test_a_column_with_times_that_python_does_not_have_is_left_out_unless_it_is_wanted(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    times = pyarrow.array([2**62], pyarrow.timestamp("us"))
    table = pyarrow.table({"url": [str(tmp_path / "a")], "time": times})
    assert MapDataset.from_table(table)[0].tolist() == [120]
    with pytest.raises(headrace.InvalidArgumentError, match=r"the column .time. of"):
        MapDataset.from_table(table, label="time")
