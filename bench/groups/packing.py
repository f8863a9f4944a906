"""Packing objects into tar shards, beside reading them and throwing them away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.harness import LATENCY_S, Bench, rate_ratios
from bench.objects import KIB, Bucket

WRK_CONNECTIONS = 64


@dataclass(frozen=True, kw_only=True)
class Named(Bucket):
    """Objects whose names have a key and a field."""

    def object_name(self, index: int) -> str:
        return f"{index:06d}.jpg"


PACKED = Named(name="bench-pack", object_count=2_000, sizes_bytes=(100 * KIB,))


def packing(bench: Bench) -> None:
    """Objects from a server, packed into a folder, where every answer takes its time"""
    kib = PACKED.sizes_bytes[0] // KIB
    group = f"packing: objects of {kib} KiB, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    with bench.nginx(PACKED, latency_s=LATENCY_S) as server:
        answers = bench.alternate(
            group,
            {
                "pack": lambda: bench.many("pack", server.url, PACKED),
                "wrk": lambda: bench.wrk(server.url, PACKED, connection_count=WRK_CONNECTIONS),
            },
            bench.effort.repetitions,
        )
    packed, raw = answers["pack"], answers["wrk"]
    bench.rates(group, "headrace.pack", packed)
    bench.rates(group, f"wrk, {WRK_CONNECTIONS} connections", raw)
    bench.row(
        group,
        "headrace.pack, over wrk",
        "x",
        rate_ratios(packed, raw),
        at_least=0.5,
    )
    bench.cpu(group, "headrace.pack", packed)
    bench.row(
        group,
        "headrace.pack: peak memory, more after many packings than after one",
        "MiB",
        [a["more_peak_bytes"] / 2**20 for a in packed],
        at_most=64,
    )


GROUPS: dict[str, Callable[[Bench], None]] = {"packing": packing}
