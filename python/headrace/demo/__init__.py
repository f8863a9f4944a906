"""A small training job: a network learns handwritten digits from objects in a store.

`main` writes the 1,797 digits of scikit-learn as PNG objects and trains on them through
`headrace.torch.Loader`. Then it trains a second time. This run is stopped in the middle of an
epoch and resumes; then it is killed while it saves a checkpoint and resumes from the newest
complete one. Both runs must end with the same weights, bit for bit. A report says what all this
took. `headrace.demo.digits` (the objects and their decoding) and `headrace.demo.training` (the
training script) are written to be read.

Needs ``pip install 'headrace[demo]'``.
"""

from __future__ import annotations

from headrace.demo.job import main

__all__ = ["main"]
