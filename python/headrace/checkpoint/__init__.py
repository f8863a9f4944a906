"""Checkpoints: files of `torch.load` and of safetensors, saved and loaded at the speed of the link.

>>> import headrace
>>> headrace.checkpoint.save(model.state_dict(), "gs://bucket/run/step100.pt")   # doctest: +SKIP
>>> state = headrace.checkpoint.load("gs://bucket/run/step100.pt")               # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._base import torch_package  # noqa: F401  # first: it says what to install
from headrace._base.face import belong_to
from headrace.checkpoint._checkpoint_reader import CheckpointReader, TensorInfo
from headrace.checkpoint._loading import load
from headrace.checkpoint._newest import latest
from headrace.checkpoint._opening import open
from headrace.checkpoint._saving import save

if TYPE_CHECKING:
    from headrace.checkpoint._distributed import DistributedReader, DistributedWriter

__all__ = [
    "CheckpointReader",
    "DistributedReader",
    "DistributedWriter",
    "TensorInfo",
    "latest",
    "load",
    "open",
    "save",
]

# torch.distributed.checkpoint takes a while to import; saving single files does not need it.
_DISTRIBUTED = ("DistributedReader", "DistributedWriter")

belong_to(__name__, __all__, globals())


if not TYPE_CHECKING:  # to a checker, a name is there or is an error

    def __getattr__(name: str) -> Any:
        if name in _DISTRIBUTED:
            from headrace.checkpoint import _distributed

            return getattr(_distributed, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
