"""The main job in small: a network learns handwritten digits from objects in a store.

`main` writes the 1,797 digits that scikit-learn ships as PNG objects, and trains on them through
`headrace.torch.Loader`. Then it trains once more: this run is stopped in the middle of an epoch,
resumes, is killed while it saves a checkpoint, and resumes from the newest one that is complete.
Both must come to the same weights, bit for bit. It says what all that took. `headrace.demo.digits`
(the objects and their decoding) and `headrace.demo.training` (the training script) are written to
be read.

Needs ``pip install 'headrace[demo]'``.
"""

from __future__ import annotations

from headrace.demo.job import main

__all__ = ["main"]
