"""``dataflux_pytorch.dataflux_checkpoint``: a checkpoint as a file."""

from __future__ import annotations

import functools
import io
from typing import Any, Protocol

from headrace import NotFoundError, Store
from headrace import open as open_object
from headrace._base.handled import Handled
from headrace.compat._clients import bucket_url, make_google_client, store_options_of
from headrace.compat._google_errors import as_google_raises
from headrace.compat.dataflux_core.user_agent import add_dataflux_user_agent
from headrace.compat.dataflux_pytorch.multipart_upload.multipart import (
    upload_chunks_concurrently_from_bytesio as upload,
)

__all__ = [
    "CheckpointBucket",
    "DatafluxCheckpoint",
    "DatafluxCheckpointBuffer",
    "open_checkpoint_bucket",
    "upload",
]


class DatafluxCheckpoint:
    """Files of one bucket, for ``torch.save`` and ``torch.load``.

    Args:
        project_name: the project, for the client that `bucket` makes if there is none.
        bucket_name: the bucket.
        storage_client: None, Google's client, or another one with its methods.
    """

    def __init__(self, project_name: str, bucket_name: str, storage_client: Any = None) -> None:
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.storage_client = storage_client
        self._opened = open_checkpoint_bucket(storage_client, bucket_name)

    @property
    def bucket(self) -> Any:
        """The client's object for the bucket."""
        if self.storage_client is None:
            self.storage_client = make_google_client(self.project_name)
        return self.storage_client.bucket(self.bucket_name)

    def reader(self, object_name: str) -> Any:
        """Return the object as a file that reads ahead by parallel ranges.

        Raises:
            NotFoundError: there is no such object.
        """
        return self._opened.reader(object_name)

    def writer(self, object_name: str) -> Any:
        """Return a file whose parts are sent while it is written.

        ``close`` publishes the object, whole and verified. After an exception in a ``with`` block,
        or if the file is dropped, the previous object stays. The file cannot seek.
        """
        return self._opened.writer(object_name)


class DatafluxCheckpointBuffer(io.BytesIO):
    """A file in memory that becomes `blob` when it is closed.

    It is written once, and not after an exception in a ``with`` block, not by a `close` while an
    exception is handled that was not when the file was made, and not when it is dropped. If the
    engine serves the bucket, `headrace.open` is used instead, which holds only a few parts.

    Args:
        blob: a blob of Google's client, or another object with ``open("wb")``.
    """

    def __init__(self, blob: Any) -> None:
        super().__init__()
        self.blob = blob
        self._handled = Handled()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._upload()
        else:
            super().close()

    def close(self) -> None:
        """Write the object; a second call does nothing."""
        if self.closed:
            return
        error = self._handled.newer()
        if error is None:
            self._upload()
        else:
            self._handled.tell(str(self.blob), error)
            super().close()

    def _upload(self) -> None:
        if self.closed:
            return
        try:
            upload(self, self.blob)
        finally:
            super().close()

    def __del__(self) -> None:
        super().close()


# ---- what the other checkpoint classes share


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


def open_checkpoint_bucket(client: Any, name: str) -> CheckpointBucket:
    """Return the bucket `name`, served by the engine unless `client` must be used itself."""
    options = store_options_of(client)
    if options is None:
        add_dataflux_user_agent(client)
        return _ClientBucket(client, name)
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
    def __init__(self, client: Any, name: str) -> None:
        self._bucket = client.bucket(name)

    def reader(self, name: str) -> Any:
        return io.BytesIO(self._bucket.blob(name).download_as_bytes())

    def writer(self, name: str) -> Any:
        return DatafluxCheckpointBuffer(self._bucket.blob(name))

    def exists(self, name: str) -> bool:
        return bool(self._bucket.blob(name).exists())

    def remove(self, name: str) -> None:
        self._bucket.blob(name).delete()

    def names(self, prefix: str) -> list[str]:
        return [blob.name for blob in self._bucket.list_blobs(prefix=prefix)]

    def rename(self, old: str, new: str) -> None:
        self._bucket.rename_blob(self._bucket.blob(old), new)
