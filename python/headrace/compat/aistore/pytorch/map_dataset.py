"""``aistore.pytorch.map_dataset``: names and contents by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.compat.aistore._reading import as_bytes, read_together
from headrace.compat.aistore.pytorch.base_map_dataset import AISBaseMapDataset

__all__ = ["AISMapDataset"]


class AISMapDataset(AISBaseMapDataset):
    """Objects by number: pairs of name and ``bytes``.

    All objects of a DataLoader's batch are read at the same time.

    Args:
        ais_source_list: as for `AISBaseMapDataset`.
        prefix_map: the same.
        etl_name: an ETL of the cluster that transforms each object.

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
    ) -> None:
        super().__init__(ais_source_list, prefix_map)
        self._etl_name = etl_name

    def __len__(self) -> int:
        return len(self._obj_list)

    def __getitem__(self, index: Any) -> tuple[str, bytes]:
        """Read one object; a negative index counts from the end.

        Raises:
            IndexError: the index is out of range.
            NotFoundError: the object was deleted after the listing.
        """
        sample: tuple[str, bytes] = self._read_batch([index])[0]
        return sample

    def _read_batch(self, indices: Sequence[int]) -> list[Any]:
        values = [self._at(index) for index in indices]
        contents = read_together(values, self._etl_name)
        contents.reverse()  # the memory of each is free when it is copied
        return [(value.name, as_bytes(contents.pop())) for value in values]
