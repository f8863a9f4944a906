"""How samples of tokens are read: requests, ranks, places, workers."""

from __future__ import annotations

import collections
import random
from typing import Any

import pytest
from torch.utils.data import DataLoader

import headrace
from headrace.torch import Loader, TokenDataset
from testing.faultserver.client import FaultServer
from tests.tokens.conftest import corpus, megatron_index, put, rows, samples_of

SEQ_LEN = 100


@pytest.fixture
def tokens(store: headrace.Store) -> list[list[int]]:
    """The samples of the files in `store`."""
    files = {"a.bin": corpus(3001), "b.npy": corpus(2017, 1), "c.bin": corpus(1111, 2)}
    return samples_of(put(store, files), SEQ_LEN)


def kinds(server: FaultServer) -> collections.Counter[str]:
    return collections.Counter(each["kind"] for each in server.log())


def apart(store: headrace.Store) -> headrace.Store:
    """Return a store that reads each sample by itself: in so small a file all are neighbours."""
    return store._derived(parallel=headrace.ParallelOptions(max_gap_bytes=None))


def test_opening_asks_once_for_a_file_and_reads_headers(
    gcs: headrace.Store, server: FaultServer
) -> None:
    put(gcs, {f"{i}.bin": corpus(300, i) for i in range(5)})
    put(gcs, {f"{i}.npy": corpus(300, i) for i in range(3)})
    gcs.write("m/corpus.bin", corpus(300).tobytes())
    gcs.write("m/corpus.idx", megatron_index([100, 200], "uint16"))
    for source, names, expected in (
        # Of each .bin also whether it has an .idx, unless a dtype says that it is raw.
        (gcs, [f"{i}.bin" for i in range(5)], {"get": 10, "media": 5}),
        (gcs, [f"{i}.npy" for i in range(3)], {"get": 3, "media": 3}),
        (gcs, ["m/corpus.idx"], {"get": 1, "media": 1}),
        (gcs, None, {"list": 1, "media": 9}),
    ):
        server.reset(keep_buckets=True)
        TokenDataset(source, seq_len=10, names=names, vocab_size=50_000)
        assert kinds(server) == expected
        beginnings = [each["bytes_sent"] for each in server.log() if each["kind"] == "media"]
        assert all(size <= 256 for size in beginnings)
    server.reset(keep_buckets=True)
    TokenDataset(gcs, seq_len=10, names=[f"{i}.bin" for i in range(5)], dtype="uint16")
    assert kinds(server) == {"get": 5, "media": 5}


def test_a_sample_by_itself_is_one_request_of_its_bytes(
    gcs: headrace.Store, server: FaultServer
) -> None:
    (tokens,) = put(gcs, {"a.bin": corpus(50_001)})
    dataset = TokenDataset(apart(gcs), seq_len=1000, dtype="uint16")
    server.reset(keep_buckets=True)
    assert sorted(rows(list(Loader(dataset, batch_size=8, shuffle=True)))) == sorted(
        samples_of([tokens], 1000)
    )
    log = [each for each in server.log() if each["kind"] == "media"]
    assert len(log) == len(dataset) == 50
    needed = len(dataset) * 1001 * 2
    assert sum(each["bytes_sent"] for each in log) <= 1.05 * needed


def test_ranks_share_the_samples(store: headrace.Store, tokens: list[list[int]]) -> None:
    dataset = TokenDataset(store, seq_len=SEQ_LEN, dtype="uint16")
    for world_size in (2, 3):
        seen = []
        for rank in range(world_size):
            loader = Loader(
                dataset, batch_size=4, shuffle=True, seed=5, rank=rank, world_size=world_size
            )
            seen += rows(list(loader))
        assert sorted(seen) == sorted(tokens)


def test_an_epoch_goes_on_where_it_was_left(store: headrace.Store, tokens: list[list[int]]) -> None:
    chosen = random.Random(11)
    dataset = TokenDataset(store, seq_len=SEQ_LEN, dtype="uint16")
    whole = rows(list(Loader(dataset, batch_size=1, shuffle=True, seed=9)))
    assert sorted(whole) == sorted(tokens)
    for _ in range(10):
        seen: list[list[int]] = []
        state = None
        while len(seen) < len(whole):
            # As after a restart, with another batch size.
            loader = Loader(
                TokenDataset(store, seq_len=SEQ_LEN, dtype="uint16"),
                batch_size=chosen.randint(1, 7),
                shuffle=True,
                seed=9,
            )
            if state is not None:
                loader.load_state_dict(state)
            for taken, batch in enumerate(loader, 1):
                seen += batch.tolist()
                if taken == chosen.randint(1, 6):
                    break
            state = loader.state_dict()
        assert seen == whole


def test_resuming_reads_nothing_that_was_seen(gcs: headrace.Store, server: FaultServer) -> None:
    put(gcs, {"a.bin": corpus(10_001)})
    dataset = TokenDataset(apart(gcs), seq_len=100, dtype="uint16")
    loader = Loader(dataset, batch_size=10, shuffle=True)
    batches = iter(loader)
    for _ in range(9):
        next(batches)
    state = loader.state_dict()
    batches.close()
    headrace.shutdown()
    server.reset(keep_buckets=True)
    resumed = Loader(dataset, batch_size=10, shuffle=True)
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 1
    assert kinds(server)["media"] == 10


def test_a_state_belongs_to_one_way_of_cutting(store: headrace.Store) -> None:
    put(store, {"a.bin": corpus(1001)})
    as_saved: dict[str, Any] = {"seq_len": 10, "dtype": "uint16"}
    state = Loader(TokenDataset(store, **as_saved), batch_size=2).state_dict()
    others: list[dict[str, Any]] = [
        {"seq_len": 11},
        {"stride": 9},
        {"seq_len": 20, "stride": 10},
        # The same bytes, but other tokens.
        {"dtype": "int16"},
        {"seq_len": 21, "stride": 20, "dtype": "uint8"},
    ]
    for options in others:
        loader = Loader(TokenDataset(store, **(as_saved | options)), batch_size=2)
        with pytest.raises(headrace.InvalidArgumentError, match="the state is of other data"):
            loader.load_state_dict(state)
    put(store, {"a.bin": corpus(1021)})
    with pytest.raises(headrace.InvalidArgumentError, match="the state is of other data"):
        Loader(TokenDataset(store, **as_saved), batch_size=2).load_state_dict(state)


def test_a_state_belongs_to_one_content_where_the_store_has_checksums(gcs: headrace.Store) -> None:
    def loader(order: tuple[int, ...] | None) -> Loader:
        dataset = TokenDataset(gcs, seq_len=10, names=["a.idx"], sequence_order=order)
        return Loader(dataset, batch_size=2)

    gcs.write("a.idx", megatron_index([500, 501], "uint16"))
    put(gcs, {"a.bin": corpus(1001)})
    states = {order: loader(order).state_dict() for order in (None, (1, 0))}
    for order, state in states.items():
        loader(order).load_state_dict(state)
    put(gcs, {"a.bin": corpus(1001, 1)})
    for order, state in states.items():
        with pytest.raises(headrace.InvalidArgumentError, match="names, sizes or checksums"):
            loader(order).load_state_dict(state)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_the_same(store: headrace.Store, tokens: list[list[int]], start: str) -> None:
    dataset = TokenDataset(store, seq_len=SEQ_LEN, dtype="uint16")
    assert dataset[3].tolist() == tokens[3]  # the engine of this process is in use
    loader = DataLoader(dataset, batch_size=7, num_workers=2, multiprocessing_context=start)
    assert rows(list(loader)) == tokens


def test_a_batch_is_one_tensor_and_a_sample_owns_its_memory(store: headrace.Store) -> None:
    put(store, {"a.bin": corpus(1001)})
    stored = TokenDataset(store, seq_len=50, dtype="uint16", cast=None)
    for batch in Loader(stored, batch_size=4):
        # What was read is what is given: nothing was stacked or cast.
        assert batch.untyped_storage().nbytes() == batch.numel() * 2
    for sample in (stored[0], TokenDataset(store, seq_len=50, dtype="uint16")[0]):
        assert sample.untyped_storage().nbytes() == sample.numel() * sample.itemsize
        sample.zero_()  # and writable
