"""Jobs that are killed at any step and go on with other ranks and batches: every sample comes once.

``HEADRACE_CAMPAIGN_SEED`` repeats a day's sample; ``make soak`` runs a hundred of each kind.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.torch import mix
from tests.campaigns.cases import seed_of_today
from tests.parquet.tables import fill as fill_with_tables
from tests.process.conftest import RunChild
from tests.torch.conftest import fill_folder

COUNT = 160
SIZES = [100, 40, 20]
# All ranks of a job in one process. A step counts once its line is written; a job that is killed
# has read ahead, and has mostly taken some batches of the step after.
JOB = """
import itertools, json, os, random, signal, sys, warnings
import headrace
from headrace.torch import (
    CostBatchSampler, Loader, MapDataset, ParquetDataset, WeightedSampler, mix,
)
from torchdata.stateful_dataloader import StatefulDataLoader

warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it

kind, folder, log, seed, is_killed = sys.argv[1:]
chance = random.Random(seed)
world_size, size, threads = chance.randint(1, 4), chance.randint(2, 9), chance.randint(0, 2)
bands = chance.choice([None, [3], [2, 5]])
index = headrace.Store(folder).index()
number_of = lambda sample: int(sample.bytes()[:4])
are_batches = chance.random() < 0.5  # rows of a table otherwise

def loader(rank):
    ranks = dict(rank=rank, world_size=world_size)
    if kind == "parquet":
        rows = ParquetDataset(
            folder, columns=["number"], batch_size=size if are_batches else None, shuffle=True,
            seed=3, **ranks,
        )
        workers = dict(num_workers=threads, multiprocessing_context="fork" if threads else None)
        return StatefulDataLoader(rows, None if are_batches else size, **workers)
    common = dict(collate_fn=list, transform_threads=threads)
    dataset = MapDataset(folder, number_of, index=index)
    if kind == "blocks":
        return Loader(dataset, size, shuffle="block", block_size=7, seed=3, **ranks, **common)
    if kind == "mixture":
        parts = [index[:100], index[100:140], index[140:]]
        both = mix([MapDataset(folder, number_of, index=part) for part in parts], [3, 2, 1])
        return Loader(both, size, shuffle=True, seed=3, **ranks, **common)
    costs = [i * 7 % 8 + 1 for i in range(len(index))]
    rules = dict(cost=costs, max_batch_cost=3 * size, max_batch_size=size, cost_boundaries=bands)
    if kind == "weights":
        sampler = WeightedSampler(dataset, costs, len(index), seed=3, **ranks)
        batches = CostBatchSampler(dataset, sampler=sampler, **rules)
    else:
        batches = CostBatchSampler(dataset, shuffle=True, seed=3, **rules, **ranks)
    return Loader(dataset, batch_sampler=batches, **common)

def resume(loader, states):
    if kind == "parquet":  # each reader knows its own place
        loader.dataset.load_state_dict(states)
    else:
        loader.load_state_dict(chance.choice(states))

def numbers_of(batch):
    return batch["number"].tolist() if kind == "parquet" and batch is not None else batch

loaders = [loader(rank) for rank in range(world_size)]
with open(log) as file:
    lines = file.read().splitlines()
for each in loaders if lines else ():
    resume(each, json.loads(lines[-1])["states"])
kill_at, killed_rank = chance.randrange(4), chance.randrange(world_size)
iterators = [iter(each) for each in loaders]
with open(log, "a") as file:
    for step in itertools.count():
        batches = []
        for rank, iterator in enumerate(iterators):
            batches.append(numbers_of(next(iterator, None)))
            if is_killed == "True" and (step, rank) == (kill_at, killed_rank):
                os.kill(os.getpid(), signal.SIGKILL)
        if batches[0] is None:
            assert batches == [None] * world_size, "all ranks take as many steps"
            break
        states = [each.state_dict() for each in loaders]
        line = json.dumps({"batches": batches, "states": states})
        file.write(line + "\\n")
        file.flush()
print(world_size)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects")
    fill_folder(folder, COUNT)
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    assert fill_with_tables(headrace.Store(folder), [37, 3, 60, 0, 41, 19]) == COUNT
    return folder


def killed_and_resumed(run_child: RunChild, folder: Path, log: Path, kind: str, seed: str) -> None:
    log.write_text("")
    run_child(JOB, kind, folder, log, f"{seed} before", True, expect_code=-9, stderr=None)
    # The log may say that samples are left out.
    world_size = int(run_child(JOB, kind, folder, log, f"{seed} after", False, stderr=None))
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    seen = Counter(number for line in lines for batch in line["batches"] for number in batch)
    if kind == "mixture":
        shares = mix([range(size) for size in SIZES], [3, 2, 1]).shares(shuffle=True)
        expected = Counter(shares.order(3, 0).indices(0, COUNT))
    elif kind == "weights":
        costs = [float(i * 7 % 8 + 1) for i in range(COUNT)]
        expected = Counter(headrace.torch.WeightedSampler(COUNT, costs, COUNT, seed=3))
    else:
        expected = Counter(range(COUNT))
    assert seen <= expected, f"{kind} {seed}: a sample came twice"
    # At the end of the epoch, fewer samples than ranks may be left out.
    assert COUNT - seen.total() < world_size, f"{kind} {seed}: samples are missing"


KINDS = ("batches", "weights", "mixture", "blocks", "parquet")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_a_random_step_and_resumed_as_another_job(
    run_child: RunChild, folder: Path, tables: Path, tmp_path: Path, kind: str
) -> None:
    source = tables if kind == "parquet" else folder
    seed = seed_of_today()
    for number in random.Random(f"{seed} {kind}").sample(range(100), 3):
        killed_and_resumed(run_child, source, tmp_path / "log", kind, f"case {number}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_a_hundred_random_steps(
    run_child: RunChild, folder: Path, tables: Path, tmp_path: Path, kind: str
) -> None:
    source = tables if kind == "parquet" else folder
    for number in range(100):
        killed_and_resumed(run_child, source, tmp_path / "log", kind, f"case {number}")
