"""`headrace sync`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, kinds

TREE = {"a": b"1", "dir-x": b"2", "dir/b": b"3", "dir/c/d": b"4", ".metadata": b"5"}


def fill(folder: Path, tree: dict[str, bytes]) -> Path:
    for name, data in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def objects_of(server: FaultServer, bucket: str, below: str = "") -> dict[str, bytes]:
    names = server.names(bucket, below)
    return {name[len(below) :]: server.get(bucket, name) for name in names}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return fill(tmp_path / "source", TREE)


@pytest.mark.parametrize("slash", ["", "/"])
def test_two_folders_become_equal(
    server: FaultServer, source: Path, tmp_path: Path, run: Run, slash: str
) -> None:
    for name in ("x/a", "x/dir/old", "x/zz", "xy", "x"):
        server.put("bucket", name, b"old")
    assert run("sync", "--delete", f"{source}{slash}", f"gs://bucket/x{slash}").code == 0
    assert objects_of(server, "bucket", "x/") == TREE
    assert server.names("bucket") == ["x", *(f"x/{name}" for name in sorted(TREE)), "xy"]
    back = fill(tmp_path / "back", {"gone/e/f": b"", "dir/b": b"other"})
    assert run("sync", "--delete", f"gs://bucket/x{slash}", f"{back}{slash}").code == 0
    assert files_of(back) == TREE
    assert not (back / "gone").exists()


def test_what_is_equal_is_not_copied_again(server: FaultServer, source: Path, run: Run) -> None:
    server.put("bucket", "other", b"")
    assert run("sync", source, "gs://bucket/x").code == 0
    uploads = kinds(server)["upload"]
    (source / "a").write_bytes(b"changed")
    done = run("sync", source, "gs://bucket/x")
    assert done.code == 0
    assert kinds(server)["upload"] == uploads + 1
    assert server.get("bucket", "x/a") == b"changed"


def test_without_delete_nothing_is_deleted(server: FaultServer, source: Path, run: Run) -> None:
    server.put("bucket", "x/more", b"more")
    assert run("sync", source, "gs://bucket/x").code == 0
    assert objects_of(server, "bucket", "x/") == TREE | {"more": b"more"}
    assert "delete" not in kinds(server)


@pytest.mark.parametrize("json", [False, True])
def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    server: FaultServer, source: Path, run: Run, json: bool
) -> None:
    server.put("bucket", "x/a", b"1")
    server.put("bucket", "x/more", b"more")
    done = run(
        "sync", "--delete", "--dry-run", *(["--json"] if json else []), source, "gs://bucket/x"
    )
    assert done.code == 0, done.err
    assert objects_of(server, "bucket", "x/") == {"a": b"1", "more": b"more"}
    assert not {"upload", "delete"} & set(kinds(server))
    if json:
        assert sorted(each["url"] for each in done.json if each["type"] == "would_copy") == sorted(
            (source / name).as_uri() for name in TREE if name != "a"
        )
        assert [each["url"] for each in done.json if each["type"] == "would_delete"] == [
            "gs://bucket/x/more"
        ]
        return
    would_copy = {
        f"would copy file://{source}/{name} to gs://bucket/x/{name}" for name in TREE if name != "a"
    }
    assert set(done.lines) == would_copy | {"would delete gs://bucket/x/more"}
    assert "headrace: would copy 4 objects, 4 B; 1 are there already\n" in done.err
    assert "headrace: would delete 1 object, 4 B\n" in done.err


def test_an_empty_source_deletes_nothing(server: FaultServer, tmp_path: Path, run: Run) -> None:
    server.put("bucket", "x/a", b"precious")
    (tmp_path / "empty").mkdir()
    done = run("sync", "--delete", tmp_path / "empty", "gs://bucket/x")
    assert done.code == 3
    assert "nothing lies below it, so that nothing is deleted" in done.err
    assert run("sync", "--delete", "gs://bucket/mistyped", "gs://bucket/x").code == 3
    assert run("sync", "--delete", "gs://missing/x", "gs://bucket/x").code == 3
    assert server.names("bucket") == ["x/a"]


@pytest.mark.parametrize("page", [1, 2, 3])
def test_a_listing_that_fails_in_its_midst_deletes_nothing(
    server: FaultServer, tmp_path: Path, run: Run, page: int
) -> None:
    for i in range(9):
        server.put("from", f"{i}", b"")
    server.bucket("from", max_page=3)
    fill(tmp_path / "x", {f"{i}": b"" for i in range(9)} | {"more": b"", "0more": b""})
    # The copy lists the source for the first time, the deletion for the second.
    rule = {"match": {"kind": "list", "target_contains": "from"}, "action": {"status": 403}}
    server.faults([{**rule, "from": page}])
    done = run("sync", "--delete", "gs://from", tmp_path / "x")
    assert done.code != 0
    assert len(files_of(tmp_path / "x")) == 11


def test_a_failed_copy_deletes_nothing(server: FaultServer, source: Path, run: Run) -> None:
    server.put("bucket", "x/more", b"more")
    server.faults([{"match": {"kind": "upload"}, "from": 3, "action": {"status": 403}}])
    done = run("sync", "--delete", source, "gs://bucket/x")
    assert done.code != 0
    assert "nothing was deleted, since 3 objects failed" in done.err
    assert server.get("bucket", "x/more") == b"more"


@pytest.mark.parametrize(
    ("source", "destination"),
    [("gs://bucket/x", "gs://bucket/x/y"), ("gs://bucket/x/y", "gs://bucket/x")]
    + [("gs://bucket/x", "gs://bucket/x"), ("gs://bucket", "gs://bucket/x")],
)
def test_neither_folder_may_lie_in_the_other(
    server: FaultServer, run: Run, source: str, destination: str
) -> None:
    for name in ("x/a", "x/y/b"):
        server.put("bucket", name, b"")
    done = run("sync", "--delete", source, destination)
    assert done.code == 2
    assert "cannot be copied into itself" in done.err
    assert server.names("bucket") == ["x/a", "x/y/b"]


def test_files_behind_a_symbolic_link_are_not_deleted(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    server.put("bucket", "x/a", b"1")
    outside = fill(tmp_path / "outside", {"data": b"precious"})
    here = fill(tmp_path / "here", {"own": b""})
    (here / "linked").symlink_to(outside)
    assert run("sync", "--delete", "gs://bucket/x", here).code == 0
    assert files_of(outside) == {"data": b"precious"}
    assert sorted(each.name for each in here.iterdir()) == ["a", "linked"]


def test_marks_of_folders_at_the_destination_stay(
    server: FaultServer, source: Path, run: Run
) -> None:
    server.put("bucket", "x/folder/", b"")
    assert run("sync", "--delete", source, "gs://bucket/x").code == 0
    assert "x/folder/" in server.names("bucket")


@pytest.mark.parametrize("mark", ["empty/", "empty/deep/"])
def test_a_source_of_folder_markers_alone_deletes_nothing(
    server: FaultServer, tmp_path: Path, run: Run, mark: str
) -> None:
    server.put("bucket", mark, b"")
    server.put("bucket", "x/a", b"precious")
    here = fill(tmp_path / "here", TREE)
    for destination in (here, "gs://bucket/x"):
        done = run("sync", "--delete", "gs://bucket/empty", destination)
        assert done.code == 3, done.err
        assert "nothing lies below it, so that nothing is deleted" in done.err
    assert files_of(here) == TREE
    assert server.get("bucket", "x/a") == b"precious"


@pytest.mark.parametrize("to", ["directory", "bucket"])
def test_what_the_source_has_and_cannot_be_read_is_kept_at_the_destination(
    server: FaultServer, source: Path, tmp_path: Path, run: Run, to: str
) -> None:
    (source / "gone").symlink_to(tmp_path / "unmounted" / "file")
    (source / "folder").symlink_to(tmp_path / "unmounted")
    (source / "loop").symlink_to("loop")
    os.mkfifo(source / "dir" / "pipe")
    kept = {"gone": b"p", "folder/1": b"p", "folder/2": b"p", "loop": b"p", "dir/pipe": b"p"}
    only_there = {"dir/more": b"q", "a/below-a-file": b"q"} if to == "bucket" else {"more": b"q"}
    here = fill(tmp_path / "here", kept | only_there) if to == "directory" else "gs://bucket/x"
    for name, data in (kept | only_there).items():
        server.put("bucket", f"x/{name}", data)
    done = run("sync", "--delete", source, here)
    assert done.code == 1, done.err
    assert done.err.count("was not deleted") == 4  # once for the folder
    assert "deleted 1 object" in done.err or "deleted 2 objects" in done.err
    assert "4 failed" in done.err
    left = files_of(here) if isinstance(here, Path) else objects_of(server, "bucket", "x/")
    assert left == TREE | kept


def test_empty_directories_that_the_source_has_stay(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    source = fill(tmp_path / "source", {"a": b""})
    (source / "logs").mkdir()
    server.put("bucket", "a", b"")
    server.put("bucket", "logs/", b"")
    for at, origin in enumerate((source, "gs://bucket")):
        here = fill(tmp_path / f"here{at}", {"logs/old": b"", "gone/old": b""})
        assert run("sync", "--delete", origin, here).code == 0
        assert sorted(each.name for each in here.iterdir()) == ["a", "logs"]
