"""What a few slow answers cost: hedged reads beside clients that wait for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench import objects
from bench.harness import LATENCY_S, Answer, Bench, Client, environment_before, rate_ratios
from bench.objects import Bucket

# Share of the requests, and after how many seconds these are answered.
TAILS = {"1 % at 1 s": (0.01, 1.0), "0.1 % at 5 s": (0.001, 5.0)}
LEAST_OF_THE_RATE = {"1 % at 1 s": 0.85, "0.1 % at 5 s": 0.9}
MOST_WAIT_S = 0.1
# obstore: objects at a time, batch after batch, which is how a training script calls it; and
# readers that never wait for each other, whose objects come in any order.
OBSTORE_BATCH = 256
OBSTORE_READERS = 512
SIGMA = 1.0
# Of the map-style dataset: enough batches for the last half of a percent.
MAP_BATCHES = 1_000


def _client(
    bench: Bench, bucket: Bucket, server: dict[str, Any], name: str, **request: Any
) -> Client:
    def run() -> Answer:
        with bench.nginx(bucket, latency_s=LATENCY_S, **server) as nginx:
            return bench.many(name, nginx.url, bucket, **request)

    return run


def _epoch(epoch_objects: int, *, hedge: bool = True) -> dict[str, Any]:
    return {
        "env": {"HEADRACE_HEDGE": str(int(hedge))},
        "epoch_objects": epoch_objects,
        "warm_up_objects": epoch_objects,
    }


def _additions(bench: Bench, group: str, name: str, found: Sequence[Answer]) -> None:
    """What hedges have added."""
    ours = [answer["requests_total"] - answer["hedges_total"] for answer in found]
    hedges = [answer["hedges_total"] for answer in found]
    bench.row(
        group,
        f"{name}: additional requests",
        "",
        [mine / own for mine, own in zip(hedges, ours, strict=True)],
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


def _tails(
    bench: Bench, bucket: Bucket, size: str, epoch_objects: int, tails: Sequence[str]
) -> None:
    # Several seconds, or what happens is the beginning, when as many connections more are opened as
    # there are late answers at a time, and the wait for the last batch.
    epoch_objects *= 5
    group = f"Loader, {size}, nginx, first byte after {LATENCY_S * 1e3:.0f} ms, and a tail"
    ours = {"no tail": _client(bench, bucket, {}, "loader-waits", **_epoch(epoch_objects))}
    for name in tails:
        server = {"tail": TAILS[name]}
        ours[name] = _client(bench, bucket, server, "loader-waits", **_epoch(epoch_objects))
        few = _epoch(epoch_objects // 50, hedge=False)
        ours[f"{name}, without hedges"] = _client(bench, bucket, server, "loader-waits", **few)
        ours[f"{name}, obstore, {OBSTORE_BATCH} at a time"] = _client(
            bench, bucket, server, "obstore-batches", batch_size=OBSTORE_BATCH, duration_s=8.0
        )
        ours[f"{name}, obstore, in any order"] = _client(
            bench, bucket, server, "obstore", concurrency=OBSTORE_READERS, duration_s=8.0
        )
    answers = bench.alternate(group, ours, bench.effort.repetitions)
    bench.rates(group, "no tail", answers["no tail"])
    for name in tails:
        found = answers[name]
        bench.rates(group, name, found)
        bench.row(
            group,
            f"{name}: share of the rate without a tail",
            "",
            rate_ratios(found, answers["no tail"]),
            at_least=LEAST_OF_THE_RATE[name],
        )
        bench.row(
            group,
            f"{name}: wait for a batch, p99",
            "ms",
            [answer["wait_p99_s"] * 1e3 for answer in found],
            at_most=MOST_WAIT_S * 1e3,
        )
        _additions(bench, group, name, found)
        bench.rates(group, f"{name}, without hedges", answers[f"{name}, without hedges"])
        for other, least in ((f"{OBSTORE_BATCH} at a time", 5), ("in any order", None)):
            beside = answers[f"{name}, obstore, {other}"]
            bench.rates(group, f"{name}, obstore, {other}", beside)
            bench.row(
                group,
                f"{name}: objects/s, times obstore's, {other}",
                "",
                rate_ratios(found, beside),
                at_least=least,
            )


def tails(bench: Bench) -> None:
    """`Loader` at its defaults, without a tail and with one."""
    _tails(bench, objects.MIDDLE, "100 KiB", bench.effort.middle_objects, list(TAILS))


def tails_large(bench: Bench) -> None:
    """The same with objects of 1 MiB, which are cut rather than dropped."""
    _tails(bench, objects.MEBIBYTE, "1 MiB", bench.effort.middle_objects // 5, ["1 % at 1 s"])


def tails_map(bench: Bench) -> None:
    """`MapDataset.__getitems__` of 64 at a time: nothing is read ahead."""
    group = f"__getitems__ of 64, 100 KiB, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    count = MAP_BATCHES * 64 * bench.effort.middle_objects // 20_000
    name = "1 % at 1 s"
    clients = {
        name: _client(
            bench,
            objects.MIDDLE,
            {"tail": TAILS[name]},
            "map-waits",
            **_epoch(count),
            timeout_s=300,
        )
    }
    found = bench.alternate(group, clients, bench.effort.peer_repetitions)[name]
    bench.row(group, f"{name}: p50", "ms", [answer["wait_p50_s"] * 1e3 for answer in found])
    bench.row(
        group,
        f"{name}: p99.5, times p50",
        "",
        [answer["wait_p995_s"] / answer["wait_p50_s"] for answer in found],
        at_most=4,
    )
    _additions(bench, group, name, found)


def tails_lognormal(bench: Bench) -> None:
    """`Loader` where every latency differs, also beside the version before if there is one."""
    group = (
        f"Loader, 100 KiB, nginx, log-normal latency, median {LATENCY_S * 1e3:.0f} ms,"
        f" sigma {SIGMA:.0f}"
    )
    count = bench.effort.middle_objects
    server = {"sigma": SIGMA}
    clients = {
        "with hedges": _client(bench, objects.MIDDLE, server, "loader-waits", **_epoch(count)),
        "without": _client(
            bench, objects.MIDDLE, server, "loader-waits", **_epoch(count, hedge=False)
        ),
    }
    if (before := environment_before()) is not None:
        request = _epoch(count // 20) | {"env": before}
        clients["before"] = _client(bench, objects.MIDDLE, server, "loader-waits", **request)
    answers = bench.alternate(group, clients, bench.effort.repetitions)
    found = answers["with hedges"]
    bench.rates(group, "with hedges", found)
    for name, at_least in (("without", None), ("before", 2)):
        if name in answers:
            beside = answers[name]
            bench.rates(group, name, beside)
            times = rate_ratios(found, beside)
            bench.row(group, f"objects/s, times those {name}", "", times, at_least=at_least)
    _additions(bench, group, "with hedges", found)


def acknowledgements(bench: Bench) -> None:
    """Bodies whose last segment the server holds back until the others are acknowledged."""
    group = "__getitems__ of 64, 100 KiB, nginx with tcp_nopush"
    count = MAP_BATCHES * 64 * bench.effort.middle_objects // 20_000

    def run() -> Answer:
        with bench.nginx(objects.MIDDLE, nopush=True) as nginx:
            return bench.many("map-waits", nginx.url, objects.MIDDLE, **_epoch(count))

    found = bench.alternate(group, {"map": run}, bench.effort.repetitions)["map"]
    bench.row(group, "p50", "ms", [answer["wait_p50_s"] * 1e3 for answer in found])
    bench.row(
        group,
        "p99, times p50",
        "",
        [answer["wait_p99_s"] / answer["wait_p50_s"] for answer in found],
        at_most=3,
    )


GROUPS: dict[str, Callable[[Bench], Any]] = {
    "tails": tails,
    "tails-large": tails_large,
    "tails-map": tails_map,
    "tails-lognormal": tails_lognormal,
    "acknowledgements": acknowledgements,
}
