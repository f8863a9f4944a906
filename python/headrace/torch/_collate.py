"""Samples into a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from headrace._errors import InvalidArgumentError

__all__ = ["collate", "explain_unequal_sizes"]


def collate(samples: list[Any]) -> Any:
    """Make one batch of `samples`, as torch's ``default_collate``, and say it if that cannot be.

    It is what `Loader` uses. With torch's DataLoader, give it as ``collate_fn``: torch's own says
    of unequal sizes in a worker process only that some storage cannot be resized.

    Raises:
        InvalidArgumentError: tensors that should be stacked have unequal sizes; which, it says.

    Examples:
        >>> collate([(torch.zeros(3), 0), (torch.ones(3), 1)])[1]
        tensor([0, 1])
        >>> batches = DataLoader(dataset, batch_size=2, collate_fn=collate)
    """
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        unequal = _unequal(samples)
        if unequal is None:
            raise
        raise unequal_sizes(*unequal) from error


def explain_unequal_sizes() -> None:
    """Let torch's ``default_collate`` add a note to its error about tensors of unequal sizes.

    Datasets of ours call it when they are made, also in workers. It goes through the table in which
    torch lets anybody say how a type is collated; a function that is not torch's own stays.
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
            error.add_note(str(unequal_sizes(*unequal)))
        raise


def unequal_sizes(where: str, sizes: Sequence[Sequence[int]]) -> InvalidArgumentError:
    """Return the error that says that tensors of `sizes`, at `where` in a sample, do not stack."""
    first = tuple(sizes[0])
    other, at = next((tuple(s), i) for i, s in enumerate(sizes) if tuple(s) != first)
    return InvalidArgumentError(
        f"the samples of a batch have unequal sizes{where}: {list(first)} at place 0 and "
        f"{list(other)} at place {at} of {len(sizes)}; give a transform that makes them equal, or "
        "a collate_fn (collate_fn=list gives lists)"
    )


def _unequal(samples: Sequence[Any], where: str = "") -> tuple[str, list[torch.Size]] | None:
    """Find tensors that should have equal sizes and have not: where in a sample, and the sizes."""
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
