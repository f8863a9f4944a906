"""What samples of tokens do in processes of their own: threads, kills, torchrun."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.torch import Loader, TokenDataset
from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild
from tests.tokens.conftest import corpus
from tests.torch.conftest import _nursery, run_child
from tests.torchrun import torchrun

__all__ = ["_nursery", "run_child"]


def test_batches_are_cast_and_checked_without_threads_of_torch(
    run_child: RunChild, server: FaultServer
) -> None:
    # Those of OpenMP spin while they wait for each other, which costs a trainer its cores.
    server.put("bucket", "a.bin", corpus(400_001).tobytes())
    run_child(
        """
from in_child import *
import torch
from headrace.torch import Loader, TokenDataset

torch.set_num_threads(4)
dataset = TokenDataset(open_store(), seq_len=40_000, vocab_size=50_000)
before = len(thread_names()) - len(headrace_threads())
for batch in Loader(dataset, batch_size=2):
    assert batch.dtype == torch.int64
assert len(thread_names()) - len(headrace_threads()) == before
torch.zeros(1 << 20).add_(1)  # as torch's copy and minimum would have done
assert len(thread_names()) - len(headrace_threads()) > before
""",
        server.url,
    )


SEQ_LEN = 20
SAMPLES = 301

# One life of a job: all its ranks, in one process. It notes each step when all ranks have taken it,
# and is killed right after the last one, with the next ones being read ahead.
LIFE = """
from in_child import *
from headrace.torch import Loader, TokenDataset

folder, log = sys.argv[1:3]
state, world_size, batch_size, steps = json.loads(sys.argv[3])
dataset = TokenDataset(folder, seq_len=20, dtype="uint32")
loaders = [
    Loader(dataset, batch_size, shuffle=True, seed=3, rank=rank, world_size=world_size)
    for rank in range(world_size)
]
for loader in loaders:
    if state is not None:
        loader.load_state_dict(state)
iterators = [iter(loader) for loader in loaders]
with open(log, "a") as file:
    for _ in range(steps):
        epoch = loaders[0].epoch
        batches = [next(iterator, None) for iterator in iterators]
        if batches[0] is None:
            assert batches == [None] * world_size
            iterators = [iter(loader) for loader in loaders]
            continue
        states = [loader.state_dict() for loader in loaders]
        assert states == [states[0]] * world_size
        numbers = [row[0] // 20 for batch in batches for row in batch.tolist()]
        print(json.dumps([epoch, numbers, states[0]]), file=file, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def numbered(folder: Path) -> Path:
    """Write a file of tokens in which each sample begins with its number, times SEQ_LEN."""
    folder.mkdir()
    np.arange(SAMPLES * SEQ_LEN + 1, dtype="uint32").tofile(folder / "a.bin")
    return folder


@pytest.mark.timeout(900)
def test_a_job_that_is_killed_at_a_hundred_steps_sees_each_sample_once_an_epoch(
    run_child: RunChild, tmp_path: Path
) -> None:
    folder, log = numbered(tmp_path / "data"), tmp_path / "log"
    log.touch()
    chosen = random.Random(8)
    noted: list[Any] = []
    for _ in range(100):
        state = noted[-1][2] if noted else None
        # The last samples are left out if they are fewer than the ranks; so there are not more.
        left = SAMPLES - state["position"] if state else SAMPLES
        life = [state, chosen.randint(1, min(4, left)), chosen.randint(2, 9), chosen.randint(1, 9)]
        run_child(LIFE, folder, log, json.dumps(life), expect_code=-9)
        noted = [json.loads(line) for line in log.read_text().splitlines()]
    by_epoch: dict[int, list[int]] = {}
    for epoch, numbers, _ in noted:
        by_epoch.setdefault(epoch, []).extend(numbers)
    assert len(by_epoch) > 3
    orders = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    for order in orders[:-1]:
        assert sorted(order) == list(range(SAMPLES))
    assert len(set(orders[-1])) == len(orders[-1])
    assert orders[0] != orders[1]


# A rank of a job that stops in the middle of an epoch.
RANK = """
import json, sys
import torch.distributed as dist
from headrace.torch import Loader, TokenDataset

folder, out = sys.argv[1:]
dist.init_process_group("gloo")
loader = Loader(TokenDataset(folder, seq_len=20, dtype="uint32"), 7, shuffle=True, seed=5)
batches = iter(loader)
numbers = [row[0] // 20 for _ in range(6) for row in next(batches).tolist()]
with open(f"{out}/{dist.get_rank()}.json", "w") as file:
    json.dump([numbers, loader.state_dict()], file)
dist.destroy_process_group()
"""


@pytest.mark.timeout(600)
def test_four_ranks_of_torchrun_share_an_epoch_that_fewer_finish(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "data")
    ranks, _ = torchrun(RANK, 4, folder, out=tmp_path)
    state = ranks[0][1]
    assert [each[1] for each in ranks] == [state] * 4
    seen = [number for numbers, _ in ranks for number in numbers]
    assert len(seen) == 4 * 6 * 7
    dataset = TokenDataset(folder, seq_len=SEQ_LEN, dtype="uint32")
    for rank in range(3):
        loader = Loader(dataset, 5, shuffle=True, seed=5, rank=rank, world_size=3)
        loader.load_state_dict(state)
        seen += [row[0] // SEQ_LEN for batch in loader for row in batch.tolist()]
    assert sorted(seen) == list(range(SAMPLES))
