"""`Loader(on_error=)`: samples with errors are left out, and nothing else changes."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import email.message
import gc
import json
import logging
import signal
import urllib.error
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch.utils.data import ConcatDataset, DistributedSampler, Subset

import headrace
from headrace._base.on_error import is_of_the_data
from headrace.torch import (
    CostBatchSampler,
    Loader,
    MapDataset,
    ShardDataset,
    TokenDataset,
    WeightedSampler,
)
from testing.faultserver.client import FaultServer
from tests.awkward_errors import AWKWARD, raiser
from tests.process.conftest import RunChild
from tests.shards.tars import tar
from tests.tokens.conftest import megatron_index
from tests.torch.conftest import content, fill, fill_folder, reads

COUNT = 40
BAD = frozenset((3, 4, 5, 6, 7, 17, 39))
GOOD = [i for i in range(COUNT) if i not in BAD]


class BadSampleError(Exception):
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    return fill_folder(tmp_path_factory.mktemp("forty"), COUNT)


def fails_at(bad: Any = BAD) -> Callable[[headrace.Sample], int]:
    """Return a transform to the sample's number that raises for these."""

    def transform(sample: headrace.Sample) -> int:
        number = int(sample.bytes()[:4])
        if number in bad:
            raise BadSampleError(f"no {number}")
        return number

    return transform


def numbers(batches: Any) -> list[list[int]]:
    return [[int(each) for each in batch] for batch in batches]


def flat(batches: Any) -> list[int]:
    return [int(each) for batch in batches for each in batch]


# ---- batches


@pytest.mark.parametrize("threads", [0, 3])
def test_a_batch_is_shorter_by_what_is_left_out(folder: headrace.Store, threads: int) -> None:
    loader = Loader(MapDataset(folder, fails_at()), 8, on_error="skip", transform_threads=threads)
    assert numbers(loader) == [
        [i for i in range(begin, begin + 8) if i in GOOD] for begin in range(0, COUNT, 8)
    ]
    assert loader.stats.skipped == len(BAD)
    assert loader.stats.samples == len(GOOD)
    assert loader.stats.size_bytes == 100 * len(GOOD)
    assert loader.epoch == 1


@pytest.mark.parametrize("threads", [0, 3])
def test_fill_repeats_a_neighbour(folder: headrace.Store, threads: int) -> None:
    loader = Loader(
        MapDataset(folder, fails_at({0, 3, 4, 17, 39})),
        8,
        on_error="skip",
        fill="repeat",
        transform_threads=threads,
    )
    batches = numbers(loader)
    assert batches[0] == [1, 1, 2, 2, 2, 5, 6, 7]
    assert batches[2] == [16, 16, *range(18, 24)]
    assert batches[4] == [*range(32, 39), 38]
    assert loader.stats.skipped == 5
    assert loader.stats.samples == COUNT - 5


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("collate_fn", [None, list])
def test_a_batch_that_is_read_as_one_tensor_is_not_torn(
    server: FaultServer, threads: int, collate_fn: Any
) -> None:
    dataset = MapDataset(fill(server, COUNT))
    for i in (3, 17):
        dataset.store.delete(f"{i:04d}")
    server.faults(
        [{"match": {"kind": "media", "path_contains": "0006"}, "action": {"flip_byte": 20}}]
    )
    errors: list[Any] = []
    options: dict[str, Any] = {"transform_threads": threads, "collate_fn": collate_fn}
    loader = Loader(dataset, 8, on_error=errors.append, **options)
    left = [i for i in range(COUNT) if i not in (3, 6, 17)]
    assert [bytes(row.tolist()) for batch in loader for row in batch] == [content(i) for i in left]
    assert [(type(each), each.index) for each in errors] == [
        (headrace.NotFoundError, 3),
        (headrace.CorruptDataError, 6),
        (headrace.NotFoundError, 17),
    ]
    assert all(each.url == dataset.url(each.index) for each in errors)
    filled = Loader(dataset, 8, on_error="skip", fill="repeat", **options)
    rows = [bytes(row.tolist()) for batch in filled for row in batch]
    wanted = [content({3: 2, 6: 5, 17: 16}.get(i, i)) for i in range(COUNT)]
    assert rows == wanted
    server.faults([])


def test_a_sample_that_is_read_is_read_once(server: FaultServer) -> None:
    dataset = MapDataset(fill(server, COUNT))
    dataset.store.delete("0003")
    assert sum(len(batch) for batch in Loader(dataset, 8, on_error="skip")) == COUNT - 1
    assert set(reads(server).values()) == {1}


def test_the_random_numbers_of_other_samples_do_not_change(folder: headrace.Store) -> None:
    for threads in (0, 3):

        def drawn(bad: Any, threads: int = threads, **options: Any) -> dict[int, Any]:
            number = fails_at(bad)
            dataset = MapDataset(
                folder,
                lambda sample: (
                    sample.rng().python.random(),
                    torch.rand(1).item() if threads == 0 else 0,
                    number(sample),
                ),
            )
            loader = Loader(
                dataset, 8, shuffle=True, seed=5, collate_fn=list, transform_threads=threads,
                **options,
            )  # fmt: skip
            return {each[2]: each for batch in loader for each in batch}

        whole = drawn(())
        left = drawn(BAD, on_error="skip")
        assert left == {number: whole[number] for number in GOOD}


def test_a_batch_of_nothing_is_passed_over_by_one_rank(folder: headrace.Store) -> None:
    loader = Loader(MapDataset(folder, fails_at({4, 5, 6, 7})), 4, on_error="skip")
    iterator = iter(loader)
    assert numbers([next(iterator), next(iterator)]) == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert loader.state_dict()["position"] == 12
    assert loader.stats.batches == 2
    assert len(list(iterator)) == 7
    singles = Loader(MapDataset(folder, fails_at()), 1, on_error="skip")
    assert flat(singles) == GOOD


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_batch_of_nothing_is_an_error_of_one_of_several_ranks(
    folder: headrace.Store, rank: int, threads: int
) -> None:
    bad = fails_at({4, 5, 6, 7})  # rank 1 of the first step
    options: dict[str, Any] = {"rank": rank, "world_size": 2, "transform_threads": threads}
    loader = Loader(MapDataset(folder, bad), 4, on_error="skip", **options)
    if rank == 0:
        assert len(list(loader)) == 5
        return
    with pytest.raises(headrace.CorruptDataError, match=r"of 4 samples.*fill='repeat'.*no 4"):
        next(iter(loader))
    assert loader.state_dict()["position"] == 0
    filled = Loader(MapDataset(folder, bad), 4, on_error="skip", fill="repeat", **options)
    assert numbers(filled)[0] == [3, 3, 3, 3]
    assert filled.stats.skipped == 4


@pytest.mark.parametrize("threads", [0, 3])
def test_what_takes_the_place_of_a_batch_is_the_same_after_a_resume(
    folder: headrace.Store, threads: int
) -> None:
    def loader_of() -> Loader:
        return Loader(
            MapDataset(folder, fails_at({0, 1, 16, 17, 18, 19})), 2, on_error="skip",
            fill="repeat", shuffle=True, transform_threads=threads,
        )  # fmt: skip

    loader = loader_of()
    states, batches = [], []
    for batch in loader:
        batches.append(batch.tolist())
        states.append(json.loads(json.dumps(loader.state_dict())))
    assert [len(batch) for batch in batches] == [2] * 20
    for at, state in enumerate(states[:-1]):
        other = loader_of()
        other.load_state_dict(state)
        assert numbers(other) == batches[at + 1 :]


def test_many_errors_around_a_batch_of_nothing_are_the_same_after_a_resume(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 600, 4), fails_at(range(200, 364)))

    def loader_of() -> Loader:
        return Loader(dataset, 32, on_error="skip", fill="repeat", max_skipped=600)

    loader = loader_of()
    states, batches = [], []
    for batch in loader:
        batches.append(batch.tolist())
        states.append(loader.state_dict())
    assert len(batches) == 19
    for at, state in enumerate(states[:-1]):
        other = loader_of()
        other.load_state_dict(state)
        assert numbers(other) == batches[at + 1 :]
    # The order of a foreign sampler is not known: then neighbours by number are.
    rest = Loader(
        dataset, 32, sampler=[*range(200, 264), *range(0, 64)], on_error="skip", fill="repeat",
        max_skipped=600,
    )  # fmt: skip
    assert numbers(rest)[0] == [199] * 32


def test_fill_without_a_good_sample_is_an_error(folder: headrace.Store) -> None:
    loader = Loader(
        MapDataset(folder, fails_at(range(COUNT))), 4, on_error="skip", fill="repeat",
        max_skipped=COUNT,
    )  # fmt: skip
    with pytest.raises(headrace.CorruptDataError, match="no sample near them is good"):
        next(iter(loader))


def test_an_epoch_of_nothing_but_errors_is_one(folder: headrace.Store) -> None:
    dataset = MapDataset(folder, fails_at(range(COUNT)))
    loader = Loader(dataset, 4, on_error="skip", max_skipped=COUNT)
    with pytest.raises(headrace.CorruptDataError, match="nothing is left of 40 samples"):
        list(loader)
    assert loader.epoch == 1


# ---- every dataset and every order


def test_a_function_gets_the_key_of_a_sample_in_a_shard(tmp_path: Path) -> None:
    members = [(f"{i:02d}.txt", b"%d" % i) for i in range(12)]
    (tmp_path / "a.tar").write_bytes(tar(members))

    def number(fields: Any) -> int:
        found = int(fields["txt"].bytes())
        if found == 5:
            raise BadSampleError
        return found

    errors: list[Any] = []
    dataset = ShardDataset(tmp_path, number)
    assert flat(Loader(dataset, 4, on_error=errors.append)) == [0, 1, 2, 3, 4, *range(6, 12)]
    [error] = errors
    assert (error.url, error.member, error.index) == (f"file://{tmp_path}/a.tar", "05", 5)
    members_of = MapDataset(headrace.index_members(tmp_path), raiser(ValueError))
    with pytest.raises(headrace.CorruptDataError):
        list(Loader(members_of, 4, on_error=errors.append))
    assert [each.member for each in errors[1:]] == [f"{i:02d}.txt" for i in range(10)]


def test_numbers_of_combined_datasets_are_those_of_the_whole(folder: headrace.Store) -> None:
    both = ConcatDataset(
        [MapDataset(folder, fails_at()), Subset(MapDataset(folder, fails_at(())), range(10, 20))]
    )
    errors: list[Any] = []
    loader = Loader(both, 7, shuffle=True, on_error=errors.append)
    assert sorted(flat(loader)) == sorted([*GOOD, *range(10, 20)])
    assert sorted(each.index for each in errors) == sorted(BAD)
    for each in errors:
        with pytest.raises(BadSampleError):
            both[each.index]


def test_folders_keep_their_labels(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        (tmp_path / "ab"[i % 2] / f"{i:04d}").write_bytes(content(i))
    dataset = MapDataset.from_folders(tmp_path, fails_at({4, 7}))
    (tmp_path / "b" / "0009").unlink()
    pairs = [
        (int(number), int(label))
        for batch in Loader(dataset, 5, shuffle=True, on_error="skip")
        for number, label in zip(*batch, strict=True)
    ]
    assert sorted(pairs) == [(i, i % 2) for i in range(12) if i not in (4, 7, 9)]


def test_rows_of_a_table_that_do_not_exist_are_left_out(folder: headrace.Store) -> None:
    urls = [folder.url_of(f"{i:04d}") for i in range(10)]
    urls[4] = folder.url_of("none")
    dataset = MapDataset.from_table({"url": urls, "label": list(range(10))})
    pairs = [
        (bytes(raw.tolist()), int(label))
        for batch in Loader(dataset, 3, on_error="skip")
        for raw, label in zip(*batch, strict=True)
    ]
    assert pairs == [(content(i), i) for i in range(10) if i != 4]


@pytest.mark.parametrize("fill", [None, "repeat"])
@pytest.mark.parametrize("collate_fn", [None, list])
def test_a_token_beyond_the_vocabulary_leaves_out_its_sample(
    tmp_path: Path, collate_fn: Any, fill: Any
) -> None:
    tokens = torch.arange(0, 81, dtype=torch.int16)
    tokens[35] = 1000
    (tmp_path / "a.bin").write_bytes(tokens.numpy().tobytes())
    dataset = TokenDataset(tmp_path, seq_len=8, vocab_size=100)
    errors: list[Any] = []
    loader = Loader(dataset, 5, on_error=errors.append, fill=fill, collate_fn=collate_fn)
    starts = [int(row[0]) for batch in loader for row in batch]
    whole = list(range(0, 80, 8))
    wanted = (
        [each for each in whole if each != 32] if fill is None else [*whole[:4], 24, *whole[5:]]
    )
    assert starts == wanted
    assert [each.index for each in errors] == [4]
    assert "vocab_size is 100" in str(errors[0])


@pytest.mark.parametrize("collate_fn", [None, list])
def test_packed_samples_that_cannot_be_read_are_left_out(
    server: FaultServer, collate_fn: Any
) -> None:
    lengths = [50, 50, 50, 50]
    tokens = torch.arange(200, dtype=torch.int32).numpy().astype("uint16")
    server.put("bucket", "t/x.idx", megatron_index(lengths, "uint16"))
    server.put("bucket", "t/x.bin", tokens.tobytes())
    store = headrace.Store(
        "gs://bucket/t/", endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    dataset = TokenDataset(store, seq_len=39, names=["x.idx"], sequence_order=[2, 0, 3, 1])
    whole = [int(dataset[at][0]) for at in range(len(dataset))]
    # The begin of the first sequence of the file is in the second sample alone.
    begin = {"name": "range", "contains": "bytes=0-"}
    server.faults([{"match": {"kind": "media", "header": begin}, "action": {"status": 404}}])
    errors: list[Any] = []
    loader = Loader(dataset, 5, on_error=errors.append, collate_fn=collate_fn)
    starts = [int(row[0]) for batch in loader for row in batch]
    server.faults([])
    assert [each.index for each in errors] == [1]
    assert starts == whole[:1] + whole[2:]


def orders(folder: headrace.Store) -> dict[str, Callable[[], Loader]]:
    dataset = MapDataset(folder, fails_at())
    weights = [1 + i % 3 for i in range(COUNT)]
    given: dict[str, dict[str, Any]] = {
        "plain": {"batch_size": 7},
        "shuffled": {"batch_size": 7, "shuffle": True},
        "block": {"batch_size": 7, "shuffle": "block", "block_size": 5},
        "bytes": {"max_batch_bytes": 650, "shuffle": True},
        "weighted": {"batch_size": 7, "sampler": WeightedSampler(dataset, weights, seed=3)},
        "torch": {
            "batch_size": 7,
            "sampler": DistributedSampler(range(COUNT), 1, 0),  # type: ignore[arg-type]
        },
        "lists": {"batch_sampler": [[i, COUNT - 1 - i] for i in range(20)]},
        "costs": {
            "batch_sampler": CostBatchSampler(
                dataset, cost=weights, max_batch_cost=11, shuffle=True
            )
        },
        "late": {"batch_size": 7, "max_wait_s": 60.0},
        "meta": {"batch_size": 7, "device": "meta"},
    }
    return {
        name: lambda options=options: Loader(dataset, on_error="skip", max_skipped=30, **options)
        for name, options in given.items()
    }


@pytest.mark.parametrize(
    "order",
    ["plain", "shuffled", "block", "bytes", "weighted", "torch", "lists", "costs", "late"],
)
def test_a_stop_changes_nothing_in_any_order(folder: headrace.Store, order: str) -> None:
    make = orders(folder)[order]
    loader = make()
    batches, states = [], [loader.state_dict()]
    for batch in loader:
        batches.append(batch.tolist())
        states.append(json.loads(json.dumps(loader.state_dict())))
    skipped = loader.stats.skipped
    if order != "weighted":
        assert sorted(flat(batches)) == GOOD
        assert skipped == len(BAD)
    for at, state in enumerate(states[:-1]):
        rest = make()
        rest.load_state_dict(state)
        assert numbers(rest) == batches[at:]
        assert rest.stats.skipped == skipped - state.get("skipped", 0)


def test_batches_on_a_device_are_shorter_too(folder: headrace.Store) -> None:
    loader = orders(folder)["meta"]()
    sizes = [len(batch) for batch in loader]
    assert sum(sizes) == len(GOOD)
    assert loader.stats.skipped == len(BAD)


# ---- states and counts


def test_the_count_of_the_epoch_is_in_the_state(folder: headrace.Store) -> None:
    def loader_of() -> Loader:
        return Loader(MapDataset(folder, fails_at()), 4, on_error="skip", max_skipped=6)

    loader = loader_of()
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["skipped"] == 1
    next(iterator)  # the second one has nothing
    assert loader.state_dict()["skipped"] == 5
    state = loader.state_dict()
    rest = loader_of()
    rest.load_state_dict(state)
    rest.set_epoch(0)
    with pytest.raises(headrace.CorruptDataError, match=r"7 samples of epoch 0.*max_skipped is 6"):
        list(rest)
    assert rest.state_dict()["skipped"] == 6
    clean = Loader(MapDataset(folder), 4, on_error="skip")
    next(iter(clean))
    assert "skipped" not in clean.state_dict()
    for wrong in (-1, "1", True):
        with pytest.raises(headrace.InvalidArgumentError, match="the state's skipped"):
            loader_of().load_state_dict({**state, "skipped": wrong})


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("more", [0, 1])
def test_max_skipped_may_be_reached_and_not_exceeded(
    folder: headrace.Store, more: int, threads: int
) -> None:
    errors: list[Any] = []
    loader = Loader(
        MapDataset(folder, fails_at()), 4, on_error=errors.append,
        max_skipped=len(BAD) - more, transform_threads=threads,
    )  # fmt: skip
    if more == 0:
        assert flat(loader) == GOOD
        assert len(errors) == len(BAD)
        return
    seen: list[int] = []
    with pytest.raises(headrace.CorruptDataError) as caught:
        seen.extend(each for batch in loader for each in batch.tolist())
    assert seen == [i for i in GOOD if i < 36]
    assert len(errors) == 6
    for i in (3, 4, 5, 6, 7):
        assert f"no {i} (in the transform of {folder.url_of(f'{i:04d}')})" in str(caught.value)
    assert isinstance(caught.value.__cause__, BadSampleError)
    assert loader.state_dict()["position"] == 36


def test_a_hundredth_of_the_epoch_and_ten_may_be_left_out_by_any_number_of_ranks(
    tmp_path: Path,
) -> None:
    store = fill_folder(tmp_path, 2400, 4)
    for count, world_size, most in ((2400, 1, 24), (2400, 2, 24), (800, 1, 10)):
        dataset = MapDataset(store, fails_at(range(1, 2400, 2)), index=store.index()[:count])
        loader = Loader(dataset, 2, on_error="skip", rank=0, world_size=world_size)
        with pytest.raises(headrace.CorruptDataError, match=f"max_skipped is {most}"):
            list(loader)
        assert loader.stats.skipped == most
    # What one rank was allowed to leave out, several go on with.
    dataset = MapDataset(store, fails_at(range(0, 2400, 160)))
    one = Loader(dataset, 10, on_error="skip")
    batches = iter(one)
    taken = sum(len(next(batches)) for _ in range(200))
    rest = 0
    for rank in range(4):
        other = Loader(dataset, 10, on_error="skip", rank=rank, world_size=4)
        other.load_state_dict(one.state_dict())
        rest += sum(len(batch) for batch in other)
    assert taken + rest == 2400 - 15


def test_each_epoch_counts_anew(folder: headrace.Store) -> None:
    loader = Loader(MapDataset(folder, fails_at()), 4, on_error="skip", max_skipped=7)
    for epoch in range(3):
        assert loader.epoch == epoch
        assert flat(loader) == GOOD
        assert "skipped" not in loader.state_dict()
    assert loader.stats.skipped == 21


def test_states_of_ranks_differ_in_what_they_have_skipped_alone(folder: headrace.Store) -> None:
    def loader_of(rank: int) -> Loader:
        dataset = MapDataset(folder, fails_at({1, 2, 9, 25}))
        return Loader(dataset, 4, on_error="skip", rank=rank, world_size=2, max_skipped=3)

    loaders = [loader_of(rank) for rank in range(2)]
    iterators = [iter(each) for each in loaders]
    for _ in range(2):
        for each in iterators:
            next(each)
    states = [each.state_dict() for each in loaders]
    assert [state.pop("skipped", 0) for state in states] == [3, 0]
    assert states[0] == states[1]
    # What one rank has saved counts for each that loads it.
    saved = loaders[0].state_dict()
    rests = [loader_of(rank) for rank in range(2)]
    for each in rests:
        each.load_state_dict(saved)
        assert each.state_dict() == saved
    with pytest.raises(headrace.CorruptDataError, match="4 samples of epoch 0"):
        list(rests[0])  # has 25
    assert len(list(rests[1])) == 3


failing = st.sets(st.integers(0, COUNT - 1), max_size=25)


@hypothesis.given(
    failing,
    st.integers(1, 3),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([None, "repeat"]),
    st.sampled_from([0, 2]),
    st.integers(0, 100),
    st.data(),
)
@hypothesis.settings(
    max_examples=40, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_each_good_sample_comes_once_and_ranks_stay_in_step(
    folder: headrace.Store,
    bad: set[int],
    world_size: int,
    batch_size: int,
    shuffle: bool,
    fill: Any,
    threads: int,
    seed: int,
    data: Any,
) -> None:
    options: dict[str, Any] = {
        "shuffle": shuffle, "seed": seed, "transform_threads": threads, "prefetch_bytes": 1000,
        "world_size": world_size,
    }  # fmt: skip
    skips: dict[str, Any] = {"on_error": "skip", "fill": fill, "max_skipped": COUNT}
    good_set = set(range(COUNT)) - bad
    steps: list[list[list[int]]] = []
    for rank in range(world_size):
        plain = numbers(Loader(MapDataset(folder, fails_at(())), batch_size, rank=rank, **options))
        loader = Loader(
            MapDataset(folder, fails_at(bad)), batch_size, rank=rank, **options, **skips
        )
        left = [[each for each in batch if each in good_set] for batch in plain]
        if fill is None:
            if world_size == 1:
                left = [batch for batch in left if batch]
            elif [] in left:
                with pytest.raises(headrace.CorruptDataError, match="fill='repeat'"):
                    list(loader)
                return
        cut = data.draw(st.integers(0, max(0, len(left) - 1)))
        found: list[list[int]] = []
        iterator = iter(loader)
        for _ in range(cut):
            found.append(next(iterator).tolist())
        state = json.loads(json.dumps(loader.state_dict()))
        rest = Loader(MapDataset(folder, fails_at(bad)), batch_size, rank=rank, **options, **skips)
        rest.load_state_dict(state)
        following = numbers(rest)
        assert following == numbers(iterator)
        found += following
        if fill is None:
            assert found == left
        else:
            assert [len(batch) for batch in found] == [len(batch) for batch in plain]
            for batch, whole, wanted in zip(found, plain, left, strict=True):
                if wanted:
                    assert set(batch) == set(wanted)
                    assert all(
                        each == original
                        for each, original in zip(batch, whole, strict=True)
                        if original in good_set
                    )
                else:
                    assert len(set(batch)) == 1
                    assert set(batch) <= good_set
        steps.append(found)
    if fill is not None or world_size > 1:
        assert len({len(each) for each in steps}) == 1


# ---- which errors


def of(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


def answered(error: Any, **attributes: Any) -> BaseException:
    for name, value in attributes.items():
        setattr(error, name, value)
    result: BaseException = error
    return result


def never() -> list[BaseException]:
    """Return new ones, since what was raised keeps the frames of its traceback."""
    return [
        MemoryError(),
        torch.OutOfMemoryError(),
        PermissionError(13, "no"),
        ConnectionResetError(),
        TimeoutError(),
        OSError(24, "too many open files"),
        OSError(28, "no space left"),
        headrace.PermissionDeniedError("no"),
        headrace.UnavailableError("no"),
        headrace.ThrottledError("no"),
        headrace.TimedOutError("no"),
        headrace.CancelledError("no"),
        headrace.ResourceError("no"),
        headrace.InternalError("no"),
        headrace.InvalidArgumentError("no"),
        answered(headrace.InvalidArgumentError("no"), url="gs://b/o", http_status=400),
        concurrent.futures.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(),
        of(ValueError("cannot fetch"), ConnectionRefusedError()),
        urllib.error.HTTPError("http://service", 503, "later", email.message.Message(), None),
        answered(OSError("as of requests"), response=SimpleNamespace(status_code=403)),
        RuntimeError("CUDA error: device-side assert triggered"),
        of(OSError("wrapped, as by requests"), of(ValueError(), TimeoutError())),
        ExceptionGroup("several", [ValueError(), MemoryError()]),
    ]


def sometimes() -> list[Exception]:
    return [
        ValueError(),
        KeyError("label"),
        OSError("cannot identify image file"),
        FileNotFoundError(2, "no"),
        EOFError(),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "no"),
        headrace.NotFoundError("no"),
        headrace.CorruptDataError("no"),
        headrace.PreconditionFailedError("no"),
        answered(headrace.InvalidArgumentError("a key in two places"), url="gs://b/o.tar"),
        ExceptionGroup("several", [ValueError(), KeyError()]),
    ]


@pytest.mark.parametrize("at", range(len(never())), ids=lambda at: repr(never()[at]))
def test_what_is_not_of_a_sample_is_never_left_out(folder: headrace.Store, at: int) -> None:
    error = never()[at]
    assert not is_of_the_data(error)

    def transform(_: headrace.Sample) -> int:
        raise error

    called: list[Any] = []
    with pytest.raises(type(error)) as caught:
        next(iter(Loader(MapDataset(folder, transform), 4, on_error=called.append)))
    assert caught.value is error
    assert called == []


@pytest.mark.parametrize("at", range(len(sometimes())), ids=lambda at: repr(sometimes()[at]))
def test_what_is_of_a_sample_is_left_out(folder: headrace.Store, at: int) -> None:
    error = sometimes()[at]

    def transform(sample: headrace.Sample) -> int:
        if sample.index == 1:
            raise error
        return int(sample.bytes()[:4])

    for threads in (0, 2):
        loader = Loader(
            MapDataset(folder, transform), 4, on_error="skip", transform_threads=threads
        )
        assert flat(loader) == [i for i in range(COUNT) if i != 1]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("error", AWKWARD, ids=lambda each: each.__name__)
def test_awkward_exceptions_are_left_out_or_raised_and_hang_nothing(
    folder: headrace.Store, error: type[BaseException], threads: int
) -> None:
    raises = raiser(error)

    def transform(sample: headrace.Sample) -> Any:
        return raises() if sample.index == 5 else sample.index

    told: list[Any] = []
    for on_error in ("skip", told.append):
        loader = Loader(
            MapDataset(folder, transform), 4, on_error=on_error, transform_threads=threads
        )
        if issubclass(error, Exception):
            assert flat(loader) == [i for i in range(COUNT) if i != 5]
        else:
            with pytest.raises(error):
                list(loader)
    assert [type(each) for each in told] == [error] * issubclass(error, Exception)


def test_what_the_trainer_handles_is_no_cause(folder: headrace.Store) -> None:
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        for threads in (0, 2):
            loader = Loader(
                MapDataset(folder, fails_at()), 4, on_error="skip", transform_threads=threads
            )
            assert flat(loader) == GOOD


def test_an_outage_behind_another_error_is_none_of_the_sample(folder: headrace.Store) -> None:
    def transform(_: headrace.Sample) -> int:
        try:
            raise ConnectionRefusedError
        except ConnectionRefusedError:
            raise OSError("as requests says it")  # noqa: B904

    with pytest.raises(OSError, match="as requests says it"):
        next(iter(Loader(MapDataset(folder, transform), 4, on_error="skip")))


@pytest.mark.parametrize("collate_fn", [None, list])
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, headrace.PermissionDeniedError),
        (503, headrace.UnavailableError),
        (400, headrace.InvalidArgumentError),
    ],
)
def test_refusals_and_outages_of_the_store_are_raised(
    server: FaultServer, status: int, error: type[Exception], collate_fn: Any
) -> None:
    fill(server, COUNT)
    store = headrace.Store(
        "gs://bucket/data/", endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    dataset = MapDataset(store)
    store.delete("0004")
    server.faults(
        [{"match": {"kind": "media", "path_contains": "0006"}, "action": {"status": status}}]
    )
    called: list[Any] = []
    loader = Loader(dataset, 4, on_error=called.append, collate_fn=collate_fn)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(error, match="data/0006") as caught:
        next(iterator)
    assert caught.value.__notes__ == ["1 other object of the 4 that were read together failed, too"]
    assert called == []
    assert loader.state_dict()["position"] == 4
    server.faults([])
    loader.load_state_dict(loader.state_dict())
    assert sum(len(batch) for batch in loader) == COUNT - 5
    assert [each.index for each in called] == [4]


def test_collate_errors_are_not_of_one_sample(folder: headrace.Store) -> None:
    loader = Loader(MapDataset(folder), 4, on_error="skip", collate_fn=raiser(ValueError))
    with pytest.raises(ValueError, match="the collate_fn for 4 samples"):
        next(iter(loader))
    uneven = MapDataset(folder, lambda sample: sample.tensor()[: sample.index])
    with pytest.raises(headrace.InvalidArgumentError, match="unequal sizes"):
        next(iter(Loader(uneven, 4, on_error="skip")))


# ---- who is told


@pytest.mark.parametrize("threads", [0, 3])
def test_a_function_is_called_in_order_as_batches_are_taken(
    folder: headrace.Store, threads: int
) -> None:
    told: list[Any] = []
    loader = Loader(
        MapDataset(folder, fails_at()), 4, on_error=told.append, transform_threads=threads
    )
    iterator = iter(loader)
    counts = []
    for _ in iterator:
        counts.append(len(told))
    assert counts == [1, 5, 5, 6, 6, 6, 6, 6, 7]
    assert [each.index for each in told] == sorted(BAD)
    assert [each.url for each in told] == [folder.url_of(f"{i:04d}") for i in sorted(BAD)]
    assert {each.member for each in told} == {None}
    assert str(told[0]) == f"no 3 (in the transform of {folder.url_of('0003')})"


def test_a_function_that_raises_ends_the_iterator_before_that_batch(
    folder: headrace.Store,
) -> None:
    def refuse(error: Any) -> None:
        if error.index == 17:
            raise LookupError("enough") from error

    loader = Loader(MapDataset(folder, fails_at()), 4, on_error=refuse)
    seen: list[int] = []
    with pytest.raises(LookupError, match="enough") as caught:
        seen.extend(each for batch in loader for each in batch.tolist())
    assert isinstance(caught.value.__cause__, BadSampleError)
    assert seen == [i for i in GOOD if i < 16]
    assert loader.state_dict()["position"] == 16
    assert loader.state_dict()["skipped"] == 5


@pytest.mark.parametrize("threads", [0, 2])
def test_a_function_may_send_the_loader_elsewhere(folder: headrace.Store, threads: int) -> None:
    loader: Loader

    def leave(error: Any) -> None:
        loader.set_epoch(7)

    loader = Loader(
        MapDataset(folder, fails_at({5})), 4, on_error=leave, transform_threads=threads
    )  # fmt: skip
    seen: list[int] = []
    with pytest.raises(headrace.CancelledError, match="sent to another place"):
        seen.extend(each for batch in loader for each in batch.tolist())
    assert seen == [0, 1, 2, 3]
    assert loader.epoch == 7


def test_an_exception_that_is_raised_again_and_again_is_about_the_latest(
    folder: headrace.Store,
) -> None:
    one = BadSampleError("the same")

    def transform(sample: headrace.Sample) -> Any:
        if sample.index in BAD:
            raise one
        return sample.index

    told = []
    loader = Loader(
        MapDataset(folder, transform), 4, on_error=lambda error: told.append(error.index)
    )
    list(loader)
    assert told == sorted(BAD)


def test_attributes_that_a_class_has_itself_stay(folder: headrace.Store) -> None:
    @dataclasses.dataclass(frozen=True)
    class FetchError(Exception):
        url: str

    def transform(sample: headrace.Sample) -> Any:
        if sample.index in BAD:
            raise FetchError("http://elsewhere")
        return sample.index

    told: list[Any] = []
    list(Loader(MapDataset(folder, transform), 4, on_error=told.append))
    assert {each.url for each in told} == {"http://elsewhere"}
    assert [each.index for each in told] == sorted(BAD)


def test_the_log_has_the_first_one_and_the_total_of_each_epoch(
    folder: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    loader = Loader(MapDataset(folder, fails_at()), 4, on_error="skip")
    with caplog.at_level(logging.WARNING, "headrace"):
        for _ in range(2):
            list(loader)
    first, total, again, total_again = [record.getMessage() for record in caplog.records]
    assert "BadSampleError: no 3 (in the transform of" in first
    assert "has left out 7 samples of epoch 0" in total
    assert "Others of epoch 1" in again
    assert "7 samples of epoch 1" in total_again
    caplog.clear()
    with caplog.at_level(logging.WARNING, "headrace"):
        list(Loader(MapDataset(folder, fails_at()), 4, on_error=lambda _: None))
    assert caplog.records == []


def test_an_error_that_is_kept_keeps_no_samples(folder: headrace.Store) -> None:
    kept = []

    class Big:
        pass

    alive: list[weakref.ref[Any]] = []

    def transform(sample: headrace.Sample) -> Any:
        big = Big()
        alive.append(weakref.ref(big))
        if sample.index in BAD:
            wrapping = sample.index % 3
            try:
                raise BadSampleError
            except BadSampleError as error:
                if wrapping == 0:
                    raise
                if wrapping == 1:
                    raise ValueError("because of it") from None
                raise ExceptionGroup("several", [ValueError(), error])  # noqa: B904
        return big

    for threads in (0, 2):
        loader = Loader(
            MapDataset(folder, transform), 4, on_error=kept.append, collate_fn=list,
            transform_threads=threads,
        )  # fmt: skip
        for batch in loader:
            del batch
    gc.collect()
    assert len(kept) == 2 * len(BAD)
    assert all(each.__traceback__ is not None for each in kept)
    assert [each for each in alive if each() is not None] == []


def test_what_cannot_be_is_refused(folder: headrace.Store) -> None:
    dataset = MapDataset(folder)
    for wrong, text in (
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
        ({"on_error": None}, "on_error is None"),
        ({"on_error": "skip", "max_skipped": -1}, "max_skipped is -1"),
        ({"on_error": "skip", "max_skipped": 0.01}, "max_skipped is 0.01"),
        ({"max_skipped": 3}, "nothing is skipped"),
        ({"fill": "repeat"}, "nothing is skipped"),
        ({"on_error": "skip", "fill": "zeros"}, "fill is 'zeros'"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            Loader(dataset, 4, **wrong)  # type: ignore[arg-type]


# ---- processes


def test_a_run_that_is_killed_goes_on_with_its_count(run_child: RunChild, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    fill_folder(tmp_path / "data", COUNT)
    script = """
        import json, os, pathlib, signal, sys
        from headrace.torch import Loader, MapDataset

        folder, out, most = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
        bad = {3, 4, 5, 6, 7, 17, 39}

        def number_of(sample):
            number = int(sample.bytes()[:4])
            if number in bad:
                raise ValueError(number)
            return number

        loader = Loader(MapDataset(folder, number_of), 4, on_error="skip", max_skipped=most)
        if (out / "state.json").exists():
            loader.load_state_dict(json.loads((out / "state.json").read_text()))
        for batch in loader:
            with (out / "seen").open("a") as seen:
                seen.write("".join(f"{each}\\n" for each in batch.tolist()))
            (out / "state.json").write_text(json.dumps(loader.state_dict()))
            if 16 in batch.tolist():
                os.kill(os.getpid(), signal.SIGKILL)
        print(loader.epoch)
    """
    for most, code in ((7, 0), (6, 1)):
        out = tmp_path / f"{most}"
        out.mkdir()
        arguments = f"{tmp_path}/data", f"{out}", f"{most}"
        run_child(script, *arguments, expect_code=-signal.SIGKILL, stderr=None)
        assert json.loads((out / "state.json").read_text())["skipped"] == 6
        run_child(script, *arguments, expect_code=code, stderr=None)
        seen = [int(line) for line in (out / "seen").read_text().split()]
        assert seen == [i for i in GOOD if code == 0 or i < 36]
