"""Folders of checkpoints at any URL: for the ``Trainer`` of transformers, and for Accelerate.

Both save a checkpoint as a local folder. headrace uploads it in the background, and writes a
manifest, ``headrace-checkpoint.json``, when all of its files are durable. Only a folder with its
manifest is a checkpoint: `latest` and `resume` pass over any other.

>>> from headrace.huggingface import CheckpointCallback, resume   # doctest: +SKIP
>>> trainer.add_callback(CheckpointCallback("gs://bucket/run1"))  # doctest: +SKIP
>>> folder = resume("gs://bucket/run1", args.output_dir)          # doctest: +SKIP
>>> trainer.train(resume_from_checkpoint=folder)                  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._base.face import belong_to
from headrace.huggingface._checkpoints import download, latest, resume
from headrace.huggingface._uploads import CheckpointUploads

if TYPE_CHECKING:
    from headrace.huggingface._callback import CheckpointCallback

__all__ = ["CheckpointCallback", "CheckpointUploads", "download", "latest", "resume"]

belong_to(__name__, __all__, globals())


if not TYPE_CHECKING:  # to a checker, a name is there or is an error

    def __getattr__(name: str) -> Any:
        # transformers takes a while to import, and Accelerate's users may not have it.
        if name == "CheckpointCallback":
            from headrace.huggingface import _callback

            belong_to(__name__, [name], vars(_callback))
            return _callback.CheckpointCallback
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
