"""``dataflux_pytorch.lightning.dataflux_lightning_async_checkpoint``: the same, in background."""

from __future__ import annotations

from typing import Any

from headrace.compat.dataflux_pytorch.lightning.dataflux_lightning_checkpoint import (
    DatafluxLightningCheckpoint,
)
from headrace.lightning import AsyncCheckpointIO

__all__ = ["DatafluxLightningAsyncCheckpoint"]


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
