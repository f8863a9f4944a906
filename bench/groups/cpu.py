"""CPU per object beside the least that a client can do, and beside the version before."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable

from bench import objects
from bench.harness import (
    BATCH_SIZE,
    LATENCY_S,
    Answer,
    Bench,
    Client,
    Connections,
    cpu_us,
    environment_before,
    ratios,
)
from bench.objects import Bucket

KEPT_OBJECTS = 4 * BATCH_SIZE  # what read_batches has at the same time: some batches


def _epoll(bench: Bench, url: str, bucket: Bucket, connections: Connections) -> Client:
    def run() -> Answer:
        with tempfile.NamedTemporaryFile("w", suffix=".paths") as file:
            file.write("\n".join(bucket.media_paths(objects.GENERATION)))
            file.flush()
            return bench.program(
                "bench/headrace-bench-epoll",
                url.rsplit(":", 1)[1],
                file.name,
                str(connections.count),
                str(bench.effort.duration_s),
                str(KEPT_OBJECTS),
            )

    return run


def _costs(
    bench: Bench, url: str, bucket: Bucket, group: str, epoch_objects: int, at_most: float
) -> None:
    connections = Connections()
    clients: dict[str, Client] = {
        "read_batches": connections.of(lambda: bench.many("headrace", url, bucket)),
        "epoll": _epoll(bench, url, bucket, connections),
        "Loader": lambda: bench.many(
            "loader",
            url,
            bucket,
            epoch_objects=epoch_objects,
            warm_up_objects=epoch_objects // 4,
        ),
    }
    if (before := environment_before()) is not None:
        clients["before"] = lambda: bench.many("headrace", url, bucket, env=before)
    answers = bench.alternate(group, clients, bench.effort.repetitions)
    found = cpu_us(answers["read_batches"])
    bench.cpu(group, "read_batches", answers["read_batches"])
    bench.rates(group, "read_batches", answers["read_batches"])
    bench.cpu(group, "epoll, one thread, as little as possible", answers["epoll"])
    bench.row(
        group,
        "read_batches: CPU per object, over epoll's",
        "",
        ratios(found, cpu_us(answers["epoll"])),
        at_most=1.15,
    )
    above = [a - b for a, b in zip(cpu_us(answers["Loader"]), found, strict=False)]
    bench.row(group, "Loader: CPU per object above read_batches", "us", above, at_most=3.0)
    if "before" in answers:
        shares = ratios(found, cpu_us(answers["before"]))
        bench.cpu(group, "before", answers["before"])
        bench.row(group, "read_batches: CPU, over that before", "", shares, at_most=at_most)


def cpu(bench: Bench) -> None:
    """100 KiB and 1 KiB from nginx."""
    with bench.nginx(objects.MIDDLE, objects.SMALL) as server:
        _costs(bench, server.url, objects.MIDDLE, "cpu: 100 KiB", bench.effort.middle_objects, 0.9)
        _costs(bench, server.url, objects.SMALL, "cpu: 1 KiB", bench.effort.small_objects, 0.83)


def cpu_latency(bench: Bench) -> None:
    """How well the in-flight limit is used when each answer takes 30 ms."""
    group = "cpu: 100 KiB, first byte after 30 ms"
    with bench.nginx(objects.MIDDLE, latency_s=LATENCY_S) as server:
        answers = bench.alternate(
            group,
            {
                "headrace": lambda: bench.many(
                    "headrace", server.url, objects.MIDDLE, warm_up_s=2 * bench.effort.duration_s
                )
            },
            bench.effort.repetitions,
        )["headrace"]
    shares = [a["objects"] / a["wall_s"] / (a["in_flight_limit"] / LATENCY_S) for a in answers]
    bench.row(
        group, "read_batches: objects/s, share of in-flight limit / latency", "", shares,
        at_least=0.85,
    )  # fmt: skip
    bench.rates(group, "read_batches", answers)
    limit = statistics.median(a["in_flight_limit"] for a in answers)
    bench.row(group, "read_batches: in-flight limit", "", [limit])


def io_threads(bench: Bench) -> None:
    """read_batches with one thread for network I/O, and with two."""
    with bench.nginx(objects.MIDDLE, objects.SMALL) as server:
        for bucket, what in ((objects.SMALL, "1 KiB"), (objects.MIDDLE, "100 KiB")):
            group = f"io_threads: {what}"

            def client(threads: int, bucket: Bucket = bucket) -> Client:
                env = {"HEADRACE_IO_THREADS": str(threads)}
                return lambda: bench.many("headrace", server.url, bucket, env=env)

            answers = bench.alternate(
                group, {"1": client(1), "2": client(2)}, bench.effort.repetitions
            )
            for threads, found in answers.items():
                bench.rates(group, f"io_threads={threads}", found)
                bench.cpu(group, f"io_threads={threads}", found)


GROUPS: dict[str, Callable[[Bench], None]] = {
    "cpu": cpu,
    "cpu-latency": cpu_latency,
    "io-threads": io_threads,
}
