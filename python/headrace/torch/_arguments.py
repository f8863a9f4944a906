"""Checks of arguments that the classes of this package share."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch.distributed

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import integer, require
from headrace._base.options import integer as count
from headrace._store.store import Store

__all__ = [
    "Ranks",
    "as_store",
    "choice",
    "class_name",
    "count",
    "flag",
    "function",
    "int64_count",
    "seed_or_epoch",
    "warn_of_overlooked_ranks",
]


def as_store(source: str | os.PathLike[str] | Store) -> Store:
    """Return the store, or the store of that URL."""
    if isinstance(source, Store):
        return source
    require(
        isinstance(source, str | os.PathLike),
        f"the source is a {type(source).__name__}; it must be a URL, a path or a headrace.Store",
    )
    return Store(source)


def class_name(value: object) -> str:
    """Return what `repr` calls the class of an object: a subclass of the user's by its own name."""
    kind = type(value)
    ours = kind.__module__.partition(".")[0] == "headrace"
    return f"headrace.torch.{kind.__name__}" if ours else kind.__qualname__


def seed_or_epoch(name: str, value: Any) -> int:
    """Return `value` as an integer from which an order can be computed."""
    return int64_count(name, value, minimum=0)


def int64_count(name: str, value: Any, *, minimum: int) -> int:
    """Return `value` as an integer from `minimum` to 2^63 - 1."""
    return integer(name, value, minimum=minimum, end=1 << 63)


def flag(name: str, value: Any) -> bool:
    """Return `value`, which must be True or False."""
    require(isinstance(value, bool), f"{name} is {value!r}; it must be True or False")
    return bool(value)


def function(name: str, value: Any) -> None:
    """Check that `value` is a function, or None."""
    require(value is None or callable(value), f"{name} is {value!r}; it must be callable")


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value`, which must be one of `choices`."""
    require(
        isinstance(value, str) and value in choices,
        f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}",
    )
    return str(value)


class Ranks:
    """The rank of this process and the world size: those given, or those of torch.distributed.

    Datasets and loaders ask when an epoch begins, not before, because they may be made before the
    process group. A DataLoader worker, in which torch.distributed is not initialised, uses the
    values of the process that started it.
    """

    def __init__(self, rank: Any, world_size: Any) -> None:
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError(
                f"rank is {rank!r} and world_size is {world_size!r}; give both or neither"
            )
        self._given: tuple[int, int] | None = None
        self._sent: tuple[int, int] | None = None
        if rank is not None:
            rank = count("rank", rank, minimum=0)
            world_size = count("world_size", world_size, minimum=1)
            require(
                rank < world_size, f"rank is {rank}; it must be less than world_size, {world_size}"
            )
            self._given = rank, world_size

    def _known(self) -> tuple[int, int] | None:
        if self._given is not None:
            return self._given
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return self._sent

    @property
    def are_given(self) -> bool:
        """Whether the user said so."""
        return self._given is not None

    def now(self) -> tuple[int, int]:
        """Return rank and world size; (0, 1) if nothing says that there are other ranks."""
        return self._known() or (0, 1)

    def are_overlooked(self) -> bool:
        """Return whether a launcher started several ranks and no process group knows of them."""
        world_size = os.environ.get("WORLD_SIZE", "")
        return self._known() is None and world_size.isdecimal() and int(world_size) > 1

    def __getstate__(self) -> dict[str, Any]:
        return {"_given": self._given, "_sent": self._known()}


def warn_of_overlooked_ranks(what: str, stacklevel: int) -> None:
    """Warn that `what` reads all objects on each of the ranks that a launcher started."""
    warnings.warn(
        f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but torch.distributed is not initialised, so "
        f"this {what} reads all objects on every rank. Call "
        "torch.distributed.init_process_group() before the first epoch, or give rank= and "
        "world_size=",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
