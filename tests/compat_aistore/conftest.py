"""A bucket, and sources of objects that headrace does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace
from headrace.compat.aistore._objects import ObjectsIter
from testing.faultserver.client import FaultServer
from tests.scripts import run_script as run_script

BUCKET = "bucket"


@pytest.fixture
def server(
    server: FaultServer, own_forkserver: None, monkeypatch: pytest.MonkeyPatch
) -> FaultServer:
    """The fault server with an empty bucket; STORAGE_EMULATOR_HOST names it."""
    server.bucket(BUCKET)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    return server


@pytest.fixture
def objects(server: FaultServer) -> dict[str, bytes]:
    """What is in the bucket: 100 small objects of different sizes, by name."""
    contents = {f"train/{i:03d}": b"%03d" % i * i for i in range(100)}
    for name, content in contents.items():
        server.put(BUCKET, name, content)
    return contents


@pytest.fixture
def count(server: FaultServer) -> Callable[[str], int]:
    """How many requests of a kind the server has seen, when all have ended."""

    def counted(kind: str) -> int:
        headrace.shutdown()
        return sum(request["kind"] == kind for request in server.log())

    return counted


class ForeignObject:
    """An object as datasets know it, with nothing else."""

    def __init__(self, name: str, content: bytes, log: list[str]) -> None:
        self.name = name
        self.props_cached = SimpleNamespace(size=len(content))
        self._content, self._log = content, log

    def get_reader(self, **options: Any) -> Any:
        self._log.append(self.name)
        return SimpleNamespace(read_all=lambda: self._content, options=options)


class ForeignSource:
    """A source of objects that headrace does not know; it keeps a log."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents
        self.listings: list[str] = []
        self.reads: list[str] = []

    def list_all_objects_iter(self, prefix: str = "", props: str = "name,size") -> Iterator[Any]:
        self.listings.append(prefix)
        for name, content in sorted(self.contents.items()):
            if name.startswith(prefix):
                yield ForeignObject(name, content, self.reads)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with ten small files."""
    for i in range(10):
        (tmp_path / f"{i}.bin").write_bytes(b"%d" % i * i)
    return tmp_path


def keep_listing(*datasets: Any) -> None:
    """Let all later passes of iterable datasets have the listing of now."""
    for dataset in datasets:
        listing = dataset._create_objects_iter().listing
        dataset._create_objects_iter = lambda listing=listing: ObjectsIter(lambda: listing)
