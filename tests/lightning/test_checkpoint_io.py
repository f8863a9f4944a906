"""The plugins, alone and in a Trainer."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO as LightningsAsyncCheckpointIO

import headrace
from headrace.checkpoint._distributed import DistributedWriter
from headrace.lightning import AsyncCheckpointIO, CheckpointIO
from tests.lightning.conftest import Line, Place, batches, trainer
from tests.nursery import Nursery

RunProgram = Callable[[str], str]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*num_workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* is not empty"),
    pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.`"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore:.*is not supported in the.*recommended"),
    pytest.mark.timeout(480),
]


@pytest.mark.every_store
def test_a_checkpoint_comes_back_and_goes(place: Place) -> None:
    plugin = CheckpointIO()
    checkpoint = {"state_dict": {"w": torch.arange(5.0)}, "epoch": 3}
    plugin.save_checkpoint(checkpoint, f"{place.url}/a/last.ckpt")
    assert place.names() == ["a/last.ckpt"]
    stock = torch.load(io.BytesIO(place.get("a/last.ckpt")))
    assert torch.equal(stock["state_dict"]["w"], torch.arange(5.0))
    loaded = plugin.load_checkpoint(f"{place.url}/a/last.ckpt")
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["state_dict"]["w"], torch.arange(5.0))
    on_meta = plugin.load_checkpoint(f"{place.url}/a/last.ckpt", map_location="meta")
    assert on_meta["state_dict"]["w"].device.type == "meta"
    plugin.remove_checkpoint(f"{place.url}/a/last.ckpt")
    plugin.remove_checkpoint(f"{place.url}/a/last.ckpt")
    assert place.names() == []
    with pytest.raises(FileNotFoundError):
        plugin.load_checkpoint(f"{place.url}/a/last.ckpt")


@pytest.mark.parametrize("kind", [CheckpointIO, AsyncCheckpointIO])
def test_a_large_checkpoint_can_be_sent_without_temporary_objects(kind: Any, gcs: Place) -> None:
    assert gcs.server is not None
    plugin = kind(upload="resumable")
    checkpoint = {"state_dict": {"w": torch.zeros(20 << 20, dtype=torch.uint8)}}
    plugin.save_checkpoint(checkpoint, f"{gcs.url}/last.ckpt")
    plugin.teardown()
    writes = {line["kind"] for line in gcs.server.log()} - {"get", "media"}
    assert writes == {"resumable_start", "resumable_put"}
    assert gcs.names() == ["last.ckpt"]


class Custom:
    """What only a load that may run code can make."""


def test_weights_only_is_on_unless_switched_off(place: Place) -> None:
    plugin = CheckpointIO()
    plugin.save_checkpoint({"callback": Custom()}, f"{place.url}/c.ckpt")
    for weights_only in (None, True):
        with pytest.raises(Exception, match=r"weights_only|Weights only|WeightsUnpickler"):
            plugin.load_checkpoint(f"{place.url}/c.ckpt", weights_only=weights_only)
    loaded = plugin.load_checkpoint(f"{place.url}/c.ckpt", weights_only=False)
    assert isinstance(loaded["callback"], Custom)


@pytest.mark.every_store
def test_a_sharded_checkpoint_is_named_by_load_and_removed_whole(place: Place) -> None:
    plugin = CheckpointIO()
    dcp.save({"w": torch.ones(3)}, storage_writer=DistributedWriter(f"{place.url}/step1"))
    plugin.save_checkpoint({"w": 1}, f"{place.url}/step10")
    with pytest.raises(headrace.InvalidArgumentError, match="is a sharded checkpoint"):
        plugin.load_checkpoint(f"{place.url}/step1")
    plugin.remove_checkpoint(f"{place.url}/step1")
    assert place.names() == ["step10"]


def test_a_sharded_checkpoint_that_was_removed_is_saved_again(place: Place) -> None:
    writer = DistributedWriter(f"{place.url}/last")
    dcp.save({"w": torch.ones(3)}, storage_writer=writer)
    names = place.names()
    CheckpointIO().remove_checkpoint(f"{place.url}/last")
    assert place.names() == []
    dcp.save({"w": torch.ones(3)}, storage_writer=writer)
    assert len(place.names()) == len(names) == 2


def test_metadata_goes_first_when_a_sharded_checkpoint_is_removed(gcs: Place) -> None:
    assert gcs.server is not None
    dcp.save({"w": torch.ones(3)}, storage_writer=DistributedWriter(f"{gcs.url}/step1"))
    gcs.server.reset(keep_buckets=True)
    CheckpointIO().remove_checkpoint(f"{gcs.url}/step1")
    deletes = [r["target"] for r in gcs.server.log() if r["kind"] == "delete"]
    assert len(deletes) >= 2
    assert ".metadata" in deletes[0]


def test_options_of_the_store_may_come_with_the_plugin_or_the_save(
    gcs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gcs.server is not None
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    endpoint = gcs.server.url
    CheckpointIO(endpoint=endpoint).save_checkpoint({}, f"{gcs.url}/a.ckpt")
    CheckpointIO().save_checkpoint({}, f"{gcs.url}/b.ckpt", storage_options={"endpoint": endpoint})
    assert gcs.names() == ["a.ckpt", "b.ckpt"]


@pytest.mark.parametrize("kind", [CheckpointIO, AsyncCheckpointIO])
def test_a_plugin_takes_a_store_that_all_urls_lie_below(
    kind: Any, gcs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gcs.server is not None
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    store = headrace.Store(gcs.url, endpoint=gcs.server.url)
    plugin = kind(store=store)
    plugin.save_checkpoint({"epoch": 3}, f"{gcs.url}/a.ckpt")
    assert plugin.load_checkpoint(f"{gcs.url}/a.ckpt") == {"epoch": 3}
    assert plugin.load_checkpoint("a.ckpt") == {"epoch": 3}
    with pytest.raises(headrace.InvalidArgumentError, match="lies outside of"):
        plugin.load_checkpoint("gs://other/a.ckpt")
    plugin.remove_checkpoint(f"{gcs.url}/a.ckpt")
    plugin.teardown()
    assert gcs.names() == []


@pytest.mark.parametrize("kind", [CheckpointIO, AsyncCheckpointIO])
def test_arguments_of_a_plugin_that_cannot_work_are_refused_when_it_is_made(kind: Any) -> None:
    store = headrace.Store("gs://bucket")
    with pytest.raises(headrace.InvalidArgumentError, match="store is 'gs://bucket'; it must be"):
        kind(store="gs://bucket")
    with pytest.raises(headrace.InvalidArgumentError, match="endpoint= belongs to the store"):
        kind(store=store, endpoint="http://localhost:1")
    with pytest.raises(TypeError, match="has no argument 'endpont': did you mean endpoint="):
        kind(endpont="http://localhost:1")
    with pytest.raises(headrace.InvalidArgumentError, match="endpoint= belongs to the store"):
        CheckpointIO(store=store).save_checkpoint({}, "a", storage_options={"endpoint": "x"})
    with pytest.raises(headrace.InvalidArgumentError, match="give that to the checkpoint_io"):
        AsyncCheckpointIO(CheckpointIO(), store=store)


@pytest.mark.every_store
@pytest.mark.parametrize(
    ("make_plugin", "in_order"),
    [
        (CheckpointIO, True),
        (AsyncCheckpointIO, True),
        # It removes at once, also what it has yet to save.
        (lambda: LightningsAsyncCheckpointIO(CheckpointIO()), False),
    ],
    ids=["sync", "async", "lightnings async"],
)
def test_a_trainer_keeps_the_best_and_the_last_and_resumes(
    place: Place, tmp_path: Path, make_plugin: Any, in_order: bool
) -> None:
    def make_trainer(max_epochs: int) -> Any:
        callback = ModelCheckpoint(
            dirpath=place.url,
            filename="{epoch}",
            monitor="loss",
            mode="min",
            save_top_k=2,
            save_last=True,
        )
        return trainer(
            tmp_path, max_epochs=max_epochs, callbacks=[callback], plugins=[make_plugin()]
        )

    make_trainer(4).fit(Line(), batches())
    assert "last.ckpt" in place.names()
    assert len(place.names()) == 3 or not in_order
    assert all(name.startswith(("epoch=", "last")) for name in place.names())
    saved = torch.load(io.BytesIO(place.get("last.ckpt")), weights_only=True)
    assert saved["global_step"] == 12

    model = Line()
    make_trainer(6).fit(model, batches(), ckpt_path=f"{place.url}/last.ckpt")
    assert model.seen_steps == list(range(12, 18))
    assert len(place.names()) == 3 or not in_order

    restored = Line.load_from_checkpoint(f"{place.url}/last.ckpt", weights_only=True)
    saved = torch.load(io.BytesIO(place.get("last.ckpt")), weights_only=True)
    assert saved["global_step"] == 18
    assert torch.equal(restored.layer.weight, saved["state_dict"]["layer.weight"])


# ---- in the background


class Recorder(CheckpointIO):
    """Writes down what is done, and does it when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.saved: list[Any] = []
        self.failing: set[str] = set()
        self.go_on = threading.Event()
        self.go_on.set()

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        assert self.go_on.wait(120)
        if path in self.failing:
            raise OSError(f"cannot write {path}")
        self.done.append(f"save {path}")
        self.saved.append(checkpoint)

    def remove_checkpoint(self, path: Any) -> None:
        self.done.append(f"remove {path}")

    def load_checkpoint(self, path: Any, **options: Any) -> Any:
        self.done.append(f"load {path}")
        return {}


def test_training_may_change_what_is_being_saved() -> None:
    base = Recorder()
    base.go_on.clear()
    plugin = AsyncCheckpointIO(base)
    weight = torch.ones(3)
    plugin.save_checkpoint({"w": weight}, "a")
    weight.zero_()
    base.go_on.set()
    plugin.teardown()
    assert torch.equal(base.saved[0]["w"], torch.ones(3))


def test_a_save_in_the_background_is_the_file_of_a_save_at_the_call(tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 2)
    state: dict[str, Any] = {"layer": layer.state_dict(), "weight": layer.weight, "steps": [1]}
    CheckpointIO().save_checkpoint(state, tmp_path / "now.ckpt")
    plugin = AsyncCheckpointIO()
    go_on = threading.Event()
    plugin._saves.submit(lambda: go_on.wait(120))
    plugin.save_checkpoint(state, tmp_path / "later.ckpt")
    layer.weight.data.zero_()
    state["layer"]._metadata.clear()
    state["steps"].append(2)
    go_on.set()
    plugin.teardown()
    assert (tmp_path / "later.ckpt").read_bytes() == (tmp_path / "now.ckpt").read_bytes()


def test_what_cannot_be_saved_is_an_error_of_the_call(tmp_path: Path) -> None:
    for plugin in (AsyncCheckpointIO(), AsyncCheckpointIO(Recorder())):
        with pytest.raises(TypeError, match="cannot pickle"):
            plugin.save_checkpoint({"lock": threading.Lock()}, tmp_path / "a.ckpt")
        plugin.teardown()
    assert list(tmp_path.iterdir()) == []


def test_saves_removals_and_loads_keep_their_order() -> None:
    base = Recorder()
    base.go_on.clear()
    plugin = AsyncCheckpointIO(base)
    plugin.save_checkpoint({}, "a")
    plugin.save_checkpoint({}, "b")
    plugin.remove_checkpoint("a")
    base.go_on.set()
    plugin.load_checkpoint("b")
    plugin.teardown()
    assert base.done == ["save a", "save b", "remove a", "load b"]


def test_after_an_error_nothing_is_removed_and_the_next_save_raises_it_once() -> None:
    base = Recorder()
    base.failing = {"b"}
    base.go_on.clear()
    plugin = AsyncCheckpointIO(base)
    plugin.save_checkpoint({}, "a")
    plugin.save_checkpoint({}, "b")
    plugin.remove_checkpoint("a")
    base.go_on.set()
    with pytest.raises(OSError, match="cannot write b"):
        plugin.load_checkpoint("a")
    assert base.done == ["save a"]
    plugin.save_checkpoint({}, "c")
    plugin.teardown()
    assert base.done == ["save a", "save c"]


def test_teardown_raises_what_nobody_was_told() -> None:
    base = Recorder()
    base.failing = {"a"}
    plugin = AsyncCheckpointIO(base)
    plugin.save_checkpoint({}, "a")
    with pytest.raises(OSError, match="cannot write a"):
        plugin.teardown()
    plugin.teardown()
    plugin.save_checkpoint({}, "b")  # as trainer.validate() after fit() would
    plugin.teardown()
    assert base.done == ["save b"]


def test_a_fit_whose_last_save_fails_fails(gcs: Place, tmp_path: Path) -> None:
    assert gcs.server is not None
    gcs.server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    callback = ModelCheckpoint(dirpath=gcs.url)
    run = trainer(tmp_path, max_epochs=1, callbacks=[callback], plugins=[AsyncCheckpointIO()])
    with pytest.raises(headrace.PermissionDeniedError):
        run.fit(Line(), batches())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("import lightning", warnings_are_errors=False) as nursery:
        yield nursery


@pytest.fixture
def run_program(nursery: Nursery, tmp_path: Path) -> RunProgram:
    return functools.partial(nursery.run, tmp_path, stderr=None)


FILE_SYSTEM = """
import sys
import fsspec
from fsspec.registry import known_implementations, registry
before = (dict(registry), {k: dict(v) for k, v in known_implementations.items()})
import headrace.lightning as ours
assert before == (dict(registry), known_implementations), "an import registers nothing"
def serves():
    return [getattr(registry.get(scheme), "__name__", None) for scheme in ("gs", "gcs", "s3")]
"""


@pytest.mark.parametrize(
    "plugin",
    [
        "ours.CheckpointIO()",
        "ours.AsyncCheckpointIO(object())",
        "ours.ModelParallelStrategy()",
        "ours.FSDPStrategy()",
        "__import__('pickle').loads(pickled)",
    ],
)
def test_a_plugin_that_is_made_and_no_import_registers_a_file_system(
    run_program: RunProgram, plugin: str
) -> None:
    program = f"""
import pickle
pickled = pickle.dumps(ours.CheckpointIO())
module = sys.modules["fsspec.registry"]  # fsspec.registry is one of its mappings
for scheme in ("gs", "gcs", "s3"):
    module._registry.pop(scheme, None)
assert serves() == [None, None, None]
{plugin}
assert serves() == ["GcsFileSystem", "GcsFileSystem", "S3FileSystem"], serves()
"""
    run_program(FILE_SYSTEM + program)


def test_whoever_serves_the_scheme_already_goes_on_serving_it(run_program: RunProgram) -> None:
    program = """
class Users(fsspec.AbstractFileSystem):
    pass
fsspec.register_implementation("gs", Users)
ours.CheckpointIO()
assert serves() == ["Users", "GcsFileSystem", "S3FileSystem"], serves()
fsspec.register_implementation("s3", Users, clobber=True)
ours.CheckpointIO()
assert serves() == ["Users", "GcsFileSystem", "Users"], serves()
"""
    run_program(FILE_SYSTEM + program)


@pytest.mark.parametrize(
    ("package", "served"),
    [
        ("gcsfs", [None, None, "S3FileSystem"]),
        ("s3fs", ["GcsFileSystem", "GcsFileSystem", None]),
    ],
)
def test_a_package_that_is_installed_serves_its_scheme(
    run_program: RunProgram, package: str, served: list[str | None], tmp_path: Path
) -> None:
    (tmp_path / f"{package}.py").write_text("raise AssertionError('it is not imported either')")
    program = f"""
sys.path.insert(0, {str(tmp_path)!r})
ours.CheckpointIO()
assert serves() == {served!r}, serves()
"""
    run_program(FILE_SYSTEM + program)


def test_without_lightning_the_import_says_what_to_install() -> None:
    program = """
import sys
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if "lightning" in name else find(name)
try:
    import headrace.lightning
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install lightning" in done.stdout


def test_the_package_that_the_program_uses_is_the_one_that_is_served() -> None:
    program = """
import warnings; warnings.simplefilter("ignore")
import pytorch_lightning
import lightning_fabric.plugins
from headrace.lightning import CheckpointIO, FSDPStrategy
assert issubclass(CheckpointIO, lightning_fabric.plugins.CheckpointIO)
assert issubclass(FSDPStrategy, pytorch_lightning.strategies.FSDPStrategy)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_object_goes_although_a_folder_has_its_name(gcs: Place) -> None:
    assert gcs.server is not None
    for name in ("last.ckpt", "last.ckpt/.metadata", "last.ckpt/__0_0.distcp"):
        gcs.server.put("bucket", f"{gcs.url.partition('bucket/')[2]}/{name}".lstrip("/"), b"")
    CheckpointIO().remove_checkpoint(f"{gcs.url}/last.ckpt")
    assert gcs.names() == []
