"""What every user does, at services that differ from S3: it works, or is refused with nothing done.

Each test has the service in its id. Those of the fault server run in `make test`; `make soak` runs
the same at real ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
import torch.distributed.checkpoint as dcp

import headrace
import headrace.fsspec
from headrace.checkpoint import load, save
from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run
from tests.dialects.services import WITHOUT_CONDITIONS, Service

MiB = 1 << 20
PART = 5 * MiB  # the smallest that S3 takes
LARGE = random.Random(7).randbytes(2 * PART + 11)
SMALL = b"0123456789" * 100


def names(service: Service) -> list[str]:
    return [info.name for info in service.store().list()]


def test_a_small_object_comes_back(service: Service) -> None:
    store = service.store()
    info = store.write("dir/a", SMALL, content_type="text/plain")
    assert info.size_bytes == len(SMALL)
    assert store.stat("dir/a").content_type == "text/plain"
    assert bytes(store.read("dir/a")) == SMALL


def test_an_empty_object_comes_back(service: Service) -> None:
    store = service.store()
    store.write("empty", b"")
    assert store.stat("empty").size_bytes == 0
    assert bytes(store.read("empty")) == b""


def test_ranges_come_back(service: Service) -> None:
    store = service.store()
    store.write("a", SMALL)
    assert bytes(store.read("a", begin=10, end=20)) == SMALL[10:20]
    assert bytes(store.read("a", begin=990)) == SMALL[990:]
    pieces = store.read_ranges([("a", 0, 3), ("a", 500, 501)])
    assert [piece.bytes() for piece in pieces] == [b"012", b"0"]


def test_a_large_object_comes_back(service: Service) -> None:
    parallel = headrace.ParallelOptions(range_threshold_bytes=4 * MiB, range_bytes=MiB)
    store = service.store(parallel=parallel)
    assert store.write("large", LARGE).size_bytes == len(LARGE)
    assert bytes(store.read("large")) == LARGE
    assert bytes(store.read("large", begin=PART - 5, end=PART + 5)) == LARGE[PART - 5 : PART + 5]


@pytest.mark.parametrize("size", [0, 10, PART, len(LARGE)])
def test_an_object_of_unknown_size_comes_back(service: Service, size: int) -> None:
    store = service.store()
    with store.open_writer("stream", part_bytes=PART) as writer:
        for begin in range(0, size, MiB):
            writer.write(LARGE[begin : min(size, begin + MiB)])
    assert bytes(store.read("stream")) == LARGE[:size]
    assert names(service) == ["stream"]


def test_an_upload_that_is_given_up_leaves_nothing(service: Service) -> None:
    writer = service.store().open_writer("stream", part_bytes=PART)
    writer.write(LARGE)
    writer.abort()
    headrace.shutdown()
    assert names(service) == []
    if service.server:
        assert service.server.uploads()["multipart"] == []


def test_a_write_after_another_needs_no_patience(service: Service) -> None:
    store = service.store(retry=headrace.RetryOptions(max_attempts=3))
    for i in range(20):
        store.write("a", b"%d" % i)
        assert bytes(store.read("a")) == b"%d" % i


def test_a_condition_is_kept_or_refused_with_nothing_done(service: Service) -> None:
    store = service.store()
    if service.name in WITHOUT_CONDITIONS:
        with pytest.raises(headrace.InvalidArgumentError, match="condition"):
            store.write("new", b"1", if_generation="absent")
        assert names(service) == []
        return
    info = store.write("new", b"1", if_generation="absent")
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("new", b"2", if_generation="absent")
    store.write("new", b"3", if_generation=info.generation)
    assert bytes(store.read("new")) == b"3"


def test_a_write_of_parts_keeps_its_condition_or_is_refused(service: Service) -> None:
    if service.name == "s3mock":
        pytest.skip("S3Mock deletes an object when an upload of the same name is aborted")
    store = service.store()
    store.write("new", b"1")
    writer = store.open_writer("new", part_bytes=PART, if_generation="absent")
    with pytest.raises((headrace.PreconditionFailedError, headrace.InvalidArgumentError)), writer:
        writer.write(LARGE)
    assert bytes(store.read("new")) == b"1"


def test_objects_are_listed_in_their_order(service: Service) -> None:
    store = service.store()
    expected = ["a&b <c>", "d/e", "d/f/g", "h ü+%"]
    for name in reversed(expected):
        store.write(name, name.encode())
    assert [info.name for info in store.list()] == expected
    assert [info.size_bytes for info in store.list()] == [len(n.encode()) for n in expected]
    assert [info.name for info in store.list("d/")] == ["d/e", "d/f/g"]


def test_folders_are_listed(service: Service) -> None:
    store = service.store()
    for name in ("a", "d/e", "d/f/g", "x&y/z"):
        store.write(name, b"")
    page = store.list_page(delimiter="/")
    assert [info.name for info in page.objects] == ["a"]
    assert list(page.prefixes) == ["d/", "x&y/"]


def test_a_copy_is_the_object(service: Service) -> None:
    store = service.store()
    store.write("a", SMALL, content_type="text/plain")
    assert store.copy("a", "b").size_bytes == len(SMALL)
    assert bytes(store.read("b")) == SMALL
    assert store.stat("b").content_type == "text/plain"


def test_a_rename_leaves_one_object(service: Service) -> None:
    store = service.store()
    store.write("a", SMALL)
    store.rename("a", "b")
    assert names(service) == ["b"]
    assert bytes(store.read("b")) == SMALL


def test_an_object_of_parts_can_be_renamed(service: Service) -> None:
    store = service.store()
    with store.open_writer("a", part_bytes=PART) as writer:
        writer.write(LARGE)
    if service.name == "no-copy-sums":  # the copy is no upload of parts, and has another ETag
        with pytest.raises(headrace.UnavailableError, match="both are there"):
            store.rename("a", "b")
        assert names(service) == ["a", "b"]
        return
    store.rename("a", "b")
    assert names(service) == ["b"]
    assert bytes(store.read("b")) == LARGE


def test_a_delete_deletes(service: Service) -> None:
    store = service.store()
    store.write("a", b"1")
    store.delete("a")
    store.delete("a", missing_ok=True)
    assert not store.exists("a")
    with pytest.raises(headrace.NotFoundError):
        store.read("a")


def test_many_objects_are_deleted(service: Service, environment: dict[str, str], run: Run) -> None:
    store = service.store()
    for i in range(30):
        store.write(f"dir/{i}", b"")
    store.write("kept", b"")
    done = run("rm", "-r", f"{service.url}/dir", **environment)
    assert done.code == 0, done.err
    assert names(service) == ["kept"]


def test_a_folder_goes_there_and_back(
    service: Service, environment: dict[str, str], run: Run, tmp_path: Path
) -> None:
    expected = {"a": b"1" * 1000, "d/b": b"", "d/e/c": b"2", "x&y <z>": b"3"}
    for name, data in expected.items():
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(data)
    steps = [
        (f"{tmp_path}/from/", f"{service.url}/x"),
        (f"{service.url}/x/", f"{service.url}/y"),
        (f"{service.url}/y/", f"{tmp_path}/to"),
    ]
    for source, destination in steps:
        done = run("cp", "-r", source, destination, **environment)
        assert done.code == 0, done.err
    assert {name: (tmp_path / "to" / name).read_bytes() for name in expected} == expected


def test_a_checkpoint_comes_back(service: Service) -> None:
    state = {"weight": torch.randn(300, 200), "step": 7}
    store = service.store()
    for _ in range(2):  # the second replaces the first
        save(state, f"{service.url}/step.pt", store=store)
    loaded: dict[str, Any] = load(f"{service.url}/step.pt", store=store)
    assert torch.equal(loaded["weight"], state["weight"])  # type: ignore[arg-type]
    assert loaded["step"] == 7


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_comes_back(service: Service) -> None:
    state = {"weight": torch.randn(300, 200), "bias": torch.ones(3)}
    options = {"endpoint": service.endpoint, **service.options}
    if service.name in WITHOUT_CONDITIONS:  # as the refusal advises
        options["provider"] = headrace.S3Options(conditional_writes="look")
    url = f"{service.url}/run/step1"
    for _ in range(2):
        dcp.save(state, storage_writer=DistributedWriter(url, thread_count=2, **options))
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    dcp.load(loaded, storage_reader=DistributedReader(url, **options))
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_a_file_system_of_fsspec_puts_gets_and_renames(service: Service, tmp_path: Path) -> None:
    headrace.fsspec.register()
    fs = headrace.fsspec.S3FileSystem(
        endpoint=service.endpoint, skip_instance_cache=True, **service.options
    )
    assert isinstance(fs, fsspec.AbstractFileSystem)
    (tmp_path / "in").write_bytes(LARGE)
    fs.put(str(tmp_path / "in"), f"{service.bucket}/d/in")
    fs.mv(f"{service.bucket}/d/in", f"{service.bucket}/d/moved")
    fs.get(f"{service.bucket}/d/moved", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == LARGE
    assert fs.ls(f"{service.bucket}/d", detail=False) == [f"{service.bucket}/d/moved"]
    fs.rm(f"{service.bucket}/d", recursive=True)
    assert names(service) == []


@pytest.mark.parametrize("kind", ["upload", "multipart_complete"])
def test_an_object_is_replaced_though_the_answer_is_lost(service: Service, kind: str) -> None:
    if service.server is None:
        pytest.skip("a real service loses no answers")
    store = service.store()
    store.write("a", b"old")
    service.server.faults([{"match": {"kind": kind}, "count": 1, "action": "lost_answer"}])
    with store.open_writer("a", part_bytes=PART) as writer:
        writer.write(LARGE if kind == "multipart_complete" else SMALL)
    assert service.server.fault_counts()[0]["fired"] == 1
    assert bytes(store.read("a")) == (LARGE if kind == "multipart_complete" else SMALL)


@pytest.mark.parametrize("how", ["list", "folders", "index"])
def test_a_listing_without_order_is_refused_by_name(
    s3: headrace.Store, s3_server: FaultServer, how: str
) -> None:
    s3_server.like("unordered")
    for name in ("a", "b", "c"):
        s3_server.put("bucket", name, b"")
    ways: dict[str, Callable[[], object]] = {
        "list": lambda: list(s3.list()),
        "folders": lambda: list(s3.list(delimiter="/")),
        "index": s3.index,
    }
    with pytest.raises(headrace.CorruptDataError, match="s3://bucket"):
        ways[how]()
