"""``aistore.pytorch.map_dataset``: names and contents by number."""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from headrace.compat._even_batches import EvenBatches
from headrace.compat.aistore._reading import read_batches, read_one
from headrace.compat.aistore.pytorch.base_map_dataset import AISBaseMapDataset

__all__ = ["AISMapDataset"]


class AISMapDataset(AISBaseMapDataset):
    """Objects by number: pairs of name and ``bytes``.

    A DataLoader's batch is read by one call of the engine, all objects at the same time; if the
    DataLoader does not shuffle, the next batches are read ahead.

    Args:
        ais_source_list: as for `AISBaseMapDataset`.
        prefix_map: the same.
        etl_name: an ETL of the cluster that transforms each object.
        expected_count: as for `AISBaseMapDataset`.

    Raises:
        ValueError: there is no source.

    Examples:
        >>> dataset = AISMapDataset("gs://bucket/train")
        >>> name, content = dataset[0]
        >>> name, len(content)
        ('cat/001.jpg', 52113)
    """

    def __init__(
        self,
        ais_source_list: Any = [],  # noqa: B006 - the default that users know; only read
        prefix_map: dict[Any, Any] = {},  # noqa: B006
        etl_name: str | None = None,
        *,
        expected_count: int | None = None,
    ) -> None:
        super().__init__(ais_source_list, prefix_map, expected_count=expected_count)
        self._etl_name = etl_name

    def __len__(self) -> int:
        return len(self._obj_list)

    def __getitem__(self, index: Any) -> tuple[str, bytes]:
        """Read one object; a negative index counts from the end.

        Raises:
            IndexError: the index is out of range.
            NotFoundError: the object was deleted after the listing.
        """
        value = self._at(index)
        return value.name, read_one([value], self._etl_name)[0]

    def _read_batch(self, indices: Sequence[int]) -> list[Any]:
        values = [self._at(index) for index in indices]
        contents = self._even_batches.read(
            list(indices), range(len(self._obj_list)), self._read_batches,
            (self._obj_list, self._etl_name),
        )  # fmt: skip
        return [(value.name, content) for value, content in zip(values, contents, strict=True)]

    @functools.cached_property
    def _even_batches(self) -> EvenBatches[int]:
        return EvenBatches()

    def _read_batches(self, batches: Iterable[Sequence[int]]) -> Generator[list[bytes]]:
        values = ([self._obj_list[index] for index in batch] for batch in batches)
        return read_batches(values, self._etl_name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_even_batches": EvenBatches()}
