"""torch_checkpointing saves to every store, and never reads half a checkpoint."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace
from headrace import HeadraceError, InvalidArgumentError, NotFoundError
from testing.faultserver.client import FaultServer
from tests.nursery import Nursery

torch = pytest.importorskip("torch")
pytest.importorskip("torch_checkpointing")

from torch_checkpointing import (  # noqa: E402
    CheckpointManager,
    CheckpointWriterConfig,
    SyncCheckpointSaverConfig,
)
from torch_checkpointing.storage.base_storage import ReadArgs  # noqa: E402

from headrace.torch_checkpointing import (  # noqa: E402
    COMPLETE_NAME,
    ObjectStorageConfig,
    mark_complete,
)

BY_RENAME, IN_PLACE = "by rename", "in place"
WAYS = pytest.mark.parametrize("way", [BY_RENAME, IN_PLACE])


def manager(store: headrace.Store, way: str, **options: Any) -> Any:
    writer = {"write_to_temp_dir": way == BY_RENAME}
    if way == IN_PLACE:
        writer["barrier_config"] = None
    return CheckpointManager.Config(
        save=SyncCheckpointSaverConfig(writer_config=CheckpointWriterConfig(**writer)),
        storage_config=ObjectStorageConfig("run", store=store, **options),
        finalize_callback=mark_complete if way == IN_PLACE else None,
    ).build()


def state(value: float) -> dict[str, Any]:
    return {
        "model": {"w": torch.full((1000,), value)},
        "optimizer": {"m": [torch.full((10,), value)], "step": int(value)},
    }


def load(store: headrace.Store, name: str = "step1", way: str = IN_PLACE) -> float:
    """The one value of a checkpoint: all of it has it."""
    made = manager(store, way)
    found = made.load(name, into={"model": None, "optimizer": None}, strict=True)
    made.close()
    values = {*found["model"]["w"].tolist(), *found["optimizer"]["m"][0].tolist()}
    values.add(found["optimizer"]["step"])
    (value,) = values
    return float(value)


def save(store: headrace.Store, way: str, value: float, name: str = "step1") -> None:
    made = manager(store, way)
    made.save(name, state(value))
    made.close()


@WAYS
@pytest.mark.every_store
def test_what_is_saved_is_loaded(way: str, store: headrace.Store) -> None:
    save(store, way, 1)
    assert load(store) == 1
    names = {info.name for info in store.list("")}
    assert not [name for name in names if "tmp_" in name or "renaming" in name]
    with pytest.raises(FileNotFoundError):
        load(store, "step2")


def test_a_saved_file_is_one_that_torch_loads(file: headrace.Store) -> None:
    save(file, BY_RENAME, 3)
    (name,) = [info.name for info in file.list("") if "model" in info.name]
    found = torch.load(Path(file.url.removeprefix("file://")) / name)
    assert found["w"].tolist() == [3] * 1000


def test_a_complete_checkpoint_is_not_replaced_by_a_rename(gcs: headrace.Store) -> None:
    save(gcs, BY_RENAME, 1)
    with pytest.raises(OSError, match="something else is there"):
        save(gcs, BY_RENAME, 2)
    assert load(gcs) == 1


def test_a_checkpoint_without_its_mark_is_none(gcs: headrace.Store) -> None:
    save(gcs, IN_PLACE, 1)
    gcs.delete(f"run/step1/{COMPLETE_NAME}")
    with pytest.raises(NotFoundError, match=r"gs://bucket/run/step1 is no complete checkpoint"):
        load(gcs)
    config = ObjectStorageConfig("run", store=gcs, require_complete=False)
    assert config.create_storage().exists(Path("step1"))


def test_another_temporary_prefix_is_an_error_and_no_lost_checkpoint(gcs: headrace.Store) -> None:
    writer = CheckpointWriterConfig(temp_dir_prefix="half_")
    made = CheckpointManager.Config(
        save=SyncCheckpointSaverConfig(writer_config=writer),
        storage_config=ObjectStorageConfig("run", store=gcs),
    ).build()
    with pytest.raises(NotFoundError, match="temp_dir_prefix"):
        made.save("step1", state(1))


@WAYS
@pytest.mark.parametrize("is_first", [True, False])
def test_with_any_request_failing_no_half_of_a_checkpoint_is_read(
    is_first: bool, way: str, server: FaultServer
) -> None:
    store = headrace.Store(
        "gs://bucket", endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    if way == BY_RENAME and not is_first:
        pytest.skip("a rename replaces no complete checkpoint")
    position, fired = 0, True
    while fired:
        position += 1
        server.reset()
        server.bucket("bucket")
        save(store, way, 5, "step0")
        if not is_first:
            save(store, way, 1)
        server.faults([{"match": {}, "from": position, "count": 1, "action": {"status": 403}}])
        saved = True
        try:
            save(store, way, 2)
        except (HeadraceError, OSError, RuntimeError):
            saved = False
        fired = bool(server.fault_counts()[0]["fired"])
        server.faults([])
        try:
            assert load(store) in ([2] if saved else [1, 2])
        except FileNotFoundError:
            assert not saved
        assert load(store, "step0") == 5
        if not saved:
            # And a second try is not in the way of the first one.
            try:
                save(store, way, 2)
            except OSError:
                assert load(store) == 2  # it was complete all the same
            assert load(store) == 2
    assert position > 5


KILLED = """
import os, signal, sys
import headrace
from tests.torch_checkpointing.test_storage import manager, state

store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
way, left = sys.argv[2], [int(sys.argv[3])]
for name in ("copy", "open_writer", "write", "delete"):
    def counted(self, *arguments, _call=getattr(headrace.Store, name), **options):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return _call(self, *arguments, **options)
    setattr(headrace.Store, name, counted)
manager(store, way).save("step1", state(2))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    imports = "import headrace.torch_checkpointing, torch, pytest"
    with Nursery(imports, warnings_are_errors=False) as nursery:
        yield nursery


@WAYS
def test_a_save_that_is_killed_is_never_read_as_whole(
    way: str, nursery: Nursery, server: FaultServer, tmp_path: Path
) -> None:
    unfinished = 0
    for step in range(16):
        server.reset()
        server.bucket("bucket")
        store = headrace.Store("gs://bucket", endpoint=server.url)
        nursery.run(
            tmp_path,
            KILLED,
            server.url,
            way,
            str(step),
            expect_code=-9,
            stderr=None,
        )
        try:
            assert load(store) == 2
        except FileNotFoundError:
            unfinished += 1
            save(store, way, 3)
            assert load(store) == 3
    assert 4 <= unfinished < 16  # before the first, and after the last request


def test_renames_keep_to_the_table_of_the_contract(gcs: headrace.Store) -> None:
    storage = ObjectStorageConfig("run", store=gcs).create_storage()
    storage.write(Path("a/x"), b"x")
    storage.write(Path("a/sub/y"), b"y")
    storage.write(Path("file"), b"1")
    storage.write(Path("other"), b"2")
    storage.rename(Path("a"), Path("b"), is_directory=True)
    assert sorted(storage.ls(Path("b"))) == ["sub", "x"]
    assert storage.read(Path("b/sub/y")) == b"y"
    assert not storage.exists(Path("a"))
    storage.write(Path("c/x"), b"z")
    for source, target in (("c", "b"), ("c", "file"), ("file", "b")):
        with pytest.raises(FileExistsError):
            storage.rename(Path(source), Path(target))
    storage.rename(Path("file"), Path("other"))
    assert storage.read(Path("other")) == b"1"
    assert not storage.exists(Path("file"))
    with pytest.raises(FileNotFoundError):
        storage.rename(Path("missing"), Path("d"))
    assert storage.isdir(Path("b"))
    assert not storage.isdir(Path("other"))
    assert storage.getsize(Path("other")) == 1
    assert storage.glob("b/*x") == ["b/x"]
    assert storage.remap_path(Path("b/x")) == "gs://bucket/run/b/x"
    storage.delete(Path("other"))
    with pytest.raises(FileNotFoundError):
        storage.delete(Path("other"))
    storage.rmdir(Path("b"))
    assert not storage.isdir(Path("b"))
    with pytest.raises(FileNotFoundError):
        storage.ls(Path("b"))


@pytest.mark.every_store
def test_files_are_read_whole_and_in_parts(store: headrace.Store) -> None:
    storage = pickle.loads(pickle.dumps(ObjectStorageConfig("run", store=store))).create_storage()
    storage.mkdir(Path("a"))
    data = bytes(range(256)) * 100
    storage.write(Path("a/x"), memoryview(data))
    assert storage.read(Path("a/x")) == data
    for whole in (True, False):
        with storage.stream_read(Path("a/x"), ReadArgs(pre_read_full_file=whole)) as stream:
            assert stream.seek(1000) == 1000
            buffer = bytearray(10)
            assert stream.readinto(buffer) == 10
            assert bytes(buffer) == data[1000:1010]

    def half() -> None:
        with storage.stream_write(Path("a/half")) as stream:
            stream.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert not storage.exists(Path("a/half"))


def test_paths_outside_of_the_root_are_refused(gcs: headrace.Store, tmp_path: Path) -> None:
    storage = ObjectStorageConfig("run", store=gcs).create_storage()
    for path in ("/absolute", "../other", "a/../../b"):
        with pytest.raises(InvalidArgumentError, match=r"relative to it|leads out of"):
            storage.write(Path(path), b"x")
    local = ObjectStorageConfig(tmp_path).create_storage()
    local.mkdir(tmp_path / "a")
    local.write(tmp_path / "a" / "x", b"x")
    assert local.read(Path("a/x")) == b"x"
    assert (tmp_path / "a" / "x").read_bytes() == b"x"
    with pytest.raises(InvalidArgumentError, match="paths are relative to it"):
        local.write(tmp_path.parent / "x", b"x")


def test_the_mark_is_of_our_storage_only() -> None:
    with pytest.raises(InvalidArgumentError, match="not the storage of an ObjectStorageConfig"):
        mark_complete(SimpleNamespace(path="a", storage=object()))
