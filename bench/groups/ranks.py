"""Several processes of one job on one machine: how much each of them gets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench import objects
from bench.clients.training import RANK_STEP_S
from bench.harness import LATENCY_S, Answer, Bench

COUNTS = (1, 2, 4, 8)
# They are to have their shares after two seconds.
SETTLED_S = 2.0
DURATION_S = 8.0


def _ranks(bench: Bench, count: int) -> Answer:
    with (
        bench.nginx(objects.MIDDLE, latency_s=LATENCY_S) as server,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(count) as pool,
    ):
        runs = [
            pool.submit(
                bench.many,
                "rank",
                server.url,
                objects.MIDDLE,
                rank=rank,
                ranks=count,
                folder=folder,
                duration_s=DURATION_S,
                epoch_objects=400_000,
            )
            for rank in range(count)
        ]
        each = [run.result() for run in runs]
    skipped = int(SETTLED_S / RANK_STEP_S)
    counts = [sum(answer["each_step"][skipped:]) for answer in each]
    return {
        "objects": sum(counts),
        "wall_s": DURATION_S - SETTLED_S,
        "cpu_s": sum(answer["cpu_s"] for answer in each),
        "slowest_share": min(counts) * count / sum(counts),
        "each_step": [answer["each_step"] for answer in each],
    }


def ranks(bench: Bench) -> None:
    """`Loader` in 1 to 8 processes that begin together."""
    group = f"Loader in several processes, 100 KiB, nginx, {LATENCY_S * 1e3:.0f} ms"

    def client(count: int) -> Callable[[], Answer]:
        return lambda: _ranks(bench, count)

    clients = {str(count): client(count) for count in COUNTS}
    answers = bench.alternate(group, clients, bench.effort.repetitions)
    for count in COUNTS:
        found = answers[str(count)]
        bench.rates(group, f"{count} processes", found)
        bench.row(
            group,
            f"{count} processes: the slowest over the mean",
            "",
            [answer["slowest_share"] for answer in found],
            at_least=0.85 if count == 4 else None,
        )
    turns = zip(*(answers[str(count)] for count in COUNTS), strict=True)
    sums = [dict(zip(COUNTS, turn, strict=True)) for turn in turns]
    bench.row(
        group,
        "4 processes: objects/s over those of the best number",
        "",
        [turn[4]["objects"] / max(answer["objects"] for answer in turn.values()) for turn in sums],
        at_least=0.9,
    )


GROUPS: dict[str, Callable[[Bench], Any]] = {"ranks": ranks}
