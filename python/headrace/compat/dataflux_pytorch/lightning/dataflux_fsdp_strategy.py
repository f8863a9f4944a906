"""``DatafluxFSDPStrategy``, which dataflux keeps among its demos (``multinode.strategies``)."""

from __future__ import annotations

import os
from typing import Any

from headrace import InvalidArgumentError
from headrace.compat._clients import store_options_of
from headrace.compat.dataflux_pytorch.lightning.path_utils import to_url
from headrace.lightning import FSDPStrategy

__all__ = ["DatafluxFSDPStrategy"]


class DatafluxFSDPStrategy(FSDPStrategy):
    """`headrace.lightning.FSDPStrategy` by its name in dataflux: sharded, in a bucket.

    Args:
        project_name: the project.
        storage_client: None or Google's client; it is the one that is used.
        use_async: save in the background.
        kwargs: of Lightning's ``FSDPStrategy``.
    """

    def __init__(
        self,
        project_name: str,
        storage_client: Any = None,
        use_async: bool = False,
        **kwargs: Any,
    ) -> None:
        options = store_options_of(storage_client)
        if options is None:
            raise InvalidArgumentError(
                f"storage_client is {type(storage_client).__name__}: this needs None or a "
                "google.cloud.storage.Client"
            )
        kwargs.setdefault("state_dict_type", "sharded")
        super().__init__(use_async=use_async, **options, **kwargs)
        self.project_name = project_name
        self.storage_client = storage_client

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        filepath: str | os.PathLike[str],
        storage_options: Any = None,
    ) -> None:
        """Save `checkpoint` at a URL, a local path, or what pathlib has made of one."""
        super().save_checkpoint(checkpoint, to_url(filepath), storage_options)

    def load_checkpoint(
        self, checkpoint_path: str | os.PathLike[str], weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the checkpoint at a URL, a local path, or what pathlib has made of one."""
        return super().load_checkpoint(to_url(checkpoint_path), weights_only)

    def remove_checkpoint(self, filepath: str | os.PathLike[str]) -> None:
        """Delete the checkpoint at a URL, a local path, or what pathlib has made of one."""
        super().remove_checkpoint(to_url(filepath))
