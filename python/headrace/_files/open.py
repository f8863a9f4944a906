"""`headrace.open`: objects as files."""

from __future__ import annotations

import os
from typing import Literal, Unpack, overload

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import PARTS_IN_FLIGHT, PREFETCH_BYTES, require
from headrace._engine import ObjectInfo
from headrace._files.reader_io import ObjectReaderIO
from headrace._files.writer_io import ObjectWriterIO
from headrace._store.keywords import refuse_options
from headrace._store.location import directory_of, object_at, require_no_options_beside
from headrace._store.settings import StoreOptions
from headrace._store.store import Store, UploadWay

__all__ = ["open"]

_MODES = ("rb", "wb", "xb")


@overload
def open(  # noqa: A001
    url: str | os.PathLike[str] | ObjectInfo,
    mode: Literal["rb"] = "rb",
    *,
    store: Store | None = None,
    if_generation: str | None = None,
    prefetch_bytes: int = PREFETCH_BYTES,
    **options: Unpack[StoreOptions],
) -> ObjectReaderIO: ...
@overload
def open(  # noqa: A001
    url: str | os.PathLike[str],
    mode: Literal["wb", "xb"],
    *,
    store: Store | None = None,
    if_generation: str | None = None,
    content_type: str | None = None,
    part_bytes: int | None = None,
    expected_size_bytes: int | None = None,
    max_parts_in_flight: int = PARTS_IN_FLIGHT,
    upload: UploadWay | None = None,
    **options: Unpack[StoreOptions],
) -> ObjectWriterIO: ...
@overload
def open(  # noqa: A001
    url: str | os.PathLike[str],
    mode: str,
    *,
    store: Store | None = None,
    if_generation: str | None = None,
    prefetch_bytes: int = PREFETCH_BYTES,
    content_type: str | None = None,
    part_bytes: int | None = None,
    expected_size_bytes: int | None = None,
    max_parts_in_flight: int = PARTS_IN_FLIGHT,
    upload: UploadWay | None = None,
    **options: Unpack[StoreOptions],
) -> ObjectReaderIO | ObjectWriterIO: ...
def open(  # noqa: A001 - as in gzip, tarfile and io
    url: str | os.PathLike[str] | ObjectInfo,
    mode: str = "rb",
    *,
    store: Store | None = None,
    if_generation: str | None = None,
    prefetch_bytes: int = PREFETCH_BYTES,
    content_type: str | None = None,
    part_bytes: int | None = None,
    expected_size_bytes: int | None = None,
    max_parts_in_flight: int = PARTS_IN_FLIGHT,
    upload: UploadWay | None = None,
    **options: Unpack[StoreOptions],
) -> ObjectReaderIO | ObjectWriterIO:
    """Open an object as a binary file: ``gs://bucket/name``, ``file:///path`` or a path.

    For text, wrap it: ``io.TextIOWrapper(headrace.open(url))``.

    A file that is written becomes visible by a `close` without an error, whole and verified; in
    every other case nothing does, and the object before stays. `ObjectWriterIO` has the cases.

    Examples:
        >>> with headrace.open("gs://bucket/a.txt", "wb") as file:
        ...     size_bytes = file.write(b"text")
        >>> headrace.open("gs://bucket/a.txt").read()
        b'text'

    Args:
        url: the object; with `store` its name there or its whole URL, or, for reading, an
            `ObjectInfo`.
        mode: ``"rb"`` to read, ``"wb"`` to write, ``"xb"`` to write what must not be there yet.
        store: the store that `url` is a name in.
        if_generation: read, or replace, exactly this generation; ``"absent"`` is ``"xb"``.
        prefetch_bytes: when reading, what is fetched ahead of a sequential reader, at most.
        content_type: when writing; default ``application/octet-stream``.
        part_bytes: when writing, bytes of one part; see `Store.open_writer`.
        expected_size_bytes: when writing, how large the object will be, if that is known: pass it
            for objects of more than about 1,000 GB on ``s3://``.
        max_parts_in_flight: when writing, parts under way at a time.
        upload: when writing, how they come to the store; see `Store.open_writer`.
        options: options of `Store`, if `store` is not given.

    Raises:
        NotFoundError: there is no such object to read.
        PreconditionFailedError: it is not `if_generation`. When writing, `close` raises it.
        InvalidArgumentError: the mode, the URL or an option cannot work.
        TypeError: there is no such option; the message names the right one.
    """
    refuse_options("headrace.open", options, open)
    require(
        mode in _MODES,
        f"mode is {mode!r}; it must be 'rb', 'wb' or 'xb' (objects are opened in binary: "
        "io.TextIOWrapper makes text of it)",
    )
    if isinstance(url, ObjectInfo):
        require(mode == "rb", "to write, a name is needed, not an ObjectInfo")
        require_no_options_beside(store, options)
        if store is None:
            raise InvalidArgumentError("an ObjectInfo needs store=: where is it?")
        return ObjectReaderIO(
            store, url, if_generation=if_generation, prefetch_bytes=prefetch_bytes
        )
    store, name = object_at(url, store, **options)
    _refuse_directory(store, name)
    if mode == "rb":
        return ObjectReaderIO(
            store, name, if_generation=if_generation, prefetch_bytes=prefetch_bytes
        )
    if mode == "xb":
        require(
            if_generation in (None, "absent"),
            f"if_generation is {if_generation!r}, but mode 'xb' means that nothing is there",
        )
        if_generation = "absent"
    return ObjectWriterIO(
        store.open_writer(
            name,
            if_generation=if_generation,
            content_type=content_type,
            part_bytes=part_bytes,
            expected_size_bytes=expected_size_bytes,
            max_parts_in_flight=max_parts_in_flight,
            upload=upload,
        )
    )


def _refuse_directory(store: Store, name: str) -> None:
    # Whoever writes would be told by close() only.
    folder = directory_of(store)
    if folder is not None and os.path.isdir(os.path.join(folder, name)):
        raise InvalidArgumentError(
            f"{store.url_of(name)} names a directory, not an object; headrace.Store lists what is "
            "in it"
        )
