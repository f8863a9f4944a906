"""Objects of any size, written as they come: there whole or not at all, nothing beside them."""

from __future__ import annotations

import functools
import os

import pytest

import headrace
from tests.conformance.subject import Subject

# More parts than one request can join, where parts are as small as 64 KiB.
MANY = 40


@functools.cache
def data_of(part_bytes: int) -> bytes:
    """Return `MANY` small parts, or three large ones, and some bytes."""
    return os.urandom((MANY if part_bytes < 1 << 20 else 3) * part_bytes + 11)


@pytest.fixture
def part(subject: Subject) -> int:
    """The bytes of a part."""
    return subject.abilities.part_bytes


@pytest.fixture
def data(part: int) -> bytes:
    """The bytes of an object of several parts."""
    return data_of(part)


def open_writer(subject: Subject, store: headrace.Store, **options: str) -> headrace.ObjectWriter:
    part_bytes = subject.abilities.part_bytes
    return store.open_writer("dir/o", part_bytes=part_bytes, **options)  # type: ignore[arg-type]


def write_all(writer: headrace.ObjectWriter, data: bytes) -> None:
    for begin in range(0, len(data), 1000):
        writer.write(data[begin : begin + 1000])
    writer.close()


def names(subject: Subject) -> list[str]:
    """All there is, temporary objects, too."""
    temporary = subject.open(subject.bucket_url).list("headrace-uploads/")
    return [info.name for info in (*subject.open().list(), *temporary)]


@pytest.mark.parametrize(
    ("parts", "more"), [(0, 0), (0, 1), (1, -1), (1, 0), (1, 1), (3, 0), (MANY, 11)]
)
def test_any_size(
    subject: Subject, store: headrace.Store, part: int, data: bytes, parts: int, more: int
) -> None:
    data = data[: parts * part + more]
    size_bytes = len(data)
    writer = open_writer(subject, store)
    writer.write(data)
    assert not store.exists("dir/o")
    info = writer.close()
    assert subject.get("dir/o") == data
    stat = store.stat("dir/o")
    assert (info.name, info.size_bytes) == (stat.name, stat.size_bytes)
    assert (info.generation, info.crc32c) == (stat.generation, stat.crc32c)
    assert info == writer.close()
    assert info.size_bytes == writer.size_bytes == size_bytes
    if subject.abilities.keeps_checksums:
        assert info.crc32c == writer.crc32c
    assert names(subject) == ["dir/o"]
    assert writer.left_behind is None


def test_lent_and_copied_pieces_keep_their_order(
    subject: Subject, store: headrace.Store, data: bytes
) -> None:
    writer = open_writer(subject, store)
    for begin in range(0, len(data), 200_000):
        writer.write(data[begin : begin + 7])
        writer.write_lent(memoryview(data)[begin + 7 : begin + 200_000])
    writer.close()
    assert subject.get("dir/o") == data


def test_the_content_type(subject: Subject, store: headrace.Store, data: bytes) -> None:
    writer = open_writer(subject, store, content_type="application/x-checkpoint")
    writer.write(data)
    info = writer.close()
    if subject.abilities.keeps_metadata and subject.abilities.writes_tell_types:
        assert info.content_type == "application/x-checkpoint"


def test_what_described_the_replaced_object_is_gone(
    subject: Subject, store: headrace.Store, data: bytes
) -> None:
    store.write("dir/o", b"before", content_type="text/html", content_encoding="br")
    writer = open_writer(subject, store)
    writer.write(data)
    writer.close()
    info = store.stat("dir/o")
    if subject.abilities.joins_forget_types:
        assert info.content_type != "text/html"
        assert info.content_encoding == ""


def test_an_abort_leaves_what_was_there(
    subject: Subject, store: headrace.Store, data: bytes
) -> None:
    store.write("dir/o", b"before")
    writer = open_writer(subject, store)
    writer.write(data)
    writer.abort()
    with pytest.raises(headrace.CancelledError):
        writer.write(b"more")
    with pytest.raises(headrace.CancelledError):
        writer.close()
    assert subject.get("dir/o") == b"before"
    assert names(subject) == ["dir/o"]


@pytest.mark.parametrize("is_large", [False, True])
def test_conditions(subject: Subject, store: headrace.Store, data: bytes, is_large: bool) -> None:
    data = data if is_large else data[:10]

    def write(condition: str, data: bytes = data) -> headrace.ObjectInfo:
        writer = open_writer(subject, store, if_generation=condition)
        writer.write(data)
        return writer.close()

    first = write("absent")
    if is_large and not subject.abilities.conditional_large_write:
        write("absent")
        return
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        write("absent")
    assert caught.value.url == f"{subject.url}/dir/o"
    # Other bytes: where a generation is a sum of them, equal bytes are of one generation.
    second = write(first.generation, data[::-1])
    with pytest.raises(headrace.PreconditionFailedError):
        write(first.generation)
    assert store.stat("dir/o").generation == second.generation
    assert names(subject) == ["dir/o"]


def test_a_bucket_that_does_not_exist(subject: Subject, data: bytes) -> None:
    if subject.abilities.makes_buckets:
        return  # the first write makes it; test_write.py has that
    for size_bytes in (10, len(data)):
        with pytest.raises(headrace.NotFoundError) as caught:
            write_all(open_writer(subject, subject.open(subject.missing_url)), data[:size_bytes])
        assert caught.value.url == f"{subject.missing_url}/dir/o"
