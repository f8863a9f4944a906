"""DLIO's reader of one file, by `headrace.Store.read`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from dlio_benchmark.reader.reader_handler import FormatReader

from headrace._store.location import is_local, object_at
from headrace.dlio._files import array_of

__all__ = ["Reader"]


class Reader(FormatReader):  # type: ignore[misc]
    """Reads the files of DLIO's own data loaders, one after the other in each worker.

    It replaces the readers of all formats. Only `DataLoader` reads ahead: DLIO's loaders ask for
    one file at a time.

    Examples:
        In the YAML of a workload::

            reader:
              data_loader: pytorch
              reader_classname: headrace.dlio.Reader
    """

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int = 0) -> None:
        super().__init__(dataset_type, thread_index)

    @cached_property
    def _urls(self) -> dict[str, str]:
        """The files as DLIO lists them, by what its maps make of them: the path of a URL's text."""
        return {os.path.abspath(name): name for name in self._file_list}

    def open(self, filename: str) -> Any:
        """Read and parse one file.

        Raises:
            NotFoundError: it is gone.
            CorruptDataError: it is not what was written, or none of the workload's format.
        """
        super().open(filename)
        store, name = object_at(self._urls.get(filename, filename))
        is_verified = not is_local(store.url)
        return array_of(store.read(name), str(self._args.format), is_verified=is_verified)

    def close(self, filename: str) -> None:
        """Forget the file."""
        super().close(filename)

    def get_sample(self, filename: str, sample_index: int) -> None:
        """Do nothing more: `open` has read the whole file."""
        super().get_sample(filename, sample_index)

    def next(self) -> Iterator[Any]:
        """Yield the batches of this thread's files."""
        yield from super().next()

    def read_index(self, global_sample_idx: int, step: int) -> Any:
        """Read the file of one sample."""
        return super().read_index(global_sample_idx, step)

    def finalize(self) -> None:
        """Forget all files."""
        self.open_file_map.clear()

    def is_index_based(self) -> bool:
        """Return True: samples can be read by number."""
        return True

    def is_iterator_based(self) -> bool:
        """Return True: batches can be read in turn."""
        return True
