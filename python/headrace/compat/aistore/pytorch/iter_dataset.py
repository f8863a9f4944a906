"""``aistore.pytorch.iter_dataset``: names and contents, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from headrace.compat.aistore._progress import shown
from headrace.compat.aistore._reading import as_bytes, read_in_order
from headrace.compat.aistore.pytorch.base_iter_dataset import AISBaseIterDataset

__all__ = ["AISIterDataset"]


class AISIterDataset(AISBaseIterDataset):
    """Objects one after the other: pairs of name and ``bytes``, read ahead.

    Args:
        ais_source_list: as for `AISBaseIterDataset`.
        prefix_map: the same.
        etl_name: an ETL of the cluster that transforms each object.
        show_progress: whether to show a bar of tqdm.
        partition_sources_by_worker: as for `AISBaseIterDataset`.

    Raises:
        ValueError: there is no source.

    Examples:
        >>> for name, content in AISIterDataset("gs://bucket/train"):
        ...     print(name, len(content))
        cat/001.jpg 52113
        cat/002.jpg 49210
        dog/001.jpg 48302
    """

    def __init__(
        self,
        ais_source_list: Any,
        prefix_map: dict[Any, Any] = {},  # noqa: B006 - the default that users know; only read
        etl_name: str | None = None,
        show_progress: bool = False,
        partition_sources_by_worker: bool = False,
    ) -> None:
        super().__init__(ais_source_list, prefix_map, partition_sources_by_worker)
        self._etl_name = etl_name
        self._show_progress = show_progress

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Begin a pass.

        Raises:
            NotFoundError: an object was deleted after the listing; those before it were yielded.
        """
        self._reset_iterator()
        objects, label = self._get_worker_iter_info()
        title = f"AISIterDataset{label}"
        with (
            closing(read_in_order(objects, self._etl_name)) as contents,
            closing(shown(contents, title, self._show_progress)) as samples,
        ):
            for value, content in samples:
                yield value.name, as_bytes(content)
