"""DLIO's data loader, by `headrace.torch.Loader`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

from headrace import InvalidArgumentError
from headrace._store.location import is_local
from headrace.dlio._files import array_of, index_of
from headrace.torch import Loader, MapDataset

if TYPE_CHECKING:
    from headrace import Sample

__all__ = ["DataLoader"]


class DataLoader(BaseDataLoader):  # type: ignore[misc]
    """Batches of DLIO's files, read ahead by the engine.

    A batch is a list of `batch_size` samples. A sample of format ``npz``, ``npy``, ``jpeg`` or
    ``png`` is the array that DLIO's own reader makes of the file, and of other formats the file's
    bytes. Each file is read by one request, or by parallel ranges if it is large, and verified
    where the store has a checksum. A file of several samples is read once for all of them, and they
    stay together.

    From the workload, it takes `batch_size`, `read_threads` (threads that parse; there are no
    worker processes), `sample_shuffle` and `file_shuffle` (either shuffles the files),
    `train.seed`, `seed_change_epoch` and `preprocess_time`. How much is read ahead follows from the
    connections and from ``HEADRACE_MEMORY_BUDGET_BYTES``, so `prefetch_size` has no effect.

    Examples:
        In the YAML of a workload::

            reader:
              data_loader: pytorch
              data_loader_classname: headrace.dlio.DataLoader
              data_loader_sampler: none
    """

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)
        self._epoch = -1
        self._loader: Loader[list[list[Any]]] | None = None

    def read(self) -> None:
        """List the files, and get ready to read them.

        Raises:
            InvalidArgumentError: there are none.
            NotFoundError: one is gone.
        """
        args = self._args
        is_train = self.dataset_type is DatasetType.TRAIN
        index = index_of(args.file_list_train if is_train else args.file_list_eval)
        samples_per_file = args.num_samples_per_file
        transform = partial(
            _samples_of,
            file_format=str(self.format_type),
            count=samples_per_file,
            pause_s=(args.preprocess_time, args.preprocess_time_stdev),
        )
        self._loader = Loader(
            MapDataset(index, transform),
            max(1, self.batch_size // samples_per_file),
            shuffle=any(
                each is not Shuffle.OFF for each in (args.sample_shuffle, args.file_shuffle)
            ),
            seed=args.seed,
            drop_last=samples_per_file == 1,
            collate_fn=list,
            transform_threads=args.read_threads,
            seed_generators=False,
            rank=args.my_rank,
            world_size=args.comm_size,
        )

    def next(self) -> Iterator[list[Any]]:
        """Yield the batches of the next epoch on this rank: as many full ones as there are on each.

        Raises:
            InvalidArgumentError: there are fewer files than ranks.
        """
        self._epoch += 1
        loader = self._ready()
        loader.set_epoch(self._epoch if self._args.seed_change_epoch else 0)
        steps = self.num_samples // self.batch_size // self._args.comm_size
        batch: list[Any] = []
        while steps > 0:
            begun = steps, len(batch)
            for files in loader:
                for samples in files:
                    batch += samples
                while len(batch) >= self.batch_size and steps > 0:
                    yield batch[: self.batch_size]
                    del batch[: self.batch_size]
                    steps -= 1
                if steps == 0:
                    return
            # Files of several samples need not come out even: a rank goes on with what comes next.
            if begun == (steps, len(batch)):
                raise InvalidArgumentError(
                    f"there are fewer files than the {self._args.comm_size} ranks, and DLIO wants "
                    "a step of each: use more files, or fewer ranks"
                )

    def finalize(self) -> None:
        """End an epoch. Nothing is left to do: read-ahead ends with the iterator."""

    def _ready(self) -> Loader[list[list[Any]]]:
        if self._loader is None:
            self.read()
        assert self._loader is not None
        return self._loader


def _samples_of(
    sample: Sample, file_format: str, count: int, pause_s: tuple[float, float]
) -> list[Any]:
    """Return the samples of a file, each after DLIO's pause for preprocessing."""
    found = array_of(sample, file_format, is_verified=not is_local(sample.url))
    if pause_s != (0.0, 0.0):
        for _ in range(count):
            time.sleep(max(0.0, sample.rng().numpy.normal(*pause_s)))
    if count == 1:
        return [found]
    is_stacked = isinstance(found, numpy.ndarray) and file_format in ("npz", "npy")
    return [found[..., i] for i in range(count)] if is_stacked else [found] * count
