"""Batches on a device: when copies begin, and what they hold. A stand-in takes the device's place.

It copies when it is told to, as a device does that is busy. CUDA is not needed.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import headrace
from headrace.torch import Loader, MapDataset, _loader, _pinning, _to_device
from tests.torch.conftest import fill_folder
from tests.torch.test_loader import number_of
from tests.waiting import wait_until


class FakeCopy:
    """Reads the host's memory when the batch is taken, and not before."""

    def __init__(self, device: FakeDevice, batch: Any) -> None:
        self._device, self._here = device, batch

    def take(self) -> Any:
        here, self._here = self._here, None
        self._device.taken += 1
        return _to_device.moved(here, torch.device("cpu")), "there"


class FakeDevice:
    """Counts the copies begun and taken."""

    def __init__(self) -> None:
        self.begun = self.taken = 0
        self.batches: list[weakref.ref[Any]] = []

    def copy(self, batch: Any) -> FakeCopy:
        self.begun += 1
        self.batches.append(weakref.ref(batch))
        return FakeCopy(self, batch)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()
    monkeypatch.setattr(_loader, "choose_device", torch.device)
    monkeypatch.setattr(_loader, "opened", lambda _: fake)
    return fake


def loader_of(folder: Path, count: int = 20, **options: Any) -> Loader:
    return Loader(
        MapDataset(fill_folder(folder, count), options.pop("transform", number_of)),
        4,
        device="cuda",
        **options,
    )


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether page-locked memory was asked for; there is none here."""
    asked: list[bool] = []

    def choose(wanted: bool) -> _pinning.Pinning:
        asked.append(wanted)
        return _pinning.Pageable()

    monkeypatch.setattr(_loader, "choose_pinning", choose)
    return asked


@pytest.mark.parametrize("threads", [0, 2])
def test_every_batch_comes_from_the_device_in_order(
    tmp_path: Path, device: FakeDevice, asked: list[bool], threads: int
) -> None:
    found = list(loader_of(tmp_path, transform_threads=threads))
    assert [batch.tolist() for batch, _ in found] == [
        list(range(i, i + 4)) for i in range(0, 20, 4)
    ]
    assert {where for _, where in found} == {"there"}
    assert (device.begun, device.taken) == (5, 5)
    assert asked == [True]  # copies to CUDA are from page-locked memory


def test_no_more_than_two_batches_are_copied_ahead_of_the_trainer(
    tmp_path: Path, device: FakeDevice
) -> None:
    loader = loader_of(tmp_path, count=40, transform_threads=2)
    for _ in loader:
        assert device.begun - device.taken <= 2
    assert (device.begun, device.taken) == (10, 10)


def test_batches_that_the_engine_has_read_are_copied_ahead(
    tmp_path: Path, device: FakeDevice
) -> None:
    loader = loader_of(tmp_path, transform=None)
    batches = iter(loader)
    next(batches)
    copied = loader._pipeline
    assert isinstance(copied, _to_device.CopiedAhead)
    wait_until(lambda: all(step.is_ready() for step in copied._batches._ahead))
    next(batches)
    assert (device.begun, device.taken) == (4, 2)
    next(batches)
    assert (device.begun, device.taken) == (5, 3)


def test_datasets_of_several_stores_are_copied_ahead_too(
    tmp_path: Path, device: FakeDevice
) -> None:
    parts = [MapDataset(fill_folder(tmp_path / name, 8)) for name in ("a", "b")]
    both = torch.utils.data.ConcatDataset(parts)
    found = [len(batch) for batch, _ in Loader(both, 4, shuffle=True, device="cuda")]
    assert found == [4] * 4
    assert (device.begun, device.taken) == (4, 4)


def test_a_batch_is_not_given_up_before_it_was_copied(tmp_path: Path, device: FakeDevice) -> None:
    loader = loader_of(tmp_path, transform=None)
    batches = iter(loader)
    next(batches)
    copied = loader._pipeline
    assert isinstance(copied, _to_device.CopiedAhead)
    wait_until(lambda: all(step.is_ready() for step in copied._batches._ahead))
    next(batches)
    gc.collect()
    alive = [batch() is not None for batch in device.batches]
    assert alive == [False, False, True, True]


def test_the_place_counts_what_was_yielded_not_what_was_copied(
    tmp_path: Path, device: FakeDevice
) -> None:
    loader = loader_of(tmp_path, shuffle=True, transform_threads=2)
    whole = [batch.tolist() for batch, _ in loader]
    loader.set_epoch(0)
    batches = iter(loader)
    first = [next(batches)[0].tolist() for _ in range(2)]
    state = loader.state_dict()
    assert state["position"] == 8
    loader.load_state_dict(state)
    rest = [batch.tolist() for batch, _ in loader]
    assert first + rest == whole
    assert device.taken == 5 + 2 + 3


def test_an_error_comes_in_its_turn(tmp_path: Path, device: FakeDevice) -> None:
    def fails_at_9(sample: headrace.Sample) -> int:
        if number_of(sample) == 9:
            raise ValueError("bad picture")
        return number_of(sample)

    loader = loader_of(tmp_path, transform=fails_at_9, transform_threads=2)
    batches = iter(loader)
    next(batches)
    copied = loader._pipeline
    assert copied is not None
    wait_until(copied.is_ready)
    next(batches)
    with pytest.raises(ValueError, match="bad picture"):
        next(batches)
    assert loader.state_dict()["position"] == 8
    assert device.taken == 2


def test_draining_and_leaving_end_what_was_copied_ahead(tmp_path: Path, device: FakeDevice) -> None:
    loader = loader_of(tmp_path, prefetch_bytes=0, transform_threads=0)
    batches = iter(loader)
    next(batches)
    loader.drain()
    left = len(list(batches))
    assert loader.state_dict()["position"] == 4 * (1 + left)
    assert device.begun == device.taken == 1 + left
    batches = iter(loader)
    next(batches)
    loader.set_epoch(3)
    with pytest.raises(headrace.CancelledError):
        next(batches)


def test_tensors_move_at_any_depth_and_so_does_what_can_be_moved() -> None:
    class Own:
        def to(self, device: torch.device, *, non_blocking: bool) -> str:
            return f"{device.type} {non_blocking}"

    there = _to_device.moved(
        {"a": [torch.zeros(2), 3], "b": (torch.ones(1), Own()), "c": "text"}, torch.device("meta")
    )
    assert there["a"][0].device.type == there["b"][0].device.type == "meta"
    assert (there["a"][1], there["b"][1], there["c"]) == (3, "meta True", "text")


def test_a_packed_sequence_moves_itself() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(1), torch.ones(3)], enforce_sorted=False)
    there = _to_device.moved([packed, (packed, torch.ones(1))], torch.device("meta"))
    for each in (there[0], there[1][0]):
        assert type(each) is type(packed)
        assert each.data.device.type == "meta"
        assert each.batch_sizes.device.type == "cpu"  # where torch insists on having it
    assert there[1][1].device.type == "meta"


class Edge(NamedTuple):
    source: Any
    to: Any


def test_a_tuple_with_a_field_of_the_name_to_moves_by_its_fields() -> None:
    there = _to_device.moved(Edge(torch.ones(2), [torch.zeros(1), 3]), torch.device("meta"))
    assert type(there) is Edge
    assert there.source.device.type == there.to[0].device.type == "meta"
    assert there.to[1] == 3


class Streams:
    """Stands in for those of CUDA: knows which one is current, and which uses which tensor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = "trainer"
        self.users: list[tuple[Any, Any]] = []

        @contextlib.contextmanager
        def on(name: str) -> Iterator[None]:
            before, self.current = self.current, name
            yield
            self.current = before

        class Event:
            def record(self, stream: str) -> None:
                assert stream == "copies"

        class Trainer:
            def wait_event(self, _: Event) -> None: ...

        trainer = Trainer()
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: "copies")
        monkeypatch.setattr(torch.cuda, "stream", on)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: trainer)
        monkeypatch.setattr(
            torch.Tensor,
            "record_stream",
            lambda tensor, stream: self.users.append((tensor, stream is trainer)),
        )


def test_only_tensors_whose_memory_can_be_kept_are_copied_on_another_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = Streams(monkeypatch)

    class Own:
        """As BatchEncoding and PackedSequence: it holds tensors that nobody else sees."""

        def to(self, device: torch.device, *, non_blocking: bool) -> str:
            assert (device.type, non_blocking) == ("meta", True)
            return streams.current

    device = _to_device.CudaDevice(torch.device("meta"))
    sparse = torch.eye(3).to_sparse()
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    copy = device.copy({"a": torch.ones(2), "b": [Own(), "text"], "c": sparse, "d": packed})
    there = copy.take()
    assert there["b"] == ["trainer", "text"]
    assert there["d"].data.device.type == "meta"
    assert there["a"].device.type == there["c"].device.type == "meta"
    [(kept, is_by_trainer)] = streams.users
    assert kept is there["a"]
    assert is_by_trainer


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_without_cuda_the_loader_says_so_once_and_yields_the_same(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="device='cuda' has no effect: no CUDA device") as told:
        loader = loader_of(tmp_path)
    assert len(told) == 1
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [batch.tolist() for _ in range(2) for batch in loader]
    assert found == 2 * [list(range(i, i + 4)) for i in range(0, 20, 4)]


def test_devices_without_streams_get_batches_as_they_are_yielded(tmp_path: Path) -> None:
    loader = Loader(MapDataset(fill_folder(tmp_path, 8), number_of), 4, device="meta")
    assert [(batch.device.type, batch.shape[0]) for batch in loader] == [("meta", 4)] * 2
    [batch, _] = Loader(MapDataset(fill_folder(tmp_path, 8), number_of), 4, device="cpu")
    assert batch.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", ["gpu", "hpu:0", object(), "cuda:x"])
def test_a_device_that_does_not_exist_is_an_error(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="device is "):
        Loader(MapDataset(fill_folder(tmp_path, 8)), 4, device=bad)
