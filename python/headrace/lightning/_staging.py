"""A copy of a checkpoint in host memory, beside which training goes on."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["copy_to_host"]


class _Device(Protocol):
    """What is asked of a device other than the CPU; a test has its own."""

    def empty(self, size_bytes: int) -> torch.Tensor:
        """Return host memory, one-dimensional ``uint8``, that the device can write to."""

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Begin to copy."""

    def wait(self) -> None:
        """Return when all copies are complete."""


class _Cuda:
    def empty(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def wait(self) -> None:
        torch.cuda.synchronize()


@dataclass
class _Copies:
    device: _Device | None
    storages: dict[tuple[str, int, int], torch.UntypedStorage]

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter)
            or tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.device.type == "meta"
        ):
            return tensor.detach().cpu().clone()
        # Whole storages, each once: tied weights stay tied, and take no more room than they did.
        source = tensor.untyped_storage()
        key = (str(tensor.device), source.data_ptr(), source.nbytes())
        storage = self.storages.get(key) if source.nbytes() else None
        if storage is None:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(source)
            if tensor.device.type == "cpu" or self.device is None:
                storage = flat.cpu().clone().untyped_storage()
            else:
                target = self.device.empty(source.nbytes())
                self.device.copy(flat, target)
                storage = target.untyped_storage()
            self.storages[key] = storage
        copied = torch.empty(0, dtype=tensor.dtype).set_(
            storage, tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        if tensor.is_conj():
            copied = copied.conj()
        if tensor.is_neg():
            copied = torch._neg_view(copied)
        return copied


def copy_to_host(checkpoint: Any, device: _Device | None = None) -> Any:
    """Return `checkpoint` with all its tensors copied to host memory, and its containers new.

    Of several tensors that share a storage, the copies share one. From a GPU the copies go to
    pinned memory, are begun all together, and awaited once.
    """
    if device is None and torch.cuda.is_available():
        device = _Cuda()
    copies = _Copies(device, {})
    made = _mapped(checkpoint, copies)
    if device is not None:
        device.wait()
    return made


def _mapped(value: Any, copies: _Copies) -> Any:
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            return copies.of(value)
    if isinstance(value, dict):
        mapped = {key: _mapped(each, copies) for key, each in value.items()}
        if type(value) is dict:
            return mapped
        made = copy.copy(value)  # keeps the type, and what it has besides its items
        for key, each in mapped.items():
            made[key] = each
        return made
    if isinstance(value, list):
        items = [_mapped(each, copies) for each in value]
        return items if type(value) is list else type(value)(items)
    if isinstance(value, tuple):
        items = [_mapped(each, copies) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
