"""The examples of checkpoints run, on a directory and on a bucket."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.ports import free_port
from tests.torchrun import Completed, command, until_met

pytestmark = pytest.mark.timeout(960)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def url_of(kind: str, tmp_path: Path, server: FaultServer) -> str:
    if kind == "file":
        return str(tmp_path / "run1")
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return f"gs://{bucket}/run1"


# A folder is tried in `make soak`: each of these starts interpreters that import torch.
@pytest.fixture(params=[pytest.param("file", marks=pytest.mark.soak), "gs"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: FaultServer) -> str:
    return url_of(request.param, tmp_path, server)


def start(server: FaultServer, *command: str) -> Completed:
    return subprocess.run(
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


def run(server: FaultServer, *command: str) -> str:
    return until_met(lambda: [start(server, *command)])


def test_torch_save_and_headrace_read_each_other(server: FaultServer, url: str) -> None:
    told = run(server, str(EXAMPLES / "torch_save.py"), url)
    assert "the old checkpoint is still there" in told
    assert f"{url.removeprefix('file://')}/by_headrace.pt" in told


def test_lightning_resumes_from_what_it_saved_in_the_background(
    server: FaultServer, url: str
) -> None:
    assert "at step 20" in run(server, str(EXAMPLES / "lightning_checkpoint.py"), url)


@pytest.mark.parametrize(
    ("kind", "numbers_of_ranks"),
    [
        pytest.param("gs", (3, 2), id="fewer"),
        pytest.param("file", (2, 3), id="more", marks=pytest.mark.soak),
    ],
)
def test_fsdp2_goes_on_with_other_numbers_of_ranks(
    server: FaultServer, tmp_path: Path, kind: str, numbers_of_ranks: tuple[int, ...]
) -> None:
    url = url_of(kind, tmp_path, server) + "/"
    before = set[str]()
    for run_number, ranks in enumerate(numbers_of_ranks):
        told = run(
            server,
            *command(ranks),
            str(EXAMPLES / "fsdp2_checkpoint.py"),
            url,
        )
        # What each rank has loaded is what all ranks of the run before have saved.
        loaded = re.findall(r"loaded step (\d+), parameters ([\d.]+)", told)
        saved = re.findall(r"saved step (\d+), parameters ([\d.]+)", told)
        assert len(loaded) == (ranks if run_number else 0)
        assert set(loaded) == before
        assert len(saved) == ranks
        ((step, _),) = before = set(saved)
        assert step == str(3 * (run_number + 1))


@pytest.mark.soak
def test_fsdp2_goes_on_on_two_nodes_after_one(server: FaultServer, tmp_path: Path) -> None:
    url = url_of("gs", tmp_path, server) + "/"
    script = (str(EXAMPLES / "fsdp2_checkpoint.py"), url)
    saved = re.findall(r"saved step (\d+), parameters ([\d.]+)", run(server, *command(2), *script))

    def start_nodes() -> list[Completed]:
        port = free_port()
        with ThreadPoolExecutor() as nodes:
            return list(
                nodes.map(
                    lambda node: start(
                        server,
                        *("-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}"),
                        *("--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"),
                        *script,
                    ),
                    range(2),
                )
            )

    told = until_met(start_nodes)
    loaded = re.findall(r"rank (\d): loaded step (\d+), parameters ([\d.]+)", told)
    assert {rank for rank, *_ in loaded} == {"0", "1"}
    assert {tuple(rest) for _, *rest in loaded} == set(saved)
    assert len(re.findall(r"saved step 6,", told)) == 2


def test_lightning_trains_from_a_loader_and_resumes_within_an_epoch(
    server: FaultServer, url: str
) -> None:
    told = run(server, str(EXAMPLES / "lightning_training.py"), url)
    assert "resumed after step 30 of 45" in told
    assert "the weights of both runs are equal, bit for bit" in told
