"""An object gets another name."""

from __future__ import annotations

import pytest

import headrace
from tests.conformance.subject import Subject


def names(store: headrace.Store) -> list[str]:
    return [info.name for info in store.list()]


@pytest.mark.parametrize("size_bytes", [0, 1, 3_000_000])
def test_it_is_there_whole_and_gone_from_the_old_name(
    subject: Subject, store: headrace.Store, size_bytes: int
) -> None:
    data = bytes(i % 251 for i in range(size_bytes))
    store.write("source", data)
    moved = store.rename("source", "a/new name")
    assert (moved.name, moved.size_bytes) == ("a/new name", size_bytes)
    assert moved == store.stat("a/new name")
    assert subject.get("a/new name") == data
    assert store.read(moved).bytes() == data
    assert not store.exists("source")
    assert names(store) == ["a/new name"]


def test_what_was_there_is_replaced(subject: Subject, store: headrace.Store) -> None:
    store.write("source", b"new")
    store.write("target", b"what was there")
    store.rename("source", "target")
    assert subject.get("target") == b"new"
    assert names(store) == ["target"]


def test_it_may_have_a_condition(subject: Subject, store: headrace.Store) -> None:
    store.write("source", b"bytes")
    there = store.write("there", b"x")
    if subject.abilities.conditional_copy:
        with pytest.raises(headrace.PreconditionFailedError):
            store.rename("source", "there", if_generation="absent")
        assert subject.get("there") == b"x"
        assert subject.get("source") == b"bytes"
        store.rename("source", "there", if_generation=there.generation)
        assert subject.get("there") == b"bytes"
        store.write("source", b"more")
        with pytest.raises(headrace.PreconditionFailedError):
            store.rename("source", "there", if_generation=there.generation)
        assert subject.get("there") == b"bytes"
    store.write("source", b"again")
    store.rename("source", "new", if_generation="absent")
    assert subject.get("new") == b"again"
    assert not store.exists("source")


def test_only_the_named_generation_is_renamed(subject: Subject, store: headrace.Store) -> None:
    old = store.write("source", b"old")
    new = store.write("source", b"newer")
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        store.rename(old, "target")
    assert f"{subject.url}/source" in str(caught.value)
    assert names(store) == ["source"]
    assert store.rename(new, "target").size_bytes == 5
    assert names(store) == ["target"]


def test_a_missing_source(subject: Subject, store: headrace.Store) -> None:
    store.write("target", b"x")
    with pytest.raises(headrace.NotFoundError) as caught:
        store.rename("missing", "target")
    assert f"{subject.url}/missing" in str(caught.value)
    assert subject.get("target") == b"x"
    with pytest.raises(headrace.NotFoundError):
        store.rename("missing", "missing-folder/new")
    assert names(store) == ["target"]


def test_it_has_to_be_another_name(subject: Subject, store: headrace.Store) -> None:
    info = store.write("o", b"x")
    for source in ("o", info):
        with pytest.raises(headrace.InvalidArgumentError, match="this name already") as caught:
            store.rename(source, "o")
        assert caught.value.url == f"{subject.url}/o"
    assert subject.get("o") == b"x"


@pytest.mark.parametrize("wrong", ["source", "target"])
def test_the_empty_name_is_refused(store: headrace.Store, wrong: str) -> None:
    store.write("o", b"x")
    with pytest.raises(headrace.InvalidArgumentError):
        store.rename("" if wrong == "source" else "o", "" if wrong == "target" else "new")
    assert names(store) == ["o"]


def test_a_name_that_the_store_cannot_hold_is_refused(
    subject: Subject, store: headrace.Store
) -> None:
    store.write("o", b"x")
    name = "é" * 600 if subject.abilities.flat_names else "a/../b"
    with pytest.raises(headrace.InvalidArgumentError):
        store.rename("o", name)
    assert names(store) == ["o"]


def test_what_describes_the_object_comes_with_it(subject: Subject, store: headrace.Store) -> None:
    store.write("source", b"x", content_type="text/plain", content_encoding="br")
    moved = store.rename("source", "target")
    kept = ("text/plain", "br") if subject.abilities.keeps_metadata else ("", "")
    assert (moved.content_type, moved.content_encoding) == kept
    assert store.stat("target").content_type == kept[0]


@pytest.mark.parametrize("described", [{}, {"content_type": "text/plain"}], ids=["plain", "typed"])
def test_what_described_the_target_is_replaced_too(
    store: headrace.Store, described: dict[str, str]
) -> None:
    for i in range(6):  # on a cluster, some pairs are on one target and some on two
        source = store.write(f"source{i}", b"new", **described)
        store.write(
            f"target{i}", b"what was there", content_type="text/html", content_encoding="br"
        )
        moved = store.rename(f"source{i}", f"target{i}")
        found = store.stat(f"target{i}")
        told = (source.content_type, source.content_encoding)
        assert (found.content_type, found.content_encoding) == told
        assert (moved.content_type, moved.content_encoding) == told
        assert moved.generation == found.generation


NAMES = [
    "with space",
    "100%",
    "%41%2F%00",
    "a#fragment",
    "a?query=1&b=2",
    "1+1=2",
    "quote'\"double",
    "ünïcödé",
    "日本語/ファイル",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_odd_names(subject: Subject, store: headrace.Store, name: str) -> None:
    data = name.encode()
    store.write("plain", data)
    assert store.rename("plain", name).name == name
    assert subject.get(name) == data
    assert names(store) == [name]
    back = store.rename(name, f"back/{name}", if_generation="absent")
    assert store.read(back).bytes() == data
    assert names(store) == [f"back/{name}"]
