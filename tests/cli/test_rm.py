"""`headrace rm`."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, Start, kinds

NAMES = ("a", "b/1", "b/2", "b/c/3", "b-4")


def left(server: FaultServer) -> list[str]:
    return server.names("bucket")


@pytest.fixture
def bucket(server: FaultServer) -> FaultServer:
    for name in NAMES:
        server.put("bucket", name, name.encode())
    return server


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["gs://bucket/a"], 0, ["b-4", "b/1", "b/2", "b/c/3"]),
        (["gs://bucket/a", "gs://bucket/b/1"], 0, ["b-4", "b/2", "b/c/3"]),
        (["-r", "gs://bucket/b"], 0, ["a", "b-4"]),
        (["-r", "gs://bucket/b/"], 0, ["a", "b-4"]),
        (["-r", "gs://bucket"], 0, []),
        (["gs://bucket/b/?"], 0, ["a", "b-4", "b/c/3"]),
        (["gs://bucket/**[13]"], 0, ["a", "b-4", "b/2"]),
        (["-r", "gs://bucket/b*"], 0, ["a"]),
        (["gs://bucket/b"], 3, sorted(NAMES)),
        (["gs://bucket/b/"], 3, sorted(NAMES)),
        (["-r", "gs://bucket/none"], 3, sorted(NAMES)),
        (["gs://bucket/none", "gs://bucket/a"], 3, ["b-4", "b/1", "b/2", "b/c/3"]),
        (["-f", "gs://bucket/none"], 0, sorted(NAMES)),
        (["-f", "gs://none/a"], 3, sorted(NAMES)),
        (["gs://bucket/none*"], 3, sorted(NAMES)),
        (["-r", "-n", "gs://bucket"], 0, sorted(NAMES)),
    ],
)
def test_it_deletes_what_is_named_and_nothing_else(
    bucket: FaultServer, arguments: list[str], code: int, expected: list[str], run: Run
) -> None:
    done = run("rm", *arguments)
    assert (done.code, left(bucket)) == (code, expected), done.err
    assert kinds(bucket).get("delete", 0) == len(NAMES) - len(expected)


def test_what_would_be_deleted_is_told(bucket: FaultServer, run: Run) -> None:
    done = run("rm", "-rn", "gs://bucket/b")
    assert done.lines == [f"would delete gs://bucket/b/{each}" for each in ("1", "2", "c/3")]
    assert done.err == "headrace: would delete 3 objects, 11 B\n"
    done = run("rm", "-r", "--json", "gs://bucket/b")
    *lines, summary = done.json
    assert {line["url"] for line in lines} == {f"gs://bucket/b/{e}" for e in ("1", "2", "c/3")}
    assert {line["type"] for line in lines} == {"deleted"}
    assert summary == {"type": "summary", "deleted": 3, "deleted_bytes": 11, "failed": 0}


def test_it_ends_when_nobody_reads_what_would_be_deleted(tmp_path: Path, start: Start) -> None:
    for number in range(1000):
        (tmp_path / f"{number:0200}").write_bytes(b"")
    process = start("rm", "-rn", tmp_path)
    assert process.stdout is not None
    assert process.stdout.read(5) == b"would"
    process.stdout.close()
    assert process.wait(200) == 141


def test_a_name_with_wildcards_is_one_object(server: FaultServer, run: Run) -> None:
    for name in ("star*", "star1", "star2", "q[1]", "q1"):
        server.put("bucket", name, b"x")
    assert run("rm", "gs://bucket/star*", "gs://bucket/q[1]").code == 0
    assert left(server) == ["q1", "star1", "star2"]
    assert run("rm", "--literal", "gs://bucket/star*").code == 3
    assert left(server) == ["q1", "star1", "star2"]
    assert run("rm", "gs://bucket/star*").code == 0
    assert left(server) == ["q1"]


def test_a_folder_whose_name_has_wildcards_is_that_folder(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    names = ["a*!/w", "a*/w", "ab/w", "run1/w", "run[1]/w"]
    for name in names:
        server.put("bucket", name, name.encode())
    assert run("ls", "gs://bucket/run[1]").lines == ["gs://bucket/run[1]/w"]
    assert run("cp", "-r", "gs://bucket/run[1]", f"{tmp_path}/got").code == 0
    assert (tmp_path / "got" / "w").read_text() == "run[1]/w"
    assert run("rm", "gs://bucket/run[1]").code == 3
    assert left(server) == names
    assert run("rm", "-r", "gs://bucket/run[1]", "gs://bucket/a*/").code == 0
    assert left(server) == ["a*!/w", "ab/w", "run1/w"]
    assert run("rm", "-r", "gs://bucket/run[1]").code == 0
    assert left(server) == ["a*!/w", "ab/w"]


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_on_a_terminal_it_asks_first(
    bucket: FaultServer, start: Start, answer: str, deleted: bool
) -> None:
    for arguments in (["gs://bucket/b*"], ["-r", "gs://bucket/b/"]):
        leader, follower = pty.openpty()
        os.write(leader, answer.encode())
        process = start("rm", *arguments, stdin=follower)
        _, err = process.communicate(timeout=120)
        os.close(leader)
        os.close(follower)
        assert process.returncode == 0
        assert b"[y/N]" in err
        assert (b"nothing was deleted" in err) is not deleted
    assert left(bucket) == (["a"] if deleted else sorted(NAMES))


def test_with_force_it_does_not_ask(bucket: FaultServer, start: Start) -> None:
    leader, follower = pty.openpty()
    process = start("rm", "-rf", "gs://bucket", stdin=follower)
    _, err = process.communicate(timeout=120)
    os.close(leader)
    os.close(follower)
    assert (process.returncode, left(bucket)) == (0, [])
    assert err == b"headrace: deleted 5 objects, 15 B\n"


def test_one_failure_does_not_stop_the_others(bucket: FaultServer, run: Run) -> None:
    bucket.faults([{"match": {"kind": "delete"}, "from": 2, "count": 1, "action": {"status": 403}}])
    done = run("rm", "-r", "gs://bucket")
    assert (done.code, len(left(bucket))) == (4, 1)
    assert "; 1 failed" in done.err


def test_files_go_with_their_directories_and_links_do_not_lead_away(
    tmp_path: Path, run: Run
) -> None:
    for name in ("tree/a", "tree/d/b", "tree/.headrace-tmp-1-2-3", "elsewhere/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "tree" / "empty").mkdir()
    (tmp_path / "tree" / "to a directory").symlink_to("../elsewhere")
    (tmp_path / "tree" / "broken").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("tree")
    done = run("rm", tmp_path / "tree")
    assert (done.code, "rm -r" in done.err) == (3, True)
    assert run("rm", "-r", tmp_path / "link").code == 0
    assert (tmp_path / "tree" / "d" / "b").exists()
    done = run("rm", "-r", "--json", tmp_path / "tree")
    assert (done.code, done.json[-1]["deleted"]) == (0, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere"]
    assert (tmp_path / "elsewhere" / "c").exists()
    assert run("rm", tmp_path / "elsewhere" / "c").code == 0
    assert run("rm", tmp_path / "elsewhere" / "c").code == 3


def test_the_directory_that_one_is_in_and_all_above_it_stay(tmp_path: Path, start: Start) -> None:
    here = tmp_path / "above" / "here"
    here.mkdir(parents=True)
    (here / "a").write_bytes(b"x")
    (here.parent / "beside").write_bytes(b"x")
    (tmp_path / "link").symlink_to("above")
    for target in (".", "..", "../../above", here.parent, f"{tmp_path}/link/here", "/"):
        process = start("rm", "-rf", target, cwd=here)
        _, err = process.communicate(timeout=120)
        assert (process.returncode, b"is not deleted" in err) == (2, True), (target, err)
    assert (here / "a").exists()
    assert (here.parent / "beside").exists()
    process = start("rm", "-rf", "../above/here", cwd=tmp_path / "above")
    assert (process.wait(120), here.exists()) == (0, False)
