"""`headrace sync`: a folder becomes what another one is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from headrace import HeadraceError, ObjectInfo
from headrace._cli.copying import Copy, refuse_inside, tree
from headrace._cli.listing import chunks
from headrace._cli.location import Connection, Location, not_found, url_of
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
        delete: then delete what lies below `destination` only: if all was copied, and an object
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
    removal = Removal(report, recursive=True, force=True, dry_run=dry_run)
    folders: set[str] = set()
    only_there = list(_only_there(source, destination, removal, folders))
    removal.run([Group(destination, only_there)])
    if destination.is_file and only_there and not dry_run:
        remove_empty(f"/{destination.name}", keeps_root=True, keeps=folders)


def _only_there(
    source: Location, destination: Location, removal: Removal, folders: set[str]
) -> Iterator[tuple[str, int]]:
    """Yield what lies below `destination` alone, as `Group` wants it.

    Marks of folders stay, and so do files behind symbolic links to folders. What has a counterpart
    in a source directory that no listing shows, such as a link whose target is missing, stays, too.

    Args:
        removal: is told of each such counterpart, as of a failure.
        folders: gets the directories at `destination` that the source has, too.

    Raises:
        NotFoundError: no object lies below the source; marks of folders are none. Nothing may be
            deleted, whatever was yielded before.
        HeadraceError: one of the two cannot be listed as a whole.
    """
    has_object = False

    def names_here() -> Iterator[bytes]:
        nonlocal has_object
        for key, info in _relative(source):
            if _is_mark(info):
                folders.add(os.path.join(f"/{destination.name}", os.fsdecode(key).rstrip("/")))
            else:
                has_object = True
            yield key

    here = names_here()
    key_here = next(here, None)
    real_root = os.path.realpath(f"/{destination.name}") if destination.is_file else ""
    told: set[str] = set()
    for key, info in _relative(destination):  # both are in byte order
        while key_here is not None and key_here < key:
            key_here = next(here, None)
        if key == key_here or _is_mark(info):
            continue
        if source.is_file:
            hidden = _not_listed(f"/{source.name}", os.fsdecode(key))
            if hidden is not None:
                if hidden not in told:
                    told.add(hidden)
                    removal.failed(_hidden_error(hidden, url_of(destination.store, info.name)))
                continue
        if not destination.is_file:
            yield info.name, info.size_bytes
            continue
        below = os.path.dirname(os.fsdecode(key))
        if os.path.realpath(f"/{destination.name}{below}") == os.path.join(real_root, below).rstrip(
            "/"
        ):
            yield f"/{info.name}", info.size_bytes
    for _ in here:
        pass
    if not has_object:
        raise not_found(source, "nothing lies below it, so that nothing is deleted")
    if source.is_file and destination.is_file:
        for directory, _, _ in os.walk(f"/{destination.name}"):
            at_source = f"/{source.name}{os.path.relpath(directory, f'/{destination.name}')}"
            if os.path.isdir(at_source):
                folders.add(directory)


def _not_listed(root: str, name: str) -> str | None:
    """Return what exists at or above the file `root` + `name`, and is in no listing of `root`.

    That are links whose target is missing, pipes, sockets and devices, and whatever may not be
    looked at. None: there is nothing, so that a listing tells the truth.
    """
    path = root
    parts = name.split("/")
    for i, part in enumerate(parts):
        path = os.path.join(path, part)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            try:
                os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError:
                pass
            return path
        if not stat.S_ISDIR(mode):
            # A file above it was listed under its own name.
            is_above = i + 1 < len(parts)
            return None if is_above and stat.S_ISREG(mode) else path
    return None  # a directory, and what lies in it was listed


def _hidden_error(path: str, counterpart: str) -> HeadraceError:
    error = HeadraceError(
        f"file://{path}: exists, but is no file that can be read, and was not copied; "
        f"{counterpart} was not deleted"
    )
    error.url = f"file://{path}"
    return error


def _is_mark(info: ObjectInfo) -> bool:
    """Whether it only says that there is a folder."""
    return info.name.endswith("/") and not info.size_bytes


def _relative(location: Location) -> Iterator[tuple[bytes, ObjectInfo]]:
    for chunk in chunks(location.store, location.name):
        for info in chunk:
            yield info.name[len(location.name) :].encode(), info
