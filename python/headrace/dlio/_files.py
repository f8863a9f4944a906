"""Where DLIO's files are, and what its readers make of one."""

from __future__ import annotations

import io
import itertools
import os
import struct
import zipfile
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace import CorruptDataError, InvalidArgumentError, ObjectIndex, Store
from headrace._engine import crc32
from headrace._files.view_io import ViewIO
from headrace._store.location import is_url

if TYPE_CHECKING:
    import numpy

__all__ = ["array_of", "index_of"]

_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member of a zip: the lengths of its name and extras


def index_of(names: Iterable[str]) -> ObjectIndex:
    """Return the index of these files, in their order, from one listing of the folder above all.

    Raises:
        InvalidArgumentError: there are none.
        NotFoundError: one is not there any more.
    """
    urls = [name if is_url(name) else os.path.abspath(name) for name in names]
    if not urls:
        raise InvalidArgumentError("DLIO found no files: generate the data first")
    folder = _folder_of_all(urls)
    store = Store(folder)
    listed = store.index()
    chosen = (listed[listed.position(url[len(folder) + 1 :])] for url in urls)
    return ObjectIndex.from_objects(chosen, root=store.url)


def _folder_of_all(urls: list[str]) -> str:
    """Return the deepest folder, or prefix, above all of these."""
    # In the order of texts, all others are between the first and the last.
    first, last = min(urls).split("/")[:-1], max(urls).split("/")[:-1]
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "/".join(part for part, _ in same)


def array_of(data: Any, file_format: str, *, is_verified: bool) -> Any:
    """Return what DLIO's reader of a format makes of a file; the bytes of other formats.

    Args:
        data: the file's bytes, a buffer.
        file_format: as ``dataset.format`` has it.
        is_verified: whether a checksum of the whole file has been compared, so that those inside it
            need not be.

    Raises:
        CorruptDataError: the file is none of its format.
    """
    import numpy

    view = memoryview(data).cast("B")
    try:
        if file_format == "npz":
            return _member_of_npz(view, "x", is_verified=is_verified)
        if file_format == "npy":
            return _npy(view)
        if file_format in ("jpeg", "png"):
            from PIL import Image

            return numpy.asarray(Image.open(io.BytesIO(view)))
    except (ValueError, KeyError, OSError, zipfile.BadZipFile, struct.error) as error:
        raise CorruptDataError(f"this is no file of format {file_format}: {error}") from error
    return view


def _npy(view: memoryview) -> numpy.ndarray[Any, Any]:
    """Return an array that shares the memory of a ``.npy``."""
    import numpy
    from numpy.lib import format as npy

    head = io.BytesIO(view[: 1 << 16])
    read = (
        npy.read_array_header_1_0 if npy.read_magic(head) == (1, 0) else npy.read_array_header_2_0
    )
    shape, is_fortran, dtype = read(head)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects")
    flat = numpy.frombuffer(view, dtype, count=int(numpy.prod(shape)), offset=head.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _member_of_npz(view: memoryview, name: str, *, is_verified: bool) -> numpy.ndarray[Any, Any]:
    """Return an array of a ``.npz``, which shares its memory if it is not compressed."""
    with zipfile.ZipFile(io.BufferedReader(ViewIO(view))) as archive:
        member = archive.getinfo(name + ".npy")
        if member.compress_type != zipfile.ZIP_STORED:
            return _npy(memoryview(archive.read(member)))
    begin = (
        member.header_offset
        + _LOCAL_HEADER.size
        + sum(_LOCAL_HEADER.unpack_from(view, member.header_offset))
    )
    body = view[begin : begin + member.file_size]
    if not is_verified and crc32(body) != member.CRC:
        raise zipfile.BadZipFile(f"the CRC-32 of {member.filename} is another")
    return _npy(body)
