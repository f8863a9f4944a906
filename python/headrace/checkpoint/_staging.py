"""A copy of a state in host memory, so that training can continue."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import torch

from headrace._base.contexts import context
from headrace._base.errors import add_note
from headrace.checkpoint._device_copies import Copies, DeviceCopies, copied_to_host

__all__ = ["copy_to_host"]


def copy_to_host(
    state: Any,
    copies_of: Callable[[torch.device], Copies] = DeviceCopies,
    *,
    into: dict[Any, Any] | None = None,
) -> Any:
    """Return what `state` would be after a save and a load, with all tensors in host memory.

    It is pickled at once, as for a save, but for the bytes of storages: each is copied once, as a
    whole. So the copy has the same ties, classes and attributes as a checkpoint. Copies from a GPU
    go to pinned memory; all of them start before the first one is awaited.

    Unlike a checkpoint, the copy may have what names something of this process: functions and
    classes, meshes and groups of processes. They stay what they are.

    Args:
        state: anything that can be pickled.
        copies_of: returns the copies from a device.
        into: a new, empty dict to fill and return in place of `state`, a plain dict.

    Raises:
        Exception: that of the first value that cannot be pickled, with its key in `state`.
    """
    pickled = _Pickled(None if into is None else state)
    try:
        pickled.dump(state if into is None else list(state.items()))
    except Exception as error:
        _add_key(error, state)
        raise
    storages = copied_to_host(pickled.storages, copies_of)
    unpickler = _Unpickler(pickled, storages, into)
    with torch.no_grad(), _as_if_loaded_to_host():
        found = unpickler.load()
    if into is None:
        return found
    into.update(found)
    return into


class _Pickled(pickle.Pickler):
    """A pickle without the bytes of storages and of arrays.

    Args:
        root: an object to leave out, wherever it is in itself; None for none.
    """

    def __init__(self, root: Any) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file, protocol=5, buffer_callback=self._copy)
        self._root = root
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.kept: list[Any] = []
        self._numbers: dict[int, tuple[int, Any]] = {}
        self.buffers: list[bytearray] = []

    def persistent_id(self, obj: Any) -> Any:
        if obj is torch._utils._rebuild_tensor_v3:
            return self._keep(obj, lambda: _over_untyped)
        if isinstance(obj, _of_this_process()):
            return self._keep(obj, lambda: obj)
        if isinstance(obj, torch.storage.TypedStorage):
            return "storage", self._number_of(obj._untyped_storage), obj.dtype
        if isinstance(obj, torch.UntypedStorage):
            return "storage", self._number_of(obj), None
        if obj is self._root and obj is not None:
            return ("root",)
        if isinstance(obj, torch.Tensor) and hasattr(obj, "local_shards"):
            # ShardedTensor, which FSDP1 makes, and which is rebuilt only in its own group.
            return self._keep(obj, lambda: _sharded_on_host(obj))
        return None

    def _keep(self, obj: Any, make: Callable[[], Any]) -> tuple[str, int]:
        if id(obj) not in self._numbers:
            # Itself, too, so that no other object has its id.
            self._numbers[id(obj)] = len(self.kept), obj
            self.kept.append(make())
        return "kept", self._numbers[id(obj)][0]

    def _number_of(self, storage: torch.UntypedStorage) -> int:
        # torch's own identity of a storage; Python may make a new object for it at any time.
        number: int = storage._cdata
        self.storages[number] = storage
        return number

    def _copy(self, buffer: pickle.PickleBuffer) -> None:
        self.buffers.append(bytearray(buffer.raw()))


class _Unpickler(pickle.Unpickler):
    """Makes the copy, over copies of the storages."""

    def __init__(
        self,
        pickled: _Pickled,
        storages: Mapping[int, torch.UntypedStorage],
        root: Any,
    ) -> None:
        pickled.file.seek(0)
        super().__init__(pickled.file, buffers=pickled.buffers)
        self._kept, self._storages, self._root = pickled.kept, storages, root

    def persistent_load(self, pid: Any) -> Any:
        kind, *more = pid
        if kind == "root":
            return self._root
        if kind == "kept":
            return self._kept[more[0]]
        number, dtype = more
        storage = self._storages[number]
        if dtype is None:
            return storage
        typed: Any = torch.storage.TypedStorage
        return typed(wrap_storage=storage, dtype=dtype, _internal=True)


@functools.cache
def _of_this_process() -> tuple[type, ...]:
    """Return the classes of what stays as it is in a copy."""
    if not torch.distributed.is_available():
        return type, FunctionType
    from torch.distributed.device_mesh import DeviceMesh

    return type, FunctionType, DeviceMesh, torch.distributed.ProcessGroup


def _over_untyped(storage: torch.UntypedStorage, *args: Any) -> torch.Tensor:
    """Make a tensor of a dtype that has no class of storages."""
    # What a pickle has as an untyped storage, torch loads as a typed one, and relies on it here.
    typed: Any = torch.storage.TypedStorage
    rebuild: Any = torch._utils._rebuild_tensor_v3
    made: torch.Tensor = rebuild(
        typed(wrap_storage=storage, dtype=torch.uint8, _internal=True), *args
    )
    return made


def _sharded_on_host(tensor: Any) -> Any:
    on_host = tensor.cpu()
    return copy.deepcopy(tensor) if on_host is tensor else on_host


@context
def _as_if_loaded_to_host() -> Iterator[None]:
    """Let tensors that have a device of their own, as DTensor, be made on the host.

    As `torch.load` does it, which has no public name for it.
    """
    of_thread: Any = getattr(torch.serialization, "_serialization_tls", None)
    if not hasattr(of_thread, "map_location"):  # older versions of torch
        of_thread = torch._utils._thread_local_state  # type: ignore[attr-defined]
    before = getattr(of_thread, "map_location", None)
    of_thread.map_location = "cpu"
    try:
        yield
    finally:
        of_thread.map_location = before
        torch._utils._validate_loaded_sparse_tensors()  # type: ignore[no-untyped-call]


def _add_key(error: Exception, state: Any) -> None:
    """Tell which of the values of `state` cannot be pickled."""
    if not isinstance(state, Mapping):
        return
    for key, value in state.items():
        try:
            _Pickled(state).dump(value)
        except Exception:
            add_note(error, f"while copying {key!r}")
            return
