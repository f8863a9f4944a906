"""What fsspec's own file systems do, these do: a folder as the local one, a bucket as the memory.

Where they differ on purpose, docs/guide/fsspec.md says so, and a test here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import headrace
from headrace.fsspec import FolderFileSystem, GcsFileSystem
from testing.faultserver.client import FaultServer

SOME = hypothesis.settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
NAMES = ["a", "b", "ab", "d/a", "d/b", "d/e/a", "f/a", "f/g/h/x"]
PLAIN = ["a", "d", "d/", "f", "d/e", "missing", "d/missing"]
PATTERNS = ["*", "d/*", "**", "d/**", "*/a", "?", "m*", "[ab]"]
TARGETS = ["new", "new/", "there", "there/", "there/deep/x"]

TREES = st.sets(st.sampled_from(NAMES), min_size=2)
ONE = st.sampled_from(PLAIN + PATTERNS)
SOURCES = ONE | st.lists(st.sampled_from(PLAIN), min_size=2, max_size=2, unique=True)
DEPTHS = st.sampled_from([{}, {}, {"maxdepth": 1}, {"maxdepth": 2}])
HOW = st.builds(lambda recursive, depth: {"recursive": recursive, **depth}, st.booleans(), DEPTHS)


@dataclass(frozen=True)
class Side:
    """A file system, a folder of it, and a local folder; with the same files in both."""

    fs: AbstractFileSystem
    root: str
    local: str

    def fill(self, names: set[str]) -> None:
        there = {f"in/{name}": name for name in names} | {"out/there/old": "old"}
        for name, text in there.items():
            self.fs.pipe_file(f"{self.root}/{name}", text.encode())
            path = Path(self.local, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def relative(self, paths: Any) -> list[str]:
        start = len(self.root.lstrip("/"))
        return sorted(path.lstrip("/")[start:].strip("/") for path in paths)

    def files(self, folder: str = "") -> dict[str, str]:
        at = f"{self.root}/{folder}".rstrip("/")
        found = self.fs.find(at) if self.fs.exists(at) else []
        return {self.relative([path])[0]: self.fs.cat_file(path).decode() for path in found}

    def local_files(self) -> dict[str, str]:
        found = (path for path in Path(self.local).rglob("*") if path.is_file())
        return {str(path.relative_to(self.local)): path.read_text() for path in found}


def at(folder: str, source: str | list[str]) -> Any:
    if isinstance(source, list):
        return [f"{folder}/{each}" for each in source]
    return f"{folder}/{source}"


def outcome(call: Any) -> Any:
    """What a call gives, or the error that it raises."""
    try:
        return call()
    except Exception as error:
        return error


class Local(LocalFileSystem):  # type: ignore[misc]
    """fsspec's local file system, whose directories come by themselves, as ours do."""

    cachable = False

    def __init__(self) -> None:
        super().__init__(auto_mkdir=True)


@contextmanager
def folders(_: FaultServer) -> Iterator[tuple[Side, Side]]:
    with tempfile.TemporaryDirectory() as top:
        top = os.path.realpath(top)
        for name in ("ours", "theirs", "local", "other"):
            os.mkdir(f"{top}/{name}")
        yield (
            Side(FolderFileSystem(), f"{top}/ours", f"{top}/local"),
            Side(Local(), f"{top}/theirs", f"{top}/other"),
        )


@contextmanager
def buckets(server: FaultServer) -> Iterator[tuple[Side, Side]]:
    server.reset()
    server.put("bucket", "keep", b"")
    fs = GcsFileSystem(endpoint=server.url, credentials="anonymous")
    memory = MemoryFileSystem()
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    with tempfile.TemporaryDirectory() as top:
        for name in ("local", "other"):
            os.mkdir(f"{top}/{name}")
        yield Side(fs, "bucket/root", f"{top}/local"), Side(memory, "/root", f"{top}/other")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


BOTH = pytest.mark.parametrize("sides", [folders, buckets])


def would_be_lost(found: Any) -> bool:
    """Whether we refuse what they do, since one file would be copied over another."""
    return isinstance(found, headrace.InvalidArgumentError) and "would be" in str(found)


@BOTH
@SOME
@hypothesis.given(names=TREES, source=SOURCES, how=HOW)
def test_the_same_paths_are_meant(
    names: set[str], source: Any, how: dict[str, Any], sides: Any, server: FaultServer
) -> None:
    with sides(server) as (ours, theirs):
        found = []
        for side in (ours, theirs):
            side.fill(names)
            path = at(f"{side.root}/in", source)
            found.append(
                outcome(lambda s=side, p=path: s.relative(s.fs.expand_path(p, **how)))  # type: ignore[misc]
            )
            if isinstance(found[-1], FileNotFoundError):
                found[-1] = "missing"
        assert found[0] == found[1]


@BOTH
@SOME
@hypothesis.given(
    names=TREES, source=ONE, depth=DEPTHS, withdirs=st.booleans(), is_glob=st.booleans()
)
def test_the_same_is_found(
    names: set[str],
    source: str,
    depth: dict[str, Any],
    withdirs: bool,
    is_glob: bool,
    sides: Any,
    server: FaultServer,
) -> None:
    with sides(server) as (ours, theirs):
        found = []
        for side in (ours, theirs):
            side.fill(names)
            path = f"{side.root}/in/{source}"
            if is_glob:
                found.append(side.relative(side.fs.glob(path)))
            else:
                found.append(side.relative(side.fs.find(path, withdirs=withdirs, **depth)))
        assert found[0] == found[1]


@BOTH
@pytest.mark.parametrize("method", ["get", "put", "cp"])
@SOME
@hypothesis.given(names=TREES, source=SOURCES, target=st.sampled_from(TARGETS), how=HOW)
def test_the_same_is_copied_to_the_same_place(
    names: set[str],
    source: Any,
    target: str,
    how: dict[str, Any],
    method: str,
    sides: Any,
    server: FaultServer,
) -> None:
    with sides(server) as (ours, theirs):
        found = []
        for side in (ours, theirs):
            side.fill(names)
            from_ = side.local if method == "put" else side.root
            to = side.local if method == "get" else side.root
            call = getattr(side.fs, method)
            arguments = (at(f"{from_}/in", source), f"{to}/out/{target}")
            found.append(outcome(lambda c=call, a=arguments: c(*a, **how)))  # type: ignore[misc]
        if would_be_lost(found[0]):
            assert ours.files("out") == {"out/there/old": "old"}
        elif isinstance(found[0], Exception):
            assert isinstance(found[1], Exception), found
        else:
            assert not isinstance(found[1], Exception), found
            assert ours.files() == theirs.files()
            assert ours.local_files() == theirs.local_files()


@BOTH
@SOME
@hypothesis.given(names=TREES, source=SOURCES, how=HOW)
def test_what_is_meant_is_removed_and_nothing_else(
    names: set[str], source: Any, how: dict[str, Any], sides: Any, server: FaultServer
) -> None:
    with sides(server) as (ours, theirs):
        for side in (ours, theirs):
            side.fill(names)
        before = ours.files()
        meant = outcome(lambda: theirs.fs.expand_path(at(f"{theirs.root}/in", source), **how))
        paths = [] if isinstance(meant, Exception) else theirs.relative(meant)
        wanted = {path: text for path, text in before.items() if path in paths}
        found = outcome(lambda: ours.fs.rm(at(f"{ours.root}/in", source), **how))
        removed = before.items() - ours.files().items()
        assert removed <= wanted.items()
        if not isinstance(found, Exception):
            assert removed == wanted.items()
        elif isinstance(found, FileNotFoundError):
            assert isinstance(source, list) or not wanted
        else:
            assert isinstance(found, OSError)
            assert not how["recursive"]


@BOTH
@SOME
@hypothesis.given(names=TREES, source=SOURCES, target=st.sampled_from(TARGETS), how=HOW)
def test_what_is_moved_is_what_a_copy_copies_and_nothing_else_goes(
    names: set[str],
    source: Any,
    target: str,
    how: dict[str, Any],
    sides: Any,
    server: FaultServer,
) -> None:
    with sides(server) as (ours, theirs):
        for side in (ours, theirs):
            side.fill(names)
        before = ours.files()
        meant = outcome(lambda: theirs.fs.expand_path(at(f"{theirs.root}/in", source), **how))
        paths = [] if isinstance(meant, Exception) else theirs.relative(meant)
        wanted = {path for path in before if path in paths}
        to = f"out/{target}"
        copied = outcome(
            lambda: theirs.fs.cp(at(f"{theirs.root}/in", source), f"{theirs.root}/{to}", **how)
        )
        found = outcome(
            lambda: ours.fs.mv(at(f"{ours.root}/in", source), f"{ours.root}/{to}", **how)
        )
        after = ours.files()
        assert set(before.values()) <= set(after.values())  # whatever happens
        if not isinstance(found, Exception):
            assert not isinstance(copied, Exception)
            assert ours.files("out") == theirs.files("out")
            assert ours.files("in").keys() == {p for p in before if p[:3] == "in/"} - wanted
        elif not would_be_lost(found) and not isinstance(found, IsADirectoryError):
            assert isinstance(copied, Exception)
        else:
            assert after == before


# ---- what differs, as the guide has it


def test_two_files_that_would_become_one_are_refused(server: FaultServer) -> None:
    with buckets(server) as (ours, theirs):
        for side in (ours, theirs):
            side.fill({"a", "d/a"})
        both = ["a", "d/a"]
        theirs.fs.cp(at("/root/in", both), "/root/out/new/")
        assert theirs.files("out/new") == {"out/new/a": "d/a"}
        with pytest.raises(headrace.InvalidArgumentError, match="would be copied there"):
            ours.fs.cp(at("bucket/root/in", both), "bucket/root/out/new/")


def test_a_missing_name_in_a_list_to_remove_is_an_error(server: FaultServer) -> None:
    with buckets(server) as (ours, theirs):
        for side in (ours, theirs):
            side.fill({"a", "d/a"})
        some = ["missing", "d"]
        theirs.fs.rm(at("/root/in", some), recursive=True)
        with pytest.raises(FileNotFoundError, match="no such object or folder"):
            ours.fs.rm(at("bucket/root/in", some), recursive=True)
        assert ours.files("in") == theirs.files("in") == {"in/a": "a"}


def test_a_move_with_maxdepth_leaves_what_is_deeper(server: FaultServer) -> None:
    with buckets(server) as (ours, theirs):
        for side in (ours, theirs):
            side.fill({"d/a", "d/e/a"})
            side.fs.mv(f"{side.root}/in/d/*", f"{side.root}/new", recursive=True, maxdepth=1)
        assert theirs.files("in") == {}
        assert ours.files("in") == {"in/d/e/a": "d/e/a"}


def test_a_folder_that_is_not_moved_as_one_is_an_error_that_says_so(server: FaultServer) -> None:
    with buckets(server) as (ours, _):
        ours.fill({"d/a"})
        for source in (f"{ours.root}/in/d", [f"{ours.root}/in/d"]):
            with pytest.raises(IsADirectoryError):
                ours.fs.mv(source, f"{ours.root}/new")


def test_an_object_may_lie_below_an_object(server: FaultServer) -> None:
    with buckets(server) as (ours, theirs):
        for side in (ours, theirs):
            side.fill({"a", "d/a"})
        with pytest.raises((FileExistsError, NotADirectoryError)):
            theirs.fs.put(f"{theirs.local}/in/d/*", "/root/in/a")
        ours.fs.put(f"{ours.local}/in/d", "bucket/root/in/a/", recursive=True)
        assert ours.files("in/a")["in/a/d/a"] == "d/a"
