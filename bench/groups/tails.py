"""What a few slow answers cost: hedged reads beside a client that waits for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import objects
from bench.harness import LATENCY_S, Answer, Bench, Client, rate, rate_ratios

# Share of the requests, and after how many seconds these are answered.
TAILS = {"1 % at 1 s": (0.01, 1.0), "0.1 % at 5 s": (0.001, 5.0)}
LEAST_OF_THE_RATE = {"1 % at 1 s": 0.85, "0.1 % at 5 s": 0.9}
MOST_WAIT_S = 0.1
OBSTORE_CONCURRENCY = 512


def _hedges_share(answer: Answer) -> float:
    return float(answer["hedges_total"] / (answer["requests_total"] - answer["hedges_total"]))


def tails(bench: Bench) -> None:
    """`Loader` at its defaults, without a tail and with one."""
    epoch_objects = bench.effort.middle_objects
    servers: dict[str, dict[str, Any]] = {"no tail": {}}
    servers |= {name: {"tail": tail} for name, tail in TAILS.items()}
    group = f"Loader, 100 KiB, nginx, first byte after {LATENCY_S * 1e3:.0f} ms, and a tail"

    def client(options: dict[str, Any], name: str, **request: Any) -> Client:
        def run() -> Answer:
            with bench.nginx(objects.MIDDLE, latency_s=LATENCY_S, **options) as server:
                return bench.many(name, server.url, objects.MIDDLE, **request)

        return run

    epoch: dict[str, Any] = {"env": {"HEADRACE_HEDGE": "1"}}
    epoch |= {"epoch_objects": epoch_objects, "warm_up_objects": epoch_objects // 2}
    ours = {name: client(options, "loader-waits", **epoch) for name, options in servers.items()}
    unhedged = {"env": {"HEADRACE_HEDGE": "0"}, "epoch_objects": epoch_objects // 10}
    unhedged["warm_up_objects"] = epoch_objects // 10
    for name in TAILS:
        ours[f"{name}, without hedges"] = client(servers[name], "loader-waits", **unhedged)
        ours[f"{name}, obstore"] = client(
            servers[name], "obstore", concurrency=OBSTORE_CONCURRENCY, duration_s=10.0
        )
    answers = bench.alternate(group, ours, bench.effort.peer_repetitions)
    bench.rates(group, "no tail", answers["no tail"])
    for name, least in LEAST_OF_THE_RATE.items():
        found = answers[name]
        bench.rates(group, name, found)
        bench.row(
            group,
            f"{name}: share of the rate without a tail",
            "",
            rate_ratios(found, answers["no tail"]),
            at_least=least,
        )
        bench.row(
            group,
            f"{name}: wait for a batch, p99",
            "ms",
            [answer["wait_p99_s"] * 1e3 for answer in found],
            at_most=MOST_WAIT_S * 1e3,
        )
        bench.row(
            group,
            f"{name}: additional requests",
            "",
            [_hedges_share(answer) for answer in found],
            at_most=0.03,
        )
        bench.row(
            group,
            f"{name}: additional bytes",
            "",
            [a["hedge_bytes_dropped_total"] / a["bytes_read_total"] for a in found],
            at_most=0.03,
        )
        bench.row(
            group,
            f"{name}: new connections a hedge",
            "",
            [a["connections_opened_total"] / max(1, a["hedges_total"]) for a in found],
            at_most=0.2,
        )
        for other in (f"{name}, without hedges", f"{name}, obstore"):
            bench.rates(group, other, answers[other])
        bench.row(
            group,
            f"{name}: objects/s, times obstore's",
            "",
            [rate(a) / rate(b) for a, b in zip(found, answers[f"{name}, obstore"], strict=False)],
            at_least=5,
        )


GROUPS: dict[str, Callable[[Bench], Any]] = {"tails": tails}
