"""Single bits that are wrong at rest: what becomes of loading such a file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace
import headrace.checkpoint
from headrace import HeadraceError
from tests.checkpoint.states import assert_same, quiet


def flips(data: bytes, count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Bytes and bits to change: half of them anywhere, half of them where small contents are."""
    rng = random.Random(seed)
    for i in range(count):
        if i % 2:
            yield rng.randrange(len(data)), rng.randrange(8)
        else:
            # The records of small contents, their headers, and the directory.
            where = rng.choice(
                [range(min(4096, len(data))), range(max(0, len(data) - 4096), len(data))]
            )
            yield rng.choice(where), rng.randrange(8)


def changed(data: bytes, at: int, bit: int) -> bytes:
    """The same with one bit changed."""
    out = bytearray(data)
    out[at] ^= 1 << bit
    return bytes(out)


class Campaign:
    """Loads a file again and again, each time with another bit changed.

    Attributes:
        detected: how many times loading raised an error of ours.
        harmless: how many times what was loaded was right all the same.
    """

    def __init__(self, folder: Path, data: bytes, state: Any) -> None:
        self._file = folder / "flipped.pt"
        self._data, self._state = data, state
        self._store = headrace.Store(folder)
        self.detected = self.harmless = 0

    def run(self, places: Iterator[tuple[int, int]], load: Callable[[headrace.Store], Any]) -> None:
        for at, bit in places:
            self._file.write_bytes(changed(self._data, at, bit))
            try:
                with quiet():
                    found = load(self._store)
            except HeadraceError as error:
                if "flipped.pt" not in str(error):
                    raise
                self.detected += 1
                continue
            try:
                assert_same(found, self._state)
            except AssertionError:
                raise AssertionError(f"bit {bit} of byte {at} went unseen") from None
            self.harmless += 1


def load_all(store: headrace.Store) -> Any:
    """The whole file."""
    return headrace.checkpoint.load("flipped.pt", store=store)


def load_by_name(store: headrace.Store) -> Any:
    """All of its tensors, each by its name."""
    reader = headrace.checkpoint.open("flipped.pt", store=store)
    return {key: reader.tensor(key) for key in reader.keys()}  # noqa: SIM118 - not a mapping
