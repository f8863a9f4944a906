"""CPU per object beside the least that a client can do, and beside the version before."""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from bench import objects
from bench.harness import (
    LATENCY_S,
    Bench,
    Client,
    Connections,
    cpu_us,
    environment_before,
    ratios,
)
from bench.objects import Bucket
from testing.servers import Certificates


def _epoll(bench: Bench, url: str, bucket: Bucket, connections: Connections) -> Client:
    tls = ("tls",) if url.startswith("https:") else ()
    return lambda: bench.yardstick("epoll", url, bucket, *tls, connection_count=connections.count)


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


def cpu_tls(bench: Bench) -> None:
    """The same over TLS 1.3, and what TLS adds to plain HTTP."""
    certificates = Certificates(bench.folder / "certificates")
    env = {"SSL_CERT_FILE": str(certificates.ca_file)}
    before = environment_before()
    with (
        bench.nginx(objects.MIDDLE, objects.SMALL, certificates=certificates) as server,
        bench.nginx(objects.MIDDLE, objects.SMALL) as plain,
    ):
        for bucket, size, at_most in (
            (objects.MIDDLE, "100 KiB", 1.15),
            (objects.SMALL, "1 KiB", 1.25),
        ):
            group = f"cpu: {size}, TLS"
            connections = Connections()
            read = functools.partial(bench.many, "headrace", server.url, bucket)
            clients: dict[str, Client] = {
                "read_batches": connections.of(functools.partial(read, env=env)),
                "epoll": _epoll(bench, server.url, bucket, connections),
                "read_batches without TLS": functools.partial(
                    bench.many, "headrace", plain.url, bucket
                ),
                "epoll without TLS": _epoll(bench, plain.url, bucket, connections),
            }
            if before is not None:
                clients["before"] = functools.partial(read, env={**env, **before})
            answers = bench.alternate(group, clients, bench.effort.repetitions)
            for name, found in answers.items():
                bench.cpu(group, name, found)
            found = cpu_us(answers["read_batches"])
            shares = ratios(found, cpu_us(answers["epoll"]))
            bench.row(
                group, "read_batches: CPU per object, over epoll's", "", shares, at_most=at_most
            )
            if before is not None:
                shares = ratios(found, cpu_us(answers["before"]))
                bench.row(group, "read_batches: CPU, over that before", "", shares, at_most=0.8)


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
    """read_batches with one thread for network I/O, two, and more where there are cores for them.

    From eight cores on, the server has the second half of them and the client the first, by their
    numbers. Where two numbers are one core, they may share it: the machine tells which do.
    """
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    apart = half >= 4
    # Python's thread has a core, too.
    counts = [1, 2, *(count for count in (4, 6, 12) if apart and count < half)]
    mine: dict[str, Any] = {"cores": cores[:half]} if apart else {}
    workers = half if apart else 1

    def client(name: str, url: str, bucket: Bucket, threads: int, **request: Any) -> Client:
        env = {"HEADRACE_IO_THREADS": str(threads), **request.pop("env", {})}
        return lambda: bench.many(name, url, bucket, env=env, **mine, **request)

    def measure(group: str, clients: dict[str, Client]) -> None:
        for name, found in bench.alternate(group, clients, bench.effort.repetitions).items():
            bench.rates(group, name, found)
            bench.cpu(group, name, found)

    @contextlib.contextmanager
    def server(*buckets: Bucket, **options: Any) -> Iterator[str]:
        if apart:
            os.sched_setaffinity(0, cores[half:])
        try:
            with bench.nginx(*buckets, workers=workers, **options) as nginx:
                os.sched_setaffinity(0, cores)
                yield nginx.url
        finally:
            os.sched_setaffinity(0, cores)

    epochs = {
        objects.SMALL.name: bench.effort.small_objects,
        objects.MIDDLE.name: bench.effort.middle_objects,
    }
    with server(objects.SMALL, objects.MIDDLE) as url:
        for bucket, what in ((objects.SMALL, "1 KiB"), (objects.MIDDLE, "100 KiB")):
            clients = {f"io_threads={n}": client("headrace", url, bucket, n) for n in counts}
            if apart:
                size = epochs[bucket.name]
                clients[f"Loader, io_threads={counts[-1]}"] = client(
                    "loader", url, bucket, counts[-1], epoch_objects=size, warm_up_objects=size // 4
                )
            measure(f"io_threads: {what}", clients)
    if not apart:
        return
    certificates = Certificates(bench.folder / "certificates")
    with server(objects.MIDDLE, certificates=certificates) as url:
        env = {"SSL_CERT_FILE": str(certificates.ca_file)}
        clients = {
            f"io_threads={n}": client("headrace", url, objects.MIDDLE, n, env=env) for n in counts
        }
        measure("io_threads: 100 KiB, TLS", clients)
    with server(objects.MIDDLE, latency_s=LATENCY_S) as url:
        group = "io_threads: 100 KiB, first byte after 30 ms"
        clients = {
            f"io_threads={counts[-1]}, max_in_flight={most}": client(
                "headrace", url, objects.MIDDLE, counts[-1],
                parallel={"max_in_flight": most}, warm_up_s=2 * bench.effort.duration_s,
                env={"HEADRACE_MEMORY_BUDGET_BYTES": str(4 * objects.GIB)},
            )
            for most in (512, 4096)
        }  # fmt: skip
        measure(group, clients)


GROUPS: dict[str, Callable[[Bench], None]] = {
    "cpu": cpu,
    "cpu-tls": cpu_tls,
    "cpu-latency": cpu_latency,
    "io-threads": io_threads,
}
