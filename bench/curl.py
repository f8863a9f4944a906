"""curl: one thread of C and parts of 16 MiB, many at a time: the raw rate of a server."""

from __future__ import annotations

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
        wall_s = _run(
            {
                "url": url,
                "request": method,
                "upload-file": part.name,
                "header": "Expect:",  # else it waits for a leave to send the body
            }
            for url in urls
        )
    return {"objects": len(urls), "bytes": len(urls) * PART_BYTES, "wall_s": wall_s}


def get(url: str, *, size_bytes: int) -> dict[str, Any]:
    """Read the first `size_bytes` of an object by ranges of 16 MiB.

    Raises:
        RuntimeError: curl failed, or one of its requests did.
    """
    begins = range(0, size_bytes, PART_BYTES)
    wall_s = _run(
        {"url": url, "range": f"{begin}-{min(begin + PART_BYTES, size_bytes) - 1}"}
        for begin in begins
    )
    return {"objects": len(begins), "bytes": size_bytes, "wall_s": wall_s}


def _run(transfers: Iterable[dict[str, str]]) -> float:
    """How long all of them took, in seconds."""
    options = ["--fail", "--silent", "--show-error", "--noproxy", "*"]
    parallel = ["--parallel", "--parallel-immediate", "--parallel-max", str(_AT_ONCE)]
    config = "\nnext\n".join(
        "\n".join(f'{name} = "{value}"' for name, value in (*each.items(), ("output", "/dev/null")))
        for each in transfers
    )
    begin_s = time.perf_counter()
    done = subprocess.run(
        ["curl", *options, *parallel, "--config", "-"],
        input=config,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    wall_s = time.perf_counter() - begin_s
    if done.returncode != 0:
        raise RuntimeError(f"curl ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return wall_s
