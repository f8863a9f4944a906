"""How far a save or a load is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "ProgressCounter"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far this rank's part of a checkpoint is."""

    done_bytes: int
    total_bytes: int
    """As far as is known before: objects that are pickled count when they are there."""
    elapsed_s: float

    @property
    def remaining_s(self) -> float | None:
        """An estimate, from the rate so far; None before the first byte."""
        if self.done_bytes == 0:
            return None
        left = max(self.total_bytes - self.done_bytes, 0)
        return left * self.elapsed_s / self.done_bytes


class ProgressCounter:
    """Adds up what several threads have done, and tells `report`, one call at a time."""

    def __init__(
        self,
        total_bytes: int,
        report: Callable[[Progress], object] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_bytes = total_bytes
        self._report = report
        self._clock = clock
        self._begin = clock()
        self._done_bytes = 0
        self._lock = threading.Lock()

    def add(self, size_bytes: int) -> None:
        """Count `size_bytes` as done."""
        if self._report is None:
            return
        with self._lock:
            self._done_bytes += size_bytes
            self._report(
                Progress(
                    done_bytes=self._done_bytes,
                    total_bytes=max(self._total_bytes, self._done_bytes),
                    elapsed_s=self._clock() - self._begin,
                )
            )
