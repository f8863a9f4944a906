"""The training script of the demo: a process that can be killed at any step and started again.

It runs as a process of its own, ``python -m headrace.demo.training JOB``, where JOB is a `Job` as
JSON. If its run has a complete checkpoint, it resumes from the newest one. It writes a `Record` of
what it did.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

import headrace
import headrace.checkpoint
from headrace._store.location import bucket_and_name, scheme_of
from headrace.demo.digits import Digit, augment, decode
from headrace.torch import Loader, MapDataset, ShardDataset

__all__ = ["Job", "Record", "Training", "bits", "train"]

SEED = 7
UPLOADS = "headrace-uploads/"
_ARRIVAL_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """The task of a training process."""

    url: str
    """A folder or a prefix in a bucket, with ``/`` at its end, above ``train/`` and ``test/``."""
    run: str
    """The name below `url` under which the run saves."""
    shards: bool
    """Whether the images are in tar shards, and not objects of their own."""
    epochs: int
    batch_size: int
    steps_per_checkpoint: int
    stop_after_step: int | None = None
    """The step of the run after which the process gets a notice to end."""
    killed_in_save: int | None = None
    """The save, counted from 1, during which the process is killed without notice."""
    record: str
    """The local file for the `Record`."""

    @property
    def checkpoints_url(self) -> str:
        """The folder of the run's checkpoints."""
        return f"{self.url}{self.run}/checkpoints/"

    def checkpoint_url(self, step: int) -> str:
        """Return the URL of the state after `step` steps."""
        return f"{self.checkpoints_url}step{step:05d}.pt"

    @property
    def model_url(self) -> str:
        """The URL of the trained model."""
        return f"{self.url}{self.run}/model.pt"


@dataclass(kw_only=True)
class Record:
    """What one training process did."""

    pid: int = field(default_factory=os.getpid)
    resumed_from: str | None = None
    """The URL of the checkpoint that it resumed from."""
    first_step: int = 0
    """The number of steps that earlier processes had taken, according to that checkpoint."""
    saved_steps: list[int] = field(default_factory=list)
    """The steps whose checkpoints were saved, that is, `headrace.checkpoint.save` returned."""
    losses: list[float] = field(default_factory=list)
    """The loss after each step."""
    batches: list[tuple[int, list[str]]] = field(default_factory=list)
    """The epoch of each step, and where the images of its batch are."""
    waits_s: list[float] = field(default_factory=list)
    """The time that each step waited for its batch."""
    steps_s: list[float] = field(default_factory=list)
    """The time that each step took once its batch had come, without saves."""
    first_batch_s: float = 0.0
    """The time from asking for the first batch until it came, without listing."""
    objects_read: int = 0
    """The number of images that the engine read for training."""
    accuracy: float | None = None
    """The accuracy on the held-out digits, of the model read back."""
    model_bytes: int = 0
    model_is_equal: bool = False
    """Whether the model read back equals the one written, bit for bit."""
    metrics: dict[str, int] = field(default_factory=dict)
    """The `headrace.Metrics` of the process at its end."""
    peak_memory_bytes: int = 0

    @property
    def last_step(self) -> int:
        """The number of steps taken in the run when this process ended."""
        return self.first_step + len(self.losses)

    def write(self, path: str) -> None:
        """Add the metrics and the peak memory, and write everything to a local file."""
        self.metrics = asdict(headrace.metrics())
        self.peak_memory_bytes = _peak_memory_bytes()
        Path(path).write_text(json.dumps(asdict(self)))


class Training:
    """Everything that makes up a training and that a checkpoint must restore."""

    def __init__(self, job: Job) -> None:
        torch.manual_seed(SEED)
        self.model = make_model()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        dataset = digits_of(job, "train", augment)
        self.loader = Loader(
            dataset,
            job.batch_size,
            shuffle=True,
            seed=SEED,
            # An epoch this small could be read ahead whole; it would have no middle to stop in.
            prefetch_bytes=dataset.objects.total_size_bytes // 4,
        )
        steps = job.epochs * len(self.loader)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=steps)
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "loader": self.loader.state_dict(),  # the place after the last batch trained on
            "step": self.step,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.loader.load_state_dict(state["loader"])
        self.step = state["step"]


def digits_of(
    job: Job, part: str, transform: Callable[[Digit], Any]
) -> MapDataset[Any] | ShardDataset[Any]:
    """Return the images of ``train`` or ``test``."""
    if job.shards:
        return ShardDataset(f"{job.url}{part}/*.tar", transform)
    return MapDataset(f"{job.url}{part}/", transform)


def make_model() -> nn.Sequential:
    """Return a network for 1 x 8 x 8 images and ten classes.

    It is wider than digits need, so that a checkpoint takes several parts.
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
    """Train from the beginning or from the newest checkpoint; see `Job` and `Record`."""
    torch.set_num_threads(1)  # steps are so short that a second thread would mostly wait
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
                training.schedule.step()
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
                    loader.drain()  # train on what was read ahead; nothing is then read twice
    if told_to_stop:
        save(training, job, record)
    else:
        evaluate(training.model, job, record)
    return record


def save(training: Training, job: Job, record: Record) -> None:
    """Save a checkpoint, or be killed while saving it."""

    def be_killed(done_bytes: int, total_bytes: int) -> None:
        # By now the whole checkpoint has been handed over, and parts of it are in the store. The
        # process dies before the last step, which would make it visible.
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
    """Save the model, read it back, and measure that copy's accuracy on the held-out digits."""
    record.model_bytes = headrace.checkpoint.save(model.state_dict(), job.model_url).size_bytes
    restored = make_model()
    restored.load_state_dict(headrace.checkpoint.load(job.model_url))
    record.model_is_equal = bits(restored.state_dict()) == bits(model.state_dict())
    restored.eval()
    right = total = 0
    with torch.inference_mode():
        for images, labels, _ in Loader(digits_of(job, "test", decode), 64):
            right += int((restored(images).argmax(1) == labels).sum())
            total += len(labels)
    record.accuracy = right / total


def bits(state: dict[str, torch.Tensor]) -> dict[str, bytes]:
    """Return the bytes of a model's tensors, which are equal only if every bit is."""
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


def bucket_of(url: str) -> headrace.Store | None:
    """Return a store at the bucket of `url`, if it has the parts of an unfinished write as objects.

    On S3 they are parts of an upload, and files that are being written have no name: listings show
    neither.
    """
    root, _ = bucket_and_name(url)
    return headrace.Store(root) if scheme_of(root) == "gs" else None


def _await_a_part(url: str) -> None:
    """Wait until a part of the object being written is in the bucket, where it can be seen."""
    store = bucket_of(url)
    if store is not None:
        deadline_s = time.monotonic() + _ARRIVAL_S
        while not any(store.list(UPLOADS)) and time.monotonic() < deadline_s:
            pass


def _timed(batches: Iterator[Any], record: Record) -> Iterator[Any]:
    """Yield from `batches`, and record the wait for each."""
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
    """Return the peak resident memory of this program; `ru_maxrss` would include its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * headrace.KiB
    return 0


if __name__ == "__main__":
    job = Job(**json.loads(sys.argv[1]))
    train(job).write(job.record)
