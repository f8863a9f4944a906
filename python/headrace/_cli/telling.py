"""`headrace stat`, `headrace du` and `headrace index`: what is there, and how much of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from headrace import HeadraceError, InvalidArgumentError, ObjectIndex, index_members
from headrace._cli.large import with_facts
from headrace._cli.listing import facts_of
from headrace._cli.location import Connection, Location, first_wildcard, missing_bucket, not_found
from headrace._cli.location import url_of as url_in
from headrace._cli.progress import listed
from headrace._cli.reading import stat as stat_of
from headrace._cli.report import Report, binary_size, counted, shown
from headrace._cli.wildcards import as_name, expanded
from headrace._store.chosen import Chosen

__all__ = ["du", "index", "members_index", "stat"]


def stat(locations: Iterable[Location], report: Report, *, as_json: bool) -> None:
    """Print what the store knows of each object."""
    is_first = True
    for location in locations:
        try:
            for each in expanded([location], prefixes=False):
                report.check()
                if each.info is None:
                    info = stat_of(each, of_folders="ls and du")
                else:
                    info = with_facts(each.store, each.info)
                facts = facts_of(each.store, info)
                if as_json:
                    print(json.dumps(facts), flush=True)
                    continue
                if not is_first:
                    print()
                is_first = False
                print(shown(facts.pop("url")))
                del facts["type"]
                if facts["checksum"] is not None:
                    del facts["crc32c"]  # the same, if there is one
                    facts["checksum"] = " ".join(facts["checksum"].values())
                for name, value in facts.items():
                    if value not in (None, ""):
                        print(f"  {name + ':':18} {shown(str(value))}", flush=True)
        except BrokenPipeError:
            raise
        except (HeadraceError, OSError) as error:
            report.error(missing_bucket(error, location.store) or error)


def du(locations: Iterable[Location], report: Report, *, depth: int, as_json: bool) -> None:
    """Print how many objects, and how many bytes, lie at and below each location.

    Args:
        depth: of so many levels of prefixes below a location, too.
    """
    total_objects = total_bytes = told = 0
    for location in locations:
        try:
            for each in expanded([location]):
                report.check()
                objects, sizes = _usage(each, depth, report)
                for url in sorted(objects, key=lambda url: (url == each.url, url.encode())):
                    _print_usage(url, objects[url], sizes[url], as_json=as_json)
                total_objects += objects[each.url]
                total_bytes += sizes[each.url]
                told += 1
        except BrokenPipeError:
            raise
        except (HeadraceError, OSError) as error:
            report.error(missing_bucket(error, location.store) or error)
    if told > 1 and not as_json:
        _print_usage("TOTAL", total_objects, total_bytes, as_json=False)


def _print_usage(url: str, objects: int, size_bytes: int, *, as_json: bool) -> None:
    if as_json:
        facts = {"type": "usage", "url": url, "objects": objects, "size_bytes": size_bytes}
        print(json.dumps(facts), flush=True)
    else:
        print(f"{size_bytes:>16}  {objects:>10}  {shown(url)}", flush=True)


def _usage(location: Location, depth: int, report: Report) -> tuple[Counter[str], Counter[str]]:
    """Return objects and bytes by URL: of `location`, and of prefixes below it."""
    store = location.store
    objects: Counter[str] = Counter({location.url: 0})
    sizes: Counter[str] = Counter({location.url: 0})
    for name, size_bytes in _sizes(location, report):
        urls = [location.url]
        folders = name[len(location.below) :].split("/")[:-1] if depth else []
        at = location.below
        for folder in folders[:depth]:
            at += f"{folder}/"
            urls.append(url_in(store, at))
        for url in urls:
            objects[url] += 1
            sizes[url] += size_bytes
    if not objects[location.url] and location.name and not location.is_directory:
        raise not_found(location, "no object, and nothing below it")
    return objects, sizes


def _sizes(location: Location, report: Report) -> Iterator[tuple[str, int]]:
    if location.info is not None:
        yield location.info.name, location.info.size_bytes
        return
    if not location.is_folder:
        info = location.store.stat(location.name, missing_ok=True)
        if info is not None:
            yield info.name, info.size_bytes
            if location.is_file:
                return
    found = listed(location.store, location.below, report)
    for i in range(len(found)):
        yield found.name(i), found.size_bytes(i)


def index(
    location: Location,
    destination: Location,
    connection: Connection,
    report: Report,
    chosen: Chosen,
    *,
    as_json: bool,
) -> None:
    """List once, and save the index for jobs that read."""
    _require_name(destination)
    try:
        found = _index_of(location, connection, report, chosen)
    except HeadraceError as error:
        raise missing_bucket(error, location.store) or error from None
    if not len(found):
        raise not_found(location, "no sample below it" + chosen.hint)
    _save(found, destination, connection, report, "object", as_json=as_json)


def members_index(
    url: str,
    destination: Location,
    connection: Connection,
    report: Report,
    *,
    hidden: bool,
    skip_errors: bool,
    as_json: bool,
) -> None:
    """Read the headers of shards once, and save an index of what is in them."""
    _require_name(destination)
    found = index_members(
        url,
        hidden=hidden,
        on_error=report.error if skip_errors else "raise",
        **connection.options_of(url),
    )
    if not len(found):
        raise InvalidArgumentError(f"{url}: no file is in the shards")
    _save(found, destination, connection, report, "member", as_json=as_json)


def _require_name(destination: Location) -> None:
    if destination.is_folder or destination.is_directory:
        raise InvalidArgumentError(f"{destination.url}: a saved index needs a name, not a folder")


def _save(
    found: ObjectIndex,
    destination: Location,
    connection: Connection,
    report: Report,
    entry: str,
    *,
    as_json: bool,
) -> None:
    info = found.save(destination.url, **connection.options_of(destination.url))
    if as_json:
        facts = {
            "type": "index",
            "url": destination.url,
            f"{entry}s": len(found),
            "total_size_bytes": found.total_size_bytes,
            "size_bytes": info.size_bytes,
        }
        print(json.dumps(facts))
        return
    report.note(
        f"{shown(destination.url)}: {counted(len(found), entry)}, "
        f"{binary_size(found.total_size_bytes)} in all; {binary_size(info.size_bytes)} of index"
    )


def _index_of(
    location: Location, connection: Connection, report: Report, chosen: Chosen
) -> ObjectIndex:
    if as_name(location) is None:
        pattern = location.name
        fixed = pattern[: first_wildcard(pattern)]
        return listed(location.store, fixed, report, chosen, pattern=pattern)
    # Its root is what was asked for, so that a dataset of the same URL takes it.
    url = url_in(location.store, location.below) if location.name else location.store.url
    return listed(connection.store(url), "", report, chosen)
