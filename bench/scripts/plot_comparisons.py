"""Plots headrace beside other clients, from kept measurements: plot_comparisons.py [FILE.svg]

Each panel has rows of one run. Its caption has the date and the command, which repeats the run.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes

MEASUREMENTS = Path(__file__).resolve().parents[2] / "docs" / "measurements"
OURS, YARDSTICK, THEIRS = "tab:blue", "tab:gray", "tab:orange"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Rows of one group of one run, by the name that the picture gives to each."""

    title: str
    unit: str
    better: str
    results: str
    group: str
    rows: dict[str, str]


CPU, RATE = "client CPU per object", "objects/s"
BEHIND_30_MS = "100 KiB into tensors, nginx, first byte after 30 ms"
AISTORE = "aistore: 2,000 objects of 100 KiB, aisnode, batch 64"
CHECKPOINT = "a checkpoint of 4 GiB, fault server, 20 ms"
PANELS = [
    Panel(
        title="gs://, objects of 100 KiB: CPU an object",
        unit="µs",
        better="less",
        results="2026-11-21-first-job",
        group="100 KiB into tensors, nginx",
        rows={
            "headrace": f"MapDataset.__getitems__: {CPU}",
            "wrk (drops the bytes)": f"wrk: {CPU}",
            "gcsfs": f"gcsfs: {CPU}",
            "obstore": f"obstore: {CPU}",
            "dataflux, at its best": f"dataflux, 2 workers, 16 threads: {CPU}",
            "google-cloud-storage": f"google-cloud-storage: {CPU}",
        },
    ),
    Panel(
        title="gs://, the same, latency 30 ms",
        unit="objects/s",
        better="more",
        results="2026-11-21-first-job",
        group=BEHIND_30_MS,
        rows={
            "headrace": f"Loader: {RATE}",
            "wrk, 512 at once": f"wrk, 512 at once: {RATE}",
            "obstore": f"obstore: {RATE}",
            "gcsfs": f"gcsfs: {RATE}",
            "dataflux, at its best": f"dataflux, 2 workers, 32 threads: {RATE}",
            "google-cloud-storage": f"google-cloud-storage: {RATE}",
        },
    ),
    Panel(
        title="s3://, objects of 100 KiB: CPU an object",
        unit="µs",
        better="less",
        results="2026-11-22-s3",
        group="s3://, 100 KiB, nginx",
        rows={
            "headrace": f"s3://: {CPU}",
            "wrk (drops the bytes)": f"wrk, presigned: {CPU}",
            "s3torchconnector": f"s3torchconnector, 8 at once: {CPU}",
            "obstore": f"obstore, 8 at once: {CPU}",
            "s3dlio": f"s3dlio, 32 at once: {CPU}",
            "boto3": f"boto3, 8 at once: {CPU}",
        },
    ),
    Panel(
        title="ais://, objects of 100 KiB",
        unit="objects/s",
        better="more",
        results="2026-11-24-aistore",
        group=AISTORE,
        rows={
            "headrace": f"headrace.torch.MapDataset: {RATE}",
            "headrace.compat": f"headrace.compat, map, 0 workers: {RATE}",
            "wrk (drops the bytes)": f"wrk: {RATE}",
            "aistore, 0 workers": f"aistore, map, 0 workers: {RATE}",
            "aistore, 2 workers": f"aistore, map, 2 workers: {RATE}",
        },
    ),
    Panel(
        title="tar shards, samples of 100 KiB: CPU a sample",
        unit="µs",
        better="less",
        results="2026-11-25-samples",
        group="streams: samples of 100 KiB, nginx, first byte after 30 ms",
        rows={
            "headrace": f"ShardStream: {CPU}",
            "headrace, seeding generators": f"ShardStream, which seeds the generators: {CPU}",
            "webdataset": f"webdataset: {CPU}",
        },
    ),
    Panel(
        title="a checkpoint of 4 GiB, latency 20 ms",
        unit="GB/s",
        better="more",
        results="2026-11-21-checkpoints",
        group=CHECKPOINT,
        rows={
            "headrace, save": "save: headrace",
            "the server alone, save": "save: raw",
            "dataflux, save": "save: dataflux",
            "headrace, load": "load: headrace",
            "the server alone, load": "load: raw",
            "dataflux, load": "load: dataflux",
        },
    ),
]


def medians(panel: Panel, results: dict[str, Any]) -> dict[str, float]:
    """Return what the picture shows; a row that is not there is an error that names it."""
    found = {row["name"]: row["median"] for row in results["rows"] if row["group"] == panel.group}
    missing = [name for name in panel.rows.values() if found.get(name) is None]
    if missing:
        raise SystemExit(f"{panel.results}.json: no row {missing[0]!r} in {panel.group!r}")
    return {label: float(found[name]) for label, name in panel.rows.items()}


def draw(axes: Axes, panel: Panel) -> None:
    """Draw one panel."""
    results = json.loads((MEASUREMENTS / f"{panel.results}.json").read_text())
    values = medians(panel, results)
    labels = list(values)
    colors = [
        OURS
        if label.startswith("headrace")
        else YARDSTICK
        if label.startswith(("wrk", "the server"))
        else THEIRS
        for label in labels
    ]
    bars = axes.barh(labels, list(values.values()), color=colors)
    decimals = 2 if max(values.values()) < 10 else 0
    axes.bar_label(bars, [f"{v:,.{decimals}f}" for v in values.values()], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max(values.values()))
    axes.set_title(panel.title, fontsize=9.5)
    only = " ".join(word for word in results["command"].split() if not word.startswith("/tmp"))
    only = only.partition(" --json")[0].removeprefix("bench/run.py").strip()
    command = f'make bench BENCH="{only}"' if len(only) < 50 else "see its page"
    axes.set_xlabel(
        f"{panel.unit}; {panel.better} is better\n{results['date'][:10]}: {command}", fontsize=7.5
    )
    axes.locator_params(axis="x", nbins=6)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw all panels into one file."""
    file = sys.argv[1] if len(sys.argv) > 1 else str(MEASUREMENTS / "comparisons.svg")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "headrace"}):
        figure, grid = pyplot.subplots(3, 2, figsize=(10, 8.5), layout="constrained")
        for axes, panel in zip(grid.flat, PANELS, strict=True):
            draw(axes, panel)
        figure.savefig(file, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
