"""DLIO itself, where tools/peers.sh has installed it."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import headrace
from testing.faultserver.client import FaultServer

PYTHON = Path(".venvs/dlio/bin/python")

WORKLOAD = """
model: unet3d
framework: pytorch
workflow: {generate_data: %(generate)s, train: %(train)s, checkpoint: true}
storage: {storage_root: "%(root)s"}
dataset:
  data_folder: data
  format: npz
  num_files_train: 12
  num_samples_per_file: 1
  record_length: 90000
  record_length_stdev: 20000
reader:
  data_loader: pytorch
  data_loader_classname: headrace.dlio.DataLoader
  data_loader_sampler: none
  batch_size: 3
  read_threads: 2
  sample_shuffle: seed
train: {epochs: 2, computation_time: 0.001}
checkpoint:
  checkpoint_folder: %(checkpoints)s
  checkpoint_mechanism_classname: headrace.dlio.Checkpointing
  model_size: 10000
  layer_parameters: [3000]
"""


def run(repository: Path, folder: Path, **environment: str) -> None:
    done = subprocess.run(
        [
            *(repository / PYTHON, "-m", "headrace.dlio"),
            *("--config-dir", folder, "workload=small", f"hydra.run.dir={folder}/out"),
        ],
        cwd=folder,
        env={
            **os.environ,
            **environment,
            "PYTHONPATH": str(Path(__file__).parent / "without_tensorflow"),
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def workload(folder: Path, **values: object) -> None:
    (folder / "workload").mkdir(exist_ok=True)
    (folder / "workload" / "small.yaml").write_text(WORKLOAD % values)


def test_dlio_trains_from_a_bucket_and_saves_to_it(
    server: FaultServer, gcs: headrace.Store, repository: Path, tmp_path: Path
) -> None:
    if not (repository / PYTHON).exists():
        pytest.skip("tools/peers.sh, a part of `make bench`, installs DLIO")
    workload(tmp_path, generate="true", train="false", root=tmp_path, checkpoints=tmp_path / "c")
    run(repository, tmp_path)
    files = sorted((tmp_path / "data" / "train").iterdir())
    assert len(files) == 12
    for file in files:
        gcs.write(f"dlio/data/train/{file.name}", file.read_bytes())
    server.reset(keep_buckets=True)
    workload(
        tmp_path, generate="false", train="true", root="gs://bucket/dlio",
        checkpoints="gs://bucket/run",
    )  # fmt: skip
    run(repository, tmp_path, STORAGE_EMULATOR_HOST=server.url)
    # Two epochs of twelve files, each read once; the checkpoints are not read.
    reads = Counter(each["target"] for each in server.log() if "alt=media" in each["target"])
    assert sorted(reads.values()) == [2] * 12
    saved = {info.name for info in gcs.list("run/")}
    assert saved == {"run/model-2-4-0.pt", "run/layer-0-2-4-0.pt", "run/model-1-4-0.pt",
                     "run/layer-0-1-4-0.pt"}  # fmt: skip
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["epochs"] == 2
