"""`headrace clean`."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, kinds

DAY_S = 86400
OLD = [
    f"dataflux-composed-objects/headrace-{7:032x}",
    f"dataflux-composed-objects/headrace-{8:032x}",
    f"headrace-uploads/{9:032x}/000001",
    f"headrace-uploads/{9:032x}/joined-000003",
]
# Old as well, and not ours, or not quite.
OTHERS = [
    "data",
    "dataflux-composed-objects/6f1b2c3d-0a1b-4c2d-8e3f-0123456789ab",
    f"dataflux-composed-objects/headrace-{7:032x}0",
    f"dataflux-composed-objects/headrace-{7:031x}",
    f"dataflux-composed-objects/headrace-{7:031x}G",
    f"dataflux-composed-objects/headrace-{7:032x}/x",
    f"dataflux-composed-objects/x/headrace-{7:032x}",
    "dataflux-composed-objects/mine",
    f"headrace-uploads/{9:032x}",
    f"headrace-uploads/{9:032x}/",
    f"headrace-uploads/{9:032x}/a/b",
    f"headrace-uploads/{9:033x}/1",
    "headrace-uploads/notes.txt",
    f"sub/dataflux-composed-objects/headrace-{7:032x}",
]
YOUNG = [f"dataflux-composed-objects/headrace-{10:032x}", f"headrace-uploads/{11:032x}/1"]


@pytest.fixture
def leftovers(server: FaultServer) -> FaultServer:
    """The bucket after two days in which processes were killed."""
    for name in OLD + OTHERS:
        server.put("bucket", name, b"12345", ageSeconds=2 * DAY_S)
    for name in YOUNG:
        server.put("bucket", name, b"12345", ageSeconds=3600)
    return server


def test_exactly_what_is_ours_and_old_is_deleted(leftovers: FaultServer, run: Run) -> None:
    done = run("clean", "gs://bucket")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        *(f"deleted gs://bucket/{name}" for name in OLD),
        "TOTAL: deleted 4 objects, 20 bytes (20 B)",
        "left alone: 2 objects, younger than --older-than or in use",
        "left alone: 1 object of gs-torch-dataflux. If no job of it reads this bucket now: "
        "gcloud storage rm 'gs://bucket/dataflux-composed-objects/????????-????-*'",
    ]
    assert leftovers.names("bucket") == sorted(OTHERS + YOUNG)
    assert kinds(leftovers) == {"list": 2, "delete": 4, "multipart_list": 1}
    deletes = [each["target"] for each in leftovers.log() if each["kind"] == "delete"]
    assert all("ifGenerationMatch=" in target for target in deletes)


@pytest.mark.parametrize(
    ("age", "deleted"),
    [("0", OLD + YOUNG), ("59m", OLD + YOUNG), ("0.5h", OLD + YOUNG), ("61m", OLD), ("3d", [])],
)
def test_the_age_is_what_was_asked_for(
    leftovers: FaultServer, run: Run, age: str, deleted: list[str]
) -> None:
    done = run("clean", "gs://bucket", "--older-than", age)
    assert done.code == 0
    assert leftovers.names("bucket") == sorted({*OLD, *OTHERS, *YOUNG} - {*deleted})


def test_a_dry_run_says_the_same_and_deletes_nothing(leftovers: FaultServer, run: Run) -> None:
    before = leftovers.names("bucket")
    done = run("clean", "--dry-run", "gs://bucket/")
    assert (done.code, done.err) == (0, "")
    assert done.lines[:5] == [
        *(f"would delete gs://bucket/{name}" for name in OLD),
        "TOTAL: would delete 4 objects, 20 bytes (20 B)",
    ]
    assert leftovers.names("bucket") == before
    assert kinds(leftovers) == {"list": 2, "multipart_list": 1}


def test_json_is_one_object_a_line_and_a_summary(leftovers: FaultServer, run: Run) -> None:
    done = run("clean", "gs://bucket", "--json")
    assert (done.code, done.err) == (0, "")
    *objects, summary = done.json
    assert [each["name"] for each in objects] == OLD
    assert {each["type"] for each in objects} == {"deleted"}
    assert all(each["size_bytes"] == 5 and each["generation"] for each in objects)
    assert summary == {
        "type": "summary",
        "deleted": 4,
        "deleted_bytes": 20,
        "younger": 2,
        "failed": 0,
        "dataflux": 1,
        "uploads": 0,
        "unfinished_uploads": 0,
    }


def test_nothing_to_do_is_no_failure(server: FaultServer, run: Run) -> None:
    server.put("bucket", "data", b"1")
    done = run("clean", "gs://bucket")
    assert (done.code, done.err) == (0, "")
    assert done.lines == ["TOTAL: deleted 0 objects, 0 bytes (0 B)"]


def test_many_are_deleted_many_at_a_time(server: FaultServer, run: Run) -> None:
    for i in range(64):
        server.put("bucket", f"dataflux-composed-objects/headrace-{i:032x}", b"1", ageSeconds=1e6)
    server.latency(400)  # so that they meet
    done = run("clean", "gs://bucket")
    assert done.code == 0
    assert server.names("bucket") == []
    assert server.stats()["max_in_flight"] > 4


def test_what_may_not_be_deleted_is_told_one_by_one(leftovers: FaultServer, run: Run) -> None:
    leftovers.faults(
        [
            {
                "match": {"kind": "delete", "path_contains": OLD[0]},
                "action": {"status": 403, "reason": "forbidden", "message": "no delete access"},
            }
        ]
    )
    done = run("clean", "gs://bucket")
    assert done.code == 4
    assert f"gs://bucket/{OLD[0]}" in done.err
    assert "PermissionDeniedError" in done.err
    assert leftovers.names("bucket") == sorted(OTHERS + YOUNG + OLD[:1])


def test_what_is_written_anew_meanwhile_stays(leftovers: FaultServer, run: Run) -> None:
    leftovers.faults(
        [
            {
                "match": {"kind": "delete", "path_contains": OLD[0]},
                "action": {"status": 412, "reason": "conditionNotMet"},
            }
        ]
    )
    done = run("clean", "gs://bucket", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json[-1]["deleted"] == 3
    assert done.json[-1]["younger"] == 3


def test_temporary_objects_below_a_prefix_are_found_there(server: FaultServer, run: Run) -> None:
    for name in ("data", *OLD):
        server.put("bucket", f"team/tmp/{name}", b"12345", ageSeconds=2 * DAY_S)
    prefix = ("--temporary-prefix", "team/tmp")
    assert run("ls", "-r", "gs://bucket", *prefix).lines == ["gs://bucket/team/tmp/data"]
    done = run("clean", "gs://bucket")
    assert (done.code, len(server.names("bucket"))) == (0, 5)
    done = run("clean", "gs://bucket", *prefix)
    assert (done.code, server.names("bucket")) == (0, ["team/tmp/data"])
    assert done.lines[0] == f"deleted gs://bucket/team/tmp/{OLD[0]}"


def test_a_missing_bucket_is_not_found(server: FaultServer, run: Run) -> None:
    done = run("clean", "gs://nobody")
    assert done.code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gs://bucket/train/"], "headrace clean gs://bucket"),
        (["gs://bucket", "--older-than", "soon"], "--older-than is 'soon'"),
        (["gs://bucket", "--older-than", "5"], "--older-than is '5'; it must be a number with s"),
        (["gs://bucket", "--temporary-prefix", "../x"], "temporary_prefix is '../x'"),
        (["gs://bucket", "--older-than", "-1d"], "--older-than is '-1d'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    server: FaultServer, run: Run, arguments: list[str], said: str
) -> None:
    done = run("clean", *arguments)
    assert done.code == 2
    assert said in done.err
    assert kinds(server) == {}


def test_a_prefix_is_where_abandoned_files_of_checkpoints_are_looked_for(
    leftovers: FaultServer, run: Run
) -> None:
    abandoned = f"run/1/__0_0-{1:032x}.distcp"
    elsewhere = f"run10/__0_0-{2:032x}.distcp"
    for name in (abandoned, elsewhere, "run/1/notes.distcp"):
        leftovers.put("bucket", name, b"12345", ageSeconds=2 * DAY_S)
    done = run("clean", "gs://bucket/run", "--checkpoints")
    assert (done.code, done.err) == (0, "")
    assert done.lines[4:6] == [
        f"deleted gs://bucket/{abandoned}",
        "TOTAL: deleted 5 objects, 25 bytes (25 B)",
    ]
    assert "gcloud storage rm 'gs://bucket/dataflux-composed-objects/" in done.lines[-1]
    assert elsewhere in leftovers.names("bucket")
    assert "run/1/notes.distcp" in leftovers.names("bucket")


OUR_FILE = ".headrace-tmp-123-0-456"
OTHER_FILES = [
    "data",
    "headrace-tmp-1-2-3",
    ".headrace-tmp-notes",
    ".headrace-tmp-1-2",
    ".headrace-tmp-1-2-3.old",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory in which processes were killed."""
    folder = tmp_path / "with space"
    (folder / "a" / "b").mkdir(parents=True)
    for name in (*OTHER_FILES, OUR_FILE, f"a/b/{OUR_FILE}"):
        (folder / name).write_bytes(b"12345")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / OUR_FILE).write_bytes(b"12345")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / f"{OUR_FILE}9").mkdir()
    return folder


def test_a_directory_is_swept_of_temporary_files(
    folder: Path, tmp_path: Path, server: FaultServer, run: Run
) -> None:
    looked = run("clean", "-n", folder, "--older-than", "0")
    done = run("clean", folder, "--older-than", "0")
    assert (done.code, done.err) == (0, "")
    assert sorted(done.lines[:2]) == [
        f"deleted file://{folder}/{OUR_FILE}",
        f"deleted file://{folder}/a/b/{OUR_FILE}",
    ]
    assert done.lines[2:] == ["TOTAL: deleted 2 objects, 10 bytes (10 B)"]
    assert [line.replace("would delete", "deleted") for line in looked.lines] == done.lines
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == sorted(OTHER_FILES)
    assert (tmp_path / "outside" / OUR_FILE).exists()
    assert kinds(server) == {}


def test_a_young_temporary_file_stays(folder: Path, run: Run) -> None:
    done = run("clean", f"file://{folder}")
    assert done.lines == [
        "TOTAL: deleted 0 objects, 0 bytes (0 B)",
        "left alone: 2 objects, younger than --older-than or in use",
    ]
    assert (folder / OUR_FILE).exists()


def test_a_temporary_file_that_somebody_writes_stays(folder: Path, run: Run) -> None:
    with (folder / OUR_FILE).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = run("clean", folder, "--older-than", "0", "--json")
    assert done.json[-1]["deleted"] == 1
    assert done.json[-1]["younger"] == 1
    assert (folder / OUR_FILE).exists()
    assert run("clean", folder, "--older-than", "0").lines[-1].startswith("TOTAL: deleted 1 object")
    assert not (folder / OUR_FILE).exists()


def test_a_directory_that_cannot_be_read_is_told_and_the_rest_is_swept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lost+found").mkdir()
    scandir = os.scandir

    def refused(path: str) -> Any:
        if str(path).endswith("lost+found"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    cleaned = headrace.clean(folder, older_than_s=0)
    assert not (folder / OUR_FILE).exists()
    ((name, error),) = cleaned.failed
    assert name == "lost+found"
    assert isinstance(error, headrace.PermissionDeniedError)


def test_a_missing_directory_is_not_found(tmp_path: Path, run: Run) -> None:
    done = run("clean", tmp_path / "missing")
    assert done.code == 3
    assert "no such directory" in done.err
