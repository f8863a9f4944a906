"""A Lightning run that saves in the background and resumes from a bucket.

python examples/lightning_checkpoint.py gs://bucket/run1
python examples/lightning_checkpoint.py /tmp/run1
"""

from __future__ import annotations

import sys
import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from headrace.lightning import AsyncCheckpointIO


class Regression(LightningModule):
    """A network that learns to double its input."""

    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the mean square error of a batch."""
        (x,) = batch
        loss: torch.Tensor = (self.network(x) - 2 * x).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def make_trainer(url: str, max_epochs: int, directory: str) -> Trainer:
    """Keep the two best checkpoints and the last one; training waits for a copy in memory only."""
    return Trainer(
        accelerator="auto",
        devices=1,
        max_epochs=max_epochs,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=directory,
        plugins=[AsyncCheckpointIO()],
        callbacks=[
            ModelCheckpoint(
                dirpath=url, filename="{epoch}", monitor="loss", save_top_k=2, save_last=True
            )
        ],
    )


def main(url: str) -> None:
    """Train three epochs, stop, and go on in a new trainer from what is in the bucket."""
    data = DataLoader(TensorDataset(torch.linspace(-1, 1, 64).reshape(64, 1)), batch_size=16)
    with tempfile.TemporaryDirectory() as directory:
        make_trainer(url, 3, directory).fit(Regression(), data)  # ends when all saves are durable
        trainer = make_trainer(url, 5, directory)
        trainer.fit(Regression(), data, ckpt_path=f"{url}/last.ckpt")
        print(f"resumed after epoch 3, at step {trainer.global_step}: {trainer.callback_metrics}")


if __name__ == "__main__":
    main(sys.argv[1])
