"""Where headrace's CPU goes, by `perf`."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from bench import objects
from bench.harness import BATCH_SIZE, S3, Bench, child_environment

BUCKETS = {
    "1k": (objects.SMALL, {}),
    "100k": (objects.MIDDLE, {}),
    "s3-1k": (objects.SMALL, S3),
    "s3-100k": (objects.MIDDLE, S3),
}


def profile(bench: Bench, which: str) -> str:
    """The 25 symbols in which reading the objects of that size spends most CPU."""
    bucket, scheme = BUCKETS[which]
    data = bench.folder / f"perf-{which}.data"
    # One server for both schemes: what it does for the other one costs both the same.
    with bench.nginx(bucket, s3=True) as server, bench.objects_file(bucket) as file:
        request = {
            **scheme,
            "objects_file": file,
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
