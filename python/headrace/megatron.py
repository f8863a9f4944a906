"""Megatron-Core's datasets on every store that headrace reads.

Megatron-Core 0.16 reads its ``.bin`` from ``s3://`` by boto3 and from ``msc://`` by NVIDIA's
client, and knows no other object store. After `install` it reads ``gs://``, ``s3://``, ``ais://``
and ``file://`` through headrace.

>>> import headrace.megatron
>>> headrace.megatron.install()                                       # doctest: +SKIP
>>> GPTDataset.build_low_level_dataset("gs://bucket/corpus", config)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Unpack

from headrace import InvalidArgumentError
from headrace import open as open_object
from headrace._store.keywords import refuse_options
from headrace._store.location import after_scheme, is_url, object_at, scheme_of
from headrace.types import StoreOptions

__all__ = ["install"]

_ACCESS = "headrace"
_STORAGE = "megatron.core.datasets.object_storage_utils"
_DATASETS = "megatron.core.datasets.indexed_dataset"
_READERS = "OBJECT_STORAGE_BIN_READERS"

_lock = threading.Lock()
_options: dict[str, Any] = {}
_before: dict[str, Any] = {}  # what took the place of Megatron's own functions: those


def install(**options: Unpack[StoreOptions]) -> None:
    """Let Megatron-Core read datasets at all URLs that headrace knows.

    Call it before datasets are built, in every process that builds them; a worker that was started
    by ``fork`` has it already. As for ``s3://``, give the datasets an `ObjectStorageConfig` (the
    configuration of GPTDataset has ``object_storage_cache_path``) and set ``mmap_bin_files=False``.
    The ``.idx`` is read by rank 0 into that folder, verified by its checksum, and put in place when
    it is complete. A read of the ``.bin`` is one request for the wanted bytes, pinned to the
    version that was there when the dataset was opened; ``bin_chunk_nbytes`` has no effect.
    ``msc://`` and local paths are read as before.

    Megatron-Core reads one document after the other. `headrace.torch.TokenDataset` reads the
    samples of many batches ahead, from the same files.

    Args:
        options: of `headrace.Store`: ``endpoint=...``. A second call replaces those of the first.

    Raises:
        ImportError: Megatron-Core is not installed.
        InvalidArgumentError: it is a version that reads object stores in another way.
        TypeError: there is no such option.

    Examples:
        >>> headrace.megatron.install()  # doctest: +SKIP
        >>> dataset = IndexedDataset(  # doctest: +SKIP
        ...     "gs://bucket/corpus", mmap=False, object_storage_config=ObjectStorageConfig("cache")
        ... )
    """
    refuse_options("headrace.megatron.install", options, install)
    storage = importlib.import_module(_STORAGE)
    datasets = importlib.import_module(_DATASETS)
    with _lock:
        _options.clear()
        _options.update(options)
        missing = [name for name in _REPLACED if not hasattr(storage, name)]
        if missing or not isinstance(getattr(datasets, _READERS, None), dict):
            raise InvalidArgumentError(
                f"this Megatron-Core has no {', '.join(missing) or _READERS}: headrace replaces "
                "what version 0.16 has"
            )
        getattr(datasets, _READERS)[_ACCESS] = _BinReader
        for name, function in _REPLACED.items():
            own = getattr(storage, name)
            if own is function:
                continue
            _before[name] = own
            # Modules that are there already have imported it by name.
            for module_name, module in list(sys.modules.items()):
                if module_name.split(".")[0] == "megatron" and vars(module).get(name) is own:
                    setattr(module, name, function)


class _BinReader:
    """Takes the place of Megatron-Core's readers of a ``.bin``."""

    def __init__(self, bin_path: str, object_storage_config: Any) -> None:  # noqa: ARG002
        store, name = object_at(bin_path, **_options)
        self._store = store
        self._info = store.stat(name)

    def read(self, dtype: Any, count: int, offset: int) -> Any:
        """Return `count` items from the byte `offset` on, in an array of their own."""
        import numpy

        out: Any = numpy.empty(int(count), dtype)
        if out.nbytes > 0:
            begin = int(offset)
            self._store.read(self._info, begin=begin, end=begin + out.nbytes, into=out)
        return out


def _is_object_storage_path(path: str) -> bool:
    return is_url(path) or bool(_before["is_object_storage_path"](path))


def _get_object_storage_access(path: str) -> Any:
    return _ACCESS if is_url(path) else _before["get_object_storage_access"](path)


def _get_index_cache_path(idx_path: str, object_storage_config: Any) -> Any:
    if not is_url(idx_path):
        return _before["get_index_cache_path"](idx_path, object_storage_config)
    # Every URL has a place of its own, which lies in the folder whatever it consists of.
    parts = [_as_file_name(part) for part in after_scheme(idx_path).split("/")]
    return os.path.join(object_storage_config.path_to_idx_cache, scheme_of(idx_path), *parts)


def _as_file_name(part: str) -> str:
    if part in ("", ".", ".."):
        return {"": "%", ".": "%2E", "..": "%2E%2E"}[part]
    return part.replace("%", "%25")


def _cache_index_file(remote_path: str, local_path: str) -> None:
    if not is_url(remote_path):
        _before["cache_index_file"](remote_path, local_path)
        return
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0:
        os.makedirs(os.path.dirname(local_path) or ".", exist_ok=True)
        partial = f"{local_path}.{uuid.uuid4().hex}.partial"
        try:
            with open_object(remote_path, **_options) as source, open(partial, "wb") as target:
                shutil.copyfileobj(source, target, 8 << 20)
            os.replace(partial, local_path)
        finally:
            if os.path.exists(partial):
                os.unlink(partial)
    if not os.path.exists(local_path):
        raise FileNotFoundError(
            f"{local_path}: rank 0 has not put the index there; all ranks need the same folder, "
            "and a barrier after rank 0 has built the dataset"
        )


def _dataset_exists(path_prefix: str, idx_path: str, bin_path: str) -> bool:
    if not is_url(path_prefix):
        return bool(_before["dataset_exists"](path_prefix, idx_path, bin_path))
    found = []
    for path in (idx_path, bin_path):
        store, name = object_at(path, **_options)
        found.append(store.exists(name))
    return all(found)


_REPLACED: Mapping[str, Any] = {
    "is_object_storage_path": _is_object_storage_path,
    "get_object_storage_access": _get_object_storage_access,
    "get_index_cache_path": _get_index_cache_path,
    "cache_index_file": _cache_index_file,
    "dataset_exists": _dataset_exists,
}


def __dir__() -> list[str]:
    return __all__  # not what it imports
