"""The examples of checkpoints run, on a directory and on a bucket."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer

pytestmark = pytest.mark.timeout(240)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture(params=["file", "gs"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: FaultServer) -> str:
    if request.param == "file":
        return str(tmp_path / "run1")
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return f"gs://{bucket}/run1"


def run(server: FaultServer, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "STORAGE_EMULATOR_HOST": server.url,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_torch_save_and_headrace_read_each_other(server: FaultServer, url: str) -> None:
    told = run(server, str(EXAMPLES / "torch_save.py"), url)
    assert "the old checkpoint is still there" in told
    assert f"{url.removeprefix('file://')}/by_headrace.pt" in told


def test_lightning_resumes_from_what_it_saved_in_the_background(
    server: FaultServer, url: str
) -> None:
    assert "at step 20" in run(server, str(EXAMPLES / "lightning_checkpoint.py"), url)


def test_fsdp2_is_saved_by_four_ranks_and_loaded_by_two(server: FaultServer) -> None:
    url = f"gs://bucket-{uuid.uuid4().hex}/run1"
    server.bucket(url.split("/")[2])

    def fingerprints(ranks: int, action: str) -> list[str]:
        launch = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        told = run(
            server,
            *launch,
            f"--nproc-per-node={ranks}",
            str(EXAMPLES / "fsdp2_checkpoint.py"),
            action,
            url,
        )
        return re.findall(r"step 3, parameters ([\d.]+)", told)

    saved = fingerprints(4, "save")
    loaded = fingerprints(2, "load")
    assert len(saved) == 4
    assert len(loaded) == 2
    assert len({*saved, *loaded}) == 1
