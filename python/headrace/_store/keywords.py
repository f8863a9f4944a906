"""Keywords that nothing takes, and what is right in their place: the one place that knows it."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace._base.options import (
    GcsOptions,
    ParallelOptions,
    RetryOptions,
    S3Options,
    TimeoutOptions,
)
from headrace._store.settings import StoreSettings

__all__ = ["OF_LOADERS", "STORE_KEYWORDS", "is_moved", "refuse_keywords", "refuse_options"]

STORE_KEYWORDS = frozenset(each.name for each in dataclasses.fields(StoreSettings))
"""What `Store` can be told besides its URL."""

OF_LOADERS = dict.fromkeys(
    ("batch_size", "collate_fn", "drop_last", "num_workers", "on_error", "sampler", "shuffle"),
    "it is for what makes the batches, Loader(dataset, batch_size, ...) or torch's DataLoader",
)
"""What is said of keywords of loaders where a dataset does not take them."""

# What is said of a keyword where the other one is taken.
_RENAMED = {
    "ahead_bytes": ("prefetch_bytes", "it is called prefetch_bytes"),
    "read_ahead_bytes": ("prefetch_bytes", "it is called prefetch_bytes"),
    "on_progress": ("progress", "it is called progress; a function is called with (count, None)"),
    "block_size": ("seq_len", "it is called seq_len; a sample has one token more"),
    "sequence_length": ("seq_len", "it is called seq_len; a sample has one token more"),
    "store_options": ("store", "give store=headrace.Store(...), or keywords of it: endpoint=..."),
    **{
        field.name: (keyword, f"give {keyword}=headrace.{options.__name__}({field.name}=...)")
        for keyword, options in (
            ("retry", RetryOptions),
            ("timeout", TimeoutOptions),
            ("parallel", ParallelOptions),
            ("provider", GcsOptions),
            ("provider", S3Options),
        )
        for field in dataclasses.fields(options)
    },
}


def refuse_keywords(
    what: str,
    keywords: Iterable[str],
    instead: Mapping[str, str] | None = None,
    *,
    positional: int = 0,
    of: Callable[..., Any] | None = None,
) -> None:
    """Raise TypeError for arguments that `what` lacks, and say what it has in their place.

    Args:
        what: how the user calls it.
        keywords: the names that it lacks.
        instead: what is to be said of some names.
        positional: how many arguments too many have no name.
        of: what was called; where it has no remedy of its own, a keyword of it may be meant.
    """
    for name in keywords:
        remedy = (instead or {}).get(name) or _remedy(name, of)
        raise TypeError(
            f"{what} has no argument {name!r}" + ("" if remedy is None else f": {remedy}")
        )
    if positional:
        raise TypeError(
            f"{what} takes its other arguments by name, such as shuffle=True; {positional} of them "
            f"{'has' if positional == 1 else 'have'} none"
        )


def refuse_options(
    what: str,
    options: Mapping[str, Any],
    of: Callable[..., Any],
    instead: Mapping[str, str] | None = None,
) -> None:
    """Raise TypeError for `options` of a store, given to `what`, which no store takes."""
    unknown = [name for name in options if name not in STORE_KEYWORDS]
    if unknown:
        refuse_keywords(what, unknown, instead, of=of)


def is_moved(name: str) -> bool:
    """Return whether `name` is an option of a store that is given in another way."""
    return name in _RENAMED


def _remedy(name: str, of: Callable[..., Any] | None) -> str | None:
    if of is None:
        return None
    parameters = inspect.signature(of).parameters
    taken = {
        each.name
        for each in parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    } - {"self"}
    if "options" in parameters or "kwargs" in parameters:  # which are of a store
        taken |= STORE_KEYWORDS
    keyword, remedy = _RENAMED.get(name, ("", ""))
    if keyword in taken:
        return remedy
    close = difflib.get_close_matches(name, sorted(taken), 1)
    return f"did you mean {close[0]}=?" if close else None
