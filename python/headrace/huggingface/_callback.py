"""The callback for the ``Trainer`` of transformers."""

from __future__ import annotations

import os
from typing import Any, Unpack

import torch

from headrace import Store
from headrace.huggingface._uploads import CheckpointUploads
from headrace.types import StoreOptions, Url

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "headrace.huggingface.CheckpointCallback needs transformers: pip install transformers "
        "accelerate",
        name="transformers",
    ) from error

__all__ = ["CheckpointCallback"]

_Base: Any = TrainerCallback


class CheckpointCallback(_Base):  # type: ignore[misc]  # a base without types
    """Uploads each checkpoint that a ``Trainer`` saves, in the background.

    The first process of the training uploads what all processes have saved in ``output_dir``, which
    they must share. Training waits until they have saved it, and for links to the files. At its end
    it waits for the uploads. The error of an upload is raised by the next save, or by the end.

    Examples:
        >>> callback = CheckpointCallback("gs://bucket/run1", keep=3)  # doctest: +SKIP
        >>> trainer = Trainer(model, args, callbacks=[callback])  # doctest: +SKIP

    Args:
        url: the folder of the run. With `store`, the name of a folder there.
        keep: delete older checkpoints when so many newer ones are complete. Default: keep all,
            whatever ``save_total_limit`` does to the local ones.
        store: the store to upload to. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        InvalidArgumentError: no store has such a URL, or `keep` is less than 1.
    """

    def __init__(
        self,
        url: Url = "",
        *,
        keep: int | None = None,
        store: Store | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        self._uploads = CheckpointUploads(url, keep=keep, store=store, **options)

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Begin to upload the checkpoint that was just saved.

        Raises:
            Exception: the error of an upload before this one.
        """
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.barrier()  # all have saved their part
        if state.is_world_process_zero:
            self._uploads.submit(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Wait for all uploads.

        Raises:
            Exception: the error of an upload that was not raised yet.
        """
        self._uploads.close()
