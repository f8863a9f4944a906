"""A Lightning run fed by Loader that stops within an epoch and resumes from a bucket.

python examples/lightning_training.py gs://bucket/run1
python examples/lightning_training.py /tmp/run1

Needs `pip install 'headrace[lightning,demo]'`, and a place that is empty.
It trains one epoch on images, and then again, stopped after 30 steps and resumed in a new trainer.
Both runs end with the same weights, because the place of the loader is saved with each checkpoint.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

import headrace
from headrace.demo.digits import decode, png_objects, write
from headrace.lightning import AsyncCheckpointIO
from headrace.torch import Loader, MapDataset

STOP_AFTER = 30


class Digits(LightningModule):
    """A network that tells handwritten digits apart."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.network = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def training_step(
        self, batch: tuple[torch.Tensor, torch.Tensor, list[str]], _: int
    ) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels, _urls = batch
        loss = torch.nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss, batch_size=len(labels))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(url: str, run: str, directory: str, max_steps: int, resume: str | None = None) -> Trainer:
    """Train up to a step, with a checkpoint every ten steps."""
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        max_steps=max_steps,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=directory,
        plugins=[AsyncCheckpointIO()],
        callbacks=[ModelCheckpoint(f"{url}/{run}", every_n_train_steps=10, save_last=True)],
    )
    # Each run has a loader of its own, as a process of its own would.
    loader = Loader(MapDataset(f"{url}/train/", decode), batch_size=32, shuffle=True, seed=7)
    trainer.fit(Digits(), loader, ckpt_path=resume)
    return trainer


def main(url: str) -> None:
    """Write the images, train undisturbed, train with a stop, and compare the weights."""
    store = headrace.Store(url)
    if store.exists("stopped/last.ckpt"):
        raise SystemExit(f"{store.url} has the checkpoints of another run; give an empty place")
    list(write(store, "", png_objects()))
    with tempfile.TemporaryDirectory() as directory:
        whole = fit(url, "whole", directory, -1)
        fit(url, "stopped", directory, STOP_AFTER)
        resumed = fit(url, "stopped", directory, -1, resume=f"{url}/stopped/last.ckpt")
    print(f"resumed after step {STOP_AFTER} of {resumed.global_step}")
    weights = [trainer.lightning_module.state_dict() for trainer in (whole, resumed)]
    equal = all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    print(f"the weights of both runs are {'equal, bit for bit' if equal else 'not equal'}")
    if not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1])
