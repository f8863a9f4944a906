"""Checkpoints: files that `torch.load` reads, saved and loaded at the speed of the link.

>>> import headrace
>>> headrace.checkpoint.save(model.state_dict(), "gs://bucket/run/step100.pt")   # doctest: +SKIP
>>> state = headrace.checkpoint.load("gs://bucket/run/step100.pt")               # doctest: +SKIP
"""

from __future__ import annotations

from headrace.checkpoint.loading import load

__all__ = ["load"]
