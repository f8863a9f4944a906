"""Streams of rows on the ranks that torchrun starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from headrace.torch import ParquetDataset
from tests.parquet.tables import fill
from tests.torchrun import torchrun

COUNTS = [37, 3, 60, 0, 41, 20]  # of rows in each file
ROWS = sum(COUNTS)

# A rank of a job that stops in the middle of an epoch, each with two workers.
RANK = """
import json, sys
import torch.distributed as dist
from torchdata.stateful_dataloader import StatefulDataLoader
from headrace.torch import ParquetDataset

folder, out = sys.argv[1:]
rows = ParquetDataset(folder, columns=["number"], shuffle=True, seed=5)
dist.init_process_group("gloo")
loader = StatefulDataLoader(rows, 3, num_workers=2, multiprocessing_context="fork")
batches = iter(loader)
numbers = [number for _ in range(6) for number in next(batches)["number"].tolist()]
state = loader.state_dict()
rest = [number for batch in batches for number in batch["number"].tolist()]
with open(f"{out}/{dist.get_rank()}.json", "w") as file:
    json.dump([numbers, state, rest], file)
dist.destroy_process_group()
"""


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_four_ranks_of_torchrun_share_rows_that_fewer_finish(tmp_path: Path) -> None:
    fill(headrace.Store(tmp_path / "data"), COUNTS)
    ranks, _ = torchrun(RANK, 4, tmp_path / "data", out=tmp_path)
    assert {len(numbers) + len(rest) for numbers, _, rest in ranks} == {ROWS // 4}
    whole = [number for numbers, _, rest in ranks for number in numbers + rest]
    assert len(set(whole)) == len(whole) == ROWS // 4 * 4
    states = [state for _, state, _ in ranks]
    seen = [number for numbers, _, _ in ranks for number in numbers]
    counts = []
    for rank in range(3):
        rows = ParquetDataset(
            tmp_path / "data", columns=["number"], shuffle=True, seed=5, rank=rank, world_size=3
        )
        rows.load_state_dict(states)
        rest = [row["number"] for row in rows]
        counts.append(len(rest))
        seen += rest
    assert counts == [(ROWS - 4 * 6 * 3) // 3] * 3
    assert len(set(seen)) == len(seen)
