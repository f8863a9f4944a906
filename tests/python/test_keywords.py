"""What a call says that was given a keyword which nothing takes, or no longer takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.checkpoint
from headrace.torch import Loader, MapDataset

Call = Callable[[Path], Any]


def make(path: Path) -> MapDataset:
    headrace.Store(path).write("a", b"x")
    return MapDataset(path)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda path: headrace.Store(path, max_in_flight=3),
            "headrace.Store has no argument 'max_in_flight': give "
            "parallel=headrace.ParallelOptions(max_in_flight=...)",
        ),
        (
            lambda path: headrace.Store(path, compose_small_objects=True),
            "headrace.Store has no argument 'compose_small_objects': give "
            "provider=headrace.GcsOptions(compose_small_objects=...)",
        ),
        (
            lambda path: headrace.Store(path, max_attempts=3),
            "headrace.Store has no argument 'max_attempts': give "
            "retry=headrace.RetryOptions(max_attempts=...)",
        ),
        (
            lambda path: headrace.Store(path, endpont="http://x"),
            "headrace.Store has no argument 'endpont': did you mean endpoint=?",
        ),
        (
            lambda path: headrace.Store(path, xyz=1),
            "headrace.Store has no argument 'xyz'",
        ),
        (
            lambda path: headrace.Store(path).index(on_progress=print),
            "Store.index has no argument 'on_progress': it is called progress; a function is "
            "called with (count, None)",
        ),
        (
            lambda path: headrace.Store(path).read_batches([["a"]], ahead_bytes=3),
            "Store.read_batches has no argument 'ahead_bytes': it is called prefetch_bytes",
        ),
        (
            lambda path: headrace.open(path / "a", read_ahead_bytes=3),
            "headrace.open has no argument 'read_ahead_bytes': it is called prefetch_bytes",
        ),
        (
            lambda path: headrace.open(path / "a", user_project="p"),
            "headrace.open has no argument 'user_project': give "
            "provider=headrace.GcsOptions(user_project=...)",
        ),
        (
            lambda path: headrace.checkpoint.load(path / "a", max_in_flight=3),
            "headrace.Store has no argument 'max_in_flight': give "
            "parallel=headrace.ParallelOptions(max_in_flight=...)",
        ),
        (
            lambda path: headrace.clean(path, endpont="x"),
            "headrace.Store has no argument 'endpont': did you mean endpoint=?",
        ),
        (
            lambda path: MapDataset(path, user_project="p"),
            "MapDataset has no argument 'user_project': give "
            "provider=headrace.GcsOptions(user_project=...)",
        ),
        (
            lambda path: MapDataset(path, transfrom=print),
            "MapDataset has no argument 'transfrom': did you mean transform=?",
        ),
        (
            lambda path: MapDataset.from_folders(path, labels=[1]),
            "MapDataset.from_folders has no argument 'labels'",
        ),
        (
            lambda path: MapDataset.from_table({"url": []}, labels="y"),
            "MapDataset.from_table has no argument 'labels': did you mean label=?",
        ),
        (
            lambda path: MapDataset.from_table({"url": []}, shuffle=True),
            "MapDataset.from_table has no argument 'shuffle': it is for what makes the batches, "
            "Loader(dataset, batch_size, ...) or torch's DataLoader",
        ),
        (
            lambda path: Loader(make(path), 1, read_ahead_bytes=5),
            "Loader has no argument 'read_ahead_bytes': it is called prefetch_bytes",
        ),
    ],
)  # fmt: skip
def test_a_wrong_keyword_is_told_with_the_right_one(tmp_path: Path, call: Call, told: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(tmp_path)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "call",
    [
        lambda store: headrace.open("a", store=store),
        lambda store: headrace.clean(store=store),
        lambda store: headrace.ObjectIndex.load("a", store=store),
        lambda store: headrace.ObjectIndex.from_names(["a"]).save("a", store=store),
        lambda store: headrace.checkpoint.save({}, "a", store=store),
        lambda store: headrace.checkpoint.load("a", store=store),
        lambda store: headrace.checkpoint.open("a", store=store),
        lambda store: headrace.checkpoint.latest(store=store),
        lambda store: headrace.checkpoint.DistributedWriter("a", store=store),
        lambda store: headrace.checkpoint.DistributedReader("a", store=store),
    ],
)
def test_a_url_is_no_store(call: Callable[[str], Any]) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="store is 'gs://bucket'; it must be"):
        call("gs://bucket")
