"""A bucket that Lightning finds by its URL, and a model that takes no time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS


@dataclass(frozen=True)
class Place:
    """Where checkpoints go in a test."""

    url: str
    names: Callable[[], list[str]]
    get: Callable[[str], bytes]
    server: FaultServer | None


def _bucket(scheme: str, server: FaultServer) -> Place:
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return Place(
        f"{scheme}://{bucket}/run",
        lambda: sorted(n.removeprefix("run/") for n in server.names(bucket)),
        lambda name: server.get(bucket, f"run/{name}"),
        server,
    )


@pytest.fixture
def gcs(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    # fsspec gives no options to whom it finds by a URL.
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    return _bucket("gs", server)


@pytest.fixture
def s3(s3_server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEYS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_KEYS.secret_access_key)
    return _bucket("s3", s3_server)


@pytest.fixture
def ais(ais_server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AIS_ENDPOINT", ais_server.url)
    return _bucket("ais", ais_server)


@pytest.fixture(params=["file", "gcs", "s3", "ais"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param != "file":
        found: Place = request.getfixturevalue(request.param)
        return found
    root = tmp_path / "run"
    return Place(
        str(root),
        lambda: sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()),
        lambda name: (root / name).read_bytes(),
        None,
    )


class Line(LightningModule):
    """Fits a line; remembers each step's weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(1, 1)
        self.seen_steps: list[int] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        self.seen_steps.append(self.global_step)
        (x,) = batch
        loss: torch.Tensor = (self.layer(x) - 2 * x).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


def batches() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.linspace(-1, 1, 12).reshape(12, 1)), batch_size=4)


def trainer(folder: Path, **options: Any) -> Trainer:
    return Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
