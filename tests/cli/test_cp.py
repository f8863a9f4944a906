"""`headrace cp`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer
from tests.cli.conftest import ODD_NAMES, Run, RunEach, Start, kinds, on_terminal
from tests.waiting import wait_until

MiB = 1 << 20


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; also what would be a temporary one."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def make(folder: Path, names: list[str]) -> dict[str, bytes]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 100)
    return {name: name.encode() * 100 for name in names}


def stored(server: FaultServer, bucket: str) -> dict[str, bytes]:
    return {name: server.get(bucket, name) for name in server.names(bucket)}


# ---- every direction


def test_odd_names_go_everywhere_and_come_back(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    expected = make(tmp_path / "files", ODD_NAMES)
    steps = [
        (f"{tmp_path}/files/", "gs://bucket/x"),
        ("gs://bucket/x/", "gs://bucket/y"),  # by the server
        ("gs://bucket/y/", "gs://other"),
        ("gs://other", f"file://{tmp_path}/there"),
        (f"{tmp_path}/there/", f"{tmp_path}/back"),
    ]
    for source, destination in steps:
        done = run("cp", "-r", source, destination)
        assert (done.code, done.out) == (0, b""), done.err
        assert done.err.startswith(f"headrace: copied {len(ODD_NAMES)} objects, ")
    for prefix in ("x/", "y/"):
        assert server.names("bucket", prefix) == sorted(f"{prefix}{name}" for name in ODD_NAMES)
    assert stored(server, "other") == expected
    assert tree(tmp_path / "there") == tree(tmp_path / "back") == expected
    count = len(ODD_NAMES)
    # Three buckets are listed as sources, and three as destinations, for what is there already;
    # before the server copies, it is asked what there is to be replaced.
    expected_requests = {"list": 6, "upload": 2 * count, "media": 2 * count}
    assert kinds(server) == expected_requests | {"get": count, "rewrite": count}


def test_a_real_server(fake_gcs: FakeGcsServer, gcs_bucket: str, tmp_path: Path, run: Run) -> None:
    expected = make(tmp_path / "files", ODD_NAMES)
    at = ("--endpoint", fake_gcs.url)
    assert run("cp", "-r", tmp_path / "files/", f"gs://{gcs_bucket}/a/", *at).code == 0
    assert fake_gcs.names(gcs_bucket) == sorted(f"a/files/{name}" for name in ODD_NAMES)
    assert fake_gcs.get(gcs_bucket, "a/files/50%") == b"50%" * 100
    assert run("cp", "-r", f"gs://{gcs_bucket}/a/files", tmp_path, *at).code == 0
    assert run("cp", "-r", f"gs://{gcs_bucket}/a/files/", tmp_path / "new", *at).code == 0
    assert tree(tmp_path / "new") == expected
    assert run("cat", f"gs://{gcs_bucket}/a/files/q?x=1&y=2", *at).out == b"q?x=1&y=2" * 100


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a.txt", "new"], ["new"]),
        (["a.txt", "new/"], ["new/a.txt"]),
        (["a.txt", "there"], ["there/a.txt"]),
        (["a.txt", "."], ["a.txt"]),
        (["a.txt", "new/deep/b"], ["new/deep/b"]),
        (["a.txt", "b.txt", "there"], ["there/a.txt", "there/b.txt"]),
        (["-r", "d", "new"], ["new/1", "new/e/2"]),
        (["-r", "d", "new/"], ["new/d/1", "new/d/e/2"]),
        (["-r", "d", "there"], ["there/d/1", "there/d/e/2"]),
        (["-r", "d/", "there"], ["there/1", "there/e/2"]),
        (["-r", "d/", "new"], ["new/1", "new/e/2"]),
        (["-r", "d/", "new/"], ["new/1", "new/e/2"]),
        (["-r", "a.txt", "d", "new/"], ["new/a.txt", "new/d/1", "new/d/e/2"]),
        (["-r", "a.txt", "new"], ["new"]),
    ],
)
def test_where_things_go(
    server: FaultServer, tmp_path: Path, arguments: list[str], expected: list[str], run: Run
) -> None:
    """From a bucket to files: a directory that is there is a folder, as for cp."""
    for name in ("a.txt", "b.txt", "d/1", "d/e/2", "da"):
        server.put("bucket", name, b"x")
    (tmp_path / "there").mkdir()
    options = [each for each in arguments if each == "-r"]
    *sources, destination = [each for each in arguments if each != "-r"]
    urls = [f"gs://bucket/{name}" for name in sources]
    done = run("cp", *options, *urls, f"{tmp_path}/{destination}")
    assert (done.code, sorted(tree(tmp_path))) == (0, expected), done.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a.txt", "gs://bucket"], ["a.txt"]),
        (["a.txt", "gs://bucket/x"], ["x"]),
        (["a.txt", "gs://bucket/x/"], ["x/a.txt"]),
        (["-r", "d", "gs://bucket"], ["d/1", "d/e/2"]),
        (["-r", "d/", "gs://bucket"], ["1", "e/2"]),
        (["-r", "d/.", "gs://bucket/x"], ["x/1", "x/e/2"]),
        (["-r", "d", "gs://bucket/x"], ["x/1", "x/e/2"]),
        (["-r", "d", "gs://bucket/x/"], ["x/d/1", "x/d/e/2"]),
    ],
)
def test_where_files_go(
    server: FaultServer, tmp_path: Path, arguments: list[str], expected: list[str], run: Run
) -> None:
    make(tmp_path, ["a.txt", "b.txt", "d/1", "d/e/2", "da"])
    (tmp_path / "d" / "empty").mkdir()
    paths = [
        f"{tmp_path}/{each}" if "//" not in each and each != "-r" else each for each in arguments
    ]
    done = run("cp", *paths)
    assert (done.code, server.names("bucket")) == (0, expected), done.err


def test_types_and_encodings_are_kept_or_guessed(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    make(tmp_path, ["a.png", "b.unknown"])
    server.put("other", "c", b"x", contentType="text/x-special", contentEncoding="br")
    run("cp", tmp_path / "a.png", tmp_path / "b.unknown", "gs://other/c", "gs://bucket")
    types = {
        e["name"]: (e["content_type"], e["content_encoding"])
        for e in run("ls", "--json", "gs://bucket").json
    }
    assert types == {
        "a.png": ("image/png", ""),
        "b.unknown": ("application/octet-stream", ""),
        "c": ("text/x-special", "br"),
    }


def test_a_large_object_with_an_encoding_goes_in_parts_like_any_other(
    server: FaultServer, run: Run
) -> None:
    data = random.Random(4).randbytes(70 * MiB)
    server.put("other", "c", data, contentType="text/x-special", contentEncoding="br")
    done = run("cp", "gs://other/c", "gs://bucket")
    assert done.code == 0, done.err
    [facts] = run("stat", "--json", "gs://bucket/c").json
    assert (facts["content_type"], facts["content_encoding"]) == ("text/x-special", "br")
    assert server.get("bucket", "c") == data
    assert kinds(server)["upload"] == 5  # of 16 MiB each
    assert kinds(server)["compose"] == 1


def test_a_closed_stdin_is_told(server: FaultServer, start: Start) -> None:
    process = start("cp", "-", "gs://bucket/x", stdin=None, preexec_fn=lambda: os.close(0))
    _, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (
        2,
        b"headrace: InvalidArgumentError: '-' as SOURCE: stdin is closed\n",
    )
    assert server.names("bucket") == []


def test_stdin_and_stdout(server: FaultServer, tmp_path: Path, run: Run) -> None:
    assert run("cp", "-", "gs://bucket/a", stdin=b"hello").code == 0
    assert server.get("bucket", "a") == b"hello"
    done = run("cp", "gs://bucket/a", "-")
    assert (done.code, done.out, done.err) == (0, b"hello", "")
    data = random.Random(3).randbytes(65 * MiB)
    assert run("cp", "-", tmp_path / "large", stdin=data).code == 0
    assert (tmp_path / "large").read_bytes() == data
    for arguments in (["-", "gs://bucket/"], ["-", "-"], ["-", "gs://bucket/a", "gs://other/"]):
        done = run("cp", *arguments, stdin=b"")
        assert (done.code, done.out) == (2, b""), arguments


# ---- what must not happen


def test_no_name_leaves_the_destination(server: FaultServer, tmp_path: Path, run: Run) -> None:
    tricks = ["x/../../evil", "x/..", "x//etc/evil", "x/./evil", "x/a/../../../evil", "x/a//b"]
    for name in [*tricks, "x/good"]:
        server.put("bucket", name, b"x")
    folder = tmp_path / "a" / "b"
    done = run("cp", "-r", "--json", "gs://bucket/x/", folder)
    assert done.code == 1
    assert tree(tmp_path) == {"a/b/good": b"x"}
    [summary] = done.json
    assert (summary["copied"], summary["failed"]) == (1, len(tricks))
    refused = {error["url"] for error in done.json_errors}
    assert refused == {f"file://{folder}/{name.removeprefix('x/')}" for name in tricks}
    for name in ("/abs", ".."):
        server.put("other", name, b"x")
    assert run("cp", "-r", "gs://other", folder).code == 1
    assert run("cp", "gs://other/..", f"{folder}/").code == 1
    assert tree(tmp_path) == {"a/b/good": b"x"}


def test_marks_of_folders_are_no_files(server: FaultServer, tmp_path: Path, run: Run) -> None:
    for name in ("x/", "x/y/", "x/y/a"):
        server.put("bucket", name, b"")
    done = run("cp", "-r", "--json", "gs://bucket/x", tmp_path)
    assert (done.code, tree(tmp_path)) == (0, {"x/y/a": b""})
    assert (done.json[0]["copied"], done.json[0]["skipped"]) == (1, 2)


def test_trees_that_become_one_do_not_overwrite_each_other(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    for tree in ("one", "two"):
        (tmp_path / tree).mkdir()
        (tmp_path / tree / "same").write_text(tree)
        (tmp_path / tree / f"only in {tree}").write_text(tree)
    done = run("cp", "-r", f"{tmp_path}/one/", f"{tmp_path}/two/", "gs://bucket/both/")
    assert done.code == 2
    assert f"{tmp_path}/two/same: another source gives gs://bucket/both/same, too" in done.err
    store = headrace.Store("gs://bucket")
    assert store.read("both/same").bytes() == b"one"
    assert {info.name for info in store.list()} == {
        "both/same",
        "both/only in one",
        "both/only in two",
    }


def test_what_is_no_file_is_not_replaced(tmp_path: Path, run: Run) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    done = run("cp", str(tmp_path / "file"), str(tmp_path / "pipe"))
    assert done.code == 1
    assert "not a regular file" in done.err
    assert (tmp_path / "pipe").is_fifo()


def test_what_is_there_is_left_alone_if_asked(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    for i in range(10):
        server.put("bucket", f"{i}", b"new")
    make(tmp_path, ["3", "7"])
    done = run("cp", "-r", "--no-clobber", "--json", "gs://bucket", tmp_path)
    assert (done.code, done.json[0]["copied"], done.json[0]["skipped"]) == (0, 8, 2)
    assert kinds(server) == {"list": 1, "media": 8}
    assert tree(tmp_path)["3"] == b"3" * 100
    server.put("other", "x/3", b"old")
    before = kinds(server)
    done = run("cp", "-rn", "--json", f"{tmp_path}/", "gs://other/x")
    assert (done.code, done.json[0]["copied"], done.json[0]["skipped"]) == (0, 9, 1)
    # One listing says what is there, not a request for each.
    assert kinds(server) == before | {"list": before["list"] + 1, "upload": 9}
    assert server.get("other", "x/3") == b"old"
    done = run("cp", "-rn", "--json", f"{tmp_path}/", "gs://other/x")
    assert (done.code, done.json[0]["copied"], done.json[0]["skipped"]) == (0, 0, 10)
    done = run("cp", "-rn", "--json", "gs://other/x/", "gs://other/y")
    assert done.json[0]["copied"] == 10
    done = run("cp", "-rn", "--json", "gs://other/x/", "gs://other/y")
    assert (done.json[0]["copied"], done.json[0]["skipped"]) == (0, 10)
    assert kinds(server)["rewrite"] == 10


def test_a_copy_that_is_repeated_copies_only_what_is_not_equal(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    names = [f"{i:04}" for i in range(50)]
    make(tmp_path / "a", names)

    def copy(source: object, destination: object) -> tuple[int, int]:
        done = run("cp", "-r", "--json", source, destination)
        assert (done.code, done.err) == (0, "")
        return done.json[0]["copied"], done.json[0]["skipped"]

    steps = [
        (f"{tmp_path}/a/", "gs://bucket/x"),
        ("gs://bucket/x/", "gs://other/y"),
        ("gs://other/y/", f"{tmp_path}/b"),
        ("gs://other/y/", "gs://other/z"),
    ]
    for source, destination in steps:
        assert copy(source, destination) == (50, 0)
        before = kinds(server)
        assert copy(source, destination) == (0, 50)
        # Listings tell it all; of files the sums are computed here.
        assert {**kinds(server), "list": 0} == {**before, "list": 0}
    # Neither what has the same size, nor what has only the same name, is taken for equal.
    for store in (headrace.Store(tmp_path / "b"), headrace.Store("gs://other")):
        prefix = "" if store.url.startswith("file") else "z/"
        store.write(f"{prefix}0007", b"700" * 133 + b"7")
        store.write(f"{prefix}0008", b"8")
        store.delete(f"{prefix}0009")
    for _, destination in steps[2:]:
        assert copy("gs://other/y/", destination) == (3, 47)
    assert tree(tmp_path / "b") == tree(tmp_path / "a")
    found = stored(server, "other")
    assert {name: found[f"z/{name}"] for name in names} == tree(tmp_path / "a")


def test_what_is_listed_at_the_destination_grows_with_what_is_copied(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    server.synthetic("many", 500_000, 10, shape="flat")
    make(tmp_path, ["0000000", "0000001", "0300000", "0499999"])
    done = run("cp", "-r", "--json", f"{tmp_path}/", "gs://many")
    assert (done.code, done.json[0]["copied"]) == (0, 4)
    assert kinds(server)["list"] < 200  # of 500 pages


def test_a_missing_bucket_stops_it_at_once(
    server: FaultServer, tmp_path: Path, run_each: RunEach
) -> None:
    make(tmp_path, [f"{i:04}" for i in range(300)])
    files = sorted(tmp_path.iterdir())
    commands = [["-r", tmp_path, "gs://none/x"], ["-n", "-r", tmp_path, "gs://none/x"]]
    commands += [[*files, "gs://none/"], ["-r", "gs://none/", tmp_path / "new"]]
    commands += [["gs://none/a", tmp_path / "new"]]
    for done in run_each(*(["cp", *arguments] for arguments in commands)):
        first, *summary = done.err.splitlines()
        assert (done.code, first) == (
            3,
            "headrace: NotFoundError: gs://none: there is no such bucket",
        )
        assert [line.split()[1] for line in summary] == ["copied"]
    assert kinds(server).get("upload", 0) < 300


def test_a_prefix_is_for_cp_r(server: FaultServer, tmp_path: Path, run: Run) -> None:
    server.put("bucket", "train/1", b"x")
    (tmp_path / "train").mkdir()
    for source in ("gs://bucket/train", tmp_path / "train"):
        done = run("cp", source, tmp_path / "x")
        assert (done.code, "what lies below it is for cp -r" in done.err) == (3, True)


def test_nothing_is_copied_into_itself(
    server: FaultServer, tmp_path: Path, run_each: RunEach
) -> None:
    server.put("bucket", "a/1", b"x")
    make(tmp_path, ["a/1"])
    (tmp_path / "link").symlink_to("a")
    commands = [
        ["-r", "gs://bucket", "gs://bucket/copy"],
        ["-r", "gs://bucket/a/", "gs://bucket/a"],
        ["-r", "gs://bucket/a", "gs://bucket/a/b"],
        ["-r", tmp_path / "a", tmp_path / "a"],
        ["-r", tmp_path, tmp_path / "new"],
        ["-r", tmp_path / "a", tmp_path / "link/new"],
        ["gs://bucket/a/1", "gs://bucket/a/1"],
    ]
    *ended, done = run_each(*(["cp", *arguments] for arguments in commands))
    for arguments, refused in zip(commands, ended, strict=False):
        assert refused.code == 2, arguments
        assert "into itself" in refused.err
    assert done.code == 1
    assert "the same object" in done.err
    assert server.names("bucket") == ["a/1"]
    assert sorted(tree(tmp_path)) == ["a/1"]


def test_wrong_usage_is_code_2(server: FaultServer, tmp_path: Path, run_each: RunEach) -> None:
    make(tmp_path, ["a", "b", "d/a"])
    a, b = tmp_path / "a", tmp_path / "b"
    wrong = [
        ([a], "DESTINATION"),
        ([a, b, "gs://bucket/x"], "end it with '/'"),
        ([a, tmp_path / "d/a", "gs://bucket/x/"], "the same last name"),
        ([a, "gs://bucket/x", "--parallel", 0], "parallel"),
        (["-r", a, "-"], "neither -r"),
    ]
    ended = run_each(*(["cp", *arguments] for arguments, _ in wrong), COLUMNS="200")
    for (arguments, text), done in zip(wrong, ended, strict=True):
        assert done.code == 2, arguments
        assert text in done.err


# ---- what goes wrong on the way


def test_one_failure_does_not_stop_the_others(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    expected = make(tmp_path, [f"{i:03}" for i in range(200)])
    server.faults(
        [
            {"match": {"kind": "upload"}, "from": 20, "count": 1, "action": {"status": 403}},
            {"match": {"kind": "upload"}, "from": 100, "count": 2, "action": {"status": 400}},
        ]
    )
    done = run("cp", "-r", "--json", tmp_path, "gs://bucket/x")
    assert done.code == 1
    [summary] = done.json
    assert (summary["copied"], summary["failed"]) == (197, 3)
    assert {error["error"] for error in done.json_errors} == {
        "PermissionDeniedError",
        "InvalidArgumentError",
    }
    failed = {error["url"].removeprefix("gs://bucket/x/") for error in done.json_errors}
    assert len(failed) == 3
    found = stored(server, "bucket")
    assert found == {f"x/{name}": data for name, data in expected.items() if name not in failed}
    assert summary["copied_bytes"] == sum(map(len, found.values()))
    assert kinds(server) == {"list": 1, "upload": 200}


def test_faults_that_pass_are_not_failures(server: FaultServer, tmp_path: Path, run: Run) -> None:
    expected = {f"{i:03}": random.Random(i).randbytes(50_000) for i in range(100)}
    for name, data in expected.items():
        server.put("bucket", name, data)
    server.faults(
        [
            {"match": {"kind": "media"}, "every": 10, "count": 50, "action": {"status": 503}},
            {"match": {"kind": "media"}, "from": 3, "count": 2, "action": {"reset_after_bytes": 9}},
            {"match": {"kind": "media"}, "from": 33, "count": 1, "action": {"flip_byte": 5}},
            {"match": {"kind": "upload"}, "every": 10, "count": 50, "action": {"status": 503}},
        ]
    )
    done = run("cp", "-r", "--json", "gs://bucket", "gs://other")
    assert (done.code, done.err) == (0, "")
    assert (done.json[0]["copied"], done.json[0]["failed"]) == (100, 0)
    assert stored(server, "other") == expected
    fired = [count["fired"] for count in server.fault_counts()]
    assert kinds(server)["media"] == 100 + sum(fired[:3])
    assert kinds(server)["upload"] == 100 + fired[3]
    assert fired[1:3] == [2, 1]


def test_what_arrives_wrong_is_not_written(server: FaultServer, tmp_path: Path, run: Run) -> None:
    for name in ("bad", "good"):
        server.put("bucket", name, bytes(1000))
    server.faults([{"match": {"path_contains": "bad"}, "action": {"flip_byte": 5}}])
    done = run("cp", "-r", "gs://bucket", tmp_path)
    assert done.code == 1
    assert done.err.startswith("headrace: CorruptDataError: gs://bucket/bad")
    assert tree(tmp_path) == {"good": bytes(1000)}


def test_sources_that_are_not_there(
    server: FaultServer, tmp_path: Path, run: Run, run_each: RunEach
) -> None:
    server.put("bucket", "a", b"x")
    server.put("bucket", "d/1", b"x")
    done = run("cp", "gs://bucket/none", "gs://bucket/a", f"{tmp_path}/")
    assert (done.code, tree(tmp_path)) == (3, {"a": b"x"})
    missing = [["gs://bucket/d"], ["-r", "gs://bucket/none"], [tmp_path / "none"], ["gs://no/a"]]
    missing.append(["gs://bucket/d/"])
    ended = run_each(*(["cp", *arguments, tmp_path / "new"] for arguments in missing))
    assert [done.code for done in ended] == [3] * 5
    assert "-r" in ended[-1].err
    assert tree(tmp_path) == {"a": b"x"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_leaves_no_half_object(
    server: FaultServer, tmp_path: Path, start: Start, number: signal.Signals, code: int
) -> None:
    expected = {f"a{i:03}": random.Random(i).randbytes(100_000) for i in range(100)}
    expected |= {f"z{i:03}": bytes(100_000) for i in range(30)}
    for name, data in expected.items():
        server.put("bucket", name, data)
    stall = {"match": {"path_contains": "/o/z"}, "action": {"stall_after_bytes": 50_000}}
    server.faults([stall])
    process = start("cp", "-r", "gs://bucket", tmp_path)
    # Sixty-four are read and written together.
    wait_until(lambda: server.fault_counts()[0]["fired"] == 30)
    wait_until(lambda: len(list(tmp_path.glob("a*"))) >= 64)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code
    # Of those that say nothing more, none came to its time-out: it would have been asked for again.
    assert server.fault_counts()[0]["fired"] == 30
    assert b"Traceback" not in err
    assert b"CancelledError" not in err
    found = tree(tmp_path)
    assert found == {name: expected[name] for name in found}
    assert 64 <= len(found) <= 100
    assert f"headrace: copied {len(found)} objects".encode() in err


def test_ctrl_c_during_uploads_leaves_no_half_object(
    server: FaultServer, tmp_path: Path, start: Start
) -> None:
    expected = make(tmp_path, [f"{i:03}" for i in range(300)])
    server.faults([{"match": {"kind": "upload"}, "from": 50, "action": "stall_head"}])
    process = start("cp", "-r", "--json", "--parallel", 20, f"{tmp_path}/", "gs://bucket")
    wait_until(lambda: server.fault_counts()[0]["fired"] >= 20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, json.loads(err)["exit_code"]) == (130, 130)
    found = stored(server, "bucket")
    assert found == {name: expected[name] for name in found}
    summary = json.loads(out)
    assert (summary["copied"], summary["failed"]) == (len(found), 0)
    assert len(found) == 49
    assert kinds(server)["upload"] <= 49 + 20


def test_ctrl_c_ends_what_waits_for_its_neighbour_in_a_pipe(
    server: FaultServer, start: Start
) -> None:
    server.put("bucket", "a", bytes(10 * MiB))
    writing = start("cat", "gs://bucket/a")
    assert writing.stdout is not None
    assert writing.stdout.read(1) == b"\0"  # of much more than a pipe holds
    reading = start("cp", "-", "gs://bucket/b", stdin=subprocess.PIPE)
    assert reading.stdin is not None
    reading.stdin.write(bytes(MiB))
    for process in (writing, reading):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"headrace: interrupted\n"
    assert server.names("bucket") == ["a"]


# ---- what is shown


def test_progress_is_for_terminals_alone(
    server: FaultServer, tmp_path: Path, start: Start, run: Run
) -> None:
    for i in range(30):
        server.put("bucket", f"{i}", bytes(10_000))
    server.put("bucket", "bad\x1b[31m", b"x")
    server.faults([{"match": {"path_contains": "bad"}, "action": {"status": 403}}])
    code, shown = on_terminal(start, "cp", "-r", "gs://bucket", tmp_path / "a")
    assert code == 4
    assert b"/31 objects" in shown
    assert rb"gs://bucket/bad\x1b[31m" in shown
    assert b"bad\x1b" not in shown
    done = run("cp", "-r", "gs://bucket", tmp_path / "b")
    assert [line.split(":")[0] for line in done.err.splitlines()] == ["headrace"] * 2
    assert done.err.rstrip("\n").replace("\n", "").isprintable()
    code, shown = on_terminal(start, "cp", "-r", "--json", "gs://bucket", tmp_path / "c")
    assert [json.loads(line)["exit_code"] for line in shown.splitlines()] == [4]


def test_a_name_with_wildcards_is_asked_for_once(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    server.put("bucket", "a[1]", b"its name looks like a pattern")
    assert run("cp", "gs://bucket/a[1]", tmp_path / "copy").code == 0
    assert (tmp_path / "copy").read_bytes() == b"its name looks like a pattern"
    assert kinds(server) == {"list": 1, "media": 1}
