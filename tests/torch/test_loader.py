"""`Loader`: batches, order, place, errors, counts of requests."""

from __future__ import annotations

import gc
import gzip
import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

import headrace
from headrace.torch import Loader, MapDataset, _pipeline
from testing.faultserver.client import FaultServer
from tests.torch.conftest import content, fill, fill_folder, kinds, reads
from tests.torch.test_map_dataset import fail, fail_by_key, numbers

THREADS = [0, 2]


def number_of(sample: headrace.Sample) -> int:
    return int(sample.bytes()[:4])


def transform_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("headrace-transform")]


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who closes an iterator waits for its threads for as long as a busy machine takes."""
    monkeypatch.setattr(_pipeline, "_CLOSE_S", 60.0)


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    """A hundred files of 100 bytes."""
    return fill_folder(tmp_path_factory.mktemp("hundred"), 100)


# ---- what a batch is


def test_a_batch_is_one_tensor(hundred: headrace.Store) -> None:
    batches = list(Loader(MapDataset(hundred), 16))
    assert [tuple(batch.shape) for batch in batches] == [(16, 100)] * 6 + [(4, 100)]
    rows = torch.cat(batches)
    assert rows.dtype == torch.uint8
    for i, row in enumerate(rows):
        assert bytes(row.tolist()) == content(i)
    batches[0].fill_(1)  # writable


@pytest.mark.parametrize("threads", THREADS)
def test_a_transform_and_the_default_collate(hundred: headrace.Store, threads: int) -> None:
    def transform(sample: headrace.Sample) -> tuple[torch.Tensor, int, str]:
        return sample.tensor().float(), number_of(sample), sample.url

    loader = Loader(MapDataset(hundred, transform), 32, transform_threads=threads)
    seen = []
    for values, labels, urls in loader:
        assert values.shape == (len(labels), 100)
        assert values.dtype == torch.float32
        assert list(urls) == [hundred.url_of(f"{i:04d}") for i in labels]
        seen += labels.tolist()
    assert seen == list(range(100))


@pytest.mark.parametrize("threads", THREADS)
def test_a_collate_fn_gets_the_list_of_samples(hundred: headrace.Store, threads: int) -> None:
    loader = Loader(MapDataset(hundred), 32, collate_fn=list, transform_threads=threads)
    first = next(iter(loader))
    assert isinstance(first, list)
    assert numbers(torch.stack(first)) == list(range(32))


def test_what_is_read_straight_into_batches_counts_until_it_is_handed_over(
    hundred: headrace.Store,
) -> None:
    loader = Loader(MapDataset(hundred), 10, prefetch_bytes=3000)
    gc.collect()  # what earlier tests left in cycles must not be freed in the middle of this one
    held_before = headrace.metrics().memory_live_bytes
    batches = iter(loader)
    first = next(batches)
    # Two of 10 x 100 bytes ahead, and room for the third: not the one that the trainer has.
    # Blocks of 1,024 bytes, of which each batch needs 1,000.
    assert headrace.metrics().memory_live_bytes - held_before == 3072
    batches.close()  # type: ignore[attr-defined]
    gc.collect()
    assert headrace.metrics().memory_live_bytes == held_before
    assert first.shape == (10, 100)


@pytest.mark.parametrize("straight", [True, False])
def test_batches_lie_where_batches_lay_that_nobody_has_any_more(
    hundred: headrace.Store, straight: bool
) -> None:
    def large(sample: headrace.Sample) -> torch.Tensor:
        return sample.tensor().repeat(1000).float()

    dataset = MapDataset(hundred, None if straight else large)
    loader = Loader(dataset, 10, prefetch_bytes=3000, transform_threads=1)
    places = set()
    for _ in range(20):
        for batch in loader:
            places.add(batch.data_ptr())
    assert len(places) <= 8  # of 200 batches


def test_a_batch_that_is_kept_is_nobody_elses_and_counts_for_nothing(
    hundred: headrace.Store,
) -> None:
    loader = Loader(MapDataset(hundred, lambda sample: sample.tensor().repeat(1000)), 10)
    gc.collect()
    held_before = headrace.metrics().memory_live_bytes
    kept = [batch for _ in range(5) for batch in loader]
    assert headrace.metrics().memory_live_bytes == held_before
    assert len({batch.data_ptr() for batch in kept}) == 50
    for at, batch in enumerate(kept):
        rows = [bytes(row[-100:].tolist()) for row in batch]
        assert rows == [content(i) for i in range(at % 10 * 10, at % 10 * 10 + 10)]


@pytest.mark.parametrize("straight", [True, False])
def test_a_batch_is_a_tensor_like_others(hundred: headrace.Store, straight: bool) -> None:
    dataset = MapDataset(hundred, None if straight else lambda sample: sample.tensor().repeat(400))
    batch = next(iter(Loader(dataset, 10)))
    assert not batch._is_view()
    batch.detach_()
    before = batch.clone()
    assert batch.data_ptr() % 64 == 0
    assert torch.equal(pickle.loads(pickle.dumps(batch)), before)
    batch.share_memory_()
    batch += 1
    assert torch.equal(batch, before + 1)
    headrace.shutdown()
    assert torch.equal(batch, before + 1)  # it is no part of the engine


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int16, torch.bfloat16, torch.float16, torch.complex64]
)
def test_batches_of_any_type(hundred: headrace.Store, dtype: torch.dtype) -> None:
    def values(sample: headrace.Sample) -> torch.Tensor:
        return (sample.tensor() % 2).repeat(400).to(dtype)

    (batch,) = Loader(MapDataset(hundred, values), 100)
    assert batch.dtype == dtype
    rows = [torch.frombuffer(bytearray(content(i)), dtype=torch.uint8) for i in range(100)]
    assert torch.equal(batch, torch.stack([(row % 2).repeat(400).to(dtype) for row in rows]))


def test_a_batch_takes_part_in_what_torch_differentiates(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred, lambda s: s.tensor().float().repeat(400)), 10)
    weight = torch.ones(40_000, requires_grad=True)
    with torch.no_grad():
        batch = next(iter(loader))
    batch.mul_(weight)
    batch.sum().backward()
    assert weight.grad is not None


def test_objects_of_no_bytes(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for i in range(3):
        store.write(str(i), b"")
    (batch,) = Loader(MapDataset(store), 4)
    assert (batch.shape, batch.dtype) == ((3, 0), torch.uint8)


def test_batches_of_equal_sizes_in_a_set_of_unequal_ones(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for i in range(8):
        store.write(f"{i:04d}", content(i, 100 if i < 4 else 200))
    batches = list(Loader(MapDataset(store), 4))
    assert [tuple(batch.shape) for batch in batches] == [(4, 100), (4, 200)]
    assert [numbers(batch) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_unequal_sizes_are_told_before_they_are_read(server: FaultServer) -> None:
    store = fill(server, 4)
    server.put("bucket", "data/0005", content(5, 200))
    loader = Loader(MapDataset(store), 2)
    it = iter(loader)
    assert numbers(next(it)) == [0, 1]
    assert numbers(next(it)) == [2, 3]
    assert numbers(next(it)) == [5]
    with pytest.raises(
        headrace.InvalidArgumentError, match=r"\[100\] at place 0 and \[200\] at"
    ) as e:
        list(Loader(MapDataset(store), 5))
    assert "gs://bucket/data/0000 ... gs://bucket/data/0005" in str(e.value)
    assert "collate_fn" in str(e.value)
    assert reads(server)["data/0005"] == 1


@pytest.mark.parametrize("threads", THREADS)
def test_objects_that_are_decompressed(server: FaultServer, threads: int) -> None:
    """Their stored sizes, equal or not, do not matter; those of what they hold do."""
    for i in range(6):
        level = 9 if i % 2 else 0
        packed = gzip.compress(content(i, 300), level, mtime=0)
        server.put("bucket", f"data/{i:04d}", packed, contentEncoding="gzip")
    store = headrace.Store("gs://bucket/data/", endpoint=server.url, content_encoding="decompress")
    assert len({info.size_bytes for info in store.index()}) == 2
    loader = Loader(MapDataset(store), 3, transform_threads=threads)
    batches = list(loader)
    assert [tuple(batch.shape) for batch in batches] == [(3, 300)] * 2
    assert [bytes(row.tolist()) for row in torch.cat(batches)] == [
        content(i, 300) for i in range(6)
    ]
    evens = MapDataset(store, index=store.index().select([0, 2, 4]))  # stored in equal sizes
    assert numbers(next(iter(Loader(evens, 3)))) == [0, 2, 4]
    server.put(
        "bucket", "data/0006", gzip.compress(content(6, 200), mtime=0), contentEncoding="gzip"
    )
    with pytest.raises(headrace.InvalidArgumentError, match=r"\[300\] at place 0 and \[200\]"):
        list(Loader(MapDataset(store), 7, transform_threads=threads))


@pytest.mark.parametrize("threads", THREADS)
def test_unequal_tensors_of_a_transform(hundred: headrace.Store, threads: int) -> None:
    dataset = MapDataset(hundred, lambda sample: torch.zeros(number_of(sample)))
    with pytest.raises(headrace.InvalidArgumentError, match=r"\[0\] at place 0 and \[1\] at place"):
        next(iter(Loader(dataset, 4, transform_threads=threads)))


# ---- epochs and order


def epoch_of(loader: Loader) -> list[int]:
    return [i for batch in loader for i in numbers(batch)]


def test_each_iteration_is_an_epoch(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred), 16, shuffle=True, seed=7)
    epochs = []
    for i in range(3):
        assert loader.epoch == i
        epochs.append(epoch_of(loader))
    assert all(sorted(each) == list(range(100)) for each in epochs)
    assert len({tuple(each) for each in epochs}) == 3
    again = Loader(MapDataset(hundred), 16, shuffle=True, seed=7)
    again.set_epoch(2)
    assert epoch_of(again) == epochs[2]
    other = Loader(MapDataset(hundred), 16, shuffle=True, seed=8)
    assert epoch_of(other) != epochs[0]


def test_the_order_does_not_depend_on_threads_or_batches(hundred: headrace.Store) -> None:
    wanted = epoch_of(Loader(MapDataset(hundred), 16, shuffle=True, seed=7))
    for threads in (0, 1, 3):
        for size in (1, 7, 100):
            dataset = MapDataset(hundred, number_of)
            loader = Loader(dataset, size, shuffle=True, seed=7, transform_threads=threads)
            assert torch.cat(list(loader)).tolist() == wanted


def test_without_shuffle_it_is_the_order_of_names(hundred: headrace.Store) -> None:
    assert epoch_of(Loader(MapDataset(hundred), 9)) == list(range(100))


def test_an_iterator_that_is_left_counts_as_its_epoch(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred), 16)
    for _ in loader:
        break
    assert loader.state_dict()["position"] == 16
    assert loader.epoch == 0
    iter(loader)
    assert (loader.epoch, loader.state_dict()["position"]) == (1, 0)
    iter(loader)  # the one before was never used
    assert loader.epoch == 1


def test_a_newer_iterator_ends_the_older_one(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred, number_of), 16, transform_threads=2)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    with pytest.raises(headrace.CancelledError, match="another one of the same loader"):
        next(older)
    assert sum(len(batch) for batch in newer) == 100
    with pytest.raises(headrace.CancelledError):
        list(zip(loader, loader, strict=True))


@pytest.mark.parametrize("move", ["set_epoch", "load_state_dict"])
def test_going_elsewhere_ends_the_iterator(hundred: headrace.Store, move: str) -> None:
    loader = Loader(MapDataset(hundred), 16)
    it = iter(loader)
    next(it)
    getattr(loader, move)(3 if move == "set_epoch" else loader.state_dict())
    with pytest.raises(headrace.CancelledError, match="another place"):
        next(it)


@pytest.mark.parametrize("threads", [None, *THREADS])
@pytest.mark.parametrize("move", ["set_epoch", "load_state_dict", "iter"])
def test_going_elsewhere_while_a_batch_is_waited_for(
    server: FaultServer, threads: int | None, move: str
) -> None:
    """By another thread: who waits is told, and the loader is where it was sent to."""
    store = fill(server, 40)
    server.faults([{"match": {"path_contains": "data/0022"}, "count": 1, "action": "stall_head"}])
    dataset = MapDataset(store, None if threads is None else number_of)
    loader = Loader(dataset, 5, transform_threads=threads)
    there = {**loader.state_dict(), "epoch": 6, "position": 10}

    def go() -> None:
        while not server.stats()["in_flight"]:
            pass
        if move == "set_epoch":
            loader.set_epoch(6)
        elif move == "load_state_dict":
            loader.load_state_dict(there)
        else:
            iter(loader)

    it = iter(loader)
    thread = threading.Thread(target=go)
    next(it)
    thread.start()
    with pytest.raises(headrace.CancelledError, match="another place"):
        list(it)
    thread.join()
    state = loader.state_dict()
    wanted = {"set_epoch": (6, 0), "load_state_dict": (6, 10), "iter": (1, 0)}[move]
    assert (state["epoch"], state["position"]) == wanted
    assert sum(len(batch) for batch in loader) == 40 - wanted[1]


@pytest.mark.parametrize("at", ["transform", "collate_fn"])
def test_going_elsewhere_in_the_middle_of_a_batch(hundred: headrace.Store, at: str) -> None:
    """As a signal's handler may, in the very thread that makes the batch."""

    def go(_: Any) -> int:
        if loader.epoch == 0 and loader.state_dict()["position"] == 20:
            loader.load_state_dict({**loader.state_dict(), "epoch": 9, "position": 60})
        return 0

    dataset = MapDataset(hundred, go if at == "transform" else None)
    collate_fn = go if at == "collate_fn" else list
    loader = Loader(dataset, 10, collate_fn=collate_fn, transform_threads=0)
    it = iter(loader)
    next(it), next(it)
    with pytest.raises(headrace.CancelledError, match="another place"):
        next(it)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (9, 60)
    assert len(list(loader)) == 4


def test_the_number_of_batches(hundred: headrace.Store) -> None:
    dataset = MapDataset(hundred)
    for size, drop_last, wanted in [(16, False, 7), (16, True, 6), (100, True, 1), (101, True, 0)]:
        loader = Loader(dataset, size, drop_last=drop_last)
        assert len(loader) == len(list(loader)) == wanted


# ---- ranks


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_an_epoch(hundred: headrace.Store, drop_last: bool) -> None:
    loaders = [
        Loader(
            MapDataset(hundred), 6, shuffle=True, seed=1, drop_last=drop_last, rank=r, world_size=3
        )
        for r in range(3)
    ]
    assert {len(loader) for loader in loaders} == {5 if drop_last else 6}
    seen, states = [], []
    for batches in zip(*loaders, strict=True):
        seen += [i for batch in batches for i in numbers(batch)]
        states.append([json.dumps(loader.state_dict()) for loader in loaders])
    assert all(len(set(each)) == 1 for each in states)  # the place is global
    whole = epoch_of(Loader(MapDataset(hundred), 10, shuffle=True, seed=1))
    assert seen == whole[: 90 if drop_last else 100]


def test_ranks_come_from_torch_distributed(
    hundred: headrace.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        assert repr(Loader(MapDataset(hundred), 6)).endswith("rank 0 of 1)")
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
        loader = Loader(MapDataset(hundred), 5)
        assert repr(loader).endswith("rank 2 of 4)")
        assert numbers(next(iter(loader))) == [10, 11, 12, 13, 14]
        given = Loader(MapDataset(hundred), 5, rank=0, world_size=2)
        assert repr(given).endswith("rank 0 of 2)")
    finally:
        torch.distributed.destroy_process_group()


# ---- the place


counts = st.integers(1, 40)
sizes = st.integers(1, 7)


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    count=counts,
    first=st.tuples(sizes, st.integers(1, 3)),
    second=st.tuples(sizes, st.integers(1, 3)),
    stop=st.integers(0, 10),
    seed=st.integers(0, 2**63 - 1),
    shuffle=st.booleans(),
)
def test_an_epoch_goes_on_where_it_stopped_with_another_grid(
    hundred: headrace.Store,
    count: int,
    first: tuple[int, int],
    second: tuple[int, int],
    stop: int,
    seed: int,
    shuffle: bool,
) -> None:
    index = hundred.index()[:count]

    def loaders(grid: tuple[int, int]) -> list[Loader]:
        dataset = MapDataset(hundred, index=index)
        size, world = grid
        return [
            Loader(dataset, size, shuffle=shuffle, seed=seed, rank=r, world_size=world)
            for r in range(world)
        ]

    whole = epoch_of(Loader(MapDataset(hundred, index=index), 8, shuffle=shuffle, seed=seed))
    assert sorted(whole) == list(range(count))
    hypothesis.assume(count >= max(first[1], second[1]))
    before = loaders(first)
    its = [iter(loader) for loader in before]
    seen = []
    for _ in range(min(stop, len(before[0]) - 1)):
        seen += [i for it in its for i in numbers(next(it))]
    state = before[0].state_dict()
    after = loaders(second)
    for loader in after:
        loader.load_state_dict(pickle.loads(pickle.dumps(state)))
        loader.set_epoch(0)  # the rest of it, though it may be too little for so many ranks
    rest = [list(loader) for loader in after]
    for batches in zip(*rest, strict=True):
        seen += [i for batch in batches for i in numbers(batch)]
    # With a batch size of 1 the last ones, fewer than ranks, are left out.
    assert seen == whole[: len(seen)]
    assert count - len(seen) < (second[1] if second[0] == 1 or count - len(seen) > 0 else 1)
    assert [loader.epoch for loader in after] == [1] * len(after)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_resume_after_every_batch(hundred: headrace.Store, threads: int, drop_last: bool) -> None:
    def make() -> Loader:
        return Loader(
            MapDataset(hundred, number_of),
            9,
            shuffle=True,
            seed=5,
            drop_last=drop_last,
            transform_threads=threads,
        )

    whole = [batch.tolist() for batch in make()]
    assert len(whole) == (11 if drop_last else 12)
    for stop in range(len(whole)):
        loader = make()
        it = iter(loader)
        before = [next(it).tolist() for _ in range(stop)]
        state = json.loads(json.dumps(loader.state_dict()))
        resumed = make()
        resumed.load_state_dict(state)
        assert before + [batch.tolist() for batch in resumed] == whole
        # And on with the next epoch.
        assert resumed.epoch == 1
        following = torch.cat(list(resumed)).tolist()
        assert len(set(following)) == len(following) == (99 if drop_last else 100)


def test_the_place_is_what_was_yielded_not_what_was_read(server: FaultServer) -> None:
    loader = Loader(MapDataset(fill(server, 50)), 5)
    it = iter(loader)
    assert loader.state_dict()["position"] == 0
    next(it)
    while sum(reads(server).values()) < 20:  # it reads ahead, without being asked
        pass
    assert loader.state_dict()["position"] == 5


def test_a_state_is_small_and_plain(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred), 5)
    assert len(json.dumps(loader.state_dict())) < 400
    assert set(loader.state_dict()) == {
        "version",
        "epoch",
        "position",
        "seed",
        "shuffle",
        "chosen",
        "count",
        "fingerprint",
    }


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_state_of_the_last_step_is_the_beginning_of_the_next_epoch(
    hundred: headrace.Store, drop_last: bool
) -> None:
    def make() -> Loader:
        return Loader(MapDataset(hundred), 30, shuffle=True, drop_last=drop_last)

    loader = make()
    first, second = epoch_of(loader), epoch_of(loader)
    again = make()
    it = iter(again)
    seen = [i for _ in range(3 if drop_last else 4) for i in numbers(next(it))]
    assert seen == first
    last = again.state_dict()  # inside the loop, after its last batch
    assert (last["epoch"], last["position"]) == (1, 0)
    assert again.epoch == 0
    assert list(it) == []
    assert again.state_dict() == last
    resumed = make()
    resumed.load_state_dict(last)
    assert resumed.epoch == 1
    assert epoch_of(resumed) == second


def test_a_loop_that_counts_epochs_itself_may_name_the_one_that_has_ended(
    hundred: headrace.Store,
) -> None:
    """It has nothing left, and the next one comes whole."""
    loader = Loader(MapDataset(hundred), 50, shuffle=True)
    it = iter(loader)
    next(it), next(it)
    state = loader.state_dict()
    resumed = Loader(MapDataset(hundred), 50, shuffle=True)
    resumed.load_state_dict(state)
    for epoch in range(2):
        resumed.set_epoch(epoch)
        assert len(list(resumed)) == 2 * epoch
    # Where nothing was loaded, an earlier epoch is one to be done again.
    resumed.set_epoch(1)
    resumed.set_epoch(0)
    assert len(list(resumed)) == 2


def test_an_iterator_that_was_not_asked_yet_goes_where_the_loader_is_sent(
    hundred: headrace.Store,
) -> None:
    """As with torch's DataLoader, whose sampler begins at the first batch. Lightning needs it."""
    loader = Loader(MapDataset(hundred), 50, shuffle=True)
    epochs = [epoch_of(loader) for _ in range(4)]
    loader.set_epoch(0)
    it = iter(loader)
    loader.sampler.set_epoch(2)
    assert [i for batch in it for i in numbers(batch)] == epochs[2]
    assert loader.epoch == 3
    it = iter(loader)
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "position": 50})
    assert [i for batch in it for i in numbers(batch)] == epochs[1][50:]


def test_a_peek_uses_up_the_order_of_an_epoch_until_set_epoch_takes_it_back(
    hundred: headrace.Store,
) -> None:
    loader = Loader(MapDataset(hundred), 50, shuffle=True)
    peek = numbers(next(iter(loader)))
    loader.set_epoch(0)
    first = epoch_of(loader)
    assert first[:50] == peek


def test_len_is_a_whole_epochs_and_remaining_batches_the_rest(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred), 30)
    assert (len(loader), loader.remaining_batches) == (4, 4)
    it = iter(loader)
    for left in (3, 2, 1):
        next(it)
        assert (len(loader), loader.remaining_batches) == (4, left)
    state = loader.state_dict()
    next(it)
    assert loader.remaining_batches == 0
    assert list(it) == []
    assert loader.remaining_batches == 4
    loader.load_state_dict(state)
    assert (len(loader), loader.remaining_batches) == (4, 1)
    assert len(list(loader)) == 1
    next(iter(loader))  # an epoch that is left counts as done
    assert loader.remaining_batches == 4


def test_a_loop_over_epochs_may_name_the_epoch_that_was_loaded(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred), 30)
    for epoch in range(2):
        loader.set_epoch(epoch)
        it = iter(loader)
        next(it)
    state = loader.state_dict()
    loader.load_state_dict(state)
    loader.set_epoch(1)  # the rest of it
    assert epoch_of(loader) == list(range(30, 100))
    loader.load_state_dict(state)
    loader.set_epoch(2)  # another one
    assert epoch_of(loader) == list(range(100))
    next(iter(loader))
    loader.set_epoch(loader.epoch)  # anew
    assert epoch_of(loader) == list(range(100))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"seed": 4}, "seed=4, but here it is 3"),
        ({"shuffle": False}, "shuffle=False"),
        ({"count": 7}, "it knows 7 objects, and here are 100"),
        ({"fingerprint": "x"}, "of other data"),
        ({"version": 1}, "version is 1, and this headrace reads version 2 alone"),
        ({"position": 101}, "position is 101"),
        ({"position": 1 << 70}, r"position is \d+; it must be .*below 2\^63"),
        ({"epoch": 1 << 70}, r"epoch is \d+; it must be .*below 2\^63"),
        ({"position": -1}, "position is -1"),
        ({"epoch": "1"}, "epoch is '1'"),
    ],
)
def test_a_state_that_does_not_fit(
    hundred: headrace.Store, change: dict[str, Any], text: str
) -> None:
    loader = Loader(MapDataset(hundred), 10, shuffle=True, seed=3)
    next(iter(loader))
    place = loader.state_dict()
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        loader.load_state_dict({**place, **change})
    assert loader.state_dict() == place


@pytest.mark.parametrize("state", [{}, None, 3, {"epoch": 1}])
def test_what_is_no_state(hundred: headrace.Store, state: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="not a state"):
        Loader(MapDataset(hundred), 10).load_state_dict(state)


def test_a_state_of_a_changed_bucket(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 4)
    state = Loader(MapDataset(store), 2).state_dict()
    store.write("0001", content(1, 99))
    with pytest.raises(headrace.InvalidArgumentError, match="of other data"):
        Loader(MapDataset(store), 2).load_state_dict(state)


def test_a_state_goes_with_its_data_from_a_bucket_to_a_folder_by_the_index(
    server: FaultServer, tmp_path: Path
) -> None:
    there, here = fill(server, 4), headrace.Store(tmp_path)
    for info in there.list():
        here.write(info.name, there.read(info))
    index = there.index()
    state = Loader(MapDataset(there), 2).state_dict()
    for source, told in ((here, "These have no checksums"), (there, "These have checksums")):
        other = state if source is here else Loader(MapDataset(here), 2).state_dict()
        with pytest.raises(headrace.InvalidArgumentError, match=told) as caught:
            Loader(MapDataset(source), 2).load_state_dict(other)
        assert "index=index.at(url)" in str(caught.value)
    loader = Loader(MapDataset(here, index=index.at(tmp_path)), 2)
    loader.load_state_dict(state)
    assert sum(len(batch) for batch in loader) == 4


# ---- requests


def test_an_epoch_asks_once_for_each_object(server: FaultServer) -> None:
    loader = Loader(MapDataset(fill(server, 60)), 8, shuffle=True)
    for epoch in range(3):
        list(loader)
        assert set(reads(server).values()) == {epoch + 1}
    assert kinds(server) == {"list": 1, "media": 180}


def test_drained_resumed_and_still_each_object_once(server: FaultServer) -> None:
    store = fill(server, 60)
    loader = Loader(MapDataset(store), 4, shuffle=True, seed=2, prefetch_bytes=1000)
    it = iter(loader)
    seen = [i for _ in range(3) for i in numbers(next(it))]
    loader.drain()
    seen += [i for batch in it for i in numbers(batch)]
    assert 12 < len(seen) <= 24
    assert loader.epoch == 0
    resumed = Loader(MapDataset(store), 7, shuffle=True, seed=2)
    resumed.load_state_dict(loader.state_dict())
    assert sorted(seen + epoch_of(resumed)) == list(range(60))
    assert set(reads(server).values()) == {1}


def test_drained_before_its_first_batch_an_iterator_has_none(server: FaultServer) -> None:
    loader = Loader(MapDataset(fill(server, 20)), 5)
    it = iter(loader)
    loader.drain()
    place = loader.state_dict()
    assert list(it) == []
    assert loader.state_dict() == place
    assert kinds(server) == {"list": 1}
    loader.drain()  # there is no iterator in use
    assert epoch_of(loader) == list(range(20))
    assert loader.epoch == 1


def test_several_ranks_are_not_drained(hundred: headrace.Store) -> None:
    loader = Loader(MapDataset(hundred), 5, rank=1, world_size=2)
    it = iter(loader)
    next(it)
    with pytest.raises(headrace.InvalidArgumentError, match="stop all ranks after the same batch"):
        loader.drain()
    assert len(list(it)) == 9


def test_a_drained_epoch_goes_on_in_the_same_loader(server: FaultServer) -> None:
    store = fill(server, 600, size_bytes=10)
    loader = Loader(MapDataset(store), 4, prefetch_bytes=400)
    it = iter(loader)
    next(it)
    loader.drain()
    before = 1 + len(list(it))
    assert before <= 12  # no more was begun
    assert before + len(list(loader)) == 150
    assert loader.epoch == 1
    assert set(reads(server).values()) == {1}


def test_a_resumed_epoch_reads_nothing_that_was_yielded(server: FaultServer) -> None:
    store = fill(server, 60)
    loader = Loader(MapDataset(store), 4, shuffle=True, seed=2, prefetch_bytes=0)
    it = iter(loader)
    seen = [i for _ in range(5) for i in numbers(next(it))]
    state = loader.state_dict()
    it.close()  # type: ignore[attr-defined]
    before = reads(server)
    resumed = Loader(MapDataset(store), 4, shuffle=True, seed=2)
    resumed.load_state_dict(state)
    assert sorted(seen + epoch_of(resumed)) == list(range(60))
    again = reads(server) - before
    assert not any(f"data/{i:04d}" in again for i in seen)
    assert sum(before.values()) <= 24  # one batch was under way


@pytest.mark.parametrize("threads", [None, *THREADS])
def test_an_iterator_that_is_dropped_cancels_its_reads(
    server: FaultServer, threads: int | None
) -> None:
    store = fill(server, 100)
    server.faults([{"match": {"path_contains": "data/0040"}, "action": "stall_head"}])
    dataset = MapDataset(store, None if threads is None else number_of)
    it = iter(Loader(dataset, 5, transform_threads=threads))
    next(it)
    while not server.stats()["in_flight"]:
        pass
    del it
    while server.stats()["in_flight"]:  # its end is seen there, though nobody answers
        pass


@pytest.mark.parametrize("threads", THREADS)
def test_what_is_read_ahead_is_bounded(server: FaultServer, threads: int) -> None:
    """While the trainer is at a batch, at most `prefetch_bytes` more are asked for."""
    store = fill(server, 200, size_bytes=1000)
    dataset = MapDataset(store, number_of if threads else None)
    loader = Loader(dataset, 10, prefetch_bytes=30_000, transform_threads=threads)
    yielded = 0
    for _ in loader:
        yielded += 10
        assert sum(reads(server).values()) <= yielded + 30
    assert yielded == 200


def test_transformed_batches_are_bounded(hundred: headrace.Store) -> None:
    done = []
    dataset = MapDataset(hundred, lambda sample: done.append(number_of(sample)))
    loader = Loader(dataset, 5, transform_threads=2, collate_fn=list, prefetch_bytes=1 << 20)
    for i, _ in enumerate(loader):
        assert len(done) <= 5 * (i + 1) + 5 * 4
    assert sorted(done) == list(range(100))


# ---- errors


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("threads", THREADS)
def test_a_transform_that_raises(hundred: headrace.Store, threads: int) -> None:
    def transform(sample: headrace.Sample) -> int:
        return fail(sample) if number_of(sample) in (42, 43, 47) else number_of(sample)  # type: ignore[return-value]

    loader = Loader(MapDataset(hundred, transform), 10, transform_threads=threads)
    it = iter(loader)
    assert [next(it)[0].item() for _ in range(4)] == [0, 10, 20, 30]
    with pytest.raises(ZeroDivisionError) as caught:
        next(it)
    # Of three that fail it is always the first.
    assert str(caught.value) == f"no way (in the transform of {hundred.url_of('0042')})"
    assert list(it) == []
    assert transform_threads() == []
    # Once more, from the batch that failed.
    state = loader.state_dict()
    assert state["position"] == 40
    loader.load_state_dict(state)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_without_a_text_gets_a_note(hundred: headrace.Store, threads: int) -> None:
    loader = Loader(MapDataset(hundred, fail_by_key), 10, transform_threads=threads)
    with pytest.raises(KeyError) as caught:
        next(iter(loader))
    assert caught.value.__notes__ == [f"in the transform of {hundred.url_of('0000')}"]


@pytest.mark.parametrize("threads", THREADS)
def test_a_collate_fn_that_raises(hundred: headrace.Store, threads: int) -> None:
    def collate_fn(samples: list[Any]) -> Any:
        raise OverflowError("too much")

    loader = Loader(MapDataset(hundred), 10, collate_fn=collate_fn, transform_threads=threads)
    with pytest.raises(OverflowError, match=r"too much \(in the collate_fn for 10 samples: ") as e:
        next(iter(loader))
    assert f"{hundred.url_of('0000')} ... {hundred.url_of('0009')}" in str(e.value)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("by", ["transform", "collate_fn"])
def test_stop_iteration_of_a_transform_or_collate_fn_names_the_sample(
    hundred: headrace.Store, by: str, threads: int
) -> None:
    def stop(_: Any) -> Any:
        raise StopIteration

    dataset = MapDataset(hundred, stop if by == "transform" else None)
    collate_fn = stop if by == "collate_fn" else None
    loader = Loader(dataset, 10, collate_fn=collate_fn, transform_threads=threads)
    with pytest.raises(RuntimeError, match=f"StopIteration was raised .in the {by} .*/0000") as e:
        list(loader)
    assert isinstance(e.value.__cause__, StopIteration)


@pytest.mark.parametrize("threads", [None, *THREADS])
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_an_object_that_is_gone_in_mid_epoch(
    server: FaultServer, threads: int | None, fate: str
) -> None:
    store = fill(server, 40)
    dataset = MapDataset(store, None if threads is None else number_of)
    loader = Loader(dataset, 4, prefetch_bytes=0, transform_threads=threads)
    it = iter(loader)
    next(it)
    if fate == "deleted":
        store.delete("0030")
        error: type[Exception] = headrace.NotFoundError
    else:
        store.write("0030", b"other")
        error = headrace.PreconditionFailedError
    with pytest.raises(error, match="gs://bucket/data/0030"):
        list(it)
    assert loader.state_dict()["position"] == 28


Arguments = dict[str, Any]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be an integer of at least 1"),
        ({"batch_size": -3}, "batch_size is -3"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"batch_size": True}, "batch_size is True"),
        ({"rank": 2, "world_size": 2}, "rank is 2; it must be less than world_size, 2"),
        ({"rank": -1, "world_size": 2}, "rank is -1"),
        ({"rank": 1}, "give both or neither"),
        ({"world_size": 2}, "give both or neither"),
        ({"rank": 0, "world_size": 0}, "world_size is 0"),
        ({"transform_threads": -1}, "transform_threads is -1"),
        ({"transform_threads": "2"}, "transform_threads is '2'"),
        ({"drop_last": 1}, "drop_last is 1; it must be True or False"),
        ({"shuffle": "yes"}, "shuffle is 'yes'"),
        ({"pin_memory": None}, "pin_memory is None"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.0}, "seed is 1.0"),
        ({"seed": 1 << 63}, r"below 2\^63"),
        ({"prefetch_bytes": -1}, "prefetch_bytes is -1"),
        ({"collate_fn": 3}, "collate_fn is 3"),
        ({"dataset": [1, 2]}, "dataset is a list"),
    ],
)
def test_arguments_that_cannot_work(
    hundred: headrace.Store, arguments: Arguments, text: str
) -> None:
    given: Arguments = {"dataset": MapDataset(hundred), "batch_size": 4, **arguments}
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        Loader(**given)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_workers": 4}, "no argument 'num_workers': Loader has transform_threads instead"),
        ({"persistent_workers": True}, "'persistent_workers': Loader has no worker processes"),
        ({"prefetch_factor": 2}, "'prefetch_factor': Loader has prefetch_bytes instead"),
        (
            {"pin_memory_device": "x"},
            r"'pin_memory_device': Loader\(device=...\) copies batches to the device",
        ),
        ({"generator": None}, "'generator': Loader has seed instead"),
        ({"shufle": True}, "Loader has no argument 'shufle': did you mean shuffle=?"),
    ],
)
def test_an_argument_of_torchs_dataloader_is_told_what_serves_here(
    hundred: headrace.Store, arguments: Arguments, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        Loader(MapDataset(hundred), 4, **arguments)


def test_a_positional_shuffle_is_told_to_be_named(hundred: headrace.Store) -> None:
    with pytest.raises(TypeError, match="takes its other arguments by name, such as shuffle=True"):
        Loader(MapDataset(hundred), 4, True)


@pytest.mark.parametrize("name", ["__getitem__", "__getitems__", "__len__", "__iter__"])
def test_a_subclass_that_overrides_what_is_not_called_is_refused(
    hundred: headrace.Store, name: str
) -> None:
    class Own(MapDataset):
        pass

    assert numbers(next(iter(Loader(Own(hundred), 2)))) == [0, 1]
    setattr(Own, name, lambda *_: 1)
    with pytest.raises(headrace.InvalidArgumentError, match=f"Own has a {name} of its own, which"):
        Loader(Own(hundred), 2)


# ---- threads


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("end", ["exhaust", "close", "drop", "error", "newer", "loader"])
def test_no_thread_outlives_its_iterator(hundred: headrace.Store, end: str) -> None:
    def transform(sample: headrace.Sample) -> int:
        if end == "error" and number_of(sample) > 50:
            raise ValueError
        return number_of(sample)

    loader = Loader(MapDataset(hundred, transform), 5, transform_threads=3)
    it = iter(loader)
    assert transform_threads() == []  # not before it is asked for something
    next(it)
    assert len(transform_threads()) == 3
    if end == "exhaust":
        list(it)
    elif end == "close":
        it.close()  # type: ignore[attr-defined]
    elif end == "drop":
        del it
    elif end == "error":
        with pytest.raises(ValueError):
            list(it)
    elif end == "newer":
        it = iter(loader)
    else:
        del it, loader
        gc.collect()
    assert transform_threads() == []


def test_a_loader_may_be_used_in_any_thread(hundred: headrace.Store) -> None:
    got: list[int] = []
    loader = Loader(MapDataset(hundred, number_of), 10, transform_threads=2)
    thread = threading.Thread(target=lambda: got.extend(torch.cat(list(loader)).tolist()))
    thread.start()
    thread.join()
    assert got == list(range(100))


def test_two_loaders_side_by_side(hundred: headrace.Store) -> None:
    dataset = MapDataset(hundred, number_of)
    for a, b in zip(Loader(dataset, 10), Loader(dataset, 10, transform_threads=1), strict=True):
        assert a.tolist() == b.tolist()


def test_a_batch_that_was_handed_over_is_the_trainers_alone(hundred: headrace.Store) -> None:
    class Kept:
        alive = 0

        def __init__(self) -> None:
            Kept.alive += 1

        def __del__(self) -> None:
            Kept.alive -= 1

    def collate_fn(samples: list[Any]) -> Kept:
        return Kept()

    loader = Loader(MapDataset(hundred), 100, collate_fn=collate_fn, transform_threads=1)
    it = iter(loader)
    kept = next(it)
    assert Kept.alive == 1
    del kept
    assert Kept.alive == 0
    assert list(it) == []


# ---- stats


@pytest.mark.parametrize("transform", [None, number_of])
def test_stats(hundred: headrace.Store, transform: Callable[[Any], Any] | None) -> None:
    loader = Loader(MapDataset(hundred, transform), 16)
    empty = loader.stats
    assert (empty.batches, empty.wait_s, empty.first_batch_s) == (0, 0.0, 0.0)
    list(loader)
    list(loader)
    stats = loader.stats
    assert (stats.batches, stats.samples, stats.size_bytes) == (14, 200, 20_000)
    assert stats.wait_s >= stats.first_batch_s > 0
    json.dumps(stats.__dict__)


# ---- byte ranges: shards of tokens

SHARDS, TOKENS = 3, 1000
"""So many objects, with so many tokens of four bytes each."""
WINDOW = 64
"""Tokens of one sample."""


def token_bytes(shard: int, begin: int, end: int) -> bytes:
    return b"".join((shard * TOKENS + i).to_bytes(4, "little") for i in range(begin, end))


@pytest.fixture
def windows(gcs: headrace.Store) -> headrace.ObjectIndex:
    """An entry for each window of tokens in the shards; what is left at their ends is in none."""
    names, begins, ends = [], [], []
    for shard in range(SHARDS):
        gcs.write(f"tokens/{shard}.bin", token_bytes(shard, 0, TOKENS))
        for begin in range(0, TOKENS - WINDOW + 1, WINDOW):
            names.append(f"{shard}.bin")
            begins.append(4 * begin)
            ends.append(4 * (begin + WINDOW))
    return headrace.ObjectIndex.from_names(
        names, root="gs://bucket/tokens", begins=begins, ends=ends
    )


# Each range by a request of its own.
ALONE = headrace.ParallelOptions(max_gap_bytes=None)


def windows_of(batches: Any) -> list[tuple[int, ...]]:
    """The tokens of each sample, in order."""
    return [
        tuple(row) for batch in batches for row in batch.contiguous().view(torch.int32).tolist()
    ]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("makes", ["bytes", "tokens"])
def test_ranges_of_objects_are_samples(
    server: FaultServer,
    gcs: headrace.Store,
    windows: headrace.ObjectIndex,
    threads: int,
    makes: str,
) -> None:
    def tokens(sample: headrace.Sample) -> torch.Tensor:
        assert sample.index is not None
        assert sample.name == windows.name(sample.index)
        return sample.tensor().view(torch.int32)

    store = headrace.Store("gs://bucket/tokens", endpoint=server.url, parallel=ALONE)
    dataset = MapDataset(store, None if makes == "bytes" else tokens, index=windows)
    per_shard = TOKENS // WINDOW
    assert len(dataset) == SHARDS * per_shard
    server.reset(keep_buckets=True)
    expected = [
        tuple(range(shard * TOKENS + i * WINDOW, shard * TOKENS + (i + 1) * WINDOW))
        for shard in range(SHARDS)
        for i in range(per_shard)
    ]
    assert windows_of(Loader(dataset, 7, transform_threads=threads)) == expected
    # One request for each range, for its bytes and no others.
    assert kinds(server) == {"media": len(dataset)}
    assert sum(each["bytes_sent"] for each in server.log()) == 4 * WINDOW * len(dataset)

    loader = Loader(dataset, 7, shuffle=True, seed=5, transform_threads=threads)
    first, second = windows_of(loader), windows_of(loader)
    assert sorted(first) == sorted(second) == expected
    assert first not in (expected, second)


@pytest.mark.parametrize("done", [1, 4])
def test_a_loader_of_ranges_resumes_in_the_middle_of_an_epoch(
    server: FaultServer, windows: headrace.ObjectIndex, done: int
) -> None:
    store = headrace.Store("gs://bucket/tokens", endpoint=server.url, parallel=ALONE)

    def loader() -> Loader:
        return Loader(MapDataset(store, index=windows), 7, shuffle=True, seed=5)

    whole = [windows_of([batch]) for batch in loader()]
    begun = loader()
    batches = iter(begun)
    for _ in range(done):
        next(batches)
    state = json.loads(json.dumps(begun.state_dict()))
    assert len([*batches]) == len(whole) - done  # what it reads ahead is counted before the reset
    resumed = loader()
    resumed.load_state_dict(state)
    server.reset(keep_buckets=True)
    assert [windows_of([batch]) for batch in resumed] == whole[done:]
    assert kinds(server) == {"media": sum(map(len, whole[done:]))}


def test_a_state_of_other_ranges_is_refused(
    server: FaultServer, windows: headrace.ObjectIndex
) -> None:
    store = headrace.Store("gs://bucket/tokens", endpoint=server.url)
    state = Loader(MapDataset(store, index=windows), 7).state_dict()
    others = headrace.ObjectIndex.from_names(
        [windows.name(i) for i in range(len(windows))],
        root="gs://bucket/tokens",
        begins=[windows.range(i)[0] + 4 for i in range(len(windows))],  # type: ignore[index]
        ends=[windows.range(i)[1] + 4 for i in range(len(windows))],  # type: ignore[index]
    )
    with pytest.raises(headrace.InvalidArgumentError):
        Loader(MapDataset(store, index=others), 7).load_state_dict(state)


def test_objects_that_may_change_are_collated_in_the_size_that_they_have(
    server: FaultServer,
) -> None:
    dataset = MapDataset(fill(server, 4)._derived(on_change="reread"))
    for i in range(4):
        server.put("bucket", f"data/{i:04d}", content(i, 150))
    assert [batch.shape for batch in Loader(dataset, 2)] == [(2, 150)] * 2
    server.put("bucket", "data/0003", content(3, 120))
    with pytest.raises(headrace.InvalidArgumentError, match=r"\[150\] at place 0 and \[120\] at"):
        list(Loader(dataset, 4))
