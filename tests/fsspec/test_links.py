"""Symbolic and hard links among the files that are moved or removed."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from headrace.fsspec import FolderFileSystem
from tests.fsspec.test_names import all_tell_the_same


@pytest.fixture
def fs() -> FolderFileSystem:
    return FolderFileSystem()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files, links to them by relative names, and a link to a folder outside."""
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "outside/empty/deeper").mkdir(parents=True)
    (tmp_path / "outside/precious").write_bytes(b"precious")
    for name in ("a", "z"):
        (folder / name).write_bytes(name.encode())
    for name, target in {"b": "a", "c": "b", "deep/up": "../z", "out": "../outside"}.items():
        (folder / name).symlink_to(target)
    (folder / "hard").hardlink_to(folder / "a")
    (folder / "deep/hard").hardlink_to(folder / "z")
    return folder


INSIDE = {"a": b"a", "b": b"a", "c": b"a", "hard": b"a", "z": b"z"}
DEEP = {"deep/up": b"z", "deep/hard": b"z"}
BEHIND = {"out/precious": b"precious"}


def files(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def test_a_moved_folder_has_all_that_links_in_it_led_to_and_what_is_outside_stays(
    fs: FolderFileSystem, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs.mv(f"{source}", f"{tmp_path}/there", recursive=True)
    assert files(tmp_path / "there") == {**INSIDE, **DEEP} | BEHIND
    assert files(tmp_path / "outside") == {"precious": b"precious"}
    assert (tmp_path / "outside/empty/deeper").is_dir()
    assert [each.name for each in source.iterdir()] == ["out"]
    assert (
        "source/out/precious lies behind a symbolic link: it was copied, and stays" in caplog.text
    )


@pytest.mark.parametrize("as_list", [True, False])
def test_moved_files_and_links_to_them_are_read_before_any_goes(
    as_list: bool, fs: FolderFileSystem, source: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    names = [f"{source}/{name}" for name in INSIDE]
    fs.mv(names if as_list else f"{source}/*", f"{there}/")
    assert files(there) == INSIDE
    assert sorted(each.name for each in source.iterdir()) == ["deep", "out"]


def test_one_link_that_is_moved_becomes_a_file_and_what_it_leads_to_stays(
    fs: FolderFileSystem, source: Path, tmp_path: Path
) -> None:
    fs.mv(f"{source}/c", f"{tmp_path}/c")
    assert not (tmp_path / "c").is_symlink()
    assert (tmp_path / "c").read_bytes() == b"a"
    assert (source / "b").read_bytes() == b"a"
    assert not (source / "c").is_symlink()


def test_a_link_to_a_folder_that_is_named_keeps_what_it_leads_to(
    fs: FolderFileSystem, source: Path, tmp_path: Path
) -> None:
    fs.mv(f"{source}/out", f"{tmp_path}/there", recursive=True)
    assert files(tmp_path / "there") == files(tmp_path / "outside") == {"precious": b"precious"}


@pytest.mark.parametrize("maxdepth", [None, 5])
def test_removing_a_folder_removes_nothing_outside(
    maxdepth: int | None, fs: FolderFileSystem, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="symbolic link"):
        fs.rm(f"{source}/out", recursive=True, maxdepth=maxdepth)
    fs.rm(str(source), recursive=True, maxdepth=maxdepth)
    assert files(tmp_path) == {"outside/precious": b"precious"}
    assert (tmp_path / "outside/empty/deeper").is_dir()


def test_a_link_on_the_way_to_a_folder_is_no_link_in_it(
    fs: FolderFileSystem, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "way").symlink_to("source")
    fs.mv(f"{tmp_path}/way/deep", f"{tmp_path}/there", recursive=True)
    assert files(tmp_path / "there") == {"up": b"z", "hard": b"z"}
    assert not (source / "deep").exists()


# ---- links that lead back to a directory above them

# A name, and what it is: a directory, a file, or where a link leads.
ENTRIES = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join),
        st.sampled_from(
            ["directory", "file", "file", ".", "..", "../..", "a", "b", "../a", "../b/c", "nowhere"]
        ),
    ),
    min_size=1,
    max_size=9,
)
SOME = hypothesis.settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


@contextlib.contextmanager
def tree(entries: list[tuple[str, str]]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Make a tree, two directories deep in nothing else; give its root, and each file's bytes."""
    with tempfile.TemporaryDirectory() as top:
        root = os.path.realpath(top) + "/x/y/root"
        os.makedirs(root)
        contents: dict[str, bytes] = {}
        for name, what in entries:
            path = f"{root}/{name}"
            folder = os.path.dirname(path)
            if os.path.realpath(folder) != folder or os.path.lexists(path):
                continue
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                os.makedirs(folder, exist_ok=True)
                if what == "directory":
                    os.mkdir(path)
                elif what == "file":
                    contents[path] = name.encode()
                    Path(path).write_bytes(contents[path])
                else:
                    os.symlink(what, path)
        yield root, contents


def told(path: str, above: frozenset[tuple[int, int]] | None = None) -> dict[str, str]:
    """Return what listings tell: all that a path leads to, but nothing in a circle."""
    if above is None:
        parts = path.split("/")
        ways = ["/".join(parts[:i]) or "/" for i in range(1, len(parts))]
        above = frozenset((found.st_dev, found.st_ino) for found in map(os.stat, ways))
    here = os.stat(path)
    found = {path: "directory"}
    if (here.st_dev, here.st_ino) in above:
        return found
    for name in os.listdir(path):
        full = f"{path}/{name}"
        try:
            mode = os.stat(full).st_mode
        except OSError:  # a link that leads nowhere
            continue
        if stat.S_ISDIR(mode):
            found |= told(full, above | {(here.st_dev, here.st_ino)})
        else:
            found[full] = "file"
    return found


@SOME
@hypothesis.given(ENTRIES)
@hypothesis.example([("way", "."), ("file", "file")])
@hypothesis.example([("sub/file", "file"), ("sub/up", "..")])
@hypothesis.example([("a/b", "../b"), ("b/a", "../a"), ("b/file", "file"), ("c", "nowhere")])
def test_all_listings_of_a_tree_with_links_tell_the_same_and_end(
    entries: list[tuple[str, str]],
) -> None:
    with tree(entries) as (root, _):
        fs, wanted = FolderFileSystem(), told(root)
        assert all_tell_the_same(fs, root) == set(wanted.items())
        names = sorted(each for each, kind in wanted.items() if kind == "file")
        for url, prefix in ((root, ""), (os.path.dirname(root), "root/")):
            store = headrace.Store(url)
            found = [f"{root}/{info.name.removeprefix(prefix)}" for info in store.list(prefix)]
            assert sorted(found) == names
        for folder in (each for each, kind in wanted.items() if kind == "directory"):
            assert all_tell_the_same(fs, folder) == set(told(folder).items())


@SOME
@hypothesis.given(ENTRIES, st.sampled_from(["copy", "mv", "rm", "get"]))
@hypothesis.example([("way", "."), ("file", "file"), ("sub/up", "..")], "mv")
@hypothesis.example([("way", "."), ("file", "file"), ("sub/up", "..")], "rm")
def test_what_is_done_to_a_tree_with_links_ends_and_loses_nothing(
    entries: list[tuple[str, str]], verb: str
) -> None:
    with tree(entries) as (root, contents):
        top = root.removesuffix("/x/y/root")
        outside = Path(f"{top}/outside")
        outside.write_bytes(b"outside")
        fs, wanted = FolderFileSystem(), told(root)
        wanted_files = {
            name.removeprefix(root): Path(name).read_bytes()
            for name, kind in wanted.items()
            if kind == "file"
        }
        if verb == "rm":
            fs.rm(root, recursive=True)
            assert not os.path.lexists(root)
        else:
            getattr(fs, verb)(root, f"{top}/there", recursive=True)
            arrived = {
                f"/{each.relative_to(f'{top}/there')}": each.read_bytes()
                for each in Path(top, "there").rglob("*")
                if each.is_file()
            }
            assert arrived == wanted_files
            assert not any(each.is_symlink() for each in Path(top, "there").rglob("*"))
            if verb != "mv":
                assert {name: Path(name).read_bytes() for name in contents} == contents
        assert outside.read_bytes() == b"outside"


def test_a_directory_that_lies_in_itself_is_an_empty_folder_and_its_files_are_named_once(
    fs: FolderFileSystem, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file").write_bytes(b"x")
    (tmp_path / "way").symlink_to(".")
    with caplog.at_level(logging.INFO, logger="headrace"):
        for _ in range(2):
            assert fs.ls(f"{tmp_path}", detail=False) == [f"{tmp_path}/sub", f"{tmp_path}/way"]
            assert fs.ls(f"{tmp_path}/way") == []
            assert fs.find(f"{tmp_path}") == [f"{tmp_path}/sub/file"]
            assert fs.isdir(f"{tmp_path}/way")
            # Who uses the way means it.
            assert fs.find(f"{tmp_path}/way/sub") == [f"{tmp_path}/way/sub/file"]
            assert fs.cat(f"{tmp_path}/way/sub/file") == b"x"
    assert caplog.text.count("way/ leads to a directory that it lies in") == 1
