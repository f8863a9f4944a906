"""The training script of the demo: a process that can be killed at any batch and started again.

It is run as a process of its own, ``python -m headrace.demo.training JOB``, where JOB is a `Job` as
JSON. If the store holds a checkpoint it goes on from there. What it saw goes into a `Record`.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

import headrace
from headrace.demo.digits import decode
from headrace.torch import Loader, MapDataset

__all__ = ["Job", "Record", "train"]

CHECKPOINT = "run/checkpoint.pt"
MODEL = "run/model.pt"
SEED = 7


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a training process is asked to do."""

    url: str
    """A folder or ``gs://bucket/prefix/`` with ``train/`` and ``test/`` below it."""
    epochs: int
    batch_size: int
    stop_after_batches: int | None
    """After so many batches of the whole training a notice comes that the process must end."""
    record: str
    """The local file that the `Record` is written to."""


@dataclass(kw_only=True)
class Record:
    """What one training process saw."""

    pid: int = field(default_factory=os.getpid)
    first_batch_number: int = 0
    """How many batches earlier processes had trained on."""
    losses: list[float] = field(default_factory=list)
    """After each batch."""
    waits_s: list[float] = field(default_factory=list)
    """How long the loop waited for each batch."""
    first_batch_s: float = 0.0
    """From asking for the first batch until it was there, listing not included."""
    training_s: float = 0.0
    images: int = 0
    delivered: dict[int, dict[str, int]] = field(default_factory=dict)
    """How often each URL was in a batch, by epoch."""
    objects_read: int = 0
    """Objects that the engine read for these images."""
    batch_in_epoch: int = 0
    """Where in its epoch the training was when this process left it."""
    accuracy: float | None = None
    """On the held-out digits, by the model that was read back."""
    model_bytes: int = 0
    model_is_equal: bool = False
    """What was read back is what was written, bit for bit."""
    metrics: dict[str, int] = field(default_factory=dict)
    """`headrace.Metrics` of the process at its end."""
    peak_memory_bytes: int = 0


def make_model() -> nn.Sequential:
    """Return a small convolutional network for 1 x 8 x 8 images and ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def save(store: headrace.Store, name: str, state: dict[str, Any]) -> bytes:
    """Write what ``torch.save`` makes of `state` as one object; return those bytes."""
    stream = io.BytesIO()
    torch.save(state, stream)
    store.write(name, stream.getvalue())
    return stream.getvalue()


def load(store: headrace.Store, name: str) -> dict[str, Any]:
    """Read what `save` wrote."""
    state: dict[str, Any] = torch.load(io.BytesIO(memoryview(store.read(name))), weights_only=True)
    return state


def train(job: Job) -> Record:
    """Train from the start or from the checkpoint; see `Job` and `Record`."""
    record = Record()
    store = headrace.Store(job.url)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the network is so small that a second thread would only wait
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    dataset = MapDataset(_below(job.url, "train/"), transform=decode)
    loader = Loader(
        dataset,
        job.batch_size,
        shuffle=True,
        seed=SEED,
        # So small an epoch could be read ahead whole: then there is no middle to be stopped in.
        prefetch_bytes=dataset.objects.total_size_bytes // 4,
    )
    if store.exists(store.prefix + CHECKPOINT):
        state = load(store, store.prefix + CHECKPOINT)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        record.first_batch_number = state["batch_number"]

    batch_number = record.first_batch_number
    stopping = False
    objects_read_before = headrace.metrics().objects_read_total
    began_s = time.perf_counter()
    with _progress(f"process {os.getpid()}", job.epochs * len(loader), batch_number) as bar:
        while loader.epoch < job.epochs and not stopping:
            delivered = record.delivered.setdefault(loader.epoch, {})
            for images, labels, urls in _timed(iter(loader), record):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                record.losses.append(loss.item())
                record.images += len(urls)
                for url in urls:
                    delivered[url] = delivered.get(url, 0) + 1
                batch_number += 1
                bar.update()
                bar.set_postfix(epoch=loader.epoch, loss=f"{loss.item():.3f}", refresh=False)
                if batch_number == job.stop_after_batches:
                    loader.drain()  # train on what was read ahead, so that nothing is read twice
                    stopping = True
    record.training_s = time.perf_counter() - began_s
    record.objects_read = headrace.metrics().objects_read_total - objects_read_before
    record.batch_in_epoch = batch_number - loader.epoch * len(loader)

    if stopping:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
            "batch_number": batch_number,
        }
        save(store, store.prefix + CHECKPOINT, state)
    else:
        evaluate(job, store, model, record)
    record.metrics = asdict(headrace.metrics())
    record.peak_memory_bytes = _peak_memory_bytes()
    return record


def evaluate(job: Job, store: headrace.Store, model: nn.Module, record: Record) -> None:
    """Save the model, read it back, and ask that one about the held-out digits."""
    name = store.prefix + MODEL
    written = save(store, name, model.state_dict())
    record.model_bytes = len(written)
    record.model_is_equal = store.read(name).bytes() == written
    restored = make_model()
    restored.load_state_dict(load(store, name))
    restored.eval()
    right = total = 0
    with torch.inference_mode():
        for images, labels, _ in Loader(MapDataset(_below(job.url, "test/"), transform=decode), 64):
            right += int((restored(images).argmax(1) == labels).sum())
            total += len(labels)
    record.accuracy = right / total


def _timed(batches: Iterator[Any], record: Record) -> Iterator[Any]:
    """Yield from `batches`, and note how long each was waited for."""
    while True:
        began_s = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            return
        record.waits_s.append(time.perf_counter() - began_s)
        record.first_batch_s = record.first_batch_s or record.waits_s[0]
        yield batch


def _below(url: str, folder: str) -> str:
    return f"{url.rstrip('/')}/{folder}"


def _progress(label: str, total: int, initial: int) -> tqdm[Any]:
    return tqdm(total=total, initial=initial, desc=label, unit="batch", disable=None)


def _peak_memory_bytes() -> int:
    """What this program has had resident at most; unlike `ru_maxrss`, not what its parent had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * headrace.KiB
    return 0


def _run(job: Job) -> None:
    record = train(job)
    Path(job.record).write_text(json.dumps(asdict(record)))
    if record.accuracy is None:
        os.kill(os.getpid(), signal.SIGKILL)  # no handler, no atexit: only what is stored survives


if __name__ == "__main__":
    # Ctrl-C goes to all processes of a terminal; who started this one says what there is to say.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _run(Job(**json.loads(sys.argv[1])))
