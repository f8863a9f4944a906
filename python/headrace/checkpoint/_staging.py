"""A copy of a state in host memory, so that training can continue."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from headrace.checkpoint._device_copies import Copies, DeviceCopies, flat

__all__ = ["copy_to_host"]


def copy_to_host(state: Any, copies_of: Callable[[torch.device], Copies] = DeviceCopies) -> Any:
    """Return a copy of `state`, with all tensors in host memory.

    Tensors that share a storage share one in the copy, so tied weights take no more memory. Copies
    from a GPU go to pinned memory; all of them start before the first one is awaited.

    Args:
        state: dicts, lists and tuples of tensors and other values, however deep.
        copies_of: returns the copies from a device.
    """
    staging = _Staging(copies_of)
    with torch.no_grad():
        staged = staging.of(state)
    for wait in staging.under_way:
        wait()
    return staged


@dataclass
class _Staging:
    """One copy in progress."""

    copies_of: Callable[[torch.device], Copies]
    under_way: list[Callable[[], object]] = field(default_factory=list)
    storages: dict[tuple[str, int, int], torch.UntypedStorage] = field(default_factory=dict)

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            staged = {key: self.of(each) for key, each in value.items()}
            if type(value) is dict:
                return staged
            made = copy.copy(value)  # keeps the type, and attributes besides its items
            for key, each in staged.items():
                made[key] = each
            return made
        if isinstance(value, list):
            items = [self.of(each) for each in value]
            return items if type(value) is list else type(value)(items)
        if isinstance(value, tuple):
            items = [self.of(each) for each in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return copy.deepcopy(value)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        is_wrapper: bool = is_traceable_wrapper_subclass(tensor)
        if is_wrapper:
            # Such as DTensor, which names its own parts.
            return self._wrapper(tensor.detach())
        if hasattr(tensor, "local_shards"):  # ShardedTensor, which FSDP1 makes
            on_host: torch.Tensor = tensor.cpu()
            return copy.deepcopy(tensor) if on_host is tensor else on_host
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter)
            or tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.device.type == "meta"
        ):
            return tensor.detach().cpu().clone()
        copied = torch.empty(0, dtype=tensor.dtype, device="cpu").set_(
            self._storage(tensor), tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        if tensor.is_conj():
            copied = copied.conj()
        if tensor.is_neg():
            copied = torch._neg_view(copied)
        return copied

    def _wrapper(self, outer: Any) -> torch.Tensor:
        names, context = outer.__tensor_flatten__()
        inner = {name: self._part(getattr(outer, name)) for name in names}
        made: torch.Tensor = type(outer).__tensor_unflatten__(
            inner, context, outer.size(), outer.stride()
        )
        return made

    def _part(self, part: Any) -> Any:
        """Stage a part of a tensor if it is a tensor; a mesh of devices, say, is kept."""
        return self._tensor(part) if isinstance(part, torch.Tensor) else part

    def _storage(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        """Return the copy of the whole storage of `tensor`; each storage is copied once."""
        source = tensor.untyped_storage()
        key = (str(tensor.device), source.data_ptr(), source.nbytes())
        staged = self.storages.get(key) if source.nbytes() else None
        if staged is None:
            copies = self.copies_of(tensor.device)
            into = copies.empty(source.nbytes())
            self.under_way.append(copies.start(into, flat(source)))
            staged = self.storages[key] = into.untyped_storage()
        return staged
