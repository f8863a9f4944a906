"""`headrace ls`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from headrace import HeadraceError, ListPage, ObjectInfo, Store
from headrace._cli.location import Location, missing_bucket, not_found, url_of
from headrace._cli.report import Report, binary_size, counted, shown
from headrace._store.listing import list_chunks
from headrace._store.location import directory_of

__all__ = ["chunks", "facts_of", "ls", "pages", "time_of"]


def chunks(store: Store, prefix: str, start_offset: str = "") -> Iterator[list[ObjectInfo]]:
    """Yield the objects whose names begin with `prefix`, in order, as they arrive.

    Several pages are fetched at a time, ahead of the caller.

    Args:
        start_offset: names from this one on.
    """
    return list_chunks(
        store._handle().start_listing(
            prefix=prefix,
            start_offset=start_offset,
            end_offset="",
            only_for_reading=False,
            eager=False,
            max_pages_in_flight=0,
        )
    )


def pages(store: Store, prefix: str, *, recursive: bool) -> Iterator[ListPage]:
    """Yield a listing as it arrives: one level of it page by page, all of it in parallel."""
    if recursive:
        for chunk in chunks(store, prefix):
            yield ListPage(chunk, [], "")
        return
    token = ""
    while True:
        page = store.list_page(prefix, delimiter="/", page_token=token)
        yield page
        token = page.next_page_token
        if not token:
            return


def _found(location: Location, *, recursive: bool) -> Iterator[ListPage]:
    """Yield what `location` names: an object, what lies below it, or else what begins so.

    Raises:
        NotFoundError: nothing.
    """
    store, name = location.store, location.name
    is_empty = True
    beginning: ListPage | None = None
    if not location.is_folder:
        beginning = store.list_page(name, delimiter=None if recursive else "/")
        # The name itself comes first of all names that begin with it.
        if beginning.objects and beginning.objects[0].name == name:
            is_empty = False
            yield ListPage(beginning.objects[:1], [], "")
    for page in pages(store, location.below, recursive=recursive):
        is_empty = is_empty and not page.objects and not page.prefixes
        yield page
    if not is_empty or not name or location.is_directory:
        return
    if beginning is None or not (beginning.objects or beginning.prefixes):
        raise not_found(location, "no object, and nothing below it")
    yield from pages(store, name, recursive=recursive)


def _matched(location: Location, *, recursive: bool) -> Iterator[ListPage]:
    """Yield what a pattern matches; with `recursive` also all below the prefixes among that."""
    from headrace._cli.wildcards import expanded

    for found in expanded([location]):
        if found.info is not None:
            yield ListPage([found.info], [], "")
        elif found.name == location.name:  # it is no pattern
            yield from _found(found, recursive=recursive)
        elif recursive:
            yield from pages(found.store, found.name, recursive=True)
        else:
            yield ListPage([], [found.name], "")


def ls(
    locations: Iterable[Location], report: Report, *, recursive: bool, long: bool, as_json: bool
) -> None:
    """Print what `locations` name, as the answers come."""
    object_count = prefix_count = total_bytes = 0
    for location in locations:
        store = location.store
        find = _matched if location.is_pattern else _found
        try:
            for page in find(location, recursive=recursive):
                report.check()
                entries: list[ObjectInfo | str] = [*page.objects, *page.prefixes]
                if page.prefixes:
                    entries.sort(key=lambda e: (e if isinstance(e, str) else e.name).encode())
                lines = [_line(store, entry, long=long, as_json=as_json) for entry in entries]
                if lines:
                    sys.stdout.write("\n".join(lines) + "\n")
                    sys.stdout.flush()
                object_count += len(page.objects)
                prefix_count += len(page.prefixes)
                total_bytes += sum(info.size_bytes for info in page.objects)
        except BrokenPipeError:
            raise
        except (HeadraceError, OSError) as error:
            report.error(missing_bucket(error, store) or error)
    if long and not as_json:
        prefixes = f", {counted(prefix_count, 'prefix', 'prefixes')}" if prefix_count else ""
        print(
            f"TOTAL: {counted(object_count, 'object')}{prefixes}, "
            f"{total_bytes} bytes ({binary_size(total_bytes)})"
        )


def facts_of(store: Store, info: ObjectInfo) -> dict[str, Any]:
    """Return what is known of an object, for JSON."""
    checksum = info.checksum
    return {
        "type": "object",
        "url": store.url_of(info.name),
        "name": _name(store, info.name),
        "size_bytes": info.size_bytes,
        "updated": time_of(info),
        "generation": info.generation,
        "crc32c": info.crc32c,
        "checksum": None if checksum is None else {"kind": checksum[0], "hex": checksum[1].hex()},
        "content_type": info.content_type,
        "content_encoding": info.content_encoding,
        "storage_class": info.storage_class,
    }


def _name(store: Store, name: str) -> str:
    # Of a file, the path.
    directory = directory_of(store)
    return name if directory is None else os.path.join(directory, name)


def time_of(info: ObjectInfo) -> str | None:
    """Return when it was written, in UTC: ``2026-11-22T01:02:03Z``; None if that is not known."""
    if info.updated is None:
        return None
    return info.updated.isoformat(timespec="seconds").replace("+00:00", "Z")


def _line(store: Store, entry: ObjectInfo | str, *, long: bool, as_json: bool) -> str:
    if as_json:
        if not isinstance(entry, str):
            return json.dumps(facts_of(store, entry))
        url = url_of(store, entry)
        return json.dumps({"type": "prefix", "url": url, "name": _name(store, entry)})
    url = shown(url_of(store, entry if isinstance(entry, str) else entry.name))
    if not long:
        return url
    if isinstance(entry, str):
        return f"{'':>14}  {'':20}  {url}"
    return f"{entry.size_bytes:>14}  {time_of(entry) or '-':20}  {url}"
