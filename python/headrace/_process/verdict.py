"""What limits a run that reads.

A request that waits for the CPU looks slow, and a transform that takes the CPU makes every request
look slow. So the answer goes by what cannot be mistaken: whether the bytes of a batch were there
when somebody began to wait for it, how long the I/O threads could have run and did not (Linux
counts that), how much CPU time there was, and what kept the read-ahead from asking for more.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace._process.process import Metrics, engine_number, metrics

__all__ = ["Evidence", "Limit", "Verdict", "Watch", "has_free_places", "verdict_of"]

Limit = Literal[
    "unknown", "consumer", "transform", "cpu", "memory", "throttling", "latency", "bandwidth"
]

_FEW_WAITS = 0.05  # of the time: there is nothing to gain
_MOST_OF_THE_CPU = 0.9
_STARVED = 0.25  # of the time that somebody waited for bytes, an I/O thread waited for a core
_THROTTLED = 0.01  # of the requests
# Of the time to the first byte: a full network delays first bytes, too. Where it is not full,
# bodies take a small part of that time.
_BODY = 0.5
_FULL = 0.8  # of the places in flight


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What limits a run, and what to do; as text, one sentence.

    Examples:
        >>> verdict = headrace.Verdict(
        ...     limit="transform",
        ...     waited=0.83,
        ...     reason="83% of the time was waited",
        ...     advice="Give it more threads.",
        ... )
        >>> print(verdict)
        transform: 83% of the time was waited. Give it more threads.
    """

    limit: Limit
    """- ``"consumer"``: the trainer, or whatever takes the batches: they are ready before it asks.
    - ``"transform"``: making samples and batches of bytes that have arrived, or the CPU it takes.
    - ``"cpu"``: the CPU, which reads themselves, the trainer or other processes take.
    - ``"memory"``: the memory budget, or `prefetch_bytes`, keeps requests from being sent.
    - ``"throttling"``: the service asks for fewer requests.
    - ``"latency"``: the time until answers begin.
    - ``"bandwidth"``: the time from there to their ends; a disk.
    - ``"unknown"``: nothing was read, or the engine that did has ended."""
    waited: float
    """The share of the time in which the consumer waited, from 0 to 1."""
    reason: str
    """What was seen."""
    advice: str
    """What to do about it."""

    def __str__(self) -> str:
        return f"{self.limit}: {self.reason}. {self.advice}"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a run; times in seconds."""

    duration_s: float
    """Of the run, as long as the consumer asked for batches or worked on them."""
    wait_s: float
    """Of it, how long the consumer waited."""
    bytes_wait_s: float
    """Of that, how long bytes had still to arrive."""
    held_wait_s: float = 0.0
    """Of that, how long no more requests were sent, since the read-ahead was full."""
    transform_cpu_s: float = 0.0
    """CPU time of transforms and of collating."""
    cpu_s: float
    """CPU time of the process."""
    cores: float
    """How many the process may use."""
    starved_s: float = 0.0
    """How long the I/O threads could have run and had no core, as a mean over them."""
    requests: int
    throttled: int
    first_byte_s: float
    """Summed over requests, as in `headrace.Metrics`; so is the next."""
    body_s: float


def verdict_of(seen: Evidence) -> Verdict:
    """Say what limits a run."""
    duration_s = max(seen.duration_s, 1e-9)
    waited = min(1.0, seen.wait_s / duration_s)

    def found(limit: Limit, reason: str, advice: str) -> Verdict:
        return Verdict(limit=limit, waited=waited, reason=reason, advice=advice)

    if seen.duration_s <= 0 or seen.requests == 0:
        return found(
            "unknown",
            "nothing was read, or the engine has ended",
            "Ask after some batches, and before headrace.shutdown().",
        )
    share = f"{waited:.0%} of the time"
    if waited < _FEW_WAITS:
        return found(
            "consumer",
            f"batches were waited for in {share} only",
            "The data is there in time: make the training step faster.",
        )
    bytes_wait_s = min(seen.bytes_wait_s, seen.wait_s)
    used = seen.cpu_s / (duration_s * seen.cores)
    if 2 * bytes_wait_s < seen.wait_s:
        return found(
            "transform",
            f"{share} was waited, mostly for batches whose bytes were there",
            "Make the transform cheaper (headrace pack --transform does it once), give it more "
            "threads, or processes if it holds the GIL.",
        )
    if used >= _MOST_OF_THE_CPU or seen.starved_s >= _STARVED * bytes_wait_s:
        if 2 * seen.transform_cpu_s >= seen.cpu_s:
            return found(
                "transform",
                f"{share} was waited, and transforms took {seen.transform_cpu_s:.1f} of "
                f"{seen.cpu_s:.1f} s of CPU time, which reads lack",
                "Make the transform cheaper (headrace pack --transform does it once), or give the "
                "process more cores.",
            )
        others = "" if used >= _MOST_OF_THE_CPU else "; other processes take the rest"
        return found(
            "cpu",
            f"{share} was waited, and the process used {used:.0%} of its {seen.cores:g} cores"
            + others,
            "Read fewer and larger objects (headrace pack), or give the process more cores.",
        )
    if seen.throttled >= max(1, _THROTTLED * seen.requests):
        return found(
            "throttling",
            f"{share} was waited, and the service refused {seen.throttled} of {seen.requests} "
            "requests for their rate",
            "Ask for fewer and larger objects (headrace pack), or spread names over prefixes.",
        )
    if 2 * seen.held_wait_s >= bytes_wait_s:
        return found(
            "memory",
            f"{share} was waited, while what is read ahead had filled its room and connections "
            "were idle",
            "Raise headrace.configure(memory_budget_bytes=), and prefetch_bytes= if it is given.",
        )
    if _BODY * seen.first_byte_s > seen.body_s:
        return found(
            "latency",
            f"{share} was waited, and requests took {_each(seen.first_byte_s, seen)} until their "
            f"answers began, {_each(seen.body_s, seen)} from there",
            "Run near the bucket, make requests larger (headrace pack, shuffle='block'), or raise "
            "ParallelOptions(max_in_flight=).",
        )
    return found(
        "bandwidth",
        f"{share} was waited, and bodies arrived as fast as the network or the disk gave them",
        "Store fewer bytes (smaller images, compression), or use a machine with a faster network.",
    )


def _each(sum_s: float, seen: Evidence) -> str:
    return f"{1e3 * sum_s / max(1, seen.requests):.1f} ms"


class Watch:
    """What the process and its engine have used since the watch began. Thread: any."""

    def __init__(self) -> None:
        self._engine = engine_number()
        self._metrics = metrics()
        self._cpu_s = time.process_time()
        self._starved_s = _starved_s()

    @property
    def before(self) -> Metrics:
        """The metrics at the beginning; all zero if the engine is a later one."""
        return self._metrics if self._engine == engine_number() else Metrics()

    def evidence(
        self,
        *,
        duration_s: float,
        wait_s: float,
        bytes_wait_s: float,
        held_wait_s: float = 0.0,
        transform_cpu_s: float = 0.0,
    ) -> Evidence:
        """Return what is known now."""
        before, now = self.before, metrics()
        return Evidence(
            duration_s=duration_s,
            wait_s=wait_s,
            bytes_wait_s=bytes_wait_s,
            held_wait_s=held_wait_s,
            transform_cpu_s=transform_cpu_s,
            cpu_s=time.process_time() - self._cpu_s,
            cores=_cores(),
            starved_s=max(0.0, _starved_s() - self._starved_s),
            requests=now.requests_total - before.requests_total,
            throttled=now.throttled_total - before.throttled_total,
            first_byte_s=now.first_byte_s_total - before.first_byte_s_total,
            body_s=now.body_s_total - before.body_s_total,
        )


def has_free_places(now: Metrics) -> bool:
    """Whether requests could be under way that are not."""
    return now.in_flight < _FULL * now.in_flight_limit


def _cores() -> float:
    """Return how many cores the process may use: by its mask, and by its cgroup's quota."""
    cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError, IndexError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    return cores


def _starved_s() -> float:
    """Return how long I/O threads of the engine could have run and had no core: their mean.

    It is the second number of ``/proc/PID/schedstat`` (Linux, Documentation/scheduler/sched-stats);
    0 where the kernel does not count it.
    """
    delays_s = []
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                if (thread / "comm").read_text().startswith("headrace-io"):
                    delays_s.append(int((thread / "schedstat").read_text().split()[1]) / 1e9)
    return sum(delays_s) / len(delays_s) if delays_s else 0.0
