"""Samples of tokens, shuffled, behind latency."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.harness import LATENCY_S, Answer, Bench, Client, rate_ratios
from testing.faultserver.client import FaultServer

SEQ_LEN = 4096
BATCH_SIZE = 8
STEP_S = 0.005
# One after the other they take 30 ms each.
IN_TURN_SAMPLES = 50
BUCKET = "tokens"


def tokens(bench: Bench) -> None:
    """A Loader over a TokenDataset beside one request after the other, and beside a local file."""
    sample_count = bench.effort.middle_objects
    group = f"samples of {SEQ_LEN:,} tokens, shuffled, {LATENCY_S * 1e3:.0f} ms"
    with FaultServer(log_capacity=1000) as server, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.bin"
        data = random.Random(1).randbytes(2 * (sample_count * SEQ_LEN + 1))
        file.write_bytes(data)
        server.put(BUCKET, "tokens.bin", data)
        del data
        server.latency(LATENCY_S * 1e3)

        def client(name: str, **request: Any) -> Client:
            def run() -> Answer:
                before = server.stats()["body_bytes_out"]
                answer = bench.client(
                    name,
                    endpoint=server.url,
                    bucket=BUCKET,
                    file=str(file),
                    seq_len=SEQ_LEN,
                    batch_size=BATCH_SIZE,
                    sample_count=sample_count,
                    **request,
                )
                return {**answer, "sent_bytes": server.stats()["body_bytes_out"] - before}

            return run

        answers = bench.alternate(
            group,
            {
                "Loader": client("tokens-loader", step_s=0),
                "Loader, steps": client("tokens-loader", step_s=STEP_S),
                "in turn": client("tokens-in-turn", samples=IN_TURN_SAMPLES),
                "memory map, steps": client("tokens-memory-map", step_s=STEP_S),
            },
            bench.effort.repetitions,
        )
    alone, stepped = answers["Loader"], answers["Loader, steps"]
    bench.rates(group, "Loader", alone)
    bench.cpu(group, "Loader", alone)
    bench.rates(group, "one GET after the other", answers["in turn"])
    bench.row(
        group,
        "Loader, over one GET after the other",
        "x",
        rate_ratios(alone, answers["in turn"]),
        at_least=100,
    )
    bench.row(
        group,
        "bytes sent, over those needed",
        "x",
        [answer["sent_bytes"] / answer["bytes"] for answer in alone],
        at_most=1.05,
    )
    steps = f"with a step of {STEP_S * 1e3:.0f} ms for {BATCH_SIZE}"
    bench.rates(group, f"Loader {steps}", stepped)
    bench.rates(group, f"numpy.memmap {steps}", answers["memory map, steps"])
    bench.row(
        group,
        f"Loader, over numpy.memmap, {steps}",
        "x",
        rate_ratios(stepped, answers["memory map, steps"]),
        at_least=0.8,
    )


GROUPS: dict[str, Callable[[Bench], None]] = {"tokens": tokens}
