"""`headrace rm`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from headrace import HeadraceError, InvalidArgumentError, NotFoundError, ObjectIndex
from headrace._cli.location import Location, missing_bucket, not_found, url_of
from headrace._cli.report import Report, Stopped, binary_size, counted, shown
from headrace._cli.wildcards import expanded
from headrace._cli.workers import Workers

__all__ = ["Group", "Removal", "remove_empty", "rm"]

_AT_A_TIME = 64


def rm(
    locations: Sequence[Location],
    report: Report,
    *,
    recursive: bool,
    force: bool,
    dry_run: bool,
) -> None:
    """Delete objects and files; go on when one fails.

    Args:
        recursive: delete what lies below the locations, too.
        force: do not ask, and what is not there is fine.
        dry_run: say what would be deleted, and delete nothing.
    """
    removal = Removal(report, recursive=recursive, force=force, dry_run=dry_run)
    groups = list(removal.found(locations))
    asks = recursive or any(location.is_pattern for location in locations)
    if asks and groups and not force and not dry_run and sys.stdin.isatty():
        count = sum(len(group.names) for group in groups)
        total_bytes = sum(group.size_bytes for group in groups)
        where = ", ".join(shown(location.url) for location in locations)
        sys.stderr.write(
            f"headrace: delete {counted(count, 'object')}, {binary_size(total_bytes)}: "
            f"{where}? [y/N] "
        )
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            report.note("nothing was deleted")
            return
    removal.run(groups)


class Group(NamedTuple):
    """What is to be deleted at one place; of files, their paths."""

    location: Location
    names: ObjectIndex | list[tuple[str, int]]

    @property
    def size_bytes(self) -> int:
        if isinstance(self.names, ObjectIndex):
            return self.names.total_size_bytes
        return sum(size_bytes for _, size_bytes in self.names)

    def each(self) -> Iterator[tuple[str, int]]:
        """Yield names and sizes."""
        if isinstance(self.names, ObjectIndex):
            for i in range(len(self.names)):
                yield self.names.name(i), self.names.size_bytes(i)
        else:
            yield from self.names


class Removal:
    """One `rm` in progress."""

    def __init__(self, report: Report, *, recursive: bool, force: bool, dry_run: bool) -> None:
        self._report = report
        self._recursive, self._force, self._dry_run = recursive, force, dry_run
        self._lock = threading.Lock()
        self._deleted = self._deleted_bytes = self._failed = 0
        self._directories: list[str] = []
        self._broken: BrokenPipeError | None = None  # nobody reads what we print

    def found(self, locations: Iterable[Location]) -> Iterator[Group]:
        """Yield what is to be deleted, and tell of what is not there."""
        for location in locations:
            try:
                for each in expanded([location], prefixes=self._recursive):
                    self._report.check()
                    yield from self._files(each) if each.is_file else self._objects(each)
            except (HeadraceError, OSError) as error:
                missing = missing_bucket(error, location.store)
                if missing is not None or not (self._force and isinstance(error, NotFoundError)):
                    self.failed(missing or error)

    def _objects(self, location: Location) -> Iterator[Group]:
        store, name = location.store, location.name
        if not self._recursive:
            if location.is_folder:
                raise not_found(location, "is not an object; what lies below it is for rm -r")
            info = location.info or store.stat(name, missing_ok=True)
            if info is None:
                below = store.list_page(location.below, delimiter="/", max_results=1)
                if below.objects or below.prefixes:
                    raise not_found(location, "is not an object; what lies below it is for rm -r")
                raise not_found(location, "no such object")
            yield Group(location, [(name, info.size_bytes)])
            return
        is_empty = True
        if not location.is_folder:
            info = location.info or store.stat(name, missing_ok=True)
            if info is not None:
                is_empty = False
                yield Group(location, [(name, info.size_bytes)])
        # About 25 bytes a name: it may be millions.
        index = store.index(location.below)
        if len(index):
            yield Group(location, index)
        elif is_empty and name:
            raise not_found(location, "no object, and nothing below it")

    def _files(self, location: Location) -> Iterator[Group]:
        """Yield files; directories that will be empty then are remembered."""
        path = f"/{location.name.rstrip('/')}"
        if not os.path.lexists(path):
            raise not_found(location, "no such file")
        if not os.path.isdir(path) or os.path.islink(path.rstrip("/")):
            yield Group(location, [(path, os.lstat(path).st_size)])
            return
        if not self._recursive:
            raise not_found(location, "is a directory; what lies below it is for rm -r")
        if _holds_the_current_directory(path):
            raise InvalidArgumentError(
                f"{location.url}: this is the current directory, or one above it, and is not "
                "deleted"
            )

        def failed(error: OSError) -> None:
            raise error

        # What a symbolic link leads to stays: the link goes.
        for directory, directories, files in os.walk(path, topdown=False, onerror=failed):
            self._directories.append(directory)
            links = [d for d in directories if os.path.islink(os.path.join(directory, d))]
            paths = [os.path.join(directory, name) for name in [*files, *links]]
            yield Group(location, [(each, os.lstat(each).st_size) for each in paths])

    def run(self, groups: Iterable[Group]) -> None:
        """Delete, and tell how much that was, also when it ends early."""
        try:
            if self._dry_run:
                for group in groups:
                    for name, size_bytes in group.each():
                        self._report.check()
                        self._removed(group.location, name, size_bytes)
                        self._raise_if_broken()
                return
            with Workers(_AT_A_TIME, 0, self._report) as workers:
                for group in groups:
                    for name, size_bytes in group.each():
                        self._raise_if_broken()
                        workers.submit(partial(self._remove, group.location, name, size_bytes))
            self._raise_if_broken()
            for directory in self._directories:
                self._do(partial(os.rmdir, directory))
        finally:
            self._summarize()

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _remove(self, location: Location, name: str, size_bytes: int) -> None:
        remove = os.unlink if location.is_file else location.store.delete
        if self._do(partial(remove, name)):
            self._removed(location, name, size_bytes)

    def _removed(self, location: Location, name: str, size_bytes: int) -> None:
        """Count it, and tell of it if that was asked for."""
        url = f"file://{name}" if location.is_file else url_of(location.store, name)
        with self._lock:
            self._deleted += 1
            self._deleted_bytes += size_bytes
            if self._dry_run or self._report.as_json:
                done = "would_delete" if self._dry_run else "deleted"
                facts = {"type": done, "url": url, "size_bytes": size_bytes}
                line = json.dumps(facts) if self._report.as_json else f"would delete {shown(url)}"
                try:
                    sys.stdout.write(f"{line}\n")
                except BrokenPipeError as error:
                    self._broken = error

    def _do(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except (NotFoundError, FileNotFoundError):
            pass  # somebody else was quicker
        except Stopped:
            raise
        except (HeadraceError, OSError) as error:
            self.failed(error)
            return False
        return True

    def failed(self, error: Exception) -> None:
        """Tell of what was not deleted."""
        self._report.check()
        with self._lock:
            self._failed += 1
        self._report.error(error)

    def _summarize(self) -> None:
        done = "would_delete" if self._dry_run else "deleted"
        if self._report.as_json:
            facts = {"type": "summary", done: self._deleted, f"{done}_bytes": self._deleted_bytes}
            print(json.dumps(facts | {"failed": self._failed}), flush=True)
            return
        self._report.note(
            f"{done.replace('_', ' ')} {counted(self._deleted, 'object')}, "
            f"{binary_size(self._deleted_bytes)}"
            + (f"; {self._failed} failed" if self._failed else "")
        )


def remove_empty(directory: str, *, keeps_root: bool, keeps: Collection[str] = ()) -> None:
    """Remove the directories at and below `directory` in which nothing is, but links not.

    Args:
        keeps_root: not `directory` itself.
        keeps: nor these, which begin with `directory`.
    """
    for each, _, _ in os.walk(directory, topdown=False):
        if each not in keeps and not (keeps_root and os.path.samefile(each, directory)):
            with contextlib.suppress(OSError):  # something is in it
                os.rmdir(each)


def _holds_the_current_directory(path: str) -> bool:
    """Whether `path` is the directory that we are in, or lies above it: the root always does."""
    path = os.path.realpath(path)
    try:
        here = os.getcwd()
    except FileNotFoundError:  # somebody has deleted it
        return path == "/"
    return os.path.commonpath([path, here]) == path
