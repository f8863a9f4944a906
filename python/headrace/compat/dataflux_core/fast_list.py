"""``dataflux_core.fast_list``: all objects of a bucket, or of a prefix.

Listing happens in this process, without worker processes, queues and waits. Parameters for those
are accepted and have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from headrace import InvalidArgumentError, ObjectIndex, ObjectInfo
from headrace.compat._buckets import open_bucket
from headrace.compat._objects import ListedObjects
from headrace.compat._retry import LIBRARY_RETRY
from headrace.compat.dataflux_core import user_agent
from headrace.compat.dataflux_core.download import COMPOSED_PREFIX

__all__ = [
    "COMPOSED_PREFIX",
    "DEFAULT_ALLOWED_CLASS",
    "MODIFIED_RETRY",
    "ListWorker",
    "ListingController",
    "remove_prefix",
    "run_list_worker",
]

DEFAULT_ALLOWED_CLASS = ["STANDARD"]
MODIFIED_RETRY = LIBRARY_RETRY


class ListingController:
    """Lists a bucket.

    Args:
        max_parallelism: accepted; the engine chooses its own parallelism.
        project: the project, for a client that is made later.
        bucket: the bucket's name.
        sort_results: accepted; the result is always sorted, so that all processes agree on it.
        skip_compose: leave out composites of downloads.
        prefix: the beginning of the names; any string.
        allowed_storage_classes: objects of other classes are left out.
        retry_config: a retry policy of google-api-core, or None for no retry.

    Before `run`, you may set `client` to Google's client or to another one with its methods.
    """

    def __init__(
        self,
        max_parallelism: int,
        project: str,
        bucket: str,
        sort_results: bool = False,
        skip_compose: bool = True,
        prefix: str = "",
        allowed_storage_classes: list[str] = DEFAULT_ALLOWED_CLASS,
        retry_config: Any = MODIFIED_RETRY,
    ) -> None:
        self.max_parallelism = max_parallelism
        self.gcs_project = project
        self.bucket = bucket
        self.sort_results = sort_results
        self.client: Any = None
        self.skip_compose = skip_compose
        self.prefix = prefix
        self.allowed_storage_classes = allowed_storage_classes
        self.retry_config = retry_config

    def run(self) -> ListedObjects:
        """Return ``(name, size)`` of every object, sorted by name.

        Names that end in ``/`` are left out.

        Raises:
            NotFoundError: there is no such bucket.
        """
        return ListedObjects(
            _list_objects(
                self.client,
                self.bucket,
                self.retry_config,
                prefix=self.prefix or "",
                skip_compose=self.skip_compose,
                allowed_storage_classes=self.allowed_storage_classes,
            )
        )


class _Queue(Protocol):
    def put(self, item: Any) -> None: ...
    def get(self) -> Any: ...


class ListWorker:
    """Lists names in ``[start_range, end_range)``, then ranges of `direct_work_available_queue`.

    It is for programs that run their own workers; a `ListingController` has none. An empty
    `end_range` is an open end; ``(None, ...)`` in the queue ends `run`. For each range, the worker
    puts one set of pairs into `results_queue` and ``(name, count)`` into `metadata_queue`. An error
    goes into `error_queue` and ends `run`.
    """

    def __init__(
        self,
        name: str,
        gcs_project: str,
        bucket: str,
        send_work_stealing_needed_queue: _Queue,
        heartbeat_queue: _Queue,
        direct_work_available_queue: _Queue,
        idle_queue: _Queue,
        unidle_queue: _Queue,
        results_queue: _Queue,
        metadata_queue: _Queue,
        error_queue: _Queue,
        start_range: str,
        end_range: str,
        retry_config: Any = MODIFIED_RETRY,
        client: Any = None,
        skip_compose: bool = True,
        list_directory_objects: bool = False,
        prefix: str = "",
        allowed_storage_classes: list[str] = DEFAULT_ALLOWED_CLASS,
        max_retries: int = 5,
    ) -> None:
        self.name = name
        self.gcs_project = gcs_project
        self.bucket = bucket
        self.send_work_stealing_needed_queue = send_work_stealing_needed_queue
        self.heartbeat_queue = heartbeat_queue
        self.direct_work_available_queue = direct_work_available_queue
        self.idle_queue = idle_queue
        self.unidle_queue = unidle_queue
        self.results_queue = results_queue
        self.metadata_queue = metadata_queue
        self.error_queue = error_queue
        self.start_range = start_range
        self.end_range = end_range
        self.retry_config = retry_config
        self.client = client
        self.skip_compose = skip_compose
        self.list_directory_objects = list_directory_objects
        self.prefix = prefix
        self.allowed_storage_classes = allowed_storage_classes
        self.max_retries = max_retries

    def wait_for_work(self) -> bool:
        """Ask for another range and wait for it; False if there is none."""
        self.send_work_stealing_needed_queue.put(self.name)
        self.idle_queue.put(self.name)
        self.heartbeat_queue.put(self.name)
        start_range, end_range = self.direct_work_available_queue.get()
        if start_range is None:
            return False
        self.start_range, self.end_range = start_range, end_range
        self.unidle_queue.put(self.name)
        return True

    def run(self) -> None:
        """List ranges until there is no more work."""
        while True:
            self.heartbeat_queue.put(self.name)
            try:
                infos = _list_objects(
                    self.client,
                    self.bucket,
                    self.retry_config,
                    prefix=self.prefix,
                    start=self.start_range,
                    end=self.end_range,
                    skip_compose=self.skip_compose,
                    allowed_storage_classes=self.allowed_storage_classes,
                    list_directory_objects=self.list_directory_objects,
                )
            except Exception as error:
                self.error_queue.put(error)
                return
            self.results_queue.put({(info.name, info.size_bytes) for info in infos})
            self.metadata_queue.put((self.name, len(infos)))
            if not self.wait_for_work():
                return


def run_list_worker(
    name: str,
    gcs_project: str,
    bucket: str,
    send_work_stealing_needed_queue: _Queue,
    heartbeat_queue: _Queue,
    direct_work_available_queue: _Queue,
    idle_queue: _Queue,
    unidle_queue: _Queue,
    results_queue: _Queue,
    metadata_queue: _Queue,
    error_queue: _Queue,
    start_range: str,
    end_range: str,
    retry_config: Any = MODIFIED_RETRY,
    client: Any = None,
    skip_compose: bool = True,
    prefix: str = "",
    allowed_storage_classes: list[str] = DEFAULT_ALLOWED_CLASS,
) -> None:
    """Run a `ListWorker` with these arguments."""
    ListWorker(
        name,
        gcs_project,
        bucket,
        send_work_stealing_needed_queue,
        heartbeat_queue,
        direct_work_available_queue,
        idle_queue,
        unidle_queue,
        results_queue,
        metadata_queue,
        error_queue,
        start_range,
        end_range,
        retry_config=retry_config,
        client=client,
        skip_compose=skip_compose,
        prefix=prefix,
        allowed_storage_classes=allowed_storage_classes,
    ).run()


def remove_prefix(text: str, prefix: str) -> str:
    """Return `text` without `prefix` at its front."""
    return text.removeprefix(prefix)


def _list_objects(
    client: Any,
    bucket: str,
    retry_config: Any,
    *,
    prefix: str,
    start: str = "",
    end: str = "",
    skip_compose: bool,
    allowed_storage_classes: Sequence[str],
    list_directory_objects: bool = False,
) -> ObjectIndex:
    """Return the objects of a listing that pass the filters, sorted by name."""
    if client is not None:
        user_agent.add_dataflux_user_agent(client)

    def is_wanted(info: ObjectInfo) -> bool:
        if skip_compose and info.name.startswith(COMPOSED_PREFIX):
            return False
        if info.name.endswith("/") and not list_directory_objects:
            return False
        # A server that reports no storage class has only one.
        return not info.storage_class or info.storage_class in allowed_storage_classes

    try:
        prefix.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidArgumentError(f"prefix is {prefix!r}; it must be a str, or None") from None
    infos = open_bucket(client, bucket, retry_config).list_objects(
        prefix, start, end, with_composites=not skip_compose
    )
    return ObjectIndex.from_objects(filter(is_wanted, infos))
