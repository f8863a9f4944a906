"""curl: one thread of C and parts of 16 MiB, many at a time: the raw rate of a server."""

from __future__ import annotations

import resource
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any

from bench.objects import MIB

PART_BYTES = 16 * MIB
_AT_ONCE = 16


def put(urls: Sequence[str], *, method: str) -> dict[str, Any]:
    """Send 16 MiB to each of `urls`, over what is there.

    Raises:
        RuntimeError: curl failed, or one of its requests did.
    """
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as part:
        part.write(bytes(range(256)) * (PART_BYTES // 256))
        part.flush()
        times = _run(
            {
                "url": url,
                "request": method,
                "upload-file": part.name,
                "header": "Expect:",  # else it waits for a leave to send the body
            }
            for url in urls
        )
    return {"objects": len(urls), "bytes": len(urls) * PART_BYTES, **times}


def get(url: str, *, size_bytes: int) -> dict[str, Any]:
    """Read the first `size_bytes` of an object by ranges of 16 MiB, and drop them.

    Raises:
        RuntimeError: curl failed, or one of its requests did.
    """
    begins = range(0, size_bytes, PART_BYTES)
    times = _run(
        {"url": url, "range": f"{begin}-{min(begin + PART_BYTES, size_bytes) - 1}"}
        for begin in begins
    )
    return {"objects": len(begins), "bytes": size_bytes, **times}


def _run(transfers: Iterable[dict[str, str]]) -> dict[str, float]:
    """What all of them took: `wall_s`, and `cpu_s` of curl itself."""
    options = ["--fail", "--silent", "--show-error", "--noproxy", "*"]
    parallel = ["--parallel", "--parallel-immediate", "--parallel-max", str(_AT_ONCE)]
    config = "\nnext\n".join(
        "\n".join(f'{name} = "{value}"' for name, value in (*each.items(), ("output", "/dev/null")))
        for each in transfers
    )
    begin_s, begin_cpu_s = time.perf_counter(), _children_cpu_s()
    done = subprocess.run(
        ["curl", *options, *parallel, "--config", "-"],
        input=config,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    times = {"wall_s": time.perf_counter() - begin_s, "cpu_s": _children_cpu_s() - begin_cpu_s}
    if done.returncode != 0:
        raise RuntimeError(f"curl ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return times


def _children_cpu_s() -> float:
    """CPU seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
