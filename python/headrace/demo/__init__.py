"""The main job in small: a network learns handwritten digits from objects in a store.

`main` writes the 1,797 digits that scikit-learn ships as PNG objects, trains on them through
`headrace.torch.Loader`, is killed in the middle of an epoch, resumes in a new process, evaluates,
saves the model and reads it back, and says what that took. `headrace.demo.digits` (the objects and
their decoding) and `headrace.demo.training` (the training script) are written to be read.

Needs ``pip install 'headrace[demo]'``.
"""

from __future__ import annotations

from headrace.demo.job import main

__all__ = ["main"]
