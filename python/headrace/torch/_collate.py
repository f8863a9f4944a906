"""Make a batch of samples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate as collate_by
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from headrace._base.errors import InvalidArgumentError, add_note
from headrace._engine import Engine
from headrace.torch._batch_memory import given

__all__ = ["collate", "collate_in", "explain_unequal_sizes"]

# Makes a tensor of a shape whose numbers are yet to be written.
Empty = Callable[[Sequence[int], torch.dtype], torch.Tensor]

# From so many numbers on, torch gives its OpenMP threads shares of a copy, and waits spinning.
_SHARED_BY_TORCH = 32_768


def collate(samples: list[Any]) -> Any:
    """Make one batch of `samples`, like torch's ``default_collate``, with clearer errors.

    `Loader` uses it. With torch's DataLoader, pass it as ``collate_fn``: if samples have unequal
    sizes in a worker process, torch's own function only says that a storage cannot be resized.

    Raises:
        InvalidArgumentError: tensors to be stacked have unequal sizes; the message names them.

    Examples:
        >>> collate([(torch.zeros(3), 0), (torch.ones(3), 1)])[1]
        tensor([0, 1])
        >>> batches = DataLoader(dataset, batch_size=2, collate_fn=collate)
    """
    return _collate(samples, _from_the_system)


def collate_in(engine: Engine, samples: list[Any]) -> Any:
    """Do what `collate` does, with large tensors in memory that the engine uses again."""
    return _collate(samples, functools.partial(given, engine))


def _from_the_system(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu")


def _collate(samples: list[Any], empty: Empty) -> Any:
    def stack(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        stacked = _stacked(batch, empty)
        if stacked is None:
            return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        return stacked

    functions = default_collate_fn_map
    if functions.get(torch.Tensor) in (collate_tensor_fn, _collate_tensors):
        functions = {**functions, torch.Tensor: stack}
    try:
        return collate_by(samples, collate_fn_map=functions)
    except (RuntimeError, TypeError) as error:
        unequal = _unequal(samples)
        if unequal is None:
            raise
        raise unequal_sizes(*unequal) from error


def explain_unequal_sizes() -> None:
    """Let torch's ``default_collate`` add a note to its error about tensors of unequal sizes.

    headrace's datasets call this when they are made, in workers too. It changes the entry for
    tensors in torch's table of collate functions, unless somebody else has replaced it already.
    """
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _collate_tensors


def _collate_tensors(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    try:
        stacked: torch.Tensor = collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        return stacked
    except RuntimeError as error:
        unequal = _unequal(batch)
        if unequal is not None:
            add_note(error, str(unequal_sizes(*unequal)))
        raise


def _stacked(batch: list[torch.Tensor], empty: Empty) -> torch.Tensor | None:
    """Stack large batches in this thread; None: torch does it better, or has to say what is wrong.

    Beside other threads that make batches, and on a busy machine, those of torch cost a multiple of
    the copy.
    """
    first = batch[0]
    if first.numel() * len(batch) < _SHARED_BY_TORCH or get_worker_info() is not None:
        return None  # in a worker, torch has one thread, and stacks into shared memory
    shape, dtype = first.shape, first.dtype
    if not all(
        type(each) is torch.Tensor
        and each.is_cpu
        and each.dtype == dtype
        and each.shape == shape
        and each.is_contiguous()
        for each in batch
    ):
        return None
    try:
        stacked = empty((len(batch), *shape), dtype)
        into = stacked.numpy()
        for at, each in enumerate(batch):
            into[at] = each.numpy()
    except (RuntimeError, TypeError, MemoryError):
        return None  # a gradient, a type that NumPy does not have, or no memory, as torch will say
    return stacked


def unequal_sizes(where: str, sizes: Sequence[Sequence[int]]) -> InvalidArgumentError:
    """Return the error for tensors of `sizes`, at `where` in a sample, that do not stack."""
    first = tuple(sizes[0])
    other, at = next((tuple(s), i) for i, s in enumerate(sizes) if tuple(s) != first)
    return InvalidArgumentError(
        f"the samples of a batch have unequal sizes{where}: {list(first)} at place 0 and "
        f"{list(other)} at place {at} of {len(sizes)}; give a transform that makes them equal, or "
        "a collate_fn (collate_fn=list gives lists)"
    )


def _unequal(samples: Sequence[Any], where: str = "") -> tuple[str, list[torch.Size]] | None:
    """Find tensors of unequal sizes: return their place in a sample and the sizes."""
    first = samples[0]
    if isinstance(first, torch.Tensor):
        if not all(isinstance(each, torch.Tensor) for each in samples):
            return None
        sizes = [each.shape for each in samples]
        return None if all(size == sizes[0] for size in sizes) else (where, sizes)
    if isinstance(first, Mapping):
        places = [(f"[{key!r}]", key) for key in first]
    elif isinstance(first, tuple | list):
        places = [(f"[{i}]", i) for i in range(len(first))]
    else:
        return None
    for text, place in places:
        try:
            column = [each[place] for each in samples]
        except (KeyError, IndexError, TypeError):
            return None
        found = _unequal(column, f"{where or ' in sample'}{text}")
        if found is not None:
            return found
    return None
