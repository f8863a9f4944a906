"""Values in one of the types that a column of an `ObjectIndex` can have."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

__all__ = ["KINDS", "in_one_kind", "missing_value", "odd_value"]

KINDS = "all booleans, all integers, all floats, all str or all bytes"


def in_one_kind(values: list[Any]) -> list[Any] | None:
    """Return the values as all booleans, integers, floats, texts or bytes; else None.

    Numbers of NumPy and torch are numbers. Booleans among integers become integers, and integers
    among floats become floats.
    """
    for kind in (str, bytes):
        if all(isinstance(value, kind) for value in values):
            return values
    if all(map(_is_boolean, values)):
        return [bool(value) for value in values]
    try:
        return [_integer(value) for value in values]
    except TypeError:
        pass
    return [float(value) for value in values] if all(map(_is_number, values)) else None


def missing_value(values: Sequence[Any]) -> int | None:
    """Return the place of the first value that is missing: None, or NaN, as tables write it."""
    return next((at for at, each in enumerate(values) if each is None or _is_nan(each)), None)


def odd_value(values: Sequence[Any]) -> int:
    """Return the place of a value because of which `in_one_kind` returned None."""
    kinds = [_kind(value) for value in values]
    if None in kinds:
        return kinds.index(None)
    return next(at for at, kind in enumerate(kinds) if kind != kinds[0])


def _integer(value: Any) -> int:
    # NumPy's booleans, unlike Python's, are no indices.
    return int(operator.index(bool(value) if _is_boolean(value) else value))


def _is_boolean(value: Any) -> bool:
    dtype = str(getattr(value, "dtype", ""))
    return isinstance(value, bool) or dtype.removeprefix("torch.") == "bool"


def _is_nan(value: Any) -> bool:
    return not isinstance(value, str | bytes) and _is_number(value) and float(value) != float(value)


def _kind(value: Any) -> type | None:
    for kind in (str, bytes):
        if isinstance(value, kind):
            return kind
    return float if _is_number(value) else None


def _is_number(value: Any) -> bool:
    if isinstance(value, str | bytes | bytearray):
        return False  # float() reads numbers in them
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
