"""Python's collector of garbage waits while a pickle is outlined, and only then."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Iterator

import pytest
import torch

from headrace._base.collecting import without_collecting
from headrace.checkpoint._outline import outline_of


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def pickled(count: int) -> bytes:
    """The pickle of so many tensors."""
    file = io.BytesIO()
    torch.save({f"layer{i}": torch.zeros(1) for i in range(count)}, file)
    reader = torch._C.PyTorchFileReader(io.BytesIO(file.getvalue()))
    data: bytes = reader.get_record("data.pkl")
    return data


def test_nothing_is_collected_while_a_pickle_is_outlined() -> None:
    data = pickled(2_000)
    begun: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        begun.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    try:
        outline = outline_of(data)
    finally:
        gc.callbacks.remove(note)
    # 10,000 objects have been made; what was collected came after it.
    assert begun.count("start") <= 1
    assert len(outline.storages) == 2_000
    assert gc.isenabled()


def test_it_goes_on_after_an_error_and_when_the_last_of_several_has_ended() -> None:
    with pytest.raises(KeyError), without_collecting():
        raise KeyError
    assert gc.isenabled()
    with without_collecting():
        with without_collecting():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_so() -> None:
    gc.disable()
    with without_collecting():
        pass
    assert not gc.isenabled()


def test_a_child_that_is_forked_meanwhile_collects() -> None:
    with without_collecting():
        child = os.fork()
        if child == 0:
            was = gc.isenabled()
            with without_collecting():
                pass
            os._exit(0 if was and gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_child_that_is_forked_meanwhile_collects_after_it_has_left_too() -> None:
    child = -1
    with without_collecting():
        child = os.fork()
    if child == 0:
        was = gc.isenabled()
        with without_collecting():
            within = gc.isenabled()
        os._exit(0 if was and not within and gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_it_goes_on_after_an_interrupt_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    disable = gc.disable

    def interrupted() -> None:
        disable()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "disable", interrupted)
    with pytest.raises(KeyboardInterrupt), without_collecting():
        pass
    monkeypatch.undo()
    assert gc.isenabled()
    with without_collecting():
        assert not gc.isenabled()
    assert gc.isenabled()
