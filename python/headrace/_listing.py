"""Listings whose pages are fetched several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace import _engine
from headrace._engine import ObjectIndex, ObjectInfo

__all__ = ["index_objects", "list_objects"]


def list_objects(
    handle: _engine.StoreHandle,
    prefix: str,
    start_offset: str,
    end_offset: str,
    max_pages_in_flight: int,
) -> Iterator[ObjectInfo]:
    """Yield objects in the UTF-8 byte order of their names, as they arrive.

    The first page is asked for alone; from the second on, pages are fetched ahead, more of them the
    further the caller goes. What is under way is cancelled when the generator is closed. 0
    `max_pages_in_flight` leaves it to the engine how many are useful.
    """
    listing = handle.start_listing(
        prefix=prefix,
        start_offset=start_offset,
        end_offset=end_offset,
        only_for_reading=False,
        eager=False,
        max_pages_in_flight=max_pages_in_flight,
    )
    try:
        while (objects := listing.next()) is not None:
            yield from objects
    finally:
        listing.cancel()


def index_objects(
    handle: _engine.StoreHandle,
    root: str,
    prefix: str,
    on_progress: Callable[[int], object] | None,
    max_pages_in_flight: int,
) -> ObjectIndex:
    """List all objects under `prefix`, with what reading needs of each, into an index of `root`."""
    listing = handle.start_listing(
        prefix=prefix,
        start_offset="",
        end_offset="",
        only_for_reading=True,
        eager=True,
        max_pages_in_flight=max_pages_in_flight,
    )
    try:
        return listing.index(root, on_progress)
    finally:
        listing.cancel()
