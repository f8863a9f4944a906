"""Checkpoints, beside torch's own files and gcsfs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.harness import Answer, Bench
from bench.objects import GIB, MIB
from testing.servers import FakeGcsServer

_BUCKET = "checkpoints"
_QUICK_BYTES = 256 * MIB


def _rates(answers: Sequence[Answer]) -> list[float]:
    return [each["bytes"] / each["wall_s"] / 1e9 for each in answers]


def _cpu(answers: Sequence[Answer]) -> list[float]:
    return [each["cpu_s"] / (each["bytes"] / GIB) for each in answers]


def _compare(
    bench: Bench,
    group: str,
    peer: str,
    place: dict[str, Any],
    *,
    size_bytes: int,
    at_least_ratio: float,
    at_most_cpu_share: float | None,
) -> None:
    """Save by us, load by us; then by the other, in turn. What is loaded is what was just saved."""
    limits = {"save": 256, "load": 128}

    def client(what: str, by: str) -> Callable[[], Answer]:
        return lambda: bench.client(
            f"checkpoint-{what}" + ("-gcsfs" if by == "gcsfs" else ""),
            by=by,
            size_bytes=size_bytes,
            timeout_s=300,
            **place,
        )

    for what, at_most_mib in limits.items():
        answers = bench.alternate(
            f"{group}, {what}",
            {"headrace": client(what, "headrace"), peer: client(what, peer)},
            bench.effort.repetitions,
        )
        ours, theirs = answers["headrace"], answers[peer]
        pairs = list(zip(_rates(ours), _rates(theirs), strict=False))
        bench.row(group, f"{what}: headrace", "GB/s", _rates(ours))
        bench.row(group, f"{what}: {peer}", "GB/s", _rates(theirs))
        bench.row(
            group,
            f"{what}: headrace over {peer}",
            "",
            [a / b for a, b in pairs],
            at_least=at_least_ratio,
        )
        bench.row(group, f"{what}: headrace, CPU per GiB", "s", _cpu(ours))
        bench.row(group, f"{what}: {peer}, CPU per GiB", "s", _cpu(theirs))
        if at_most_cpu_share is not None:
            shares = [a / b for a, b in zip(_cpu(ours), _cpu(theirs), strict=False)]
            bench.row(
                group,
                f"{what}: headrace, share of {peer}'s CPU",
                "",
                shares,
                at_most=at_most_cpu_share,
            )
        for name, found in answers.items():
            above = [each["above_tensors_bytes"] / MIB for each in found]
            target = {"at_most": at_most_mib} if name == "headrace" else {}
            bench.row(group, f"{what}: {name}, memory above the tensors", "MiB", above, **target)


def checkpoints(bench: Bench) -> None:
    size_bytes = GIB if bench.effort.repetitions > 1 else _QUICK_BYTES
    size = f"{size_bytes / GIB:g} GiB"
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir="/dev/shm"))
    try:
        _compare(
            bench,
            f"a checkpoint of {size}, files in memory",
            "torch",
            {"folder": str(folder)},
            size_bytes=size_bytes,
            at_least_ratio=1.5,
            at_most_cpu_share=None,
        )
    finally:
        shutil.rmtree(folder)
    with FakeGcsServer() as server:
        server.make_bucket(_BUCKET)
        _compare(
            bench,
            f"a checkpoint of {size}, fake-gcs-server",
            "gcsfs",
            {"bucket": _BUCKET, "endpoint": server.url},
            size_bytes=size_bytes,
            at_least_ratio=4,
            at_most_cpu_share=0.25,
        )


GROUPS: dict[str, Callable[[Bench], None]] = {"checkpoints": checkpoints}
