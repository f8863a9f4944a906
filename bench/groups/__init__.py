"""The groups of rows, by the name that `--only` takes; a module for each part of the project."""

from __future__ import annotations

from collections.abc import Callable

from bench.groups import (
    aistore,
    checkpoints,
    cpu,
    dataflux,
    device,
    dlio,
    engine,
    files,
    first_batch,
    formats,
    fsspec,
    index,
    joining,
    listing,
    mlperf,
    overlap,
    packing,
    parquet,
    published,
    ranks,
    ray_data,
    recovery,
    s3,
    safetensors,
    shards,
    tails,
    throttling,
    tokens,
    training,
    uploads,
    verdicts,
    yardsticks,
)
from bench.harness import Bench

GROUPS: dict[str, Callable[[Bench], None]] = {
    **engine.GROUPS,
    **cpu.GROUPS,
    **training.GROUPS,
    **verdicts.GROUPS,
    **overlap.GROUPS,
    **device.GROUPS,
    **files.GROUPS,
    **first_batch.GROUPS,
    **joining.GROUPS,
    **listing.GROUPS,
    **index.GROUPS,
    **formats.GROUPS,
    **tails.GROUPS,
    **ranks.GROUPS,
    **throttling.GROUPS,
    **recovery.GROUPS,
    **dataflux.GROUPS,
    **published.GROUPS,
    **dlio.GROUPS,
    **mlperf.GROUPS,
    **checkpoints.GROUPS,
    **safetensors.GROUPS,
    **s3.GROUPS,
    **uploads.GROUPS,
    **aistore.GROUPS,
    **shards.GROUPS,
    **parquet.GROUPS,
    **fsspec.GROUPS,
    **packing.GROUPS,
    **ray_data.GROUPS,
    **tokens.GROUPS,
    **yardsticks.GROUPS,
}

# What `--only` takes for several at once.
FAMILIES: dict[str, tuple[str, ...]] = {"published": tuple(published.GROUPS)}
