"""Whatever a user's function raises arrives as it is, and nobody waits for what will not come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.torch import (
    CostBatchSampler,
    Loader,
    MapDataset,
    ParquetDataset,
    ShardDataset,
    ShardStream,
)
from headrace.torch import _pipeline as pipeline
from tests.awkward_errors import AWKWARD, ORDINARY, raiser
from tests.shards.tars import tar
from tests.torch.conftest import fill_folder

Function = Callable[..., Any]


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    return fill_folder(tmp_path_factory.mktemp("ten"), 10)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    (folder / "a.tar").write_bytes(tar([("0.txt", b"zero"), ("1.txt", b"one")]))
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("table")
    parquet.write_table(pyarrow.table({"a": [1, 2, 3]}), folder / "a.parquet")
    return folder


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("max_wait_s", [None, 5.0])
@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_a_transform_or_collate_fn_arrives_and_the_threads_end(
    ten: headrace.Store, error: type[BaseException], max_wait_s: float | None, threads: int
) -> None:
    options: dict[str, Any] = {"transform_threads": threads, "max_wait_s": max_wait_s}
    by_transform = Loader(MapDataset(ten, raiser(error)), 4, **options)
    by_collate = Loader(MapDataset(ten), 4, collate_fn=raiser(error), **options)
    for loader in (by_transform, by_collate):
        with pytest.raises(error) as caught:
            next(iter(loader))
        assert type(caught.value) is error


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_a_dataset_s_function_arrives(
    ten: headrace.Store, shards: Path, error: type[BaseException]
) -> None:
    function = raiser(error)
    calls: list[Function] = [
        lambda: MapDataset(ten, function)[0],
        lambda: MapDataset(ten, function).__getitems__([0, 1]),
        lambda: ShardDataset(shards, function)[0],
        lambda: list(ShardStream(shards, function)),
        lambda: list(CostBatchSampler(MapDataset(ten), cost=function, max_batch_cost=3)),
        lambda: list(CostBatchSampler(MapDataset(ten), max_batch_size=4, fits=function)),
        lambda: MapDataset(ten, progress=function),
    ]
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error


@pytest.mark.parametrize("error", ORDINARY)
def test_an_error_of_a_transform_of_rows_arrives(table: Path, error: type[BaseException]) -> None:
    for options in ({}, {"batch_size": 2}):
        with pytest.raises(error) as caught:
            list(ParquetDataset(table, transform=raiser(error), **options))
        assert type(caught.value) is error


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("error", ORDINARY)
def test_an_error_of_a_sampler_arrives_where_it_was_raised(
    ten: headrace.Store, error: type[BaseException], threads: int
) -> None:
    class Sampler:
        def __iter__(self) -> Iterator[list[int]]:
            yield [0, 1]
            raise error("a text")

        def __len__(self) -> int:
            return 2

    loader = Loader(MapDataset(ten), batch_sampler=Sampler(), transform_threads=threads)
    with pytest.raises(error) as caught:
        list(loader)
    assert type(caught.value) is error


@pytest.mark.parametrize("where", ["about_sample", "_take", "_collate"])
def test_what_fails_in_a_thread_beside_the_users_function_does_not_hang_either(
    ten: headrace.Store, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def transform(_: headrace.Sample) -> int:
        if where == "about_sample":
            raise ValueError
        return 1

    owner: Any = pipeline if where == "about_sample" else pipeline.MadeStep
    monkeypatch.setattr(owner, where, raiser(ZeroDivisionError))
    with pytest.raises((ZeroDivisionError, ValueError)):
        next(iter(Loader(MapDataset(ten, transform), 4, transform_threads=2)))
