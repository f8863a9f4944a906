"""What reads of one prefix cost that the service throttles reads of another one.

PYTHONPATH=build/release/python:. python bench/scripts/cost_of_a_throttled_prefix.py [ROUNDS]

The fault server lets 100 requests/s below hot/ through, and any number below cold/. Objects of
1 KiB below cold/ are read while nobody, another thread of the process, or another process reads
below hot/, each by a store of its own root. Prints JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import headrace
from testing.faultserver.client import FaultServer

COUNT, BATCH = 500, 50
WARM_S = 3.0
LIMIT = {"bucket": "bucket", "prefix": "hot/", "requests_per_s": 100, "burst": 10}


def open_store(url: str, prefix: str) -> headrace.Store:
    keys = headrace.AwsKeys("AKIDHEADRACE", "secret")
    return headrace.Store(f"s3://bucket/{prefix}", endpoint=url, credentials=keys)


def read(store: headrace.Store) -> None:
    """Read all objects once."""
    for at in range(0, COUNT, BATCH):
        store.read_many([f"{i:04}" for i in range(at, at + BATCH)])


def read_until(store: headrace.Store, stopped: threading.Event) -> None:
    while not stopped.is_set():
        read(store)


@contextmanager
def hot_reader(where: str, url: str) -> Iterator[None]:
    """Somebody reads what is throttled: nobody, a thread of this process, or another process."""
    stopped = threading.Event()
    thread = threading.Thread(target=read_until, args=(open_store(url, "hot"), stopped))
    child = None
    if where == "thread":
        thread.start()
    elif where == "process":
        child = subprocess.Popen([sys.executable, __file__, "--read", url])
    try:
        yield
    finally:
        stopped.set()
        if thread.is_alive():
            thread.join()
        if child is not None:
            child.kill()
            child.wait()


def measure(server: FaultServer, where: str) -> dict[str, float]:
    headrace.shutdown()
    server.limit(prefixes=[LIMIT])
    store = open_store(server.url, "cold")
    with hot_reader(where, server.url):
        time.sleep(WARM_S)
        before, began = server.stats(), time.monotonic()
        read(store)
        seconds = time.monotonic() - began
        time.sleep(WARM_S)
        after, all_seconds = server.stats(), time.monotonic() - began
    throttled = after["throttled"] - before["throttled"]
    served = after["by_kind"]["media"] - before["by_kind"].get("media", 0) - throttled
    return {
        "cold_objects_per_s": round(COUNT / seconds, 1),
        "hot_objects_per_s": round((served - COUNT) / all_seconds, 1),
        "hot_refused_per_s": round(throttled / all_seconds, 1),
    }


def main(rounds: int) -> None:
    results: dict[str, list[dict[str, float]]] = {"nobody": [], "thread": [], "process": []}
    with FaultServer(dialect="s3") as server:
        server.bucket("bucket")
        for prefix in ("hot", "cold"):
            for i in range(COUNT):
                server.put("bucket", f"{prefix}/{i:04}", bytes(1024))
        for _ in range(rounds):
            for where, found in results.items():
                found.append(measure(server, where))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read_until(open_store(sys.argv[2], "hot"), threading.Event())
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
