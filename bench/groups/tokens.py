"""Samples of tokens, shuffled, behind latency."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import LATENCY_S, S3, Answer, Bench, Client, rate_ratios
from bench.objects import KIB, MIB
from testing.faultserver.client import FaultServer

SEQ_LEN = 4096
BATCH_SIZE = 8
STEP_S = 0.005
# One after the other they take 30 ms each.
IN_TURN_SAMPLES = 50
SAMPLES_AT_A_TIME = 32
# 1 GiB: more than the 256 MiB that Megatron-Core's reader of S3 keeps.
MEGATRON_SAMPLES = 131_072
BUCKET = "tokens"


def tokens(bench: Bench) -> None:
    """A Loader over a TokenDataset beside single requests, a local file, and Megatron-Core"""
    _beside_a_local_file(bench)
    _beside_megatron(bench)


def _beside_a_local_file(bench: Bench) -> None:
    sample_count = bench.effort.middle_objects
    group = f"samples of {SEQ_LEN:,} tokens, shuffled, {LATENCY_S * 1e3:.0f} ms"
    with _served(bench, sample_count, {}) as client:
        batches = sample_count // BATCH_SIZE
        answers = bench.alternate(
            group,
            {
                "Loader": client("tokens-loader", step_s=0, batches=batches),
                "Loader, steps": client("tokens-loader", step_s=STEP_S, batches=batches),
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


def _beside_megatron(bench: Bench) -> None:
    group = f"samples of {SEQ_LEN:,} tokens of 1 GiB, s3, shuffled, {LATENCY_S * 1e3:.0f} ms"
    with _served(bench, MEGATRON_SAMPLES, S3) as client:
        batches = bench.effort.middle_objects // BATCH_SIZE

        def megatron(chunk_bytes: int) -> Client:
            return client("tokens-megatron", samples=IN_TURN_SAMPLES, chunk_bytes=chunk_bytes)

        answers = bench.alternate(
            group,
            {
                "Loader": client("tokens-loader", step_s=0, batches=batches),
                # Its default, and as much as one sample needs.
                "Megatron, 256 MiB": megatron(256 * MIB),
                "Megatron, 8 KiB": megatron(8 * KIB),
            },
            bench.effort.repetitions,
        )
    ours = answers["Loader"]
    bench.rates(group, "Loader", ours)
    ratios_of = {}
    for chunk in ("256 MiB", "8 KiB"):
        theirs = answers[f"Megatron, {chunk}"]
        bench.rates(group, f"Megatron-Core's S3 reader, chunks of {chunk}", theirs)
        ratios_of[chunk] = rate_ratios(ours, theirs)
    bench.row(
        group,
        "Loader, over the better of Megatron-Core's",
        "x",
        [min(pair) for pair in zip(*ratios_of.values(), strict=True)],
        at_least=20,
    )


@contextmanager
def _served(
    bench: Bench, sample_count: int, protocol: Mapping[str, str]
) -> Iterator[Callable[..., Client]]:
    """Yield what makes clients of a file of random tokens, on a server that takes its time."""
    with (
        FaultServer(log_capacity=1000, dialect=protocol.get("scheme", "gcs")) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        file = Path(folder) / "tokens.bin"
        made = random.Random(1)
        sizes = [2] + [2 * SAMPLES_AT_A_TIME * SEQ_LEN] * (sample_count // SAMPLES_AT_A_TIME)
        data = b"".join(map(made.randbytes, sizes))
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
                    **protocol,
                    **request,
                )
                return {**answer, "sent_bytes": server.stats()["body_bytes_out"] - before}

            return run

        yield client


GROUPS: dict[str, Callable[[Bench], None]] = {"tokens": tokens}
