"""The common parts of both kinds of dataset."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, MutableSequence
from typing import Any

from headrace import InvalidArgumentError, NotFoundError, PermissionDeniedError
from headrace.compat._buckets import compose_options
from headrace.compat._clients import PickledClient, make_google_client, settings_of
from headrace.compat._objects import NameAndSize
from headrace.compat._retry import DATASET_RETRY

__all__ = [
    "DEFAULT_PROCESSES",
    "BucketDataset",
    "CommonConfig",
    "data_format_default",
    "list_with_retries",
    "require_permission_to_compose",
]

DEFAULT_PROCESSES = os.cpu_count() or 1

_logger = logging.getLogger(__name__)

_PERMISSIONS = ("storage.objects.create", "storage.objects.delete")

# Errors that a retry cannot cure.
_PERMANENT = (InvalidArgumentError, NotFoundError, PermissionDeniedError)

Listing = MutableSequence[NameAndSize]


def data_format_default(data: Any) -> Any:
    """Return the bytes unchanged."""
    return data


class CommonConfig:
    """The common part of both kinds of `Config`: plain attributes, to be changed until a dataset is
    made.

    Args:
        sort_listing_results: accepted; the listing is always sorted.
        max_composite_object_size: bytes of an object composed of small ones, at most; 0: none. They
            are composed only if HEADRACE_COMPOSE is 1.
        num_processes: accepted; listing needs no processes.
        prefix: the beginning of the names; None: all names.
        max_listing_retries: how often a failed listing is tried, at most.
        disable_compose: sets `max_composite_object_size` to 0.
        list_retry_config: the retry policy of the listing's requests, of google-api-core; None: no
            retry.
        download_retry_config: the same for reads.
    """

    def __init__(
        self,
        sort_listing_results: bool = False,
        max_composite_object_size: int = 100000000,
        num_processes: int = DEFAULT_PROCESSES,
        prefix: str | None = None,
        max_listing_retries: int = 3,
        disable_compose: bool = False,
        list_retry_config: Any = DATASET_RETRY,
        download_retry_config: Any = DATASET_RETRY,
    ) -> None:
        self.sort_listing_results = sort_listing_results
        self.max_composite_object_size = 0 if disable_compose else max_composite_object_size
        self.num_processes = num_processes
        self.prefix = prefix
        self.max_listing_retries = max_listing_retries
        self.list_retry_config = list_retry_config
        self.download_retry_config = download_retry_config


def require_permission_to_compose(dataset: Any) -> None:
    """Where objects are composed, raise unless the account has permission for that.

    It asks only through a client of Google's that was given. Otherwise the first refusal
    gives a warning, and objects are read one by one.

    Raises:
        PermissionError: it has no permission.
    """
    client = dataset.storage_client
    composes = compose_options(dataset.dataflux_download_optimization_params) is not None
    if not composes or client is None or settings_of(client) is None:
        return
    granted = client.bucket(dataset.bucket_name).test_iam_permissions(list(_PERMISSIONS))
    missing = [each for each in _PERMISSIONS if each not in granted]
    if missing:
        raise PermissionError(
            f"gs://{dataset.bucket_name}: HEADRACE_COMPOSE=1 needs {' and '.join(missing)}; "
            "without it, or with disable_compose=True, objects are read directly and nothing is "
            "written"
        )


def list_with_retries(dataset: Any, make_controller: Callable[..., Any]) -> Listing:
    """List the dataset's bucket, in up to ``max_listing_retries`` attempts.

    Each error is logged, and the last one is raised; a permanent error is raised at once.
    """
    config: CommonConfig = dataset.config
    last_error: Exception | None = None
    for _ in range(config.max_listing_retries):
        controller = make_controller(
            max_parallelism=config.num_processes,
            project=dataset.project_name,
            bucket=dataset.bucket_name,
            sort_results=config.sort_listing_results,
            prefix=config.prefix or "",
            retry_config=config.list_retry_config,
        )
        controller.client = dataset.storage_client
        try:
            listing: Listing = controller.run()
            return listing
        except _PERMANENT:
            raise
        except Exception as error:
            _logger.error("listing gs://%s failed: %s", dataset.bucket_name, error)
            last_error = error
    if last_error is None:
        raise ValueError(
            f"max_listing_retries is {config.max_listing_retries}; it must be at least 1"
        )
    raise last_error


class BucketDataset:
    """The base of both kinds of dataset: the listed objects, and how to read them.

    It pickles together with the settings of its ``storage_client``.

    ``__getstate__`` and ``__setstate__`` behave as users know and override them: the state has no
    client, and a state without one gets a new default client.
    """

    def __init__(
        self,
        project_name: str,
        bucket_name: str,
        config: Any,
        data_format_fn: Callable[[Any], Any],
        storage_client: Any,
    ) -> None:
        super().__init__()
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.data_format_fn = data_format_fn
        self.config = config
        self.storage_client = storage_client
        core = self._dataflux_core
        self.dataflux_download_optimization_params = (
            core.download.DataFluxDownloadOptimizationParams(config.max_composite_object_size)
        )
        if storage_client is not None:
            core.user_agent.add_dataflux_user_agent(storage_client)
        require_permission_to_compose(self)
        self.objects = self._list_GCS_blobs_with_retry()

    @property
    def _dataflux_core(self) -> Any:
        """The ``dataflux_core`` of the dataset's own module, which users may replace."""
        raise NotImplementedError

    def _list_GCS_blobs_with_retry(self) -> Any:
        return list_with_retries(self, self._dataflux_core.fast_list.ListingController)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("storage_client", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "storage_client" not in state:
            self.storage_client = make_google_client(self.project_name)
        elif isinstance(state["storage_client"], PickledClient):
            self.storage_client = state["storage_client"].restore()

    def __reduce__(self) -> tuple[Any, ...]:
        state = {**self.__getstate__(), "storage_client": PickledClient(self.storage_client)}
        return _new, (type(self),), state


def _new(dataset_type: type) -> Any:
    return object.__new__(dataset_type)
