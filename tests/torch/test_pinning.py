"""Page-locked memory: where it is asked for, by a stand-in that counts. CUDA is not needed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
from headrace.torch import Loader, MapDataset, _loader, _pinning
from tests.torch.conftest import fill_folder
from tests.torch.test_loader import number_of
from tests.torch.test_map_dataset import numbers


class Counting(_pinning.Pageable):
    """Marks what it was asked for."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self.pinned: list[Any] = []

    def room(self, engine: Any, count: int, size_bytes: int) -> Any:
        self.made.append((count, size_bytes))
        return super().room(engine, count, size_bytes)

    def pin(self, batch: Any) -> Any:
        self.pinned.append(batch)
        return {"pinned": batch}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    stand_in = Counting()
    monkeypatch.setattr(_loader, "choose_pinning", lambda wanted: stand_in)
    return stand_in


def test_the_engine_reads_straight_into_page_locked_memory(
    tmp_path: Path, counting: Counting
) -> None:
    batches = list(Loader(MapDataset(fill_folder(tmp_path, 10)), 4, pin_memory=True))
    assert counting.made == [(4, 100), (4, 100), (2, 100)]
    assert counting.pinned == []  # no second copy
    assert numbers(torch.cat(batches)) == list(range(10))


@pytest.mark.parametrize("threads", [0, 2])
def test_what_is_collated_is_moved_once(tmp_path: Path, counting: Counting, threads: int) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 10), number_of)
    batches = list(Loader(dataset, 4, pin_memory=True, transform_threads=threads))
    assert counting.made == []
    assert [each["pinned"].tolist() for each in batches] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert len(counting.pinned) == 3


def test_without_cuda_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="no CUDA device was found"):
        assert isinstance(_pinning.choose_pinning(True), _pinning.Pageable)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(_pinning.choose_pinning(False), _pinning.Pageable)


def test_with_cuda_it_takes_torchs_page_locked_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def empty(shape: tuple[int, ...], **options: Any) -> str:
        asked.update(options, shape=shape)
        return "a tensor"

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", empty)
    chosen = _pinning.choose_pinning(True)
    assert isinstance(chosen, _pinning.PageLocked)
    engine, _ = headrace.Store(tmp_path)._open()
    held_before = engine.live_bytes
    tensor, hand_over = chosen.room(engine, 3, 5)
    assert tensor == "a tensor"  # type: ignore[comparison-overlap]
    expected = {"shape": (3, 5), "dtype": torch.uint8, "device": "cpu", "pin_memory": True}
    assert asked == expected
    assert engine.live_bytes == held_before + 15
    hand_over()
    assert engine.live_bytes == held_before


def test_what_can_pin_itself_does() -> None:
    class Batch:
        def pin_memory(self) -> str:
            return "pinned"

    assert _pinning.PageLocked().pin([Batch(), ("text", 3)]) == ["pinned", ("text", 3)]
