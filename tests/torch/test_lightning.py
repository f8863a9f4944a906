"""`Loader` in Lightning: resumed runs end like uninterrupted ones; ranks share the data."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

import headrace
from headrace.torch import Loader, MapDataset
from tests.torch.conftest import content, fill_folder
from tests.torchrun import Completed, until_met

pytestmark = [
    # Of Lightning, about itself and about this machine.
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*is deprecated, use `isinstance:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*number of training batches:UserWarning"),
    pytest.mark.filterwarnings("ignore:Trying to infer the `batch_size`:UserWarning"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed:UserWarning"),
]

EPOCHS, STEPS = 3, 5


def shifted(sample: headrace.Sample) -> tuple[torch.Tensor, int]:
    """A random transform."""
    number = int(sample.bytes()[:4])
    noise = torch.rand(4, generator=sample.rng().torch)
    return noise + number / 100, number


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.orders: list[tuple[int, str]] = []
        self.numbers: list[int] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        values, numbers = batch
        self.numbers += numbers.tolist()
        return (self.layer(values).squeeze(1) - numbers / 50).square().mean()

    def on_train_epoch_end(self) -> None:
        digest = hashlib.sha256(str(self.numbers).encode()).hexdigest()[:8]
        self.orders.append((self.current_epoch, digest))
        self.numbers = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.1)


class Validated(Model):
    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val", self.layer(batch[0]).mean(), batch_size=len(batch[1]))


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    """Forty files of 100 bytes."""
    return fill_folder(tmp_path_factory.mktemp("forty"), 40)


def fit(
    store: headrace.Store,
    folder: Path,
    *,
    validates: bool,
    resume: Path | None = None,
    **options: Any,
) -> Model:
    """Train, or go on with a checkpoint; what is saved goes to `folder`."""
    model = Validated() if validates else Model()
    options = {"every_n_epochs": 1, **options}
    max_epochs = options.pop("max_epochs", EPOCHS)
    saving = ModelCheckpoint(folder, filename="{epoch}-{step}", save_top_k=-1, **options)
    trainer = Trainer(
        max_epochs=max_epochs,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=str(folder),
    )
    data = MapDataset(store, shifted)
    train = Loader(data, 40 // STEPS, shuffle=True, seed=5)
    val = Loader(data, 20) if validates else None
    trainer.fit(model, train, val, ckpt_path=None if resume is None else str(resume))
    return model


def weights(model: Model) -> list[float]:
    return [value for each in model.parameters() for value in each.flatten().tolist()]


@pytest.mark.timeout(720)
@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("options", [{}, {"every_n_train_steps": 2, "every_n_epochs": None},
                                     {"every_n_train_steps": STEPS, "every_n_epochs": None}],
                         ids=["each epoch", "each 2 steps", "each last step"])  # fmt: skip
def test_a_run_that_is_resumed_at_any_checkpoint_ends_with_the_same_weights(
    forty: headrace.Store, tmp_path: Path, validates: bool, options: dict[str, Any]
) -> None:
    whole = fit(forty, tmp_path / "whole", validates=validates, **options)
    assert [epoch for epoch, _ in whole.orders] == [0, 1, 2]
    assert len({order for _, order in whole.orders}) == EPOCHS
    checkpoints = sorted((tmp_path / "whole").glob("*.ckpt"))
    assert len(checkpoints) == (7 if options.get("every_n_train_steps") == 2 else EPOCHS)
    for number, checkpoint in enumerate(checkpoints):
        again = fit(
            forty, tmp_path / f"again{number}", validates=validates, resume=checkpoint, **options
        )
        assert weights(again) == weights(whole), checkpoint.name
        # Epochs that were begun after the checkpoint, whole, are in the same order.
        for epoch, order in again.orders[1:]:
            assert (epoch, order) in whole.orders


class Noting(Validated):
    """Notes which samples each of its steps has had."""

    def __init__(self, data: MapDataset) -> None:
        super().__init__()
        self.data = data
        self.seen: list[tuple[int, int, list[int]]] = []

    def on_train_epoch_start(self) -> None:
        self.data.set_epoch(self.current_epoch)  # as the guide says of torch's DataLoader

    def training_step(self, batch: Any, at: int) -> torch.Tensor:
        self.seen.append((self.current_epoch, at, batch[1].tolist()))
        return super().training_step(batch, at)


TRAINERS: list[dict[str, Any]] = [
    {},
    {"limit_train_batches": 3},
    {"limit_train_batches": 0.6},
    {"val_check_interval": 2},
    {"val_check_interval": 0.4},
    {"limit_train_batches": 4, "val_check_interval": 2},
    {"accumulate_grad_batches": 2},
    {"accumulate_grad_batches": 5},
    {"max_epochs": -1, "max_steps": 11},
    {"num_sanity_val_steps": 2, "check_val_every_n_epoch": 2},
]


def keeps_to_epochs(options: dict[str, Any]) -> bool:
    """Return whether a StatefulDataLoader ends its epochs where Lightning does.

    Of others, the checkpoint in an epoch's last step goes on behind the end that Lightning sees.
    """
    return "limit_train_batches" not in options and "max_steps" not in options


def a_loader(data: MapDataset) -> Any:
    return Loader(data, 40 // STEPS, shuffle=True, seed=5)


def a_stateful_data_loader(data: MapDataset, workers: int = 0) -> Any:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    context = "fork" if workers else None
    return torchdata.StatefulDataLoader(
        data, 40 // STEPS, num_workers=workers, multiprocessing_context=context
    )


def a_stateful_data_loader_with_workers(data: MapDataset) -> Any:
    return a_stateful_data_loader(data, workers=2)


def fit_noting(
    store: headrace.Store,
    folder: Path,
    make: Callable[[MapDataset], Any],
    options: dict[str, Any],
    resume: Path | None = None,
) -> Noting:
    data = MapDataset(store, shifted)
    model = Noting(data)
    every = 1 if "accumulate_grad_batches" in options else 2
    saving = ModelCheckpoint(
        folder, filename="{epoch}-{step}", save_top_k=-1, every_n_train_steps=every
    )
    trainer = Trainer(
        **{"max_epochs": EPOCHS, **options},
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=str(folder),
    )
    trainer.fit(
        model, make(data), Loader(data, 20), ckpt_path=None if resume is None else str(resume)
    )
    return model


@pytest.mark.timeout(720)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize(
    ("make", "options"),
    [
        *((a_loader, options) for options in TRAINERS),
        *((a_stateful_data_loader, options) for options in TRAINERS if keeps_to_epochs(options)),
        (a_stateful_data_loader_with_workers, {}),
    ],
)
def test_a_resumed_run_sees_exactly_the_samples_that_were_left(
    forty: headrace.Store,
    tmp_path: Path,
    make: Callable[[MapDataset], Any],
    options: dict[str, Any],
) -> None:
    whole = fit_noting(forty, tmp_path / "whole", make, options)
    steps = [(epoch, at) for epoch, at, _ in whole.seen]
    assert steps == sorted(set(steps))
    checkpoints = sorted((tmp_path / "whole").glob("*.ckpt"))
    assert len(checkpoints) > 2
    for number, checkpoint in enumerate(checkpoints):
        again = fit_noting(forty, tmp_path / f"again{number}", make, options, checkpoint)
        done = len(whole.seen) - len(again.seen)
        assert again.seen == whole.seen[done:], checkpoint.name
        # Lightning does not always name the epoch to the model of a run that goes on in mid-epoch.
        assert make is not a_loader or weights(again) == weights(whole), checkpoint.name


DDP = """
import json, sys
import torch
from lightning.pytorch import LightningModule, Trainer
from headrace.torch import Loader, MapDataset

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.urls = []

    def training_step(self, batch, _):
        self.urls.append(list(batch[1]))
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def transform(sample):
    return torch.ones(1), sample.url

if __name__ == "__main__":
    folder, out = sys.argv[1:]
    model = Model()
    loader = Loader(MapDataset(folder, transform), 10, shuffle=True)  # before there is a group
    trainer = Trainer(
        strategy="ddp", devices=2, accelerator="cpu", max_epochs=1, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        default_root_dir=out,
    )
    trainer.fit(model, loader)
    with open(f"{out}/{trainer.global_rank}.json", "w") as file:
        json.dump({"urls": model.urls, "length": len(loader), "loader": repr(loader)}, file)
"""


@pytest.mark.timeout(720)
def test_ddp_gives_each_rank_its_share_of_a_loader_that_was_made_before_fit(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    fill_folder(tmp_path / "data", 45)
    script = tmp_path / "train.py"
    script.write_text(DDP)

    def start() -> list[Completed]:
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "data"), str(tmp_path)],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "GLOO_SOCKET_IFNAME": "lo",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return [done]

    until_met(start)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [len(found["urls"]) for found in ranks] == [found["length"] for found in ranks] == [3, 3]
    urls = [url for found in ranks for batch in found["urls"] for url in batch]
    assert len(urls) == len(set(urls)) == 45
    assert ranks[1]["loader"].endswith("rank 1 of 2)")


class Counting(Model):
    """Notes how many samples each epoch has had."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def on_train_epoch_end(self) -> None:
        self.counts.append(len(self.numbers))
        super().on_train_epoch_end()


def fit_batches_of_bytes(folder: Path, **options: Any) -> list[int]:
    """Return how many of the 40 samples each of six epochs has had."""
    store = headrace.Store(folder)
    for i in range(40):
        store.write(f"{i:04d}", content(i, 100 * (1 + i % 5)))
    trainer = Trainer(
        max_epochs=6,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=str(folder),
        **options,
    )
    model = Counting()
    # Its epochs have 14, 15, 14, 14, 14 and 14 batches.
    loader = Loader(MapDataset(store, shifted), max_batch_bytes=1000, shuffle=True, seed=2)
    trainer.fit(model, loader)
    return model.counts


def test_shuffled_batches_of_bytes_are_whole_epochs_where_lightning_asks_for_each_length(
    tmp_path: Path,
) -> None:
    assert fit_batches_of_bytes(tmp_path, reload_dataloaders_every_n_epochs=1) == [40] * 6


def test_lightning_that_asks_for_one_length_is_warned_of_what_it_leaves(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="reload_dataloaders_every_n_epochs=1"):
        counts = fit_batches_of_bytes(tmp_path)
    assert [count < 40 for count in counts] == [False, True, False, False, False, False]
