"""What programs give to every file system alike."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("fsspec")

import fsspec

import headrace
import headrace.fsspec
from testing.faultserver.client import FaultServer
from tests.fsspec.conftest import Place

MiB = 1 << 20


@pytest.mark.parametrize(
    "hint",
    [
        {"block_size": 0},
        {"default_block_size": 1 << 20},
        {"encoding": "utf-8"},
        {"client_kwargs": {"trust_env": True}},
        {"cache_type": "readahead", "cache_options": {}},
    ],
)
def test_hints_of_a_host_are_passed_over(tmp_path: Path, hint: dict[str, object]) -> None:
    headrace.fsspec.register()
    (tmp_path / "a").write_bytes(b"text")
    fs = fsspec.filesystem("headrace+file", **hint)
    assert fs.cat(f"{tmp_path}/a") == b"text"


def test_an_endpoint_in_client_kwargs_is_no_hint() -> None:
    headrace.fsspec.register()
    with pytest.raises(TypeError, match="client_kwargs"):
        fsspec.filesystem("headrace+s3", client_kwargs={"endpoint_url": "http://127.0.0.1:9"})


# What fsspec's own file systems take, which check nothing.
SAME_AS_A_MIB = [MiB, float(MiB), MiB + 0.9, numpy.int64(MiB), numpy.float32(MiB), Fraction(MiB)]
DEFAULTS = [None, 0, 0.0, "default"]
WRONG = ["5MB", "1048576", True, numpy.bool_(True), math.nan, math.inf, -1, b"1", [MiB], {}]


def parts_of(server: FaultServer) -> int:
    """Return how many requests have brought bytes."""
    return sum(entry["kind"] == "upload" for entry in server.log())


@pytest.mark.parametrize("block_size", SAME_AS_A_MIB, ids=repr)
def test_a_number_of_any_kind_is_the_size_of_parts(
    counted: Place, server: FaultServer, block_size: Any
) -> None:
    with counted.fs.open(counted.at("a"), "wb", block_size=block_size) as file:
        file.write(bytes(3 * MiB))
    assert parts_of(server) == 3
    assert counted.fs.size(counted.at("a")) == 3 * MiB


@pytest.mark.parametrize("block_size", DEFAULTS, ids=repr)
def test_what_names_no_size_leaves_it_to_headrace(
    counted: Place, server: FaultServer, block_size: Any
) -> None:
    with counted.fs.open(counted.at("a"), "wb", block_size=block_size) as file:
        file.write(bytes(3 * MiB))
    assert parts_of(server) == 1
    for cache_type in (None, "readahead", "bytes", "none"):
        options = {"block_size": block_size, "cache_type": cache_type}
        with counted.fs.open(counted.at("a"), "rb", **options) as file:
            assert file.read() == bytes(3 * MiB)


@pytest.mark.parametrize("block_size", WRONG, ids=repr)
def test_a_size_that_is_none_is_an_error_that_names_it_and_changes_nothing(
    counted: Place, block_size: Any
) -> None:
    counted.fs.pipe(counted.at("a"), b"before")
    for mode in ("rb", "wb", "r", "w", "ab", "xb"):
        with pytest.raises(headrace.InvalidArgumentError, match=r"block_size is .*; it must"):
            counted.fs.open(counted.at("a"), mode, block_size=block_size)
    assert counted.fs.cat(counted.at("a")) == b"before"


@pytest.mark.parametrize("name", ["block_size", "default_block_size", "batch_size"])
@pytest.mark.parametrize("value", ["5MB", True, math.nan, [1]], ids=repr)
def test_a_host_that_gives_no_number_is_told(name: str, value: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=f"{name} is "):
        headrace.fsspec.FolderFileSystem(**{name: value})


@pytest.mark.parametrize("value", [None, 2, 2.0, numpy.int64(2), -1, 0], ids=repr)
def test_how_many_at_a_time_is_any_number_that_fsspec_takes(tmp_path: Path, value: Any) -> None:
    for fs in (headrace.fsspec.FolderFileSystem(batch_size=value),):
        paths = [f"{tmp_path}/{i}" for i in range(9)]
        fs.pipe(dict.fromkeys(paths, b"x"))
        fs.copy(paths, [f"{each}-copy" for each in paths], batch_size=value)
        fs.get(paths, [f"{each}-got" for each in paths], batch_size=value)
        fs.put(paths, [f"{each}-put" for each in paths], batch_size=value)
        assert len(fs.ls(str(tmp_path))) == 4 * 9
        fs.rm([str(each) for each in fs.ls(str(tmp_path), detail=False)])
        assert fs.ls(str(tmp_path)) == []


@pytest.mark.parametrize("value", [1, 1.0, numpy.int32(1)], ids=repr)
def test_a_depth_is_any_number(tmp_path: Path, value: Any) -> None:
    fs = headrace.fsspec.FolderFileSystem()
    fs.pipe({f"{tmp_path}/a": b"a", f"{tmp_path}/b/c": b"c"})
    assert fs.find(str(tmp_path), maxdepth=value) == [f"{tmp_path}/a"]
    assert len(list(fs.walk(str(tmp_path), maxdepth=value))) == 1
    assert set(fs.glob(f"{tmp_path}/**", maxdepth=value)) - {str(tmp_path)} == {
        f"{tmp_path}/a",
        f"{tmp_path}/b",
    }
    assert fs.du(str(tmp_path), maxdepth=value) == 1
    fs.rm(str(tmp_path), recursive=True, maxdepth=value)
    assert not fs.exists(f"{tmp_path}/a")
    assert fs.exists(f"{tmp_path}/b/c")


@pytest.mark.parametrize("value", ["1", True, 0, -1, math.nan, 0.5], ids=repr)
def test_a_depth_that_is_none_is_an_error(tmp_path: Path, value: Any) -> None:
    fs = headrace.fsspec.FolderFileSystem()
    path = str(tmp_path)
    fs.pipe(f"{path}/a", b"a")
    calls = {
        "find": lambda: fs.find(path, maxdepth=value),
        "walk": lambda: list(fs.walk(path, maxdepth=value)),
        "glob": lambda: fs.glob(f"{path}/*", maxdepth=value),
        "rm": lambda: fs.rm(path, recursive=True, maxdepth=value),
        "copy": lambda: fs.copy(path, f"{path}-copy", recursive=True, maxdepth=value),
        "mv": lambda: fs.mv(path, f"{path}-copy", recursive=True, maxdepth=value),
        "get": lambda: fs.get(path, f"{path}-copy", recursive=True, maxdepth=value),
        "put": lambda: fs.put(path, f"{path}-copy", recursive=True, maxdepth=value),
        "expand_path": lambda: fs.expand_path(path, maxdepth=value),
    }
    for call in calls.values():
        with pytest.raises(headrace.InvalidArgumentError, match="maxdepth is "):
            call()
    assert fs.find(path) == [f"{path}/a"]


def test_a_cache_that_fsspec_does_not_have_is_an_error(counted: Place) -> None:
    counted.fs.pipe(counted.at("a"), b"text")
    for options in ({"cache_type": "nonsense"}, {"cache_type": 3}):
        with pytest.raises(headrace.InvalidArgumentError, match=r"cache_type is .*readahead"):
            counted.fs.open(counted.at("a"), "rb", **options)
    with pytest.raises(headrace.InvalidArgumentError, match=r"cache_options is .*dict"):
        counted.fs.open(counted.at("a"), "rb", cache_type="bytes", cache_options="trim")


@pytest.mark.parametrize("value", [None, 0, 10, 10.0, numpy.int64(10)], ids=repr)
def test_a_gap_is_any_number(counted: Place, value: Any) -> None:
    counted.fs.pipe(counted.at("a"), b"0123456789")
    paths = [counted.at("a")] * 2
    assert counted.fs.cat_ranges(paths, [0, 5], [2, 7], max_gap=value) == [b"01", b"56"]
    with pytest.raises(headrace.InvalidArgumentError, match="max_gap is "):
        counted.fs.cat_ranges(paths, [0, 5], [2, 7], max_gap="10")
