"""`headrace ls`."""

from __future__ import annotations

import datetime
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer
from tests.cli.conftest import ODD_NAMES, Run, RunEach, Start, kinds


def put(server: FaultServer, *names: str) -> None:
    for name in names:
        server.put("bucket", name, name.encode())


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())


@pytest.fixture(params=["file", "gs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL below which these objects are: a, b/1, b/2, b/c/3, b-4."""
    names = ("a", "b/1", "b/2", "b/c/3", "b-4")
    if request.param == "file":
        make(tmp_path, *names)
        return f"file://{tmp_path}"
    put(request.getfixturevalue("server"), *names)
    return "gs://bucket"


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("", [], ["a", "b-4", "b/"]),
        ("/", [], ["a", "b-4", "b/"]),
        ("/b/", [], ["b/1", "b/2", "b/c/"]),
        ("/b", [], ["b/1", "b/2", "b/c/"]),
        ("/b/1", [], ["b/1"]),
        ("/b-", [], ["b-4"]),
        ("", ["-r"], ["a", "b-4", "b/1", "b/2", "b/c/3"]),
        ("/b", ["-r"], ["b/1", "b/2", "b/c/3"]),
        ("/b/c/3", ["-r"], ["b/c/3"]),
    ],
)
def test_a_url_names_an_object_or_what_lies_below_or_what_begins_so(
    root: str, name: str, options: list[str], expected: list[str], run: Run
) -> None:
    done = run("ls", *options, root + name)
    assert (done.code, done.err) == (0, "")
    assert done.lines == [f"{root}/{name}" for name in expected]


def test_a_path_is_a_url(tmp_path: Path, run: Run) -> None:
    make(tmp_path, "a/1", "a/2")
    (tmp_path / "link").symlink_to("a")
    assert run("ls", tmp_path / "a").lines == [f"file://{tmp_path}/a/{i}" for i in (1, 2)]
    assert run("ls", f"{tmp_path}/link/../a/1").lines == [f"file://{tmp_path}/a/1"]
    (tmp_path / "empty").mkdir()
    assert (run("ls", tmp_path / "empty").code, run("ls", tmp_path / "empty").out) == (0, b"")


def test_the_long_form_has_sizes_times_and_the_total(server: FaultServer, run: Run) -> None:
    server.put("bucket", "a", bytes(1000))
    server.put("bucket", "b", bytes(1_500_000))
    server.put("bucket", "c/d", b"")
    done = run("ls", "-l", "gs://bucket")
    assert done.code == 0
    first, second, third, total = done.lines
    size, time, url = first.split()
    assert (size, url) == ("1000", "gs://bucket/a")
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(time)
    assert abs(age) < datetime.timedelta(days=1)
    assert second.split()[0] == "1500000"
    assert third.split() == ["gs://bucket/c/"]
    assert total == "TOTAL: 2 objects, 1 prefix, 1501000 bytes (1.43 MiB)"


def test_json_has_every_name_as_it_is(server: FaultServer, run: Run) -> None:
    put(server, *ODD_NAMES)
    done = run("ls", "-r", "--json", "gs://bucket")
    assert done.code == 0
    assert done.out.isascii()
    assert [entry["name"] for entry in done.json] == sorted(ODD_NAMES, key=str.encode)
    first = done.json[0]
    assert first["url"] == "gs://bucket/-dash"
    assert (first["type"], first["size_bytes"]) == ("object", len("-dash"))
    assert isinstance(first["crc32c"], int)
    assert first["generation"]
    assert datetime.datetime.fromisoformat(first["updated"]).tzinfo == datetime.UTC
    prefixes = [
        entry for entry in run("ls", "--json", "gs://bucket").json if "size_bytes" not in entry
    ]
    assert prefixes == [
        {"type": "prefix", "url": f"gs://bucket/{name}", "name": name}
        for name in ("[bold]b[/", "dir/", "umlaut/")
    ]


def test_json_names_files_by_their_path(tmp_path: Path, run: Run) -> None:
    make(tmp_path, *ODD_NAMES)
    found = {entry["name"] for entry in run("ls", "-r", "--json", tmp_path).json}
    assert found == {f"{tmp_path}/{name}" for name in ODD_NAMES}


def test_a_terminal_obeys_no_name(server: FaultServer, run: Run) -> None:
    put(server, *ODD_NAMES)
    done = run("ls", "-rl", "gs://bucket", PYTHONUTF8="1")
    text = done.out.decode()
    assert len(done.lines) == len(ODD_NAMES) + 1
    assert all(line.isprintable() for line in done.lines)
    for shown in (r"escape\x1b[31mred", r"new\nline", r"right\u202eleft", "[bold]b[/bold]", "日本"):
        assert shown in text
    missing = run("ls", "gs://bucket/no\x1b[31mne")
    assert missing.err.rstrip("\n").isprintable()
    assert r"no\x1b[31mne" in missing.err


def test_a_terminal_without_unicode_is_no_obstacle(server: FaultServer, run: Run) -> None:
    put(server, "ü日本")
    done = run("ls", "gs://bucket", PYTHONIOENCODING="ascii")
    assert (done.code, done.out) == (0, b"gs://bucket/\\xfc\\u65e5\\u672c\n")


def test_pages_are_shown_as_they_come(server: FaultServer, start: Start) -> None:
    server.synthetic("many", 3000, 10, shape="flat")
    server.faults([{"match": {"kind": "list"}, "from": 2, "action": "stall_head"}])
    process = start("ls", "-r", "gs://many/")
    assert process.stdout is not None
    page = [process.stdout.readline() for _ in range(1000)]
    assert (page[0], page[999]) == (b"gs://many/0000000\n", b"gs://many/0000999\n")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, b"")
    assert err == b"headrace: interrupted\n"


def test_whoever_has_seen_enough_ends_it_quietly(server: FaultServer, start: Start) -> None:
    server.synthetic("many", 100_000, 10, shape="flat")
    # It cannot come to its end by itself.
    server.faults([{"match": {"kind": "list"}, "from": 15, "action": "stall_head"}])
    process = start("ls", "-r", "gs://many/")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == 141


def test_one_level_is_asked_for_once(server: FaultServer, run: Run) -> None:
    put(server, "a/1", "a/2")
    assert len(run("ls", "gs://bucket/a/").lines) == 2
    assert kinds(server) == {"list": 1}


def test_a_real_server_is_listed(fake_gcs: FakeGcsServer, gcs_bucket: str, run: Run) -> None:
    for name in ODD_NAMES:
        fake_gcs.put(gcs_bucket, name, b"x")
    done = run("--endpoint", fake_gcs.url, "ls", "-r", "--json", f"gs://{gcs_bucket}")
    assert {entry["name"] for entry in done.json} == set(ODD_NAMES)
    done = run("ls", "--json", f"gs://{gcs_bucket}/dir/", "--endpoint", fake_gcs.url)
    assert [entry["name"] for entry in done.json] == ["dir/..hidden", "dir/with space"]


# ---- what goes wrong


def test_what_is_not_there_is_code_3(
    server: FaultServer, tmp_path: Path, run_each: RunEach
) -> None:
    put(server, "a")
    urls = ["gs://none", "gs://bucket/none", "gs://bucket/none/", tmp_path / "none"]
    *ended, empty = run_each(*(["ls", url] for url in urls), ["ls", "gs://other"])
    for url, done in zip(urls, ended, strict=True):
        assert (done.code, done.out) == (3, b"")
        assert done.err.startswith("headrace: NotFoundError: ")
        assert str(url).rstrip("/") in done.err
        assert len(done.err.splitlines()) == 1
    assert empty.code == 0  # it is there


def test_the_others_are_listed_all_the_same(server: FaultServer, run: Run) -> None:
    put(server, "a", "b")
    done = run("ls", "-l", "gs://bucket/a", "gs://none", "gs://bucket/b")
    assert done.code == 3
    assert [line.split()[-1] for line in done.lines[:2]] == ["gs://bucket/a", "gs://bucket/b"]
    assert done.lines[2] == "TOTAL: 2 objects, 2 bytes (2 B)"


def test_no_permission_is_code_4_and_says_what_to_do(server: FaultServer, run: Run) -> None:
    put(server, "a")
    server.auth(["a-token"])
    done = run("ls", "gs://bucket")
    assert done.code == 4
    assert done.err.startswith("headrace: PermissionDeniedError: gs://bucket")
    assert "--anonymous" in done.err
    done = run("ls", "--json", "gs://bucket")
    [error] = done.json_errors
    assert (done.code, error["exit_code"]) == (4, 4)
    assert (error["error"], error["http_status"]) == ("PermissionDeniedError", 401)
    assert "gcloud auth" in error["hint"]


def test_requester_pays(server: FaultServer, run: Run) -> None:
    server.bucket("paid", requester_pays=True)
    server.put("paid", "a", b"x")
    assert run("ls", "gs://paid").code != 0
    for arguments in (
        ["--user-project", "me", "ls", "gs://paid"],
        ["ls", "gs://paid", "--user-project=me"],
    ):
        assert run(*arguments).lines == ["gs://paid/a"]


def test_wrong_usage_is_code_2(run_each: RunEach) -> None:
    wrong = [["ls"], ["ls", "gs://"], ["ls", "--colour", "x"], ["ls", "x://y"], ["ls", b"\xff"]]
    for arguments, done in zip(wrong, run_each(*wrong), strict=True):
        assert (done.code, done.out) == (2, b""), arguments
        assert "Traceback" not in done.err


def test_nobody_answers(run: Run) -> None:
    done = run("ls", "gs://bucket", "--endpoint", "http://256.0.0.1:1", "--attempts", 1)
    assert done.code == 1
    assert "--endpoint" in done.err


def test_verbose_says_what_it_took(server: FaultServer, run: Run) -> None:
    put(server, "a")
    done = run("-v", "ls", "gs://bucket/a")
    assert done.lines == ["gs://bucket/a"]
    assert done.err.startswith("headrace: requests: 2, retries: 0, connections: ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told(
    server: FaultServer, start: Start, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    put(server, "a")
    with open("/dev/full", "wb") as full:
        process = start("ls", "gs://bucket", stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert b"No space left" in err
    assert b"Exception ignored" not in err


def test_a_closed_stdout_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" -m headrace ls "$1" >&-', sys.executable, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "headrace: stdout is closed\n")


def test_temporary_objects_are_shown_to_who_asks_for_them(server: FaultServer, run: Run) -> None:
    put(server, "a", "dataflux-composed-objects/x", "headrace-uploads/y/1", "z")
    assert run("ls", "-r", "gs://bucket").lines == ["gs://bucket/a", "gs://bucket/z"]
    assert run("ls", "gs://bucket").lines == ["gs://bucket/a", "gs://bucket/z"]
    done = run("ls", "gs://bucket/dataflux-composed-objects/")
    assert done.lines == ["gs://bucket/dataflux-composed-objects/x"]
