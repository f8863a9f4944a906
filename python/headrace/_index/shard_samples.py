"""Which samples are in shards."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from headrace import _engine
from headrace._base.on_error import OnError
from headrace._base.options import require
from headrace._engine import ObjectIndex
from headrace._index.shards import MEMBER, tell_errors

__all__ = ["FIELDS", "KEY", "field_names", "is_indexed", "lower", "samples_of"]

KEY, FIELDS = "key", "fields"
"""Columns of an index of samples: their keys; the names of their fields, with '/' between them."""
_COLUMNS = {KEY, FIELDS, "places"}
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)

_logger = logging.getLogger("headrace")


def is_indexed(index: ObjectIndex) -> bool:
    """Return whether an index has members or samples, rather than shards."""
    return MEMBER in index.columns or _has_samples(index)


def _has_samples(index: ObjectIndex) -> bool:
    # A user's own column may be called as one of these.
    return _COLUMNS.issubset(index.columns)


def samples_of(
    index: ObjectIndex,
    fields: Sequence[str] | None,
    on_error: OnError,
    lost: int = 0,
    shards: int | None = None,
) -> ObjectIndex:
    """Return an index of samples, of one of members or of samples.

    `lost` of the `shards` have been left out before.
    """
    samples = index if _has_samples(index) else _grouped(index, on_error, lost, shards)
    return samples if fields is None else _engine.with_fields(samples, fields)


def _grouped(index: ObjectIndex, on_error: OnError, lost: int, shards: int | None) -> ObjectIndex:
    samples, errors, left_out, first = _engine.sample_index(index, on_error != "raise")
    tell_errors(errors, on_error)
    lost += len(errors)
    if left_out:
        _logger.warning(
            "%s %s in no sample, since the names have no key before a dot: %s%s",
            left_out,
            "member is" if left_out == 1 else "members are",
            first,
            "" if left_out == 1 else ", ...",
        )
    require(
        lost == 0 or lost != shards or len(samples) > 0,
        "there is no sample, because of errors: "
        + ("the only shard was" if lost == 1 else f"all {lost} shards were")
        + " left out (on_error)",
    )
    require(
        len(samples) > 0,
        "there is no sample: none of the shards has a member whose name has a key before a dot"
        + (f"; {lost} of them were left out because of errors" if lost else ""),
    )
    return samples


def field_names(fields: Any) -> tuple[str, ...]:
    """Return the names of fields that are wanted, in lower case."""
    names = tuple(fields) if isinstance(fields, Iterable) and not isinstance(fields, str) else ()
    require(
        len(names) > 0 and all(isinstance(name, str) for name in names),
        f"fields is {fields!r}; it must be a list of names, such as ('jpg', 'cls')",
    )
    names = tuple(lower(name) for name in names)
    for name in names:
        require(names.count(name) == 1, f"fields has {name!r} twice")
    return names


def lower(name: str) -> str:
    """Return the name of a field as the engine compares it: its ASCII letters in lower case."""
    return name.translate(_LOWER)
