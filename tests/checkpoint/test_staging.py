"""From a device to the host in pieces: the order of events, with a device that takes its time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from headrace.checkpoint._device_copies import DeviceCopies, host_pieces


class LateCopies:
    """Copies that happen when they are waited for, and not before."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.under_way = self.most_under_way = 0

    def empty(self, size_bytes: int) -> torch.Tensor:
        return torch.full((size_bytes,), 255, dtype=torch.uint8)

    def start(self, into: torch.Tensor, source: torch.Tensor) -> Callable[[], object]:
        self.events.append(f"start {len(source)}")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)

        def wait() -> None:
            self.under_way -= 1
            self.events.append(f"wait {len(source)}")
            into.copy_(source)

        return wait


@pytest.mark.parametrize("size_bytes", [0, 1, 9, 10, 11, 20, 35])
def test_pieces_are_the_bytes_in_order(size_bytes: int) -> None:
    source = torch.arange(size_bytes, dtype=torch.uint8)
    for copies in (LateCopies(), DeviceCopies(torch.device("cpu"))):
        found = [piece.clone() for piece in host_pieces(source, copies, piece_bytes=10)]
        assert [len(piece) for piece in found] == [
            min(10, size_bytes - begin) for begin in range(0, size_bytes, 10)
        ]
        assert torch.equal(torch.cat([torch.empty(0, dtype=torch.uint8), *found]), source)


def test_the_next_piece_is_on_its_way_while_one_is_used() -> None:
    copies = LateCopies()
    for piece in host_pieces(torch.arange(25, dtype=torch.uint8), copies, piece_bytes=10):
        copies.events.append(f"use {len(piece)}")
    assert copies.events == [
        *("start 10", "wait 10", "start 10", "use 10"),
        *("wait 10", "start 5", "use 10"),
        *("wait 5", "use 5"),
    ]
    assert copies.most_under_way == 1


def test_a_piece_stays_as_it_is_until_the_next_is_asked_for() -> None:
    copies = LateCopies()
    pieces = host_pieces(torch.arange(30, dtype=torch.uint8), copies, piece_bytes=10)
    first = next(pieces)
    assert first.tolist() == list(range(10))
    second = next(pieces)
    assert first.tolist() == list(range(10))
    assert second.tolist() == list(range(10, 20))
