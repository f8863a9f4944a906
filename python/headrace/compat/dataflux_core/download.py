"""``dataflux_core.download``: objects as ``bytes``, many at a time.

Every function reads through the engine, with as many requests in flight as the service bears. It
writes nothing to the bucket unless you ask for composing on the server. Arguments for numbers of
threads and processes are accepted; the number of threads has an effect only for clients that are
not Google's.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, Protocol

from headrace import ComposeOptions, CorruptDataError
from headrace.compat._buckets import Bucket, compose_options, open_bucket
from headrace.compat._clients import make_google_client
from headrace.compat._objects import NameAndSize, grouped
from headrace.compat._retry import LIBRARY_RETRY
from headrace.compat.dataflux_core import user_agent

__all__ = [
    "COMPOSED_PREFIX",
    "MAX_NUM_OBJECTS_TO_COMPOSE",
    "MODIFIED_RETRY",
    "DataFluxDownloadOptimizationParams",
    "clean_composed_object",
    "compose",
    "current_composed_object",
    "dataflux_download",
    "dataflux_download_lazy",
    "dataflux_download_parallel",
    "dataflux_download_threaded",
    "decompose",
    "df_download_thread",
    "download_single",
    "term_signal_handler",
]

COMPOSED_PREFIX = "dataflux-composed-objects/"
MAX_NUM_OBJECTS_TO_COMPOSE = 32
MODIFIED_RETRY = LIBRARY_RETRY

# The objects and bytes that the engine reads, and returns, at a time.
_GROUP_OBJECTS = 32
_GROUP_BYTES = 16 << 20

_logger = logging.getLogger(__name__)

current_composed_object: Any = None
"""The composite that `term_signal_handler` deletes; nothing in headrace sets it."""


class DataFluxDownloadOptimizationParams:
    """How downloads are grouped.

    Args:
        max_composite_object_size: bytes of a composite object, at most; 0: no composites.
            With HEADRACE_COMPOSE=1, small objects are composed on the server if they come from
            headrace's listings, which know their generations and checksums, and the client is
            Google's.
    """

    def __init__(self, max_composite_object_size: int) -> None:
        self.max_composite_object_size = max_composite_object_size


def compose(
    project_name: str,
    bucket_name: str,
    destination_blob_name: str,
    objects: Sequence[NameAndSize],
    storage_client: Any = None,
    retry_config: Any = MODIFIED_RETRY,
) -> Any:
    """Join up to 32 objects into one on the server, and return its blob.

    This makes Google's own call, through `storage_client` or a new
    ``google.cloud.storage.Client``.

    Raises:
        ValueError: there are more than 32 objects.
    """
    if len(objects) > MAX_NUM_OBJECTS_TO_COMPOSE:
        raise ValueError(
            f"{MAX_NUM_OBJECTS_TO_COMPOSE} objects allowed to compose, "
            f"received {len(objects)} objects."
        )
    client = make_google_client(project_name) if storage_client is None else storage_client
    user_agent.add_dataflux_user_agent(client)
    bucket = client.bucket(bucket_name)
    destination = bucket.blob(destination_blob_name)
    destination.compose([bucket.blob(name) for name, *_ in objects], retry=retry_config)
    return destination


def decompose(
    project_name: str,
    bucket_name: str,
    composite_object_name: str,
    objects: Sequence[NameAndSize],
    storage_client: Any = None,
    retry_config: Any = MODIFIED_RETRY,
) -> list[bytes]:
    """Read a composite object and return the bytes of each of its parts.

    Raises:
        CorruptDataError: the composite's size is not the sum of the sizes of `objects`, so it
            cannot be split.
    """
    whole = download_single(storage_client, bucket_name, composite_object_name, retry_config)
    expected_bytes = sum(size_bytes for _, size_bytes in objects)
    if len(whole) != expected_bytes:
        raise CorruptDataError(
            f"gs://{bucket_name}/{composite_object_name}: it has {len(whole)} bytes, its "
            f"{len(objects)} parts have {expected_bytes}: a part has changed since it was listed"
        )
    parts = []
    begin = 0
    for _, size_bytes in objects:
        parts.append(whole[begin : begin + size_bytes])
        begin += size_bytes
    return parts


def download_single(
    storage_client: Any,
    bucket_name: str,
    object_name: str,
    retry_config: Any = MODIFIED_RETRY,
) -> bytes:
    """Return the contents of one object.

    Raises:
        NotFoundError: there is no such object. If google-api-core is installed, every error of the
            service is also an instance of Google's class for its HTTP status.
    """
    bucket = _open(storage_client, bucket_name, retry_config)
    ((content,),) = bucket.read_groups([[(object_name, 0)]])
    return content


def dataflux_download(
    project_name: str,
    bucket_name: str,
    objects: Sequence[NameAndSize],
    storage_client: Any = None,
    dataflux_download_optimization_params: DataFluxDownloadOptimizationParams | None = None,
    threading_enabled: bool = False,
    retry_config: Any = MODIFIED_RETRY,
) -> list[bytes]:
    """Return the contents of all `objects`, in their order.

    Raises:
        HeadraceError: as for `download_single`; no object is silently missing.
    """
    return list(
        dataflux_download_lazy(
            project_name,
            bucket_name,
            objects,
            storage_client,
            dataflux_download_optimization_params,
            threading_enabled,
            retry_config,
        )
    )


def dataflux_download_threaded(
    project_name: str,
    bucket_name: str,
    objects: Sequence[NameAndSize],
    storage_client: Any = None,
    dataflux_download_optimization_params: DataFluxDownloadOptimizationParams | None = None,
    threads: int = 1,
    retry_config: Any = MODIFIED_RETRY,
) -> list[bytes]:
    """Do the same as `dataflux_download`."""
    return list(
        _read(
            bucket_name,
            objects,
            storage_client,
            dataflux_download_optimization_params,
            retry_config,
            threads,
        )
    )


def dataflux_download_parallel(
    project_name: str,
    bucket_name: str,
    objects: Sequence[NameAndSize],
    storage_client: Any = None,
    dataflux_download_optimization_params: DataFluxDownloadOptimizationParams | None = None,
    parallelization: int = 1,
    retry_config: Any = MODIFIED_RETRY,
) -> list[bytes]:
    """Do the same as `dataflux_download`, without processes."""
    return dataflux_download_threaded(
        project_name,
        bucket_name,
        objects,
        storage_client,
        dataflux_download_optimization_params,
        parallelization,
        retry_config,
    )


def dataflux_download_lazy(
    project_name: str,
    bucket_name: str,
    objects: Sequence[NameAndSize],
    storage_client: Any = None,
    dataflux_download_optimization_params: DataFluxDownloadOptimizationParams | None = None,
    threading_enabled: bool = False,
    retry_config: Any = MODIFIED_RETRY,
) -> Iterator[bytes]:
    """Yield the contents of all `objects`, in their order, reading ahead.

    The memory budget bounds the read-ahead; dropping the iterator cancels it.
    """
    yield from _read(
        bucket_name, objects, storage_client, dataflux_download_optimization_params, retry_config
    )


class _ResultsQueue(Protocol):
    def put(self, item: list[bytes]) -> None: ...


def df_download_thread(
    results_queue: _ResultsQueue,
    project_name: str,
    bucket_name: str,
    objects: Sequence[NameAndSize],
    storage_client: Any = None,
    dataflux_download_optimization_params: DataFluxDownloadOptimizationParams | None = None,
    retry_config: Any = MODIFIED_RETRY,
) -> None:
    """Put the result of `dataflux_download` into `results_queue`."""
    results_queue.put(
        dataflux_download(
            project_name,
            bucket_name,
            objects,
            storage_client,
            dataflux_download_optimization_params,
            retry_config=retry_config,
        )
    )


def clean_composed_object(composed_object: Any) -> None:
    """Delete a composite; an error is logged, not raised."""
    try:
        composed_object.delete(retry=MODIFIED_RETRY)
    except Exception:
        _logger.exception("the composite object %r could not be deleted", composed_object)


def term_signal_handler(signal_num: Any, frame: Any) -> NoReturn:
    """Delete `current_composed_object` if there is one, and exit.

    headrace never installs this handler: signals belong to the application.
    """
    if current_composed_object is not None:
        clean_composed_object(current_composed_object)
    sys.exit(0)


def _read(
    bucket_name: str,
    objects: Iterable[NameAndSize],
    storage_client: Any,
    params: DataFluxDownloadOptimizationParams | None,
    retry_config: Any,
    threads: int = 1,
) -> Iterator[bytes]:
    compose = compose_options(params)
    bucket = _open(storage_client, bucket_name, retry_config, threads, compose)
    with contextlib.closing(bucket.read_groups(_grouped(objects, compose))) as contents_of_groups:
        for contents in contents_of_groups:
            yield from contents


def _grouped(
    objects: Iterable[NameAndSize], compose: ComposeOptions | None
) -> Iterator[list[NameAndSize]]:
    # Each group is composed as a whole.
    max_bytes = _GROUP_BYTES if compose is None else compose.max_size_bytes
    return grouped(objects, lambda each: each[1], max_objects=_GROUP_OBJECTS, max_bytes=max_bytes)


def _open(
    storage_client: Any,
    bucket_name: str,
    retry_config: Any,
    threads: int = 1,
    compose: ComposeOptions | None = None,
) -> Bucket:
    if storage_client is not None:
        user_agent.add_dataflux_user_agent(storage_client)
    return open_bucket(storage_client, bucket_name, retry_config, threads=threads, compose=compose)
