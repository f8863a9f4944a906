"""What io_uring, several requests on one connection, and HTTP/2 would bring: without headrace.

Each client is a program of this folder that does the least a client has to do. Those of one server
have as many requests under way, so that they differ only in how these go out and come in.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import objects
from bench.harness import (
    BATCH_SIZE,
    LATENCY_S,
    REPOSITORY,
    Answer,
    Bench,
    Client,
    cpu_us,
    ratios,
    say,
)
from bench.objects import Bucket
from testing.servers import Certificates
from testing.servers.aistore import AistoreCluster

# Many clients: with so much for each, five turns of all take five minutes.
LONGEST_S = 0.8
IN_FLIGHT = BATCH_SIZE  # at first; headrace itself has 64 to 128 of such objects in flight
SLOW = (0.01, 0.050)  # share of the requests, and seconds until these are answered
AISTORE_BUCKET, AISTORE_OBJECTS = "bench-yardsticks", 1_000
LATE_US = 25_000  # only a slow object, or one behind it, takes as long

BUCKETS = {"1 KiB": objects.SMALL, "100 KiB": objects.MIDDLE}


@dataclass(frozen=True)
class _Yardstick:
    program: str
    options: tuple[str, ...] = ()
    connection_count: int = IN_FLIGHT

    def on(
        self,
        bench: Bench,
        url: str,
        bucket: Bucket,
        *options: str,
        paths: Sequence[str] | None = None,
    ) -> Client:
        tls = ("tls",) if self.program == "epoll" and url.startswith("https:") else ()
        return functools.partial(
            bench.yardstick,
            self.program,
            url,
            bucket,
            *(*tls, *self.options, *options),
            connection_count=self.connection_count,
            duration_s=min(bench.effort.duration_s, LONGEST_S),
            paths=paths,
        )


def _pipelined(count: int, connection_count: int | None = None) -> _Yardstick:
    # Half of the answers are awaited, then as many requests go out in one send.
    options = (f"pipeline={count}", f"refill={count // 2}")
    return _Yardstick("epoll", options, connection_count or IN_FLIGHT // count)


def _streams(count: int) -> _Yardstick:
    return _Yardstick("h2", (f"streams={count}",), IN_FLIGHT // count)


EPOLL = _Yardstick("epoll")
PIPELINED = {f"{count} a connection, pipelined": _pipelined(count) for count in (2, 4, 8)}
HTTP2 = {f"HTTP/2, {count} a connection": _streams(count) for count in (1, 4, 8, 32)}
# Large enough that few buffers bring an object, small enough that one is no waste.
BUFFER_BYTES = {"1 KiB": 4096, "100 KiB": 32768}
TURNS_OF_8 = ("wait=8", "min-wait-us=50")


def _rings(size: str) -> dict[str, _Yardstick]:
    multishot = ("defer", "multishot", f"buffer={BUFFER_BYTES[size]}")
    return {
        "io_uring": _Yardstick("uring"),
        "io_uring, DEFER_TASKRUN": _Yardstick("uring", ("defer",)),
        "io_uring, DEFER_TASKRUN, turns of 8 or 50 us": _Yardstick("uring", ("defer", *TURNS_OF_8)),
        "io_uring, multishot": _Yardstick("uring", multishot),
        "io_uring, multishot, turns of 8 or 50 us": _Yardstick("uring", (*multishot, *TURNS_OF_8)),
    }


PROGRAMS = REPOSITORY / "build" / "release" / "bench"


def _has_ring() -> bool:
    """Whether io_uring can be used here; if not, it says why."""
    program = PROGRAMS / "headrace-bench-uring"
    done = subprocess.run([program, "--supported"], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        say(f"yardsticks: io_uring is left out, as it cannot be used here: {done.stderr.strip()}")
    return done.returncode != 3


def _has_http2() -> bool:
    """Whether the client of HTTP/2 has been built; if not, it says why."""
    found = (PROGRAMS / "headrace-bench-h2").exists()
    if not found:
        say("yardsticks: HTTP/2 is left out: install libnghttp2-dev, then `make bench` builds it")
    return found


def _rows(bench: Bench, group: str, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Each client's costs, and their ratio to those of the first."""
    yardstick, *others = answers
    for name, found in answers.items():
        bench.cpu(group, name, found)
    for name in others:
        shares = ratios(cpu_us(answers[name]), cpu_us(answers[yardstick]))
        bench.row(group, f"{name}: CPU, over {yardstick}'s", "", shares)
    for name, found in answers.items():
        calls = [answer["system_calls"] / answer["objects"] for answer in found]
        bench.row(group, f"{name}: system calls per object", "", calls)


def _times(bench: Bench, group: str, answers: Mapping[str, Sequence[Answer]]) -> None:
    """How long objects took, where a few are slow."""
    for name, found in answers.items():
        bench.row(group, f"{name}: median of the times", "ms", [a["p50_s"] * 1e3 for a in found])
        late = [answer["late_fraction"] for answer in found]
        bench.row(group, f"{name}: share that took {LATE_US // 1000} ms or more", "", late)


def yardsticks(bench: Bench) -> None:
    """By epoll, io_uring, pipelining and HTTP/2; and what a slow object delays."""
    repetitions = bench.effort.repetitions
    tls: dict[str, Any] = {
        "certificates": Certificates(bench.folder / "certificates"),
        "http2": True,
    }
    has_ring, has_http2 = _has_ring(), _has_http2()
    with bench.nginx(*BUCKETS.values()) as server:
        for size, bucket in BUCKETS.items():
            group = f"yardsticks: {size}"
            each = {"epoll": EPOLL, **PIPELINED, **(_rings(size) if has_ring else {})}
            if bucket is objects.MIDDLE:
                each["epoll, one event a body"] = _Yardstick("epoll", ("wake-at-end",))
            clients = {name: client.on(bench, server.url, bucket) for name, client in each.items()}
            _rows(bench, group, bench.alternate(group, clients, repetitions))
    with bench.nginx(*BUCKETS.values(), **tls) as server:
        for size, bucket in BUCKETS.items():
            group = f"yardsticks: {size}, TLS"
            each = {"epoll": EPOLL, **PIPELINED, **(HTTP2 if has_http2 else {})}
            clients = {name: client.on(bench, server.url, bucket) for name, client in each.items()}
            _rows(bench, group, bench.alternate(group, clients, repetitions))
    several = {**PIPELINED, **({"HTTP/2, 8 a connection": _streams(8)} if has_http2 else {})}
    with bench.nginx(objects.SMALL, tail=SLOW, **tls) as server:
        group = "yardsticks: 1 KiB, TLS, 1 % after 50 ms"
        clients = {
            name: client.on(bench, server.url, objects.SMALL, f"late-us={LATE_US}")
            for name, client in {"epoll": EPOLL, **several}.items()
        }
        answers = bench.alternate(group, clients, repetitions)
        _rows(bench, group, answers)
        _times(bench, group, answers)
    # nginx answers the requests of a connection one after another, but streams all at once.
    several["8 a connection, pipelined, 64 connections"] = _pipelined(8, IN_FLIGHT)
    with bench.nginx(objects.SMALL, latency_s=LATENCY_S, **tls) as server:
        group = "yardsticks: 1 KiB, TLS, each after 30 ms"
        clients = {
            name: client.on(bench, server.url, objects.SMALL)
            for name, client in {"epoll": EPOLL, **several}.items()
        }
        answers = bench.alternate(group, clients, repetitions)
        _rows(bench, group, answers)
        for name, found in answers.items():
            bench.rates(group, name, found)
    with AistoreCluster() as cluster:
        cluster.make_bucket(AISTORE_BUCKET)
        for i in range(AISTORE_OBJECTS):
            content = b"".join(objects.SMALL.pieces(i))
            cluster.put(AISTORE_BUCKET, objects.SMALL.object_name(i), content)
        paths = [
            f"/v1/objects/{AISTORE_BUCKET}/{objects.SMALL.object_name(i)}?provider=ais"
            for i in range(AISTORE_OBJECTS)
        ]
        group = "yardsticks: 1 KiB, a target of AIStore"
        clients = {
            name: client.on(bench, cluster.node_url(1), objects.SMALL, paths=paths)
            for name, client in {"epoll": EPOLL, **PIPELINED}.items()
        }
        answers = bench.alternate(group, clients, repetitions)
        _rows(bench, group, answers)
        for name, found in answers.items():
            bench.rates(group, name, found)


GROUPS: dict[str, Callable[[Bench], None]] = {"yardsticks": yardsticks}
