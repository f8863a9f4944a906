"""MLPerf Storage's models that are small enough, or shaped so, for two cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.groups.parquet import Tables
from bench.harness import S3, Answer, Bench, Client, cpu_us, ratios
from bench.objects import Bucket

# retinanet of MLPerf Storage 3.0 for B200, as it is: nothing is scaled, and nothing decoded.
_SIZE_BYTES = 322_957
_BATCH_SIZE = 24
_COMPUTATION_S = 0.04755
_AU = 0.85
RETINANET = Bucket(name="bench-retinanet", object_count=2_000, sizes_bytes=(_SIZE_BYTES,))
# What is best depends on the machine, so the best of them counts.
_PEERS = {"s3torchconnector": (8, 32), "s3dlio": (32, 128)}


def retinanet(bench: Bench) -> None:
    """How many emulated accelerators one core keeps busy, by us and by other clients of S3."""
    group = f"mlperf: retinanet, objects of {_SIZE_BYTES:,} bytes, one core, nginx as S3"
    cores = sorted(os.sched_getaffinity(0))
    with _on(cores[1:]), bench.nginx(RETINANET, s3=True) as server:

        def client(name: str, **request: Any) -> Client:
            return lambda: bench.many(
                name,
                server.url,
                RETINANET,
                batch_size=_BATCH_SIZE,
                size_bytes=_SIZE_BYTES,
                computation_s=_COMPUTATION_S,
                au=_AU,
                duration_s=2 * bench.effort.duration_s,
                epoch_objects=200_000,
                cores=cores[:1],
                timeout_s=300,
                **request,
                **S3,
            )

        clients = {"headrace": client("mlperf")} | {
            f"{name}, {concurrency} at once": client(f"mlperf-{name}", concurrency=concurrency)
            for name, each in _PEERS.items()
            for concurrency in each
        }
        answers = bench.alternate(group, clients, bench.effort.peer_repetitions)
    counts = {name: _accelerators(found) for name, found in answers.items()}
    ours = counts["headrace"]
    theirs = [found for name, found in counts.items() if name != "headrace" and found]
    best = [max(each) for each in zip(*theirs, strict=True)]
    if 0 not in best:
        bench.row(
            group, "accelerators, over the best other client's", "x", ratios(ours, best), at_least=2
        )
    for name, found in answers.items():
        bench.row(group, f"{name}: accelerators with an AU of {_AU:.0%}", "", counts[name])
        cpu = cpu_us(found)
        bench.row(group, f"{name}: client CPU per sample", "us", cpu)
        # As many as would use all of the core, if nothing but its time counted.
        whole = [_COMPUTATION_S / _BATCH_SIZE / (each / 1e6) for each in cpu]
        bench.row(group, f"{name}: accelerators, by CPU alone", "", whole)


@contextlib.contextmanager
def _on(cores: Sequence[int]) -> Iterator[None]:
    """Run what starts here on these cores, if there are any; a client chooses its own."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _accelerators(answers: Sequence[Answer]) -> list[float]:
    return [float(answer["accelerators"]) for answer in answers]


_COLUMNS = 200
_GROUP_ROWS = 6_144
_GROUPS_PER_FILE = 8


# DLRM's shape: 200 columns of float32, row groups of 6,144 rows.
CLICKS = Tables(
    name="bench-dlrm", object_count=4, sizes_bytes=(), columns=_COLUMNS,
    groups_per_file=_GROUPS_PER_FILE, group_rows=_GROUP_ROWS, dtype="float32",
)  # fmt: skip
_WANTED = {
    "40 of 200 columns, side by side": [f"column {i}" for i in range(40)],
    "40 of 200 columns, every fifth": [f"column {i}" for i in range(0, _COLUMNS, 5)],
}


def dlrm(bench: Bench) -> None:
    """Of tables, the bytes that are read for those of the wanted columns."""
    group = "mlperf: DLRM's shape, 40 of 200 columns, nginx"
    with bench.nginx(CLICKS) as server:

        def client(columns: list[str]) -> Client:
            folder = str((bench.root / CLICKS.name).resolve())
            return lambda: bench.many(
                "parquet-columns", server.url, CLICKS, columns=columns, folder=folder
            )

        answers = bench.alternate(
            group,
            {name: client(columns) for name, columns in _WANTED.items()},
            bench.effort.peer_repetitions,
        )
    for (name, found), at_most in zip(answers.items(), (1.05, None), strict=True):
        read = [each["read_bytes"] / each["column_bytes"] for each in found]
        bench.row(group, f"{name}: bytes read, over theirs", "x", read, at_most=at_most)
        requests = [each["requests"] for each in found]
        bench.row(group, f"{name}: requests, for {4 * _GROUPS_PER_FILE} row groups", "", requests)
        cpu = [each["cpu_s"] / (each["column_bytes"] / 1e9) for each in found]
        bench.row(group, f"{name}: client CPU per GB of them", "s", cpu)


GROUPS: dict[str, Callable[[Bench], None]] = {"mlperf": retinanet, "mlperf-dlrm": dlrm}
