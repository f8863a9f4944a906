"""The levels of sums that prove an upload to S3, one beside the other, on the fault server.

    .venv/bin/python bench/sum_levels.py [--mib 512] [--repeats 5]

Prints JSON: for each level the median CPU-seconds of this process per GiB, its spread, GB/s, and
requests. The server runs on the same machine and sums, too, so only the CPU of the client says what
a level costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import headrace
from headrace import GiB, MiB
from testing.faultserver.client import FaultServer

LEVELS = ("crc32c", "crc64nvme", "composite", "md5", "none")
KEYS = headrace.AwsKeys("headrace", "secret")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    data = os.urandom(arguments.mib * MiB)
    rates: dict[str, list[float]] = {level: [] for level in LEVELS}
    cpu: dict[str, list[float]] = {level: [] for level in LEVELS}
    requests: dict[str, int] = {}
    with FaultServer(dialect="s3", threads=2, md5=False) as server:
        server.bucket("bucket")
        stores = {
            level: headrace.Store(
                "s3://bucket",
                endpoint=server.url,
                credentials=KEYS,
                provider=headrace.S3Options(checksum=level),  # type: ignore[arg-type]
            )
            for level in LEVELS
        }
        for repeat in range(arguments.repeats + 1):
            for level, store in stores.items():
                before = headrace.metrics().requests_total
                cpu_s, begin_s = time.process_time(), time.perf_counter()
                writer = store.open_writer("object")
                writer.write_lent(data)
                writer.close()
                wall_s = time.perf_counter() - begin_s
                cpu_s = time.process_time() - cpu_s
                requests[level] = headrace.metrics().requests_total - before
                if repeat > 0:  # the first opens the connections
                    rates[level].append(len(data) / wall_s / 1e9)
                    cpu[level].append(cpu_s / (len(data) / GiB))
    rows = [
        {
            "level": level,
            "cpu_s_per_gib": round(statistics.median(cpu[level]), 3),
            "cpu_s_per_gib_min_max": [round(min(cpu[level]), 3), round(max(cpu[level]), 3)],
            "gb_per_s": round(statistics.median(rates[level]), 2),
            "requests": requests[level],
        }
        for level in LEVELS
    ]
    print(json.dumps({"mib": arguments.mib, "repeats": arguments.repeats, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
