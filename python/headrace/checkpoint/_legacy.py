"""The format of torch.save before version 1.6: five pickles, then the storages one by one."""

from __future__ import annotations

import io
import pickle
from typing import IO, Any

import torch

from headrace._base.errors import HeadraceError
from headrace._engine import ObjectInfo
from headrace._files.reader_io import ObjectReaderIO
from headrace._store.store import Store
from headrace.checkpoint._object import corrupt
from headrace.checkpoint._outline import Outline, StorageReference, _Unpickler

__all__ = ["require_whole_legacy"]

_HEAD_BYTES = 256 << 10
# The number of a storage's elements stands before them.
_COUNT_BYTES = 8


def require_whole_legacy(store: Store, info: ObjectInfo) -> None:
    """Raise unless the file has all storages that its pickle refers to. No storage is read.

    Raises:
        CorruptDataError: it is truncated, or damaged before its storages.
        PreconditionFailedError: it has been replaced.
    """
    url = store.url_of(info.name)
    with (
        ObjectReaderIO(store, info, prefetch_bytes=_HEAD_BYTES) as source,
        io.BufferedReader(source, _HEAD_BYTES) as file,
    ):
        try:
            for _ in range(3):  # the format, its version, the writer's machine
                _load(file)
            storages = _load(file).storages
            keys = _load(file).root
            end = file.tell() + sum(_COUNT_BYTES + _size_bytes(storages[key]) for key in keys)
        except HeadraceError:
            raise
        except Exception as error:  # a damaged pickle fails in any way
            text = f"its pickles cannot be read: {type(error).__name__}: {error}"
            raise corrupt(url, text) from None
    if info.size_bytes < end:
        raise corrupt(
            url,
            f"it is truncated: it has {info.size_bytes:,} bytes, and its tensors end at {end:,}",
        )


class _StreamUnpickler(_Unpickler):
    """Reads one of several pickles that follow each other."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(b"")
        pickle._Unpickler.__init__(self, file, encoding="utf-8")

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "module":  # a module's class, and its source
            return pid[1]
        return super().persistent_load(pid[:5])  # the sixth says of which storage it is a view


def _load(file: IO[bytes]) -> Outline:
    unpickler = _StreamUnpickler(file)
    return Outline(unpickler.load(), unpickler.storages)


def _size_bytes(storage: StorageReference) -> int:
    # torch.load, too, knows no other types.
    dtype = torch.storage._get_dtype_from_pickle_storage_type(storage.type_name)
    return storage.count * int(dtype.itemsize)
