"""Single bits that are wrong at rest, in folders of torch.distributed.checkpoint."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp

from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from tests.campaigns.ways import filled, require_same
from tests.checkpoint.flips import changed
from tests.checkpoint_distributed.conftest import blank


def small_state() -> dict[str, Any]:
    """Tensors of several types, and values that are none."""
    return {
        "model": {
            "weight": filled(1, 40, 30),
            "bias": filled(2, 7).bfloat16(),
            "scalar": filled(3, 1)[0],
        },
        "step": 17,
        "names": ["a", "b"],
    }


def partial_state(state: dict[str, Any]) -> dict[str, Any]:
    """What a partial load asks for: one tensor of several."""
    return {"model": {"bias": state["model"]["bias"]}}


def flip_folder(folder: Path, count: int, seed: int, *, partial: bool) -> tuple[int, int]:
    """Load a folder again and again, each time with another bit changed in one of its files.

    Returns:
        How often that was an error that names the folder, and how often what was loaded was right
        all the same. Raises where it was neither.
    """
    whole = small_state()
    dcp.save(whole, storage_writer=DistributedWriter(folder, thread_count=2), no_dist=True)
    state = partial_state(whole) if partial else whole
    rng = random.Random(seed)
    files = sorted(folder.iterdir())
    detected = harmless = 0
    for _ in range(count):
        file = rng.choice(files)
        good = file.read_bytes()
        at, bit = rng.randrange(len(good)), rng.randrange(8)
        file.write_bytes(changed(good, at, bit))
        found = blank(state)
        try:
            dcp.load(found, storage_reader=DistributedReader(folder), no_dist=True)
        except dcp.CheckpointException as error:
            if str(folder) not in str(error):
                raise
            detected += 1
        else:
            try:
                require_same(found, state)
            except AssertionError:
                raise AssertionError(f"bit {bit} of byte {at} of {file.name} went unseen") from None
            harmless += 1
        file.write_bytes(good)
    return detected, harmless
