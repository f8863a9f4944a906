"""Streams of shards in processes of their own: torchrun, and jobs that are killed."""

from __future__ import annotations

import itertools
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.torch import ShardStream
from tests.campaigns.cases import seed_of_today
from tests.process.conftest import RunChild
from tests.shards.tars import number_of, samples_of, tar, zstd
from tests.torch.conftest import _nursery, run_child
from tests.torchrun import torchrun

__all__ = ["_nursery", "run_child"]

COUNTS = [20, 40, 3, 17, 0, 30, 1, 25, 4, 41]  # of samples in each shard
SAMPLES = sum(COUNTS)


def folder_of_shards(folder: Path, kind: str) -> Path:
    """Write shards into a folder, or an index of them beside it, and return which."""
    store = headrace.Store(folder)
    begins = itertools.accumulate(COUNTS, initial=0)
    for shard, (begin, count) in enumerate(zip(begins, COUNTS, strict=False)):
        data = tar(samples_of(begin, count, 300))
        name = f"shard-{shard:03d}.tar"
        store.write(*((f"{name}.zst", zstd(data)) if kind == "compressed" else (name, data)))
    if kind == "indexed":
        headrace.index_members(folder).save(index := folder.parent / "index")
        return index
    return folder


# A rank of a job that stops in the middle of an epoch, each with two workers.
RANK = """
import json, sys
import torch.distributed as dist
from torchdata.stateful_dataloader import StatefulDataLoader
import headrace
from headrace.torch import ShardStream

def number_of(fields):
    return int(fields["__key__"])

index, out = sys.argv[1:]
stream = ShardStream(
    headrace.ObjectIndex.load(index), number_of, shuffle=True, shuffle_window=9, seed=5
)
dist.init_process_group("gloo")
loader = StatefulDataLoader(stream, 3, num_workers=2, multiprocessing_context="fork")
batches = iter(loader)
numbers = [number for _ in range(6) for number in next(batches).tolist()]
state = loader.state_dict()
rest = [number for batch in batches for number in batch.tolist()]
with open(f"{out}/{dist.get_rank()}.json", "w") as file:
    json.dump([numbers, state, rest], file)
dist.destroy_process_group()
"""


@pytest.mark.timeout(600)
def test_four_ranks_of_torchrun_share_a_stream_that_fewer_finish(tmp_path: Path) -> None:
    index = folder_of_shards(tmp_path / "data", "indexed")
    ranks, _ = torchrun(RANK, 4, index, out=tmp_path)
    assert {len(numbers) + len(rest) for numbers, _, rest in ranks} == {SAMPLES // 4}
    whole = [number for numbers, _, rest in ranks for number in numbers + rest]
    assert len(set(whole)) == len(whole) == SAMPLES // 4 * 4
    states = [state for _, state, _ in ranks]
    seen = [number for numbers, _, _ in ranks for number in numbers]
    counts = []
    for rank in range(3):
        stream = ShardStream(
            headrace.ObjectIndex.load(index), number_of,
            shuffle=True, shuffle_window=9, seed=5, rank=rank, world_size=3,
        )  # fmt: skip
        stream.load_state_dict(states)
        rest = list(stream)
        counts.append(len(rest))
        seen += rest
    assert counts == [(SAMPLES - 4 * 6 * 3) // 3] * 3
    assert len(set(seen)) == len(seen)


# One life of a job: all its ranks, in one process, each with its workers. It notes each step when
# all ranks have taken it, and is killed right after the last one, with more being read ahead.
LIFE = """
from in_child import *
import pickle, warnings
from torchdata.stateful_dataloader import StatefulDataLoader
from headrace.torch import ShardStream

warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it

def number_of(fields):
    return int(fields["__key__"])

source, log, job = sys.argv[1:]
with open(job, "rb") as file:
    epoch, states, world_size, workers, batch_size, steps = pickle.load(file)
if Path(source).name == "index":
    source = headrace.ObjectIndex.load(source)
streams = [
    ShardStream(
        source, number_of, shuffle=True, shuffle_window=30, seed=3, uneven="keep",
        rank=rank, world_size=world_size,
    )
    for rank in range(world_size)
]
options = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
loaders = [StatefulDataLoader(stream, batch_size, **options) for stream in streams]
for stream in streams:
    stream.set_epoch(epoch)
    if states:
        stream.load_state_dict(states)
iterators = [iter(loader) for loader in loaders]
with open(log, "ab") as file:
    for _ in range(steps):
        batches = [next(iterator, None) for iterator in iterators]
        if batches == [None] * world_size:
            epoch += 1
            for stream in streams:
                stream.set_epoch(epoch)
            iterators = [iter(loader) for loader in loaders]
            continue
        numbers = [number for batch in batches if batch is not None for number in batch.tolist()]
        pickle.dump([epoch, numbers, [loader.state_dict() for loader in loaders]], file)
        file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def live(run_child: RunChild, folder: Path, kind: str, lives: int, chosen: random.Random) -> None:
    """Kill a job so often, and see whether each epoch had each sample once."""
    source, log, job = folder_of_shards(folder / "data", kind), folder / "log", folder / "job"
    log.touch()
    noted: list[Any] = []
    for _ in range(lives):
        epoch, states = (noted[-1][0], noted[-1][2]) if noted else (0, None)
        life = [chosen.randint(1, 3), chosen.randint(0, 2), chosen.randint(2, 9)]
        job.write_bytes(pickle.dumps([epoch, states, *life, chosen.randint(1, 9)]))
        run_child(LIFE, source, log, job, expect_code=-9)
        with log.open("rb") as file:
            noted = []
            while file.peek(1):
                noted.append(pickle.load(file))
    by_epoch: dict[int, list[int]] = {}
    for epoch, numbers, _ in noted:
        by_epoch.setdefault(epoch, []).extend(numbers)
    last = by_epoch.pop(max(by_epoch))
    assert 0 < len(set(last)) == len(last)
    for order in by_epoch.values():
        assert sorted(order) == list(range(SAMPLES))


KINDS = ["plain", "compressed", "indexed"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_is_killed_sees_each_sample_once(
    run_child: RunChild, tmp_path: Path, kind: str
) -> None:
    seed = seed_of_today()
    print(f"HEADRACE_CAMPAIGN_SEED={seed}")
    live(run_child, tmp_path, kind, 6, random.Random(f"{seed} {kind}"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_is_killed_at_a_hundred_steps_sees_each_sample_once(
    run_child: RunChild, tmp_path: Path, kind: str
) -> None:
    live(run_child, tmp_path, kind, 100, random.Random(f"{seed_of_today()} {kind}"))
