"""Objects read as files: the same answers as a file's, and few requests."""

from __future__ import annotations

import io
import os
import pickle
import random
import threading
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import headrace
from headrace import MiB
from testing.faultserver.client import FaultServer
from tests.conftest import Child
from tests.waiting import wait_until

pytestmark = pytest.mark.every_store

DATA = os.urandom(3_000_000)


def media(server: FaultServer) -> list[int]:
    """The bytes of each body that was sent."""
    return [entry["bytes_sent"] for entry in server.log() if entry["kind"] == "media"]


def test_it_is_what_io_calls_a_readable_file(store: headrace.Store) -> None:
    store.write("a", DATA)
    file = headrace.open("a", store=store)
    assert isinstance(file, io.BufferedIOBase)
    assert (file.readable(), file.writable(), file.seekable()) == (True, False, True)
    assert (file.mode, file.name) == ("rb", store.url_of("a"))
    assert file.info.size_bytes == len(DATA)
    assert type(file.read(10)) is bytes
    assert file.seek(-5, os.SEEK_END) == len(DATA) - 5
    assert file.read(100) == DATA[-5:]
    assert file.read(1) == b""
    assert file.seek(10, os.SEEK_CUR) == len(DATA) + 10
    assert file.read() == b""
    with pytest.raises(OSError, match="before the beginning"):
        file.seek(-1)
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 7)
    with pytest.raises(TypeError):
        file.seek(1.5)  # type: ignore[arg-type]
    assert file.tell() == len(DATA) + 10
    for refused in (file.fileno, lambda: file.write(b"x"), file.truncate):
        with pytest.raises(io.UnsupportedOperation):
            refused()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(file)
    file.close()
    file.close()
    for call in (file.read, file.tell, file.readable, lambda: file.seek(0), file.peek):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_readinto_fills_everything(store: headrace.Store) -> None:
    store.write("a", DATA)
    with headrace.open("a", store=store) as file:
        buffer = bytearray(2_500_000)
        assert file.readinto(buffer) == len(buffer)
        assert buffer == DATA[: len(buffer)]
        assert file.readinto(buffer) == 500_000
        assert buffer[:500_000] == DATA[2_500_000:]
        assert file.readinto(buffer) == 0


def test_lines(store: headrace.Store) -> None:
    lines = [f"line {i} {'x' * (i % 200)}\n" for i in range(20_000)]
    store.write("a", "".join(lines).encode())
    with headrace.open("a", store=store) as file:
        assert [line.decode() for line in file] == lines
    with io.TextIOWrapper(headrace.open("a", store=store)) as text:
        assert text.readlines() == lines


@pytest.mark.parametrize("size_bytes", [0, 1, 100])
def test_short_objects(store: headrace.Store, size_bytes: int) -> None:
    store.write("a", DATA[:size_bytes])
    with headrace.open("a", store=store) as file:
        assert file.read() == DATA[:size_bytes]
        assert file.seek(0, os.SEEK_END) == size_bytes
        assert file.peek() == b""


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 400_000)),
        st.tuples(st.just("readinto"), st.integers(0, 1_500_000)),
        st.tuples(st.just("read1"), st.integers(0, 10_000)),
        st.tuples(st.just("seek"), st.integers(0, 3_100_000)),
        st.tuples(st.just("forward"), st.integers(0, 100_000)),
        st.tuples(st.just("from end"), st.integers(0, 3_000_000)),
    ),
    max_size=30,
)


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(steps=steps, ahead=st.sampled_from([0, 1 << 20, 64 << 20]))
def test_it_answers_as_a_file_in_memory(
    store: headrace.Store, steps: list[tuple[str, int]], ahead: int
) -> None:
    if not store.exists("a"):
        store.write("a", DATA)
    expected = io.BytesIO(DATA)
    with headrace.open("a", store=store, prefetch_bytes=ahead) as file:
        for what, number in steps:
            for each in (file, expected):
                if what == "seek":
                    each.seek(number)
                elif what == "forward":
                    each.seek(number, os.SEEK_CUR)
                elif what == "from end":
                    each.seek(-number, os.SEEK_END)
            if what in ("read", "read1"):
                assert getattr(file, what)(number) == getattr(expected, what)(number)
            elif what == "readinto":
                mine, other = bytearray(number), bytearray(number)
                assert file.readinto(mine) == expected.readinto(other)
                assert mine == other
            assert file.tell() == expected.tell()


def test_small_reads_at_random_places_fetch_little(
    gcs: headrace.Store, server: FaultServer
) -> None:
    server.put("bucket", "a", os.urandom(20 * MiB))
    with headrace.open("a", store=gcs) as file:
        before = sum(media(server))
        for i in range(10):
            file.seek((i * 7919 % 19) * MiB)
            assert len(file.read(100)) == 100
    assert sum(media(server)) - before <= 10 * (64 << 10)


def test_one_piece_after_the_other_is_fetched_ahead(
    gcs: headrace.Store, server: FaultServer
) -> None:
    data = os.urandom(40 * MiB)
    server.put("bucket", "a", data)
    with headrace.open("a", store=gcs) as file:
        read = b"".join(iter(lambda: file.read(100_000), b""))
    assert read == data
    # Every byte once, but for the piece with which it begins; by pieces that grow.
    assert sum(media(server)) <= len(data) + MiB
    assert len(media(server)) <= 40


def test_as_much_is_fetched_ahead_as_may_be_but_for_one_piece(
    gcs: headrace.Store, server: FaultServer
) -> None:
    window, piece = 16 * MiB, 4 * MiB

    def fetched_until() -> int:
        asked = [entry["headers"]["range"] for entry in server.log() if entry["kind"] == "media"]
        return max(int(each.rpartition("-")[2]) + 1 for each in asked)

    server.put("bucket", "a", os.urandom(50 * MiB))
    with headrace.open("a", store=gcs, prefetch_bytes=window) as file:
        while file.tell() < 32 * MiB:
            file.read(MiB)
            at = file.tell()
            if at >= window:
                wait_until(lambda at=at: fetched_until() > at + window - piece)  # type: ignore[misc]


def test_after_an_error_what_follows_is_fetched_ahead_again(
    gcs: headrace.Store, server: FaultServer
) -> None:
    data = os.urandom(12 * MiB)
    server.put("bucket", "a", data)
    refused = {"match": {"kind": "media"}, "from": 12, "count": 1, "action": {"status": 403}}
    server.faults([refused])
    with headrace.open("a", store=gcs) as file:
        read: list[bytes] = []
        with pytest.raises(headrace.PermissionDeniedError):
            read.extend(iter(lambda: file.read(64 << 10), b""))
        assert file.tell() > MiB
        before = len(media(server))  # all that there is was asked for
        read += iter(lambda: file.read(64 << 10), b"")
    assert b"".join(read) == data
    # Of some 130 reads; and what was under way, and came to the server since.
    assert len(media(server)) - before <= 40


def test_a_wrong_call_leaves_what_was_fetched_ahead(
    gcs: headrace.Store, server: FaultServer
) -> None:
    data = os.urandom(12 * MiB)
    server.put("bucket", "a", data)
    with headrace.open("a", store=gcs) as file:
        while file.tell() < 6 * MiB:  # and all of the rest is asked for
            file.read(MiB)
        wait_until(lambda: sum(media(server)) >= len(data))
        before = len(media(server))
        with pytest.raises(ValueError, match="size is -2"):
            file.read(-2)
        with pytest.raises(TypeError):
            file.readinto(b"..")  # type: ignore[arg-type]
        file.read()
    assert len(media(server)) == before


def test_a_step_back_into_what_was_just_read_is_no_jump(
    gcs: headrace.Store, server: FaultServer
) -> None:
    data = os.urandom(40 * MiB)
    server.put("bucket", "a", data)
    read = []
    with headrace.open("a", store=gcs) as file:
        while piece := file.read(64 << 10):
            read.append(piece if len(piece) < 64 << 10 else piece[:-8])
            if len(piece) == 64 << 10:
                file.seek(-8, os.SEEK_CUR)
    assert b"".join(read) == data
    assert len(media(server)) <= 60  # of 640 reads


def test_small_reads_back_and_forth_fetch_no_more_than_they_reach(
    gcs: headrace.Store, server: FaultServer
) -> None:
    server.put("bucket", "a", os.urandom(40 * MiB))
    places = random.Random(1)
    with headrace.open("a", store=gcs) as file:
        for _ in range(2000):
            file.seek(10 * MiB + places.randrange(60 << 10))
            file.read(4 << 10)
    assert sum(media(server)) <= 2 * MiB


def test_a_forked_child_closes_a_file_that_a_thread_of_the_parent_is_reading(
    gcs: headrace.Store, server: FaultServer
) -> None:
    server.put("bucket", "a", os.urandom(4 * MiB))
    file = headrace.open("a", store=gcs)
    file.read(1)
    server.faults([{"match": {"kind": "media"}, "action": "stall_head"}])
    reading = threading.Thread(target=lambda: (file.seek(2 * MiB), file.read(MiB)))
    reading.start()
    wait_until(lambda: server.stats()["in_flight"] > 0)
    child = os.fork()
    if child == 0:
        file.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    server.faults([])
    server.release()
    reading.join()
    file.close()


@pytest.mark.parametrize("read_bytes", [50_000, 400_000, 3 * MiB])
def test_whoever_stops_after_a_header_has_fetched_four_times_that_ahead_at_most(
    gcs: headrace.Store, server: FaultServer, read_bytes: int
) -> None:
    server.put("bucket", "a", os.urandom(40 * MiB))
    begin = 256 << 10  # which comes with opening it
    with headrace.open("a", store=gcs) as file:
        file.seek(begin)
        for _ in range(10):
            file.read(read_bytes // 10)
        end = file.tell()
        asked = [entry["headers"]["range"] for entry in server.log() if entry["kind"] == "media"]
    until = max(int(each.rpartition("-")[2]) + 1 for each in asked)
    assert end <= until <= end + max(4 * read_bytes, 64 << 10)


def test_what_is_fetched_ahead_is_bounded(
    gcs: headrace.Store, server: FaultServer, run_child: Child
) -> None:
    server.put("bucket", "a", os.urandom(60 * MiB))
    script = """
        import sys
        import headrace
        from headrace import MiB
        store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
        with headrace.open("a", store=store, prefetch_bytes=8 * MiB) as file:
            while file.read(100_000):
                pass
        peak = headrace.metrics().memory_peak_live_bytes
        assert 4 * MiB < peak <= 18 * MiB, peak
        assert headrace.metrics().memory_live_bytes == 0
    """
    run_child(script, server.url)


def test_a_large_read_goes_by_parallel_ranges(gcs: headrace.Store, server: FaultServer) -> None:
    data = os.urandom(40 * MiB)
    server.put("bucket", "a", data)
    with headrace.open("a", store=gcs) as file:
        into = bytearray(len(data))
        assert file.readinto(into) == len(data)
    assert into == data
    assert len(media(server)) == 1 + 5  # the beginning, and ranges of 8 MiB


def test_it_is_pinned_to_what_was_opened(store: headrace.Store) -> None:
    store.write("a", DATA)
    with headrace.open("a", store=store) as file:
        store.write("a", DATA[::-1])
        file.seek(1_000_000)
        with pytest.raises(headrace.PreconditionFailedError):
            file.read(2_000_000)
        with pytest.raises(headrace.PreconditionFailedError):
            file.read(10)


def test_a_given_generation(store: headrace.Store) -> None:
    first = store.write("a", DATA)
    assert headrace.open("a", store=store, if_generation=first.generation).read() == DATA
    with pytest.raises(headrace.InvalidArgumentError, match="if_generation is 5; it must be the"):
        headrace.open("a", store=store, if_generation=5)  # type: ignore[call-overload]
    assert headrace.open(first, store=store).read(10) == DATA[:10]
    store.write("a", b"another")
    with pytest.raises(headrace.PreconditionFailedError, match="is generation"):
        headrace.open("a", store=store, if_generation=first.generation)


@pytest.mark.parametrize(
    "action", ["reset", {"cut_after_bytes": 1000}, {"status": 503}, {"status": 429}]
)
def test_broken_answers_are_read_again(
    gcs: headrace.Store, server: FaultServer, action: Any
) -> None:
    store = headrace.Store(
        "gs://bucket", endpoint=server.url, retry=headrace.RetryOptions(initial_backoff_s=0.001)
    )
    server.put("bucket", "a", DATA)
    server.faults([{"match": {"kind": "media"}, "every": 2, "action": action}])
    with headrace.open("a", store=store) as file:
        assert b"".join(iter(lambda: file.read(70_000), b"")) == DATA


def test_after_an_error_it_can_be_read_again(gcs: headrace.Store, server: FaultServer) -> None:
    server.put("bucket", "a", DATA)
    with headrace.open("a", store=gcs) as file:
        file.seek(1_000_000)
        server.faults([{"match": {"kind": "media"}, "action": {"status": 403}}])
        with pytest.raises(headrace.PermissionDeniedError):
            file.read(100)
        server.faults([])
        assert file.read(100) == DATA[1_000_000:1_000_100]


def test_a_forked_child_reads_on(
    gcs: headrace.Store, server: FaultServer, run_child: Child
) -> None:
    server.put("bucket", "a", DATA)
    script = """
        import os, sys
        import headrace
        store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
        data = store.read("a").bytes()
        file = headrace.open("a", store=store)
        for _ in range(5):
            file.read(100_000)
        pid = os.fork()
        rest = file.read()
        assert rest == data[500_000:]
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """
    run_child(script, server.url)


def test_a_jump_into_what_is_being_fetched_waits_for_it(
    gcs: headrace.Store, server: FaultServer
) -> None:
    data = os.urandom(1 << 20) * 32
    gcs.write("a", data)
    server.faults([{"match": {"kind": "media"}, "action": {"delay_ms": 100}}])
    for place in (7 << 20, 12 << 20, 20 << 20):
        with headrace.open("a", store=gcs) as file:
            for i in range(4):  # in a row: so that what follows is fetched ahead
                assert file.read(1 << 20) == data[i << 20 : (i + 1) << 20]
            file.seek(place)
            assert file.read(100) == data[place : place + 100]
            assert file.read(3 << 20) == data[place + 100 : place + 100 + (3 << 20)]
