"""``aistore.pytorch.batch_iter_dataset``: names and contents, read batch by batch."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from headrace.compat.aistore._progress import shown
from headrace.compat.aistore._reading import as_bytes, read_in_order
from headrace.compat.aistore._sdk import is_client
from headrace.compat.aistore.pytorch.base_iter_dataset import AISBaseIterDataset

__all__ = ["AISBatchIterDataset"]

logger = logging.getLogger(__name__)

_SHARD_AWARE = 2


class AISBatchIterDataset(AISBaseIterDataset):
    """Objects one after the other: pairs of name and ``bytes``, read `max_batch_size` at a time.

    The engine asks for a batch by one request (GetBatch) where the cluster can answer it and that
    is quicker, and by single requests otherwise; it compares every object with what was listed.

    Args:
        ais_source_list: as for `AISBaseIterDataset`.
        client: a client of the SDK's. An object of another type makes the batches itself, by its
            method ``batch``. None: the sources alone say where the objects are.
        prefix_map: as for `AISBaseIterDataset`.
        show_progress: whether to show a bar of tqdm.
        max_batch_size: how many objects are read together.
        output_format: accepted; used by a client of another type.
        streaming: the same.
        colocation: the same. ``TARGET_AND_SHARD_AWARE`` is refused, as by the SDK.
        partition_sources_by_worker: as for `AISBaseIterDataset`.
        cont_on_err: whether to leave out objects that do not exist, with a warning for each.

    Raises:
        ValueError: there is no source.

    Examples:
        >>> for name, content in AISBatchIterDataset("gs://bucket/train", None):
        ...     print(name, len(content))
        cat/001.jpg 52113
        cat/002.jpg 49210
        dog/001.jpg 48302
    """

    def __init__(
        self,
        ais_source_list: Any,
        client: Any,
        prefix_map: dict[Any, Any] = {},  # noqa: B006 - the default that users know; only read
        show_progress: bool = False,
        max_batch_size: int = 32,
        output_format: str = ".tar",
        streaming: bool = True,
        colocation: Any = None,
        partition_sources_by_worker: bool = False,
        cont_on_err: bool = False,
    ) -> None:
        super().__init__(ais_source_list, prefix_map, partition_sources_by_worker)
        self.client = client
        self.max_batch_size = max_batch_size
        self.output_format = output_format
        self.streaming = streaming
        self._show_progress = show_progress
        self.colocation = _colocation() if colocation is None else colocation
        self.cont_on_err = cont_on_err

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Begin a pass.

        Raises:
            RuntimeError: an object does not exist, and not `cont_on_err`; those before it were
                yielded.
            NotImplementedError: `colocation` is one that no server has.
        """
        if self.colocation is not None and int(self.colocation) == _SHARD_AWARE:
            raise NotImplementedError("no server has Colocation.TARGET_AND_SHARD_AWARE yet")
        self._reset_iterator()
        objects, label = self._get_worker_iter_info()
        by_engine = self.client is None or is_client(self.client)
        contents = self._by_engine(objects) if by_engine else self._by_client(objects)
        title = f"AISBatchIterDataset{label}"
        with closing(contents), closing(shown(contents, title, self._show_progress)) as samples:
            yield from samples

    def _by_engine(self, objects: Iterable[Any]) -> Generator[tuple[str, bytes]]:
        missing = object()
        found = read_in_order(
            objects, block_objects=self.max_batch_size, block_bytes=None, missing=missing
        )
        with closing(found):
            for value, content in found:
                if content is not missing:
                    yield value.name, as_bytes(content)
                elif self.cont_on_err:
                    logger.warning("Skipping %s: there is no such object", value.name)
                else:
                    raise RuntimeError(f"{value.name}: there is no such object")

    def _by_client(self, objects: Iterable[Any]) -> Generator[tuple[str, bytes]]:
        left = iter(objects)
        while batch := list(islice(left, self.max_batch_size)):
            yield from self._process_batch(batch)

    def _process_batch(self, batch_objects: list[Any]) -> Iterator[tuple[str, bytes]]:
        """Yield what the client gives for a batch."""
        batch = self.client.batch(
            objects=batch_objects,
            output_format=self.output_format,
            streaming_get=self.streaming,
            colocation=self.colocation,
            cont_on_err=self.cont_on_err,
        )
        given = 0
        for told, data in batch.get():
            given += 1
            error = getattr(told, "err_msg", None)
            if not isinstance(error, str) or not error:
                yield told.obj_name, data
            elif self.cont_on_err:
                logger.warning("Skipping %s: %s", told.obj_name, error)
            else:
                raise RuntimeError(f"{told.obj_name}: {error}")
        if given != len(batch_objects):
            logger.warning(
                "a batch of %d objects has come with %d of them; the client said nothing of the "
                "others", len(batch_objects), given,
            )  # fmt: skip


def _colocation() -> Any:
    """Return the SDK's default, or None without the SDK."""
    try:
        return importlib.import_module("aistore.sdk.enums").Colocation.NONE
    except ImportError:
        return None
