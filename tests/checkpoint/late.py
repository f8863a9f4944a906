"""A device whose copies to the host are late."""

from __future__ import annotations

from collections.abc import Callable

import torch


class LateCopies:
    """Copies that happen when they are waited for, and not before."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.under_way = self.most_under_way = 0
        self.buffer_sizes: list[int] = []

    def empty(self, size_bytes: int) -> torch.Tensor:
        self.buffer_sizes.append(size_bytes)
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
