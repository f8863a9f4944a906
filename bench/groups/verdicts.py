"""Whether the verdict names what limits a run, for runs where that is known."""

from __future__ import annotations

from typing import Any

from bench.harness import Answer, Bench
from testing.faultserver.client import FaultServer

_MIB = 1 << 20
_SMALL: dict[str, Any] = {"count": 4000, "size_bytes": 10_000}
_LARGE: dict[str, Any] = {"count": 400, "size_bytes": 1_000_000}

# What is limited how; with the objects, what the server does, and what the client does.
_RUNS: list[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("the step takes 20 ms", "consumer", _SMALL, {}, {"step_s": 0.02}),
    ("the transform takes all cores", "transform", _SMALL, {}, {"transform": "hashed"}),
    ("the transform holds the GIL", "transform", _SMALL, {}, {"transform": "counted"}),
    ("first bytes after 200 ms", "latency", _SMALL, {"latency": {"first_byte_ms": 200}}, {}),
    ("30 MB/s", "bandwidth", _LARGE, {"limit": {"bytes_per_s": 30_000_000}}, {}),
    (
        "100 requests a second",
        "throttling",
        _SMALL,
        {"limit": {"requests_per_s": 100, "burst": 10}},
        {},
    ),
    (
        "8 MiB of memory, first bytes after 100 ms",
        "memory",
        _LARGE,
        {"latency": {"first_byte_ms": 100}},
        {"budget_bytes": 8 * _MIB},
    ),
]


def verdicts(bench: Bench) -> None:
    """Seven runs: for each the share of repetitions in which its limit was named."""
    group = "what limits a run: the share of runs in which the verdict names it"
    for what, limit, objects, weather, job in _RUNS:

        def run(objects: Any = objects, weather: Any = weather, job: Any = job) -> Answer:
            with FaultServer() as server:
                server.synthetic("bucket", shape="flat", **objects)
                if "latency" in weather:
                    server.latency(**weather["latency"])
                if "limit" in weather:
                    server.limit(**weather["limit"])
                defaults = {
                    "seconds": 2.0,
                    "step_s": 0.0,
                    "transform": "length",
                    "budget_bytes": 1024 * _MIB,
                    "batch_size": 32 if objects is not _LARGE else 4,
                }
                return bench.client("verdict", endpoint=server.url, **(defaults | job))

        answers = bench.alternate(group, {what: run}, bench.effort.repetitions)[what]
        named = sum(each["limit"] == limit for each in answers) / len(answers)
        bench.row(group, f"{what}: {limit}", "of 1", [named], at_least=1)


GROUPS = {"verdicts": verdicts}
