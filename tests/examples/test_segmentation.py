"""The U-Net learns the same from both loaders, which read each sample once in each epoch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.servers import DelayedServer, FakeGcsServer

pytestmark = pytest.mark.timeout(960)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "segmentation.py"
TRAINING_SHARDS, TRAINING_SAMPLES, EPOCHS = 7, 224, 4
# The headers of a small shard are one request; then each loader reads each sample once an epoch,
# and neighbours in one batch by one request together.
MOST_REQUESTS = TRAINING_SHARDS + 2 * EPOCHS * TRAINING_SAMPLES


def run(url: str, folder: Path, **environment: str) -> tuple[str, dict[str, dict[str, list[int]]]]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), url, f"--epochs={EPOCHS}"]
        + [f"--plot={folder / 'plot.png'}", f"--json={folder / 'runs.json'}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    return done.stdout, json.loads((folder / "runs.json").read_text())


def test_both_loaders_teach_it_from_an_empty_folder(tmp_path: Path) -> None:
    told, runs = run(str(tmp_path / "not there yet"), tmp_path)
    assert list(runs) == ["DataLoader", "Loader"]
    for name, each in runs.items():
        assert f"{name}: 56 steps" in told
        assert each["dice"] >= 0.9
        assert len(each["epochs"]) == EPOCHS
        for keys in each["epochs"]:
            assert len(keys) == len(set(keys)) == TRAINING_SAMPLES
        assert len({tuple(keys) for keys in each["epochs"]}) == EPOCHS  # shuffled anew


def test_on_a_server_no_sample_takes_more_than_one_request_an_epoch(
    fake_gcs: FakeGcsServer, tmp_path: Path
) -> None:
    bucket = f"segmentation-{os.getpid()}"
    fake_gcs.make_bucket(bucket)
    with DelayedServer(fake_gcs.url, latency_s=0.01) as delayed:
        _, runs = run(f"gs://{bucket}/shapes", tmp_path, STORAGE_EMULATOR_HOST=delayed.url)
        log = delayed.requests()
    assert {len(keys) for each in runs.values() for keys in each["epochs"]} == {TRAINING_SAMPLES}
    reads = [each for each in log if (each.object_read or "").startswith("shapes/train/")]
    assert {each.status for each in reads} == {206}
    assert MOST_REQUESTS // 2 < len(reads) <= MOST_REQUESTS
