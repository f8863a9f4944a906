"""Checkpoints: files that `torch.load` reads, saved and loaded at the speed of the link.

>>> import headrace
>>> headrace.checkpoint.save(model.state_dict(), "gs://bucket/run/step100.pt")   # doctest: +SKIP
>>> state = headrace.checkpoint.load("gs://bucket/run/step100.pt")               # doctest: +SKIP
"""

from __future__ import annotations

from headrace.checkpoint.loading import load
from headrace.checkpoint.newest import latest
from headrace.checkpoint.reader import CheckpointReader, TensorInfo, open
from headrace.checkpoint.saving import save

__all__ = ["CheckpointReader", "TensorInfo", "latest", "load", "open", "save"]

# The public module, in messages, in documentation and in pickles.
for _name in __all__:
    globals()[_name].__module__ = "headrace.checkpoint"
del _name
