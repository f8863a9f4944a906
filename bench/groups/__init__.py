"""The groups of rows, by the name that `--only` takes; a module for each part of the project."""

from __future__ import annotations

from collections.abc import Callable

from bench.groups import checkpoints, engine, training
from bench.harness import Bench

# bench.groups.listing joins with the parallel listing: page after page it takes an hour.
GROUPS: dict[str, Callable[[Bench], None]] = {
    **engine.GROUPS,
    **training.GROUPS,
    **checkpoints.GROUPS,
}
