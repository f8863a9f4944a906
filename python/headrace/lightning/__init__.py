"""Lightning's checkpoints at any URL: plugins, and strategies for sharded models.

It serves ``lightning`` and ``pytorch_lightning``; if both are installed, the one that the program
has imported. ``ModelCheckpoint(dirpath="gs://...")`` asks fsspec about that URL, and so it does for
``s3://`` and ``ais://``: where no package serves the scheme, making a plugin or a strategy
registers that of `headrace.fsspec` for it.
"""

from headrace._base.face import belong_to
from headrace.lightning._checkpoint_io import AsyncCheckpointIO, CheckpointIO
from headrace.lightning._strategies import FSDPStrategy, ModelParallelStrategy

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "FSDPStrategy", "ModelParallelStrategy"]

belong_to(__name__, __all__, globals())
