"""Listings whose pages are fetched several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace import _engine
from headrace._base.errors import CorruptDataError
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._store.location import directory_of

if TYPE_CHECKING:
    from headrace._store.store import Store

__all__ = ["OrderOfPages", "index_objects", "list_chunks", "list_objects", "named"]


def named(store: Store, name: str) -> ObjectInfo | bool:
    """Return what has exactly this name, whatever characters are in it.

    A text with wildcards is a pattern only where nothing has it for a name: no command and no
    method may take other objects than those that somebody can see by the name that they gave.

    Returns:
        The object; or whether something lies below the name, or is a directory, or a link that
        leads nowhere.
    """
    is_folder = not name or name.endswith("/")
    directory = directory_of(store)
    if directory is not None:
        info = None if is_folder else store.stat(name, missing_ok=True)
        return info or os.path.lexists(f"{directory}/{name}")
    # Of what begins so the name itself is the first; mostly there is nothing, by one request.
    first = store.list_page(name, max_results=1).objects
    if is_folder or not first:
        return bool(first)
    if first[0].name == name:
        return first[0]
    return bool(store.list_page(f"{name}/", max_results=1).objects)


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
