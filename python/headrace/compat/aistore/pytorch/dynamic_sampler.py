"""``aistore.pytorch.dynamic_sampler``: batches of as many samples as fit into a number of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from logging import getLogger
from typing import Any

import numpy
import torch
import torch.utils.data
from numpy.typing import NDArray

from headrace import InvalidArgumentError, _engine
from headrace.compat.aistore._objects import ObjectList, size_of, sizes_of

__all__ = ["SATURATION_FACTOR", "DynamicBatchSampler"]

SATURATION_FACTOR = 0.8

logger = getLogger(__name__)

# More samples without a place in any batch are counted together.
_MOST_WARNINGS = 10

_Indices = NDArray[numpy.int64]


class DynamicBatchSampler(torch.utils.data.Sampler[list[int]]):
    """Batches of as many samples as fit into a number of bytes, for a DataLoader's
    ``batch_sampler``.

    Samples keep their order, or come in the order that torch's global generator draws for each
    pass. A sample without bytes is left out, with a warning; so is one that exceeds the limit
    alone, unless `allow_oversized_samples`.

    ``len(sampler)`` is the number of samples, as with the original.

    Args:
        data_source: the dataset; its ``get_obj_list()`` tells the sizes.
        max_batch_size: how many bytes a batch may have.
        drop_last: leave out the last batch unless its bytes exceed `saturation_factor` of the
            limit.
        allow_oversized_samples: make a batch of its own of a sample that exceeds the limit.
        saturation_factor: from 0 to 1; see `drop_last`.
        shuffle: whether each pass has an order of its own, that of ``torch.randperm``, reversed.

    Raises:
        ValueError: `saturation_factor` or `max_batch_size` cannot work.

    Examples:
        >>> dataset = AISMapDataset("gs://bucket/train")
        >>> list(DynamicBatchSampler(dataset, max_batch_size=110_000))
        [[0, 1], [2]]
    """

    def __init__(
        self,
        data_source: Any,
        max_batch_size: float,
        drop_last: bool = False,
        allow_oversized_samples: bool = False,
        saturation_factor: float = SATURATION_FACTOR,
        shuffle: bool = False,
    ) -> None:
        super().__init__()
        if not 0 <= saturation_factor <= 1:
            raise ValueError("`saturation_factor` must be between 0 and 1")
        if math.isnan(max_batch_size):
            raise ValueError("`max_batch_size` is not a number")
        self._data_source = data_source
        self._max_batch_size = max_batch_size
        self._samples_list = data_source.get_obj_list()
        self._drop_last = drop_last
        self._allow_oversized_samples = allow_oversized_samples
        self._saturation_factor = saturation_factor
        self._shuffle = shuffle

    def __iter__(self) -> Iterator[list[int]]:
        """Begin a pass: yield lists of indices."""
        order, ends, left_out = self._batches(self._order())
        self._warn(left_out)
        indices, begin = order.tolist(), 0  # at once: in half of the time
        for end in ends:
            yield indices[begin:end]
            begin = end

    def __len__(self) -> int:
        return len(self._samples_list)

    def _order(self) -> _Indices:
        if self._shuffle:
            return torch.randperm(len(self), device="cpu").numpy()[::-1]
        return numpy.arange(len(self))

    # By numpy: torch would share such short work among threads, which costs more than it saves.
    def _batches(self, order: _Indices) -> tuple[_Indices, list[int], list[int]]:
        """Return the indices of all batches, where each batch ends, and what is in none."""
        limit = self._max_batch_size
        objects = self._samples_list
        sizes = (objects.sizes() if isinstance(objects, ObjectList) else sizes_of(objects))[order]
        unknown = order[sizes < 0]
        if len(unknown) > 0:
            raise InvalidArgumentError(f"the size of sample {int(unknown[0])} is not known")
        is_left_out = sizes == 0
        if self._allow_oversized_samples is not True:
            is_left_out |= sizes > limit
        kept = order[~is_left_out]
        costs = sizes[~is_left_out].astype(numpy.float64)
        positions, found, rest_bytes = _engine.packed_batches(costs, max(limit, 0.0))
        indices = kept[numpy.frombuffer(positions, numpy.int64)] if len(kept) else kept
        ends = found.tolist()
        # A limit of nothing is a ZeroDivisionError here, as users know it.
        if (
            rest_bytes / limit > self._saturation_factor
            if self._drop_last
            else len(indices) > (ends[-1] if ends else 0)
        ):
            ends.append(len(indices))
        return indices, ends, order[is_left_out].tolist()

    def _warn(self, left_out: list[int]) -> None:
        for index in left_out[:_MOST_WARNINGS]:
            sample = self._samples_list[index]
            size_bytes = size_of(sample)
            if size_bytes == 0:
                logger.warning(
                    "Sample %s cannot be processed as it has a size of 0 bytes", sample.name
                )
            else:
                logger.warning(
                    "Sample %s cannot be processed as it is larger than the max batch size: "
                    "%d bytes > %d bytes",
                    sample.name, size_bytes, self._max_batch_size,
                )  # fmt: skip
        if len(left_out) > _MOST_WARNINGS:
            logger.warning(
                "%d samples in all cannot be processed, being empty or larger than the max batch "
                "size", len(left_out),
            )  # fmt: skip
