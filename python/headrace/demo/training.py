"""The training script of the demo: a process that can be killed at any step and started again.

It is run as a process of its own, ``python -m headrace.demo.training JOB``, where JOB is a `Job` as
JSON. It goes on from the newest complete checkpoint of its run, if there is one. What it saw goes
into a `Record`.
"""

from __future__ import annotations

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
import headrace.checkpoint
from headrace._location import bucket_and_name, is_local
from headrace.demo.digits import augment, decode
from headrace.torch import Loader, MapDataset

__all__ = ["Job", "Record", "Training", "bits", "train"]

SEED = 7
UPLOADS = "headrace-uploads/"
_ARRIVAL_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a training process is asked to do."""

    url: str
    """A folder or ``gs://bucket/prefix``, ends with ``/``; ``train/`` and ``test/`` are below."""
    run: str
    """Below `url`, where it saves."""
    epochs: int
    batch_size: int
    steps_per_checkpoint: int
    stop_after_step: int | None = None
    """After so many steps of the run a notice comes that the process must end."""
    killed_in_save: int | None = None
    """The process's save, counted from 1, in which it is killed, without notice."""
    record: str
    """The local file that the `Record` is written to."""

    @property
    def checkpoints_url(self) -> str:
        """What the names of the run's checkpoints begin with."""
        return f"{self.url}{self.run}/checkpoints/"

    def checkpoint_url(self, step: int) -> str:
        """Where the state after so many steps is saved."""
        return f"{self.checkpoints_url}step{step:05d}.pt"

    @property
    def model_url(self) -> str:
        """Where the model is saved that was trained."""
        return f"{self.url}{self.run}/model.pt"


@dataclass(kw_only=True)
class Record:
    """What one training process saw."""

    pid: int = field(default_factory=os.getpid)
    resumed_from: str | None = None
    """The URL of a checkpoint."""
    first_step: int = 0
    """How many steps earlier processes had done, as that checkpoint says."""
    saved_steps: list[int] = field(default_factory=list)
    """Where checkpoints were saved, and `headrace.checkpoint.save` returned."""
    losses: list[float] = field(default_factory=list)
    """After each step."""
    batches: list[tuple[int, list[str]]] = field(default_factory=list)
    """The epoch of each step, and the URLs of its batch."""
    waits_s: list[float] = field(default_factory=list)
    """How long each step waited for its batch."""
    steps_s: list[float] = field(default_factory=list)
    """How long each step took when its batch was there, saves not included."""
    first_batch_s: float = 0.0
    """From asking for the first batch until it was there, listing not included."""
    objects_read: int = 0
    """Objects that the engine read to train on."""
    accuracy: float | None = None
    """On the held-out digits, by the model that was read back."""
    model_bytes: int = 0
    model_is_equal: bool = False
    """What was read back is what was written, bit for bit."""
    metrics: dict[str, int] = field(default_factory=dict)
    """`headrace.Metrics` of the process at its end."""
    peak_memory_bytes: int = 0

    @property
    def last_step(self) -> int:
        """How many steps of the run were done when this process left it."""
        return self.first_step + len(self.losses)

    def write(self, path: str) -> None:
        """Add how the process fares, and write everything to a local file."""
        self.metrics = asdict(headrace.metrics())
        self.peak_memory_bytes = _peak_memory_bytes()
        Path(path).write_text(json.dumps(asdict(self)))


class Training:
    """All that a training consists of, and that a checkpoint must bring back."""

    def __init__(self, job: Job) -> None:
        torch.manual_seed(SEED)
        self.model = make_model()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        dataset = MapDataset(f"{job.url}train/", transform=augment)
        self.loader = Loader(
            dataset,
            job.batch_size,
            shuffle=True,
            seed=SEED,
            # So small an epoch could be read ahead whole, and had no middle to be stopped in.
            prefetch_bytes=dataset.objects.total_size_bytes // 4,
        )
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),  # the place after what was trained on
            "step": self.step,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        self.step = state["step"]


def make_model() -> nn.Sequential:
    """Return a network for 1 x 8 x 8 images and ten classes.

    It is wider than digits need, so that a checkpoint goes to the store in several parts.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


def train(job: Job) -> Record:
    """Train from the start, or from the newest checkpoint; see `Job` and `Record`."""
    torch.set_num_threads(1)  # the steps are so short that a second thread would mostly wait
    record = Record()
    training = Training(job)
    newest = headrace.checkpoint.latest(job.checkpoints_url)
    if newest is not None:
        training.load_state_dict(headrace.checkpoint.load(newest))
        record.resumed_from, record.first_step = newest, training.step

    loader = training.loader
    read_before = headrace.metrics().objects_read_total
    told_to_stop = False
    with _progress(job, training) as bar:
        while loader.epoch < job.epochs and not told_to_stop:
            epoch = loader.epoch
            for images, labels, urls in _timed(iter(loader), record):
                began_s = time.perf_counter()
                training.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(training.model(images), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                training.optimizer.step()
                training.step += 1

                record.losses.append(loss.item())
                record.batches.append((epoch, urls))
                record.steps_s.append(time.perf_counter() - began_s)
                record.objects_read = headrace.metrics().objects_read_total - read_before
                bar.update()
                if training.step % job.steps_per_checkpoint == 0:
                    save(training, job, record)
                if training.step == job.stop_after_step:
                    told_to_stop = True
                    loader.drain()  # train on what was read ahead, so that nothing is read twice
    if told_to_stop:
        save(training, job, record)
    else:
        evaluate(training.model, job, record)
    return record


def save(training: Training, job: Job, record: Record) -> None:
    """Save a checkpoint, or be killed while it is on its way."""

    def be_killed(done_bytes: int, total_bytes: int) -> None:
        # Everything is handed over, and parts of it are in the store: all but the last step, which
        # makes it visible. Whatever else waits to be done, here it ends.
        if done_bytes == total_bytes:
            _await_a_part(job.url)
            record.write(job.record)
            os.kill(os.getpid(), signal.SIGKILL)  # no handler, no atexit: only what is stored stays

    is_its_last = len(record.saved_steps) + 1 == job.killed_in_save
    headrace.checkpoint.save(
        training.state_dict(),
        job.checkpoint_url(training.step),
        progress=be_killed if is_its_last else False,
    )
    record.saved_steps.append(training.step)


def evaluate(model: nn.Module, job: Job, record: Record) -> None:
    """Save the model, read it back, and ask that one about the held-out digits."""
    record.model_bytes = headrace.checkpoint.save(model.state_dict(), job.model_url).size_bytes
    restored = make_model()
    restored.load_state_dict(headrace.checkpoint.load(job.model_url))
    record.model_is_equal = bits(restored.state_dict()) == bits(model.state_dict())
    restored.eval()
    right = total = 0
    with torch.inference_mode():
        for images, labels, _ in Loader(MapDataset(f"{job.url}test/", transform=decode), 64):
            right += int((restored(images).argmax(1) == labels).sum())
            total += len(labels)
    record.accuracy = right / total


def bits(state: dict[str, torch.Tensor]) -> dict[str, bytes]:
    """Return the bytes of the tensors of a model, which are equal only if every bit is."""
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


def bucket_of(url: str) -> headrace.Store:
    """Return the bucket of `url`, where objects lie while they are being written."""
    return headrace.Store(bucket_and_name(url)[0])


def _await_a_part(url: str) -> None:
    """Wait until some part of an object that is being written is in the bucket.

    Of a file, what is written before the end has no name that would be listed.
    """
    if not is_local(url):
        store = bucket_of(url)
        deadline_s = time.monotonic() + _ARRIVAL_S
        while not any(store.list(UPLOADS)) and time.monotonic() < deadline_s:
            pass


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


def _progress(job: Job, training: Training) -> tqdm[Any]:
    return tqdm(
        total=job.epochs * len(training.loader),
        initial=training.step,
        desc=f"{job.run}, process {os.getpid()}",
        unit="step",
        disable=None,
    )


def _peak_memory_bytes() -> int:
    """What this program has had resident at most; unlike `ru_maxrss`, not what its parent had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * headrace.KiB
    return 0


if __name__ == "__main__":
    # Ctrl-C goes to all processes of a terminal; who started this one says what there is to say.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    job = Job(**json.loads(sys.argv[1]))
    train(job).write(job.record)
