"""What is read from a server that refuses what exceeds a rate, which it does not tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from bench.harness import LATENCY_S, Answer, Bench
from testing.faultserver.client import FaultServer

# Requests per second that are let through, a phase each.
RATES_PER_S = (2_000, 1_000, 3_000)
# A tenth of a second's worth may come at once, as it does where buckets are shared by many servers.
BURST_S = 0.1
OBJECT_BYTES = 1024
OBJECT_COUNT = 10_000


class _Phases(threading.Thread):
    """Moves the rate while a client reads, and keeps what the server has counted in each phase."""

    def __init__(self, server: FaultServer, phase_s: float) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._phase_s = phase_s
        self._ended = threading.Event()
        self.phases: list[Answer] = []

    def limit(self, rate_per_s: float) -> None:
        self._server.limit(requests_per_s=rate_per_s, burst=rate_per_s * BURST_S, status=429)

    def run(self) -> None:
        while not self._counts()["read"] and not self._ended.wait(0.01):
            pass  # the client is starting
        for rate_per_s in RATES_PER_S:
            self.limit(rate_per_s)
            before = self._counts()
            if self._ended.wait(self._phase_s):
                return
            after = self._counts()
            counts = {name: after[name] - before[name] for name in after}
            self.phases.append({"rate_per_s": rate_per_s, **counts})

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _counts(self) -> dict[str, float]:
        stats = self._server.stats()
        return {
            "read": stats["by_status"].get("200", 0) + stats["by_status"].get("206", 0),
            "throttled": stats["throttled"],
            "seconds": time.monotonic(),
        }


def throttling(bench: Bench) -> None:
    """One process reads small objects while the rate moves."""
    phase_s = bench.effort.throttled_phase_s
    group = (
        f"429 above {', '.join(f'{rate:,}' for rate in RATES_PER_S)} requests/s "
        f"in turn, {phase_s:.0f} s each, {LATENCY_S * 1e3:.0f} ms"
    )

    def client() -> Answer:
        with FaultServer(log_capacity=10_000) as server:
            server.synthetic("throttled", OBJECT_COUNT, OBJECT_BYTES, shape="flat")
            server.latency(LATENCY_S * 1e3)
            phases = _Phases(server, phase_s)
            phases.limit(RATES_PER_S[0])
            phases.start()
            try:
                answer = bench.client(
                    "throttled",
                    endpoint=server.url,
                    bucket="throttled",
                    batch_size=64,
                    # A little more than the phases: the last one ends while the client reads.
                    duration_s=phase_s * len(RATES_PER_S) + 1,
                    timeout_s=phase_s * len(RATES_PER_S) + 60,
                )
            finally:
                phases.stop()
            return {**answer, "phases": phases.phases}

    answers = bench.alternate(group, {"Store.read_batches": client}, bench.effort.throttled_runs)
    found = answers["Store.read_batches"]

    def shares(phases: list[Answer]) -> float:
        allowed = sum(phase["rate_per_s"] * phase["seconds"] for phase in phases)
        return float(sum(phase["read"] for phase in phases) / allowed)

    def refused(phases: list[Answer]) -> float:
        throttled = sum(phase["throttled"] for phase in phases)
        return float(throttled / (throttled + sum(phase["read"] for phase in phases)))

    bench.row(
        group,
        "objects/s, share of the rate",
        "",
        [shares(answer["phases"]) for answer in found],
        at_least=0.9,
    )
    bench.row(
        group,
        "requests that were refused, share of all",
        "",
        [refused(answer["phases"]) for answer in found],
        at_most=0.02,
    )
    bench.row(group, "hedges", "", [answer["hedges"] for answer in found], at_most=0)
    bench.row(group, "reads that failed", "", [answer["failed"] for answer in found], at_most=0)
    for i, rate_per_s in enumerate(RATES_PER_S):
        name = f"phase {i + 1}, {rate_per_s:,} requests/s"
        each = [[answer["phases"][i]] for answer in found]
        bench.row(group, f"{name}: share of the rate", "", [shares(phase) for phase in each])
        bench.row(group, f"{name}: refused", "", [refused(phase) for phase in each])


GROUPS: dict[str, Callable[[Bench], Any]] = {"throttling": throttling}
