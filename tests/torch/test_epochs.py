"""The epochs of streams under torch's DataLoader, which advance by themselves."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import headrace
from headrace.torch import ParquetDataset, ShardStream
from headrace.torch._shared_place import SharedPlace
from tests.conftest import SEARCHED
from tests.parquet import tables
from tests.shards import tars

COUNT = 60
FOUND: dict[tuple[str, int], list[list[int]]] = {}
Make = Callable[[], Any]


def row_number(row: dict[str, Any]) -> int:
    return tables.number_of(row)


def shard_number(fields: dict[str, Any]) -> int:
    return tars.number_of(fields)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("epochs")
    for name in ("rows", "shards"):
        (root / name).mkdir()
    tables.fill(headrace.Store(root / "rows"), [30, 30], group_rows=5)
    tars.fill(headrace.Store(root / "shards"), 6, 10)
    return root


@pytest.fixture(params=["rows", "shards"])
def make(request: pytest.FixtureRequest, root: Path) -> Make:
    kind = request.param

    def made() -> Any:
        if kind == "rows":
            return ParquetDataset(root / "rows", row_number, shuffle=True)
        return ShardStream(root / "shards", shard_number, shuffle=True)

    made.__name__ = kind
    return made


def orders(make: Make, workers: int) -> list[list[int]]:
    """Return the order of each of four epochs, named by hand, as a DataLoader yields it."""
    found = FOUND.setdefault((make.__name__, workers), [])
    while len(found) < 4:
        stream = make()
        stream.set_epoch(len(found))
        order = list(DataLoader(stream, None, num_workers=workers))
        assert sorted(order) == list(range(COUNT))
        assert order not in found
        found.append(order)
    return found


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, False), (2, True)])
@pytest.mark.parametrize("is_seeded", [False, True])
def test_each_pass_is_of_the_next_epoch(
    make: Make, workers: int, persistent: bool, is_seeded: bool
) -> None:
    wanted, stream = orders(make, workers), make()
    loader = DataLoader(stream, None, num_workers=workers, persistent_workers=persistent)
    for epoch in range(3):
        assert stream.epoch == epoch
        if is_seeded:
            torch.manual_seed(5)  # the seed that tells workers of one pass from others'
        assert list(loader) == wanted[epoch]
    for epoch in (1, 1):
        stream.set_epoch(epoch)
        assert list(loader) == wanted[epoch]
    assert list(loader) == wanted[2]


@pytest.mark.parametrize("make", ["shards"], indirect=True)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_advance_too(make: Make, method: str) -> None:
    wanted, stream = orders(make, 2), make()
    loader = DataLoader(
        stream, None, num_workers=2, persistent_workers=True, multiprocessing_context=method
    )
    assert [list(loader) for _ in range(3)] == wanted[:3]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_a_loop_that_was_left_early_is_followed_by_the_next_epoch(
    make: Make, workers: int, persistent: bool
) -> None:
    wanted, stream = orders(make, workers), make()
    loader = DataLoader(stream, None, num_workers=workers, persistent_workers=persistent)
    for epoch in range(3):
        assert list(itertools.islice(loader, 5)) == wanted[epoch][:5]
    assert list(loader) == wanted[3]


def test_two_loops_over_one_dataset_at_the_same_time_are_two_epochs(make: Make) -> None:
    wanted, stream = orders(make, 2), make()
    loader = DataLoader(stream, None, num_workers=2)
    assert list(zip(loader, loader, strict=True)) == list(zip(*wanted[:2], strict=True))
    assert list(loader) == wanted[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_passes_of_the_trainer_and_of_workers_follow_each_other(make: Make, workers: int) -> None:
    wanted, plain, stream = orders(make, 2), orders(make, 0), make()
    assert list(stream) == plain[0]
    assert list(DataLoader(stream, None, num_workers=2)) == wanted[1]
    assert list(stream) == plain[2]
    other = copy.deepcopy(stream)
    assert list(DataLoader(stream, None, num_workers=workers)) == orders(make, workers)[3]
    assert (stream.epoch, other.epoch) == (4, 3)  # a copy has epochs of its own


def test_the_pass_after_a_loaded_one_is_of_the_next_epoch(make: Make) -> None:
    plain, first = orders(make, 0), make()
    first.set_epoch(1)
    head = list(itertools.islice(first, 7))
    state = first.state_dict()
    for workers in (0, 1):
        second = make()
        second.load_state_dict(state)
        loader = DataLoader(second, None, num_workers=workers)
        assert head + list(loader) == plain[1]
        assert list(loader) == plain[2]
        second.set_epoch(1)
        assert list(loader) == plain[1]


# torchdata 0.11 calls what torch 2.14 deprecates.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_after_a_resume_by_states_of_workers_all_of_them_go_to_the_next_epoch(make: Make) -> None:
    """The generator's next seed is the one that the state has brought back."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        generator = torch.Generator().manual_seed(0)
        return StatefulDataLoader(make(), 6, num_workers=2, generator=generator)

    first, second = loader(), loader()
    wanted = [torch.cat(list(first)).tolist() for _ in range(3)][1:]
    first = loader()
    list(first)
    batches = iter(first)
    head = [next(batches) for _ in range(3)]
    second.load_state_dict(first.state_dict())
    del batches
    assert torch.cat([*head, *second]).tolist() == wanted[0]
    assert sorted(torch.cat(list(second)).tolist()) == sorted(wanted[1])


def test_an_error_before_a_pass_uses_up_no_epoch_and_no_state(root: Path) -> None:
    stream = ShardStream(root / "shards", shard_number, shuffle=True, rank=1, world_size=4,
                         uneven="keep")  # fmt: skip
    head = list(itertools.islice(stream, 3))
    state = stream.state_dict()
    stream.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(headrace.InvalidArgumentError, match="this is reader"):
            list(DataLoader(stream, None, num_workers=2))
    rest = list(stream)
    stream.set_epoch(0)
    assert head + rest == list(stream)


# ---- the shared place itself


@settings(max_examples=SEARCHED or 200)
@given(data=st.data())
def test_workers_agree_on_the_epoch_in_whatever_order_they_begin(data: st.DataObject) -> None:
    """Each worker looks and begins; others may do either between the two."""
    place, epoch = SharedPlace(8), data.draw(st.integers(0, 9))
    place.move(epoch)
    for _ in range(data.draw(st.integers(1, 5))):
        workers = data.draw(st.integers(1, 7))
        key = 10 * data.draw(st.sampled_from([3, 3, 3, 4, 5])) + workers
        looks: dict[int, Any] = {}
        events = data.draw(st.permutations([*range(workers)] * 2))
        epochs = Counter[int]()
        is_first = True
        for worker in events:
            if worker not in looks:
                looks[worker] = place.next_pass(key, 1 + worker)
                continue
            while not place.begin(looks[worker]):
                looks[worker] = place.next_pass(key, 1 + worker)
            epochs[looks[worker].epoch] += 1
            is_first = False
        assert not is_first
        assert epochs == {epoch: workers}
        epoch += 1
        assert place.epoch == epoch
        if data.draw(st.booleans()):
            epoch = data.draw(st.integers(0, 9))
            place.move(epoch)
            assert place.epoch == epoch


def test_passes_that_begin_at_the_same_time_are_two() -> None:
    place = SharedPlace(3)
    first, second = place.next_pass(1, 1), place.next_pass(2, 2)
    assert place.begin(second)
    assert not place.begin(first)
    first = place.next_pass(1, 1)
    assert place.begin(first)
    assert (second.epoch, first.epoch) == (0, 1)
    assert place.next_pass(2, 1).epoch == 0
    assert place.next_pass(1, 2).epoch == 1


def test_a_loaded_state_is_for_the_first_pass_of_its_epoch() -> None:
    place = SharedPlace(3)
    place.load(4)
    place.move(6)
    assert not place.next_pass(1, 0).is_loaded
    place.begin(place.next_pass(1, 0))
    place.move(4)
    for reader in (1, 2):
        now = place.next_pass(2, reader)
        assert (now.epoch, now.is_loaded) == (4, True)
        place.begin(now)
    assert place.next_pass(3, 1)[:2] == (5, False)
    place.move(4)
    assert place.next_pass(3, 1)[:2] == (4, False)
    place.load(4)
    assert place.next_pass(3, 1)[:2] == (4, True)


def test_the_epoch_behind_the_last_one_is_the_first() -> None:
    place = SharedPlace(1)
    place.move((1 << 63) - 1)
    place.begin(place.next_pass(1, 0))
    assert place.epoch == 0
