"""One bucket as dataflux's checkpoint classes see it: streams and a few queries.

`open_checkpoint_bucket` chooses the engine, or a client of the caller's that is not Google's.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any, Protocol

from headrace import NotFoundError, Store
from headrace import open as open_object
from headrace.compat._clients import bucket_url, store_options_of
from headrace.compat._google_errors import as_google_raises
from headrace.compat.dataflux_core.user_agent import add_dataflux_user_agent

__all__ = ["CheckpointBucket", "open_checkpoint_bucket"]


class CheckpointBucket(Protocol):
    """The operations that the checkpoint classes need of a bucket."""

    def reader(self, name: str) -> Any:
        """Return an object as a file, at its beginning."""

    def writer(self, name: str) -> Any:
        """Return a file that becomes an object when it is closed without an exception."""

    def exists(self, name: str) -> bool:
        """Return whether `name` or any object below it exists; "" means the bucket."""

    def remove(self, name: str) -> None:
        """Delete an object; a missing one is no error."""

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with `prefix`."""

    def rename(self, old: str, new: str) -> None:
        """Give an object another name."""


def open_checkpoint_bucket(
    client: Any, name: str, make_buffer: Callable[[Any], Any]
) -> CheckpointBucket:
    """Return the bucket `name`, served by the engine unless `client` must be used itself.

    `make_buffer` makes a writable file for a blob of such a client.
    """
    options = store_options_of(client)
    if options is None:
        add_dataflux_user_agent(client)
        return _ClientBucket(client, name, make_buffer)
    with as_google_raises():
        return _EngineBucket(_open_store(name, **options))


@functools.lru_cache(maxsize=64)
def _open_store(name: str, **options: Any) -> Store:
    return Store(bucket_url(name), **options)


class _EngineBucket:
    def __init__(self, store: Store) -> None:
        self._store = store

    def reader(self, name: str) -> Any:
        with as_google_raises():
            return open_object(name, "rb", store=self._store)

    def writer(self, name: str) -> Any:
        return open_object(name, "wb", store=self._store)

    def exists(self, name: str) -> bool:
        with as_google_raises():
            if name and self._store.exists(name):
                return True
            below = f"{name.rstrip('/')}/" if name else ""
            try:
                found = self._store.list_page(below, max_results=1).objects
            except NotFoundError:
                return False
            return bool(found) or not name

    def remove(self, name: str) -> None:
        with as_google_raises():
            self._store.delete(name, missing_ok=True)

    def names(self, prefix: str) -> list[str]:
        with as_google_raises():
            return [info.name for info in self._store.list(prefix)]

    def rename(self, old: str, new: str) -> None:
        with as_google_raises():
            self._store.copy(old, new)
            self._store.delete(old)


class _ClientBucket:
    def __init__(self, client: Any, name: str, make_buffer: Callable[[Any], Any]) -> None:
        self._bucket = client.bucket(name)
        self._make_buffer = make_buffer

    def reader(self, name: str) -> Any:
        return io.BytesIO(self._bucket.blob(name).download_as_bytes())

    def writer(self, name: str) -> Any:
        return self._make_buffer(self._bucket.blob(name))

    def exists(self, name: str) -> bool:
        return bool(self._bucket.blob(name).exists())

    def remove(self, name: str) -> None:
        self._bucket.blob(name).delete()

    def names(self, prefix: str) -> list[str]:
        return [blob.name for blob in self._bucket.list_blobs(prefix=prefix)]

    def rename(self, old: str, new: str) -> None:
        self._bucket.rename_blob(self._bucket.blob(old), new)
