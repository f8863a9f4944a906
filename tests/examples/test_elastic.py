"""A node of two is killed; torchrun goes on with the other, and no sample is lost or repeated."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.torch import Loader, MapDataset
from tests.ports import free_port

pytestmark = pytest.mark.timeout(960)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "elastic_training.py"
EPOCHS, GLOBAL_BATCH, STEPS_PER_CHECKPOINT = 12, 64, 5
# How soon torchrun misses a node, and how long it waits for others; both are longer by default.
SOON = "last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=3"

Step = dict[str, Any]


@contextlib.contextmanager
def node(port: int, log: Path, *arguments: str, is_host: bool) -> Iterator[subprocess.Popen[bytes]]:
    """One torchrun with one rank; it is the host of the meeting, or meets there."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"]
            + ["--max-restarts=3", "--monitor-interval=0.2", "--local-addr=127.0.0.1"]
            + ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test"]
            + [f"--rdzv-conf={SOON},is_host={int(is_host)}", str(EXAMPLE), *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a torchrun and its rank, without notice."""
    if process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def runs_in(folder: Path) -> list[list[Step]]:
    """The steps of each process that took one."""
    files = [file.read_text().splitlines(True) for file in folder.glob("trace.*")]
    runs = [[json.loads(line) for line in lines if line[-1] == "\n"] for lines in files]
    return [run for run in runs if run]


def batches_of(url: str) -> dict[int, list[str]]:
    """The images of each step of an undisturbed run."""
    dataset = MapDataset(f"{url}train/", lambda sample: sample.url)
    loader = Loader(dataset, GLOBAL_BATCH, shuffle=True, seed=7, drop_last=True, collate_fn=list)
    return dict(enumerate((batch for _ in range(EPOCHS) for batch in loader), 1))


def test_a_lost_node_costs_the_steps_since_the_checkpoint_and_no_sample(tmp_path: Path) -> None:
    url, port = f"{tmp_path / 'digits'}/", free_port()
    arguments = (url, f"--epochs={EPOCHS}", f"--trace={tmp_path / 'trace'}")
    with (
        node(port, tmp_path / "a.log", *arguments, is_host=True) as stays,
        node(port, tmp_path / "b.log", *arguments, is_host=False) as goes,
    ):
        # What ends the wait is a step; the deadline only ends what hangs.
        deadline_s = time.monotonic() + 300
        while not any(run[0]["world_size"] == 2 and len(run) >= 8 for run in runs_in(tmp_path)):
            assert stays.poll() is None, (tmp_path / "a.log").read_text()
            assert time.monotonic() < deadline_s, (tmp_path / "a.log").read_text()
            time.sleep(0.01)
        kill(goes)
        assert stays.wait(timeout=300) == 0, (tmp_path / "a.log").read_text()

    runs, batches = runs_in(tmp_path), batches_of(url)
    last = max(runs, key=lambda run: (run[-1]["step"], run[0]["world_size"] == 1))
    of_two = [run for run in runs if run[0]["world_size"] == 2]

    # The rank that was left began after the newest checkpoint and ended the training alone.
    begun, lost = last[0]["step"] - 1, max(run[-1]["step"] for run in of_two)
    assert last[0]["world_size"] == 1
    assert begun % STEPS_PER_CHECKPOINT == 0
    assert lost - STEPS_PER_CHECKPOINT <= begun <= lost
    assert [step["step"] for step in last] == list(range(begun + 1, len(batches) + 1))

    # Each step of each process took its share of what it would have taken undisturbed, ...
    for step in (step for run in runs for step in run):
        share = GLOBAL_BATCH // step["world_size"]
        begin = step["rank"] * share
        assert step["urls"] == batches[step["step"]][begin : begin + share]
    # ... and the steps that were repeated had the same result.
    repeated = {step["step"]: step["loss"] for step in last if step["step"] <= lost}
    for step in (step for run in of_two for step in run if step["step"] in repeated):
        assert step["loss"] == pytest.approx(repeated[step["step"]], abs=1e-4)
