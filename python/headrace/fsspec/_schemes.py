"""A file system for each scheme."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import Any

from headrace._store.moved_files import link_in
from headrace._store.store import Store
from headrace.fsspec._filesystem import StoreFileSystem
from headrace.fsspec._threads import change_in_thread

__all__ = ["AisFileSystem", "FolderFileSystem", "GcsFileSystem", "S3FileSystem"]


# A directory, whatever its path.
_Identity = tuple[int, int]


def _identity(path: str) -> _Identity:
    """Return which directory `path` leads to; ``(0, 0)`` if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _above(path: str) -> frozenset[_Identity]:
    """Return the directories above `path`, by its own way: one that is also at its end has no end.

    Listings do not enter such a directory, which only a symbolic link leads back to.
    """
    found = set()
    while (parent := os.path.dirname(path)) != path:
        path = parent
        found.add(_identity(path))
    return frozenset(found)


def _directories_in(folder: str, prefix: str) -> list[str]:
    """Return the paths of the directories in one, also by symbolic links, that begin so."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for each in entries:
            if each.name.startswith(prefix):
                with contextlib.suppress(OSError):  # a link that leads nowhere
                    if each.is_dir():
                        found.append(os.path.join(folder, each.name))
    return found


class GcsFileSystem(StoreFileSystem):
    """Google Cloud Storage: ``headrace+gs://bucket/name``.

    Takes what `StoreFileSystem` takes.

    Raises:
        InvalidArgumentError: an option cannot work.

    Examples:
        >>> fs = headrace.fsspec.GcsFileSystem()
        >>> fs.ls("bucket/train", detail=False)
        ['bucket/train/cat', 'bucket/train/dog']
    """

    protocol: str | tuple[str, ...] = "headrace+gs"
    scheme = "gs"


class S3FileSystem(StoreFileSystem):
    """S3, or what `endpoint=` or AWS's configuration names: ``headrace+s3://bucket/name``.

    Takes what `StoreFileSystem` takes.

    Raises:
        InvalidArgumentError: an option cannot work.

    Examples:
        >>> there = headrace.S3Options(region="eu-west-1")
        >>> fs = headrace.fsspec.S3FileSystem(provider=there, credentials="anonymous")
    """

    protocol: str | tuple[str, ...] = "headrace+s3"
    scheme = "s3"


class AisFileSystem(StoreFileSystem):
    """The AIStore that `endpoint=` or AIS_ENDPOINT names: ``headrace+ais://bucket/name``.

    Takes what `StoreFileSystem` takes.

    Raises:
        InvalidArgumentError: an option cannot work.

    Examples:
        >>> fs = headrace.fsspec.AisFileSystem(endpoint="http://localhost:51080")
    """

    protocol: str | tuple[str, ...] = "headrace+ais"
    scheme = "ais"


class FolderFileSystem(StoreFileSystem):
    """Files of this machine, as if they were objects: ``headrace+file:///path``.

    (pyarrow takes a file system that is called ``LocalFileSystem`` for fsspec's own.)

    Paths are absolute. Here folders are directories: they exist without anything in them, and are
    made when something is written into them. Takes what `StoreFileSystem` takes.

    Raises:
        InvalidArgumentError: an option cannot work.

    Examples:
        >>> fs = headrace.fsspec.FolderFileSystem()
        >>> fs.isdir("/usr")
        True
    """

    protocol: str | tuple[str, ...] = "headrace+file"
    scheme = "file"
    root_marker = "/"

    def _check_options(self) -> None:
        Store("/", **self._options)

    @classmethod
    def _normal(cls, path: str, *, is_url: bool) -> str:
        # Libraries lose the slash after the scheme, and there are no URLs of relative paths.
        text = f"/{path.lstrip('/')}" if is_url else os.path.expanduser(path)
        return os.path.abspath(text)

    def _is_folder(self, path: str) -> bool:
        return os.path.isdir(self._strip_protocol(path))

    def _listed(self, path: str, prefix: str = "") -> list[dict[str, Any]] | None:
        entries = super()._listed(path, prefix)
        if not os.path.isdir(path):
            return entries
        found = {entry["name"]: entry for entry in entries or ()}
        if _identity(path) not in _above(path):
            for full in _directories_in(path, prefix):
                found.setdefault(full, self._folder(full))
        return [found[name] for name in sorted(found)]

    def _is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def _is_behind_link(self, tops: list[str], path: str) -> bool:
        own = [top for top in tops if f"{path}/".startswith(f"{top.rstrip('/')}/")]
        return all(link_in(top, path) == "above" for top in own or [path])

    def _refuses_folders(self, path: str) -> bool:
        return os.path.isdir(path)

    def _empty_folders(self, store: Store, below: str, prefix: str) -> set[str]:
        found = set()
        top = self._path(store, below)
        begin = len(top.rstrip("/")) + 1
        left = [(top, _above(top))]
        while left:
            folder, above = left.pop()
            this = _identity(folder)
            if this in above:
                continue
            for full in _directories_in(folder, prefix if folder == top else ""):
                found.add(f"{below}{full[begin:]}/")
                left.append((full, above | {this}))
        return found

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return ``name``, ``size`` in bytes, ``type``, and of files what the system tells besides.

        Raises:
            FileNotFoundError: there is neither such a file nor such a directory.
        """
        path = self._strip_protocol(path)
        return self._folder(path) if os.path.isdir(path) else super().info(path)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a directory.

        Raises:
            FileExistsError: there is one, or a file.
            FileNotFoundError: its parent does not exist, and not `create_parents`.
        """
        path = self._strip_protocol(path)
        (os.makedirs if create_parents else os.mkdir)(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory, with its parents.

        Raises:
            FileExistsError: there is one, and not `exist_ok`; or a file.
        """
        os.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory.

        Raises:
            OSError: it is not empty, or not there.
        """
        os.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Delete a file; of a symbolic link, the link.

        Raises:
            FileNotFoundError: there is none.
            IsADirectoryError: it is a folder, which takes ``rm(recursive=True)``.
        """
        path = self._strip_protocol(path)
        if os.path.islink(path) and not os.path.isdir(path):
            os.unlink(path)  # what it leads to may go at the same time
        else:
            super().rm_file(path)

    def _remove_folder(self, path: str) -> None:
        with contextlib.suppress(OSError):  # something was put into it meanwhile
            os.rmdir(path)

    async def _rm_below(self, path: str, batch_size: int | None) -> None:  # noqa: ARG002
        await change_in_thread(self._remove_all, path)

    def _remove_all(self, path: str) -> None:
        if not os.path.isdir(path):
            self.rm_file(path)
            return
        # What a script means whose variable is empty: "" is the current directory.
        top, here = os.path.realpath(path), os.path.realpath(os.getcwd())
        if os.path.commonpath([top, here]) == top:
            raise PermissionError(
                errno.EPERM, "the current directory, or one that has it in it, is not removed", path
            )
        shutil.rmtree(path)
