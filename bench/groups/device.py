"""What comes to a CUDA device and from it. Without one, there are no rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import objects
from bench.harness import FULL, Bench, ratios, say

COMPUTING_MS = 20
# Memory, where there is such a folder: a disk is no part of the comparison.
_MEMORY = Path("/dev/shm")


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def device(bench: Bench) -> None:
    """Batches of 64 MiB while the device computes for 20 ms, and checkpoints of some GiB."""
    if not _has_cuda():
        say("device: no CUDA device was found; no rows")
        return
    quick = bench.effort.middle_objects < FULL.middle_objects
    with tempfile.TemporaryDirectory(
        prefix="headrace-device-", dir=_MEMORY if _MEMORY.is_dir() else None
    ) as folder:
        _steps(bench, str(Path(folder, "objects")), 16 if quick else 48)
        _checkpoints(bench, str(Path(folder, "states")), objects.GIB if quick else 4 * objects.GIB)


def _steps(bench: Bench, folder: str, count: int) -> None:
    group = f"device: batches of 64 MiB beside {COMPUTING_MS} ms of computing"
    say(group)
    answer = bench.client(
        "device-steps", folder=folder, steps=count, computing_ms=COMPUTING_MS,
        repetitions=bench.effort.repetitions, timeout_s=300,
    )  # fmt: skip
    bench.measurements.append({"group": group, **answer})
    found = dict(answer["found"])
    alone_cpu_s = [each["cpu_s"] for each in found["computing alone"]]
    alone = [each["step_s"] for each in found.pop("computing alone")]
    bench.row(group, "computing alone: a step", "ms", [each * 1e3 for each in alone])
    for name, ways in found.items():
        step_s = [each["step_s"] for each in ways]
        bench.row(group, f"{name}: a step", "ms", [each * 1e3 for each in step_s])
        bench.row(
            group, f"{name}: a step, over computing alone", "x", ratios(step_s, alone),
            at_most=1.05 if "device=" in name else None,
        )  # fmt: skip
        above = [
            (each["cpu_s"] - alone) * 1e3 for each, alone in zip(ways, alone_cpu_s, strict=True)
        ]
        bench.row(group, f"{name}: CPU a step, above computing alone", "ms", above)


def _checkpoints(bench: Bench, folder: str, size_bytes: int) -> None:
    group = f"device: {size_bytes >> 30} GiB in files in memory"
    say(group)
    answer = bench.client(
        "device-checkpoints", folder=folder, size_bytes=size_bytes,
        repetitions=bench.effort.repetitions, timeout_s=300,
    )  # fmt: skip
    bench.measurements.append({"group": group, **answer})
    found = answer["found"]
    for name, ways in found.items():
        bench.row(group, name, "GB/s", [size_bytes / each["wall_s"] / 1e9 for each in ways])
        bench.row(group, f"{name}: CPU", "s", [each["cpu_s"] for each in ways])
    for ours, theirs in (
        ("save", "torch.save"),
        ("load", "torch.load"),
        ("load, safetensors", "safetensors.torch.load_file"),
    ):
        pair = [[1 / each["wall_s"] for each in found[name]] for name in (ours, theirs)]
        bench.row(group, f"{ours}: speed over that of {theirs}", "x", ratios(*pair), at_least=1.0)


GROUPS: dict[str, Callable[[Bench], None]] = {"device": device}
