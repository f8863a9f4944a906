"""What it buys to load the next batch while the device computes on this one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.clients.overlap import COMPUTING_S, LOADING_S
from bench.harness import Bench, Client


def overlap(bench: Bench) -> None:
    """A loader of 8 ms a batch beside a device of 16 ms: 24 ms in turn, 16 ms if they overlap."""
    group = f"a batch of {LOADING_S * 1e3:.0f} ms beside a step of {COMPUTING_S * 1e3:.0f} ms"
    steps = max(50, bench.effort.middle_objects // 100)
    with tempfile.TemporaryDirectory(prefix="headrace-overlap-") as folder:

        def client(way: str) -> Client:
            return lambda: bench.client(
                "overlap", way=way, steps=steps, folder=str(Path(folder, "objects"))
            )

        clients = {"Loader": client("loader"), "DataLoader, in turn": client("in turn")}
        answers = bench.alternate(group, clients, bench.effort.repetitions)
    for name, found in answers.items():
        for part in ("loading", "computing", "step"):
            what = "both" if part == "step" else f"{part} alone"
            bench.row(group, f"{name}: {what}", "ms", [a[f"{part}_s"] * 1e3 for a in found])
    bench.row(
        group,
        "Loader: a step, over the larger of loading and computing",
        "x",
        [a["step_s"] / max(a["loading_s"], a["computing_s"]) for a in answers["Loader"]],
        at_most=1.05,
    )


GROUPS = {"overlap": overlap}
