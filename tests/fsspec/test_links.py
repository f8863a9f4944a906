"""Symbolic and hard links among the files that are moved or removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.fsspec import FolderFileSystem


@pytest.fixture
def fs() -> FolderFileSystem:
    return FolderFileSystem()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files, links to them by relative names, and a link to a folder outside."""
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
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


def test_a_link_on_the_way_to_a_folder_is_no_link_in_it(
    fs: FolderFileSystem, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "way").symlink_to("source")
    fs.mv(f"{tmp_path}/way/deep", f"{tmp_path}/there", recursive=True)
    assert files(tmp_path / "there") == {"up": b"z", "hard": b"z"}
    assert not (source / "deep").exists()
