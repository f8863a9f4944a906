"""Scripts that torchrun starts once for each rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["NOT_MET", "Completed", "command", "torchrun", "until_met"]

# On a busy machine, gloo's ranks sometimes do not find each other (seen with torch 2.15, in four of
# thirty starts under a load of 8). They have run nothing behind that, and begin again.
NOT_MET = "Gloo connectFullMesh failed"
_STARTS = 8

Completed = subprocess.CompletedProcess[str]


def command(ranks: int) -> list[str]:
    """Return how Python starts so many ranks on this machine, at a port that is free."""
    return [
        *("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d"),
        *("--master-addr=127.0.0.1", "--master-port=0", "--rdzv-endpoint=127.0.0.1:0"),
    ]


def until_met(start: Callable[[], list[Completed]]) -> str:
    """Call `start` until the ranks have found each other; return what all its commands printed.

    Each of them must succeed.
    """
    for _ in range(_STARTS):
        all_done = start()
        if not any(done.returncode != 0 and NOT_MET in done.stderr for done in all_done):
            break
    for done in all_done:
        assert done.returncode == 0, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return "".join(done.stdout for done in all_done)


def torchrun(script: str, ranks: int, *arguments: object, out: Path) -> tuple[list[Any], str]:
    """Run `script` on so many ranks; return what each has written, and what they said.

    Args:
        script: Python, which writes JSON to ``f"{sys.argv[-1]}/{rank}.json"``.
        arguments: those before this last one.
        out: a folder.
    """
    file = out / "train.py"
    file.write_text(textwrap.dedent(script))
    said = []

    def start() -> list[Completed]:
        done = subprocess.run(
            [sys.executable, *command(ranks), str(file), *map(str, arguments), str(out)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            capture_output=True,
            text=True,
            check=False,
        )
        said.append(done.stderr)
        return [done]

    until_met(start)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)], said[-1]
