"""Lightning's checkpoints at any URL: plugins, and strategies for sharded models.

It serves ``lightning`` and ``pytorch_lightning``; if both are installed, the one that the program
has imported. fsspec learns ``gs://`` from here unless gcsfs is installed, so that
``ModelCheckpoint(dirpath="gs://...")`` works.
"""

from headrace.lightning._checkpoint_io import AsyncCheckpointIO, CheckpointIO
from headrace.lightning._filesystem import register as _register
from headrace.lightning._strategies import FSDPStrategy, ModelParallelStrategy

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "FSDPStrategy", "ModelParallelStrategy"]

_register()
