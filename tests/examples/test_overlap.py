"""What docs/guide/tuning.md says of overlapping, by counts; bench/groups/overlap.py measures it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.clients import overlap
from headrace.torch import Loader, MapDataset

BATCH_SIZE, BATCHES = 8, 4


class Counting:
    """A transform that counts its calls and tells when it has been called so often."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.calls = 0

    def __call__(self, sample: Any) -> Any:
        with self._changed:
            self.calls += 1
            self._changed.notify_all()
        return sample.tensor()

    def wait_for(self, calls: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.calls >= calls, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(BATCH_SIZE * BATCHES):
        tmp_path.joinpath(f"{i:03d}").write_bytes(bytes([i]) * 100)
    return tmp_path


def test_loader_transforms_the_next_batch_while_the_trainer_has_this_one(folder: Path) -> None:
    transform = Counting()
    batches = iter(Loader(MapDataset(str(folder), transform), BATCH_SIZE, transform_threads=1))
    next(batches)
    # Nobody asks for the second batch here; without reading ahead, this would end at the deadline.
    assert transform.wait_for(2 * BATCH_SIZE)


def test_dataloader_without_workers_does_nothing_until_the_next_batch_is_asked_for(
    folder: Path,
) -> None:
    transform = Counting()
    batches = iter(torch.utils.data.DataLoader(MapDataset(str(folder), transform), BATCH_SIZE))
    for batch in range(1, BATCHES + 1):
        next(batches)
        assert transform.calls == batch * BATCH_SIZE


@pytest.mark.parametrize("way", ["loader", "in turn"])
def test_the_measurement_takes_all_steps_and_says_each_part(way: str, tmp_path: Path) -> None:
    answer = overlap.overlap({"way": way, "steps": 20, "folder": str(tmp_path / "objects")})
    assert answer["objects"] == 20 * overlap.BATCH_SIZE
    # Sleeps take at least their time; nothing here says at most.
    assert answer["loading_s"] > 0
    assert answer["computing_s"] >= overlap.COMPUTING_S
    assert answer["step_s"] >= overlap.COMPUTING_S
