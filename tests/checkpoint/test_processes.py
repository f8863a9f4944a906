"""A save that is killed, and a load and a save that are interrupted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import headrace
import headrace.checkpoint
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster
from tests.checkpoint.states import file_of, load

MIB = 1 << 20

SAVE_AGAIN_AND_AGAIN = """
import sys
import torch
import headrace, headrace.checkpoint

store = headrace.Store(sys.argv[1], **({"endpoint": sys.argv[2]} if len(sys.argv) > 2 else {}))
round = 0
while True:
    round += 1
    state = {i: torch.full((1 << 19,), round) for i in range(6)}
    headrace.checkpoint.save(
        state, "a.pt", store=store, progress=lambda *_: print("piece", flush=True)
    )
    print("saved", round, flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["gcs", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("file", "ais"))]
)
@pytest.mark.parametrize(
    "kills", [3, pytest.param(int(os.environ.get("SOAK_KILLS", "25")), marks=pytest.mark.soak)]
)
@pytest.mark.timeout(7200)
def test_a_killed_save_leaves_the_last_checkpoint_whole(
    kind: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "file":
        store = headrace.Store(tmp_path)
        arguments = [str(tmp_path)]
    elif kind == "gcs":
        server: FaultServer = request.getfixturevalue("server")
        server.bucket("bucket")
        store = headrace.Store("gs://bucket", endpoint=server.url)
        arguments = ["gs://bucket", server.url]
    else:
        cluster: AistoreCluster = request.getfixturevalue("ais_cluster")
        bucket: str = request.getfixturevalue("ais_bucket")
        store = headrace.Store(f"ais://{bucket}", endpoint=cluster.url)
        arguments = [f"ais://{bucket}", cluster.url]
    rng = random.Random(7)
    for _ in range(kills):
        child = start(SAVE_AGAIN_AND_AGAIN, *arguments)
        assert child.stdout is not None
        # Killed in the middle of the second save or later, by what it says of how far it is.
        lines = [child.stdout.readline() for _ in range(rng.randrange(8, 30))]
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
        saved = [
            int(line.split()[1])
            for line in [*lines, *rest.splitlines()]
            if line.startswith("saved ") and line.split()[1:]
        ]
        found = load(store)
        # The last that was said to be saved, or the one after it, which nobody heard of.
        rounds = {int(value) for tensor in found.values() for value in tensor.unique()}
        assert rounds <= {saved[-1], saved[-1] + 1}
        assert len(rounds) == 1
        if kind == "gcs":
            server.close_connections("rst")  # what was sent, and not read by the server yet
        headrace.clean(store, older_than_s=0)
        names = os.listdir(tmp_path) if kind == "file" else [info.name for info in store.list()]
        assert names == ["a.pt"]


INTERRUPTED = """
import sys
import torch
import headrace, headrace.checkpoint

store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
state = {"a": torch.zeros(40 << 20, dtype=torch.uint8)}
print("ready", flush=True)
try:
    if sys.argv[2] == "save":
        headrace.checkpoint.save(state, "new.pt", store=store)
    else:
        headrace.checkpoint.load("old.pt", store=store)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("what", ["save", "load"])
def test_ctrl_c_ends_it_and_leaves_nothing(what: str, server: FaultServer) -> None:
    server.bucket("bucket")
    server.put("bucket", "old.pt", file_of({"a": torch.zeros(40 << 20, dtype=torch.uint8)}))
    # Requests of storages are never answered; a save's first and a load's third are the first.
    kinds = ["upload", "multipart_part", "resumable_put"] if what == "save" else "media"
    server.faults(
        [
            {
                "match": {"kind": kinds},
                "from": 1 if what == "save" else 3,
                "count": 20,
                "action": "stall_head",
            }
        ]
    )
    child = start(INTERRUPTED, server.url, what)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    while server.stats()["by_kind"].get("media", 0) < 3 and what == "load":
        pass  # until the requests are there
    while what == "save" and not any(
        server.stats()["by_kind"].get(kind, 0) for kind in ("upload", "multipart_part")
    ):
        pass
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=160)
    assert out == "interrupted\n", errors
    assert child.returncode == 0, errors
    server.faults([])
    assert server.names("bucket") == ["old.pt"]
