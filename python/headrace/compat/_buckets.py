"""One bucket as the functions of dataflux see it: a listing, and groups of objects read in order.

`open_bucket` decides who speaks to the service: the engine, or a client that is not Google's.
"""

from __future__ import annotations

import ctypes
import functools
import heapq
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from headrace import GcsOptions, JoinOptions, ObjectInfo, RetryOptions, Store, TimeoutOptions
from headrace.compat._clients import bucket_url, store_options_of
from headrace.compat._google_errors import as_google_raises
from headrace.compat._objects import ListedObject, NameAndSize
from headrace.compat._retry import engine_options

__all__ = ["Bucket", "open_bucket"]

_COMPOSED_PREFIX = "dataflux-composed-objects/"


class Bucket(Protocol):
    """What is needed of a bucket."""

    def list_objects(
        self, prefix: str, start: str = "", end: str = "", *, with_composites: bool = False
    ) -> Iterator[ObjectInfo]:
        """Yield the objects with names in ``[start, end)`` that begin with `prefix`, sorted.

        What was composed for a download need not be among them unless `with_composites`.
        """

    def read_groups(
        self, groups: Iterable[Sequence[NameAndSize]], *, prefetch_bytes: int | None = None
    ) -> Generator[list[bytes]]:
        """Yield the contents of each group's objects, in order; the first error in order ends it.

        What is read ahead, `prefetch_bytes` at most, is cancelled when the iterator is closed.
        """


def open_bucket(
    client: Any,
    name: str,
    retry_config: Any,
    *,
    threads: int = 1,
    join: JoinOptions | None = None,
) -> Bucket:
    """Return the bucket `name`, read by the engine unless `client` has to be used itself.

    Args:
        client: None (Application Default Credentials, or STORAGE_EMULATOR_HOST), Google's client,
            or anything with its methods ``bucket``, ``list_blobs``, ``blob``,
            ``download_as_bytes``.
        retry_config: a `Retry`, ours or of google-api-core, or None.
        threads: how many reads at a time a client of another kind is used for. The engine knows
            better by itself.
        join: how the engine joins small objects on the server; None: it does not.
    """
    options = store_options_of(client)
    if options is None:
        return _ClientBucket(client, name, retry_config, threads)
    endpoint, credentials = options["endpoint"], options.get("credentials")
    retry, timeout = engine_options(retry_config)
    _keep_freed_memory()
    with as_google_raises():
        return _EngineBucket(_open_store(name, endpoint, credentials, retry, timeout, join))


# A dataset opens its bucket for every batch.
@functools.lru_cache(maxsize=64)
def _open_store(
    name: str,
    endpoint: str | None,
    credentials: Any,
    retry: RetryOptions,
    timeout: TimeoutOptions,
    join: JoinOptions | None,
) -> Store:
    return Store(
        bucket_url(name),
        endpoint=endpoint,
        credentials=credentials,
        retry=retry,
        timeout=timeout,
        # An object that was replaced after the listing is read as it is now, whole.
        on_change="reread",
        # Google's client does that, too.
        content_encoding="decompress",
        provider=GcsOptions(join_small_objects=join),
    )


# glibc's names for what mallopt() sets.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20


@functools.cache
def _keep_freed_memory() -> None:
    """Let glibc keep what is freed for the next batch, up to 256 MiB, in this process.

    Samples are ``bytes``, as with dataflux, so each is new memory. If a batch that is dropped goes
    back to the system, the next one is made of pages that the system has to clear first, which
    costs more than to receive what goes there. Whoever has set glibc's variables has decided.
    """
    decided = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
    if any(name in os.environ for name in decided):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # more it does not take


class _EngineBucket:
    def __init__(self, store: Store) -> None:
        self._store = store

    def list_objects(
        self, prefix: str, start: str = "", end: str = "", *, with_composites: bool = False
    ) -> Iterator[ObjectInfo]:
        listings = [prefix]
        if with_composites and _COMPOSED_PREFIX.startswith(prefix) and prefix != _COMPOSED_PREFIX:
            listings.append(_COMPOSED_PREFIX)  # a store shows them only to who asks for them
        with as_google_raises():
            yield from heapq.merge(
                *(self._store.list(each, start_offset=start, end_offset=end) for each in listings),
                key=lambda info: info.name.encode(),
            )

    def read_groups(
        self, groups: Iterable[Sequence[NameAndSize]], *, prefetch_bytes: int | None = None
    ) -> Generator[list[bytes]]:
        def pinned(each: NameAndSize) -> str | ObjectInfo:
            return each.info if isinstance(each, ListedObject) else each[0]

        batches = ([pinned(each) for each in group] for group in groups)
        with as_google_raises():
            for samples in self._store.read_batches(batches, prefetch_bytes=prefetch_bytes):
                contents = [sample.bytes() for sample in samples]
                del samples  # their memory is what the next groups are read into
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

    def read_groups(
        self, groups: Iterable[Sequence[NameAndSize]], *, prefetch_bytes: int | None = None
    ) -> Generator[list[bytes]]:
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
