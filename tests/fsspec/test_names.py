"""What has a name is meant by it, whatever characters it has; and all listings tell the same."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from fsspec.implementations.local import LocalFileSystem

import headrace
from headrace.fsspec import FolderFileSystem, GcsFileSystem
from testing.faultserver.client import FaultServer

FEW = hypothesis.settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
PARTS = ["a", "a1", "a[1]", "a*", "?", "[!a]", "b[a-z]", "{a,b}", "ab"]
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("/".join)
TREES = st.sets(NAMES, min_size=1, max_size=6)


def made(root: str, names: set[str]) -> set[str]:
    """Write files of these names, but for those that lie below others; return which."""
    written = {n for n in names if not any(o.startswith(f"{n}/") for o in names)}
    for name in written:
        path = Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return written


def files(root: str) -> set[str]:
    return {str(p.relative_to(root)) for p in Path(root).rglob("*") if p.is_file()}


def below(names: set[str], name: str) -> set[str]:
    return {each for each in names if each == name or each.startswith(f"{name}/")}


@FEW
@hypothesis.given(TREES, st.data())
def test_removing_copying_and_reading_mean_what_has_the_name(
    names: set[str], data: st.DataObject
) -> None:
    fs = FolderFileSystem()
    with tempfile.TemporaryDirectory() as top:
        root = f"{os.path.realpath(top)}/in"
        written = made(root, names)
        some = {"/".join(n.split("/")[: i + 1]) for n in written for i in range(n.count("/") + 1)}
        name = data.draw(st.sampled_from(sorted(some)))
        path, wanted = f"{root}/{name}", below(written, name)
        is_file = name in written
        found = fs.cat(path, recursive=True)
        assert found == (name.encode() if is_file else {f"{root}/{n}": n.encode() for n in wanted})
        assert set(fs.cat([path], recursive=True)) == {f"{root}/{n}" for n in wanted}
        assert set(fs.du(path, total=False)) == {f"{root}/{n}" for n in wanted}
        relative = {"" if n == name else n[len(name) :] for n in wanted}
        for to, copy in (("got", fs.get), ("put", fs.put), ("copied", fs.copy)):
            copy(path, f"{top}/{to}", recursive=not is_file)
            assert {f.removeprefix(to) for f in files(top) if f.split("/")[0] == to} == relative
        os.mkdir(f"{top}/into")
        for copy in (fs.get, fs.put, fs.copy):
            copy(path, f"{top}/into/", recursive=not is_file)
            last = name.split("/")[-1]
            assert files(f"{top}/into") == {f"{last}{each}" for each in relative}
            shutil.rmtree(f"{top}/into")
            os.mkdir(f"{top}/into")
        fs.mv(path, f"{top}/moved", recursive=not is_file)
        assert files(root) == written - wanted
        fs.mv(f"{top}/moved", path, recursive=not is_file)
        assert files(root) == written
        way = data.draw(st.sampled_from(["one", "list", "find"]))
        given: Any = {"one": path, "list": [path], "find": fs.find(path)}[way]
        fs.rm(given, recursive=way != "find" and not is_file)
        assert files(root) == written - wanted


@FEW
@hypothesis.given(TREES, st.sampled_from(["a?", "a*", "*", "a[1]", "[!a]", "x*/y"]))
def test_what_has_no_such_name_is_a_pattern_as_it_is_for_fsspec_s_own(
    names: set[str], pattern: str
) -> None:
    ours, theirs = FolderFileSystem(), LocalFileSystem()
    with tempfile.TemporaryDirectory() as top:
        root = os.path.realpath(top)
        written = made(root, names)
        hypothesis.assume(not os.path.lexists(f"{root}/{pattern}"))
        wanted = {each.rstrip("/") for each in theirs.glob(f"{root}/{pattern}")}
        if not wanted:
            for call in (ours.cat, ours.rm, ours.expand_path):
                with pytest.raises(FileNotFoundError):
                    call(f"{root}/{pattern}")
            return
        assert set(ours.expand_path(f"{root}/{pattern}")) == wanted
        ours.rm(f"{root}/{pattern}", recursive=True)
        gone = {n for n in written if f"{root}/{n.split('/')[0]}" in wanted}
        assert files(root) == written - gone


def by_walk(fs: Any, path: str) -> set[tuple[str, str]]:
    found = {(path, "directory")}
    for folder, folders, names in fs.walk(path):
        at = folder.rstrip("/")
        found |= {(f"{at}/{each}", "directory") for each in folders}
        found |= {(f"{at}/{each}", "file") for each in names}
    return found


def by_level(fs: Any, path: str) -> set[tuple[str, str]]:
    found = {(path, "directory")}
    for entry in fs.ls(path, detail=True):
        assert fs.info(entry["name"])["type"] == entry["type"]
        found.add((entry["name"], entry["type"]))
        if entry["type"] == "directory":
            found |= by_level(fs, entry["name"])
    return found


def all_tell_the_same(fs: Any, path: str) -> set[tuple[str, str]]:
    def told(found: dict[str, Any]) -> set[tuple[str, str]]:
        return {(name.rstrip("/"), entry["type"]) for name, entry in found.items()}

    whole = told(fs.find(path, withdirs=True, detail=True))
    assert told(fs.find(path, withdirs=True, detail=True, maxdepth=50)) == whole
    assert by_level(fs, path) == whole
    assert by_walk(fs, path) == whole
    assert told(fs.glob(f"{path}/**", detail=True)) | {(path, "directory")} == whole
    names = {name for name, kind in whole if kind == "file"}
    assert set(fs.find(path)) == set(fs.find(path, maxdepth=50)) == names
    return whole


@FEW
@hypothesis.given(TREES, st.sets(st.sampled_from(["e", "a/e/f", "z[1]/e", "a*"]), max_size=3))
def test_all_listings_of_a_folder_tell_the_same_also_of_empty_directories(
    names: set[str], empty: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as top:
        root = os.path.realpath(top)
        written = made(root, names)
        for name in empty - written:
            if not any(name.startswith(f"{each}/") for each in written):
                os.makedirs(f"{root}/{name}", exist_ok=True)
        wanted = {(root, "directory")} | {
            (str(p), "directory" if p.is_dir() else "file") for p in Path(root).rglob("*")
        }
        assert all_tell_the_same(FolderFileSystem(), root) == wanted


# In a bucket, slashes may follow each other, and a name may be a folder, too.
KEYS = st.lists(st.sampled_from(["a", "b[1]", "*", "", "c"]), min_size=1, max_size=4).map(
    lambda parts: "/".join([*parts, "x"])
)


@FEW
@hypothesis.given(names=st.sets(KEYS, min_size=1, max_size=6))
def test_all_listings_of_a_bucket_tell_the_same_also_of_names_with_two_slashes(
    names: set[str], server: FaultServer
) -> None:
    bucket = f"b{zlib.crc32(repr(sorted(names)).encode())}"
    store = headrace.Store(f"gs://{bucket}", endpoint=server.url)
    for name in names:
        server.put(bucket, name, b"x")
    fs = GcsFileSystem(endpoint=server.url)
    whole = all_tell_the_same(fs, bucket)
    assert {name for name, kind in whole if kind == "file"} == {f"{bucket}/{n}" for n in names}
    victim = sorted(names)[0]
    assert fs.cat(f"{bucket}/{victim}") == b"x"
    fs.rm(f"{bucket}/{victim}")
    assert {each.name for each in store.list()} == names - {victim}
