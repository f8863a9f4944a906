"""Packing by the tasks of a Ray cluster of two nodes on this machine."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace._pack import on_ray
from tests.pack import functions
from tests.pack.test_processes import PACKING, files, fill, is_running
from tests.ray_cluster import TwoNodes
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with TwoNodes() as nodes:
        yield nodes


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("transform", [None, functions.shrink])
def test_tasks_write_the_shards_that_threads_write(tmp_path: Path, transform: Any) -> None:
    source = fill(tmp_path)
    how: dict[str, Any] = {"transform": transform, **PACKING}
    headrace.pack(source, tmp_path / "threads", **how)
    packed = headrace.pack(source, tmp_path / "ray", executor="ray", **how)
    assert files(tmp_path / "threads") == files(tmp_path / "ray")
    assert len(files(tmp_path / "ray")) == packed.written == 5
    assert packed.index == headrace.index_members(tmp_path / "ray")
    assert (tmp_path / "threads" / "train.index").exists()
    assert headrace.pack(source, tmp_path / "ray", executor="ray", **how).written == 0


@pytest.mark.usefixtures("cluster")
def test_tasks_write_the_tokens_that_threads_write(tmp_path: Path) -> None:
    source = fill(tmp_path)
    for executor in ("threads", "ray"):
        headrace.pack_tokens(
            source, tmp_path / executor, functions.encode, executor=executor, **PACKING
        )
    assert files(tmp_path / "threads") == files(tmp_path / "ray")
    assert len(files(tmp_path / "ray")) == 10


@pytest.mark.usefixtures("cluster")
def test_a_task_whose_process_is_killed_amid_a_shard_is_repeated(tmp_path: Path) -> None:
    source = fill(tmp_path)
    transform = functions.KillsItsProcess(tmp_path, "011")
    packed = headrace.pack(source, tmp_path / "out", transform=transform, executor="ray", **PACKING)
    assert (tmp_path / "killed").exists()
    assert (packed.written, packed.samples) == (5, 18)
    headrace.pack(source, tmp_path / "whole", transform=transform, **PACKING)
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert packed.index == headrace.index_members(tmp_path / "out")


@pytest.mark.usefixtures("cluster")
def test_lambdas_and_modules_of_the_current_folder_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, here = fill(tmp_path), tmp_path / "here"
    here.mkdir()
    (here / "own_transform.py").write_text(
        "factor = 2\n\ndef twice(sample):\n    return {'jpg': sample['jpg'].bytes() * factor}\n"
    )
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    module = importlib.import_module("own_transform")
    try:
        packed = headrace.pack(source, tmp_path / "a", transform=module.twice, executor="ray")
    finally:
        del sys.modules["own_transform"]
    assert packed.size_bytes > 20 * 800
    headrace.pack(
        source, tmp_path / "b", transform=lambda s: {"jpg": s["jpg"].bytes() * 2}, executor="ray"
    )
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.usefixtures("cluster")
def test_a_process_unpickles_the_job_once(tmp_path: Path) -> None:
    source = fill(tmp_path)
    (tmp_path / "unpickled").mkdir()

    class Noting:
        def __init__(self) -> None:
            self.folder = tmp_path / "unpickled"

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__dict__.update(state)
            number = len(list(self.folder.iterdir()))
            (self.folder / f"{os.getpid()}-{number}").touch()

        def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
            return {"jpg": sample["jpg"].bytes(), "pid": os.getpid()}

    packed = headrace.pack(
        source, tmp_path / "out", transform=Noting(), executor="ray", shard_samples=1
    )
    assert packed.shards == 20
    pids = [path.name.partition("-")[0] for path in (tmp_path / "unpickled").iterdir()]
    assert len(set(pids)) == len(pids) < 20
    assert str(os.getpid()) not in pids


@pytest.mark.usefixtures("cluster")
def test_what_a_transform_raises_names_its_sample_and_cancels_the_rest(tmp_path: Path) -> None:
    source = fill(tmp_path)
    with pytest.raises(headrace.HeadraceError, match="OddError: this and that") as raised:
        headrace.pack(source, tmp_path / "out", transform=functions.raise_odd, executor="ray")
    [note] = raised.value.__notes__
    assert ".jpg" in note
    assert files(tmp_path / "out") == {}


@pytest.mark.usefixtures("cluster")
def test_a_progress_function_that_raises_cancels_it_and_others_go_on(tmp_path: Path) -> None:
    source = fill(tmp_path)

    def tell(done: int, total: int) -> None:
        if (tmp_path / "pid").exists():
            raise LookupError("enough")

    how: dict[str, Any] = {"transform": functions.Hangs(tmp_path, "011"), **PACKING}
    with pytest.raises(LookupError, match="enough"):
        headrace.pack(source, tmp_path / "out", executor="ray", progress=tell, **how)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(pid))  # also that of a task that does not hear of it
    # Of the same name, as settings have it, but there is no such sample.
    how["transform"] = functions.Hangs(tmp_path, "nobody")
    for executor in ("processes", "threads"):
        packed = headrace.pack(source, tmp_path / "out", executor=executor, **how)
        assert packed.samples == 18
    headrace.pack(source, tmp_path / "whole", **how)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_without_ray_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(headrace.HeadraceError, match=r"pip install 'headrace\[ray\]'"):
        headrace.pack(fill(tmp_path), tmp_path / "out", executor="ray")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens, and nobody else gets the port
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        ray = importlib.import_module("ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests are connected
        with pytest.raises(headrace.HeadraceError, match=f"there is no Ray at {address}"):
            _reach()


@pytest.mark.parametrize(
    ("address", "running", "asked"),
    [
        ("", True, ["auto"]),
        ("", False, ["auto", "local"]),
        ("auto", True, ["auto"]),
        ("local", True, ["local"]),
    ],
)
def test_a_cluster_is_started_where_none_runs_or_a_new_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, address: str, running: bool, asked: list[str]
) -> None:
    ray = importlib.import_module("ray")
    addresses: list[str] = []
    usage: list[str | None] = []

    def init(address: str, **_: object) -> None:
        addresses.append(address)
        usage.append(os.environ.get("RAY_USAGE_STATS_ENABLED"))
        if address == "auto" and not running:
            raise ConnectionError("none")

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    _reach()
    assert addresses == asked
    assert usage == [None if each == "auto" else "0" for each in asked]


def test_where_a_cluster_is_asked_for_and_none_runs_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = importlib.import_module("ray")

    def init(address: str, **_: object) -> None:
        raise ConnectionError(f"could not start or find {address}")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with pytest.raises(headrace.HeadraceError, match="there is no Ray at auto"):
        _reach()
    for address in ("", "local"):  # what Ray says of one that it cannot start is not hidden
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConnectionError, match="could not start or find local"):
            _reach()


def _reach() -> None:
    with on_ray._cluster(importlib.import_module("ray")):
        pass
