"""The files for Kubernetes and Slurm parse, agree with themselves, and their commands train."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ports import free_port
from tests.torchrun import Completed, until_met

pytestmark = pytest.mark.timeout(960)

ROOT = Path(__file__).resolve().parents[2]
JOB, BATCH = (ROOT / "examples" / "cluster" / name for name in ("job.yaml", "train.sbatch"))
SCRIPT = ROOT / "examples" / "elastic_training.py"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with torchrun, and with what Slurm would have on its nodes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "torchrun": f'exec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"',
        "scontrol": "echo 127.0.0.1; echo 127.0.0.2",
        # Starts what it is given once for each node, and fails if one of them does.
        "srun": 'shift; "$@" & first=$!; "$@" & second=$!; wait $first && wait $second',
    }.items():
        folder.joinpath(name).write_text(f"#!/bin/sh\n{text}\n")
        folder.joinpath(name).chmod(0o755)
    return folder


def run(command: list[str], programs: Path, **environment: str) -> Completed:
    return subprocess.run(
        command,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (each for each in yaml.safe_load_all(JOB.read_text()) if each["kind"] == kind)
    return dict(found)


def container() -> dict[str, Any]:
    (only,) = of_kind("Job")["spec"]["template"]["spec"]["containers"]
    return dict(only)


def test_the_service_finds_the_pods_of_the_job_under_the_name_where_ranks_meet() -> None:
    service, job = of_kind("Service"), of_kind("Job")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    environment = {each["name"]: each["value"] for each in container()["env"]}
    first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert environment["MASTER"].rpartition(":")[0] == first


def test_the_job_has_as_many_pods_as_torchrun_expects() -> None:
    spec = of_kind("Job")["spec"]
    environment = {each["name"]: each["value"] for each in container()["env"]}
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(environment["NODES"].split(":")[-1])
    assert container()["resources"]["limits"]["nvidia.com/gpu"] == environment["RANKS_PER_NODE"]
    # Kubernetes takes nothing but text for a variable; each that the command uses is given.
    assert all(isinstance(value, str) for value in environment.values())
    used = set(re.findall(r"\$([A-Z_]+)", container()["command"][-1])) - {"JOB_COMPLETION_INDEX"}
    assert used <= environment.keys()


def test_the_command_of_the_job_trains_on_two_pods(tmp_path: Path, programs: Path) -> None:
    given = {each["name"]: each["value"] for each in container()["env"]}
    del given["MASTER"]
    # No pod may begin alone here.
    given |= {"SCRIPT": str(SCRIPT), "URL": f"{tmp_path / 'digits'}/", "NODES": "2"}

    def run_pods() -> list[Completed]:
        master, job = f"127.0.0.1:{free_port()}", container()["command"]
        with ThreadPoolExecutor() as pods:
            return list(
                pods.map(
                    lambda index: run(
                        job, programs, **given, MASTER=master, JOB_COMPLETION_INDEX=str(index)
                    ),
                    range(2),
                )
            )

    told = until_met(run_pods)
    assert sorted(re.findall(r"rank \d of \d is done", told)) == [
        "rank 0 of 2 is done",
        "rank 1 of 2 is done",
    ]


def test_the_batch_script_asks_for_the_nodes_that_it_uses() -> None:
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", BATCH.read_text(), re.MULTILINE))
    assert options["nodes"] == "2"
    assert options["ntasks-per-node"] == "1"  # one torchrun, which starts the ranks of its node
    assert "requeue" in options
    subprocess.run(["bash", "-n", str(BATCH)], check=True)


@pytest.mark.soak  # the job of two pods stands for it
def test_the_batch_script_trains_on_two_nodes(tmp_path: Path, programs: Path) -> None:
    def run_batch() -> list[Completed]:
        done = run(
            ["bash", str(BATCH), f"{tmp_path / 'digits'}/"],
            programs,
            SLURM_JOB_NODELIST="node[1-2]",
            SLURM_JOB_NUM_NODES="2",
            SLURM_JOB_ID="17",
            PORT=str(free_port()),
            SCRIPT=str(SCRIPT),
        )
        return [done]

    told = until_met(run_batch)
    assert len(re.findall(r"rank \d of 2 is done", told)) == 2


def test_the_batch_script_without_a_url_says_how_it_is_used(programs: Path) -> None:
    done = subprocess.run(["bash", str(BATCH)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "usage: sbatch train.sbatch URL" in done.stderr
