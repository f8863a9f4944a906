"""The groups of rows, by the name that `--only` takes; a module for each part of the project."""

from __future__ import annotations

from collections.abc import Callable

from bench.groups import (
    aistore,
    checkpoints,
    cpu,
    dataflux,
    device,
    engine,
    files,
    first_batch,
    formats,
    fsspec,
    index,
    joining,
    listing,
    overlap,
    packing,
    parquet,
    ranks,
    ray_data,
    s3,
    safetensors,
    shards,
    tails,
    throttling,
    tokens,
    training,
    verdicts,
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
    **dataflux.GROUPS,
    **checkpoints.GROUPS,
    **safetensors.GROUPS,
    **s3.GROUPS,
    **aistore.GROUPS,
    **shards.GROUPS,
    **parquet.GROUPS,
    **fsspec.GROUPS,
    **packing.GROUPS,
    **ray_data.GROUPS,
    **tokens.GROUPS,
}
