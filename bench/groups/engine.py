"""The engine and its Python face without torch, beside other clients of the same servers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

from bench import objects
from bench.harness import (
    BATCH_SIZE,
    BUDGET_BYTES,
    LATENCY_S,
    Answer,
    Bench,
    Client,
    Connections,
    cpu_us,
    rate_ratios,
    ratios,
)
from bench.objects import GIB, KIB, MIB, Bucket
from testing.servers import Certificates, FakeGcsServer

# What the peers' own documentation recommends is no more; more did not make them faster.
OBSTORE_CONCURRENCY = 64
OBSTORE_LATENCY_CONCURRENCY = 512
GOOGLE_THREADS = 32


def _read_many(
    bench: Bench,
    group: str,
    endpoint: str,
    bucket: Bucket,
    *,
    repetitions: int,
    object_count: int | None = None,
    generation: str | None = objects.GENERATION,
    at_most_us: float | None = None,
    at_least_share: float | None = None,
) -> None:
    """headrace, wrk, obstore and google-cloud-storage read the same objects."""
    count = object_count or bucket.object_count
    connections = Connections()
    answers = bench.alternate(
        group,
        {
            "headrace": connections.of(lambda: bench.many("headrace", endpoint, bucket)),
            "wrk": lambda: bench.wrk(
                endpoint,
                bucket,
                connection_count=connections.count,
                generation=generation,
                object_count=count,
            ),
            "obstore": lambda: bench.many(
                "obstore",
                endpoint,
                bucket,
                object_count=count,
                concurrency=OBSTORE_CONCURRENCY,
            ),
            "google-cloud-storage": lambda: bench.many(
                "google-cloud-storage",
                endpoint,
                bucket,
                object_count=count,
                concurrency=GOOGLE_THREADS,
            ),
        },
        repetitions,
    )
    found = answers["headrace"]
    bench.cpu(group, "headrace", found, at_most=at_most_us)
    shares = rate_ratios(found, answers["wrk"])
    bench.row(group, "headrace: objects/s, share of wrk's", "", shares, at_least=at_least_share)
    bench.rates(group, "headrace", found)
    bench.row(group, "headrace: connections", "", [a["connections"] for a in found])
    for peer in ("wrk", "obstore", "google-cloud-storage"):
        bench.cpu(group, peer, answers[peer])
        bench.rates(group, peer, answers[peer])


def batches(bench: Bench) -> None:
    with bench.nginx(objects.MIDDLE, objects.SMALL) as server:
        _read_many(
            bench,
            "100 KiB, nginx",
            server.url,
            objects.MIDDLE,
            repetitions=bench.effort.repetitions,
            at_most_us=40,
            at_least_share=0.5,
        )
        _read_many(
            bench,
            "1 KiB, nginx",
            server.url,
            objects.SMALL,
            repetitions=bench.effort.repetitions,
            at_most_us=12,
            at_least_share=0.4,
        )


def fake(bench: Bench) -> None:
    objects.make(bench.root, (objects.MIDDLE, objects.SMALL))
    with FakeGcsServer() as server:
        for bucket, count in ((objects.MIDDLE, 500), (objects.SMALL, 2000)):
            server.make_bucket(bucket.name)
            for index in range(count):
                name = bucket.object_name(index)
                server.put(bucket.name, name, (bench.root / bucket.name / name).read_bytes())
            _read_many(
                bench,
                f"{bucket.sizes_bytes[0] // KIB} KiB, fake-gcs-server",
                server.url,
                bucket,
                repetitions=bench.effort.peer_repetitions,
                object_count=count,
                generation=None,  # the server gives each object its own
            )


def latency(bench: Bench) -> None:
    group = f"100 KiB, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    warm_up_s = 2 * bench.effort.duration_s
    with bench.nginx(objects.MIDDLE, latency_s=LATENCY_S) as server:
        answers = bench.alternate(
            group,
            {
                "headrace": lambda: bench.many(
                    "headrace", server.url, objects.MIDDLE, warm_up_s=warm_up_s
                ),
                "wrk": lambda: bench.wrk(
                    server.url,
                    objects.MIDDLE,
                    connection_count=OBSTORE_LATENCY_CONCURRENCY,
                ),
                "obstore": lambda: bench.many(
                    "obstore",
                    server.url,
                    objects.MIDDLE,
                    warm_up_s=warm_up_s,
                    concurrency=OBSTORE_LATENCY_CONCURRENCY,
                ),
            },
            bench.effort.repetitions,
        )
    found = answers["headrace"]
    bench.rates(group, "headrace", found, at_least=10_000)
    shares = rate_ratios(found, answers["wrk"])
    bench.row(group, "headrace: objects/s, share of wrk's", "", shares)
    bench.cpu(group, "headrace", found)
    bench.row(group, "headrace: connections", "", [a["connections"] for a in found])
    for peer in ("wrk", "obstore"):
        bench.rates(group, f"{peer}, {OBSTORE_LATENCY_CONCURRENCY} at once", answers[peer])
        bench.cpu(group, peer, answers[peer])


def large(bench: Bench) -> None:
    bucket = bench.effort.huge
    group = f"one object of {bucket.sizes_bytes[0] / GIB:g} GiB by parallel ranges, nginx"
    with bench.nginx(bucket) as server:
        ours = bench.alternate(
            group,
            {"headrace": lambda: bench.many("headrace-into", server.url, bucket)},
            bench.effort.repetitions,
        )["headrace"]
        peer = bench.alternate(
            group,
            {
                "obstore": lambda: bench.many(
                    "obstore-into", server.url, bucket, size_bytes=bucket.sizes_bytes[0]
                )
            },
            bench.effort.peer_repetitions,
        )["obstore"]
    bench.row(
        group,
        "headrace: client CPU per GiB",
        "s",
        [a["cpu_s"] / (a["bytes"] / GIB) for a in ours],
        at_most=0.35,
    )
    bench.row(group, "headrace: GiB/s", "", [a["bytes"] / GIB / a["wall_s"] for a in ours])
    bench.row(
        group,
        "obstore: client CPU per GiB",
        "s",
        [a["cpu_s"] / (a["bytes"] / GIB) for a in peer],
    )
    bench.row(group, "obstore: GiB/s", "", [a["bytes"] / GIB / a["wall_s"] for a in peer])


def tls(bench: Bench) -> None:
    group = "100 KiB, nginx over TLS"
    certificates = Certificates(bench.folder / "certificates")
    connections = Connections()
    with bench.nginx(objects.MIDDLE, certificates=certificates) as server:
        answers = bench.alternate(
            group,
            {
                "headrace": connections.of(
                    lambda: bench.many(
                        "headrace",
                        server.url,
                        objects.MIDDLE,
                        env={"SSL_CERT_FILE": str(certificates.ca_file)},
                    )
                ),
                "wrk": lambda: bench.wrk(
                    server.url,
                    objects.MIDDLE,
                    connection_count=connections.count,
                    # Twice as long: its handshakes are in its CPU, ours are in the warm-up.
                    duration_s=2 * bench.effort.duration_s,
                ),
                "obstore": lambda: bench.many(
                    "obstore", server.url, objects.MIDDLE, concurrency=OBSTORE_CONCURRENCY
                ),
            },
            bench.effort.repetitions,
        )
    times = ratios(cpu_us(answers["headrace"]), cpu_us(answers["wrk"]))
    bench.row(group, "headrace: client CPU per object, over wrk's", "", times, at_most=1.35)
    for name in answers:
        bench.cpu(group, name, answers[name])
        bench.rates(group, name, answers[name])


def memory(bench: Bench) -> None:
    group = f"peak memory above the start, less the budget of {BUDGET_BYTES // MIB} MiB"
    workloads = {
        "1 KiB, listed": (objects.SMALL, BATCH_SIZE, False),
        "100 KiB, listed": (objects.MIDDLE, BATCH_SIZE, False),
        "0 B to 2 MiB, listed": (objects.MIXED, BATCH_SIZE, False),
        "0 B to 2 MiB, by name": (objects.MIXED, BATCH_SIZE, True),
        "64 MiB, by name": (objects.LARGE, 2, True),
    }
    with bench.nginx(*(bucket for bucket, _, _ in workloads.values())) as server:

        def client(bucket: Bucket, batch_size: int, by_name: bool) -> Client:
            return lambda: bench.many(
                "headrace-memory",
                server.url,
                bucket,
                duration_s=1.0,
                budget_bytes=BUDGET_BYTES,
                batch_size=batch_size,
                by_name=by_name,
            )

        answers = bench.alternate(
            group,
            {name: client(*workload) for name, workload in workloads.items()},
            bench.effort.repetitions,
        )
    for name, found in answers.items():
        bench.row(
            group,
            name,
            "MiB",
            [(a["above_start_bytes"] - BUDGET_BYTES) / MIB for a in found],
            at_most=64,
        )


def import_time(bench: Bench) -> None:
    group = "start"

    def python(code: str) -> Client:
        def run() -> Answer:
            begin_s = time.perf_counter()
            process = subprocess.Popen([bench.python(), "-c", code])
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise RuntimeError(f"python -c {code!r} ended with {process.returncode}")
            return {
                "wall_s": time.perf_counter() - begin_s,
                "cpu_s": usage.ru_utime + usage.ru_stime,
            }

        return run

    # Once before, so that neither pays for a cold disk.
    python("import headrace")()
    answers = bench.alternate(
        group,
        {"pass": python("pass"), "import headrace": python("import headrace")},
        bench.effort.import_repetitions,
    )
    bench.row(
        group,
        "import headrace, above Python's own start",
        "ms",
        [
            (a["wall_s"] - b["wall_s"]) * 1e3
            for a, b in zip(answers["import headrace"], answers["pass"], strict=False)
        ],
        at_most=50,
    )
    # Wall time is the promise; CPU time is what is left of it on a busy machine.
    bench.row(
        group,
        "import headrace, CPU above Python's own start",
        "ms",
        [
            (a["cpu_s"] - b["cpu_s"]) * 1e3
            for a, b in zip(answers["import headrace"], answers["pass"], strict=False)
        ],
    )


def idle(bench: Bench) -> None:
    group = "an idle engine"
    with bench.nginx(objects.MIDDLE) as server:
        found = bench.alternate(
            group,
            {
                "headrace": lambda: bench.many(
                    "headrace-idle",
                    server.url,
                    objects.MIDDLE,
                    duration_s=bench.effort.idle_s,
                )
            },
            bench.effort.peer_repetitions,
        )["headrace"]
    bench.row(group, "CPU per second", "ms", [a["cpu_s"] / a["wall_s"] * 1e3 for a in found])


GROUPS: dict[str, Callable[[Bench], None]] = {
    "batches": batches,
    "latency": latency,
    "large": large,
    "tls": tls,
    "memory": memory,
    "import": import_time,
    "idle": idle,
    "fake": fake,
}
