"""One bucket as dataflux's functions see it: a listing, and groups of objects read in order.

`open_bucket` chooses the engine, or a client of the caller's that is not Google's.
"""

from __future__ import annotations

import functools
import heapq
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from headrace import ComposeOptions, GcsOptions, ObjectInfo, RetryOptions, Store, TimeoutOptions
from headrace._process.freed_memory import keep_freed_memory
from headrace.compat._clients import bucket_url, store_options_of
from headrace.compat._google_errors import as_google_raises
from headrace.compat._objects import ListedObject, NameAndSize
from headrace.compat._retry import engine_options

__all__ = ["Bucket", "compose_options", "open_bucket"]

_COMPOSED_PREFIX = "dataflux-composed-objects/"
_COMPOSITE_BYTES = 100_000_000


class Bucket(Protocol):
    """The operations that dataflux's functions need of a bucket."""

    def list_objects(
        self, prefix: str, start: str = "", end: str = "", *, with_composites: bool = False
    ) -> Iterator[ObjectInfo]:
        """Yield the objects with names in ``[start, end)`` that begin with `prefix`, sorted.

        Without `with_composites`, composites of downloads may be left out.
        """

    def read_groups(self, groups: Iterable[Sequence[NameAndSize]]) -> Generator[list[bytes]]:
        """Yield the contents of each group's objects, in order, up to the first error in order.

        Closing the iterator cancels what is read ahead.
        """


def open_bucket(
    client: Any,
    name: str,
    retry_config: Any,
    *,
    threads: int = 1,
    compose: ComposeOptions | None = None,
) -> Bucket:
    """Return the bucket `name`, read by the engine unless `client` has to be used itself.

    Args:
        client: None (Application Default Credentials, or STORAGE_EMULATOR_HOST), Google's client,
            or any object with its methods ``bucket``, ``list_blobs``, ``blob``,
            ``download_as_bytes``.
        retry_config: a `Retry` of headrace or of google-api-core, or None.
        threads: the number of threads that read through a client of another kind. The engine
            chooses its own parallelism.
        compose: how the engine composes small objects on the server; None: not at all.
    """
    options = store_options_of(client)
    if options is None:
        return _ClientBucket(client, name, retry_config, threads)
    endpoint, credentials = options["endpoint"], options.get("credentials")
    retry, timeout = engine_options(retry_config)
    keep_freed_memory()
    with as_google_raises():
        return _EngineBucket(_open_store(name, endpoint, credentials, retry, timeout, compose))


def compose_options(params: Any) -> ComposeOptions | None:
    """Return how small objects are composed on the server; None: not at all, unless asked for.

    The originals do by default, which writes every byte again into the bucket.

    Args:
        params: ``DataFluxDownloadOptimizationParams``; None: those that the datasets have.
    """
    if os.environ.get("HEADRACE_COMPOSE", "") != "1":
        return None  # in tests of programs, `params` may be anything
    size_bytes = _COMPOSITE_BYTES if params is None else params.max_composite_object_size
    return ComposeOptions(max_size_bytes=size_bytes) if size_bytes > 0 else None


# A dataset opens its bucket for every batch.
@functools.lru_cache(maxsize=64)
def _open_store(
    name: str,
    endpoint: str | None,
    credentials: Any,
    retry: RetryOptions,
    timeout: TimeoutOptions,
    compose: ComposeOptions | None,
) -> Store:
    return Store(
        bucket_url(name),
        endpoint=endpoint,
        credentials=credentials,
        retry=retry,
        timeout=timeout,
        # An object replaced after the listing is read whole, in its new version.
        on_change="reread",
        # As Google's client does.
        content_encoding="decompress",
        provider=GcsOptions(compose_small_objects=compose),
    )


class _EngineBucket:
    def __init__(self, store: Store) -> None:
        self._store = store

    def list_objects(
        self, prefix: str, start: str = "", end: str = "", *, with_composites: bool = False
    ) -> Iterator[ObjectInfo]:
        listings = [prefix]
        if with_composites and _COMPOSED_PREFIX.startswith(prefix) and prefix != _COMPOSED_PREFIX:
            listings.append(_COMPOSED_PREFIX)  # a store lists them only on request
        with as_google_raises():
            yield from heapq.merge(
                *(self._store.list(each, start_offset=start, end_offset=end) for each in listings),
                key=lambda info: info.name.encode(),
            )

    def read_groups(self, groups: Iterable[Sequence[NameAndSize]]) -> Generator[list[bytes]]:
        def pinned(each: NameAndSize) -> str | ObjectInfo:
            return each.info if isinstance(each, ListedObject) else each[0]

        batches = ([pinned(each) for each in group] for group in groups)
        with as_google_raises():
            for samples in self._store.read_batches(batches):
                contents = [sample.bytes() for sample in samples]
                del samples  # the next groups are read into their memory
                yield contents


class _ClientBucket:
    def __init__(self, client: Any, name: str, retry_config: Any, threads: int) -> None:
        self._bucket = client.bucket(name)
        self._retry_config = retry_config
        self._threads = threads

    def list_objects(
        self, prefix: str, start: str = "", end: str = "", *, with_composites: bool = False
    ) -> Iterator[ObjectInfo]:
        bounds = {"start_offset": start} if start else {}
        if end:
            bounds["end_offset"] = end
        blobs = self._bucket.list_blobs(prefix=prefix, retry=self._retry_config, **bounds)
        infos = (
            ObjectInfo(
                blob.name, blob.size, storage_class=getattr(blob, "storage_class", None) or ""
            )
            for blob in blobs
        )
        yield from sorted(infos, key=lambda info: info.name)

    def read_groups(self, groups: Iterable[Sequence[NameAndSize]]) -> Generator[list[bytes]]:
        if self._threads <= 1:
            for group in groups:
                yield [self._read(each) for each in group]
            return
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="headrace-compat")
        try:
            for group in groups:
                yield list(pool.map(self._read, group))
        finally:
            pool.shutdown(cancel_futures=True)

    def _read(self, each: NameAndSize) -> bytes:
        download: Callable[..., bytes] = self._bucket.blob(each[0]).download_as_bytes
        return download(retry=self._retry_config)
