"""DynamicBatchSampler: the batches of the original, from the engine."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from aistore.pytorch.dynamic_sampler import DynamicBatchSampler as Original
from torch.utils.data import DataLoader

from headrace import ObjectIndex
from headrace.compat.aistore.pytorch import AISMapDataset, DynamicBatchSampler


class Sizes:
    """A dataset of objects of these sizes, which nobody reads."""

    def __init__(self, sizes: list[int]) -> None:
        self._objects = [
            SimpleNamespace(name=f"{i}", props_cached=SimpleNamespace(size=size))
            for i, size in enumerate(sizes)
        ]

    def get_obj_list(self) -> list[Any]:
        return self._objects


def batches(sizes: list[int], limit: float, **options: Any) -> list[list[int]]:
    return list(DynamicBatchSampler(Sizes(sizes), limit, **options))


def test_the_published_examples_come_out() -> None:
    ten = [1_000_000] * 10
    assert [len(each) for each in batches(ten, 4_000_000)] == [4, 4, 2]
    assert [len(each) for each in batches(ten, 3_000_000)] == [3, 3, 3, 1]


def test_batches_are_lists_of_int_in_the_order_of_the_samples() -> None:
    found = batches([1, 2, 3, 4], 5)
    assert found == [[0, 1], [2], [3]]
    assert all(type(index) is int for batch in found for index in batch)


def test_the_default_device_of_torch_does_not_matter() -> None:
    def shuffled() -> list[list[int]]:
        torch.manual_seed(3)
        return batches([1, 2, 3, 4], 5, shuffle=True)

    on_host = shuffled()
    with torch.device("meta"):
        assert shuffled() == on_host
        assert batches([], 5) == []


def test_an_oversized_sample_comes_at_once_or_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert batches([3, 9, 1, 2], 5, allow_oversized_samples=True) == [[1], [0, 2], [3]]
    assert not caplog.records
    assert batches([3, 9, 1, 2], 5) == [[0, 2], [3]]
    assert "Sample 1 cannot be processed as it is larger" in caplog.text


def test_many_samples_without_a_place_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    assert batches([0] * 50, 5) == []
    assert len(caplog.records) == 11
    assert caplog.records[0].getMessage() == (
        "Sample 0 cannot be processed as it has a size of 0 bytes"
    )
    assert caplog.records[-1].getMessage().startswith("50 samples in all")


def test_the_last_batch_stays_only_if_it_exceeds_the_saturation() -> None:
    assert batches([5, 4], 5, drop_last=True) == [[0]]  # 0.8 exactly
    assert batches([5, 4], 5, drop_last=True, saturation_factor=0.79) == [[0], [1]]
    assert batches([5, 1], 5, drop_last=True, saturation_factor=0) == [[0], [1]]
    assert batches([10, 10], 10.5, drop_last=True, saturation_factor=1.0) == [[0]]


def test_what_cannot_work_is_refused() -> None:
    for factor in (-0.1, 1.1):
        with pytest.raises(ValueError, match="saturation_factor"):
            batches([1], 5, saturation_factor=factor)
    with pytest.raises(ValueError, match="max_batch_size"):
        batches([1], float("nan"))
    assert batches([1, 2], 0) == []
    with pytest.raises(ZeroDivisionError):
        batches([1, 2], 0, drop_last=True)


def test_the_length_is_that_of_the_samples() -> None:
    sampler = DynamicBatchSampler(Sizes([1_000_000] * 10), 4_000_000)
    assert (len(sampler), len(list(sampler))) == (10, 3)


@pytest.mark.parametrize("lists", [500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_random_lists_have_the_originals_batches(lists: int) -> None:
    logging.disable(logging.WARNING)
    try:
        for seed in range(lists):
            draw = random.Random(seed)
            largest = draw.choice([3, 10, 100, 10**12])
            sizes = [
                draw.choice([0, draw.randint(1, largest)]) if draw.random() < 0.2
                else draw.randint(1, largest)
                for _ in range(draw.randint(0, 16))
            ]  # fmt: skip
            limit: float = draw.randint(1, 2 * largest)
            if draw.random() < 0.3:
                limit += draw.choice([0.0, 0.25, 0.5])
            options: dict[str, Any] = {
                "drop_last": draw.random() < 0.5,
                "allow_oversized_samples": draw.random() < 0.5,
                "saturation_factor": draw.choice([0, 0.5, 0.8, 1]),
                "shuffle": draw.random() < 0.5,
            }
            data = Sizes(sizes)
            torch.manual_seed(seed)
            expected = [[int(i) for i in batch] for batch in Original(data, limit, **options)]
            torch.manual_seed(seed)
            found = list(DynamicBatchSampler(data, limit, **options))
            assert found == expected, (seed, sizes, limit, options)
    finally:
        logging.disable(logging.NOTSET)


def test_each_pass_draws_one_order_from_torchs_generator() -> None:
    sampler = DynamicBatchSampler(Sizes([1] * 50), 10, shuffle=True)
    torch.manual_seed(3)
    first, second = list(sampler), list(sampler)
    torch.manual_seed(3)
    assert first != second
    assert [i for batch in first for i in batch] == torch.randperm(50).flip(0).tolist()
    assert [i for batch in second for i in batch] == torch.randperm(50).flip(0).tolist()


def test_sizes_come_out_of_the_index_without_an_object_each(tmp_path: Path) -> None:
    index = ObjectIndex.from_names(
        [f"{i}" for i in range(1000)], root=f"file://{tmp_path}", sizes_bytes=[7] * 1000
    )
    dataset = AISMapDataset(index)
    assert [len(each) for each in DynamicBatchSampler(dataset, 70)] == [10] * 100


@pytest.mark.parametrize(
    "listed",
    [
        lambda size: {"props_cached": SimpleNamespace(size=str(size))},
        lambda size: {"props_cached": None, "props": SimpleNamespace(size=size)},
        lambda size: {"props": SimpleNamespace(size=size)},
    ],
    ids=["text", "not cached", "an older SDK"],
)
def test_sizes_are_found_wherever_a_listing_leaves_them(
    listed: Callable[[int], dict[str, Any]],
) -> None:
    source = Sizes([1, 2, 3, 4])
    source._objects[1:] = [SimpleNamespace(name="", **listed(size)) for size in (2, 3, 4)]
    assert list(DynamicBatchSampler(source, 5)) == [[0, 1], [2], [3]]


def test_a_sample_costs_no_call_of_python(tmp_path: Path) -> None:
    count = 200_000
    index = ObjectIndex.from_names(
        [str(i) for i in range(count)],
        root=f"file://{tmp_path}",
        sizes_bytes=[1000 + i % 977 for i in range(count)],
    )
    sampler = DynamicBatchSampler(AISMapDataset(index), 64_000, shuffle=True)
    total = batches = calls = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        for batch in sampler:
            batches += 1
            total += len(batch)
    finally:
        sys.setprofile(None)
    assert total == count
    assert batches > 4_000
    assert calls < 10 * batches < count


def test_a_dataloader_takes_the_batches(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"{i}").write_bytes(b"x" * 1000)
    dataset = AISMapDataset(tmp_path)
    loader = DataLoader(dataset, batch_sampler=DynamicBatchSampler(dataset, 4000))
    assert [[len(each) for each in contents] for _, contents in loader] == [
        [1000] * 4, [1000] * 4, [1000] * 2,
    ]  # fmt: skip
