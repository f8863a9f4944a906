"""Random transforms: the same numbers for any number of threads and workers, and after a resume."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import headrace
from headrace.torch import Loader, MapDataset
from tests.torch.conftest import fill_folder

Drawn = list[tuple[str, float, float, float]]


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    """Forty files of 100 bytes."""
    return fill_folder(tmp_path_factory.mktemp("forty"), 40)


def by_rng(sample: headrace.Sample) -> tuple[str, float, float, float]:
    rng = sample.rng()
    return (
        sample.url,
        rng.python.random(),
        float(rng.numpy.random()),
        torch.rand((), generator=rng.torch).item(),
    )


def by_globals(sample: headrace.Sample) -> tuple[str, float, float, float]:
    return sample.url, random.random(), float(np.random.random()), torch.rand(()).item()


def flat(batches: Any) -> Drawn:
    return [item for batch in batches for item in batch]


def loader(store: headrace.Store, transform: Any = by_rng, size: int = 7, **options: Any) -> Loader:
    return Loader(
        MapDataset(store, transform), size, shuffle=True, seed=3, collate_fn=list, **options
    )


def test_a_loader_draws_the_same_with_any_threads_and_batches(forty: headrace.Store) -> None:
    made = loader(forty, transform_threads=0)
    epochs = [flat(made), flat(made)]
    for threads, size in ((1, 7), (3, 7), (2, 40)):
        again = loader(forty, size=size, transform_threads=threads)
        assert [flat(again), flat(again)] == epochs
    drawn = [number for epoch in epochs for item in epoch for number in item[1:]]
    assert len(set(drawn)) == len(drawn)  # another one for each sample, epoch and generator


def test_a_loader_draws_the_same_on_any_ranks_and_after_a_resume(forty: headrace.Store) -> None:
    whole = sorted(flat(loader(forty)))
    ranks = [loader(forty, rank=rank, world_size=2) for rank in range(2)]
    its = [iter(each) for each in ranks]
    seen = flat(next(it) for it in its)
    resumed = loader(forty, size=4, transform_threads=1)
    resumed.load_state_dict(ranks[1].state_dict())
    assert sorted(seen + flat(resumed)) == whole


def test_another_seed_draws_other_numbers(forty: headrace.Store) -> None:
    dataset = MapDataset(forty, by_rng)
    drawn = [{u: n for u, n, *_ in flat(Loader(dataset, 8, seed=seed, collate_fn=list))}
             for seed in (0, 1)]  # fmt: skip
    assert not set(drawn[0].values()) & set(drawn[1].values())


def test_without_threads_the_global_generators_are_seeded_for_each_sample(
    forty: headrace.Store,
) -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    wanted = random.random(), np.random.random(), torch.rand(())
    made = loader(forty, by_globals, transform_threads=0)
    epochs = [flat(made), flat(made)]
    assert epochs[0] != epochs[1]
    for stop in (1, 5):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        again = loader(forty, by_globals, size=5, transform_threads=0)
        it = iter(again)
        seen = flat(next(it) for _ in range(stop))
        # What transforms draw does not reach the trainer's own numbers.
        assert (random.random(), np.random.random(), torch.rand(())) == wanted
        resumed = loader(forty, by_globals, size=9, transform_threads=0)
        resumed.load_state_dict(again.state_dict())
        assert seen + flat(resumed) == epochs[0]
        assert flat(resumed) == epochs[1]


def test_a_collate_fn_draws_the_same_without_threads(forty: headrace.Store) -> None:
    def mix(samples: list[Any]) -> float:
        return random.random()

    for transform in (None, by_rng):
        drawn = [
            list(Loader(MapDataset(forty, transform), 8, collate_fn=mix, transform_threads=0))
            for _ in range(2)
        ]
        assert drawn[0] == drawn[1]
        assert len(set(drawn[0])) == 5


def test_the_global_generators_may_be_left_alone(forty: headrace.Store) -> None:
    random.seed(1)
    wanted = [random.random() for _ in range(40)]
    random.seed(1)
    made = loader(forty, by_globals, transform_threads=0, seed_generators=False)
    assert [item[1] for item in flat(made)] == wanted


@pytest.mark.parametrize("transform", [by_rng, by_globals])
def test_a_map_dataset_draws_by_epoch_and_number(forty: headrace.Store, transform: Any) -> None:
    def epochs(workers: int, persistent: bool) -> list[Drawn]:
        dataset = MapDataset(forty, transform, seed=3)
        dataset.set_epoch(0)
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        batches = DataLoader(
            dataset, 6, shuffle=True, num_workers=workers, persistent_workers=persistent,
            collate_fn=list, **options,
        )  # fmt: skip
        found = []
        for epoch in range(2):
            dataset.set_epoch(epoch)
            found.append(sorted(flat(batches)))
        return found

    wanted = epochs(0, False)
    assert wanted[0] != wanted[1]
    assert epochs(1, False) == epochs(2, True) == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_without_an_epoch_a_map_dataset_draws_as_torch_was_seeded(
    forty: headrace.Store, workers: int
) -> None:
    def epochs(seed: int) -> list[Drawn]:
        torch.manual_seed(seed)
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        batches = DataLoader(
            MapDataset(forty, by_rng), 6, num_workers=workers, collate_fn=list, **options
        )
        return [flat(batches), flat(batches)]

    first, second = epochs(5)
    assert first != second
    assert epochs(5) == [first, second]
    assert epochs(6) != [first, second]


def test_a_sample_of_no_dataset_has_no_random_numbers(forty: headrace.Store) -> None:
    (sample,) = forty.read_many(["0000"])
    assert sample.seed is None
    with pytest.raises(headrace.InvalidArgumentError, match="the sample has no seed"):
        sample.rng()
    given = headrace.Sample(b"x", "file:///x", seed=7, label="cat")
    assert (given.seed, given.rng().seed, given.label) == (7, 7, "cat")
    first = given.rng().python.random()
    assert given.rng().python.random() != first  # it goes on
    again = pickle.loads(pickle.dumps(given))
    assert (again.seed, again.label, again.bytes()) == (7, "cat", b"x")
    assert again.rng().python.random() == first  # and a copy begins anew


def test_seeds_collate_into_a_tensor(forty: headrace.Store) -> None:
    dataset = MapDataset(forty, lambda sample: sample.seed)
    (seeds,) = Loader(dataset, 40, seed=3)
    assert (seeds.dtype, int(seeds.min()) >= 0, len(set(seeds.tolist()))) == (torch.int64, True, 40)
