"""``dataflux_pytorch.dataflux_iterable_dataset``: the objects of a bucket, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils import data

from headrace.compat import dataflux_core
from headrace.compat._datasets import (
    BucketDataset,
    CommonConfig,
    data_format_default,
)
from headrace.compat._retry import DATASET_RETRY

__all__ = [
    "CREATE",
    "DELETE",
    "FORK",
    "MODIFIED_RETRY",
    "Config",
    "DataFluxIterableDataset",
    "DatafluxIterableDataset",
    "data_format_default",
]

FORK = "fork"
CREATE = "storage.objects.create"
DELETE = "storage.objects.delete"
MODIFIED_RETRY = DATASET_RETRY


class Config(CommonConfig):
    """How an iterable dataset lists and reads; see `CommonConfig`."""


class DataFluxIterableDataset(BucketDataset, data.IterableDataset[Any]):
    """The objects of a bucket, listed when it is made, read in the order of their names.

    In a DataLoader worker it yields that worker's share: a contiguous slice of
    ``ceil(objects / workers)`` objects. It does not distinguish ranks.

    Args:
        project_name: the project, for a client made when the dataset is unpickled.
        bucket_name: the bucket.
        config: a `Config`, of this or of the map-style dataset.
        data_format_fn: called with each object's ``bytes``; its result is the sample.
        storage_client: a ``google.cloud.storage.Client``, whose account and endpoint the engine
            uses; or another object with its methods, which is used itself. Default: Application
            Default Credentials, or STORAGE_EMULATOR_HOST.

    `objects` is the list of ``(name, size)``, sorted by name.

    Raises:
        NotFoundError: there is no such bucket.
        PermissionError: objects are joined (HEADRACE_COMPOSE=1), and the account of
            `storage_client` has no permission for that.
    """

    def __init__(
        self,
        project_name: str,
        bucket_name: str,
        config: CommonConfig = Config(),  # noqa: B008 - the default that users know; nobody changes it
        data_format_fn: Callable[[Any], Any] = data_format_default,
        storage_client: Any = None,
    ) -> None:
        super().__init__(project_name, bucket_name, config, data_format_fn, storage_client)

    def __iter__(self) -> Iterator[Any]:
        """Read ahead, and yield the result of `data_format_fn` for each object.

        Raises:
            HeadraceError: an object cannot be read; the objects before it have been yielded.
        """
        objects = self.objects
        worker = data.get_worker_info()
        if worker is not None:
            share = math.ceil(len(objects) / worker.num_workers)
            objects = objects[worker.id * share : (worker.id + 1) * share]
        contents = dataflux_core.download.dataflux_download_lazy(
            project_name=self.project_name,
            bucket_name=self.bucket_name,
            objects=objects,
            storage_client=self.storage_client,
            dataflux_download_optimization_params=self.dataflux_download_optimization_params,
            retry_config=self.config.download_retry_config,
        )
        for each in contents:
            yield self.data_format_fn(each)

    @property
    def _dataflux_core(self) -> Any:
        return dataflux_core


DatafluxIterableDataset = DataFluxIterableDataset
