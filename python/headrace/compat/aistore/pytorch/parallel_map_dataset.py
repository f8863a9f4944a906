"""``aistore.pytorch.parallel_map_dataset``: large objects by number, each read by ranges."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from headrace import Sample
from headrace.compat.aistore._reading import read_together
from headrace.compat.aistore.pytorch.base_map_dataset import AISBaseMapDataset

__all__ = ["AISParallelMapDataset", "ParallelBuffer"]


class ParallelBuffer:
    """The content of an object, without a copy.

    It needs not be closed: its memory is an ordinary part of the process, and is freed with it. It
    pickles as a copy.

    Args:
        sample: the content.

    Examples:
        >>> name, buffer = AISParallelMapDataset("gs://bucket/train")[0]
        >>> with buffer:
        ...     print(len(buffer), bytes(buffer.buf[:3]))
        52113 b'JPG'
    """

    def __init__(self, sample: Sample) -> None:
        self._sample: Sample | None = sample
        self._size = len(sample)
        self._view: memoryview | None = None

    @property
    def buf(self) -> memoryview:
        """The content, as a writable view.

        Raises:
            ValueError: the buffer is closed.
        """
        if self._sample is None:
            raise ValueError("the buffer is closed")
        if self._view is None:
            self._view = memoryview(self._sample)
        return self._view

    def __len__(self) -> int:
        return self._size

    def tobytes(self) -> bytes:
        """Return a copy of the content.

        Raises:
            ValueError: the buffer is closed.

        Examples:
            >>> content = buffer.tobytes()
        """
        return bytes(self.buf)

    def close(self) -> None:
        """Free the memory now; a second call does nothing.

        Examples:
            >>> buffer.close()
        """
        if self._view is not None:
            self._view.release()
        self._view = self._sample = None

    def __enter__(self) -> ParallelBuffer:
        """Return the buffer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None}


class AISParallelMapDataset(AISBaseMapDataset):
    """Objects by number: pairs of name and `ParallelBuffer`.

    The engine reads large objects by parallel ranges, and all objects of a batch at the same time.

    Args:
        ais_source_list: as for `AISBaseMapDataset`.
        prefix_map: the same.
        num_workers: accepted; the engine chooses how many ranges are read at a time.

    Raises:
        ValueError: there is no source.

    Examples:
        >>> name, buffer = AISParallelMapDataset("gs://bucket/train")[0]
        >>> len(buffer)
        52113
    """

    def __init__(
        self,
        ais_source_list: Any = None,
        prefix_map: dict[Any, Any] | None = None,
        num_workers: int = 16,
    ) -> None:
        super().__init__(ais_source_list or [], prefix_map or {})
        self._num_workers = num_workers

    @property
    def num_workers(self) -> int:
        """What the dataset was made with."""
        return self._num_workers

    def __len__(self) -> int:
        return len(self._obj_list)

    def __getitem__(self, index: Any) -> tuple[str, Any]:
        """Read one object; a negative index counts from the end.

        Raises:
            IndexError: the index is out of range.
            NotFoundError: the object was deleted after the listing.
        """
        return self._read([self._at(index)])[0]

    def _read_batch(self, indices: Sequence[int]) -> list[Any]:
        return self._read([self._at(index) for index in indices])

    def _read(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        found = read_together(values, num_workers=self._num_workers)
        return [
            (value.name, ParallelBuffer(each) if isinstance(each, Sample) else each)
            for value, each in zip(values, found, strict=True)
        ]
