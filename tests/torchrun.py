"""Scripts that torchrun starts once for each rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

__all__ = ["command", "torchrun"]


_NOT_MET = "Gloo connectFullMesh failed"
_STARTS = 4


def command(ranks: int) -> list[str]:
    """Return how Python starts so many ranks on this machine, at a port that is free."""
    return [
        *("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d"),
        *("--master-addr=127.0.0.1", "--master-port=0", "--rdzv-endpoint=127.0.0.1:0"),
    ]


def torchrun(script: str, ranks: int, *arguments: object, out: Path) -> tuple[list[Any], str]:
    """Run `script` on so many ranks; return what each has written, and what they said.

    On a busy machine, gloo's ranks sometimes do not find each other (seen with torch 2.15, in four
    of thirty starts under a load of 8). They have run nothing of `script` behind that, and begin
    again.

    Args:
        script: Python, which writes JSON to ``f"{sys.argv[-1]}/{rank}.json"``.
        arguments: those before this last one.
        out: a folder.
    """
    file = out / "train.py"
    file.write_text(textwrap.dedent(script))
    for _ in range(_STARTS):
        done = subprocess.run(
            [sys.executable, *command(ranks), str(file), *map(str, arguments), str(out)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 or _NOT_MET not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)], done.stderr
