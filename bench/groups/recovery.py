"""How soon the rate is back once a service has been away, or has refused everything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.harness import LATENCY_S, Answer, Bench
from testing.faultserver.client import FaultServer

OBJECT_BYTES = 1024
OBJECT_COUNT = 10_000
# Before it begins: the in-flight limit has been found by then.
WARM_UP_S = 3.0
# In which the client counts what is done.
STEP_S = 0.1
# Of the rate before, in windows of a second.
SHARE = 0.8
LEAST_S = 3.0

_BUSY: Mapping[str, Any] = {"status": 503}
_THROTTLED: Mapping[str, Any] = {"status": 429}


@dataclass(frozen=True)
class _Outage:
    name: str
    seconds: float
    action: Mapping[str, Any]
    work: str = "batches"
    threads: int = 1

    @property
    def most_failed(self) -> float | None:
        """None: more attempts than there are may be needed."""
        return None if self.action == _BUSY and self.seconds > 10 else 0

    @property
    def allowed_s(self) -> float:
        return max(LEAST_S, self.seconds)


OUTAGES = [
    _Outage("0.5 s of 503, batches", 0.5, _BUSY),
    _Outage("3 s of 503, batches", 3, _BUSY),
    _Outage("20 s of 503, batches", 20, _BUSY),
    _Outage("3 s of 503, 16 threads that read", 3, _BUSY, "reads", 16),
    _Outage("3 s of 503, 16 threads that write", 3, _BUSY, "writes", 16),
    _Outage("3 s of 503, one thread that lists", 3, _BUSY, "lists"),
    _Outage("3 s of connections refused, batches", 3, {"refuse": True}),
    _Outage("3 s of 429, batches", 3, _THROTTLED),
    _Outage("20 s of 429, batches", 20, _THROTTLED),
    _Outage("3 s of 429, 16 threads that write", 3, _THROTTLED, "writes", 16),
    _Outage("3 s of 429, one thread that lists", 3, _THROTTLED, "lists"),
    _Outage("3 s of 429 with Retry-After: 1, batches", 3, {**_THROTTLED, "retry_after_s": 1}),
]


class _Breakdown(threading.Thread):
    """Lets a client read, breaks the server down, and mends it."""

    def __init__(self, server: FaultServer, outage: _Outage) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._outage = outage
        self._ended = threading.Event()
        self.began_s = self.mended_s = 0.0
        self.refused = 0

    def run(self) -> None:
        while not self._answered() and not self._ended.wait(0.01):
            pass  # the client is starting
        if self._ended.wait(WARM_UP_S):
            return
        self._server.faults([{"action": self._outage.action}])
        if "refuse" in self._outage.action:
            self._server.close_connections("rst")
        self.began_s = time.monotonic()
        if self._ended.wait(self._outage.seconds):
            return
        self.refused = self._server.fault_counts()[0]["fired"]
        self._server.faults([])
        self.mended_s = time.monotonic()

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _answered(self) -> bool:
        """More than the pages of the listing that the client begins with."""
        return sum(self._server.stats()["by_kind"].values()) > 2 * OBJECT_COUNT / 1000


def _recovered_s(steps: Mapping[int, int], began_s: float, mended_s: float) -> tuple[float, float]:
    """The rate before, and how long after the end a second begins that has its share of it."""

    def count(begin_s: float, seconds: float) -> int:
        first = round(begin_s / STEP_S)
        return sum(steps.get(first + i, 0) for i in range(round(seconds / STEP_S)))

    before_per_s = count(began_s - 2, 2) / 2
    end_s = max(steps, default=0) * STEP_S
    begin_s = mended_s
    while count(begin_s, 1) < SHARE * before_per_s and begin_s < end_s:
        begin_s += STEP_S
    return before_per_s, begin_s - mended_s


def recovery(bench: Bench) -> None:
    """One process works while its service is away for a while."""

    def client(outage: _Outage) -> Answer:
        with FaultServer(log_capacity=10_000) as server:
            server.synthetic("recovery", OBJECT_COUNT, OBJECT_BYTES, shape="flat")
            server.latency(LATENCY_S * 1e3)
            breakdown = _Breakdown(server, outage)
            breakdown.start()
            duration_s = WARM_UP_S + 2 * outage.seconds + max(LEAST_S, outage.seconds) + 5
            try:
                answer = bench.client(
                    "recovery",
                    endpoint=server.url,
                    bucket="recovery",
                    work=outage.work,
                    step_s=STEP_S,
                    threads=outage.threads,
                    batch_size=64,
                    # What limits is then the latency, on any machine.
                    parallel={"max_in_flight": 32, "initial_in_flight": 32},
                    duration_s=duration_s,
                    timeout_s=duration_s + 90,
                )
            finally:
                breakdown.stop()
        steps = {int(step): count for step, count in answer.pop("steps").items()}
        before_per_s, recovered_s = _recovered_s(steps, breakdown.began_s, breakdown.mended_s)
        return {
            **answer,
            "before_per_s": before_per_s,
            "recovered_s": recovered_s,
            "refused": breakdown.refused,
        }

    group = f"seconds until {SHARE} of the rate is back, {LATENCY_S * 1e3:.0f} ms"
    for outage in OUTAGES:

        def one(outage: _Outage = outage) -> Answer:
            return client(outage)

        found = bench.alternate(group, {outage.name: one}, bench.effort.recovery_runs)[outage.name]
        bench.row(
            group,
            outage.name,
            "s",
            [answer["recovered_s"] for answer in found],
            at_most=outage.allowed_s,
        )
        bench.row(
            group,
            f"{outage.name}: requests that failed",
            "",
            [answer["failed"] for answer in found],
            at_most=outage.most_failed,
        )
        bench.row(
            group,
            f"{outage.name}: requests sent meanwhile",
            "",
            [answer["refused"] for answer in found],
        )


GROUPS: dict[str, Callable[[Bench], Any]] = {"recovery": recovery}
