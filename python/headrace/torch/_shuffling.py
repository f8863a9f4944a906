"""How the objects of an epoch are shuffled: not, all of them, or in blocks of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace.torch._arguments import int64_count
from headrace.torch._mix import Mixture
from headrace.torch._place import Drawn, Objects, Place
from headrace.torch._signatures import Shuffle

__all__ = ["Shuffle", "Shuffling", "shuffling"]


_BLOCK_SIZE = 32


@dataclass(frozen=True)
class Blocks:
    """A place's `Drawn` of blocks of neighbours, which come in a random order."""

    count: int
    block_size: int
    window_blocks: int

    is_counted = True

    @property
    def origin(self) -> str:
        return (
            f"each object once per epoch, in blocks of {self.block_size} of which "
            f"{self.window_blocks} are shuffled together"
        )

    def order(self, seed: int, epoch: int) -> _engine.BlockOrder:
        return _engine.BlockOrder(self.count, seed, epoch, self.block_size, self.window_blocks)


@dataclass(frozen=True)
class Shuffling:
    """What `shuffle`, `block_size` and `shuffle_window` say together."""

    shuffle: bool
    block_size: int = 0
    """0: there are no blocks."""
    window_blocks: int = 0

    def place(self, objects: Objects, seed: int, mixture: Mixture[Any] | None = None) -> Place:
        """Return the place where the first epoch of these objects begins.

        Raises:
            InvalidArgumentError: a mixture is to be shuffled in blocks.
        """
        drawn: Drawn | None = None
        if mixture is not None:
            require(
                self.block_size == 0,
                "shuffle is 'block', and a mixture takes single samples of each dataset in turn: "
                "say shuffle=True",
            )
            drawn = mixture.shares(shuffle=self.shuffle)
        elif self.block_size > 0:
            drawn = Blocks(len(objects), self.block_size, self.window_blocks)
        return Place(objects, seed, self.shuffle, drawn)


def shuffling(shuffle: Any, block_size: Any, shuffle_window: Any) -> Shuffling:
    """Return what these arguments mean.

    Args:
        shuffle: True, False or ``"block"``.
        block_size: how many neighbours are a block; None: 32.
        shuffle_window: how many objects are shuffled together, rounded up to whole blocks; None:
            one block.

    Raises:
        InvalidArgumentError: they cannot work, or contradict each other.
    """
    if isinstance(shuffle, bool):
        for name, value in (("block_size", block_size), ("shuffle_window", shuffle_window)):
            require(
                value is None,
                f"{name} is given, but shuffle is {shuffle}: say shuffle='block', or leave it out",
            )
        return Shuffling(shuffle)
    if shuffle != "block":
        raise InvalidArgumentError(f"shuffle is {shuffle!r}; it must be True, False or 'block'")
    size = _BLOCK_SIZE if block_size is None else int64_count("block_size", block_size, minimum=1)
    window_blocks = 1
    if shuffle_window is not None:
        window_blocks = -(-int64_count("shuffle_window", shuffle_window, minimum=1) // size)
    return Shuffling(True, size, window_blocks)
