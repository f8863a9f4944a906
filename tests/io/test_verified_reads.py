"""What a file has handed out whole is the object, however it was read."""

from __future__ import annotations

import os
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import headrace
from headrace import MiB, ObjectInfo
from testing.faultserver.client import FaultServer

SIZE = 2_500_000
DATA = os.urandom(SIZE)

reads = st.lists(
    st.tuples(
        st.sampled_from(["read", "readinto", "peek", "read1"]),
        st.integers(0, SIZE),
        st.one_of(st.integers(0, 3_000), st.integers(0, 200_000), st.integers(0, 1_600_000)),
    ),
    max_size=12,
)
# In these steps everything that is left is read, forwards or backwards.
sweeps = st.tuples(st.sampled_from([90_000, 300_001, 1_200_000, SIZE]), st.booleans())


class Reader:
    """Reads, and knows what came of each byte first."""

    def __init__(self, file: headrace.ObjectReaderIO) -> None:
        self.file = file
        self.got = np.zeros(SIZE, np.uint8)
        self.have = np.zeros(SIZE, bool)

    @property
    def is_whole(self) -> bool:
        return bool(self.have.all())

    @property
    def is_right(self) -> bool:
        return self.got.tobytes() == DATA

    def read(self, how: str, at: int, size: int) -> None:
        self.file.seek(at)
        if how == "readinto":
            buffer = bytearray(size)
            found = bytes(buffer[: self.file.readinto(buffer)])
        elif how == "peek":
            found = self.file.peek(size)
        else:
            found = getattr(self.file, how)(size)
        there = slice(at, at + len(found))
        new = ~self.have[there]
        self.got[there][new] = np.frombuffer(found, np.uint8)[new]
        self.have[there] = True

    def all(self, reads: list[tuple[str, int, int]], sweep: tuple[int, bool]) -> None:
        for each in reads:
            self.read(*each)
        step, backwards = sweep
        places = range(0, SIZE, step)
        for at in reversed(places) if backwards else places:
            self.read("read", at, min(step, SIZE - at))


def store_on(server: FaultServer, **options: Any) -> headrace.Store:
    return headrace.Store("gs://bucket", endpoint=server.url, **options)


def put(server: FaultServer, data: bytes) -> tuple[headrace.Store, ObjectInfo]:
    server.reset()
    server.put("bucket", "a", data)
    store = store_on(server)
    return store, store.stat("a")


def as_sent(info: ObjectInfo, data: bytes) -> ObjectInfo:
    """What a store says of `data` when other bytes come from it, at every time."""
    sent = headrace._engine.crc32c(data)
    return ObjectInfo(info.name, info.size_bytes, info.generation, crc32c=sent)


quick = hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=25
)


@quick
@hypothesis.given(reads=reads, sweep=sweeps)
def test_right_bytes_are_handed_out_in_any_order(
    server: FaultServer, reads: list[tuple[str, int, int]], sweep: tuple[int, bool]
) -> None:
    store, _ = put(server, DATA)
    with headrace.open("a", store=store) as file:
        reader = Reader(file)
        reader.all(reads, sweep)
    assert reader.is_right


@quick
@hypothesis.given(reads=reads, sweep=sweeps, bad=st.integers(0, SIZE - 1), bit=st.integers(0, 7))
def test_a_bit_that_always_flips_is_told_before_the_last_byte_is_handed_out(
    server: FaultServer,
    reads: list[tuple[str, int, int]],
    sweep: tuple[int, bool],
    bad: int,
    bit: int,
) -> None:
    damaged = DATA[:bad] + bytes([DATA[bad] ^ 1 << bit]) + DATA[bad + 1 :]
    store, info = put(server, damaged)
    with headrace.open(as_sent(info, DATA), store=store) as file:
        reader = Reader(file)
        with pytest.raises(headrace.CorruptDataError, match=r"^gs://bucket/a: ") as raised:
            reader.all(reads, sweep)
        assert raised.value.url == "gs://bucket/a"
        assert not reader.is_whole
        with pytest.raises(headrace.CorruptDataError):
            file.read(1)


@quick
@hypothesis.given(reads=reads, sweep=sweeps, answer=st.integers(1, 12))
@hypothesis.example(
    # A wrong byte, and then the right one of an answer that overlaps.
    reads=[("read", 450_001, 1), ("read", 384_466, 1)],
    sweep=(90_000, False),
    answer=2,
)
def test_an_answer_with_a_flipped_byte_is_told_unless_all_that_came_first_is_right(
    server: FaultServer, reads: list[tuple[str, int, int]], sweep: tuple[int, bool], answer: int
) -> None:
    store, _ = put(server, DATA)
    server.faults(
        [{"match": {"kind": "media"}, "from": answer, "count": 1, "action": {"flip_byte": 0}}]
    )
    with headrace.open("a", store=store) as file:
        reader = Reader(file)
        try:
            reader.all(reads, sweep)
        except headrace.CorruptDataError:
            assert not reader.is_whole
        else:
            assert reader.is_right


@pytest.mark.parametrize("second", [SIZE, 1_000_000, 100_000])
@pytest.mark.parametrize("first", [SIZE, 1_000_000, 100_000])
def test_what_is_read_a_second_time_is_compared_again(
    server: FaultServer, first: int, second: int
) -> None:
    store, _ = put(server, DATA)
    with headrace.open("a", store=store) as file:
        for at in range(0, SIZE, first):
            file.seek(at)
            file.read(first)
        server.faults([{"match": {"kind": "media"}, "count": 1, "action": {"flip_byte": 0}}])
        again: list[bytes] = []

        def read_again() -> None:
            for at in range(0, SIZE, second):
                file.seek(at)
                again.append(file.read(second))

        with pytest.raises(headrace.CorruptDataError):
            read_again()
        assert sum(map(len, again)) < SIZE


def test_a_small_object_is_compared_by_its_first_whole_read(server: FaultServer) -> None:
    server.put("bucket", "a", DATA[:1000])
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 500}}])
    with headrace.open("a", store=store_on(server)) as file:
        assert file.read(500) == DATA[:500]
        with pytest.raises(headrace.CorruptDataError, match=r"have CRC32C .*, the object has "):
            file.read()
    with headrace.open("a", store=store_on(server, verify=False)) as file:
        assert len(file.read()) == 1000  # as it was asked for


def test_it_costs_no_request(server: FaultServer) -> None:
    asked = []
    for verify in (True, False):
        server.reset()
        server.put("bucket", "a", os.urandom(20 * MiB))
        store = store_on(server, verify=verify)
        with headrace.open("a", store=store, prefetch_bytes=0) as file:
            for at, size in ((0, 100), (5 * MiB, 8 * MiB), (19 * MiB, MiB), (0, 20 * MiB)):
                file.seek(at)
                assert len(file.read(size)) == size
        media = [entry for entry in server.log() if entry["kind"] == "media"]
        asked.append((len(media), sum(entry["bytes_sent"] for entry in media)))
    assert asked[0] == asked[1]


def test_a_sum_that_is_left_out_is_asked_for(server: FaultServer) -> None:
    store, info = put(server, DATA)
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 0}}])
    without = ObjectInfo(info.name, info.size_bytes, info.generation)
    with headrace.open(without, store=store) as file, pytest.raises(headrace.CorruptDataError):
        file.read()
    with headrace.open(without, store=store_on(server, verify=False)) as file:
        assert len(file.read()) == SIZE
