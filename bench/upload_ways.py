"""The ways of sending a large object, one beside the other, on the fault server.

    .venv/bin/python bench/upload_ways.py [--mib 512] [--repeats 5] [--latency-ms 0 20]

Prints JSON: for each latency and way the median GB/s, its spread, requests, and CPU-seconds of this
process per GiB. The server runs on the same machine, so only ratios mean anything.
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
from headrace import MiB
from testing.faultserver.client import FaultServer

WAYS = ("parts", "multipart", "resumable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--latency-ms", type=float, nargs="+", default=[0, 20])
    arguments = parser.parse_args()
    data = os.urandom(arguments.mib * MiB)
    rows = []
    with FaultServer(threads=2, md5=False) as server:
        server.bucket("bucket")
        store = headrace.Store("gs://bucket", endpoint=server.url)
        for latency_ms in arguments.latency_ms:
            server.latency(latency_ms)
            rates: dict[str, list[float]] = {way: [] for way in WAYS}
            cpu: dict[str, list[float]] = {way: [] for way in WAYS}
            requests: dict[str, int] = {}
            for repeat in range(arguments.repeats + 1):
                for way in WAYS:
                    before = headrace.metrics().requests_total
                    cpu_s, begin = time.process_time(), time.perf_counter()
                    writer = store.open_writer("object", upload=way)  # type: ignore[arg-type]
                    writer.write_lent(data)
                    writer.close()
                    wall_s = time.perf_counter() - begin
                    cpu_s = time.process_time() - cpu_s
                    requests[way] = headrace.metrics().requests_total - before
                    if repeat > 0:  # the first opens the connections
                        rates[way].append(len(data) / wall_s / 1e9)
                        cpu[way].append(cpu_s / (len(data) / (1 << 30)))
            rows += [
                {
                    "latency_ms": latency_ms,
                    "way": way,
                    "gb_per_s": round(statistics.median(rates[way]), 3),
                    "least": round(min(rates[way]), 3),
                    "most": round(max(rates[way]), 3),
                    "cpu_s_per_gib": round(statistics.median(cpu[way]), 3),
                    "requests": requests[way],
                }
                for way in WAYS
            ]
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
