"""Batches on a CUDA device: the bytes of the objects, however late copies and computations are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
from headrace.torch import Loader, MapDataset, TokenDataset, _loader, _to_device
from tests.cuda.conftest import NEEDS_CUDA, Hold
from tests.torch.conftest import fill_folder
from tests.torch.test_loader import number_of
from tests.waiting import wait_until

pytestmark = NEEDS_CUDA

SIZE_BYTES = 256 << 10
COUNT = 96
BATCH = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of objects of random bytes."""
    folder = tmp_path_factory.mktemp("objects")
    random = torch.Generator().manual_seed(1)
    for i in range(COUNT):
        data = torch.randint(0, 256, (SIZE_BYTES,), dtype=torch.uint8, generator=random)
        (folder / f"{i:04d}").write_bytes(data.numpy().tobytes())
    return folder


@pytest.fixture
def expected(place: Path) -> list[torch.Tensor]:
    """The batches of an epoch, on the host."""
    return list(Loader(MapDataset(headrace.Store(place)), BATCH))


class Held(_to_device.CudaDevice):
    """A device whose copies all are late, and which remembers its batches on the host."""

    def __init__(self, device: torch.device, hold: Hold | None) -> None:
        super().__init__(device)
        self.hold = hold
        self.are_page_locked: list[bool] = []
        self.copies: list[Any] = []

    def copy(self, batch: Any) -> Any:
        if self.hold is not None:
            self.hold(3, self._stream)
        self.are_page_locked += [
            each.is_pinned()
            for each in torch.utils._pytree.tree_leaves(batch)
            if isinstance(each, torch.Tensor)
        ]
        copy = super().copy(batch)
        self.copies.append(copy)
        return copy


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, cuda: torch.device, hold: Hold) -> Held:
    """Take the place of the device."""
    device = Held(cuda, hold)
    monkeypatch.setattr(_loader, "opened", lambda _: device)
    return device


def same(found: list[Any], expected: list[Any]) -> bool:
    """Compare what came with what should have."""
    return len(found) == len(expected) and all(
        torch.equal(a, b) for a, b in zip(found, expected, strict=True)
    )


def test_batches_are_right_when_copies_are_late(
    place: Path, expected: list[torch.Tensor], held: Held
) -> None:
    found = []
    for batch in Loader(MapDataset(headrace.Store(place)), BATCH, device="cuda"):
        assert batch.device.type == "cuda"
        found.append(batch.clone())  # on the trainer's stream; nothing waits for the device here
        del batch
    assert same([each.cpu() for each in found], expected)
    assert held.are_page_locked == [True] * len(expected)


def test_batches_are_right_when_the_trainer_is_late(
    place: Path, expected: list[torch.Tensor], held: Held, hold: Hold
) -> None:
    """Memory of a batch that the trainer's stream has yet to use takes no later batch."""
    held.hold = None
    found = []
    for batch in Loader(MapDataset(headrace.Store(place)), BATCH, device="cuda"):
        hold(5)
        found.append(batch.clone())
        del batch
    assert same([each.cpu() for each in found], expected)


def test_without_telling_whose_stream_uses_it_memory_would_be_used_again_too_early(
    place: Path,
    expected: list[torch.Tensor],
    held: Held,
    hold: Hold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above can fail."""
    held.hold = None
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    found = []
    for batch in Loader(MapDataset(headrace.Store(place)), BATCH, device="cuda"):
        hold(5)
        found.append(batch.clone())
        del batch
    assert not same([each.cpu() for each in found], expected)


def test_copies_run_while_the_device_computes(place: Path, held: Held, hold: Hold) -> None:
    held.hold = None
    loader = Loader(MapDataset(headrace.Store(place)), BATCH, device="cuda")
    batches = iter(loader)
    next(batches)
    copied = loader._pipeline
    assert isinstance(copied, _to_device.CopiedAhead)
    hold(5_000)
    computed = torch.cuda.Event()  # type: ignore[no-untyped-call]
    computed.record()  # type: ignore[no-untyped-call]
    wait_until(lambda: all(step.is_ready() for step in copied._batches._ahead))
    next(batches)  # does not wait for the trainer's stream
    assert len(held.copies) == 4  # two are of batches that nobody has asked for
    wait_until(held.copies[-1]._copied.query)
    assert not computed.query()


def test_a_stream_of_the_trainers_own_finds_the_batch(
    place: Path, expected: list[torch.Tensor], held: Held
) -> None:
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    found = []
    with torch.cuda.stream(own):
        for batch in Loader(MapDataset(headrace.Store(place)), BATCH, device="cuda:0"):
            found.append(batch.clone())
            del batch
    own.synchronize()
    assert same([each.cpu() for each in found], expected)


@pytest.mark.parametrize("threads", [0, 2])
def test_collated_batches_are_page_locked_and_move_at_any_depth(
    tmp_path: Path, held: Held, threads: int
) -> None:
    def sample(each: headrace.Sample) -> Any:
        number = number_of(each)
        return {"x": torch.full((3, 20_000), number), "y": (number, [float(number)]), "z": "text"}

    dataset = MapDataset(fill_folder(tmp_path, 20), sample)
    at = 0
    for batch in Loader(dataset, 4, transform_threads=threads, device="cuda"):
        numbers = [*range(at, at + 4)]
        assert batch["x"].device.type == batch["y"][0].device.type == "cuda"
        assert batch["x"][:, 2, -1].tolist() == batch["y"][0].tolist() == numbers
        assert batch["y"][1][0].tolist() == [float(each) for each in numbers]
        assert batch["z"] == ["text"] * 4
        at += 4
    assert at == 20
    assert held.are_page_locked == [True] * 15


def test_what_is_no_plain_tensor_moves_too(tmp_path: Path, held: Held) -> None:
    def collate(numbers: list[int]) -> Any:
        rows = [torch.full((each + 1,), each) for each in numbers]
        return (
            torch.nn.utils.rnn.pack_sequence(rows, enforce_sorted=False),
            torch.eye(3).to_sparse(),
        )

    dataset = MapDataset(fill_folder(tmp_path, 8), number_of)
    for packed, sparse in Loader(dataset, 4, collate_fn=collate, device="cuda"):
        assert packed.data.device.type == sparse.device.type == "cuda"
        rows, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        assert [int(row[0]) + 1 for row in rows] == lengths.tolist()
        assert torch.equal(sparse.to_dense().cpu(), torch.eye(3))


def test_tokens_come_on_the_device(tmp_path: Path, held: Held) -> None:
    tokens = torch.arange(20_000, dtype=torch.int16)
    headrace.Store(tmp_path).write("a.bin", tokens.numpy().tobytes())
    dataset = TokenDataset(tmp_path, seq_len=100, dtype="uint16")
    on_host = list(Loader(dataset, 8))
    found = list(Loader(dataset, 8, device="cuda"))
    leaves = torch.utils._pytree.tree_leaves
    assert all(each.device.type == "cuda" for each in leaves(found))
    assert same([each.cpu() for each in leaves(found)], leaves(on_host))
    assert all(held.are_page_locked)


def test_it_resumes_after_the_batches_that_were_yielded(place: Path, held: Held) -> None:
    loader = Loader(MapDataset(headrace.Store(place)), BATCH, shuffle=True, device="cuda")
    whole = [batch.cpu() for batch in loader]
    loader.set_epoch(0)
    batches = iter(loader)
    first = [next(batches).cpu() for _ in range(5)]
    loader.load_state_dict(loader.state_dict())
    assert same(first + [batch.cpu() for batch in loader], whole)


def test_page_locked_batches_are_the_callers_to_move(
    place: Path, expected: list[torch.Tensor], hold: Hold
) -> None:
    found = []
    for batch in Loader(MapDataset(headrace.Store(place)), BATCH, pin_memory=True):
        assert batch.is_pinned()
        hold(2)
        found.append(batch.to("cuda", non_blocking=True))
        del batch  # while the copy from it waits
    assert same([each.cpu() for each in found], expected)


def test_memory_counts_as_the_engines_until_a_batch_is_handed_over(place: Path) -> None:
    store = headrace.Store(place)
    engine, _ = store._open()
    for batch in Loader(MapDataset(store), BATCH, device="cuda"):
        del batch
    assert engine.live_bytes == 0


def test_with_another_default_device_batches_are_the_same(
    place: Path, expected: list[torch.Tensor]
) -> None:
    dataset = MapDataset(headrace.Store(place))
    with torch.device("cuda"):
        found = [batch.cpu() for batch in Loader(dataset, BATCH, device="cuda")]
        on_host = list(Loader(dataset, BATCH))
    assert {batch.device.type for batch in on_host} == {"cpu"}
    assert same(found, expected)
    assert same(on_host, expected)


def test_nothing_is_warned_of(place: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in Loader(MapDataset(headrace.Store(place)), BATCH, device="cuda"):
            del batch


def test_a_device_that_is_not_there_is_an_error(place: Path) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="device is 'cuda:77'"):
        Loader(MapDataset(headrace.Store(place)), BATCH, device="cuda:77")
