"""``dataflux_pytorch.dataflux_mapstyle_dataset``: the objects of a bucket, by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils import data

from headrace.compat import dataflux_core
from headrace.compat._datasets import (
    DEFAULT_PROCESSES,
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
    "DataFluxMapStyleDataset",
    "DatafluxMapStyleDataset",
    "data_format_default",
]

FORK = "fork"
CREATE = "storage.objects.create"
DELETE = "storage.objects.delete"
MODIFIED_RETRY = DATASET_RETRY


class Config(CommonConfig):
    """How a map-style dataset lists and reads; see `CommonConfig` for the other arguments.

    Args:
        threads_per_process: accepted; the number of threads that read through a client of another
            kind.
    """

    def __init__(
        self,
        sort_listing_results: bool = False,
        max_composite_object_size: int = 100000000,
        num_processes: int = DEFAULT_PROCESSES,
        prefix: str | None = None,
        max_listing_retries: int = 3,
        threads_per_process: int = 1,
        disable_compose: bool = False,
        list_retry_config: Any = MODIFIED_RETRY,
        download_retry_config: Any = MODIFIED_RETRY,
    ) -> None:
        super().__init__(
            sort_listing_results,
            max_composite_object_size,
            num_processes,
            prefix,
            max_listing_retries,
            disable_compose,
            list_retry_config,
            download_retry_config,
        )
        self.threads_per_process = threads_per_process


class DataFluxMapStyleDataset(BucketDataset, data.Dataset[Any]):
    """The objects of a bucket, listed when it is made, read by index.

    Args:
        project_name: the project, for a client made when the dataset is unpickled.
        bucket_name: the bucket.
        config: see `Config`.
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
        config: Config = Config(),  # noqa: B008 - the default that users know; nobody changes it
        data_format_fn: Callable[[Any], Any] = data_format_default,
        storage_client: Any = None,
    ) -> None:
        super().__init__(project_name, bucket_name, config, data_format_fn, storage_client)

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, idx: Any) -> Any:
        """Read one object; a negative index counts from the end.

        Raises:
            IndexError: the index is out of range.
            HeadraceError: the object cannot be read.
        """
        if isinstance(idx, slice):
            raise TypeError("a dataset has no slices: ask for one index, or for several at once")
        return self.data_format_fn(
            dataflux_core.download.download_single(
                storage_client=self.storage_client,
                bucket_name=self.bucket_name,
                object_name=self.objects[idx][0],
                retry_config=self.config.download_retry_config,
            )
        )

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read the objects of a batch at once, in the order of `indices`.

        Raises:
            HeadraceError: an object cannot be read; it is the error of the first such object.
        """
        contents = dataflux_core.download.dataflux_download_threaded(
            project_name=self.project_name,
            bucket_name=self.bucket_name,
            objects=[self.objects[idx] for idx in indices],
            storage_client=self.storage_client,
            dataflux_download_optimization_params=self.dataflux_download_optimization_params,
            threads=self.config.threads_per_process,
            retry_config=self.config.download_retry_config,
        )
        return [self.data_format_fn(each) for each in contents]

    @property
    def _dataflux_core(self) -> Any:
        return dataflux_core


DatafluxMapStyleDataset = DataFluxMapStyleDataset
