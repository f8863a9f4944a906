"""Functions of samples and texts that other processes find by their names."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def shrink(sample: dict[str, Any]) -> dict[str, Any] | None:
    """Keep a part of a sample, and a number of its own; leave out the third."""
    if sample["__key__"].endswith("3"):
        return None
    drawn = sample["jpg"].rng().python.random()
    return {"jpg": sample["jpg"].bytes()[:50], "txt": f"{drawn}"}


def encode(text: bytes) -> list[int]:
    """Return a token for each byte, and one behind them."""
    return [*text, 256]


class OddError(Exception):
    """One that pickle cannot make again."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def raise_odd(sample: dict[str, Any]) -> dict[str, Any]:
    """Raise it."""
    raise OddError("this", "that")


def leave(sample: dict[str, Any]) -> dict[str, Any]:
    """End the process, as somebody may in a script of their own."""
    if sample["__key__"].endswith("2"):
        sys.exit("no more")
    return {"jpg": sample["jpg"].bytes()}


@dataclass(frozen=True)
class KillsItsProcess:
    """Kills whoever calls it for a certain sample, but once only."""

    folder: Path
    key: str

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        if sample["__key__"].endswith(self.key):
            try:
                (self.folder / "killed").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return shrink(sample)


@dataclass(frozen=True)
class Hangs:
    """Says which process has come to a certain sample, and stays there."""

    folder: Path
    key: str

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        if sample["__key__"].endswith(self.key):
            (self.folder / "new").write_text(str(os.getpid()))
            (self.folder / "new").rename(self.folder / "pid")
            threading.Event().wait()
        return shrink(sample)
