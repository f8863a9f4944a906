"""``dataflux_pytorch.lightning.dataflux_lightning_checkpoint``: Lightning's plugins."""

from __future__ import annotations

import os
from typing import Any

import torch

from headrace._base.options import is_weights_only
from headrace.compat._clients import store_options_of
from headrace.compat._google_errors import as_google_raises
from headrace.compat.dataflux_pytorch.dataflux_checkpoint import (
    CheckpointBucket,
    open_checkpoint_bucket,
)
from headrace.compat.dataflux_pytorch.lightning.path_utils import is_local, parse_gcs_path, to_url
from headrace.fsspec import register
from headrace.lightning import AsyncCheckpointIO, CheckpointIO, _packages

__all__ = ["DatafluxLightningAsyncCheckpoint", "DatafluxLightningCheckpoint"]

_CheckpointIO: Any = _packages.fabric("plugins").CheckpointIO


class DatafluxLightningCheckpoint(_CheckpointIO):  # type: ignore[misc]
    """Saves and loads Lightning's checkpoints in buckets, and those with a local path in a folder.

    Lightning's own ``ModelCheckpoint`` saves to the working directory unless it is told otherwise.

    Args:
        project_name: the project.
        storage_client: None, Google's client, or another one with its methods. The oldest versions
            had the bucket's name here and the client after it; both orders are accepted.
        disable_multipart: accepted; small checkpoints take one request, large ones several parts.
        bucket_name: from the oldest versions; accepted, but the bucket is that of each path.
    """

    def __init__(
        self,
        project_name: str,
        storage_client: Any = None,
        disable_multipart: Any = False,
        *,
        bucket_name: str | None = None,
    ) -> None:
        super().__init__()
        if isinstance(storage_client, str):
            bucket_name = storage_client
            storage_client = None if isinstance(disable_multipart, bool) else disable_multipart
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.storage_client = storage_client
        register()

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: Any = None,
    ) -> None:
        """Save `checkpoint`, whole or not at all."""
        with as_google_raises():
            self._plugin(path).save_checkpoint(checkpoint, to_url(path))

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Return the checkpoint; None for `weights_only` means True."""
        with as_google_raises():
            plugin = self._plugin(path)
            loaded: dict[str, Any] = plugin.load_checkpoint(
                to_url(path), map_location, weights_only
            )
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete the checkpoint, which may be sharded."""
        with as_google_raises():
            self._plugin(path).remove_checkpoint(to_url(path))

    def teardown(self) -> None:
        """Do nothing."""

    def _plugin(self, path: str | os.PathLike[str]) -> Any:
        if is_local(path):
            return CheckpointIO()
        options = store_options_of(self.storage_client)
        if options is None:
            return _ClientCheckpointIO(self.storage_client)
        return CheckpointIO(**options)


class _ClientCheckpointIO(_CheckpointIO):  # type: ignore[misc]
    """Checkpoints of a client that is not Google's."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client

    def save_checkpoint(self, checkpoint: Any, path: str, storage_options: Any = None) -> None:
        bucket, name = self._locate(path)
        with bucket.writer(name) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: str, map_location: Any, weights_only: bool | None) -> Any:
        bucket, name = self._locate(path)
        return torch.load(
            bucket.reader(name),
            map_location=map_location,
            weights_only=is_weights_only(weights_only),
        )

    def remove_checkpoint(self, path: str) -> None:
        bucket, name = self._locate(path)
        if name:
            below = bucket.names(f"{name.rstrip('/')}/")
            # First the object that makes it a checkpoint.
            for each in sorted(below, key=lambda each: not each.endswith(".metadata")):
                bucket.remove(each)
            bucket.remove(name)

    def _locate(self, path: str) -> tuple[CheckpointBucket, str]:
        bucket, name = parse_gcs_path(path)
        return open_checkpoint_bucket(self._client, bucket), name


class DatafluxLightningAsyncCheckpoint(AsyncCheckpointIO):
    """`DatafluxLightningCheckpoint` in the background; see `headrace.lightning.AsyncCheckpointIO`.

    Args:
        project_name: the project.
        storage_client: None, Google's client, or another one with its methods.
        disable_multipart: accepted.
    """

    def __init__(
        self, project_name: str, storage_client: Any = None, disable_multipart: bool = False
    ) -> None:
        super().__init__(
            DatafluxLightningCheckpoint(project_name, storage_client, disable_multipart)
        )
