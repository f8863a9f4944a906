"""Listings whose pages are fetched several at a time."""

from __future__ import annotations

from collections.abc import Iterator

from headrace import _engine
from headrace._engine import ObjectInfo

__all__ = ["list_objects"]


def list_objects(
    handle: _engine.StoreHandle, prefix: str, start_offset: str, end_offset: str
) -> Iterator[ObjectInfo]:
    """Yield objects in the UTF-8 byte order of their names, as they arrive.

    The first page is asked for alone; from the second on, pages are fetched ahead, more of them the
    further the caller goes. What is under way is cancelled when the generator is closed.
    """
    listing = handle.start_listing(
        prefix=prefix,
        start_offset=start_offset,
        end_offset=end_offset,
        only_for_reading=False,
        eager=False,
        max_pages_in_flight=0,
    )
    try:
        while (objects := listing.next()) is not None:
            yield from objects
    finally:
        listing.cancel()
