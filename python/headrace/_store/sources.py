"""What is given as the source of data: one of several kinds, or several of these."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from headrace._base.options import require
from headrace._engine import ObjectIndex
from headrace._store.store import Store

__all__ = ["folder_labels", "sources_of"]


def sources_of(source: Any, texts: str) -> list[Any]:
    """Return the URLs, paths, stores and indexes that are given.

    Args:
        texts: what a text may be, for the message.

    Raises:
        InvalidArgumentError: there is none, or something else among them.
    """
    one = isinstance(source, str | os.PathLike | Store | ObjectIndex)
    sources: list[Any] = [source] if one else list(source) if isinstance(source, Iterable) else []
    require(
        len(sources) > 0
        and all(isinstance(each, str | os.PathLike | Store | ObjectIndex) for each in sources),
        f"the source is a {type(source).__name__}; it must be {texts}, a headrace.Store, a "
        "headrace.ObjectIndex, or several of these",
    )
    return sources


def folder_labels(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the numbers of the names that have a folder, and the first folder of each."""
    inside = [i for i, name in enumerate(names) if "/" in name.rstrip("/")]
    return inside, [names[i].split("/", 1)[0] for i in inside]
