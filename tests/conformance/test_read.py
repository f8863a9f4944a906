"""Reads: whole objects, ranges, many at once, batch after batch, into the caller's memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headrace
from tests.conformance.subject import Subject

DATA = bytes(range(256)) * 40


def test_an_object_comes_whole(subject: Subject, store: headrace.Store) -> None:
    subject.put("o", DATA)
    sample = store.read("o")
    assert sample.bytes() == DATA
    assert sample.url == store.url_of("o") == f"{subject.url}/o"
    assert sample.generation == store.stat("o").generation


@pytest.mark.parametrize("by", ["name", "info"])
def test_zero_bytes_are_an_object(subject: Subject, store: headrace.Store, by: str) -> None:
    subject.put("empty", b"")
    sample = store.read("empty" if by == "name" else store.stat("empty"))
    assert (len(sample), sample.bytes()) == (0, b"")
    assert store.read("empty", begin=0, end=10).bytes() == b""


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (0, 1),
        (0, len(DATA)),
        (1, len(DATA) - 1),
        (len(DATA) - 1, None),
        (len(DATA) - 1, len(DATA) + 1000),
        (None, 100),
        (100, None),
        (0, 1 << 40),
        (300, 300),
        (len(DATA), None),
    ],
)
@pytest.mark.parametrize("by", ["name", "info"])
def test_a_range_is_half_open(
    subject: Subject, store: headrace.Store, by: str, begin: int | None, end: int | None
) -> None:
    subject.put("o", DATA)
    item = "o" if by == "name" else store.stat("o")
    assert store.read(item, begin=begin, end=end).bytes() == DATA[begin:end]


@pytest.mark.parametrize(("begin", "end"), [(len(DATA) + 1, None), (len(DATA) + 1, len(DATA) + 5)])
@pytest.mark.parametrize("by", ["name", "info"])
def test_a_range_beyond_the_end_is_refused(
    subject: Subject, store: headrace.Store, by: str, begin: int, end: int | None
) -> None:
    subject.put("o", DATA)
    item = "o" if by == "name" else store.stat("o")
    with pytest.raises(headrace.InvalidArgumentError, match="beyond the object's") as caught:
        store.read(item, begin=begin, end=end)
    assert caught.value.url == f"{subject.url}/o"


def test_ranges_of_many_objects_are_read_together(subject: Subject, store: headrace.Store) -> None:
    subject.put("a", DATA)
    subject.put("b", DATA[::-1])
    b = store.stat("b")
    ranges = [("a", 5, 9), (b, 0, len(DATA)), ("a", 7, 7), (b, 1000, 3000)]
    expected = [DATA[5:9], DATA[::-1], b"", DATA[::-1][1000:3000]]
    assert [sample.bytes() for sample in store.read_ranges(ranges)] == expected
    into = [bytearray(len(part)) for part in expected]
    store.read_ranges(ranges, into=into)
    assert into == expected
    with pytest.raises(headrace.InvalidArgumentError, match="a range begins at 0"):
        store.read_ranges([("a", 9, 5)])
    with pytest.raises(headrace.InvalidArgumentError, match="3 buffers for 4"):
        store.read_ranges(ranges, into=into[1:])


@pytest.mark.parametrize("range_", [(300, 300), (0, 0), (300, 400), (300, None)])
def test_a_range_of_a_missing_object_is_not_found(
    subject: Subject, store: headrace.Store, range_: tuple[int, int | None]
) -> None:
    begin, end = range_
    with pytest.raises(headrace.NotFoundError) as caught:
        store.read("missing", begin=begin, end=end)
    assert caught.value.url == f"{subject.url}/missing"


def test_a_range_of_nothing_of_an_empty_object_is_empty(
    subject: Subject, store: headrace.Store
) -> None:
    subject.put("empty", b"")
    assert store.read("empty", begin=0, end=0).bytes() == b""
    assert store.read(store.stat("empty"), begin=0, end=0).bytes() == b""


def test_large_objects_come_in_pieces(subject: Subject) -> None:
    data = bytes(i * 31 % 251 for i in range(1 << 18)) * 5
    subject.put("large", data)
    store = subject.open(
        parallel=headrace.ParallelOptions(range_threshold_bytes=100_000, range_bytes=99_991)
    )
    assert store.read("large").bytes() == data
    assert store.read(store.stat("large")).bytes() == data
    assert store.read("large", begin=77, end=1_000_001).bytes() == data[77:1_000_001]


def test_many_come_in_the_order_of_their_names(subject: Subject, store: headrace.Store) -> None:
    for i in range(100):
        subject.put(f"{i:02d}", b"%d" % i * i)
    order = [(i * 37) % 100 for i in range(100)] + [5, 5]
    names = [f"{i:02d}" for i in order]
    infos = {info.name: info for info in store.list()}
    mixed = [infos[name] if i % 2 else name for i, name in enumerate(names)]
    assert [sample.bytes() for sample in store.read_many(mixed)] == [b"%d" % i * i for i in order]
    assert store.read_many([]) == []


def test_each_object_has_its_own_error(subject: Subject, store: headrace.Store) -> None:
    subject.put("a", b"a")
    subject.put("c", b"c")
    a, b, c = store.read_many(["a", "missing", "c"], on_error="return")
    assert isinstance(a, headrace.Sample)
    assert isinstance(c, headrace.Sample)
    assert (a.bytes(), c.bytes()) == (b"a", b"c")
    assert isinstance(b, headrace.NotFoundError)
    assert b.url == f"{subject.url}/missing"


def test_the_first_error_is_raised_and_the_others_counted(
    subject: Subject, store: headrace.Store
) -> None:
    subject.put("a", b"a")
    with pytest.raises(headrace.NotFoundError) as caught:
        store.read_many(["a", "missing-1", "missing-2", "missing-3"])
    assert caught.value.url == f"{subject.url}/missing-1"
    assert "2 other objects" in caught.value.__notes__[0]


def test_a_missing_object_is_not_found(subject: Subject, store: headrace.Store) -> None:
    with pytest.raises(headrace.NotFoundError) as caught:
        store.read("missing")
    error = caught.value
    by_http = subject.abilities.answers_by_http
    assert isinstance(error, FileNotFoundError)
    assert (error.code, error.url) == ("not found", f"{subject.url}/missing")
    assert error.http_status == (404 if by_http else None)
    if subject.abilities.redirects:
        assert error.attempts in (1, 2, 3)
    else:
        assert error.attempts == (1 if by_http else 0)
    assert f"{subject.url}/missing" in str(error)


def test_a_missing_bucket_is_not_found(subject: Subject) -> None:
    with pytest.raises(headrace.NotFoundError) as caught:
        subject.open(subject.missing_url).read("o")
    assert caught.value.url == f"{subject.missing_url}/o"


def test_an_info_pins_the_generation(subject: Subject) -> None:
    store = subject.open()
    old = store.write("o", b"old")
    new = store.write("o", b"new!")
    assert old.generation != new.generation
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        store.read(old)
    assert caught.value.url == f"{subject.url}/o"
    assert store.read(new).bytes() == b"new!"
    assert subject.open(on_change="reread").read(old).bytes() == b"new!"


def test_batches_come_in_order(subject: Subject, store: headrace.Store) -> None:
    for i in range(60):
        subject.put(f"{i:02d}", b"%d" % i)
    batches = [[f"{i:02d}" for i in range(first, first + 7)] for first in range(0, 50, 7)]
    read = [[s.bytes() for s in batch] for batch in store.read_batches(batches, prefetch_bytes=50)]
    assert read == [[b"%d" % int(name) for name in batch] for batch in batches]


def test_an_error_in_a_batch_comes_in_its_turn(subject: Subject, store: headrace.Store) -> None:
    subject.put("a", b"a")
    batches = [["a"], ["a", "missing"], ["a"]]
    reading = store.read_batches(batches)
    assert len(next(reading)) == 1
    with pytest.raises(headrace.NotFoundError):
        next(reading)
    returned = list(store.read_batches(batches, on_error="return"))
    assert [len(batch) for batch in returned] == [1, 2, 1]
    assert isinstance(returned[1][1], headrace.NotFoundError)


def test_batches_of_nothing(store: headrace.Store) -> None:
    def nothing() -> Iterator[list[str]]:
        yield []
        yield []

    assert list(store.read_batches(nothing())) == [[], []]
    assert list(store.read_batches([])) == []


def test_bytes_go_into_the_callers_memory(subject: Subject, store: headrace.Store) -> None:
    subject.put("o", DATA)
    whole, part = bytearray(len(DATA)), bytearray(10)
    store.read("o", into=whole)
    store.read("o", begin=3, end=13, into=part)
    assert (whole, part) == (DATA, DATA[3:13])
    with pytest.raises(headrace.InvalidArgumentError, match=f"{len(DATA)}"):
        store.read("o", into=bytearray(len(DATA) + 1))
