"""Listings whose pages are fetched several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace import _engine
from headrace._engine import ObjectIndex, ObjectInfo

__all__ = ["index_objects", "list_objects"]


def list_objects(listing: _engine.Listing) -> Iterator[ObjectInfo]:
    """Yield objects in the UTF-8 byte order of their names, as they arrive.

    The first page is asked for alone; from the second on, pages are fetched ahead, more of them the
    further the caller goes. What is under way is cancelled when the generator is closed.
    """
    try:
        while (objects := listing.next()) is not None:
            yield from objects
    finally:
        listing.cancel()


def index_objects(
    listing: _engine.Listing,
    store_url: str,
    prefix: str,
    on_progress: Callable[[int], object] | None,
) -> ObjectIndex:
    """Return all objects of a listing, with what reading needs of each, as an index."""
    try:
        return listing.index(store_url, prefix, on_progress)
    finally:
        listing.cancel()
