"""`headrace cp` of large objects: in parallel, verified, and resumed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, Start, kinds
from tests.waiting import wait_until

MiB = 1 << 20
SMALL_BUDGET = {"HEADRACE_MEMORY_BUDGET_BYTES": str(32 * MiB)}


@pytest.fixture(scope="module")
def data() -> bytes:
    """Two pieces of a download, and a bit."""
    return random.Random(2).randbytes(130 * MiB)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_bytes(server: FaultServer) -> int:
    return sum(line["bytes_sent"] for line in server.log() if line["kind"] == "media")


def test_it_goes_up_in_parallel_parts_and_down_by_parallel_ranges(
    server: FaultServer, tmp_path: Path, data: bytes, run: Run
) -> None:
    (tmp_path / "large").write_bytes(data)
    assert run("cp", tmp_path / "large", "gs://bucket", **SMALL_BUDGET).code == 0
    assert server.get("bucket", "large") == data
    assert server.names("bucket") == ["large"]
    # Parts of 1 MiB, as 32 MiB of memory allow; 32 of them become one.
    assert kinds(server)["upload"] == 130
    server.reset(keep_buckets=True)
    done = run("cp", "gs://bucket/large", tmp_path / "back", **SMALL_BUDGET)
    assert done.code == 0
    assert (tmp_path / "back").read_bytes() == data
    assert names_in(tmp_path) == ["back", "large"]
    assert kinds(server) == {"get": 1, "media": 17}  # ranges of 8 MiB
    server.reset(keep_buckets=True)
    assert run("cp", "gs://bucket/large", "gs://other/copy", **SMALL_BUDGET).code == 0
    assert server.get("other", "copy") == data


def test_stdin_is_not_held_in_memory(server: FaultServer, data: bytes, run: Run) -> None:
    done = run("-v", "cp", "-", "gs://bucket/a", stdin=data, **SMALL_BUDGET)
    assert done.code == 0, done.err
    assert server.get("bucket", "a") == data
    assert kinds(server)["upload"] == 130


def test_what_was_interrupted_goes_on_where_it_was(
    server: FaultServer, tmp_path: Path, data: bytes, start: Start, run: Run
) -> None:
    server.put("bucket", "large", data)
    # The second piece and the third, which begins when the first is there, stall.
    stalled = [f"bytes={begin}-" for begin in (64 * MiB, 128 * MiB)]
    server.faults(
        [
            {"match": {"header": {"name": "range", "contains": each}}, "action": "stall_head"}
            for each in stalled
        ]
    )
    process = start("cp", "gs://bucket/large", tmp_path / "back")
    wait_until(lambda: server.fault_counts()[0]["fired"] == 1)
    wait_until(lambda: read_bytes(server) >= 64 * MiB)
    wait_until(lambda: _pieces_done(tmp_path, len(data)) == 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "back").exists()
    assert list(headrace.Store(tmp_path).list()) == []  # no dataset sees it

    server.reset(keep_buckets=True)
    assert run("cp", "gs://bucket/large", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == data
    assert names_in(tmp_path) == ["back"]
    assert read_bytes(server) == len(data) - 64 * MiB


def _pieces_done(folder: Path, size_bytes: int) -> int:
    """How many pieces the part file in `folder` says are there."""
    [part] = folder.glob(".headrace-tmp-*")
    with part.open("rb") as file:
        file.seek(size_bytes + 4096)
        marks = file.read()
    return sum(marks[at : at + 4] == b"PDRH" for at in range(0, len(marks), 16))


@pytest.mark.parametrize("change", ["object", "part"])
def test_what_changed_meanwhile_is_not_mixed(
    server: FaultServer, tmp_path: Path, data: bytes, run: Run, change: str
) -> None:
    server.put("bucket", "large", data)
    last = {"match": {"header": {"name": "range", "contains": f"bytes={128 * MiB}-"}}}
    server.faults([last | {"action": {"status": 403}}])
    assert run("cp", "gs://bucket/large", tmp_path / "back").code == 4
    assert _pieces_done(tmp_path, len(data)) == 2
    [part] = tmp_path.glob(".headrace-tmp-*")
    if change == "object":
        data = data[::-1]
        server.put("bucket", "large", data)
    else:
        with part.open("r+b") as file:
            file.seek(5)
            file.write(b"wrong")
    server.reset(keep_buckets=True)
    assert run("cp", "gs://bucket/large", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == data
    assert read_bytes(server) == len(data) - (0 if change == "object" else 64 * MiB)
    assert names_in(tmp_path) == ["back"]


def test_a_wrong_bit_is_found_and_nothing_is_left(
    server: FaultServer, tmp_path: Path, data: bytes, run: Run
) -> None:
    server.put("bucket", "large", data)
    server.faults([{"match": {"kind": "media"}, "from": 3, "action": {"flip_byte": 5}}])
    for destination in (f"{tmp_path}/back", "gs://other/back"):
        done = run("cp", "gs://bucket/large", destination)
        assert done.code == 1
        assert done.err.startswith("headrace: CorruptDataError: gs://")
    assert names_in(tmp_path) == []
    assert server.names("other") == []


def test_no_clobber_and_equality_hold_for_large_objects(
    server: FaultServer, tmp_path: Path, data: bytes, run: Run
) -> None:
    server.put("bucket", "d/large", data)
    (tmp_path / "large").write_bytes(b"mine")
    done = run("cp", "-rn", "--json", "gs://bucket/d/", tmp_path)
    assert (done.json[0]["skipped"], (tmp_path / "large").read_bytes()) == (1, b"mine")
    assert run("cp", "-r", "gs://bucket/d/", tmp_path).code == 0
    before = read_bytes(server)
    done = run("cp", "-r", "--json", "gs://bucket/d/", tmp_path)
    assert (done.json[0]["skipped"], read_bytes(server)) == (1, before)
    os.unlink(tmp_path / "large")
    os.mkfifo(tmp_path / "large")
    done = run("cp", "gs://bucket/d/large", tmp_path / "large")
    assert (done.code, "not a regular file" in done.err) == (1, True)
    assert (tmp_path / "large").is_fifo()


def test_ctrl_c_during_a_large_upload_leaves_nothing(
    server: FaultServer, tmp_path: Path, data: bytes, start: Start
) -> None:
    (tmp_path / "large").write_bytes(data)
    server.faults([{"match": {"kind": "upload"}, "from": 5, "action": "stall_head"}])
    process = start("cp", tmp_path / "large", "gs://bucket")
    wait_until(lambda: server.fault_counts()[0]["fired"] >= 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "large" not in server.names("bucket")


# ---- a store whose sums cannot be joined from those of pieces


@pytest.fixture
def ais() -> Iterator[FaultServer]:
    with FaultServer(dialect="ais") as server:
        yield server


@pytest.mark.parametrize(
    "kind",
    [
        "xxhash",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("md5", "sha256", "crc32c")),
    ],
)
def test_the_whole_sum_of_aistore_is_compared_before_a_copy_appears(
    ais: FaultServer, tmp_path: Path, data: bytes, run: Run, kind: str
) -> None:
    ais.bucket("bucket", checksum=kind)
    ais.bucket("other")
    ais.put("bucket", "large", data)
    environment = {"AIS_ENDPOINT": ais.url, **SMALL_BUDGET}
    for to in (f"{tmp_path}/back", "ais://other/back"):
        done = run("cp", "ais://bucket/large", to, **environment)
        assert (done.code, done.err.count("not compared")) == (0, 0), done.err
    assert (tmp_path / "back").read_bytes() == data
    assert ais.get("other", "back") == data
    lie = {"match": {"kind": "media", "node": "target"}, "from": 3, "count": 1}
    for to in (f"{tmp_path}/wrong", "ais://other/wrong"):
        ais.faults([lie | {"action": {"flip_byte": 5}}])
        done = run("cp", "ais://bucket/large", to, **environment)
        assert ais.fault_counts()[0]["fired"] == 1
        assert done.code == 1
        assert done.err.startswith("headrace: CorruptDataError: ais://bucket/large: the bytes that")
    assert names_in(tmp_path) == ["back"]
    assert ais.names("other") == ["back"]


def test_a_piece_that_was_wrong_before_an_interruption_is_found_after_it(
    ais: FaultServer, tmp_path: Path, data: bytes, run: Run
) -> None:
    ais.put("bucket", "large", data)
    environment = {"AIS_ENDPOINT": ais.url}
    last = {"kind": "media", "header": {"name": "range", "contains": f"bytes={128 * MiB}-"}}
    first = {"kind": "media", "header": {"name": "range", "contains": "bytes=0-"}}
    ais.faults(
        [
            {"match": last, "action": {"status": 403}},
            {"match": first | {"node": "target"}, "action": {"flip_byte": 5}},
        ]
    )
    assert run("cp", "ais://bucket/large", tmp_path / "back", **environment).code == 4
    assert _pieces_done(tmp_path, len(data)) == 2
    ais.reset(keep_buckets=True)
    done = run("cp", "ais://bucket/large", tmp_path / "back", **environment)
    assert (done.code, "the bytes that came have XXH64" in done.err) == (1, True), done.err
    assert names_in(tmp_path) == []
    assert read_bytes(ais) < len(data) - 128 * MiB + MiB, "the other pieces were there"
    assert run("cp", "ais://bucket/large", tmp_path / "back", **environment).code == 0
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize("kind", ["xxhash", "md5", "sha256"])
def test_a_tree_that_is_there_already_is_not_sent_to_aistore_again(
    ais: FaultServer, tmp_path: Path, run: Run, kind: str
) -> None:
    ais.bucket("bucket", checksum=kind)
    (tmp_path / "tree").mkdir()
    for i in range(5):
        (tmp_path / "tree" / f"o{i}").write_bytes(b"some bytes" * i)
    for sent in (5, 0):
        before = ais.carried_out("upload")
        done = run("cp", "-r", f"{tmp_path}/tree", "ais://bucket", AIS_ENDPOINT=ais.url)
        assert done.code == 0, done.err
        assert ais.carried_out("upload") - before == sent
    (tmp_path / "tree" / "o3").write_bytes(b"some bytez" * 3)
    before = ais.carried_out("upload")
    run("cp", "-r", f"{tmp_path}/tree", "ais://bucket", AIS_ENDPOINT=ais.url)
    assert ais.carried_out("upload") - before == 1
