"""Roots inside a bucket: what is asked of the server, what is hidden, and what errors tell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer

UPLOAD = "headrace-uploads/" + "0123456789abcdef" * 2 + "/000001"
COMPOSITE = "dataflux-composed-objects/headrace-" + "0123456789abcdef" * 2


def open_at(server: FaultServer, path: str = "", **options: Any) -> headrace.Store:
    return headrace.Store(f"gs://bucket/{path}", endpoint=server.url, **options)


def counts(server: FaultServer) -> dict[str, int]:
    return {kind: count for kind, count in server.stats()["by_kind"].items() if count}


def names_of(store: headrace.Store, *args: str) -> list[str]:
    return [info.name for info in store.list(*args)]


@pytest.fixture
def bucket(server: FaultServer) -> FaultServer:
    server.bucket("bucket")
    return server


# ---- roots of which nothing is below


def test_a_part_of_a_name_is_told_from_a_root(bucket: FaultServer) -> None:
    for name in ("train/img-000.jpg", "train/img-001.jpg"):
        bucket.put("bucket", name, b"x")
    store = open_at(bucket, "train/img-0")
    calls = (
        lambda: list(store.list()),
        lambda: list(store.list(delimiter="/")),
        lambda: store.index(),
        lambda: next(store.list(max_results=1)),
    )
    for call in calls:
        before = counts(bucket).get("list", 0)
        with pytest.raises(headrace.NotFoundError) as caught:
            call()
        assert str(caught.value) == (
            "gs://bucket/train/img-0: nothing is below this folder, but names begin so, such as "
            "gs://bucket/train/img-000.jpg: for a part of a name use "
            "headrace.Store('gs://bucket/train') and prefix='img-0'"
        )
        assert caught.value.url == "gs://bucket/train/img-0"
        assert counts(bucket)["list"] == before + 2
    remedy = open_at(bucket, "train")
    assert names_of(remedy, "img-0") == ["img-000.jpg", "img-001.jpg"]


def test_an_object_is_told_from_a_root(bucket: FaultServer) -> None:
    bucket.put("bucket", "model.pt", b"x")
    with pytest.raises(headrace.NotFoundError) as caught:
        list(open_at(bucket, "model.pt").list())
    assert str(caught.value) == (
        "gs://bucket/model.pt: it is an object, not a folder: open the store at gs://bucket and "
        "name it 'model.pt'"
    )


def test_a_root_that_is_only_empty_is_no_error_and_is_asked_about_once_more(
    bucket: FaultServer,
) -> None:
    bucket.put("bucket", "ru/a", b"x")
    store = open_at(bucket, "run")
    assert names_of(store) == []
    assert counts(bucket) == {"list": 2}
    assert len(store.index()) == 0
    # What is narrowed may be empty, whatever lies beside the root.
    bucket.put("bucket", "run2/a", b"x")
    before = counts(bucket)["list"]
    assert names_of(store, "a") == []
    assert list(store.list(start_offset="a")) == []
    assert store.list_page().objects == []
    assert len(store.index("a")) == 0
    assert counts(bucket)["list"] == before + 4


def test_making_a_store_and_writing_ask_nothing_about_neighbours(bucket: FaultServer) -> None:
    bucket.put("bucket", "run2/a", b"x")
    store = open_at(bucket, "run")
    assert counts(bucket) == {}
    store.write("a", b"x")
    with store.open_writer("b") as writer:
        writer.write(b"x")
    store.copy("a", "c")
    assert "list" not in counts(bucket)
    assert names_of(store) == ["a", "b", "c"]
    assert counts(bucket)["list"] == 1


def test_who_may_not_list_the_bucket_gets_an_empty_listing(bucket: FaultServer) -> None:
    bucket.put("bucket", "run2/a", b"x")
    bucket.faults([{"match": {"kind": "list"}, "from": 2, "action": {"status": 403}}])
    assert names_of(open_at(bucket, "run")) == []


# ---- what a root costs


def test_a_root_costs_no_request(bucket: FaultServer) -> None:
    def work(store: headrace.Store) -> dict[str, int]:
        before = counts(bucket)
        for i in range(5):
            store.write(f"d/{i}", bytes(1000))
        infos = list(store.list("d/"))
        store.read_many(infos)
        store.read_many(store.index("d/"))
        store.read("d/0", begin=1, end=2)
        store.stat("d/1")
        store.copy("d/0", "d/5")
        store.compose(infos[:2], "joined")
        writer = store.open_writer("large", part_bytes=256 << 10)
        writer.write(bytes(40 * (256 << 10)))
        writer.close()
        for name in names_of(store):
            store.delete(name)
        return {kind: count - before.get(kind, 0) for kind, count in counts(bucket).items()}

    bucket.put("bucket", "other", b"x")
    whole, below = work(open_at(bucket)), work(open_at(bucket, "a/root"))
    whole["delete"] -= 1  # of the object beside the root
    assert below == whole


def test_an_answer_about_what_is_not_below_the_root_is_corrupt(bucket: FaultServer) -> None:
    bucket.put("bucket", "run/a", b"x")
    store = open_at(bucket, "run")
    answer = {"status": 200, "body": '{"items":[{"name":"run2/a"}]}'}
    bucket.faults([{"match": {"kind": "list"}, "action": answer}])
    with pytest.raises(headrace.CorruptDataError, match="not below the root") as caught:
        list(store.list())
    assert caught.value.url == "gs://bucket/run/"


# ---- temporaries


def test_temporaries_are_judged_by_their_full_names(bucket: FaultServer) -> None:
    for name in (UPLOAD, COMPOSITE, f"run/{UPLOAD}", f"run/{COMPOSITE}", "run/a"):
        bucket.put("bucket", name, b"x")
    assert names_of(open_at(bucket)) == [f"run/{name}" for name in ("a", COMPOSITE, UPLOAD)]
    # They are data: no store with the default puts its temporaries there.
    assert names_of(open_at(bucket, "run")) == ["a", COMPOSITE, UPLOAD]
    assert names_of(open_at(bucket, "headrace-uploads")) == [UPLOAD.partition("/")[2]]
    assert names_of(open_at(bucket), "headrace-uploads/") == [UPLOAD]


def test_what_other_roots_are_writing_is_hidden_from_the_bucket(bucket: FaultServer) -> None:
    moved = {"provider": headrace.GcsOptions(temporary_prefix="team/tmp/")}
    for options in ({}, moved):
        store = open_at(bucket, "run", **options)
        writer = store.open_writer("o", part_bytes=64 << 10)
        writer.write(bytes(3 * (64 << 10)))
        writer.write(b"more")
        where = ("team/tmp/" if options else "") + "headrace-uploads/"
        open_at(bucket).stat("x", missing_ok=True)
        while not bucket.names("bucket", where):
            pass  # its parts are under way
        assert names_of(open_at(bucket, **options)) == []
        assert names_of(open_at(bucket, "team", **options)) == []
        writer.abort()
        assert bucket.names("bucket") == []


def test_a_prefix_for_temporaries_takes_all_of_them(bucket: FaultServer) -> None:
    options: dict[str, Any] = {
        "provider": headrace.GcsOptions(
            temporary_prefix="run/tmp", compose_small_objects=headrace.ComposeOptions()
        ),
    }
    store = open_at(bucket, "run", **options)
    for i in range(64):
        store.write(f"d/{i:02d}", b"%d" % i)
    assert [sample.bytes() for sample in store.read_many(store.index("d/"))] == [
        b"%d" % i for i in range(64)
    ]
    for upload in ("parts", "multipart"):
        part_bytes = 5 << 20
        writer = store.open_writer(upload, part_bytes=part_bytes, upload=upload)  # type: ignore[arg-type]
        writer.write(bytes(part_bytes + 1))
        assert writer.close().size_bytes == part_bytes + 1
    assert counts(bucket)["compose"] == 4
    # Credentials that are limited to run/ suffice: nothing was asked of anything else.
    asked = [entry for entry in bucket.log() if "run%2F" not in entry["target"]]
    uploads = [entry for entry in asked if "/upload/" in entry["target"]]
    assert [entry["target"] for entry in asked if entry not in uploads] == []
    assert bucket.names("bucket", "run/tmp") == []
    assert bucket.names("bucket", "headrace") == []


def test_a_prefix_for_temporaries_does_nothing_to_files(tmp_path: Path) -> None:
    provider = headrace.GcsOptions(temporary_prefix="tmp")
    store = headrace.Store(tmp_path, provider=provider)
    with store.open_writer("a") as writer:
        writer.write(b"bytes")
        assert not (tmp_path / "tmp").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_clean_sweeps_the_temporaries_of_the_whole_bucket(bucket: FaultServer) -> None:
    kept = ["run/a", f"run/{UPLOAD}", f"team/tmp/{UPLOAD}"]
    for name in (UPLOAD, COMPOSITE, *kept):
        bucket.put("bucket", name, b"x")
    looked = headrace.clean(open_at(bucket, "run"), older_than_s=0, dry_run=True)
    assert [info.name for info in looked.deleted] == [COMPOSITE, UPLOAD]
    cleaned = headrace.clean(open_at(bucket, "run"), older_than_s=0)
    assert [info.name for info in cleaned.deleted] == [COMPOSITE, UPLOAD]
    assert bucket.names("bucket") == kept
    moved = open_at(bucket, "run", provider=headrace.GcsOptions(temporary_prefix="team/tmp"))
    bucket.put("bucket", UPLOAD, b"x")
    assert [info.name for info in headrace.clean(moved, older_than_s=0).deleted] == [kept[2]]
    assert bucket.names("bucket") == [UPLOAD, *kept[:2]]


def test_clean_looks_for_files_of_checkpoints_below_the_root_only(bucket: FaultServer) -> None:
    left = "__0_0-" + "0123456789abcdef" * 2 + ".distcp"
    for step in ("step200", "step2000", "step20"):
        bucket.put("bucket", f"{step}/{left}", b"x")
    store = open_at(bucket, "step200")
    cleaned = headrace.clean(store, older_than_s=0, checkpoints=True)
    assert [info.name for info in cleaned.deleted] == [f"step200/{left}"]
    assert bucket.names("bucket") == [f"step20/{left}", f"step2000/{left}"]


# ---- directories


def test_a_relative_path_is_a_root_where_the_store_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = headrace.Store("run/")
    assert store.url == f"file://{tmp_path}/run"
    assert headrace.Store(".").url == f"file://{tmp_path}"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.write("a", b"x")
    assert (tmp_path / "run" / "a").read_bytes() == b"x"
    assert os.listdir(tmp_path / "elsewhere") == []
    assert headrace.Store("/").url == "file:///"
    assert headrace.Store("/").url_of("a") == "file:///a"


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "./a", "a//b", "a/."])
def test_no_name_leads_out_of_a_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").write_bytes(b"secret")
    store = headrace.Store(tmp_path / "root")
    store.write("a", b"x")
    for call in (
        lambda: store.read(name),
        lambda: store.stat(name),
        lambda: store.write(name, b"x"),
        lambda: store.open_writer(name),
        lambda: store.delete(name),
        lambda: store.copy(name, "b"),
        lambda: store.copy("a", name),
    ):
        with pytest.raises(headrace.InvalidArgumentError):
            call()
    assert names_of(store, name) == []
    assert names_of(store) == ["a"]
    assert (tmp_path / "out").read_bytes() == b"secret"
