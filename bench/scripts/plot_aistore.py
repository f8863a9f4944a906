"""Plots the rows of the group `aistore-blog`: plot_aistore.py RESULTS.json FILE.svg"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

_ROW = re.compile(r"(AISIterDataset|AISShardReader), (.*), (\d) workers: objects/s")


def main() -> None:
    results, file = map(Path, sys.argv[1:])
    series: dict[tuple[str, str], dict[int, float]] = {}
    plain = 0.0
    for row in json.loads(results.read_text())["rows"]:
        if row["median"] is None or "as in the blog" not in row["group"]:
            continue
        if row["name"].startswith("requests"):
            plain = row["median"]
        elif found := _ROW.match(row["name"]):
            dataset, package, num_workers = found.groups()
            series.setdefault((dataset, package), {})[int(num_workers)] = row["median"]
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for (dataset, package), rates in sorted(series.items()):
        axes.plot(
            list(rates),
            list(rates.values()),
            marker="o",
            linestyle="-" if package.startswith("headrace") else "--",
            label=f"{dataset}, {package}",
        )
    axes.axhline(plain, color="grey", linestyle=":", label="requests, one after the other")
    axes.set(yscale="log", xlabel="workers of the DataLoader", ylabel="samples/s", xticks=range(5))
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
