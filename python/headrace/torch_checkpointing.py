"""Storage for torch_checkpointing, which by itself saves to local files alone.

>>> from headrace.torch_checkpointing import ObjectStorageConfig, mark_complete    # doctest: +SKIP
>>> config = CheckpointManager.Config.with_sync_save()                             # doctest: +SKIP
>>> config.storage_config = ObjectStorageConfig("gs://bucket/run1")                # doctest: +SKIP
>>> config.save.writer_config.write_to_temp_dir = False                            # doctest: +SKIP
>>> config.finalize_callback = mark_complete                                       # doctest: +SKIP
>>> config.build().save("step100", {"model": model.state_dict()})                  # doctest: +SKIP

torch_checkpointing makes a checkpoint visible by renaming its folder. Buckets have no folders: a
rename copies object by object, and may end in the middle. There, a checkpoint is complete when the
object ``.headrace-complete`` is in its folder, which is written last, and a load refuses a folder
without it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from headrace import NotFoundError, PreconditionFailedError, Store
from headrace import open as open_object
from headrace._base.options import require
from headrace._store.location import directory_of, is_local, root_at
from headrace.types import StoreOptions, Url

try:
    from torch_checkpointing.storage.base_storage import ReadArgs, Storage, StorageConfig
    from torch_checkpointing.storage.filesystem import (
        LocalFileSystemStorage,
        LocalFileSystemStorageConfig,
    )
except ImportError as error:
    raise ImportError(
        "headrace.torch_checkpointing needs torch_checkpointing: pip install torch_checkpointing",
        name="torch_checkpointing",
    ) from error

__all__ = ["COMPLETE_NAME", "ObjectStorageConfig", "mark_complete"]

COMPLETE_NAME = ".headrace-complete"
"""The object that makes the folder it is in a complete checkpoint."""
_RENAMING_NAME = ".headrace-renaming"
_OURS = (COMPLETE_NAME, _RENAMING_NAME)


class ObjectStorageConfig(StorageConfig):
    """The ``storage_config`` for checkpoints below one URL.

    Paths, such as the ``checkpoint_id`` of a save, are relative to it; absolute ones are for
    folders, and must lie below it.

    Examples:
        >>> config = ObjectStorageConfig("gs://bucket/run1")  # doctest: +SKIP

    Args:
        url: a bucket, a folder in it, or a directory. With `store`, the name of a folder there.
        store: the store of the checkpoints. Default: a store at `url`.
        require_complete: treat a folder without ``.headrace-complete`` as no checkpoint. Default:
            in buckets, where a rename can end in the middle.
        temp_dir_prefix: that of the ``CheckpointWriterConfig``.
        part_bytes: bytes of one part of a large file; see `Store.open_writer`.
        expected_size_bytes: how large the largest file of a checkpoint will be, if that is known:
            pass it for files of more than about 1,000 GB on ``s3://``.
        options: options of `headrace.Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        InvalidArgumentError: no store has such a URL.
    """

    def __init__(
        self,
        url: Url = "",
        *,
        store: Store | None = None,
        require_complete: bool | None = None,
        temp_dir_prefix: str = "tmp_",
        part_bytes: int | None = None,
        expected_size_bytes: int | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        self._root = root_at(url, store, **options)
        self._sizes = _Sizes(part_bytes, expected_size_bytes)
        is_folder = is_local(self._root.url)
        self._require_complete = not is_folder if require_complete is None else require_complete
        self._temp_dir_prefix = temp_dir_prefix

    def create_storage(self) -> Any:
        """Return the storage that torch_checkpointing reads and writes with.

        Examples:
            >>> storage = ObjectStorageConfig("gs://bucket/run1").create_storage()  # doctest: +SKIP
        """
        if directory_of(self._root) is not None and not self._require_complete:
            return _FolderStorage(self._root, self._sizes)
        return _ObjectStorage(
            self._root, self._sizes, self._require_complete, self._temp_dir_prefix
        )


def mark_complete(args: Any) -> None:
    """Make the checkpoint that was just saved a complete one: a ``finalize_callback``.

    For savers with ``write_to_temp_dir=False``. All ranks have saved their part when it is called.

    Examples:
        >>> config.finalize_callback = mark_complete  # doctest: +SKIP

    Args:
        args: the ``CallbackArgs`` of the writer.

    Raises:
        InvalidArgumentError: the storage is not headrace's.
        HeadraceError: the mark could not be written.
    """
    require(
        isinstance(args.storage, _ObjectStorage | _FolderStorage),
        f"{type(args.storage).__name__} is not the storage of an ObjectStorageConfig",
    )
    args.storage.mark_complete(Path(args.path))


class _Sizes(NamedTuple):
    """Arguments of `Store.open_writer`."""

    part_bytes: int | None
    expected_size_bytes: int | None


class _Streams:
    """Reading and writing of objects; both storages have it."""

    _root: Store
    _sizes: _Sizes

    def _name(self, path: Path) -> str:
        """Return the name of an object or a folder: ``""`` for the root."""
        if path.is_absolute():
            directory = directory_of(self._root)
            require(
                directory is not None and path.is_relative_to(directory),
                f"{path} is not below {self._root.url}: paths are relative to it",
            )
            path = path.relative_to(directory or "/")
        name = path.as_posix()
        require(".." not in path.parts, f"{path} leads out of {self._root.url}")
        return "" if name == "." else name

    def stream_read(self, path: Path, read_args: ReadArgs | None = None) -> Any:
        if read_args is None or read_args.pre_read_full_file:
            return io.BytesIO(self.read(path))
        return open_object(self._name(path), "rb", store=self._root)

    def read(self, path: Path, read_args: ReadArgs | None = None) -> bytes:  # noqa: ARG002
        return bytes(self._root.read(self._name(path)))

    def stream_write(self, path: Path) -> Any:
        return open_object(self._name(path), "wb", store=self._root, **self._sizes._asdict())

    def write(self, path: Path, data: Any) -> None:
        with self.stream_write(path) as file:
            file.write(memoryview(data).cast("B"))

    def mark_complete(self, path: Path) -> None:
        name = self._name(path)
        with contextlib.suppress(PreconditionFailedError):  # another rank has marked it
            self._root.write(_join(name, COMPLETE_NAME), b"", if_generation="absent")


class _FolderStorage(_Streams, LocalFileSystemStorage):
    """A directory, in which a rename is atomic. Files appear whole, and are durable then."""

    def __init__(self, root: Store, sizes: _Sizes) -> None:
        super().__init__(LocalFileSystemStorageConfig(use_direct_io=False))
        self._root, self._sizes = root, sizes
        self._directory = Path(directory_of(root) or "/")

    def _path(self, path: Path) -> Path:
        return self._directory / self._name(Path(path))

    def stream_write(self, path: Path) -> Any:
        folder = self._path(path).parent
        if not folder.is_dir():  # as the local storage has it, though it could be made here
            raise RuntimeError(f"Parent directory does not exist: {folder}")
        return super().stream_write(path)

    def mkdir(self, path: Path, recursive: bool = True) -> None:
        super().mkdir(self._path(path), recursive)

    def rmdir(self, path: Path) -> None:
        super().rmdir(self._path(path))

    def rename(
        self,
        src_path: Path,
        dst_path: Path,
        is_directory: bool = False,
        background_cleanup: bool = False,
    ) -> None:
        super().rename(self._path(src_path), self._path(dst_path), is_directory, background_cleanup)

    def ls(self, path: Path) -> list[str]:
        return [name for name in super().ls(self._path(path)) if name not in _OURS]

    def delete(self, path: Path) -> None:
        super().delete(self._path(path))

    def exists(self, path: Path) -> bool:
        return bool(super().exists(self._path(path)))

    def getsize(self, path: Path) -> int:
        return int(super().getsize(self._path(path)))

    def isdir(self, path: Path) -> bool:
        return bool(super().isdir(self._path(path)))

    def remap_path(self, path: Path) -> str:
        return self._root.url_of(self._name(Path(path)))


class _ObjectStorage(_Streams, Storage):
    """A bucket, in which a folder is what names have in common."""

    def __init__(
        self,
        root: Store,
        sizes: _Sizes,
        require_complete: bool,
        temp_dir_prefix: str,
    ) -> None:
        self._root, self._sizes = root, sizes
        self._require_complete = require_complete
        self._temp_dir_prefix = temp_dir_prefix

    def stream_write(self, path: Path) -> Any:
        # A complete checkpoint that is written again is none until it is complete again.
        name = self._name(path)
        for folder in _folders_of(name):
            self._root.delete(_join(folder, COMPLETE_NAME), missing_ok=True)
        return super().stream_write(path)

    def mkdir(self, path: Path, recursive: bool = True) -> None:  # noqa: ARG002
        self._name(path)  # there are no folders to make

    def rmdir(self, path: Path) -> None:
        name = self._name(path)
        # The mark first, so that what is left of an interrupted removal is no checkpoint.
        self._root.delete(_join(name, COMPLETE_NAME), missing_ok=True)
        for each in self._below(name):
            self._root.delete(each, missing_ok=True)

    def delete(self, path: Path) -> None:
        self._root.delete(self._name(path))

    def rename(
        self,
        src_path: Path,
        dst_path: Path,
        is_directory: bool = False,  # noqa: ARG002 - what it is shows
        background_cleanup: bool = False,  # noqa: ARG002
    ) -> None:
        source, target = self._name(src_path), self._name(dst_path)
        if self._root.exists(source):
            if self._below(target, most=1):
                raise _occupied(src_path, dst_path, errno.EISDIR)
            self._root.rename(source, target)
            return
        if target.startswith(f"{source}/"):
            raise OSError(
                errno.EINVAL, f"{src_path} cannot be moved to a folder in itself", str(dst_path)
            )
        names = self._below(source)
        if not names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(src_path))
        if self._root.exists(target):
            raise _occupied(src_path, dst_path, errno.ENOTDIR)
        left = self._below(target)
        renaming = _join(target, _RENAMING_NAME)
        # What an interrupted rename has left is no checkpoint, and is replaced.
        if left and (renaming not in left or _join(target, COMPLETE_NAME) in left):
            raise _occupied(src_path, dst_path, errno.ENOTEMPTY)
        self._root.write(renaming, b"")
        copied = {each: _join(target, each[len(source) + 1 :]) for each in names}
        for each in {*left} - {*copied.values(), renaming}:
            self._root.delete(each, missing_ok=True)
        for each, copy in copied.items():
            if each.rpartition("/")[2] not in _OURS:
                self._root.copy(each, copy)
        self.mark_complete(dst_path)
        self._root.delete(renaming)
        for each in names:
            self._root.delete(each, missing_ok=True)

    def ls(self, path: Path) -> list[str]:
        name = self._name(path)
        prefix = f"{name}/" if name else ""
        found = [
            entry.name[len(prefix) :].rstrip("/")
            for entry in self._root.list(prefix, delimiter="/")
        ]
        if not found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return [each for each in found if each not in _OURS]

    def exists(self, path: Path) -> bool:
        """Return whether there is such a file, or a complete folder.

        Raises:
            FileNotFoundError: there is a folder that is no complete checkpoint.
        """
        name = self._name(path)
        if name and self._root.exists(name):
            return True
        if not self._below(name, most=1):
            return False
        if not self._require_complete or path.name.startswith(self._temp_dir_prefix):
            return True
        folders = [name, *_folders_of(name)]
        if any(self._root.exists(_join(folder, COMPLETE_NAME)) for folder in folders):
            return True
        raise NotFoundError(
            f"{self._root.url_of(name)} is no complete checkpoint: it has no {COMPLETE_NAME}, so a "
            "save or a rename of it has not ended. Save again, or load another one. (If it is a "
            "temporary folder of a save, give its temp_dir_prefix to ObjectStorageConfig; "
            "require_complete=False reads any folder.)"
        )

    def getsize(self, path: Path) -> int:
        return self._root.stat(self._name(path)).size_bytes

    def isdir(self, path: Path) -> bool:
        return bool(self._below(self._name(path), most=1))

    def remap_path(self, path: Path) -> str:
        return self._root.url_of(self._name(Path(path)))

    def _below(self, name: str, most: int | None = None) -> list[str]:
        """Return the names of the objects in a folder, at any depth."""
        try:
            found = self._root.list(f"{name}/" if name else "", max_results=most)
            return [info.name for info in found]
        except NotFoundError:
            if not is_local(self._root.url):
                raise
            return []  # a directory that does not exist yet


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _folders_of(name: str) -> list[str]:
    """Return the folders that `name` is in, the root last."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:i]) for i in range(len(parts), -1, -1)]


def _occupied(source: Path, target: Path, code: int) -> FileExistsError:
    return FileExistsError(
        code,
        f"{source} is not renamed: something else is there; delete it first, to replace it",
        str(target),
    )


def __dir__() -> list[str]:
    return __all__  # not what it imports
