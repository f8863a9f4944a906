"""Runs fleets of processes below one cap and plots them.

    plot_admission.py BASE [--quick]

writes BASE.json with all runs, and BASE.svg.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = REPOSITORY / "build/release/bench/simulation/headrace-simulate-admission"

SIZES = (1, 4, 10, 30, 100, 300, 1_000, 3_000, 10_000)
# Of one bucket of Cloud Storage, before it scales: reads per second.
CAP = 5_000
PER_PROCESS = 50
MOVING = {
    "the cap halves, then doubles twice": {
        "processes": 100,
        "cap": 5_000,
        "moves": "60:2500,120:5000,180:10000",
        "seconds": 240,
    },
    "25 newcomers, then 100": {
        "processes": 100,
        "cap": 5_000,
        "newcomers": "60:25,120:100",
        "seconds": 180,
    },
    "no slow answers": {"processes": 100, "cap": 5_000, "slow": 0, "seconds": 120},
    "1 % take a second": {"processes": 100, "cap": 5_000, "slow": 0.01, "seconds": 120},
    "a burst of a fiftieth of a second": {
        "processes": 100,
        "cap": 5_000,
        "burst": 0.02,
        "seconds": 120,
    },
    "a burst of a second": {"processes": 100, "cap": 5_000, "burst": 1, "seconds": 120},
}


def simulate(options: dict[str, Any]) -> dict[str, Any]:
    """Run one fleet."""
    command = [str(PROGRAM), *(f"{name}={value}" for name, value in options.items())]
    print(" ".join(command[1:]), file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    run: dict[str, Any] = json.loads(done.stdout)
    return {"options": options, **run}


def by_size(quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Fleets of all sizes, below a fixed cap, and below one that grows with them."""
    sizes = [size for size in SIZES if not quick or size <= 100]
    fixed = f"{CAP:,} requests/s in all"
    growing = f"{PER_PROCESS} requests/s a process"
    return {
        fixed: [simulate({"processes": n, "cap": CAP, "seconds": 120}) for n in sizes],
        # The largest would take minutes to simulate.
        growing: [
            simulate({"processes": n, "cap": n * PER_PROCESS, "seconds": 120})
            for n in sizes
            if n <= 1_000
        ],
    }


def plot_sizes(axes: Any, series: dict[str, list[dict[str, Any]]], key: str, target: float) -> None:
    """What is reached in the second minute, by the number of processes."""
    for label, runs in series.items():
        sizes = [run["processes"] for run in runs]
        axes.plot(sizes, [run["phases"][0]["second_half"][key] for run in runs], "o-", label=label)
    axes.axhline(target, color="grey", linestyle=":")
    axes.set(xscale="log", xlabel="processes")
    axes.grid(visible=True, alpha=0.3)


def plot_times(axes: Any, run: dict[str, Any], title: str) -> None:
    """One fleet, second by second."""
    seconds = run["seconds"]
    axes.plot([each["served"] / each["allowed"] for each in seconds], label="used", linewidth=0.8)
    axes.plot([each["fairness"] for each in seconds], label="Jain's index, 10 s", linewidth=0.8)
    axes.plot(
        [each["refused"] / max(1, each["served"] + each["refused"]) for each in seconds],
        label="refused",
        linewidth=0.8,
    )
    axes.set(title=title, xlabel="s", ylim=(0, 1.6))
    axes.grid(visible=True, alpha=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("--quick", action="store_true", help="at most 100 processes")
    arguments = parser.parse_args()
    sizes = by_size(arguments.quick)
    moving = {title: simulate(options) for title, options in MOVING.items()}
    result = {
        "command": " ".join(["bench/scripts/plot_admission.py", *sys.argv[1:]]),
        "by_size": sizes,
        "moving": moving,
    }
    arguments.base.with_suffix(".json").write_text(json.dumps(result) + "\n")

    figure, axes = pyplot.subplots(3, 3, figsize=(12, 9), layout="constrained")
    for at, (key, title, target) in enumerate(
        [
            ("used", "share of the cap used", 0.9),
            ("fairness", "Jain's index", 0.95),
            ("refused", "share of the requests refused", 0.02),
        ]
    ):
        plot_sizes(axes[0][at], sizes, key, target)
        axes[0][at].set(title=f"{title}, 60 s to 120 s")
    axes[0][0].legend(fontsize="small")
    for at, (title, run) in enumerate(moving.items()):
        plot_times(axes[1 + at // 3][at % 3], run, title)
    axes[1][0].legend(fontsize="small")
    figure.savefig(arguments.base.with_suffix(".svg"), metadata={"Date": None})
    for label, runs in sizes.items():
        print(label)
        for run in runs:
            phase = run["phases"][0]
            late = phase["second_half"]
            print(
                f"  {run['processes']:6,}: settled after {phase['settled_after_s']} s; then used "
                f"{late['used']:.3f}, refused {late['refused']:.4f}, Jain {late['fairness']:.3f}"
            )
    for title, run in moving.items():
        print(title)
        for phase in run["phases"]:
            late = phase["second_half"]
            print(
                f"  from {phase['from_s']} s: settled after {phase['settled_after_s']} s; whole "
                f"phase used {phase['used']:.3f}, refused {phase['refused']:.4f}; second half "
                f"{late['used']:.3f}, {late['refused']:.4f}, Jain {late['fairness']:.3f}"
            )


if __name__ == "__main__":
    main()
