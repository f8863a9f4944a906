"""`headrace mv`."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, kinds


@pytest.fixture
def bucket(server: FaultServer) -> FaultServer:
    for name in ("a", "run/1", "run/deep/2"):
        server.put("bucket", name, name.encode())
    server.put("other", "there", b"")
    return server


def files_of(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def test_within_a_bucket_the_service_moves_and_no_byte_passes_through(
    bucket: FaultServer, run: Run
) -> None:
    assert run("mv", "-r", "gs://bucket/run", "gs://bucket/old").code == 0
    assert bucket.names("bucket") == ["a", "old/1", "old/deep/2"]
    assert "media" not in kinds(bucket)
    assert run("mv", "gs://bucket/a", "gs://bucket/b").code == 0
    assert bucket.get("bucket", "b") == b"a"


def test_between_stores_each_source_goes_once_its_copy_is_whole(
    bucket: FaultServer, tmp_path: Path, run: Run
) -> None:
    done = run("mv", "-r", "gs://bucket/run", tmp_path / "here")
    assert done.code == 0
    assert done.err.startswith("headrace: moved 2 objects, 15 B")
    assert files_of(tmp_path / "here") == {"1": b"run/1", "deep/2": b"run/deep/2"}
    assert bucket.names("bucket") == ["a"]
    assert run("mv", "-r", tmp_path / "here", "gs://other/x").code == 0
    assert bucket.names("other") == ["there", "x/1", "x/deep/2"]
    assert not (tmp_path / "here").exists()


CHECKPOINT = {".metadata": b"what torch wrote", "__0_0.distcp": b"12345", "__1_0.distcp": b"6"}


def test_a_checkpoint_of_torch_is_moved_counted_and_removed_with_its_metadata(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    for name, data in CHECKPOINT.items():
        server.put("bucket", f"step1/{name}", data)
    size_bytes = sum(map(len, CHECKPOINT.values()))
    [usage] = run("du", "--json", "gs://bucket/step1").json
    assert (usage["objects"], usage["size_bytes"]) == (3, size_bytes)
    assert run("mv", "-r", "gs://bucket/step1", "gs://bucket/best").code == 0
    assert server.names("bucket") == [f"best/{name}" for name in sorted(CHECKPOINT)]
    assert run("sync", "gs://bucket/best", tmp_path / "copy").code == 0
    assert files_of(tmp_path / "copy") == CHECKPOINT
    assert run("mv", "-r", "gs://bucket/best", tmp_path / "here").code == 0
    assert (server.names("bucket"), files_of(tmp_path / "here")) == ([], CHECKPOINT)
    assert run("rm", "-r", tmp_path / "here").code == 0
    assert not (tmp_path / "here").exists()


def test_what_was_not_copied_stays(bucket: FaultServer, tmp_path: Path, run: Run) -> None:
    bucket.faults(
        [{"match": {"kind": "media", "path_contains": "deep"}, "action": {"status": 403}}]
    )
    done = run("mv", "-r", "gs://bucket/run/", tmp_path / "here")
    assert done.code == 4, done.err
    assert bucket.names("bucket") == ["a", "run/deep/2"]
    bucket.faults([])
    assert run("mv", "-r", "gs://bucket/run/", tmp_path / "here").code == 0
    assert files_of(tmp_path / "here") == {"1": b"run/1", "deep/2": b"run/deep/2"}
    assert bucket.names("bucket") == ["a"]


def test_run_again_it_deletes_the_sources_of_what_had_arrived(
    bucket: FaultServer, tmp_path: Path, run: Run
) -> None:
    bucket.faults([{"match": {"kind": "delete"}, "action": {"status": 403}}])
    done = run("mv", "-r", "gs://bucket/run", "gs://other/run")
    assert done.code == 4
    assert "gs://other/run/1 is whole: now both objects are there" in done.err
    assert bucket.names("bucket") == ["a", "run/1", "run/deep/2"]
    bucket.faults([])
    since = len(bucket.log())
    done = run("mv", "-r", "gs://bucket/run", "gs://other/run")
    assert (done.code, bucket.names("bucket")) == (0, ["a"]), done.err
    assert all(each["kind"] != "media" for each in bucket.log()[since:])
    assert bucket.names("other") == ["run/1", "run/deep/2", "there"]


def test_what_is_kept_there_keeps_its_source(bucket: FaultServer, run: Run) -> None:
    bucket.put("other", "run/1", b"another")
    done = run("mv", "-rn", "gs://bucket/run", "gs://other/run")
    assert done.code == 0
    assert bucket.get("other", "run/1") == b"another"
    assert bucket.names("bucket") == ["a", "run/1"]


def test_a_source_that_was_written_anew_meanwhile_stays(
    bucket: FaultServer, tmp_path: Path, run: Run
) -> None:
    newer = {"match": {"kind": "delete"}, "action": {"status": 412}}
    bucket.faults([newer])
    done = run("mv", "gs://bucket/a", tmp_path / "a")
    assert done.code != 0
    assert "now both objects are there" in done.err
    deletes = [each for each in bucket.log() if each["kind"] == "delete"]
    assert ["ifGenerationMatch=" in each["target"] for each in deletes] == [True]
    assert bucket.names("bucket") == ["a", "run/1", "run/deep/2"]


def test_what_a_symbolic_link_leads_to_stays(server: FaultServer, tmp_path: Path, run: Run) -> None:
    server.put("bucket", "a", b"")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/data").write_bytes(b"precious")
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "own").write_bytes(b"own")
    (source / "folder").symlink_to(tmp_path / "outside")
    (source / "file").symlink_to(tmp_path / "outside/data")
    done = run("mv", "-r", source, "gs://bucket/x")
    assert done.code == 0, done.err
    assert server.names("bucket") == ["a", "x/file", "x/folder/data", "x/own"]
    assert files_of(tmp_path / "outside") == {"data": b"precious"}
    assert sorted(each.name for each in source.iterdir()) == ["folder"]
    assert "lies behind a symbolic link to a folder: it was copied, and stays" in done.err


def tree_with_links(folder: Path) -> dict[str, bytes]:
    """Make files and links to them, by relative names; return what they all give."""
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "z", "deep/file"):
        (folder / name).write_bytes(name.encode())
    for name, target in {
        "b": "a",
        "c": "b",
        "deep/up": "../z",
        "yonder": "z",
        "folder": "deep",
    }.items():
        (folder / name).symlink_to(target)
    (folder / "hard").hardlink_to(folder / "a")
    (folder / "deep/hard").hardlink_to(folder / "z")
    everything = {
        **{"a": b"a", "b": b"a", "c": b"a", "hard": b"a", "z": b"z", "yonder": b"z"},
        **{"deep/file": b"deep/file", "deep/up": b"z", "deep/hard": b"z"},
    }
    behind = {f"folder/{name}": everything[f"deep/{name}"] for name in ("file", "up", "hard")}
    return everything | behind


def objects_of(server: FaultServer, prefix: str) -> dict[str, bytes]:
    names = [each for each in server.names("bucket") if each.startswith(prefix)]
    return {name.removeprefix(prefix): server.get("bucket", name) for name in names}


@pytest.mark.parametrize("parallel", [1, 64])
def test_links_to_files_that_are_moved_themselves_are_read_before_these_go(
    parallel: int, bucket: FaultServer, tmp_path: Path, run: Run
) -> None:
    for destination in ("gs://bucket/x", tmp_path / "x"):
        source = tmp_path / "source"
        everything = tree_with_links(source)
        done = run("mv", "-r", "--parallel", parallel, source, destination)
        assert done.code == 0, done.err
        moved = objects_of(bucket, "x/") if isinstance(destination, str) else files_of(destination)
        assert moved == everything
        assert [each.name for each in source.iterdir()] == ["folder"]
        (source / "folder").unlink()
        source.rmdir()
    assert not any(each.is_symlink() for each in (tmp_path / "x").rglob("*"))
    assert (tmp_path / "x/a").samefile(tmp_path / "x/hard")


def test_links_of_one_source_to_a_file_of_another_are_read_before_it_goes(
    bucket: FaultServer, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "one").write_bytes(b"one")
    (tmp_path / "two").symlink_to("one")
    assert run("mv", tmp_path / "one", tmp_path / "two", "gs://bucket/x/").code == 0
    assert objects_of(bucket, "x/") == {"one": b"one", "two": b"one"}
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_was_not_moved_keeps_the_files_that_it_may_lead_to(
    tmp_path: Path, run: Run
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    everything = tree_with_links(source)
    before = files_of(source)
    (there / "yonder").mkdir(parents=True)
    done = run("mv", "-r", f"{source}/", there)
    assert done.code != 0
    assert "11 files stay at the source" in done.err
    assert files_of(source) == before
    (there / "yonder").rmdir()
    assert run("mv", "-r", f"{source}/", there).code == 0
    assert files_of(there) == everything
    assert [each.name for each in source.iterdir()] == ["folder"]


@pytest.mark.parametrize("how", ["no clobber", "two sources"])
def test_a_link_that_is_left_out_keeps_the_file_that_it_leads_to(
    how: str, tmp_path: Path, run: Run
) -> None:
    first, second, there = (tmp_path / name for name in ("first", "second", "there"))
    for each in (first, second, there):
        each.mkdir()
    (first / "a").write_bytes(b"new")
    (second / "link").symlink_to("../first/a")
    if how == "no clobber":
        (there / "link").write_bytes(b"old")
        assert run("mv", "-rn", f"{first}/", f"{second}/", f"{there}/").code == 0
        assert files_of(there) == {"link": b"old"}
    else:
        (first / "link").write_bytes(b"old")
        assert run("mv", "-r", f"{first}/", f"{second}/", f"{there}/").code != 0
        assert (first / "link").read_bytes() == b"old"
    assert (second / "link").read_bytes() == b"new"


def test_a_link_above_the_source_is_only_the_way_to_it(
    bucket: FaultServer, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "real/source").mkdir(parents=True)
    (tmp_path / "real/source/a").write_bytes(b"a")
    (tmp_path / "way").symlink_to("real")
    done = run("mv", "-r", tmp_path / "way/source", "gs://bucket/x")
    assert (done.code, objects_of(bucket, "x/")) == (0, {"a": b"a"})
    assert "stays" not in done.err
    assert list((tmp_path / "real").iterdir()) == []


def test_nothing_is_moved_into_itself_or_onto_itself(bucket: FaultServer, run: Run) -> None:
    before = bucket.names("bucket")
    assert run("mv", "-r", "gs://bucket/run", "gs://bucket/run/inside").code == 2
    assert run("mv", "gs://bucket/a", "gs://bucket/a").code != 0
    assert run("mv", "gs://bucket/run", "gs://bucket/old").code == 3
    assert bucket.names("bucket") == before
