"""Which bytes of a tensor an index such as ``[0:10, :]`` needs, as few runs without large gaps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from types import EllipsisType

from headrace._base.contexts import context
from headrace.checkpoint._object import refused

__all__ = ["MAX_GAP_BYTES", "Index", "Selection", "about_index", "require_index", "select"]

MAX_GAP_BYTES = 64 << 10
"""The longest gap between wanted bytes that a request reads and drops.

Beyond the round trip, a request costs about as much as so many bytes.
"""

Index = int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]
"""What stands between the brackets: numbers, slices with steps above 0, and ``...``."""


@dataclass(frozen=True)
class _Axis:
    """What is taken of one dimension."""

    begin: int
    count: int
    step: int


@dataclass(frozen=True)
class Selection:
    """The runs of bytes to read, and how the selected elements lie in them.

    The runs are read one behind the other. `torch.as_strided` with `shape`, `strides` (in
    elements) and an offset of 0 gives the selected elements of what was read.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    run_bytes: int
    begins: tuple[int, ...]
    """Where each run begins, in bytes from the beginning of the tensor, in rising order."""


def select(shape: Sequence[int], element_bytes: int, index: Index, max_gap_bytes: int) -> Selection:
    """Return what to read for ``tensor[index]``.

    Args:
        shape: of the tensor.
        element_bytes: of one element.
        index: what is wanted of it.
        max_gap_bytes: bytes between two wanted elements that are read rather than left out.

    Raises:
        IndexError: a number is outside of its dimension, or there are more than dimensions.
        ValueError: a step is not above 0.
        TypeError: it is something else than numbers, slices and ``...``.
    """
    axes, is_kept = _axes(shape, index)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    result_shape = tuple(axis.count for axis, kept in zip(axes, is_kept, strict=True) if kept)
    if 0 in (axis.count for axis in axes):
        return Selection(result_shape, (1,) * len(result_shape), 0, ())
    # The elements from the first to the last wanted one of the dimensions from `inner` on are one
    # run, as long as what is wanted lies close together.
    inner, span = len(axes), 1
    while inner > 0:
        axis = axes[inner - 1]
        gap = strides[inner - 1] * axis.step - span
        if axis.count > 1 and gap * element_bytes > max_gap_bytes:
            break
        inner -= 1
        span += (axis.count - 1) * axis.step * strides[inner]
    base = sum(axis.begin * stride for axis, stride in zip(axes, strides, strict=True))
    steps = [axis.step * stride for axis, stride in zip(axes, strides, strict=True)]
    begins = tuple(
        (base + sum(step * i for step, i in zip(steps, place, strict=False))) * element_bytes
        for place in itertools.product(*(range(axis.count) for axis in axes[:inner]))
    )
    read_strides = [
        span * math.prod(axis.count for axis in axes[i + 1 : inner]) if i < inner else steps[i]
        for i in range(len(axes))
    ]
    return Selection(
        result_shape,
        tuple(stride for stride, kept in zip(read_strides, is_kept, strict=True) if kept),
        span * element_bytes,
        begins,
    )


def require_index(shape: Sequence[int], index: Index) -> None:
    """Raise what `select` would raise."""
    _axes(shape, index)


@context
def about_index(url: str, key: str, index: object) -> Iterator[None]:
    """Turn what `select` raises into an error that names the tensor."""
    try:
        yield
    except (IndexError, TypeError, ValueError) as error:
        raise refused(url, f"{index!r} is no index of the tensor {key!r}: {error}") from None


def _axes(shape: Sequence[int], index: Index) -> tuple[list[_Axis], list[bool]]:
    """Return what is taken of each dimension, and whether the dimension stays."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index has one '...' at most")
    missing = len(shape) - (len(parts) - len(dots))
    if missing < 0:
        raise IndexError(f"{len(parts) - len(dots)} indices for {len(shape)} dimensions")
    at = dots[0] if dots else len(parts)
    parts[at : at + len(dots)] = [slice(None)] * missing
    axes: list[_Axis] = []
    is_kept: list[bool] = []
    for part, size in zip(parts, shape, strict=True):
        if isinstance(part, slice):
            if part.step is not None and part.step <= 0:
                raise ValueError("the step of a slice must be above 0")
            taken = range(size)[part]
            # The step of one element is of no use, and may be larger than any stride of torch.
            axes.append(_Axis(taken.start, len(taken), taken.step if len(taken) > 1 else 1))
        elif (number := _number(part)) is not None:
            if not -size <= number < size:
                raise IndexError(f"index {number} is outside of a dimension of {size}")
            axes.append(_Axis(number % size, 1, 1))
        else:
            raise TypeError(f"{part!r} is no number, no slice, and not '...'")
        is_kept.append(isinstance(part, slice))
    return axes, is_kept


def _number(part: object) -> int | None:
    # Those of numpy, too; a bool means something else as an index.
    if isinstance(part, bool) or not isinstance(part, Integral):
        return None
    return int(part)
