"""`headrace pack`."""

from __future__ import annotations

import array
import contextlib
import json
import signal
import tarfile
from pathlib import Path
from typing import Any

import psutil
import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.pack.test_processes import is_running
from tests.waiting import wait_until

FUNCTIONS = """
import os
import threading

def shrink(sample):
    return {"txt": sample["txt"].bytes()[:2]}

def pick(sample):
    if sample["__key__"] == "1":
        raise ValueError("too short")
    return {"txt": sample["txt"].bytes()}

def leave(sample):
    raise SystemExit("no more")

def wrong(sample):
    return {"txt": 1.5} if sample["__key__"] == "1" else {"txt": "right"}

def hang(sample):
    open("@place@/pid", "w").write(str(os.getpid()))
    threading.Event().wait()
    return {"txt": sample["txt"].bytes()}

def encode(text):
    return list(text)

number = 3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with five texts in ``in``, and functions, from which the command is started."""
    (tmp_path / "in").mkdir()
    for i in range(5):
        (tmp_path / "in" / f"{i}.txt").write_text(f"text {i}")
    (tmp_path / "own_functions.py").write_text(FUNCTIONS.replace("@place@", str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(place: Path) -> list[bytes]:
    found = []
    for path in sorted((place / "out").glob("*.tar")):
        with tarfile.open(path) as archive:
            found += [archive.extractfile(each).read() for each in archive]  # type: ignore[union-attr]
    return found


def test_it_packs_and_says_what_it_made(place: Path, run: Any) -> None:
    done = run("pack", "in", "out", "--shard-samples", "2")
    assert done.code == 0, done.err
    assert "3 shards of 5 samples" in done.err
    assert texts(place) == [b"text %d" % i for i in range(5)]
    again = run("pack", "in", "out", "--shard-samples", "2", "--json")
    [facts] = again.json
    assert (facts["shards"], facts["written"], facts["samples"]) == (3, 0, 5)


def test_other_settings_need_overwrite(place: Path, run: Any) -> None:
    run("pack", "in", "out")
    done = run("pack", "in", "out", "--shuffle", "--seed", "3")
    assert done.code == 2
    assert "seed was 0 and is 3" in done.err
    assert run("pack", "in", "out", "--shuffle", "--seed", "3", "--overwrite").code == 0


def test_transforms_and_tokenizers_are_functions_of_modules(place: Path, run: Any) -> None:
    assert run("pack", "in", "out", "--transform", "own_functions:shrink").code == 0
    assert texts(place) == [b"te"] * 5
    done = run("pack", "in", "tokens", "--tokens", "own_functions:encode", "--dtype", "int32")
    assert done.code == 0, done.err
    assert "30 tokens" in done.err
    tokens = array.array("i", (place / "tokens" / "train-000000.bin").read_bytes())
    assert bytes(tokens[:6].tolist()) == b"text 0"


def test_a_failing_transform_ends_it_or_leaves_out_its_sample(place: Path, run: Any) -> None:
    done = run("pack", "in", "out", "--transform", "own_functions:pick")
    assert done.code == 1
    assert "ValueError: too short" in done.err
    assert "1.txt" in done.err
    assert "Traceback" not in done.err
    done = run("pack", "in", "out", "--transform", "own_functions:pick", "--skip-errors", "--json")
    assert done.code == 1
    [facts] = done.json
    assert (facts["samples"], facts["skipped"]) == (4, 1)
    assert any("too short" in json.dumps(each) for each in done.json_errors)
    again = run("pack", "in", "out", "--transform", "own_functions:pick", "--skip-errors")
    assert any("left out" in line and "1.txt" in line for line in again.err.splitlines())


@pytest.mark.parametrize(
    ("function", "told"),
    [("wrong", "a float as the field 'txt'"), ("leave", "transform called sys.exit('no more')")],
)
def test_what_a_transform_must_not_do_names_the_sample(
    place: Path, run: Any, function: str, told: str
) -> None:
    done = run("pack", "in", "out", "--transform", f"own_functions:{function}", "--workers", "1")
    assert done.code == (2 if function == "wrong" else 1)
    [line] = done.err.splitlines()
    assert told in line
    assert f"{'1' if function == 'wrong' else '0'}.txt" in line
    skipped = run(
        "pack", "in", "out", "--transform", f"own_functions:{function}", "--skip-errors", "--json"
    )
    [facts] = skipped.json
    assert facts["skipped"] == (1 if function == "wrong" else 5)
    assert any(told in each.get("message", "") for each in skipped.json_errors)


def test_processes_find_functions_of_the_current_folder(place: Path, start: Any) -> None:
    command = start(
        "pack", "in", "out", "--transform", "own_functions:shrink", "--executor", "processes",
        "--workers", "2", "--shard-samples", "2",
    )  # fmt: skip
    _, said = command.communicate()
    assert command.returncode == 0, said
    assert texts(place) == [b"te"] * 5
    assert b"3 shards of 5 samples" in said
    assert b"Warning" not in said


@pytest.mark.slow
def test_ray_is_started_for_this_machine_alone_and_ends_by_ctrl_c(place: Path, start: Any) -> None:
    command = start(
        "pack", "in", "out", "--transform", "own_functions:hang", "--shard-samples", "2", "--ray",
        "--ray-address", "local",  # others may have a cluster here
    )  # fmt: skip
    pid = place / "pid"
    wait_until(lambda: command.poll() is not None or (pid.exists() and pid.read_text() != ""))
    assert command.poll() is None, command.communicate()
    task = psutil.Process(int((place / "pid").read_text()))
    family = psutil.Process(command.pid).children(recursive=True)
    assert task in family
    listening = []
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # some have ended meanwhile
            listening += [
                connection.laddr.ip
                for connection in process.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            ]
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=120)
    assert command.returncode == 130
    assert said.decode().splitlines() == ["headrace: interrupted"]
    wait_until(lambda: not any(is_running(process.pid) for process in family))
    # Another executor goes on.
    (place / "own_functions.py").write_text(
        (place / "own_functions.py").read_text().replace("threading.Event().wait()", "pass")
    )
    command = start(
        "pack", "in", "out", "--transform", "own_functions:hang", "--shard-samples", "2"
    )
    _, said = command.communicate(timeout=120)
    assert command.returncode == 0, said
    assert len(texts(place)) == 5


# ---- tables


def test_a_table_says_what_is_packed_and_with_which_labels(place: Path, run: Any) -> None:
    rows = "".join(f"{place}/in/{i}.txt,{kind}\n" for i, kind in ((3, "cat"), (1, "dog")))
    (place / "samples.csv").write_text("url,kind\n" + rows)
    done = run("pack", "--table", "samples.csv", "out", "--label", "kind")
    assert done.code == 0, done.err
    assert texts(place) == [b"text 3", b"cat", b"text 1", b"dog"]
    assert run("pack", "--table", "samples.csv", "out", "--label", "kind", "--json").json[0][
        "written"
    ] == 0  # fmt: skip


def test_a_table_may_name_parts_of_objects_below_a_root(
    gcs: headrace.Store, server: FaultServer, place: Path, run: Any
) -> None:
    gcs.write("all/texts.bin", b"0123456789")
    gcs.write("all/more.bin", b"more")
    (place / "samples.csv").write_text("name,from,to\ntexts.bin,2,5\nmore.bin,,\n")
    done = run(
        "pack", "--endpoint", server.url, "--table", "samples.csv", "out", "--root",
        "gs://bucket/all/", "--url-column", "name", "--begin-column", "from", "--end-column", "to",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert texts(place) == [b"234", b"more"]


@pytest.mark.parametrize(
    ("table", "arguments", "code", "told"),
    [
        ("url\nnothing.txt\n", [], 2, "not a whole URL"),
        ("url\nnothing.txt\n", ["--root", "in"], 3, "nothing.txt"),
        ("name\n0.txt\n", [], 2, "no column 'url'"),
        ("url\n0.txt\n", ["--root", "in", "--label", "kind"], 2, "no column 'kind'"),
        ("url\n0.txt\n", ["--root", "in", "--begin-column", "from"], 2, "both"),
        ("url\n0.txt\n", ["--root", "in", "--index"], 2, "either a saved index"),
    ],
)
def test_tables_that_cannot_be_packed_are_refused(
    place: Path, run: Any, table: str, arguments: list[str], code: int, told: str
) -> None:
    (place / "samples.csv").write_text(table)
    done = run("pack", "--table", "samples.csv", "out", *arguments)
    assert done.code == code, done.err
    assert told in done.err
    assert not list(place.glob("out/*.tar"))


def test_hidden_objects_and_other_suffixes_are_packed_when_asked_for(place: Path, run: Any) -> None:
    (place / "in" / ".old").mkdir()
    (place / "in" / ".old" / "5.txt").write_text("text 5")
    (place / "in" / "notes.md").write_text("no text")
    for options, count in (
        ([], 6),
        (["--suffix", ".txt"], 5),
        (["--suffix", ".txt", "--hidden"], 6),
        (["--suffix", ".txt", "--suffix", ".md", "--hidden"], 7),
    ):
        done = run("pack", "in", "out", "--overwrite", "--json", *options)
        [facts] = done.json
        assert (facts["samples"], done.code) == (count, 0), options


def test_a_saved_index_is_packed(place: Path, run: Any) -> None:
    assert run("index", "in", "some.index").code == 0
    assert run("pack", "some.index", "out", "--index").code == 0
    assert len(texts(place)) == 5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--transform", "shrink"], "it must be module:function"),
        (["--transform", "own_functions:missing"], "missing"),
        (["--transform", "own_functions:number"], "it is no function"),
        (["--transform", "no_such_module:f"], "no_such_module"),
        (["--shard-bytes", "many"], "256MiB"),
        (["--shard-bytes", "0"], "256MiB"),
        (["--dtype", "uint16"], "are for --tokens"),
        (["--tokens", "own_functions:encode", "--label", "folder"], "takes neither"),
        (["--executor", "fibers"], "executor is 'fibers'"),
        (["--ray", "--executor", "processes"], "two executors"),
        (["--ray-address", "127.0.0.1:1"], "is for --executor ray"),
        (["--root", "in"], "are for --table"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    place: Path, run: Any, arguments: list[str], told: str
) -> None:
    done = run("pack", "in", "out", *arguments)
    assert done.code == 2
    assert told in done.err
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("module", "told"),
    [("import sys\nsys.exit(4)", "SystemExit: 4"), ("1 / 0", "ZeroDivisionError"), ("(", "Syntax")],
)
def test_a_module_that_cannot_be_imported_is_told(
    place: Path, run: Any, module: str, told: str
) -> None:
    (place / "not_importable.py").write_text(module)
    done = run("pack", "in", "out", "--transform", "not_importable:f")
    assert done.code == 2
    assert "--transform not_importable:f: the module cannot be imported" in done.err
    assert told in done.err
    assert not (place / "out").exists()


# A sample takes 1,024 bytes, and so does the end of a tar.
@pytest.mark.parametrize(("size", "shards"), [("3000", 5), ("3kB", 5), ("3KiB", 3), ("1MiB", 1)])
def test_sizes_have_units(place: Path, run: Any, size: str, shards: int) -> None:
    assert run("pack", "in", "out", "--shard-bytes", size).code == 0
    assert len(list((place / "out").glob("*.tar"))) == shards


def test_ctrl_c_ends_it_between_shards(
    server: FaultServer, gcs: headrace.Store, start: Any, tmp_path: Path
) -> None:
    for i in range(6):
        gcs.write(f"in/{i}.txt", b"text")
    # The fourth object never arrives.
    server.faults(
        [{"match": {"kind": "media", "path_contains": "in/3.txt"}, "action": "stall_head"}]
    )
    command = start(
        "pack", "--endpoint", server.url, "gs://bucket/in/", tmp_path / "out", "--shard-samples",
        "1", "--workers", "1",
    )  # fmt: skip
    wait_until(lambda: (tmp_path / "out" / "train-000002.tar").exists())
    command.send_signal(signal.SIGINT)
    assert command.wait(timeout=120) == 130
    assert b"interrupted" in command.stderr.read()
    assert len(list((tmp_path / "out").glob("train-*"))) == 3


def test_a_source_that_is_not_there_is_told(place: Path, run: Any) -> None:
    assert run("pack", "nothing", "out").code == 3
