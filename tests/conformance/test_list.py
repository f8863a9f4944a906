"""Listings: all names, in the byte order of their UTF-8, in pages, narrowed as asked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import headrace
from tests.conformance.subject import Subject

# In byte order. UTF-16 would put the last two the other way round; a walk that sorts one directory
# at a time would put "a/b" before "a-b".
NAMES = [
    "0",
    "a b",
    "a-b",
    "a/b",
    "a/c/d",
    "a0",
    "b",
    "é",
    "日本/語",
    "\uffff",
    "\U0001f600",
]


def fill(subject: Subject, names: list[str]) -> None:
    for name in names:
        subject.put(name, name.encode())


def names_of(store: headrace.Store, *args: str, **narrowed: object) -> list[str]:
    return [info.name for info in store.list(*args, **narrowed)]  # type: ignore[arg-type]


def test_an_empty_bucket_lists_nothing(store: headrace.Store) -> None:
    assert list(store.list()) == []
    assert store.list_page() == headrace.ListPage([], [], "")


def test_names_come_in_byte_order(subject: Subject, store: headrace.Store) -> None:
    assert sorted(NAMES, key=str.encode) == NAMES
    fill(subject, list(reversed(NAMES)))
    assert names_of(store) == NAMES


def test_a_listing_tells_what_there_is(subject: Subject, store: headrace.Store) -> None:
    subject.put("empty", b"")
    written = store.write("object", b"123456789")
    empty, listed = store.list()
    assert (empty.name, empty.size_bytes) == ("empty", 0)
    stat = store.stat("object")
    if subject.abilities.listings_tell_types:
        assert listed == stat
    else:
        assert (listed.name, listed.size_bytes) == (stat.name, stat.size_bytes)
        assert (listed.generation, listed.content_type) == (stat.generation, "")
    assert (listed.name, listed.size_bytes) == ("object", 9)
    assert listed.generation == written.generation != ""
    if subject.abilities.tells_times:
        assert listed.updated.utcoffset() is not None
    else:
        assert listed.updated is stat.updated is None
    # 0xe3069283 is the check value of CRC-32C, that of the nine digits.
    assert listed.crc32c == (0xE3069283 if subject.abilities.keeps_checksums else None)


def test_a_prefix_is_no_folder(subject: Subject, store: headrace.Store) -> None:
    fill(subject, NAMES)
    assert names_of(store, "a") == ["a b", "a-b", "a/b", "a/c/d", "a0"]
    assert names_of(store, "a/") == ["a/b", "a/c/d"]
    assert names_of(store, "a/c") == ["a/c/d"]
    assert names_of(store, "日") == ["日本/語"]
    assert names_of(store, "nothing") == []


def test_a_delimiter_lists_one_level(subject: Subject, store: headrace.Store) -> None:
    fill(subject, NAMES)
    page = store.list_page("", delimiter="/")
    assert [info.name for info in page.objects] == [name for name in NAMES if "/" not in name]
    assert page.prefixes == ["a/", "日本/"]
    page = store.list_page("a/", delimiter="/")
    assert [info.name for info in page.objects] == ["a/b"]
    assert page.prefixes == ["a/c/"]
    level = list(store.list(delimiter="/"))
    assert [entry.name for entry in level] == [
        *("0", "a b", "a-b", "a/", "a0", "b", "é", "日本/", "\uffff", "\U0001f600")
    ]
    prefixes = [entry for entry in level if not isinstance(entry, headrace.ObjectInfo)]
    assert prefixes == [headrace.Prefix("a/"), headrace.Prefix("日本/")]
    assert names_of(store, "a/", delimiter="/") == ["a/b", "a/c/"]
    assert names_of(store, delimiter="/", max_results=5) == ["0", "a b", "a-b", "a/", "a0"]


def test_offsets_narrow_a_listing(subject: Subject, store: headrace.Store) -> None:
    fill(subject, NAMES)
    assert names_of(store, start_offset="a-b", end_offset="a0") == ["a-b", "a/b", "a/c/d"]
    assert names_of(store, start_offset="a-") == NAMES[2:]
    assert names_of(store, end_offset="a0") == NAMES[:5]
    assert names_of(store, "a/", start_offset="a/c") == ["a/c/d"]
    assert names_of(store, start_offset="b", end_offset="a") == []


def test_pages_join_without_gap_or_repetition(subject: Subject, store: headrace.Store) -> None:
    names = [f"p/{i:03d}" for i in range(25)]
    fill(subject, names)
    pages = [store.list_page("p/", max_results=10)]
    while pages[-1].next_page_token:
        token = pages[-1].next_page_token
        pages.append(store.list_page("p/", max_results=10, page_token=token))
    assert [len(page.objects) for page in pages] == [10, 10, 5]
    assert [info.name for page in pages for info in page.objects] == names


def test_pages_of_one_level_join(subject: Subject, store: headrace.Store) -> None:
    names = [f"{i:02d}/{j}" for i in range(7) for j in range(3)] + ["x", "y"]
    fill(subject, names)
    objects, prefixes, token = [], [], ""
    while True:
        page = store.list_page("", delimiter="/", max_results=2, page_token=token)
        assert len(page.objects) <= 2
        if subject.abilities.pages_count_prefixes:
            assert len(page.objects) + len(page.prefixes) <= 2
        objects += [info.name for info in page.objects]
        prefixes += page.prefixes
        token = page.next_page_token
        if not token:
            break
    assert objects == ["x", "y"]
    assert prefixes == [f"{i:02d}/" for i in range(7)]


def test_max_results_ends_a_listing(subject: Subject, store: headrace.Store) -> None:
    fill(subject, NAMES)
    assert names_of(store, max_results=3) == NAMES[:3]
    assert names_of(store, max_results=99) == NAMES
    with pytest.raises(headrace.InvalidArgumentError, match="max_results"):
        store.list_page(max_results=0)


def test_thousands_of_names(subject: Subject, store: headrace.Store) -> None:
    names = [f"{i % 7}/{i:05d}" for i in range(1200)]
    with ThreadPoolExecutor(8) as threads:
        # Over a connection that is kept; a file store would sync each file.
        write = store.write if subject.abilities.answers_by_http else subject.put
        list(threads.map(lambda name: write(name, b""), names))
    assert names_of(store) == sorted(names)
    assert names_of(store, "3/") == sorted(name for name in names if name.startswith("3/"))


LISTINGS: dict[str, Callable[[headrace.Store], object]] = {
    "list": lambda store: list(store.list()),
    "list of a prefix": lambda store: list(store.list("a/b")),
    "list of one level": lambda store: list(store.list(delimiter="/")),
    "list_page": lambda store: store.list_page("a"),
    "index": lambda store: store.index("a/"),
}


@pytest.mark.parametrize("way", LISTINGS)
def test_a_missing_bucket_is_called_so_by_every_listing(subject: Subject, way: str) -> None:
    with pytest.raises(headrace.NotFoundError) as caught:
        LISTINGS[way](subject.open(subject.missing_url))
    by_http = subject.abilities.answers_by_http
    assert caught.value.url is not None
    if by_http:  # the bucket, wherever in it the store's root is
        assert f"{subject.missing_url}/".startswith(f"{caught.value.url}/")
    else:
        assert caught.value.url.startswith(subject.missing_url)
    told = str(caught.value).removeprefix(caught.value.url)
    assert ("bucket" if by_http else "directory") in told
    assert caught.value.http_status == (404 if by_http else None)
