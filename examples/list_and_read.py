"""Write objects, list them, and read them in batches: what a training job's input does.

    python examples/list_and_read.py                       # into a temporary folder
    python examples/list_and_read.py gs://bucket           # STORAGE_EMULATOR_HOST is honoured

Every object's bytes are compared with what was written.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import headrace

BATCH_OBJECTS = 64
OBJECT_BYTES = 20 * headrace.KiB
WRITERS = 16


def content(index: int) -> bytes:
    """The bytes of object `index`: the same on every run, different for every object."""
    seed = hashlib.sha256(str(index).encode()).digest()
    return (seed * (OBJECT_BYTES // len(seed) + 1))[:OBJECT_BYTES]


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(url: str, object_count: int) -> None:
    store = headrace.Store(url)
    print(f"writing {object_count} objects of {OBJECT_BYTES // headrace.KiB} KiB to {url}")

    def write(index: int) -> None:
        store.write(f"demo/{index:06d}.bin", content(index))

    with ThreadPoolExecutor(WRITERS) as writers:  # a write is durable when it returns: it waits
        for done, _ in enumerate(writers.map(write, range(object_count)), start=1):
            if done % 100 == 0 and sys.stderr.isatty():
                print(f"\r  {done}/{object_count}", end="", file=sys.stderr, flush=True)

    infos = list(store.list("demo/"))
    print(f"listed {len(infos)} objects")
    batches = [infos[i : i + BATCH_OBJECTS] for i in range(0, len(infos), BATCH_OBJECTS)]
    began_s, cpu_began_s = time.perf_counter(), cpu_s()
    first_batch_s = 0.0
    kept: list[list[headrace.Sample]] = []
    for samples in store.read_batches(batches):
        first_batch_s = first_batch_s or time.perf_counter() - began_s
        kept.append(samples)
    elapsed_s, used_s = time.perf_counter() - began_s, cpu_s() - cpu_began_s

    wrong = sum(
        bytes(sample) != content(index)
        for index, sample in enumerate(sample for batch in kept for sample in batch)
    )
    metrics = headrace.metrics()
    print(
        f"read {len(infos)} objects in {elapsed_s:.2f} s: {len(infos) / elapsed_s:,.0f} objects/s, "
        f"{used_s / len(infos) * 1e6:.0f} µs of CPU per object, "
        f"first batch after {first_batch_s * 1e3:.0f} ms"
    )
    print(
        f"{metrics.requests_total} requests, {metrics.connections_opened_total} connections, "
        f"{metrics.checksums_verified_total} checksums verified, {wrong} objects wrong"
    )
    for info in infos:
        store.delete(info.name)
    if wrong or len(infos) != object_count:
        raise SystemExit("the bytes that were read are not those that were written")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "url", nargs="?", help="gs://bucket or a folder; default: a temporary folder"
    )
    parser.add_argument("--objects", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.url:
        run(arguments.url, arguments.objects)
    else:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
            run(folder, arguments.objects)


if __name__ == "__main__":
    main()
