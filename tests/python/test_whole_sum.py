"""The sum of an object whose pieces arrive in any order."""

from __future__ import annotations

import hashlib
import os
import random

import hypothesis
import pytest
from hypothesis import strategies as st

from headrace import _engine
from headrace._files import whole_sum
from headrace._files.whole_sum import WholeSum

DATA = os.urandom(300)

pieces = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)).map(sorted), max_size=40)


kinds = pytest.mark.parametrize("kind", ["crc32", "crc32c", "crc64nvme"])


def sum_of(data: bytes, kind: str = "crc32c") -> int:
    return _engine.CrcKind(kind).of(data)


def whole_of(data: bytes, kind: str = "crc32c") -> WholeSum:
    return WholeSum(len(data), _engine.CrcKind(kind), sum_of(data, kind))


def add(whole: WholeSum, begin: int, end: int, data: bytes = DATA) -> str:
    """Add a piece, every other one without its sum."""
    piece = data[begin:end]
    return whole.add(begin, end, sum_of(piece, whole.kind) if begin % 2 else None, piece)


@kinds
@pytest.mark.parametrize("cut", [0, 1, 150, 299, 300])
def test_sums_are_joined_and_taken_apart(cut: int, kind: str) -> None:
    crc = _engine.CrcKind(kind)
    whole, first, rest = map(crc.of, (DATA, DATA[:cut], DATA[cut:]))
    assert crc.joined(first, rest, 300 - cut) == whole
    assert crc.of_rest(whole, first, 300 - cut) == rest
    assert crc.of_beginning(whole, rest, 300 - cut) == first


def test_digests_have_no_algebra() -> None:
    for name in ("sha256", "md5", "none", ""):
        with pytest.raises(ValueError, match="cannot be joined"):
            _engine.CrcKind(name)


@kinds
@hypothesis.given(pieces=pieces, seed=st.integers(0, 1000))
def test_right_pieces_in_any_order_are_the_whole(
    pieces: list[list[int]], seed: int, kind: str
) -> None:
    whole = whole_of(DATA, kind)
    have: set[int] = set()
    rest = [[i, i + 30] for i in range(0, 300, 30)]
    random.Random(seed).shuffle(rest)
    for begin, end in [*pieces, *rest]:
        assert add(whole, begin, end) == ""
        have.update(range(begin, end))
        assert whole.missing_bytes == 300 - len(have)


@kinds
@hypothesis.given(pieces=pieces, bad=st.integers(0, 299), seed=st.integers(0, 1000))
def test_a_wrong_first_copy_of_a_byte_is_told_by_the_last_piece(
    pieces: list[list[int]], bad: int, seed: int, kind: str
) -> None:
    damaged = DATA[:bad] + bytes([DATA[bad] ^ 16]) + DATA[bad + 1 :]
    whole = whole_of(DATA, kind)
    rest = [[i, i + 30] for i in range(0, 300, 30)]
    random.Random(seed).shuffle(rest)
    seen = False
    for begin, end in [*pieces, *rest]:
        first = begin <= bad < end and not seen
        if add(whole, begin, end, damaged if first else DATA):
            return
        seen |= first
    raise AssertionError("nothing was told")


@pytest.mark.parametrize("again", [(0, 100), (100, 200), (0, 300), (50, 250), (100, 300)])
def test_a_copy_that_differs_is_told(again: tuple[int, int]) -> None:
    whole = WholeSum(1000, _engine.CrcKind("crc32c"), 1)
    for begin in (0, 100, 200):
        assert add(whole, begin, begin + 100) == ""
    damaged = DATA[:150] + bytes([DATA[150] ^ 1]) + DATA[151:]
    assert add(whole, *again) == ""
    differs = again[0] <= 150 < again[1]
    assert bool(add(whole, *again, damaged)) == differs


def test_its_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_sum, "_MAX_MARKS", 16)
    monkeypatch.setattr(whole_sum, "_MAX_RUNS", 20)
    whole = whole_of(DATA)
    for i in range(299):
        assert add(whole, i, i + 1) == ""
        assert len(whole._runs[0].marks) <= 16
    assert add(whole, 299, 300) == ""
    whole = whole_of(DATA)
    for i in range(0, 40, 2):
        add(whole, i, i + 1)
        assert not whole.is_hopeless
    add(whole, 50, 51)
    assert whole.is_hopeless


def in_order(kind: str) -> whole_sum.InOrderSum:
    of_data = whole_sum.running_sum(kind)
    of_data.update(DATA)
    return whole_sum.InOrderSum(len(DATA), kind, of_data.digest())


def test_running_sums_are_those_that_others_compute() -> None:
    for kind in ("sha1", "sha256", "md5"):
        whole = whole_sum.running_sum(kind)
        whole.update(b"some ")
        whole.update(b"bytes")
        assert whole.digest() == hashlib.new(kind, b"some bytes").digest()
    whole = whole_sum.running_sum("xxh64")
    whole.update(b"")
    assert whole.digest().hex() == "ef46db3751d8e999"
    for kind in ("crc32", "crc32c", "crc64nvme"):
        whole = whole_sum.running_sum(kind)
        whole.update(DATA[:7])
        whole.update(DATA[7:])
        assert int.from_bytes(whole.digest(), "big") == sum_of(DATA, kind)


@pytest.mark.parametrize("kind", ["xxh64", "sha1", "sha256", "md5"])
def test_what_is_read_in_order_has_its_sum_whatever_comes_again(kind: str) -> None:
    whole = in_order(kind)
    half = len(DATA) // 2
    for begin, end in (
        (0, 10),
        (3, 7),
        (0, half),
        (half, half),
        (5, len(DATA) - 1),
        (1, len(DATA)),
    ):
        assert whole.add(begin, end, DATA[begin:end]) == ""
        assert not whole.is_hopeless
    assert whole.add(0, len(DATA), DATA) == "", "it is over"


@pytest.mark.parametrize(
    ("kind", "label"), [("xxh64", "XXH64"), ("sha256", "SHA-256"), ("md5", "MD5")]
)
def test_a_byte_of_what_is_read_in_order_that_differs_is_told_at_the_end(
    kind: str, label: str
) -> None:
    whole = in_order(kind)
    wrong = bytes([DATA[0] ^ 1]) + DATA[1:]
    assert whole.add(0, 10, wrong[:10]) == ""
    of_data = whole_sum.running_sum(kind)
    of_data.update(DATA)
    assert f"the object has {label} {of_data.digest().hex()}" in whole.add(10, len(DATA), DATA[10:])


def test_what_is_left_out_makes_the_sum_of_what_is_read_in_order_hopeless() -> None:
    whole = whole_sum.InOrderSum(len(DATA), "xxh64", bytes(8))
    assert whole.add(0, 10, DATA[:10]) == whole.add(11, 12, DATA[11:12]) == ""
    assert whole.is_hopeless
    assert whole.add(10, len(DATA), DATA[10:]) == ""
