"""Objects of any size, written as they come: there whole or not at all, nothing beside them."""

from __future__ import annotations

import os

import pytest

import headrace
from tests.conformance.subject import Subject

PART = 64 << 10
DATA = os.urandom(40 * PART + 11)  # more parts than one request can join


def open_writer(store: headrace.Store, **options: str) -> headrace.ObjectWriter:
    return store.open_writer("dir/o", part_bytes=PART, **options)  # type: ignore[arg-type]


def write_all(writer: headrace.ObjectWriter, data: bytes) -> None:
    for begin in range(0, len(data), 1000):
        writer.write(data[begin : begin + 1000])
    writer.close()


def names(subject: Subject) -> list[str]:
    """All there is, temporary objects, too."""
    temporary = subject.open(subject.bucket_url).list("headrace-uploads/")
    return [info.name for info in (*subject.open().list(), *temporary)]


@pytest.mark.parametrize("size_bytes", [0, 1, PART - 1, PART, PART + 1, 3 * PART, len(DATA)])
def test_any_size(subject: Subject, store: headrace.Store, size_bytes: int) -> None:
    writer = open_writer(store)
    writer.write(DATA[:size_bytes])
    assert not store.exists("dir/o")
    info = writer.close()
    assert subject.get("dir/o") == DATA[:size_bytes]
    assert info == store.stat("dir/o") == writer.close()
    assert info.size_bytes == writer.size_bytes == size_bytes
    if subject.abilities.keeps_checksums:
        assert info.crc32c == writer.crc32c
    assert names(subject) == ["dir/o"]
    assert writer.left_behind is None


def test_lent_and_copied_pieces_keep_their_order(subject: Subject, store: headrace.Store) -> None:
    writer = open_writer(store)
    for begin in range(0, len(DATA), 200_000):
        writer.write(DATA[begin : begin + 7])
        writer.write_lent(memoryview(DATA)[begin + 7 : begin + 200_000])
    writer.close()
    assert subject.get("dir/o") == DATA


def test_the_content_type(subject: Subject, store: headrace.Store) -> None:
    writer = open_writer(store, content_type="application/x-checkpoint")
    writer.write(DATA)
    info = writer.close()
    if subject.abilities.keeps_metadata:
        assert info.content_type == "application/x-checkpoint"


def test_an_abort_leaves_what_was_there(subject: Subject, store: headrace.Store) -> None:
    store.write("dir/o", b"before")
    writer = open_writer(store)
    writer.write(DATA)
    writer.abort()
    with pytest.raises(headrace.CancelledError):
        writer.write(b"more")
    with pytest.raises(headrace.CancelledError):
        writer.close()
    assert subject.get("dir/o") == b"before"
    assert names(subject) == ["dir/o"]


@pytest.mark.parametrize("size_bytes", [10, len(DATA)])
def test_conditions(subject: Subject, store: headrace.Store, size_bytes: int) -> None:
    data = DATA[:size_bytes]

    def write(condition: str) -> headrace.ObjectInfo:
        writer = open_writer(store, if_generation=condition)
        writer.write(data)
        return writer.close()

    first = write("absent")
    if size_bytes > PART and not subject.abilities.conditional_large_write:
        write("absent")
        return
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        write("absent")
    assert caught.value.url == f"{subject.url}/dir/o"
    second = write(first.generation)
    with pytest.raises(headrace.PreconditionFailedError):
        write(first.generation)
    assert store.stat("dir/o").generation == second.generation
    assert names(subject) == ["dir/o"]


def test_a_bucket_that_does_not_exist(subject: Subject) -> None:
    if subject.abilities.makes_buckets:
        return  # the first write makes it; test_write.py has that
    for size_bytes in (10, len(DATA)):
        with pytest.raises(headrace.NotFoundError) as caught:
            write_all(open_writer(subject.open(subject.missing_url)), DATA[:size_bytes])
        assert caught.value.url == f"{subject.missing_url}/dir/o"
