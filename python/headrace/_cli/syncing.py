"""`headrace sync`: a folder becomes what another one is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from headrace import ObjectInfo
from headrace._cli.copying import Copy, refuse_inside, tree
from headrace._cli.listing import chunks
from headrace._cli.location import Connection, Location, not_found
from headrace._cli.progress import progress
from headrace._cli.removing import Group, Removal, remove_empty
from headrace._cli.report import Report, counted

__all__ = ["sync"]


def sync(
    source: Location,
    destination: Location,
    connection: Connection,
    report: Report,
    *,
    delete: bool,
    dry_run: bool,
    parallel: int,
) -> None:
    """Copy what lies below `source` and is not equal below `destination`.

    Args:
        delete: then delete what lies below `destination` only: if all was copied, and something
            lies below the source.
        dry_run: say what would be copied and deleted, and do nothing.
        parallel: how many objects are written at a time.
    """
    source, destination = source.as_folder, destination.as_folder
    refuse_inside(source, destination)
    refuse_inside(destination, source)
    copy = Copy(connection, report, progress(report), dry_run=dry_run)
    copy.run(tree(source, destination, destination.name, copy), parallel)
    if not delete:
        return
    if copy.failed_count:
        report.note(f"nothing was deleted, since {counted(copy.failed_count, 'object')} failed")
        return
    only_there = list(_only_there(source, destination))
    removal = Removal(report, recursive=True, force=True, dry_run=dry_run)
    removal.run([Group(destination, only_there)])
    if destination.is_file and only_there and not dry_run:
        remove_empty(f"/{destination.name}", keeps_root=True)


def _only_there(source: Location, destination: Location) -> Iterator[tuple[str, int]]:
    """Yield what lies below `destination` alone, as `Group` wants it.

    Marks of folders stay, and so do files behind symbolic links to folders.

    Raises:
        NotFoundError: nothing lies below the source.
        HeadraceError: one of the two cannot be listed as a whole.
    """
    here = (key for key, _ in _relative(source))
    key_here = next(here, None)
    if key_here is None:
        raise not_found(source, "nothing lies below it, so that nothing is deleted")
    real_root = os.path.realpath(f"/{destination.name}") if destination.is_file else ""
    for key, info in _relative(destination):  # both are in byte order
        while key_here is not None and key_here < key:
            key_here = next(here, None)
        if key == key_here or (info.name.endswith("/") and not info.size_bytes):
            continue
        if not destination.is_file:
            yield info.name, info.size_bytes
            continue
        below = os.path.dirname(os.fsdecode(key))
        if os.path.realpath(f"/{destination.name}{below}") == os.path.join(real_root, below).rstrip(
            "/"
        ):
            yield f"/{info.name}", info.size_bytes


def _relative(location: Location) -> Iterator[tuple[bytes, ObjectInfo]]:
    for chunk in chunks(location.store, location.name):
        for info in chunk:
            yield info.name[len(location.name) :].encode(), info
