"""Files to write, and single objects written, copied and deleted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.core import get_compression

from headrace._base.errors import (
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace._engine import ObjectInfo
from headrace._files.reader_io import ObjectReaderIO
from headrace._files.writer_io import takes_files, write_file
from headrace._store.store import Store
from headrace.fsspec._arguments import block_bytes_of, cache_options_of
from headrace.fsspec._files import CachedFile, TextFile, WriteFile, own_compressions
from headrace.fsspec._reading import Reading
from headrace.fsspec._reads import pieces
from headrace.fsspec._threads import raise_if_over

__all__ = ["Copied", "Writing"]

# What `Store.open_writer` takes of the keywords of ``open``; its part_bytes is fsspec's block_size.
_WRITER_OPTIONS = ("content_type", "expected_size_bytes", "max_parts_in_flight", "upload")


class Copied(NamedTuple):
    """What a copy has copied: from where to where."""

    objects: list[tuple[str, str, str]]
    """And the generation that was copied."""
    folders: list[tuple[str, str]]


class Writing(Reading):
    """One object at a time."""

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        cache_type: str | None = None,
        **kwargs: Any,
    ) -> Any:
        block_bytes = block_bytes_of(block_size)
        if mode == "rb":
            if cache_type is None:
                return self._reader(path, prefetch_bytes=kwargs.get("prefetch_bytes"))
            options = cache_options_of(cache_type, cache_options)
            with self._reader(path, prefetch_bytes=0) as reader:
                store, info = self._object_at(path)[0], reader.info
            return CachedFile(self, path, store, info, block_size=block_bytes, **options)
        if mode not in ("wb", "xb", "ab"):
            raise InvalidArgumentError(
                f"{path}: mode is {mode!r}; it must be 'rb', 'wb', 'xb' or 'ab', or the same "
                "without b for text"
            )
        own_compressions()  # whoever has called us looks one up next
        store, name = self._object_at(path)
        if self._refuses_folders(path):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", store.url_of(name))
        if mode == "xb" and store.exists(name):
            raise FileExistsError(errno.EEXIST, "exists already", store.url_of(name))
        before = store.stat(name, missing_ok=True) if mode == "ab" else None
        conditions = {"wb": None, "xb": "absent"}
        condition = conditions.get(mode, "absent" if before is None else before.generation or None)
        file = WriteFile(
            self,
            path,
            store,
            name,
            autocommit=autocommit,
            exclusive=mode == "xb",
            if_generation=condition,
            part_bytes=block_bytes,
            **{key: each for key, each in kwargs.items() if key in _WRITER_OPTIONS},
        )
        if before is not None:
            try:
                self._append(store, before, file)
            except BaseException:
                file.abort()
                raise
        return file

    def _refuses_folders(self, path: str) -> bool:  # noqa: ARG002 - of directories it does
        return False

    @staticmethod
    def _append(store: Store, before: ObjectInfo, file: WriteFile) -> None:
        """Begin a file with what the object has until now."""
        with ObjectReaderIO(store, before) as reader:
            for piece in pieces(reader, before.size_bytes):
                file.write(piece)

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        cache_options: Mapping[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open an object as a file.

        A file that is written becomes visible by ``close``, whole and verified, or not at all: if
        an exception is on its way, nothing does, also if ``fsspec.open`` or another library closes
        the file then; `headrace.ObjectWriterIO` has all cases. With mode ``"a"`` the object is
        written anew, with what it has in front; if somebody changes it meanwhile, ``close`` raises
        an error.

        Args:
            mode: ``"r"``, ``"w"``, ``"x"`` or ``"a"``, for bytes with ``"b"`` behind it.
            block_size: when writing, the bytes of a part, which is ``part_bytes`` of
                `headrace.open`, with its default; None, 0 and ``"default"`` are the default, and a
                float is rounded down. When reading, of a block of the cache, if there is a
                `cache_type`.
            cache_options: of the cache, if there is a `cache_type`.
            compression: as fsspec has it: ``"gzip"``, ``"infer"``.
            kwargs: ``prefetch_bytes`` of the file system, for this file; ``cache_type``, to read
                through a cache of fsspec's instead of headrace's own read-ahead; ``content_type``,
                ``expected_size_bytes``, ``max_parts_in_flight`` and ``upload`` of `headrace.open`;
                ``encoding``, ``errors`` and ``newline`` of text.

        Raises:
            FileNotFoundError: there is no such object to read.
            FileExistsError: mode ``"x"``, and there is one. ``close`` raises it, too.
            IsADirectoryError: it is a folder or a bucket.
            InvalidArgumentError: the mode, `block_size` or the cache cannot work.
        """
        common: dict[str, Any] = {"block_size": block_size, "cache_options": cache_options}
        if "r" in mode:
            return super().open(path, mode, compression=compression, **common, **kwargs)
        if "b" not in mode:
            text = {k: kwargs.pop(k) for k in ("encoding", "errors", "newline") if k in kwargs}
            binary = f"{mode.replace('t', '')}b"
            file = self.open(path, binary, compression=compression, **common, **kwargs)
            return TextFile(file, **text)
        name = get_compression(self._strip_protocol(path), compression)
        return super().open(path, mode, compression=name, **common, **kwargs)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write bytes as an object, which appears whole.

        Args:
            mode: ``"overwrite"``, or ``"create"``: nothing may be there.
            kwargs: ``content_type``.

        Raises:
            FileExistsError: mode ``"create"``, and there is an object.
            IsADirectoryError: `path` is a bucket.
        """
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        store, name = self._object_at(path)
        try:
            store.write(
                name,
                value,
                if_generation="absent" if mode == "create" else None,
                content_type=kwargs.get("content_type"),
            )
        except PreconditionFailedError as error:
            if mode != "create":
                raise
            raise FileExistsError(f"{store.url_of(name)}: exists already") from error

    def put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Copy a local file to an object, which appears whole and verified, or not at all.

        Args:
            lpath: the file; a directory is made as a folder.
            callback: is told of the bytes.
            mode: ``"overwrite"``, or ``"create"``: nothing may be there.
            kwargs: as of `open`.

        Raises:
            FileNotFoundError: there is no such file.
            FileExistsError: mode ``"create"``, and there is an object.
        """
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb", buffering=0) as source:
            found = os.fstat(source.fileno())
            if found.st_size > 0:  # a pipe has none
                kwargs.setdefault("expected_size_bytes", found.st_size)
            with self.open(rpath, "xb" if mode == "create" else "wb", **kwargs) as file:
                callback.set_size(found.st_size)
                # What is compressed on its way passes through here.
                steps: Iterator[int]
                if takes_files(file) and stat.S_ISREG(found.st_mode):
                    steps = write_file(file, source)
                else:
                    steps = (file.write(piece) for piece in pieces(source, found.st_size))
                for size_bytes in steps:
                    raise_if_over()
                    callback.relative_update(size_bytes)

    def cp_file(self, path1: str, path2: str, *, done: Copied | None = None, **_: Any) -> None:
        """Copy an object; the service does it, unless the two are in different buckets.

        Of a folder nothing is copied; it is made at `path2`, where folders are made at all.

        Args:
            done: is told what was copied, by `mv`.

        Raises:
            FileNotFoundError: there is no such object or folder, or no such bucket to copy to.
        """
        if not self._at(path2)[1] or not self._at(path1)[1]:  # a bucket is there, or is not
            if not self.isdir(path1) or self.isfile(path1):
                self._object_at(path2)  # raises
            if done is not None:
                done.folders.append((path1, path2))
            return
        (source, name), (target, to) = self._object_at(path1), self._object_at(path2)
        generation = ""
        try:
            if source is target:
                info = source.stat(name) if done is not None else None
                source.copy(name if info is None else info, to)
                generation = info.generation if info is not None else ""
            else:
                with (
                    self._reader(path1) as reader,
                    self.open(path2, "wb", expected_size_bytes=reader.size) as file,
                ):
                    for piece in pieces(reader, reader.size):
                        file.write(piece)
                    generation = reader.info.generation
            if done is not None:
                done.objects.append((path1, path2, generation))
        except (NotFoundError, IsADirectoryError):
            if source.exists(name) or not self._is_folder(path1):  # then `path2` is what is missing
                raise
            self.makedirs(path2, exist_ok=True)
            if done is not None:
                done.folders.append((path1, path2))

    def rm_file(self, path: str) -> None:
        """Delete an object.

        Raises:
            FileNotFoundError: there is none.
            IsADirectoryError: it is a folder, which takes ``rm(recursive=True)``.
        """
        store, name = self._object_at(path)
        try:
            store.delete(name)
        except NotFoundError as error:
            raise self._missing(path, error) from None

    def sign(self, path: str, expiration: int = 100, **_: Any) -> str:
        """Return a URL by which anybody can read an object of ``s3://`` for `expiration` seconds.

        Raises:
            InvalidArgumentError: the store has no such URLs.
        """
        store, name = self._object_at(path)
        return store.presigned_url(name, expires_s=expiration)
