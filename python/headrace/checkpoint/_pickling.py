"""A pickle as `torch.save` makes it, which refers to records instead of storages' bytes."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch.serialization import location_tag, normalize_storage_type

from headrace._base.errors import InvalidArgumentError

__all__ = ["dump"]

Storage = torch.UntypedStorage


class _Pickler(pickle.Pickler):
    """Collects the storages that it meets, each once, by the key of its record."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol=protocol)
        self.storages: dict[str, Storage] = {}
        self._keys: dict[int, str] = {}
        self._dtypes: dict[int, torch.dtype] = {}

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, torch.storage.TypedStorage):
            typed: Any = obj
            storage, dtype, count = typed._untyped_storage, typed.dtype, typed._size()
            storage_type = getattr(torch, typed._pickle_storage_type())
        elif isinstance(obj, torch.UntypedStorage):
            storage, dtype, count = obj, torch.uint8, obj.nbytes()
            storage_type = normalize_storage_type(type(obj))  # type: ignore[no-untyped-call]
        else:
            return None
        if storage.device.type == "meta":
            raise InvalidArgumentError(
                "a storage on the device 'meta' has no bytes that could be saved; meta tensors "
                "themselves can be saved, and stay without bytes"
            )
        # One record has one type: tensors of two types over the same bytes could not be loaded.
        if storage.data_ptr() != 0:
            known = self._dtypes.setdefault(storage.data_ptr(), dtype)
            if known != dtype:
                raise InvalidArgumentError(
                    f"tensors of {known} and of {dtype} share the same memory, which a checkpoint "
                    "cannot express: save a clone of one of them"
                )
        # torch's own identity of a storage; Python may make a new object for it at any time.
        key = self._keys.setdefault(storage._cdata, str(len(self._keys)))
        self.storages[key] = storage
        return ("storage", storage_type, key, location_tag(storage), count)


def dump(obj: Any, protocol: int) -> tuple[bytes, dict[str, Storage]]:
    """Pickle `obj`; return the pickle and its storages by key, in order.

    Raises:
        InvalidArgumentError: a storage has no bytes, or is shared by tensors of several types.
    """
    out = io.BytesIO()
    pickler = _Pickler(out, protocol)
    pickler.dump(obj)
    return out.getvalue(), pickler.storages
