"""`IterableDataset`: order, split, place; with torchdata's StatefulDataLoader, too."""

from __future__ import annotations

import copy
import errno
import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch.utils.data import DataLoader

import headrace
from headrace.torch import IterableDataset
from testing.faultserver.client import FaultServer
from tests.torch.conftest import fill, fill_folder, kinds, reads
from tests.torch.test_loader import number_of
from tests.torch.test_map_dataset import fail, numbers


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    """A hundred files of 100 bytes."""
    return fill_folder(tmp_path_factory.mktemp("hundred"), 100)


def test_it_yields_every_object_once(server: FaultServer) -> None:
    dataset = IterableDataset(fill(server, 50), number_of)
    assert list(dataset) == list(range(50))
    assert set(reads(server).values()) == {1}
    assert kinds(server) == {"list": 1, "media": 50}


def test_without_a_transform_it_gives_tensors(hundred: headrace.Store) -> None:
    first = next(iter(IterableDataset(hundred)))
    assert (first.dtype, first.shape, numbers(first[None])) == (torch.uint8, (100,), [0])


def test_a_dataloader_makes_batches_of_it(hundred: headrace.Store) -> None:
    batches = list(DataLoader(IterableDataset(hundred), batch_size=30))
    assert [len(batch) for batch in batches] == [30, 30, 30, 10]
    assert [i for batch in batches for i in numbers(batch)] == list(range(100))


def test_it_is_shuffled_by_seed_and_epoch(hundred: headrace.Store) -> None:
    dataset = IterableDataset(hundred, number_of, shuffle=True, seed=3)
    first, second = list(dataset), list(dataset)
    assert dataset.epoch == 2
    assert sorted(first) == sorted(second) == list(range(100))
    assert second != first
    for epoch, wanted in ((1, second), (0, first)):
        dataset.set_epoch(epoch)
        assert dataset.epoch == epoch
        assert list(dataset) == wanted
    assert list(IterableDataset(hundred, number_of, shuffle=True, seed=4)) != first


UNEVEN = ["drop", "pad", "keep"]


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    count=st.integers(1, 30),
    world_size=st.integers(1, 5),
    shuffle=st.booleans(),
    uneven=st.sampled_from(UNEVEN),
)
def test_ranks_share_an_epoch(
    hundred: headrace.Store, count: int, world_size: int, shuffle: bool, uneven: Any
) -> None:
    index = hundred.index()[:count]

    def numbers_of(rank: int, world_size: int) -> list[int]:
        dataset = IterableDataset(
            hundred,
            number_of,
            shuffle=shuffle,
            index=index,
            uneven=uneven,
            rank=rank,
            world_size=world_size,
        )
        return list(dataset)

    whole = numbers_of(0, 1)
    parts = [numbers_of(rank, world_size) for rank in range(world_size)]
    remainder = count % world_size
    dealt = whole
    if remainder and uneven == "drop":
        dealt = whole[: count - remainder]
    elif remainder and uneven == "pad":
        dealt = (whole * world_size)[: count - remainder + world_size]
    assert parts == [dealt[rank::world_size] for rank in range(world_size)]
    if uneven != "keep":
        assert len({len(part) for part in parts}) == 1


@pytest.mark.parametrize("uneven", ["drop", "pad"])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_dataloaders_of_all_ranks_have_the_same_number_of_batches(
    hundred: headrace.Store, uneven: Any, workers: int
) -> None:
    """Batches are made per worker: also the same worker of every rank has as many samples."""
    options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
    sizes = []
    seen: list[int] = []
    for rank in range(3):
        dataset = IterableDataset(hundred, number_of, uneven=uneven, rank=rank, world_size=3)
        batches = list(DataLoader(dataset, batch_size=4, num_workers=workers, **options))
        sizes.append([len(batch) for batch in batches])
        seen += torch.cat(batches).tolist()
    assert sizes[0] == sizes[1] == sizes[2]
    assert sorted(seen) == sorted([*range(99)] if uneven == "drop" else [*range(100), 0, 1])


def test_what_is_left_out_is_said_once_by_the_first_rank(
    hundred: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    datasets = [IterableDataset(hundred, rank=rank, world_size=3) for rank in range(3)]
    for _ in range(2):
        for dataset in datasets:
            assert sum(1 for _ in dataset) == 33
    (record,) = caplog.records
    assert record.name == "headrace"
    assert "leaves out the last object of each epoch's order" in record.getMessage()
    caplog.clear()
    for uneven in ("pad", "keep"):
        list(IterableDataset(hundred, uneven=uneven, rank=0, world_size=3))  # type: ignore[arg-type]
    list(IterableDataset(hundred, rank=0, world_size=4))
    assert caplog.records == []


def test_it_reads_ahead_within_its_bound(server: FaultServer) -> None:
    dataset = IterableDataset(fill(server, 200, 1000), prefetch_bytes=64_000)
    for yielded, _ in enumerate(dataset, start=1):
        assert sum(reads(server).values()) <= yielded + 64 + 32


@pytest.mark.parametrize("prefetch_bytes", [0, 1000, 8000, 20_000])
def test_its_blocks_are_no_larger_than_its_bound(server: FaultServer, prefetch_bytes: int) -> None:
    dataset = IterableDataset(fill(server, 60, 1000), prefetch_bytes=prefetch_bytes)
    bound = max(1, prefetch_bytes // 1000)  # the next object is always under way
    for yielded, _ in enumerate(dataset, start=1):
        assert sum(reads(server).values()) <= yielded + bound
    assert set(reads(server).values()) == {1}


def test_an_iterator_that_is_left_cancels_its_reads(server: FaultServer) -> None:
    store = fill(server, 100)
    server.faults([{"match": {"path_contains": "data/0040"}, "action": "stall_head"}])
    it = iter(IterableDataset(store, number_of))
    assert [next(it) for _ in range(3)] == [0, 1, 2]
    while not server.stats()["in_flight"]:
        pass
    del it
    while server.stats()["in_flight"]:  # its end is seen there, though nobody answers
        pass


def test_ranks_come_from_torch_distributed(
    hundred: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the pass begins; a worker, where it is not initialised, is sent what it said."""
    dataset = IterableDataset(hundred, number_of)
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_rank", lambda: 1)
        patch.setattr(torch.distributed, "get_world_size", lambda: 3)
        assert list(dataset) == list(range(1, 100, 3))
        sent = pickle.dumps(dataset)
    assert list(pickle.loads(sent)) == list(range(1, 100, 3))
    assert list(dataset) == list(range(100))


# ---- the place


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    count=st.integers(1, 60),
    stop=st.integers(0, 61),
    world_size=st.integers(1, 3),
    shuffle=st.booleans(),
    uneven=st.sampled_from(UNEVEN),
)
def test_resume_after_every_sample(
    hundred: headrace.Store, count: int, stop: int, world_size: int, shuffle: bool, uneven: Any
) -> None:
    index = hundred.index()[:count]
    for rank in range(world_size):

        def make(rank: int = rank) -> IterableDataset:
            return IterableDataset(
                hundred,
                number_of,
                shuffle=shuffle,
                seed=9,
                index=index,
                rank=rank,
                world_size=world_size,
                uneven=uneven,
            )

        dataset = make()
        dataset.set_epoch(2)
        whole = list(dataset)
        dataset.set_epoch(2)
        it = iter(dataset)
        before = list(itertools.islice(it, stop))
        state = json.loads(json.dumps(dataset.state_dict()))
        assert state["epoch"] == 2
        again = make()
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert before + list(again) == whole
        assert again.epoch == 3
        again.set_epoch(2)
        assert list(again) == whole  # the state was for one pass


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"seed": 4}, "seed=4"),
        ({"count": 7}, "of other data"),
        ({"position": -1}, "position is -1"),
        ({"position": 101}, "position is 101; .* only 100 objects"),
        ({"position": 3, "lanes": 2}, "position is 3; it must be a multiple of its lanes, 2"),
        ({"position": 1 << 70}, r"position is \d+; it must be below 2\^63"),
        ({"epoch": 1 << 70}, r"epoch is \d+; it must be below 2\^63"),
        ({"lanes": "x"}, "lanes is 'x'"),
        ({"lanes": 0}, "lane is 0; it must be less than its lanes, 0"),
    ],
)
def test_a_state_that_does_not_fit(
    hundred: headrace.Store, change: dict[str, Any], text: str
) -> None:
    dataset = IterableDataset(hundred, seed=3)
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        dataset.load_state_dict({**dataset.state_dict(), **change})


def test_a_state_of_another_number_of_readers(hundred: headrace.Store) -> None:
    state = IterableDataset(hundred, rank=1, world_size=2).state_dict()
    dataset = IterableDataset(hundred)
    dataset.load_state_dict(state)
    with pytest.raises(headrace.InvalidArgumentError, match="reader 1 of 2, and this is reader 0"):
        iter(dataset)


def test_a_state_that_does_not_fit_changes_nothing(hundred: headrace.Store) -> None:
    dataset = IterableDataset(hundred, number_of)
    it = iter(dataset)
    assert [next(it) for _ in range(40)] == list(range(40))
    state = dataset.state_dict()
    with pytest.raises(headrace.InvalidArgumentError):
        dataset.load_state_dict({**state, "epoch": 3, "position": 101})
    assert (dataset.epoch, dataset.state_dict()) == (1, state)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loaded_place_is_for_one_pass_of_a_worker_that_starts_after_it(
    hundred: headrace.Store, persistent: bool
) -> None:
    dataset = IterableDataset(hundred, number_of)
    it = iter(dataset)
    assert [next(it) for _ in range(70)] == list(range(70))
    state = dataset.state_dict()
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=1,
        persistent_workers=persistent,
        multiprocessing_context="fork",
    )
    dataset.load_state_dict(state)
    assert list(loader) == list(range(70, 100))
    assert list(loader) == list(range(100))
    dataset.set_epoch(0)
    assert list(loader) == list(range(100))
    dataset.load_state_dict(state)
    if persistent:
        with pytest.raises(headrace.InvalidArgumentError, match="make a new DataLoader"):
            list(loader)
    else:
        assert list(loader) == list(range(70, 100))


def test_a_loaded_place_is_not_for_several_workers(hundred: headrace.Store) -> None:
    dataset = IterableDataset(hundred, number_of)
    loader = DataLoader(dataset, num_workers=2, multiprocessing_context="fork")
    for lanes in (1, 2):
        dataset.load_state_dict({**dataset.state_dict(), "lanes": lanes})
        with pytest.raises(headrace.InvalidArgumentError, match="workers"):
            list(loader)


def test_a_loop_over_epochs_may_name_the_epoch_that_was_loaded(hundred: headrace.Store) -> None:
    dataset = IterableDataset(hundred, number_of)
    dataset.set_epoch(3)
    it = iter(dataset)
    assert [next(it) for _ in range(40)] == list(range(40))
    state = dataset.state_dict()
    dataset.load_state_dict(state)
    dataset.set_epoch(3)  # the rest of it
    assert list(dataset) == list(range(40, 100))
    dataset.load_state_dict(state)
    dataset.set_epoch(4)  # another one
    assert list(dataset) == list(range(100))


# ---- errors


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_that_would_not_see_the_epoch_change_fails(
    hundred: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(IterableDataset(hundred), num_workers=1, multiprocessing_context="fork")

    def no_descriptors(self: torch.Tensor) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(torch.Tensor, "share_memory_", no_descriptors)
    with pytest.raises(headrace.ResourceError, match="ulimit -n"):
        list(loader)


def test_a_transform_that_raises_names_the_sample(hundred: headrace.Store) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        next(iter(IterableDataset(hundred, fail)))
    assert str(caught.value) == f"no way (in the transform of {hundred.url_of('0000')})"


def test_a_deleted_object_is_named(server: FaultServer) -> None:
    store = fill(server, 40)
    dataset = IterableDataset(store, number_of)
    store.delete("0035")
    it = iter(dataset)
    assert [next(it) for _ in range(32)] == list(range(32))
    with pytest.raises(headrace.NotFoundError, match="gs://bucket/data/0035"):
        next(it)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rank": 2, "world_size": 2}, "rank is 2"),
        ({"rank": 0}, "give both or neither"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"shuffle": 2}, "shuffle is 2"),
        ({"prefetch_bytes": -1}, "prefetch_bytes is -1"),
        ({"transform": 2}, "transform is 2"),
        ({"uneven": "repeat"}, "uneven is 'repeat'; it must be one of 'drop', 'pad', 'keep'"),
    ],
)
def test_arguments_that_cannot_work(
    hundred: headrace.Store, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        IterableDataset(hundred, **arguments)


def test_an_argument_of_torchs_dataloader_is_told_where_it_belongs(hundred: headrace.Store) -> None:
    with pytest.raises(TypeError, match="no argument 'num_workers': torch's DataLoader"):
        IterableDataset(hundred, num_workers=2)


def test_a_prefix_that_matches_nothing(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFoundError, match="no object"):
        IterableDataset(tmp_path)


def test_it_pickles_and_copies(hundred: headrace.Store) -> None:
    dataset = IterableDataset(hundred, number_of, shuffle=True)
    dataset.set_epoch(4)
    whole = list(dataset)
    dataset.set_epoch(4)
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert list(again) == whole


# ---- torchdata

# torchdata 0.11 calls what torch 2.14 deprecates.
torchdata_of_today = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


def stateful_loader(dataset: Any, **options: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader  # after the filter is in place

    return StatefulDataLoader(dataset, **options)


@torchdata_of_today
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("every", [1, 3])
def test_a_stateful_dataloader_goes_on(server: FaultServer, workers: int, every: int) -> None:
    """At each step: what comes after is what would have come, and nothing else is read."""
    store = fill(server, 40)

    def make() -> Any:
        dataset = IterableDataset(store, number_of, shuffle=True, seed=1)
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        return stateful_loader(
            dataset, batch_size=3, num_workers=workers, snapshot_every_n_steps=every, **options
        )

    whole = [batch.tolist() for batch in make()]
    assert sorted(i for batch in whole for i in batch) == list(range(40))
    for stop in (1, 4, 8, len(whole)):
        loader = make()
        it = iter(loader)
        before = [next(it).tolist() for _ in range(stop)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        del it, loader
        while server.stats()["in_flight"]:  # what was cancelled, too
            pass
        earlier = reads(server)
        resumed = make()
        resumed.load_state_dict(state)
        assert before + [batch.tolist() for batch in resumed] == whole
        if every == 1:
            again = reads(server) - earlier
            assert sum(again.values()) == 40 - sum(map(len, before))


@torchdata_of_today
@pytest.mark.parametrize("workers", [0, 2])
def test_a_finished_stateful_dataloader_begins_anew(hundred: headrace.Store, workers: int) -> None:
    def make() -> Any:
        dataset = IterableDataset(hundred, number_of)
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        return stateful_loader(dataset, batch_size=9, num_workers=workers, **options)

    loader = make()
    whole = [batch.tolist() for batch in loader]
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert [batch.tolist() for batch in resumed] == whole
