"""wrk: what one thread of C does with the same server and the same URLs."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("cycle.lua")


def run(
    endpoint: str, paths: Sequence[str], *, connection_count: int, duration_s: int
) -> dict[str, Any]:
    """Ask for `paths` in turn over `connection_count` connections; CPU is that of wrk alone.

    Raises:
        RuntimeError: wrk failed, or one of its requests did.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".paths") as file:
        file.write("\n".join(paths))
        file.flush()
        command = ["wrk", "-t1", f"-c{connection_count}", f"-d{duration_s}s", "-s", str(_SCRIPT)]
        process = subprocess.Popen(
            [*command, endpoint],
            env={**os.environ, "HEADRACE_BENCH_PATHS": file.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        output = process.stdout.read()
        # Not Popen.wait: only wait4 tells what this one child used.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    lines = output.strip().splitlines()
    if process.returncode != 0 or not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"wrk failed: {output}")
    answer: dict[str, Any] = json.loads(lines[-1])
    if answer["errors"] or not answer["objects"]:
        raise RuntimeError(f"wrk: {answer['errors']} requests failed: {output}")
    answer["cpu_s"] = usage.ru_utime + usage.ru_stime
    answer["connections"] = connection_count
    return answer
