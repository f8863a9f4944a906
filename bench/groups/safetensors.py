"""Loads of one file, beside a client that keeps what it reads."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from bench.harness import Answer, Bench, Client, ratios
from bench.objects import GIB, MIB
from testing.faultserver.client import FaultServer

BUCKET = "safetensors"
_LATENCIES_S = (0.0, 0.020)
_THREADS = (2, 8, 16)


def safetensors(bench: Bench) -> None:
    """A safetensors file, saved by us."""
    _loads_of(bench, "safetensors file", "model.safetensors")


def loads(bench: Bench) -> None:
    """The same of a file of torch.save's format."""
    _loads_of(bench, "checkpoint", "checkpoint.pt")


def _loads_of(bench: Bench, what: str, file: str) -> None:
    """The fault server, by two threads."""
    for latency_s in _LATENCIES_S:
        for gib in bench.effort.checkpoint_repetitions:
            group = f"loads of a {what} of {gib:g} GiB, fault server, {latency_s * 1e3:g} ms"
            with FaultServer(threads=2, md5=False) as server:
                server.bucket(BUCKET)
                server.latency(latency_s * 1e3)
                _loads(bench, group, server, gib, file)


def _loads(bench: Bench, group: str, server: FaultServer, gib: float, file: str) -> None:
    place: dict[str, Any] = {
        "bucket": BUCKET,
        "endpoint": server.url,
        "size_bytes": int(gib * GIB),
        "file": file,
    }
    saved = bench.client("safetensors-save", **place)
    # Tensors and a header of some kilobytes; the raw client reads the tensors' bytes.
    place["file_bytes"] = saved["bytes"]

    def client(name: str, **more: Any) -> Client:
        def run() -> Answer:
            if name == "safetensors-keep":
                bench.only_beside_others()
            before = server.stats()["body_bytes_out"]
            answer = bench.client(name, **place, **more)
            return {**answer, "sent_bytes": server.stats()["body_bytes_out"] - before}

        return run

    raw = {f"raw, {n} connections": client("safetensors-keep", threads=n) for n in _THREADS}
    answers = bench.alternate(
        group,
        {"headrace": client("safetensors-load"), **raw},
        bench.effort.repetitions if gib <= 1 else bench.effort.peer_repetitions,
    )
    ours = answers.pop("headrace")
    # The best number of connections over all turns. The best of each turn would be no client: on a
    # noisy machine, the fastest of three draws of one client is faster than that client.
    answers = {name: found for name, found in answers.items() if found}
    if answers:
        best = max(map(_rates, answers.values()), key=statistics.median)
        shares = ratios(_rates(ours), best)
        bench.row(group, "load: share of the raw rate, kept", "", shares, at_least=0.8)
    sent = [each["sent_bytes"] / each["bytes"] for each in ours]
    bench.row(group, "load: bytes sent over those of the tensors", "x", sent, at_most=1.02)
    for name, found in {"headrace": ours, **answers}.items():
        bench.row(group, f"load: {name}", "GB/s", _rates(found))
        cpu = [each["cpu_s"] / (each["bytes"] / GIB) for each in found]
        bench.row(group, f"load: {name}, CPU per GiB", "s", cpu)
    above = [each["above_tensors_bytes"] / MIB for each in ours]
    bench.row(group, "load: headrace, memory above the tensors", "MiB", above, at_most=128)


def _rates(answers: list[Answer]) -> list[float]:
    return [each["bytes"] / each["wall_s"] / 1e9 for each in answers]


GROUPS: dict[str, Callable[[Bench], None]] = {"safetensors": safetensors, "loads": loads}
