"""What the classes of this package check of what they are given."""

from __future__ import annotations

import operator
import os
from typing import Any

import torch.distributed

from headrace._errors import InvalidArgumentError
from headrace._options import require
from headrace._store import Store

__all__ = ["as_store", "count", "flag", "rank_and_world_size", "seed_or_epoch"]


def as_store(url_or_store: str | os.PathLike[str] | Store) -> Store:
    """Return the store, or the store of that URL."""
    if isinstance(url_or_store, Store):
        return url_or_store
    require(
        isinstance(url_or_store, str | os.PathLike),
        f"url_or_store is a {type(url_or_store).__name__}; it must be a URL, a path or a "
        "headrace.Store",
    )
    return Store(url_or_store)


def count(name: str, value: Any, *, minimum: int) -> int:
    """Return `value` as an integer of at least `minimum`; NumPy's integers are integers, too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    require(
        number >= minimum and not isinstance(value, bool),
        f"{name} is {value!r}; it must be an integer of at least {minimum}",
    )
    return number


def seed_or_epoch(name: str, value: Any) -> int:
    """Return `value` as an integer that the order can be made of."""
    number = count(name, value, minimum=0)
    require(number < 1 << 63, f"{name} is {value!r}; it must be below 2^63")
    return number


def flag(name: str, value: Any) -> bool:
    """Return `value`, which must be True or False."""
    require(isinstance(value, bool), f"{name} is {value!r}; it must be True or False")
    return bool(value)


def rank_and_world_size(rank: Any, world_size: Any) -> tuple[int, int]:
    """Return both as given; else what torch.distributed says, if it is initialised; else (0, 1)."""
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError(
            f"rank is {rank!r} and world_size is {world_size!r}; give both or neither"
        )
    if rank is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1
    rank, world_size = count("rank", rank, minimum=0), count("world_size", world_size, minimum=1)
    require(rank < world_size, f"rank is {rank}; it must be less than world_size, {world_size}")
    return rank, world_size
