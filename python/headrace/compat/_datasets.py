"""What the two kinds of dataset have in common."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, MutableSequence
from typing import Any

from headrace import InvalidArgumentError, NotFoundError, PermissionDeniedError
from headrace.compat._clients import PickledClient, make_google_client, settings_of
from headrace.compat._objects import NameAndSize
from headrace.compat._retry import DATASET_RETRY

__all__ = [
    "DEFAULT_PROCESSES",
    "BucketDataset",
    "CommonConfig",
    "data_format_default",
    "download_params",
    "list_with_retries",
    "require_permission_to_join",
]

DEFAULT_PROCESSES = os.cpu_count() or 1

_logger = logging.getLogger(__name__)

_PERMISSIONS = ("storage.objects.create", "storage.objects.delete")

# Asking once more changes nothing.
_PERMANENT = (InvalidArgumentError, NotFoundError, PermissionDeniedError)

Listing = MutableSequence[NameAndSize]


def data_format_default(data: Any) -> Any:
    """Return what was read as it is."""
    return data


class CommonConfig:
    """What the `Config` of both kinds of dataset has. Plain attributes, to be changed until a
    dataset is made of them.

    Args:
        sort_listing_results: accepted; the order is sorted always.
        max_composite_object_size: bytes of an object that small ones are joined to, at most; 0:
            none is.
        num_processes: accepted; listing needs no processes.
        prefix: names begin with it; None: all.
        max_listing_retries: how often a listing that failed is made again, at most.
        disable_compose: sets `max_composite_object_size` to 0.
        list_retry_config: how requests of the listing are retried: a policy of google-api-core,
            or None for no retry.
        download_retry_config: the same for reads.
        use_compose: join small objects on the server; default: only if HEADRACE_COMPOSE is 1.
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
        *,
        use_compose: bool | None = None,
    ) -> None:
        self.sort_listing_results = sort_listing_results
        self.max_composite_object_size = 0 if disable_compose else max_composite_object_size
        self.num_processes = num_processes
        self.prefix = prefix
        self.max_listing_retries = max_listing_retries
        self.list_retry_config = list_retry_config
        self.download_retry_config = download_retry_config
        self.use_compose = use_compose


def download_params(config: CommonConfig, make_params: Callable[..., Any]) -> Any:
    """Return the ``DataFluxDownloadOptimizationParams`` of `config`, made by `make_params`."""
    return make_params(config.max_composite_object_size, use_compose=_use_compose(config))


def _use_compose(config: Any) -> bool | None:
    # Who brings a class of their own wrote it for the original.
    use_compose: bool | None = getattr(config, "use_compose", None)
    return use_compose


def require_permission_to_join(dataset: Any) -> None:
    """Raise unless the account may join objects, if `dataset` is told to by ``use_compose=True``.

    It is asked only of a client of Google's that was given. Who is not asked is warned by the
    first read that is refused, and reads one by one.

    Raises:
        PermissionError: it must not.
    """
    client = dataset.storage_client
    is_demanded = _use_compose(dataset.config) and (
        dataset.dataflux_download_optimization_params.use_compose
    )
    if not is_demanded or client is None or settings_of(client) is None:
        return
    granted = client.bucket(dataset.bucket_name).test_iam_permissions(list(_PERMISSIONS))
    missing = [each for each in _PERMISSIONS if each not in granted]
    if missing:
        raise PermissionError(
            f"gs://{dataset.bucket_name}: use_compose=True needs {' and '.join(missing)}; without "
            "it, or with disable_compose=True, objects are read directly and nothing is written"
        )


def list_with_retries(dataset: Any, make_controller: Callable[..., Any]) -> Listing:
    """Return what a listing of the dataset's bucket gave, made up to ``max_listing_retries`` times.

    Each error is logged and the last one is raised; one that cannot go away is raised at once.
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
    """What both kinds of dataset are made of: the listed objects, and how they are read.

    It pickles together with what its ``storage_client`` stands for.

    ``__getstate__`` and ``__setstate__`` are those that users know and override: without the
    client, and with a new default one where there was none in the state.
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
        self.dataflux_download_optimization_params = download_params(
            config, core.download.DataFluxDownloadOptimizationParams
        )
        if storage_client is not None:
            core.user_agent.add_dataflux_user_agent(storage_client)
        require_permission_to_join(self)
        self.objects = self._list_GCS_blobs_with_retry()

    @property
    def _dataflux_core(self) -> Any:
        """What the dataset's own module calls so: users put something else there."""
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
        state.pop("_even_batches", None)  # what is being read for this one
        return _new, (type(self),), state


def _new(dataset_type: type) -> Any:
    return object.__new__(dataset_type)
