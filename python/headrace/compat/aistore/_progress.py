"""A bar on the console."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from headrace import InvalidArgumentError

__all__ = ["shown"]

Item = TypeVar("Item")


def shown(
    items: Iterable[Item], title: str, show_progress: bool, total: Any = None
) -> Generator[Item]:
    """Yield `items`, and show how many there were so far.

    Raises:
        InvalidArgumentError: tqdm, which shows it, is not installed.
    """
    if not show_progress:
        yield from items
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise InvalidArgumentError(
            "show_progress=True shows a bar of tqdm, which is not installed: "
            "pip install 'headrace[progress]'"
        ) from None
    with tqdm(desc=title, total=total, unit=" objects", unit_scale=True) as bar:
        for each in items:
            yield each
            bar.update()
