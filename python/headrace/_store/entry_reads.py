"""Reads of the entries of an index, each of them an object or a range of one."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._engine import ObjectIndex

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["EntryReads"]


class EntryReads:
    """Entries that are being read together, and arrive in the length that the index says.

    A server answers a range that ends behind its object with what there is. The engine accepts
    that, as `Store.read` does; an entry of an index is a certain number of bytes.
    """

    def __init__(
        self, batch: _engine.Batch, index: ObjectIndex, indices: Buffer | Sequence[int]
    ) -> None:
        self._batch = batch
        self._index = index
        self._indices: Any = indices

    def cancel(self) -> None:
        """Ask for an early end."""
        self._batch.cancel()

    def drain(self) -> None:
        """Cancel, and wait until the engine is done with it."""
        self._batch.drain()

    def poll(self, at_most_s: float) -> bool:
        """Wait at most so long, and at most 50 ms; return whether all entries are there."""
        return self._batch.poll(at_most_s)

    def wait(self) -> None:
        """Wait for all entries; raise the first error."""
        self._batch.wait()

    def take(self, *, return_errors: bool) -> list[Any]:
        """Wait, and return a sample for each entry, or the error in its place.

        Raises:
            InvalidArgumentError: a range ends behind its object.
        """
        samples: list[Any] = self._batch.take(return_errors=return_errors)
        sizes = self._index.sizes(self._indices)
        for at, (size_bytes, sample) in enumerate(zip(sizes, samples, strict=True)):
            if isinstance(sample, Exception) or len(sample) == size_bytes:
                continue
            entry = operator.index(self._indices[at])
            span = self._index.range(entry)
            if span is None:
                continue  # an object's size may be unknown, have changed, or be that of its gzip
            error = InvalidArgumentError(
                f"{sample.url}: entry {entry} of the index is the range [{span[0]}, {span[1]}), "
                f"and only {len(sample)} bytes of it are in the object"
            )
            error.url = sample.url
            if not return_errors:
                raise error
            samples[at] = error
        return samples
