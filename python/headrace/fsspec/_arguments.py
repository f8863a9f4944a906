"""Numbers and options as fsspec's convention has them, checked."""

from __future__ import annotations

import contextlib
import math
import numbers
import operator
from collections.abc import Mapping
from typing import Any

from fsspec.caching import caches

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require

__all__ = ["block_bytes_of", "cache_options_of", "count_of", "depth_of", "make_count", "number_of"]

_ALL_AT_ONCE = 1 << 16


def number_of(name: str, value: Any) -> int | None:
    """Return a number of fsspec's convention, where no file system checks what it is given.

    Args:
        value: None and ``"default"`` leave it to headrace; a float is rounded down.

    Raises:
        InvalidArgumentError: it is no number.
    """
    if value is None or (isinstance(value, str) and value == "default"):
        return None
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(value)
        real: Any = value if isinstance(value, numbers.Real) else math.nan
        if math.isfinite(real):
            return int(real)
    raise InvalidArgumentError(f"{name} is {value!r}; it must be a number, or None for the default")


def block_bytes_of(block_size: Any) -> int | None:
    """Return `block_size` as an int, or None: 0 asks fsspec's HTTPFileSystem for no blocks.

    Raises:
        InvalidArgumentError: it is no number, or negative.
    """
    size_bytes = number_of("block_size", block_size)
    require(
        size_bytes is None or size_bytes >= 0,
        f"block_size is {block_size}; it must not be negative",
    )
    return size_bytes or None


def depth_of(maxdepth: Any) -> int | None:
    """Return `maxdepth` as an int, or None.

    Raises:
        InvalidArgumentError: it is no number, or below 1.
    """
    depth = number_of("maxdepth", maxdepth)
    require(depth is None or depth >= 1, f"maxdepth is {maxdepth}; it must be at least 1")
    return depth


def count_of(batch_size: Any) -> int | None:
    """Return how many may be treated at a time, or None; -1, to fsspec, is all.

    Raises:
        InvalidArgumentError: it is no number, or negative.
    """
    count = number_of("batch_size", batch_size)
    require(
        count is None or count >= -1,
        f"batch_size is {batch_size}; it must be at least 1, or -1 for all at once",
    )
    return _ALL_AT_ONCE if count == -1 else count or None


def make_count(kwargs: dict[str, Any]) -> None:
    """Check the ``batch_size`` among the keywords of a method, and make it an int."""
    if "batch_size" in kwargs:
        kwargs["batch_size"] = count_of(kwargs["batch_size"])


def cache_options_of(cache_type: Any, cache_options: Any) -> dict[str, Any]:
    """Return what makes one of fsspec's caches.

    Raises:
        InvalidArgumentError: there is no such cache, or the options are no dict.
    """
    known = sorted(filter(None, caches))
    require(
        isinstance(cache_type, str) and cache_type in known,
        f"cache_type is {cache_type!r}; it must be one of {', '.join(known)}",
    )
    require(
        cache_options is None or isinstance(cache_options, Mapping),
        f"cache_options is {cache_options!r}; it must be a dict",
    )
    return {"cache_type": cache_type, "cache_options": dict(cache_options or {})}
