"""Writes, copies and deletes, with and without conditions."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import headrace
from tests.conformance.subject import Subject, but_for_time


def test_what_is_written_is_there(subject: Subject, store: headrace.Store) -> None:
    info = store.write("a/b", b"123456789")
    assert subject.get("a/b") == b"123456789"
    found = store.stat("a/b")
    if subject.abilities.writes_tell_times:
        assert info == found
    else:
        assert info.updated is None
        assert but_for_time(info) == but_for_time(found)
    assert (info.name, info.size_bytes) == ("a/b", 9)
    assert store.exists("a/b")


@pytest.mark.parametrize("size_bytes", [0, 1, 65_536, 3_000_000])
def test_any_size(subject: Subject, store: headrace.Store, size_bytes: int) -> None:
    data = bytes(i % 253 for i in range(size_bytes))
    store.write("o", data)
    assert subject.get("o") == data
    assert store.read("o").bytes() == data


def test_a_write_replaces(subject: Subject, store: headrace.Store) -> None:
    first = store.write("o", b"the first")
    second = store.write("o", b"2nd")
    assert subject.get("o") == b"2nd"
    assert first.generation != second.generation == store.stat("o").generation


def test_create_only(subject: Subject, store: headrace.Store) -> None:
    store.write("o", b"first", if_generation="absent")
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        store.write("o", b"second", if_generation="absent")
    assert caught.value.url == f"{subject.url}/o"
    by_status = subject.abilities.answers_by_http and subject.abilities.conditions_have_status
    assert caught.value.http_status == (412 if by_status else None)
    assert subject.get("o") == b"first"


def test_a_write_of_a_known_generation(subject: Subject, store: headrace.Store) -> None:
    first = store.write("o", b"first")
    second = store.write("o", b"second", if_generation=first.generation)
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("o", b"third", if_generation=first.generation)
    assert subject.get("o") == b"second"
    assert store.stat("o").generation == second.generation
    store.delete("o")
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("o", b"fourth", if_generation=second.generation)
    assert not store.exists("o")


WRONG_GENERATIONS = ["", "zzz", "1 2", " 5", "-1", "1" * 23, "\u0665", "65024-1017-1", 5]


@pytest.mark.parametrize("generation", WRONG_GENERATIONS, ids=repr)
def test_what_is_no_generation_changes_nothing(
    subject: Subject, store: headrace.Store, generation: Any
) -> None:
    store.write("o", b"first")
    store.write("other", b"other")
    errors: tuple[type[Exception], ...] = (headrace.InvalidArgumentError,)
    if generation and isinstance(generation, str) and not subject.url.startswith("gs:"):
        # What the generations of other stores look like is not for us to say.
        errors += (headrace.PreconditionFailedError,)

    def write_at_once() -> None:
        store.write("o", b"second", if_generation=generation)

    def write_in_parts() -> None:
        store.open_writer("o", if_generation=generation).close()

    for operation in (
        write_at_once,
        write_in_parts,
        lambda: store.delete("o", if_generation=generation),
        lambda: store.copy("other", "o", if_generation=generation),
    ):
        with pytest.raises(errors, match="generation"):
            operation()
    assert subject.get("o") == b"first"


def test_metadata_comes_back(subject: Subject, store: headrace.Store) -> None:
    written = store.write("o", b"x", content_type="text/plain", content_encoding="br")
    info = store.stat("o")
    kept = ("text/plain", "br") if subject.abilities.keeps_metadata else ("", "")
    assert (info.content_type, info.content_encoding) == kept
    assert (written.content_type, written.content_encoding) == kept


@pytest.mark.parametrize("described", [{}, {"content_type": "text/plain"}], ids=["plain", "typed"])
@pytest.mark.parametrize("how", ["write", "equal", "copy"])
def test_what_described_the_replaced_object_is_gone(
    store: headrace.Store, described: dict[str, str], how: str
) -> None:
    fresh = store.write("fresh", b"new", **described)
    before = b"new" if how == "equal" else b"what was there"
    store.write("o", before, content_type="text/html", content_encoding="br")
    if how == "copy":
        written = store.copy("fresh", "o")
    else:
        written = store.write("o", b"new", **described)
    found = store.stat("o")
    told = (fresh.content_type, fresh.content_encoding)
    assert (found.content_type, found.content_encoding) == told
    assert (written.content_type, written.content_encoding) == told
    assert written.generation == found.generation


def test_types_with_commas_come_back(subject: Subject, store: headrace.Store) -> None:
    described = ('multipart/mixed; boundary="a, b=c"', "gzip, br")
    store.write("o", b"x", content_type=described[0], content_encoding=described[1])
    info = store.stat("o")
    kept = described if subject.abilities.keeps_metadata else ("", "")
    assert info.content_type == kept[0]
    assert info.content_encoding.replace(", ", ",") == kept[1].replace(", ", ",")


def test_a_write_to_a_missing_bucket(subject: Subject) -> None:
    store = subject.open(subject.missing_url)
    if subject.abilities.makes_buckets:
        store.write("o", b"x")
        assert store.read("o").bytes() == b"x"
    else:
        with pytest.raises(headrace.NotFoundError) as caught:
            store.write("o", b"x")
        assert caught.value.url == f"{subject.missing_url}/o"


def test_a_deleted_object_is_gone(store: headrace.Store) -> None:
    store.write("o", b"x")
    store.write("other", b"y")
    store.delete("o")
    assert not store.exists("o")
    assert store.stat("o", missing_ok=True) is None
    assert [info.name for info in store.list()] == ["other"]


def test_what_is_not_there_cannot_be_deleted(subject: Subject, store: headrace.Store) -> None:
    with pytest.raises(headrace.NotFoundError) as caught:
        store.delete("o")
    assert caught.value.url == f"{subject.url}/o"
    store.delete("o", missing_ok=True)


def test_a_delete_of_a_known_generation(subject: Subject, store: headrace.Store) -> None:
    old = store.write("o", b"old")
    new = store.write("o", b"new")
    if subject.abilities.conditional_delete:
        with pytest.raises(headrace.PreconditionFailedError):
            store.delete("o", if_generation=old.generation)
        assert store.exists("o")
        store.delete("o", if_generation=new.generation)
    else:
        store.delete("o", if_generation=old.generation)
    assert not store.exists("o")


def test_a_copy_is_an_object_of_its_own(subject: Subject, store: headrace.Store) -> None:
    source = store.write("source", b"bytes")
    copy = store.copy("source", "a/copy")
    assert (copy.name, copy.size_bytes, copy.crc32c) == ("a/copy", 5, source.crc32c)
    store.write("source", b"other")
    assert subject.get("a/copy") == b"bytes"
    assert subject.get("source") == b"other"
    store.copy("source", "a/copy")
    assert subject.get("a/copy") == b"other"


def test_a_copy_may_have_a_condition(subject: Subject, store: headrace.Store) -> None:
    store.write("source", b"bytes")
    store.copy("source", "new", if_generation="absent")
    assert subject.get("new") == b"bytes"
    there = store.write("there", b"x")
    if subject.abilities.conditional_copy:
        with pytest.raises(headrace.PreconditionFailedError):
            store.copy("source", "there", if_generation="absent")
        assert subject.get("there") == b"x"
        store.copy("source", "there", if_generation=there.generation)
    else:
        store.copy("source", "there", if_generation="absent")
    assert subject.get("there") == b"bytes"


def test_a_copy_of_a_known_generation(subject: Subject, store: headrace.Store) -> None:
    old = store.write("source", b"old")
    new = store.write("source", b"newer")
    with pytest.raises(headrace.PreconditionFailedError):
        store.copy(old, "copy")
    assert not store.exists("copy")
    store.copy(new, "copy")
    assert subject.get("copy") == b"newer"


def test_objects_are_joined_where_the_store_can(subject: Subject, store: headrace.Store) -> None:
    parts = [store.write(f"part-{i}", bytes([i]) * i) for i in range(3)]
    if not subject.abilities.composes:
        with pytest.raises(headrace.InvalidArgumentError, match="composed"):
            store.compose(parts, "whole")
        assert not store.exists("whole")
        return
    whole = store.compose(parts, "whole", content_type="text/plain")
    assert whole.size_bytes == 3
    assert whole.component_count in (3, 0)  # fake-gcs-server does not tell it
    assert whole.content_type == "text/plain"
    assert subject.get("whole") == b"\x01\x02\x02"
    assert store.read(whole).bytes() == b"\x01\x02\x02"


def test_a_copy_of_what_is_missing(subject: Subject, store: headrace.Store) -> None:
    with pytest.raises(headrace.NotFoundError) as caught:
        store.copy("missing", "o")
    assert f"{subject.url}/missing" in str(caught.value)
    assert not store.exists("o")


def test_stat_of_what_is_missing(subject: Subject, store: headrace.Store) -> None:
    with pytest.raises(headrace.NotFoundError) as caught:
        store.stat("missing")
    assert caught.value.url == f"{subject.url}/missing"
    assert store.stat("missing", missing_ok=True) is None
    assert not store.exists("missing")


def test_stat_of_many(subject: Subject, store: headrace.Store) -> None:
    names = [f"d/{i:03}" for i in range(300)]
    for name in names:
        subject.put(name, name.encode())
    asked = [*names[::-1], names[7], names[7]]
    assert store.stat_many(asked) == [store.stat(name) for name in asked]
    assert store.stat_many([]) == []
    assert store.stat_many(["missing", "d/001"], missing_ok=True) == [None, store.stat("d/001")]
    with pytest.raises(headrace.NotFoundError) as caught:
        store.stat_many([*names, "missing", *names])
    assert caught.value.url == f"{subject.url}/missing"


ODD_NAMES = [
    "with space",
    " leading and trailing ",
    "100%",
    "%41%2F%00",
    "a#fragment",
    "a?query=1&b=2",
    "1+1=2",
    "new\nline",
    "tab\tand\rreturn\x7f",
    "quote'\"back\\slash",
    "[brackets]{braces}*|^~`<>",
    "ünïcödé",
    "e\u0301 is not é",
    "日本語/ファイル",
    "\U0001f600\uffff",
    "...",
    "a.b/..c/d..",
    "x" * 255,
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_odd_names(subject: Subject, store: headrace.Store, name: str) -> None:
    data = name.encode()
    has_controls = any(c < " " or c == "\x7f" for c in name)
    longest = max(len(part.encode()) for part in name.split("/"))
    is_long = longest > subject.abilities.component_bytes
    if is_long or (has_controls and not subject.abilities.control_characters):
        with pytest.raises(headrace.InvalidArgumentError):
            store.write(name, data)
        assert list(store.list()) == []
        return
    store.write(name, data)
    assert subject.get(name) == data
    assert store.read(name).bytes() == data
    assert store.stat(name).name == name
    assert [info.name for info in store.list()] == [name]
    assert [info.name for info in store.list(name)] == [name]
    copied = f"copy/{name}"
    assert store.copy(name, copied).name == copied
    store.delete(name)
    assert [info.name for info in store.list()] == [copied]


# Names that a flat store takes and a file system does not.
FLAT_NAMES = ["a//b", "/leading", "trailing/", "./a", "../a", "a/./b", "..", "é" * 490, "x/" * 400]


@pytest.mark.parametrize("name", FLAT_NAMES, ids=range(len(FLAT_NAMES)))
def test_names_that_are_no_paths(subject: Subject, store: headrace.Store, name: str) -> None:
    if subject.abilities.flat_names:
        store.write(name, b"x")
        assert subject.get(name) == b"x"
        assert store.read(name).bytes() == b"x"
        assert [info.name for info in store.list()] == [name]
    elif name in subject.abilities.odd_names:
        store.write(name, b"x")
        assert store.read(name).bytes() == b"x"
    else:
        with pytest.raises(headrace.InvalidArgumentError) as caught:
            store.write(name, b"x")
        assert caught.value.url == f"{subject.url}/{name}"
        assert list(store.list()) == []


def test_a_name_within_a_name(subject: Subject, store: headrace.Store) -> None:
    store.write("a", b"1")
    if subject.abilities.nested_names == "sometimes":
        with contextlib.suppress(headrace.HeadraceError):
            store.write("a/b", b"2")
            assert store.read("a/b").bytes() == b"2"
    elif subject.abilities.nested_names:
        store.write("a/b", b"2")
        assert [info.name for info in store.list()] == ["a", "a/b"]
    elif subject.abilities.nested_names is None:
        store.write("a/b", b"2")
        assert store.read("a/b").bytes() == b"2"
    else:
        with pytest.raises(headrace.HeadraceError):
            store.write("a/b", b"2")
        assert [info.name for info in store.list()] == ["a"]
    assert store.read("a").bytes() == b"1"


def test_the_empty_name_is_refused(store: headrace.Store) -> None:
    for call in (store.read, store.stat, store.delete):
        with pytest.raises(headrace.InvalidArgumentError):
            call("")
    with pytest.raises(headrace.InvalidArgumentError):
        store.write("", b"x")


# Of every store: components that are neither "." nor ".." (MinIO refuses them with spaces, too),
# of at most 255 bytes.
COMPONENTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=40
).filter(lambda text: text.strip() not in (".", "..") and len(text.encode()) <= 255)


@hypothesis.given(
    objects=st.dictionaries(
        st.lists(COMPONENTS, min_size=1, max_size=3).map("/".join),
        st.binary(max_size=300),
        max_size=4,
    )
)
@hypothesis.example(objects={"0../0": b"", "a~/b~/.../c": b"1", "x~": b"2"})
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_names_and_bytes_make_the_round_trip(
    subject: Subject, store: headrace.Store, objects: dict[str, bytes]
) -> None:
    # Not left out by an assumption: where many are refused, few examples would remain.
    replaced = str.maketrans(dict.fromkeys(subject.abilities.refused_characters, "_"))
    objects = {name.translate(replaced): data for name, data in objects.items()}
    for ending in subject.abilities.refused_endings:
        objects = {name.replace(f"{ending}/", "_/"): data for name, data in objects.items()}
    # Each example has a folder of its own: an empty one that another has left is no object.
    folder = f"{uuid.uuid4().hex}/"
    objects = {folder + name: data for name, data in objects.items()}
    names = sorted(objects, key=str.encode)
    # No name is a folder of another: a file system could not hold both.
    hypothesis.assume(not any(b.startswith(a + "/") for a in names for b in names))
    for name, data in objects.items():
        store.write(name, data)
    listed = list(store.list(folder))
    assert [info.name for info in listed] == names
    assert [sample.bytes() for sample in store.read_many(listed)] == [objects[n] for n in names]
    assert [sample.bytes() for sample in store.read_many(names)] == [objects[n] for n in names]
