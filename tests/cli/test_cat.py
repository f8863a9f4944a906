"""`headrace cat`."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.cli.conftest import ODD_NAMES, Run, RunEach, Start, kinds
from tests.waiting import wait_until

MiB = 1 << 20


@pytest.fixture(scope="module")
def large() -> bytes:
    """More than is held in memory."""
    return random.Random(1).randbytes(80 * MiB)


def test_objects_follow_each_other_byte_by_byte(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    every_byte = bytes(range(256)) * 100
    server.put("bucket", "a", every_byte)
    server.put("bucket", "empty", b"")
    (tmp_path / "b").write_bytes(b"from a file\n")
    urls = ["gs://bucket/a", tmp_path / "b", "gs://bucket/empty"] * 5
    done = run("cat", *urls)
    assert (done.code, done.err) == (0, "")
    assert done.out == (every_byte + b"from a file\n") * 5


def test_odd_names(server: FaultServer, run: Run) -> None:
    for name in ODD_NAMES:
        server.put("bucket", name, name.encode())
    done = run("cat", *(f"gs://bucket/{name}" for name in ODD_NAMES))
    assert (done.code, done.out) == (0, "".join(ODD_NAMES).encode())


def test_a_range_is_half_open(server: FaultServer, run_each: RunEach) -> None:
    server.put("bucket", "a", b"0123456789")
    expected = {"2:5": b"234", "7:": b"789", ":3": b"012", "8:99": b"89", ":": b"0123456789"}
    ended = run_each(*(["cat", "gs://bucket/a", "--range", range_] for range_ in expected))
    assert [done.out for done in ended] == list(expected.values())


def test_a_range_that_cannot_be_is_code_2(server: FaultServer, run_each: RunEach) -> None:
    server.put("bucket", "a", b"0123456789")
    ranges = ["5", "a:b", "-5:", "5:2", "20:30", "1:2:3"]
    ended = run_each(*(["cat", "gs://bucket/a", f"--range={range_}"] for range_ in ranges))
    for range_, done in zip(ranges, ended, strict=True):
        assert (done.code, done.out) == (2, b""), range_
        assert done.err.startswith("headrace: InvalidArgumentError: ")


def test_a_large_object_comes_whole_within_bounded_memory(
    server: FaultServer, large: bytes, tmp_path: Path, run: Run
) -> None:
    server.put("bucket", "large", large)
    budget = {"HEADRACE_MEMORY_BUDGET_BYTES": str(70 * MiB)}
    done = run("-v", "cat", "gs://bucket/large", TMPDIR=str(tmp_path), **budget)
    assert done.code == 0
    assert done.out == large
    assert "checksums verified: 1," in done.err
    # The object goes to the file. What is in memory is the answer about its size: any answer that
    # is no data takes 16 KiB at least, while it is read.
    assert "object memory at most: 16.0 KiB" in done.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "large").write_bytes(large)
    assert run("cat", tmp_path / "large", **budget).out == large
    done = run("cat", "gs://bucket/large", "--range", f"1:{78 * MiB}", **budget)
    assert done.out == large[1 : 78 * MiB]


@pytest.mark.parametrize("size_bytes", [1000, 80 * MiB])
def test_no_byte_is_printed_that_was_not_checked(
    server: FaultServer, large: bytes, size_bytes: int, run: Run
) -> None:
    server.put("bucket", "a", large[:size_bytes])
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 17}}])
    done = run("cat", "gs://bucket/a")
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith("headrace: CorruptDataError: gs://bucket/a")


def test_no_byte_of_aistore_is_printed_that_was_not_checked(large: bytes, run: Run) -> None:
    with FaultServer(dialect="ais") as server:
        server.bucket("bucket")
        server.put("bucket", "a", large)
        done = run("cat", "ais://bucket/a", AIS_ENDPOINT=server.url)
        assert (done.code, done.err, done.out == large) == (0, "", True)
        server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 17}}])
        done = run("cat", "ais://bucket/a", AIS_ENDPOINT=server.url)
        assert (done.code, done.out) == (1, b"")
        assert done.err.startswith(
            "headrace: CorruptDataError: ais://bucket/a: the bytes that came"
        )


def test_a_server_that_fails_for_a_moment_is_asked_again(server: FaultServer, run: Run) -> None:
    server.put("bucket", "a", b"hello")
    server.faults([{"match": {"kind": "media"}, "count": 2, "action": {"status": 503}}])
    done = run("cat", "gs://bucket/a")
    assert (done.code, done.out, done.err) == (0, b"hello", "")
    assert kinds(server) == {"get": 1, "media": 3}


def test_the_others_are_printed_all_the_same(server: FaultServer, run: Run) -> None:
    for name in "ab":
        server.put("bucket", name, name.encode())
    done = run("cat", "gs://bucket/a", "gs://bucket/none", "gs://bucket/b")
    assert (done.code, done.out) == (3, b"ab")
    assert done.err.startswith("headrace: NotFoundError: gs://bucket/none: ")
    assert len(done.err.splitlines()) == 1


def test_what_is_no_object_is_not_found(
    server: FaultServer, tmp_path: Path, run_each: RunEach
) -> None:
    urls = [tmp_path, "gs://bucket", "gs://bucket/a/"]
    for done in run_each(*(["cat", url] for url in urls)):
        assert done.code == 3
        assert "is not an object" in done.err


def test_whoever_has_seen_enough_ends_it_quietly(
    server: FaultServer, start: Start, large: bytes
) -> None:
    server.put("bucket", "a", large[: 10 * MiB])
    process = start("cat", *["gs://bucket/a"] * 20)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(1000) == large[:1000]
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == 141
    assert kinds(server)["get"] < 20


def test_ctrl_c_ends_a_wait(server: FaultServer, start: Start) -> None:
    server.put("bucket", "a", bytes(100_000))
    server.faults([{"match": {"kind": "media"}, "action": {"stall_after_bytes": 100}}])
    process = start("cat", "gs://bucket/a")
    wait_until(lambda: server.fault_counts()[0]["fired"] == 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, b"", b"headrace: interrupted\n")
