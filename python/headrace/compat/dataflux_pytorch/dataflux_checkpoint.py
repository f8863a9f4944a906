"""``dataflux_pytorch.dataflux_checkpoint``: a checkpoint as a file."""

from __future__ import annotations

import io
from typing import Any

from headrace._base.handled import Handled
from headrace.compat._checkpoints import open_checkpoint_bucket
from headrace.compat._clients import make_google_client
from headrace.compat.dataflux_pytorch.multipart_upload.multipart import (
    upload_chunks_concurrently_from_bytesio as upload,
)

__all__ = ["DatafluxCheckpoint", "DatafluxCheckpointBuffer", "upload"]


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
        self._opened = open_checkpoint_bucket(storage_client, bucket_name, DatafluxCheckpointBuffer)

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
