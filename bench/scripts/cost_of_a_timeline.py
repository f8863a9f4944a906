"""What recording a timeline costs: CPU time or instructions of 1 KiB reads, with it and without.

    PYTHONPATH=build/release/python:. python bench/scripts/cost_of_a_timeline.py cpu 15
    PYTHONPATH=build/release/python:. python bench/scripts/cost_of_a_timeline.py instructions

`cpu` reads in one process, in turn without and with a recording, and prints the CPU time of the
process for each object: the median of the rounds, and the spread. `instructions` runs two
processes under callgrind that differ in nothing but the recording, and prints the instructions of
each object (those of twice as many objects, less those of half). Its file is not written: the cost
is that of the reads. PYTHONPATH may name another build to compare with; one that cannot record is
measured without.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import headrace
from headrace import _engine
from testing.faultserver.client import FaultServer

OBJECTS = 1000
CAN_RECORD = hasattr(_engine, "begin_timeline")


def read(store: headrace.Store, names: list[str], rounds: int) -> None:
    for samples in store.read_batches(
        names[at : at + 100] for _ in range(rounds) for at in range(0, len(names), 100)
    ):
        assert len(samples[0]) == 1024


def cpu(url: str, rounds: int) -> None:
    store = headrace.Store("gs://bucket", endpoint=url)
    names = [f"o{i:04d}" for i in range(OBJECTS)]
    read(store, names, 5)
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * rounds):
        records = number % 2 == 1 and CAN_RECORD
        if records:
            _engine.begin_timeline(1 << 16)
        begin_s = time.process_time()
        read(store, names, 20)
        used_s = time.process_time() - begin_s
        if records:
            attempts, dropped = _engine.end_timeline()
            assert len(attempts) == 20 * OBJECTS
            assert dropped == 0
        found[records].append(1e6 * used_s / (20 * OBJECTS))
    for records, each in found.items():
        if each:
            print(
                f"recording {records}: {statistics.median(each):.3f} us an object, "
                f"{min(each):.3f} to {max(each):.3f}, n = {len(each)}"
            )


def child(url: str, records: bool, rounds: int) -> None:
    store = headrace.Store("gs://bucket", endpoint=url)
    names = [f"o{i:04d}" for i in range(OBJECTS)]
    if records:
        _engine.begin_timeline(1 << 16)
    read(store, names, rounds)


def instructions(url: str) -> None:
    for records in (False, True) if CAN_RECORD else (False,):
        counts = []
        for rounds in (5, 15):
            with TemporaryDirectory() as folder:
                out = Path(folder) / "out"
                subprocess.run(
                    ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable]
                    + [__file__, "child", url, str(int(records)), str(rounds)],
                    check=True,
                    stderr=subprocess.DEVNULL,
                )
                found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
                assert found is not None
                counts.append(int(found[1]))
        per_object = (counts[1] - counts[0]) / (10 * OBJECTS)
        print(f"recording {records}: {per_object:,.0f} instructions an object", flush=True)


def main() -> None:
    if sys.argv[1] == "child":
        child(sys.argv[2], sys.argv[3] == "1", int(sys.argv[4]))
        return
    with FaultServer() as server:
        server.bucket("bucket")
        for i in range(OBJECTS):
            server.put("bucket", f"o{i:04d}", b"x" * 1024)
        if sys.argv[1] == "cpu":
            cpu(server.url, int(sys.argv[2]))
        else:
            instructions(server.url)


if __name__ == "__main__":
    main()
