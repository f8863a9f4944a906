"""Where headrace's CPU goes, by `perf`."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from bench import objects
from bench.harness import BATCH_SIZE, Bench, child_environment

BUCKETS = {"1k": objects.SMALL, "100k": objects.MIDDLE}


def profile(bench: Bench, which: str) -> str:
    """The 25 symbols in which reading the objects of that size spends most CPU."""
    bucket = BUCKETS[which]
    data = bench.folder / f"perf-{which}.data"
    with bench.nginx(bucket) as server:
        request = {
            "client": "headrace",
            "endpoint": server.url,
            "bucket": bucket.name,
            "batch_size": BATCH_SIZE,
            "warm_up_s": 0.2,
            "duration_s": 4.0,
        }
        client = [sys.executable, "-m", "bench.client", json.dumps(request)]
        record = ["perf", "record", "-q", "-g", "-F", "1999", "-o", str(data), "--"]
        subprocess.run([*record, *client], env=child_environment(), check=True)
    show = ["perf", "report", "-i", str(data), "--no-children", "-g", "none", "--stdio"]
    show += ["--percent-limit", "0.2", "--sort", "symbol,dso"]
    report = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    lines = [line.rstrip() for line in report.splitlines() if re.match(r"\s+\d", line)]
    return "\n".join(lines[:25])
