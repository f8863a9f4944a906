"""A small U-Net learns to segment images in tar shards, fed by torch's DataLoader and by Loader.

python examples/segmentation.py gs://bucket/shapes
python examples/segmentation.py /tmp/shapes --plot overlap.png --json overlap.json

The images are synthetic: bright ellipses in noise. Both loaders feed the same network, which starts
from the same weights. DataLoader, without workers, reads and decodes a batch while the network
waits; Loader reads and decodes ahead while the network computes, so only the first step of an epoch
waits. The plot shows where the time of each step goes.

Needs `pip install 'headrace[demo]'`.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

import headrace
from headrace.torch import Loader, ShardDataset

SIDE = 32
SHARD_SAMPLES = 32
BATCH_SIZE = 16


def shape_and_mask(number: int) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    """An image with one to three ellipses, and which of its pixels belong to one; both uint8."""
    random = numpy.random.default_rng(number)
    y, x = numpy.mgrid[:SIDE, :SIDE]
    mask = numpy.zeros((SIDE, SIDE), bool)
    for _ in range(random.integers(1, 4)):
        centre_y, centre_x = random.uniform(6, SIDE - 6, 2)
        radius_y, radius_x = random.uniform(3, 7, 2)
        mask |= ((y - centre_y) / radius_y) ** 2 + ((x - centre_x) / radius_x) ** 2 < 1
    image = random.normal(90, 30, mask.shape) + 70 * mask
    return image.clip(0, 255).astype(numpy.uint8), mask.astype(numpy.uint8) * 255


def png(pixels: numpy.ndarray[Any, Any]) -> bytes:
    """Return a picture as a file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def write_shards(store: headrace.Store, images: int) -> None:
    """Write samples of two fields, ``img.png`` and ``mask.png``, an eighth of them for testing."""
    for first in range(0, images, SHARD_SAMPLES):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for number in range(first, min(first + SHARD_SAMPLES, images)):
                image, mask = shape_and_mask(number)
                for name, data in (("img.png", png(image)), ("mask.png", png(mask))):
                    member = tarfile.TarInfo(f"{number:05d}.{name}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        part = "test" if first + SHARD_SAMPLES > images * 7 // 8 else "train"
        store.write(f"{part}/{first // SHARD_SAMPLES:03d}.tar", out.getvalue())


def decode(sample: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Return the image and its mask as float tensors of 1 x 32 x 32, and the sample's key."""

    def pixels(name: str) -> torch.Tensor:
        with Image.open(io.BytesIO(sample[name])) as image:
            return torch.from_numpy(numpy.array(image, numpy.float32)).unsqueeze(0) / 255

    return pixels("img.png"), pixels("mask.png"), sample["__key__"]


class UNet(nn.Module):
    """Two levels down, two up, each step up beside what the same level saw on the way down."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = self._block(1, channels), self._block(channels, 2 * channels)
        self.bottom = self._block(2 * channels, 4 * channels)
        self.up2 = self._block(6 * channels, 2 * channels)
        self.up1 = self._block(3 * channels, channels)
        self.out = nn.Conv2d(channels, 1, 1)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return a logit for each pixel."""
        fine = self.down1(images)
        middle = self.down2(self.pool(fine))
        coarse = self.bottom(self.pool(middle))
        middle = self.up2(torch.cat([self.grow(coarse), middle], 1))
        fine = self.up1(torch.cat([self.grow(middle), fine], 1))
        logits: torch.Tensor = self.out(fine)
        return logits

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
        )


@dataclass
class Run:
    """What one loader fed, and where the time went."""

    waits_s: list[float] = field(default_factory=list)
    """How long each step waited for its batch."""
    steps_s: list[float] = field(default_factory=list)
    """How long each step computed."""
    epochs: list[list[str]] = field(default_factory=list)
    """The keys of each epoch's samples, in their order."""
    dice: float = 0.0
    """The overlap with the true masks on the test images; 1 is perfect."""


def timed(batches: Iterable[Any], run: Run) -> Iterator[Any]:
    """Yield from `batches`, and record each wait."""
    iterator = iter(batches)
    while True:
        began_s = time.perf_counter()
        batch = next(iterator, None)
        if batch is None:
            return
        run.waits_s.append(time.perf_counter() - began_s)
        yield batch


def train(loader: Iterable[Any], test: Iterable[Any], epochs: int) -> Run:
    """Train a network from the same start on whatever yields batches, and measure it."""
    torch.manual_seed(7)
    model, run = UNet(), Run()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        run.epochs.append([])
        for images, masks, keys in timed(loader, run):
            began_s = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(images), masks).backward()
            optimizer.step()
            run.steps_s.append(time.perf_counter() - began_s)
            run.epochs[-1] += keys
    model.eval()
    both = total = 0.0
    with torch.inference_mode():
        for images, masks, _ in test:
            found = model(images) > 0
            both += float((found * masks).sum())
            total += float(found.sum() + masks.sum())
    run.dice = 2 * both / total
    return run


def plot(runs: dict[str, Run], file: str) -> None:
    """Draw a bar for each step: waiting below, computing above."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(runs), figsize=(9, 3), sharey=True, layout="tight")
    for axis, (name, run) in zip(axes, runs.items(), strict=True):
        waits_ms, steps_ms = ([1e3 * s for s in each] for each in (run.waits_s, run.steps_s))
        steps = range(1, len(steps_ms) + 1)
        axis.bar(steps, waits_ms, 1.0, label="waiting for data", color="tab:red")
        axis.bar(steps, steps_ms, 1.0, bottom=waits_ms, label="computing", color="tab:blue")
        total_s = sum(run.waits_s) + sum(run.steps_s)
        axis.set_title(f"{name}: {total_s:.2f} s, {sum(run.waits_s):.2f} s of them waiting")
        axis.set_xlabel("step")
    axes[0].set_ylabel("ms")
    axes[-1].legend(frameon=False)
    figure.savefig(file)


def main() -> None:
    """Write the shards, if there are none, train with both loaders, and show where time went."""
    parser = argparse.ArgumentParser(description="Train a U-Net from shards in two ways.")
    parser.add_argument("url", help="a folder, or a prefix in a bucket")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--plot", help="a file for the picture")
    parser.add_argument("--json", help="a file for what was measured")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # the other cores are for decoding
    store = headrace.Store(arguments.url)
    if not store.exists("train/000.tar"):
        write_shards(store, arguments.images)
    dataset = ShardDataset(f"{store.url}/train/", decode)
    test = Loader(ShardDataset(f"{store.url}/test/", decode), BATCH_SIZE)

    loaders: dict[str, Iterable[Any]] = {
        "DataLoader": DataLoader(dataset, BATCH_SIZE, shuffle=True),
        "Loader": Loader(dataset, BATCH_SIZE, shuffle=True, seed=7),
    }
    runs = {name: train(loader, test, arguments.epochs) for name, loader in loaders.items()}
    for name, run in runs.items():
        print(
            f"{name}: {len(run.steps_s)} steps computed for {sum(run.steps_s):.2f} s and waited "
            f"{sum(run.waits_s):.2f} s for data; Dice coefficient {run.dice:.3f}"
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({n: asdict(run) for n, run in runs.items()}))
    if arguments.plot:
        plot(runs, arguments.plot)


if __name__ == "__main__":
    main()
