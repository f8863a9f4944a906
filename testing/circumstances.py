"""What a reader of a measurement, or of a campaign's counts, has to know to repeat it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent

_SHOW_VERSIONS = """
import sys
from importlib import metadata
installed = {d.name: d.version for d in metadata.distributions()}
print(*(f"{name} {installed[name]}" for name in sys.argv[1:] if name in installed), sep="\\n")
"""


def output_of(*command: str) -> str:
    """What a command prints, stripped; empty if it fails."""
    with contextlib.suppress(OSError):
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        # nginx and wrk tell their version on the other stream, wrk with a failing status.
        return (done.stdout or done.stderr).strip()
    return ""


def versions_of(*packages: str, python: str = sys.executable) -> dict[str, str]:
    """The versions of those packages that the environment of `python` has."""
    told = output_of(python, "-c", _SHOW_VERSIONS, *packages).splitlines()
    return dict(line.split() for line in told)


def _siblings() -> str:
    """The numbers that the kernel says are threads of one core with the first."""
    with contextlib.suppress(OSError):
        return (
            Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").read_text().strip()
        )
    return ""


def circumstances(command: str, versions: dict[str, str]) -> dict[str, Any]:
    """The command, the commit, the machine, and the versions of what took part."""
    processor = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.M)
    return {
        "command": command,
        "commit": output_of("git", "rev-parse", "HEAD"),
        "changed_files": len(output_of("git", "status", "--porcelain").splitlines()),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "processor": processor.group(1) if processor else platform.processor(),
            "cores": os.cpu_count(),
            "one_core_with_the_first": _siblings(),
            "memory_gib": round(int(memory.group(1)) / (1 << 20), 1) if memory else None,
            "kernel": platform.release(),
            "load_before": os.getloadavg(),
        },
        "versions": {"python": platform.python_version(), **versions},
    }
