"""Many objects at a time: coroutines of fsspec and ours, which others wait for."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from glob import has_magic
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import other_paths, stringify_path

from headrace._base.errors import InvalidArgumentError
from headrace._store.listing import named
from headrace._store.location import before_wildcards
from headrace._store.moved_files import as_it_is, remove_moved
from headrace._store.store import Store
from headrace.fsspec._arguments import count_of, depth_of, make_count
from headrace.fsspec._reads import raise_first
from headrace.fsspec._threads import (
    Changes,
    LoopCallback,
    change_in_thread,
    in_thread,
    wait_for,
)
from headrace.fsspec._writing import Copied, Writing

__all__ = ["Many"]

_logger = logging.getLogger("headrace")


def _twin(name: str, *, changes: bool = False) -> Callable[..., Any]:
    """Return the coroutine function that runs the method `name` in a thread."""
    runs = change_in_thread if changes else in_thread

    async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await runs(getattr(self, name), *args, **kwargs)

    run.__name__ = run.__qualname__ = f"_{name}"
    return run


class Many(Writing):
    """Copying, moving and deleting of patterns, lists and folders."""

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Move objects; a single one is renamed, so that it is never missing.

        Others are copied, and when that was done without an error, what was copied is deleted, and
        nothing else: of files not what lies behind a symbolic link to a folder.

        Raises:
            InvalidArgumentError: two sources have one target, or a target is another's source.
            PreconditionFailedError: a source was written anew meanwhile, and stays.
            FileNotFoundError: there is nothing, or no such bucket to move to.
            IsADirectoryError: it is a folder, and not `recursive`.
        """
        if isinstance(path1, str) and isinstance(path2, str):
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if source == target:
                return
            is_name = not recursive and not path2.endswith("/")
            if is_name and self.isfile(source) and not self.isdir(target):
                (store, name), (other, to) = self._object_at(source), self._object_at(target)
                if store is other and not self._is_link(source):
                    store.rename(name, to)
                    return
        done = Copied([], [])
        kwargs |= {"on_error": "raise", "done": done}
        self.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
        if not done.objects and not (done.folders and recursive):
            raise IsADirectoryError(
                errno.EISDIR, "it is a folder, which takes recursive=True", str(path1)
            )
        tops = self._tops(path1)
        copied: dict[Any, list[tuple[str, str]]] = {}
        for source, target, at in done.objects:
            if source == target:
                continue
            if self._is_behind_link(tops, source):
                _logger.warning("%s lies behind a symbolic link: it was copied, and stays", source)
                continue
            # The names of one file go one by one.
            key = at if self.scheme == "file" else source
            copied.setdefault(key, []).append((source, at))
        wait_for(self._each, self._delete_moved, list(copied.values()), None)
        for source, target in sorted(done.folders, reverse=True):
            if source != target and not self._is_behind_link(tops, source):
                self._remove_folder(source)

    def _delete_moved(self, names: list[tuple[str, str]]) -> None:
        if len(names) == 1:
            [(path, generation)] = names
            remove_moved(*self._object_at(path), generation)
            return
        found = []
        for path, generation in names:
            store, name = self._object_at(path)
            found.append((store, name, generation, store.stat(name, missing_ok=True)))
        for store, name, generation, info in found:
            if info is not None and info.generation == generation:
                generation = as_it_is(store, info).generation
            remove_moved(store, name, generation)

    def _tops(self, path: Any) -> list[str]:
        """Return the folders in which all lies that is meant by `path`, or the names themselves."""
        if isinstance(path, list | tuple | set):
            return [self._strip_protocol(each) for each in path]
        text = self._strip_protocol(path)
        return [before_wildcards(text).rpartition("/")[0] + "/" if self._is_pattern(path) else text]

    def _is_link(self, path: str) -> bool:  # noqa: ARG002 - of files
        return False

    def _is_behind_link(self, tops: list[str], path: str) -> bool:  # noqa: ARG002 - of files
        """Return whether a link at or below all of `tops` is on the way to an object."""
        return False

    def _remove_folder(self, path: str) -> None:
        """Remove what says that there is an empty folder."""
        store, name = self._at(path)
        if name:
            store.delete(f"{name}/", missing_ok=True)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy objects into local files, several at a time, as fsspec's ``get`` does.

        Raises:
            FileNotFoundError: there is no such object.
        """
        kwargs |= {"recursive": recursive, "maxdepth": maxdepth}
        kwargs["callback"] = LoopCallback(callback)
        return wait_for(self._get, rpath, lpath, **kwargs)

    def put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy local files to objects, several at a time, as fsspec's ``put`` does.

        Raises:
            FileNotFoundError: there is no such file.
        """
        kwargs |= {"recursive": recursive, "maxdepth": maxdepth}
        kwargs["callback"] = LoopCallback(callback)
        return wait_for(self._put, lpath, rpath, **kwargs)

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy objects to objects, several at a time, as fsspec's ``copy`` does.

        Args:
            on_error: ``"raise"``, or ``"ignore"``: objects that are missing are passed over, and
                nobody is told.

        Raises:
            FileNotFoundError: there is no such object, or no such bucket to copy to.
        """
        # Not fsspec's "ignore", of a recursive copy: it would pass over a bucket that is missing.
        kwargs |= {"recursive": recursive, "maxdepth": maxdepth, "on_error": on_error or "raise"}
        return wait_for(self._copy, path1, path2, **kwargs)

    def pipe(self, path: Any, value: Any = None, **kwargs: Any) -> Any:
        """Write bytes as an object, or each value of a dict as the object of its key.

        Raises:
            PermissionError: the credentials may not write.
        """
        return wait_for(self._pipe, path, value, **kwargs)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete objects, several at a time, and with `recursive` all that lies below.

        Args:
            path: a name; a pattern, if nothing has it for a name; or a list of names.
            recursive: and all that lies below.
            maxdepth: so deep, at most.

        Raises:
            FileNotFoundError: there is nothing.
            IsADirectoryError: it is a folder, and not `recursive`.
            OSError: it is a symbolic link to a folder: what that has in it is not deleted.
        """
        wait_for(self._rm, path, recursive=recursive, maxdepth=maxdepth)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        maxdepth = depth_of(maxdepth)
        is_pattern = await in_thread(self._is_pattern, path)
        paths = await self._expand_path(path)
        if not recursive:
            left = await self._rm_files(paths, batch_size, takes_folders=is_pattern)
            for each in left:
                if await self._exists(each):
                    raise IsADirectoryError(
                        errno.EISDIR, "it is a folder, which takes recursive=True", each
                    )
            return
        if maxdepth is not None:
            for each in paths:
                if not await self._exists(each):
                    raise FileNotFoundError(errno.ENOENT, "no such object or folder", each)
                if self._is_link(each) and not is_pattern and await self._isdir(each):
                    raise OSError(errno.ELOOP, "what a symbolic link leads to is not deleted", each)
            tops = await in_thread(self._tops, path)
            below = await self._expand_path(path, recursive=True, maxdepth=maxdepth)
            own = [each for each in below if not self._is_behind_link(tops, each)]
            await self._rm_files(own, batch_size, takes_folders=True)
            return
        # What lies below another one of them goes with that one.
        done = await asyncio.gather(
            *[self._rm_below(each, batch_size) for each in _outermost(paths)],
            return_exceptions=True,
        )
        raise_first(done)

    async def _rm_files(
        self, paths: list[str], batch_size: int | None, *, takes_folders: bool
    ) -> list[str]:
        """Delete objects; return what was none, if `takes_folders`."""
        left: list[str] = []

        def delete(path: str) -> None:
            try:
                self.rm_file(path)
            except (IsADirectoryError, FileNotFoundError):
                if not takes_folders:
                    raise
                left.append(path)

        await self._each(delete, paths, batch_size)
        return left

    async def _rm_below(self, path: str, batch_size: int | None) -> None:
        store, name = self._at(path)
        names = await in_thread(_names_below, store, name)
        if not names:
            raise FileNotFoundError(errno.ENOENT, "no such object or folder", store.url_of(name))

        def delete(each: str) -> None:
            store.delete(each, missing_ok=True)

        await self._each(delete, names, batch_size)

    async def _each(
        self, function: Callable[[Any], None], items: Sequence[Any], batch_size: int | None
    ) -> None:
        """Call a function for each item, so many at a time; raise the first error after all."""
        at_a_time = asyncio.Semaphore(count_of(batch_size) or self.batch_size or 64)

        async def call(item: Any) -> None:
            async with at_a_time:
                await change_in_thread(function, item)

        async with Changes():
            done = await asyncio.gather(*map(call, items), return_exceptions=True)
        raise_first(done)

    def expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """Return the paths that are meant: what has the name, or else what matches the pattern.

        Args:
            path: a name or a pattern; or a list, of which each is a name.
            recursive: and all that lies below them.
            maxdepth: so deep, at most.
            assume_literal: it is no pattern.

        Raises:
            FileNotFoundError: there is nothing.
            ValueError: `maxdepth` is below 1.
        """
        is_name = assume_literal or not self._is_pattern(path)
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        how = {"recursive": recursive, "maxdepth": depth_of(maxdepth), "assume_literal": is_name}
        kwargs |= how
        expanded: list[str] = super().expand_path(paths, **kwargs)
        return expanded

    def _is_pattern(self, path: Any) -> bool:
        """Return whether `path` is to be matched; see `named`."""
        if not isinstance(path, str | os.PathLike):
            return False
        text = self._strip_protocol(path)
        return has_magic(text) and not named(*self._at(text))

    def _pairs(
        self, source: Any, target: Any, recursive: bool, maxdepth: int | None, from_: Any, to: Any
    ) -> tuple[list[str], list[str]]:
        """Return what is to be copied, and to where, by the rules of fsspec.

        Args:
            from_: the file system of `source`.
            to: that of `target`.

        Raises:
            InvalidArgumentError: two sources have one target, or a target is another's source.
        """
        sources, targets = self._pairs_of(source, target, recursive, maxdepth, from_, to)
        _require_no_loss(sources, targets, from_, to)
        return sources, targets

    def _pairs_of(
        self, source: Any, target: Any, recursive: bool, maxdepth: int | None, from_: Any, to: Any
    ) -> tuple[list[str], list[str]]:
        if isinstance(source, list) and isinstance(target, list):
            return source, target
        source, target = stringify_path(source), stringify_path(target)
        is_one = isinstance(source, str)
        is_pattern = is_one and _is_pattern(from_, source)
        maxdepth = depth_of(maxdepth)
        how = {"recursive": recursive, "maxdepth": maxdepth}
        # Of a list, and of a name, nothing is a pattern.
        names = source if is_pattern else [source] if is_one else source
        sources = from_.expand_path(names, **how, assume_literal=not is_pattern)
        if is_one and (not recursive or maxdepth is not None):
            sources = [each for each in sources if not from_.isdir(each)]
        into = isinstance(target, str) and (target.endswith("/") or to.isdir(target))
        keeps_name = is_pattern and len(sources) == 1
        if is_one and not is_pattern:
            keeps_name = into and not source.endswith("/")
        target = to._strip_protocol(target)
        if not sources:
            return [], []
        return sources, other_paths(sources, target, exists=keeps_name, flatten=not is_one)

    async def _get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        pairs = await in_thread(
            self._pairs, rpath, lpath, recursive, maxdepth, self, LocalFileSystem()
        )
        make_count(kwargs)
        async with Changes():
            return await super()._get(*pairs, callback=callback, **kwargs)

    async def _put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        pairs = await in_thread(
            self._pairs, lpath, rpath, recursive, maxdepth, LocalFileSystem(), self
        )
        make_count(kwargs)
        async with Changes():
            return await super()._put(*pairs, callback=callback, **kwargs)

    async def _copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        on_error: str | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        pairs = await in_thread(self._pairs, path1, path2, recursive, maxdepth, self, self)
        make_count(kwargs)
        async with Changes():
            return await super()._copy(*pairs, recursive=recursive, on_error=on_error, **kwargs)

    async def _pipe(self, path: Any, value: Any = None, **kwargs: Any) -> Any:
        make_count(kwargs)
        async with Changes():
            return await super()._pipe(path, value, **kwargs)

    _cat = _twin("cat")
    _cat_file = _twin("cat_file")
    _cat_ranges = _twin("cat_ranges")
    _cp_file = _twin("cp_file", changes=True)
    _du = _twin("du")
    _exists = _twin("exists")
    _expand_path = _twin("expand_path")
    _find = _twin("find")
    _get_file = _twin("get_file", changes=True)
    _info = _twin("info")
    _isdir = _twin("isdir")
    _isfile = _twin("isfile")
    _ls = _twin("ls")
    _makedirs = _twin("makedirs", changes=True)
    _mkdir = _twin("mkdir", changes=True)
    _pipe_file = _twin("pipe_file", changes=True)
    _put_file = _twin("put_file", changes=True)
    _rm_file = _twin("rm_file", changes=True)
    _size = _twin("size")
    _sizes = _twin("sizes")


def _is_pattern(fs: Any, path: str) -> bool:
    if isinstance(fs, Many):
        return fs._is_pattern(path)
    return has_magic(path) and not os.path.lexists(fs._strip_protocol(path))


def _require_no_loss(sources: list[str], targets: list[str], from_: Any, to: Any) -> None:
    """Raise if a copy of files would replace what was copied, or what is still to be copied."""

    def is_folder(path: str) -> bool:
        return bool(from_.isdir(path)) and not from_.isfile(path)

    here = [from_._strip_protocol(each) for each in sources]
    there = [to._strip_protocol(each) for each in targets]
    are_one = from_ is to or (_is_local(from_) and _is_local(to))
    all_sources = set(here) if are_one else set()
    source_of: dict[str, str] = {}
    for source, target in zip(here, there, strict=False):
        other = source_of.setdefault(target, source)
        if source == target:
            continue
        if target not in all_sources and other == source:
            continue
        # Folders are made, or there; they replace nothing.
        if is_folder(source) or (other != source and is_folder(other)):
            continue
        if other != source:
            raise InvalidArgumentError(
                f"{target}: both {other} and {source} would be copied there: nothing was copied"
            )
        if not is_folder(target):
            raise InvalidArgumentError(
                f"{target}: would be replaced by {source}, and is to be copied itself: nothing was "
                "copied"
            )


def _is_local(fs: Any) -> bool:
    return isinstance(fs, LocalFileSystem) or getattr(fs, "scheme", "") == "file"


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that lie below no other one of them."""
    found: list[str] = []
    # In this order, what lies below a path comes right behind it.
    for path in sorted(set(paths), key=lambda each: f"{each.rstrip('/')}/"):
        if not found or not f"{path}/".startswith(f"{found[-1].rstrip('/')}/"):
            found.append(path)
    return found


def _names_below(store: Store, name: str) -> list[str]:
    """Return the object `name`, if there is one, and all that lies below, with placeholders."""
    names = [info.name for info in store.list(f"{name}/" if name else "")]
    if name and store.exists(name):
        names.append(name)
    return names
