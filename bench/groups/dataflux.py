"""gcs-torch-dataflux and headrace.compat: the same script, the same server, another import."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google_crc32c

from bench import wrk
from bench.harness import (
    BATCH_SIZE,
    LATENCY_S,
    Answer,
    Bench,
    Client,
    cpu_us,
    rate,
    rate_ratios,
    ratios,
    say,
)
from bench.objects import KIB, MIB, Bucket
from testing.servers import DelayedServer, FakeGcsServer

UPLOADS = 8
NUM_WORKERS = (0, 2)
# Of the original's map-style dataset, with and without compose: what was best here. One thread is
# the default; with workers and without compose that takes as long as it seems, and is left out.
DATAFLUX_THREADS = {False: 32, True: 2}


@contextlib.contextmanager
def _server(bucket: Bucket, latency_s: float) -> Iterator[tuple[str, str]]:
    """fake-gcs-server with a bucket, and latency in front: its URL, and a file of the objects."""
    import headrace

    # Files in memory: of objects in its own memory it keeps a list, and looks through it each time.
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-", dir="/dev/shm") as folder,
        FakeGcsServer(objects_folder=Path(folder)) as server,
        tempfile.NamedTemporaryFile("w", suffix=".json") as file,
    ):
        say(f"{bucket.name}: storing {bucket.object_count} objects")
        server.make_bucket(bucket.name)
        store = headrace.Store(f"gs://{bucket.name}", endpoint=server.url)

        def put(index: int) -> int:
            content = b"".join(bucket.pieces(index))
            store.write(bucket.object_name(index), content)
            return int(google_crc32c.value(content))

        with ThreadPoolExecutor(UPLOADS) as threads:
            sums = list(threads.map(put, range(bucket.object_count)))
        json.dump(([bucket.object_name(i) for i in range(bucket.object_count)], sums), file)
        file.flush()
        headrace.shutdown()
        with DelayedServer(server.url, latency_s=latency_s) as delayed:
            yield delayed.url, file.name


def _duel(bench: Bench, bucket: Bucket, *, times_faster: float, raw_connections: int) -> None:
    kib = bucket.sizes_bytes[0] // KIB
    size = f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"
    group = (
        f"dataflux: {bucket.object_count:,} objects of {size}, fake-gcs-server, "
        f"{LATENCY_S * 1e3:.0f} ms, batch {BATCH_SIZE}"
    )
    with _server(bucket, LATENCY_S) as (url, objects_file):

        def client(name: str, **request: Any) -> Client:
            return lambda: bench.client(
                name,
                endpoint=url,
                bucket=bucket.name,
                objects_file=objects_file,
                batch_size=BATCH_SIZE,
                warm_up_s=bench.effort.duel_warm_up_s,
                duration_s=bench.effort.duel_s,
                timeout_s=180,
                **request,
            )

        clients: dict[str, Client] = {}
        for kind in ("map", "iterable"):
            for num_workers in NUM_WORKERS:
                for compose in (False, True):
                    request = {"kind": kind, "num_workers": num_workers, "compose": compose}
                    name = f"{kind}, {num_workers} workers{', compose' if compose else ''}"
                    # The iterable one reads by one.
                    threads = [1] if kind == "iterable" or num_workers == 0 else []
                    threads += [DATAFLUX_THREADS[compose]] if kind == "map" else []
                    for count in threads:
                        clients[f"dataflux, {count} threads, {name}"] = client(
                            "dataflux", threads=count, **request
                        )
                    if compose and num_workers > 0:
                        continue
                    clients[f"headrace.compat, {name}"] = client(
                        "compat", threads=1, env={"HEADRACE_COMPOSE": str(int(compose))}, **request
                    )
        paths = bucket.media_paths(None)
        clients["raw"] = lambda: wrk.run(
            url,
            paths,
            connection_count=raw_connections,
            duration_s=max(1, round(bench.effort.duel_s)),
        )
        answers = bench.alternate(group, clients, bench.effort.peer_repetitions)
    for kind in ("map", "iterable"):
        _verdict(bench, group, kind, answers, times_faster=times_faster)
    for name, found in answers.items():
        bench.rates(group, name, found)
        bench.cpu(group, name, found)


def _settings(answers: dict[str, list[Answer]], package: str, settings: str) -> list[list[Answer]]:
    """What was measured of a package with these settings, whatever the others were."""
    return [
        found
        for name, found in answers.items()
        if name.startswith(package) and settings in name and found
    ]


def _quickest(found: list[list[Answer]]) -> list[Answer]:
    return max(found, key=lambda each: statistics.median(map(rate, each)), default=[])


def _cheapest(found: list[list[Answer]]) -> list[Answer]:
    return min(found, key=lambda each: statistics.median(cpu_us(each)), default=[])


def _verdict(
    bench: Bench, group: str, kind: str, answers: dict[str, list[Answer]], *, times_faster: float
) -> None:
    ours = _quickest(_settings(answers, "headrace.compat", kind))
    theirs = _quickest(_settings(answers, "dataflux", kind))
    raw = answers["raw"]
    times = rate_ratios(ours, theirs)
    of_raw = rate_ratios(ours, raw)
    # How far each of the two targets is reached; one of them is enough.
    reached = [
        max(mine / times_faster, share / 0.8) for mine, share in zip(times, of_raw, strict=False)
    ]
    bench.row(
        group,
        f"{kind}: objects/s, best over best, of {times_faster:.0f} x or 0.8 of the raw rate",
        "",
        reached,
        at_least=1,
    )
    bench.row(group, f"{kind}: objects/s, best over best", "x", times)
    bench.row(group, f"{kind}: objects/s, share of the server's raw rate", "", of_raw)
    name = f"{kind}: client CPU per object, over dataflux's"
    for num_workers in NUM_WORKERS:
        settings = f"{kind}, {num_workers} workers"
        mine = _cheapest(_settings(answers, "headrace.compat", settings))
        cheapest = _cheapest(_settings(answers, "dataflux", settings))
        # Composing leaves most of the work to the server.
        directly = _cheapest(
            [
                found
                for label, found in answers.items()
                if label.startswith("dataflux") and label.endswith(settings) and found
            ]
        )
        for way, beside in (("either way", cheapest), ("that reads directly", directly)):
            shares = ratios(cpu_us(mine), cpu_us(beside))
            bench.row(group, f"{name} {way}, {num_workers} workers", "", shares, at_most=0.1)


def dataflux_small(bench: Bench) -> None:
    """20,000 objects of 100 KiB."""
    count = bench.effort.duel_small_objects
    _duel(
        bench,
        Bucket(name="duel-100k", object_count=count, sizes_bytes=(100 * KIB,)),
        times_faster=10,
        raw_connections=256,
    )


def dataflux_large(bench: Bench) -> None:
    """2,000 objects of 3 MiB."""
    count = bench.effort.duel_large_objects
    _duel(
        bench,
        Bucket(name="duel-3m", object_count=count, sizes_bytes=(3 * MIB,)),
        times_faster=4,
        raw_connections=32,
    )


def dataflux_epoch(bench: Bench) -> None:
    """An epoch of 500 objects in a process that has read nothing yet."""
    group = "dataflux: an epoch of 500 objects of 100 KiB, 20 ms, one process, batch 100"
    bucket = Bucket(name="epoch-100k", object_count=500, sizes_bytes=(100 * KIB,))
    with _server(bucket, 0.020) as (url, objects_file):

        def client(name: str, **request: Any) -> Client:
            return lambda: bench.client(
                name,
                endpoint=url,
                bucket=bucket.name,
                objects_file=objects_file,
                batch_size=100,
                num_workers=0,
                **request,
            )

        ours = {
            f"headrace.compat, {kind}": client("compat-epoch", kind=kind, threads=1, compose=False)
            for kind in ("map", "iterable")
        }
        answers = bench.alternate(group, ours, bench.effort.repetitions)
        theirs = {
            f"dataflux, map, {threads} threads{', compose' if compose else ''}": client(
                "dataflux-epoch", kind="map", threads=threads, compose=compose
            )
            for threads, compose in ((1, False), (16, False), (1, True))
        }
        beside = bench.alternate(group, theirs, bench.effort.peer_repetitions)
    for name, found in answers.items():
        bench.row(group, f"{name}: an epoch", "s", [a["wall_s"] for a in found], at_most=0.35)
    for name, found in beside.items():
        bench.row(group, f"{name}: an epoch", "s", [a["wall_s"] for a in found])


GROUPS: dict[str, Callable[[Bench], None]] = {
    "dataflux-epoch": dataflux_epoch,
    "dataflux-small": dataflux_small,
    "dataflux-large": dataflux_large,
}
