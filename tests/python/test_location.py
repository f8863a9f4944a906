"""Which object, or root, a URL means: one answer for every function that takes a URL."""

from __future__ import annotations

import os
import re
import tracemalloc
from pathlib import Path

import braceexpand
import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from headrace._store.location import (
    bucket_and_name,
    bucket_of,
    directory_of,
    expand_braces,
    folder_and_name,
    is_local,
    is_whole,
    object_at,
    root_at,
)

BUCKET = headrace.Store("gs://bucket", credentials="anonymous")


@pytest.mark.parametrize(
    ("url", "root", "name"),
    [
        ("gs://bucket/a", "gs://bucket", "a"),
        ("gcs://bucket/run/a b%", "gs://bucket", "run/a b%"),
        ("gs://bucket//a", "gs://bucket", "/a"),
        ("file:///data/run/a", "file:///data/run", "a"),
        ("/data/run/a", "file:///data/run", "a"),
        ("/a", "file:///", "a"),
        ("/data/run/../a", "file:///data", "a"),
    ],
)
def test_an_object_is_named_in_its_bucket_or_in_its_folder(url: str, root: str, name: str) -> None:
    store, found = object_at(url, credentials="anonymous")
    assert (store.url.rstrip("/"), found) == (root.rstrip("/"), name)
    assert store.url_of(found) == url.replace("gcs:", "gs:").replace("run/../", "").replace(
        "file://", ""
    ) or store.url_of(found).endswith(found)


def test_a_relative_path_is_looked_for_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("a", Path("a"), "./a"):
        store, name = object_at(path)
        assert store.url_of(name) == f"file://{tmp_path}/a"


def test_two_dots_go_up_from_where_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    os.symlink(tmp_path / "far" / "away", tmp_path / "link")
    store, name = object_at(f"{tmp_path}/link/../a")
    assert store.url_of(name) == f"file://{os.path.realpath(tmp_path)}/far/a"


@pytest.mark.parametrize("url", ["a", "gs://bucket/a", "gcs://bucket/a"])
def test_with_a_store_a_name_and_a_whole_url_are_the_same(url: str) -> None:
    assert object_at(url, BUCKET) == (BUCKET, "a")


def test_with_a_directory_an_absolute_path_is_a_whole_url() -> None:
    store = headrace.Store("/data/run")
    for url in ("1/a", "/data/run/1/a", "file:///data/run/1/a"):
        assert object_at(url, store) == (store, "1/a")
    assert root_at("/data/run/1", store).url == "file:///data/run/1"
    with pytest.raises(headrace.InvalidArgumentError, match="/data/other lies outside of"):
        object_at("/data/other", store)
    assert object_at("/a", BUCKET) == (BUCKET, "/a")


def test_a_name_may_look_like_another_urls() -> None:
    assert object_at("https://example.org/page", BUCKET) == (BUCKET, "https://example.org/page")


@pytest.mark.parametrize(
    ("url", "store", "text"),
    [
        ("", None, "the URL is empty"),
        ("gs://bucket", None, "names a bucket or a folder"),
        ("gs://bucket/run/", None, "names a bucket or a folder"),
        ("run/", BUCKET, "names a bucket or a folder"),
        ("gs://bucket/", BUCKET, "names a bucket or a folder"),
        ("/data/", None, "names a directory"),
        ("/data/..", None, "names a directory"),
        ("/", None, "names a directory"),
        ("http://host/a", None, "unknown scheme"),
        ("gs://other/a", BUCKET, "gs://other/a lies outside of gs://bucket"),
        ("gs://bucket2/a", BUCKET, "lies outside"),
    ],
)
def test_what_is_no_object_is_refused(url: str, store: headrace.Store | None, text: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        object_at(url, store)


def test_options_beside_a_store_are_refused() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="endpoint= belongs to the store"):
        object_at("a", BUCKET, endpoint="http://localhost:1")
    with pytest.raises(headrace.InvalidArgumentError, match="endpoint= belongs to the store"):
        root_at("a", BUCKET, endpoint="http://localhost:1")


def test_a_root_below_a_store_has_its_options() -> None:
    store = headrace.Store("gs://bucket", endpoint="http://localhost:1", verify=False)
    for url in ("run/1", "run/1/", "gs://bucket/run/1", "gs://bucket/run/1/"):
        root = root_at(url, store)
        assert root.url.rstrip("/") == "gs://bucket/run/1"
        assert root._settings == store._settings
    assert root_at("", store) is store
    assert root_at("gs://bucket", store) is store
    assert root_at("gs://bucket/run").url.rstrip("/") == "gs://bucket/run"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("gs://bucket", ("gs://bucket", "")),
        ("gs://bucket/", ("gs://bucket", "")),
        ("gs://bucket/a/b", ("gs://bucket", "a/b")),
        ("gs://bucket/a/", ("gs://bucket", "a/")),
        ("gs://bucket/img-", ("gs://bucket", "img-")),
        ("/a/b/", ("file:///", "a/b/")),
        ("file:///a/./b", ("file:///", "a/b")),
        ("/", ("file:///", "")),
    ],
)
def test_a_bucket_and_a_beginning_of_names(url: str, expected: tuple[str, str]) -> None:
    assert bucket_and_name(url) == expected


def test_the_bucket_of_a_store_has_its_options() -> None:
    store = headrace.Store("gs://bucket/run/1", endpoint="http://localhost:1", verify=False)
    bucket, name = bucket_of(store)
    assert (bucket.url, name) == ("gs://bucket", "run/1")
    assert bucket._settings == store._settings
    assert bucket_of(BUCKET) == (BUCKET, "")
    directory = headrace.Store("/data/run")
    assert bucket_of(directory) == (directory, "")


def test_a_directory_of_this_machine_is_told_from_a_bucket() -> None:
    assert directory_of(headrace.Store("file:///data/a b/")) == "/data/a b"
    assert directory_of(headrace.Store("/")) == "/"
    assert directory_of(BUCKET) is None
    assert is_local("a")
    assert is_local("file:///a")
    assert not is_local("gs://bucket/file:/a")
    with pytest.raises(headrace.InvalidArgumentError, match="the URL is empty"):
        is_local("")


def test_a_url_is_told_from_a_name() -> None:
    assert all(map(is_whole, ("gs://bucket/a", "ftp://host/a", "/a")))
    assert not any(map(is_whole, ("a/b", "gs:/a", "")))


def test_in_a_store_only_our_schemes_and_a_directorys_paths_are_whole() -> None:
    bucket, directory = BUCKET, headrace.Store("/data")
    assert all(is_whole("GS://bucket/a", each) for each in (bucket, directory))
    assert not any(is_whole("https://host/a", each) for each in (bucket, directory))
    assert (is_whole("/a", bucket), is_whole("/a", directory)) == (False, True)


def test_no_other_module_takes_urls_apart() -> None:
    package = Path(headrace.__file__).resolve().parent
    pattern = re.compile(
        r"split_url|urlsplit|urlparse|(startswith|removeprefix|partition|split)"
        r"\(\"((file|gs|gcs|s3|ais):|://)"
    )
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if pattern.search(file.read_text()) and "compat" not in file.parts
    }
    # Endpoints of services, which are no places of objects.
    assert found - {"_base/options.py"} == {"_store/location.py"}


# ---- patterns

PATTERNS = st.recursive(
    st.one_of(
        st.sampled_from(["a", "-", "", ".tar", "{", "}", ",", "..", "{}", "{a}", "{1..x}"]),
        st.from_regex(
            r"\{-?0{0,2}[0-9]{1,2}\.\.-?0{0,2}[0-9]{1,2}(\.\.-?[0-9])?\}", fullmatch=True
        ),
        st.from_regex(r"\{[A-Za-z]\.\.[A-Za-z](\.\.-?[0-9])?\}", fullmatch=True),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}"),
        st.lists(inner, max_size=3).map("".join),
    ),
    max_leaves=5,
)


def balanced(pattern: str) -> bool:
    depth = 0
    for c in pattern:
        depth += (c == "{") - (c == "}")
        if depth < 0:
            return False
    return depth == 0


@hypothesis.settings(max_examples=500)
@hypothesis.example("}{")
@hypothesis.example("{0..0}}{")
@hypothesis.given(PATTERNS)
def test_braces_mean_what_they_mean_to_webdataset(pattern: str) -> None:
    try:
        wanted = list(braceexpand.braceexpand(pattern))
    except braceexpand.UnbalancedBracesError:
        with pytest.raises(headrace.InvalidArgumentError, match="a brace is"):
            expand_braces(pattern)
        return
    if not balanced(pattern):  # "}{", which it leaves where it is
        with pytest.raises(headrace.InvalidArgumentError, match="a brace is"):
            expand_braces(pattern)
        return
    if len(wanted) > 1_000_000:  # of which the next test is
        with pytest.raises(headrace.InvalidArgumentError, match="more than 1,000,000 names"):
            expand_braces(pattern)
        return
    assert expand_braces(pattern) == wanted


def test_a_pattern_of_too_many_names_is_an_error() -> None:
    for pattern in ("{0..1000000}", "{0..9999}{0..9999}", "{a,b}{0..999999}"):
        with pytest.raises(headrace.InvalidArgumentError, match="more than 1,000,000 names"):
            expand_braces(pattern)
    tracemalloc.start()
    with pytest.raises(headrace.InvalidArgumentError, match="more than 1,000,000 names"):
        expand_braces("{0..999}" * 3)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 2 << 20  # counted, not made


def test_braces_in_braces_have_a_bound() -> None:
    for pattern in ("{" * 500, "{" * 500 + "}" * 500, "{a," * 101 + "}" * 101):
        with pytest.raises(headrace.InvalidArgumentError, match=r"\.\.\.' has braces|more|deep"):
            expand_braces(pattern)
    assert expand_braces("{a," * 100 + "}" * 100) == [*["a"] * 100, ""]
    assert expand_braces("{a}" * 3000) == ["{a}" * 3000]


@pytest.mark.parametrize(
    ("text", "before_wildcard", "found"),
    [
        ("gs://bucket/a.tar", False, ("gs://bucket", "a.tar")),
        ("gs://bucket/x/*/a.tar", False, ("gs://bucket/x/*", "a.tar")),
        ("gs://bucket/x/*/a.tar", True, ("gs://bucket/x", "*/a.tar")),
        ("gs://bucket/x?.tar", True, ("gs://bucket", "x?.tar")),
        ("file:///a.tar", False, ("file:///", "a.tar")),
        ("/data/[a-c].tar", True, ("/data", "[a-c].tar")),
        ("/a.tar", False, ("/", "a.tar")),
        ("a.tar", False, ("", "a.tar")),
    ],
)
def test_a_shard_is_named_in_a_folder(
    text: str, before_wildcard: bool, found: tuple[str, str]
) -> None:
    assert folder_and_name(text, before_wildcard=before_wildcard) == found
