"""``shuffle="block"``: neighbours stay together, and few requests read them."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch.utils.data import DataLoader

import headrace
from headrace.torch import (
    CostBatchSampler,
    Loader,
    MapDataset,
    ShardDataset,
    TokenDataset,
)
from testing.faultserver.client import FaultServer
from tests.shards.tars import fill as fill_shards
from tests.shards.tars import number_of as number_in_shard
from tests.tokens.conftest import corpus, rows, samples_of
from tests.torch.conftest import fill_folder

COUNT = 1000
RECORD_BYTES = 64


@pytest.fixture
def records(gcs: headrace.Store) -> headrace.ObjectIndex:
    """So many ranges of one object, one after the other, each with its number."""
    gcs.write("all.bin", b"".join(i.to_bytes(RECORD_BYTES, "little") for i in range(COUNT)))
    begins = [RECORD_BYTES * i for i in range(COUNT)]
    return headrace.ObjectIndex.from_names(
        ["all.bin"] * COUNT,
        root="gs://bucket",
        begins=begins,
        ends=[begin + RECORD_BYTES for begin in begins],
    )


def number_of(sample: headrace.Sample) -> int:
    return int.from_bytes(sample.bytes(), "little")


def requests(server: FaultServer) -> tuple[int, int]:
    """Return how many reads the server has seen, and how many bytes it has sent for them."""
    log = [each for each in server.log() if each["kind"] == "media"]
    return len(log), sum(each["bytes_sent"] for each in log)


def alone(server: FaultServer, url: str = "gs://bucket") -> headrace.Store:
    """Return a store that reads no gaps."""
    neighbours = headrace.ParallelOptions(max_gap_bytes=0)
    return headrace.Store(url, endpoint=server.url, parallel=neighbours)


# ---- the order


rules = st.fixed_dictionaries(
    {"block_size": st.integers(1, 40), "shuffle_window": st.none() | st.integers(1, 300)}
)


def sampler(count: int, rule: dict[str, Any], size: int, **options: Any) -> CostBatchSampler:
    return CostBatchSampler(count, max_batch_size=size, shuffle="block", seed=5, **rule, **options)


@hypothesis.given(
    st.integers(1, 400), rules, st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data()
)
def test_each_comes_once_on_any_ranks_and_an_epoch_goes_on_with_others(
    count: int, rule: dict[str, Any], world_sizes: list[int], data: st.DataObject
) -> None:
    whole = list(itertools.chain(*sampler(count, rule, 7)))
    assert sorted(whole) == list(range(count))
    seen: list[int] = []
    state = None
    for turn, world_size in enumerate(world_sizes):
        if count - len(seen) < world_size and turn > 0:
            break  # too little is left for a step here, so they would begin the next epoch
        size = data.draw(st.integers(1, 20))
        ranks = [
            sampler(count, rule, size, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for each in ranks:
            if state is not None:
                each.load_state_dict(state)
        is_last = turn == len(world_sizes) - 1
        for step in itertools.islice(
            zip(*map(iter, ranks), strict=True), None if is_last else data.draw(st.integers(0, 5))
        ):
            seen += itertools.chain(*step)
        state = json.loads(json.dumps(ranks[0].state_dict()))
        if state["epoch"] == 1:
            break
    assert seen == whole[: len(seen)]
    if state["epoch"] == 1:
        assert count - len(seen) < max(world_sizes)


def test_the_order_is_a_loaders_and_a_samplers(records: headrace.ObjectIndex, gcs: Any) -> None:
    dataset = MapDataset(gcs, number_of, index=records)
    options: dict[str, Any] = {
        "shuffle": "block",
        "block_size": 10,
        "shuffle_window": 95,
        "seed": 5,
    }
    order = headrace._engine.BlockOrder(COUNT, 5, 0, 10, 10)
    expected = order.indices(0, COUNT).tolist()
    assert list(itertools.chain(*Loader(dataset, 64, collate_fn=list, **options))) == expected
    batches = CostBatchSampler(dataset, max_batch_size=64, **options)
    assert list(itertools.chain(*batches)) == expected
    batches.set_epoch(0)
    assert torch.cat(list(DataLoader(dataset, batch_sampler=batches))).tolist() == expected
    loader = Loader(dataset, 64, collate_fn=list, **options)
    list(loader)
    assert list(itertools.chain(*loader)) != expected  # epoch 1


# ---- requests


@pytest.mark.parametrize("makes", ["tensors", "numbers"])
@pytest.mark.parametrize(("block_size", "window", "batch_size"), [(10, 10, 50), (25, 100, 200)])
def test_a_loader_reads_each_block_by_one_request(
    server: FaultServer,
    records: headrace.ObjectIndex,
    makes: str,
    block_size: int,
    window: int,
    batch_size: int,
) -> None:
    transform = None if makes == "tensors" else number_of
    dataset = MapDataset(alone(server), transform, index=records)

    def read(shuffle: Any, **options: Any) -> int:
        server.reset(keep_buckets=True)
        loader = Loader(dataset, batch_size, shuffle=shuffle, seed=3, **options)
        assert sum(len(batch) for batch in loader) == COUNT
        count, sent_bytes = requests(server)
        assert sent_bytes == COUNT * RECORD_BYTES
        return count

    blocks = COUNT // block_size
    found = read("block", block_size=block_size, shuffle_window=window)
    # One block continues at index 0; those that happen to be neighbours in a batch are one request.
    assert 0.8 * blocks <= found <= blocks + 1
    assert read(True) > 5 * blocks


@pytest.mark.parametrize("done", [1, 4])
def test_what_is_left_is_read_and_nothing_else(
    server: FaultServer, records: headrace.ObjectIndex, done: int
) -> None:
    dataset = MapDataset(alone(server), number_of, index=records)

    def loader(size: int) -> Loader:
        return Loader(dataset, size, shuffle="block", block_size=10, seed=3, collate_fn=list)

    whole = list(itertools.chain(*loader(100)))
    begun = loader(100)
    batches: Iterator[list[int]] = iter(begun)
    before = list(itertools.chain(*itertools.islice(batches, done)))
    state = json.loads(json.dumps(begun.state_dict()))
    del batches
    headrace.shutdown()
    server.reset(keep_buckets=True)
    resumed = loader(50)
    resumed.load_state_dict(state)
    assert before + list(itertools.chain(*resumed)) == whole
    count, sent_bytes = requests(server)
    assert sent_bytes == (COUNT - 100 * done) * RECORD_BYTES
    assert count <= (COUNT - 100 * done) // 10 + 1


def test_samples_of_a_token_file_come_in_blocks(server: FaultServer, gcs: headrace.Store) -> None:
    tokens = corpus(32_001)
    gcs.write("a.bin", tokens.tobytes())
    dataset = TokenDataset(alone(server), seq_len=50, dtype="uint16")
    assert len(dataset) == 640
    server.reset(keep_buckets=True)
    loader = Loader(dataset, 64, shuffle="block", block_size=32)
    assert sorted(rows(list(loader))) == sorted(samples_of([tokens], 50))
    count, sent_bytes = requests(server)
    assert 16 <= count <= 21
    # Of neighbours in a block, the one's last token is the other's first, and is read once.
    assert sent_bytes <= tokens.nbytes + 2 * count


def test_members_of_shards_come_in_blocks(server: FaultServer, gcs: headrace.Store) -> None:
    fill_shards(gcs, 3, 40)
    dataset = ShardDataset(headrace.index_members(gcs), number_in_shard, endpoint=server.url)
    server.reset(keep_buckets=True)
    loader = Loader(dataset, 24, shuffle="block", block_size=12, collate_fn=list)
    assert sorted(itertools.chain(*loader)) == list(range(120))
    # Ten blocks, of which some lie in two shards.
    assert 8 <= requests(server)[0] <= 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    return fill_folder(tmp_path_factory.mktemp("objects"), 150)


# ---- states and arguments


def test_a_state_is_for_the_same_blocks(folder: headrace.Store) -> None:
    dataset = MapDataset(folder)

    def loader(shuffle: Any = "block", **options: Any) -> Loader:
        return Loader(dataset, 4, shuffle=shuffle, **options)

    state = loader(block_size=5).state_dict()
    loader(block_size=5, shuffle_window=3).load_state_dict(state)
    for other in (loader(), loader(block_size=5, shuffle_window=6), loader(True)):
        with pytest.raises(
            headrace.InvalidArgumentError,
            match="the state is of each object once per epoch, in blocks of 5 of which 1 are",
        ):
            other.load_state_dict(state)
    with pytest.raises(headrace.InvalidArgumentError, match=r"but here it is .*in blocks of 5"):
        loader(block_size=5).load_state_dict(loader(True).state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "blocks"}, "shuffle is 'blocks'; it must be True, False or 'block'"),
        ({"shuffle": 1}, "shuffle is 1; it must be"),
        ({"shuffle": True, "block_size": 4}, "block_size is given, but shuffle is True: say"),
        ({"shuffle_window": 4}, "shuffle_window is given, but shuffle is False"),
        ({"shuffle": "block", "block_size": 0}, "block_size is 0"),
        ({"shuffle": "block", "block_size": 1 << 63}, "block_size is .*below 2"),
        ({"shuffle": "block", "shuffle_window": -1}, "shuffle_window is -1"),
        ({"shuffle": "block", "block_size": True}, "block_size is True"),
    ],
)
def test_arguments_that_cannot_work_are_refused(
    folder: headrace.Store, options: dict[str, Any], message: str
) -> None:
    dataset = MapDataset(folder)
    for make in (
        lambda: Loader(dataset, 4, **options),
        lambda: CostBatchSampler(dataset, max_batch_size=4, **options),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=message):
            make()


def test_a_sampler_leaves_nothing_to_shuffle(folder: headrace.Store) -> None:
    dataset = MapDataset(folder)
    with pytest.raises(headrace.InvalidArgumentError, match="leave out shuffle"):
        Loader(dataset, 4, sampler=[1], shuffle="block")


def test_killed_at_random_steps_and_resumed_on_other_ranks_and_batches(
    folder: headrace.Store,
) -> None:
    dataset = MapDataset(folder, lambda sample: sample.index)
    for seed in range(12):
        chance = random.Random(seed)
        seen: Counter[int] = Counter()
        state = None
        for is_last in (False, True):
            world_size = chance.randrange(1, 4)
            size = chance.randrange(2, 20)
            loaders = [
                Loader(
                    dataset, size, shuffle="block", block_size=7, shuffle_window=20, seed=1,
                    collate_fn=list, transform_threads=0, rank=rank, world_size=world_size,
                )
                for rank in range(world_size)
            ]  # fmt: skip
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
            steps = None if is_last else chance.randrange(1, len(loaders[0]))
            for step in itertools.islice(zip(*map(iter, loaders), strict=True), steps):
                for batch in step:
                    seen.update(batch)
            state = loaders[-1].state_dict()
        assert seen == Counter(range(150))
