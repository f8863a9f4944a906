"""The same program at any root: names are relative to it, and nothing beside it is seen."""

from __future__ import annotations

import pickle

import pytest

import headrace
from tests.conformance.subject import Subject


def names_of(store: headrace.Store, *args: str, **narrowed: object) -> list[str]:
    return [info.name for info in store.list(*args, **narrowed)]  # type: ignore[arg-type]


def test_a_slash_at_the_end_is_no_other_root(subject: Subject) -> None:
    stores = [subject.open(f"{subject.url}/run{slashes}") for slashes in ("", "/", "//")]
    for i, store in enumerate(stores):
        assert store.url == f"{subject.url}/run"
        assert store.url_of("a/b") == f"{subject.url}/run/a/b"
        store.write(f"{i}", b"x")
    assert {tuple(names_of(store)) for store in stores} == {("0", "1", "2")}
    assert names_of(subject.open()) == ["run/0", "run/1", "run/2"]
    assert subject.open(f"{subject.url}/").url == subject.url


def test_the_same_program_runs_at_every_root(subject: Subject) -> None:
    for root in (subject.url, f"{subject.url}/run", f"{subject.url}/run/deep/er"):
        store = subject.open(root)
        written = store.write("train/a", b"123")
        with store.open_writer("train/b", part_bytes=subject.abilities.part_bytes) as writer:
            writer.write(bytes(200_000))
        assert (written.name, writer.close().name) == ("train/a", "train/b")
        assert names_of(store, "train/") == ["train/a", "train/b"]
        assert store.list_page("train/", delimiter="/").objects[0].name == "train/a"
        assert store.stat("train/a").name == "train/a"
        listed = next(store.list("train/"))
        sample = store.read(listed)
        assert (sample.bytes(), sample.url) == (b"123", f"{root}/train/a")
        assert store.copy(listed, "copy").name == "copy"
        index = store.index("train/")
        assert [index.name(i) for i in range(len(index))] == ["train/a", "train/b"]
        assert [each.url for each in store.read_many(index)] == [
            f"{root}/train/a",
            f"{root}/train/b",
        ]
        if subject.abilities.composes:
            whole = store.compose([store.stat("train/a"), store.stat("copy")], "whole")
            assert (whole.name, store.read("whole").bytes()) == ("whole", b"123123")
            store.delete("whole")
        again = pickle.loads(pickle.dumps(store))
        assert (again.url, again.read("copy").bytes()) == (root, b"123")
        for name in ("train/a", "train/b", "copy"):
            store.delete(name)
        assert [name for name in names_of(subject.open()) if "run" not in name] == []


@pytest.mark.parametrize("way", ["parts", "multipart", "resumable"])
def test_large_objects_are_written_below_the_root(subject: Subject, way: str) -> None:
    store = subject.open(f"{subject.url}/run")
    part_bytes = 5 << 20 if way == "multipart" else 256 << 10
    data = bytes(range(256)) * (part_bytes // 128)

    def open_writer() -> headrace.ObjectWriter:
        return store.open_writer("dir/o", part_bytes=part_bytes, upload=way)  # type: ignore[arg-type]

    if way not in subject.abilities.uploads:
        with pytest.raises(headrace.InvalidArgumentError, match=way):
            open_writer()
        return
    writer = open_writer()
    assert writer.url == f"{subject.url}/run/dir/o"
    writer.write(data)
    try:
        info = writer.close()
    except headrace.HeadraceError:
        # fake-gcs-server has no multipart uploads.
        assert way == "multipart"
        assert not subject.abilities.conditional_large_write
        return
    assert (info.name, info.size_bytes) == ("dir/o", len(data))
    assert subject.get("run/dir/o") == data
    left = subject.open(subject.bucket_url).list("headrace-uploads/")
    assert list(left) == []


def test_neighbours_whose_names_begin_so_are_not_seen(subject: Subject) -> None:
    for name in ("run2/a", "run-3/a", "run/a", "ru/a", "run.txt"):
        subject.put(name, name.encode())
    store = subject.open(f"{subject.url}/run")
    assert names_of(store) == ["a"]
    assert names_of(store, "") == ["a"]
    assert [entry.name for entry in store.list(delimiter="/")] == ["a"]
    index = store.index()
    assert (len(index), index.name(0)) == (1, "a")
    for name in ("2/a", "../run2/a", "/a"):
        with pytest.raises((headrace.NotFoundError, headrace.InvalidArgumentError)):
            store.read(name)
    assert store.read("a").bytes() == b"run/a"


def test_errors_name_whole_urls(subject: Subject) -> None:
    root = f"{subject.url}/run"
    store = subject.open(root)
    store.write("there", b"x")
    for call in (
        lambda: store.read("no/thing"),
        lambda: store.stat("no/thing"),
        lambda: store.delete("no/thing"),
        lambda: store.read("no/thing", begin=1, end=2),
        lambda: store.read_many(["there", "no/thing"]),
    ):
        with pytest.raises(headrace.NotFoundError) as caught:
            call()
        assert caught.value.url == f"{root}/no/thing"
        assert str(caught.value).startswith(f"{root}/no/thing: ")
    with pytest.raises(headrace.NotFoundError, match="no/thing"):
        store.copy("no/thing", "x")
    with pytest.raises(headrace.PreconditionFailedError) as refused:
        store.write("there", b"y", if_generation="absent")
    assert refused.value.url == f"{root}/there"
    with pytest.raises(headrace.InvalidArgumentError) as empty:
        store.read("")
    assert empty.value.url == f"{root}/"


def test_pages_join_below_a_root(subject: Subject) -> None:
    names = [f"p/{i:03d}" for i in range(25)]
    for name in ("ru", "run0", "ruo", *(f"run/{name}" for name in names)):
        subject.put(name, b"x")
    store = subject.open(f"{subject.url}/run")
    assert names_of(store, max_pages_in_flight=1) == names_of(store) == names
    pages = [store.list_page("p/", max_results=10)]
    while pages[-1].next_page_token:
        pages.append(store.list_page("p/", max_results=10, page_token=pages[-1].next_page_token))
    assert [info.name for page in pages for info in page.objects] == names
    assert names_of(store, start_offset="p/003", end_offset="p/005") == ["p/003", "p/004"]
    assert names_of(store, start_offset="q") == []


def test_the_placeholder_of_a_root_is_left_out_and_counted(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    if not subject.abilities.flat_names:
        return  # a directory needs none
    subject.put("run/", b"")
    store = subject.open(f"{subject.url}/run")
    with caplog.at_level("INFO", "headrace"):
        assert names_of(store) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"{subject.url}/run: the object {subject.url}/run/, which only marks the folder, was left "
        "out"
    ]
    store.write("a", b"x")
    subject.put("run/sub/", b"")
    assert names_of(store) == ["a", "sub/"]
    assert [entry.name for entry in store.list(delimiter="/")] == ["a", "sub/"]
    index = store.index()
    assert [index.name(i) for i in range(len(index))] == ["a", "sub/"]
    assert store.list_page().placeholders == 1
    assert store.list_page(start_offset="a").placeholders == 0
    bucket = subject.open()
    assert "run/" in names_of(bucket)
    assert bucket.list_page().placeholders == 0
