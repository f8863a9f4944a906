"""Listings whose pages are fetched several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headrace import _engine
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._errors import CorruptDataError

__all__ = ["OrderOfPages", "index_objects", "list_chunks", "list_objects"]


def list_objects(listing: _engine.Listing) -> Iterator[ObjectInfo]:
    """Yield objects in the UTF-8 byte order of their names; see `list_chunks`."""
    for chunk in list_chunks(listing):
        yield from chunk


def list_chunks(listing: _engine.Listing) -> Iterator[list[ObjectInfo]]:
    """Yield objects in the UTF-8 byte order of their names, as many at a time as have arrived.

    The first page is asked for alone; from the second on, pages are fetched ahead, more of them the
    further the caller goes. What is under way is cancelled when the generator is closed.
    """
    try:
        while (objects := listing.next()) is not None:
            yield objects
    finally:
        listing.cancel()


def index_objects(
    listing: _engine.Listing, root: str, on_progress: Callable[[int], object] | None
) -> ObjectIndex:
    """Return all objects of a listing, with what reading needs of each, as an index of `root`."""
    try:
        return listing.index(root, on_progress)
    finally:
        listing.cancel()


class OrderOfPages:
    """Looks at pages that are fetched one after the other. If names came again, it might never end.

    Objects and prefixes are looked at apart: some servers tell all prefixes with the first page.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._last: list[str | None] = [None, None]

    def check(self, objects: Sequence[ObjectInfo], prefixes: Sequence[str]) -> None:
        """Raise unless all names of the next page follow those of the pages before.

        Raises:
            CorruptDataError: one does not.
        """
        for i, names in enumerate(([info.name for info in objects], prefixes)):
            for name in names:
                last, self._last[i] = self._last[i], name
                if last is not None and name.encode() <= last.encode():
                    error = CorruptDataError(
                        f"{self._url}: the listing has the name {name!r} after {last!r}"
                    )
                    error.url = self._url
                    raise error
