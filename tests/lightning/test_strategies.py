"""Sharded models in a Trainer of several ranks."""

from __future__ import annotations

import datetime
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.strategies import FSDPStrategy as LightningsFSDPStrategy

import headrace
from tests.checkpoint_distributed.ranks import RankError, run_ranks
from tests.lightning.conftest import Line, Place, batches
from tests.ports import free_port

pytestmark = pytest.mark.timeout(720)

MiB = 1 << 20


class TwoLayers(Line):
    """The same model with more to spread over ranks."""

    def __init__(self, optimizer: str, width: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Linear(width, 1))
        self.optimizer = optimizer

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.optimizer == "SGD":
            return torch.optim.SGD(self.parameters(), lr=0.1)
        if self.optimizer == "momentum":
            return torch.optim.SGD(self.parameters(), lr=1e-8, momentum=0.9)
        return super().configure_optimizers()

    def whole(self) -> list[list[float]]:
        raise NotImplementedError


class ByFsdp2(TwoLayers):
    def configure_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    def whole(self) -> list[list[float]]:
        return [p.full_tensor().detach().flatten().tolist() for p in self.parameters()]


class ByFsdp1(TwoLayers):
    def configure_model(self) -> None:
        from torch.distributed.fsdp import FullyShardedDataParallel

        # Lightning would wrap the model by itself, but not tell that the device is the CPU.
        if not isinstance(self.layer, FullyShardedDataParallel):
            self.layer = FullyShardedDataParallel(
                self.layer, device_id=torch.device("cpu"), use_orig_params=True
            )

    def whole(self) -> list[list[float]]:
        from torch.distributed.fsdp import FullyShardedDataParallel

        with FullyShardedDataParallel.summon_full_params(self.layer, writeback=False):
            return [p.detach().flatten().tolist() for p in self.parameters()]


class OnTheCpu(LightningsFSDPStrategy):  # type: ignore[misc]  # Lightning is not typed here
    """Lightning's own, which a Trainer refuses on the CPU by its type alone."""


def make(kind: str, world_size: int, options: dict[str, Any]) -> tuple[Any, type[TwoLayers]]:
    """Return a strategy and the model that it shards."""
    from headrace.compat.dataflux_pytorch.lightning import DatafluxFSDPStrategy
    from headrace.lightning import FSDPStrategy, ModelParallelStrategy

    if kind == "ModelParallelStrategy":
        sizes = {"data_parallel_size": world_size, "tensor_parallel_size": 1}
        return ModelParallelStrategy(**sizes, **options), ByFsdp2
    options = {"use_orig_params": True, "process_group_backend": "gloo", **options}
    if kind == "DatafluxFSDPStrategy":
        return DatafluxFSDPStrategy("project", None, **options), ByFsdp1
    if kind == "Lightning's FSDPStrategy":
        return OnTheCpu(**options), ByFsdp1
    return FSDPStrategy(**options), ByFsdp1


class Fit(NamedTuple):
    """One call of a Trainer's `fit`."""

    kind: str
    options: dict[str, Any]
    max_epochs: int
    dirpath: str
    resume: str | None = None
    optimizer: str = "AdamW"
    width: int = 8


class Fitted(NamedTuple):
    """What one rank knows afterwards."""

    steps: list[int]
    parameters: list[list[float]]
    parameters_with_moments: int


def fit_all(
    rank: int, world_size: int, port: int, environment: dict[str, str], fits: tuple[Fit, ...]
) -> list[Fitted]:
    os.environ.update(
        environment,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        GROUP_RANK="0",
        ROLE_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        GLOO_SOCKET_IFNAME="lo",
        TORCHELASTIC_RUN_ID="none",
    )
    return [fit(world_size, each) for each in fits]


def fit(world_size: int, wanted: Fit) -> Fitted:
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    strategy, model_type = make(wanted.kind, world_size, wanted.options)
    model = model_type(wanted.optimizer, wanted.width)
    callback = ModelCheckpoint(dirpath=wanted.dirpath, filename="{epoch}", save_last=True)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(
            accelerator="cpu",
            devices=world_size,
            strategy=strategy,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            default_root_dir=directory,
            max_epochs=wanted.max_epochs,
            callbacks=[callback],
        )
        trainer.fit(model, batches(), ckpt_path=wanted.resume)
    moments = trainer.optimizers[0].state_dict()["state"]
    return Fitted(model.seen_steps, model.whole(), len(moments))


def run_fits(world_size: int, environment: dict[str, str], *fits: Fit) -> list[list[Fitted]]:
    """Return what each rank knows of each; all in the same processes, whose start takes longest."""
    return run_ranks(world_size, fit_all, world_size, free_port(), environment, fits, init=False)


def environment_of(place: Place) -> dict[str, str]:
    return {} if place.server is None else {"STORAGE_EMULATOR_HOST": place.server.url}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ModelParallelStrategy", {}),
        ("ModelParallelStrategy", {"use_async": True}),
        ("FSDPStrategy", {"state_dict_type": "sharded"}),
        ("DatafluxFSDPStrategy", {"use_async": True}),
    ],
)
def test_a_sharded_run_is_saved_and_goes_on_with_another_number_of_ranks(
    gcs: Place, kind: str, options: dict[str, Any]
) -> None:
    environment = environment_of(gcs)
    ((first,), (of_other_rank,)) = run_fits(2, environment, Fit(kind, options, 2, gcs.url))
    assert first.steps == list(range(6))
    assert first.parameters == of_other_rank.parameters
    # One checkpoint for save_top_k=1, and the last one; each complete, nothing else.
    metadata = [name for name in gcs.names() if name.endswith(".metadata")]
    assert metadata == ["epoch=1.ckpt/.metadata", "last.ckpt/.metadata"]
    assert "last.ckpt/meta.pt" in gcs.names()

    last = f"{gcs.url}/last.ckpt"
    ((again, more),) = run_fits(
        1,
        environment,
        Fit(kind, options, 2, gcs.url, last),
        Fit(kind, options, 3, gcs.url, last),
    )
    assert again.steps == []
    assert again.parameters == first.parameters
    assert more.steps == [6, 7, 8]
    assert more.parameters_with_moments == 4


@pytest.mark.parametrize(
    ("kind", "options", "optimizer"),
    [
        ("ModelParallelStrategy", {"save_distributed_checkpoint": False}, "AdamW"),
        # Of several moments torch's FSDP1 saves the last one only, on the CPU.
        ("FSDPStrategy", {"state_dict_type": "full"}, "momentum"),
    ],
)
def test_a_whole_checkpoint_larger_than_the_memory_budget_is_one_object_and_is_resumed(
    gcs: Place, kind: str, options: dict[str, Any], optimizer: str
) -> None:
    assert gcs.server is not None
    budget_bytes, width = 4 * MiB, 1 << 18
    environment = environment_of(gcs) | {"HEADRACE_MEMORY_BUDGET_BYTES": str(budget_bytes)}
    last = f"{gcs.url}/last.ckpt"
    wanted = Fit(kind, options, 1, gcs.url, None, optimizer, width)
    ((first,), _) = run_fits(2, environment, wanted)
    assert gcs.names() == ["epoch=0.ckpt", "last.ckpt"]
    size_bytes = len(gcs.get("last.ckpt"))
    assert size_bytes > 1.4 * budget_bytes

    gcs.server.reset(keep_buckets=True)
    other = f"{gcs.url}/other"
    ((again, at_once), _) = run_fits(
        2,
        environment,
        wanted._replace(resume=last),
        wanted._replace(max_epochs=2, dirpath=other),
    )
    assert again.steps == []
    assert again.parameters == first.parameters
    # By one rank, once.
    read_bytes = sum(line["bytes_sent"] for line in gcs.server.log() if line["kind"] == "media")
    assert size_bytes <= read_bytes < 1.1 * size_bytes

    ((resumed,), _) = run_fits(2, environment, wanted._replace(max_epochs=2, resume=last))
    assert resumed.steps == [3, 4, 5]
    assert resumed.parameters == at_once.parameters
    assert resumed.parameters_with_moments == at_once.parameters_with_moments > 0


@pytest.mark.parametrize("kind", ["ModelParallelStrategy", "FSDPStrategy"])
def test_a_whole_checkpoint_that_cannot_be_read_fails_every_rank(gcs: Place, kind: str) -> None:
    missing = f"{gcs.url}/none.ckpt"
    options = {"FSDPStrategy": {"state_dict_type": "full"}}.get(
        kind, {"save_distributed_checkpoint": False}
    )
    with pytest.raises(RankError) as caught:
        run_fits(2, environment_of(gcs), Fit(kind, options, 1, gcs.url, missing))
    assert all("none.ckpt" in text for text in caught.value.errors.values())
    assert sorted(caught.value.errors) == [0, 1]


@pytest.mark.parametrize(
    ("saving", "loading", "optimizer"),
    [
        ("FSDPStrategy", "Lightning's FSDPStrategy", "AdamW"),
        ("Lightning's FSDPStrategy", "FSDPStrategy", "AdamW"),
        # It has no state, on which Lightning's own trips.
        ("FSDPStrategy", "FSDPStrategy", "SGD"),
    ],
)
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, saving: str, loading: str, optimizer: str
) -> None:
    options = {"state_dict_type": "sharded"}
    folder, other = str(tmp_path / "run"), str(tmp_path / "other")
    ((_, resumed, at_once), _) = run_fits(
        2,
        {},
        Fit(saving, options, 1, folder, None, optimizer),
        Fit(loading, options, 2, folder, f"{folder}/last.ckpt", optimizer),
        Fit(saving, options, 2, other, None, optimizer),
    )
    assert resumed.steps == [3, 4, 5]
    assert resumed.parameters == at_once.parameters


@pytest.mark.parametrize("use_async", [False, True])
def test_a_save_that_fails_on_the_store_fails_the_run(gcs: Place, use_async: bool) -> None:
    assert gcs.server is not None
    gcs.server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    wanted = Fit("ModelParallelStrategy", {"use_async": use_async}, 1, gcs.url)
    with pytest.raises(RankError) as caught:
        run_fits(2, environment_of(gcs), wanted)
    assert all("HTTP 403" in text for text in caught.value.errors.values())
    assert sorted(caught.value.errors) == [0, 1]
    assert gcs.names() == []


def test_options_of_the_store_belong_to_the_strategy(tmp_path: Path) -> None:
    from headrace.lightning import FSDPStrategy, ModelParallelStrategy

    store = headrace.Store("gs://bucket")
    for kind in (ModelParallelStrategy, FSDPStrategy):
        with pytest.raises(headrace.InvalidArgumentError, match=rf"{kind.__name__}\(endpoint="):
            kind().save_checkpoint({}, tmp_path, storage_options={"endpoint": "x"})
        with pytest.raises(headrace.InvalidArgumentError, match="endpoint= belongs to the store"):
            kind(store=store, endpoint="http://localhost:1")
        with pytest.raises(headrace.InvalidArgumentError, match=r"store=headrace\.Store"):
            kind(timeout=headrace.TimeoutOptions())
        with pytest.raises(TypeError, match=r"no argument 'store_options': give store=headrace"):
            kind(store_options={"endpoint": "x"})
        with pytest.raises(headrace.InvalidArgumentError, match="store is 'gs://bucket'; it must"):
            kind(store="gs://bucket")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("given", ["store", "options"])
def test_a_strategy_takes_a_store_or_its_keywords_beside_lightnings_own(
    gcs: Place, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    from headrace.lightning import FSDPStrategy, ModelParallelStrategy

    assert gcs.server is not None
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    endpoint = gcs.server.url
    bucket = gcs.url.removesuffix("/run")
    options: dict[str, Any] = {"endpoint": endpoint, "verify": False}
    if given == "store":
        options = {"store": headrace.Store(bucket, **options)}
    timeout = datetime.timedelta(seconds=7)
    for kind in (ModelParallelStrategy, FSDPStrategy):
        strategy = kind(timeout=timeout, **options)
        assert strategy._timeout == timeout
        strategy.checkpoint_io.save_checkpoint({"epoch": 3}, f"{gcs.url}/a.ckpt")
        assert strategy.checkpoint_io.load_checkpoint(f"{gcs.url}/a.ckpt") == {"epoch": 3}
        files, url = strategy._files, f"{gcs.url}/b"
        dcp.save({"w": torch.ones(3)}, storage_writer=files.sharded_writer(url))
        assert files.holds_sharded(url)
        loaded = {"w": torch.zeros(3)}
        dcp.load(loaded, storage_reader=files.sharded_reader(url))
        assert torch.equal(loaded["w"], torch.ones(3))
        for name in ("a.ckpt", "b"):
            strategy.checkpoint_io.remove_checkpoint(f"{gcs.url}/{name}")
        assert gcs.names() == []
    # Each checkpoint was read and written by the store that was meant: nothing went elsewhere.
    sent = headrace.metrics().requests_total
    assert sent == len(gcs.server.log())
