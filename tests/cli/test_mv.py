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


def test_nothing_is_moved_into_itself_or_onto_itself(bucket: FaultServer, run: Run) -> None:
    before = bucket.names("bucket")
    assert run("mv", "-r", "gs://bucket/run", "gs://bucket/run/inside").code == 2
    assert run("mv", "gs://bucket/a", "gs://bucket/a").code != 0
    assert run("mv", "gs://bucket/run", "gs://bucket/old").code == 3
    assert bucket.names("bucket") == before
