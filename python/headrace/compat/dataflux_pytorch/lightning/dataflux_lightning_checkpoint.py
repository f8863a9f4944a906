"""``dataflux_pytorch.lightning.dataflux_lightning_checkpoint``: Lightning's plugins."""

from __future__ import annotations

import os
from typing import Any

from headrace.compat._checkpoints import CheckpointBucket, open_checkpoint_bucket
from headrace.compat.dataflux_pytorch.dataflux_checkpoint import DatafluxCheckpointBuffer
from headrace.compat.dataflux_pytorch.lightning.path_utils import parse_gcs_path
from headrace.fsspec import register
from headrace.lightning import AsyncCheckpointIO, _packages

__all__ = ["DatafluxLightningAsyncCheckpoint", "DatafluxLightningCheckpoint"]

_CheckpointIO: Any = _packages.fabric("plugins").CheckpointIO


class DatafluxLightningCheckpoint(_CheckpointIO):  # type: ignore[misc]
    """Saves and loads Lightning's checkpoints in buckets.

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
        bucket, name = self._locate(path)
        bucket.save(checkpoint, name)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Return the checkpoint; None for `weights_only` means True."""
        bucket, name = self._locate(path)
        loaded: dict[str, Any] = bucket.load(name, map_location, weights_only)
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete the checkpoint, which may be sharded."""
        bucket, name = self._locate(path)
        if name:
            below = bucket.names(f"{name.rstrip('/')}/")
            # First the object that makes it a checkpoint.
            for each in sorted(below, key=lambda each: not each.endswith(".metadata")):
                bucket.remove(each)
            bucket.remove(name)

    def teardown(self) -> None:
        """Do nothing."""

    def _locate(self, path: str | os.PathLike[str]) -> tuple[CheckpointBucket, str]:
        bucket, name = parse_gcs_path(path)  # type: ignore[arg-type]  # it checks
        opened = open_checkpoint_bucket(self.storage_client, bucket, DatafluxCheckpointBuffer)
        return opened, name


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
