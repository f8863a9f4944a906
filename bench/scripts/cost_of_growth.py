"""What an object costs as work grows: in size, in number, and in processes.

    cost_of_growth.py RESULTS.json FILE.svg [--quick]
    cost_of_growth.py --plot RESULTS.json FILE.svg

Objects of 1 KiB to 150 MiB from the fault server, and as files whose pages are in memory or were
dropped by posix_fadvise; indexes of 1,000 to 10 million names; 1 to 8 processes that read at the
same time. Each measurement is a process of its own, or several, that has imported everything and
then begins: CPU and time for each object, time until the first batch, and the peak of memory. It
takes about five minutes on two idle cores. Run it with PYTHONPATH at the root of the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.clients.measure import cpu_s, forget_peak, status_bytes
from testing.circumstances import circumstances
from testing.faultserver.client import FaultServer

KIB, MIB = 1 << 10, 1 << 20
SIZES_BYTES = [1 * KIB, 10 * KIB, 100 * KIB, 1 * MIB, 10 * MIB, 150 * MIB]
COUNTS = [10**3, 10**4, 10**5, 10**6, 10**7]
PROCESSES = [1, 2, 4, 8]
BATCH_BYTES = 8 * MIB  # of a batch, or one object
FILES_BYTES = 300 * MIB  # of all files of one size; at most 4,000 files
Answer = dict[str, Any]


# ---- one measurement


def _store(request: Answer) -> Any:
    import headrace

    if endpoint := request.get("endpoint"):
        return headrace.Store(request["url"], endpoint=endpoint, credentials="anonymous")
    return headrace.Store(request["url"])


def _batches(index: Any, batch_size: int, until_s: float, rounds: int) -> Iterator[Any]:
    for _ in range(rounds):
        for begin in range(0, len(index), batch_size):
            if time.perf_counter() >= until_s:
                return
            yield index.select(range(begin, min(begin + batch_size, len(index))))


def measure(request: Answer) -> Answer:
    """List the names, and read until the time is over, or all of them `rounds` times."""
    import headrace  # noqa: F401

    forget_peak()
    before_bytes, began_s, began_cpu_s = status_bytes("VmRSS"), time.perf_counter(), cpu_s()
    store = _store(request)
    index = store.index()
    index_s, index_cpu_s = time.perf_counter() - began_s, cpu_s() - began_cpu_s
    batch_size = max(1, min(64, BATCH_BYTES // request["size_bytes"]))
    (first,) = store.read_batches([index.select(range(min(batch_size, len(index))))])
    first_s = time.perf_counter() - began_s
    del first
    begin_s, begin_cpu_s, objects = time.perf_counter(), cpu_s(), 0
    until_s = begin_s + request["duration_s"]
    for samples in store.read_batches(_batches(index, batch_size, until_s, request["rounds"])):
        objects += len(samples)
    return {
        "names": len(index),
        "index_s": index_s,
        "index_cpu_s": index_cpu_s,
        "first_batch_s": first_s,
        "objects": objects,
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": cpu_s() - begin_cpu_s,
        "peak_bytes": status_bytes("VmHWM") - before_bytes,
    }


def _run(requests: Sequence[Answer]) -> list[Answer]:
    """Several at the same time, each in a process of its own."""
    command = [sys.executable, "-m", "bench.scripts.cost_of_growth", "--child"]
    running = [
        subprocess.Popen([*command, json.dumps(request)], stdout=subprocess.PIPE, text=True)
        for request in requests
    ]
    answers = []
    for process in running:
        output = process.communicate(timeout=300)[0]
        if process.returncode != 0:
            raise RuntimeError(f"a measurement ended with {process.returncode}")
        answers.append(json.loads(output.strip().splitlines()[-1]))
    return answers


# ---- the three series


def _drop_pages(folder: Path) -> None:
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)  # only clean pages can be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def sizes(duration_s: float) -> list[Answer]:
    """Objects of each size: from a server, from files in memory, and from files on the disk."""
    rows = []
    with FaultServer(threads=2, log_capacity=1, md5=False) as server:
        for size_bytes in SIZES_BYTES:
            count = max(2, min(4_000, FILES_BYTES // size_bytes))
            server.synthetic("sizes", count, size_bytes)
            request = {"size_bytes": size_bytes, "duration_s": duration_s, "rounds": 10**6}
            (answer,) = _run([{**request, "url": "gs://sizes", "endpoint": server.url}])
            rows.append({"from": "gs://, fault server", "size_bytes": size_bytes, **answer})
    for size_bytes in SIZES_BYTES:
        count = max(2, min(4_000, FILES_BYTES // size_bytes))
        with tempfile.TemporaryDirectory(dir="build") as folder:
            for i in range(count):
                (Path(folder) / f"object-{i:06d}").write_bytes(os.urandom(size_bytes))
            request = {"size_bytes": size_bytes, "duration_s": 60, "url": folder}
            _drop_pages(Path(folder))
            (answer,) = _run([{**request, "rounds": 1}])
            rows.append({"from": "file://, cold", "size_bytes": size_bytes, **answer})
            rounds = max(1, 8_000 // count) if size_bytes <= MIB else 2
            (answer,) = _run([{**request, "rounds": rounds}])
            rows.append({"from": "file://, warm", "size_bytes": size_bytes, **answer})
    return rows


def counts(largest: int) -> list[Answer]:
    """Indexes of that many names, of which a few objects are read."""
    rows = []
    with FaultServer(threads=2, log_capacity=1, md5=False) as server:
        for count in (each for each in COUNTS if each <= largest):
            server.synthetic("counts", count, KIB)
            request = {"size_bytes": KIB, "duration_s": 0.5, "rounds": 1}
            (answer,) = _run([{**request, "url": "gs://counts", "endpoint": server.url}])
            rows.append({"count": count, **answer})
    return rows


def processes(duration_s: float) -> list[Answer]:
    """That many processes read from one server at the same time."""
    rows = []
    with FaultServer(threads=2, log_capacity=1, md5=False) as server:
        for size_bytes in (1 * KIB, 100 * KIB):
            server.synthetic("processes", 2_000, size_bytes)
            request = {"size_bytes": size_bytes, "duration_s": duration_s, "rounds": 10**6}
            request |= {"url": "gs://processes", "endpoint": server.url}
            for number in PROCESSES:
                answers = _run([request] * number)
                rows.append({"processes": number, "size_bytes": size_bytes, "answers": answers})
    return rows


# ---- the plot


def plot(results: Answer, file: Path) -> None:
    """CPU and time for each object over size, number and processes; memory beside them."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7), layout="constrained")
    by_place: dict[str, list[Answer]] = {}
    for row in results["sizes"]:
        by_place.setdefault(row["from"], []).append(row)
    for place, rows in by_place.items():
        at = [row["size_bytes"] for row in rows]
        cost = [row["cpu_s"] / row["objects"] * 1e6 for row in rows]
        axes[0][0].plot(at, cost, marker="o", label=f"{place}, CPU")
        peak = [row["peak_bytes"] / MIB for row in rows]
        axes[1][0].plot(at, peak, marker="o", label=place)
    axes[0][0].set(xscale="log", yscale="log", xlabel="bytes of an object", ylabel="us an object")
    axes[1][0].set(xscale="log", xlabel="bytes of an object", ylabel="peak memory, MiB")
    rows = results["counts"]
    at = [row["count"] for row in rows]
    first = [row["first_batch_s"] for row in rows]
    per_name = [row["index_cpu_s"] / row["count"] * 1e6 for row in rows]
    axes[0][1].plot(at, first, marker="o", label="until the first batch, s")
    axes[0][1].plot(at, per_name, marker="o", label="CPU of listing a name, us")
    axes[0][1].set(xscale="log", yscale="log", xlabel="objects", ylabel="s, us")
    peak = [row["peak_bytes"] / MIB for row in rows]
    axes[1][1].plot(at, peak, marker="o", label="peak memory")
    axes[1][1].set(xscale="log", yscale="log", xlabel="objects", ylabel="MiB")
    for size_bytes in (1 * KIB, 100 * KIB):
        rows = [row for row in results["processes"] if row["size_bytes"] == size_bytes]
        at = [row["processes"] for row in rows]
        label = f"{size_bytes // KIB} KiB"
        cost = [
            sum(a["cpu_s"] for a in row["answers"]) / sum(a["objects"] for a in row["answers"])
            for row in rows
        ]
        axes[0][2].plot(at, [each * 1e6 for each in cost], marker="o", label=f"{label}, CPU")
        peak = [statistics.mean(a["peak_bytes"] for a in row["answers"]) / MIB for row in rows]
        axes[1][2].plot(at, peak, marker="o", label=label)
    axes[0][2].set(xlabel="processes", ylabel="us an object")
    axes[1][2].set(xlabel="processes", ylabel="peak memory of each, MiB")
    for each in axes.flat:
        each.set_ylim(bottom=0) if each.get_yscale() == "linear" else None
        each.grid(visible=True, which="both", alpha=0.3)
        each.legend(fontsize="small")
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--plot", action="store_true", help="only plot what was measured before")
    parser.add_argument("--quick", action="store_true", help="less time, and a million names")
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("file", type=Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(json.loads(arguments.child))))
        return
    if arguments.results is None or arguments.file is None:
        parser.error("name the file of results and the one of the plot")
    if not arguments.plot:
        duration_s = 0.5 if arguments.quick else 2.0
        began_s = time.perf_counter()
        results = circumstances("bench/scripts/cost_of_growth.py", {})
        results["sizes"] = sizes(duration_s)
        results["counts"] = counts(10**6 if arguments.quick else 10**7)
        results["processes"] = processes(duration_s)
        results["took_s"] = round(time.perf_counter() - began_s, 1)
        arguments.results.write_text(json.dumps(results, indent=1) + "\n")
    plot(json.loads(arguments.results.read_text()), arguments.file)


if __name__ == "__main__":
    main()
