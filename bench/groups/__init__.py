"""The groups of rows, by the name that `--only` takes; a module for each part of the project."""

from __future__ import annotations

from collections.abc import Callable

from bench.groups import (
    aistore,
    checkpoints,
    cpu,
    dataflux,
    engine,
    files,
    formats,
    fsspec,
    index,
    joining,
    listing,
    packing,
    parquet,
    s3,
    safetensors,
    shards,
    tails,
    throttling,
    tokens,
    training,
)
from bench.harness import Bench

GROUPS: dict[str, Callable[[Bench], None]] = {
    **engine.GROUPS,
    **cpu.GROUPS,
    **training.GROUPS,
    **files.GROUPS,
    **joining.GROUPS,
    **listing.GROUPS,
    **index.GROUPS,
    **formats.GROUPS,
    **tails.GROUPS,
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
    **tokens.GROUPS,
}
