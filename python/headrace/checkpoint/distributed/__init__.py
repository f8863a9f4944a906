"""``torch.distributed.checkpoint`` on a store: one folder, written and read by many ranks."""

from headrace.checkpoint.distributed.progress import Progress
from headrace.checkpoint.distributed.reader import DistributedReader
from headrace.checkpoint.distributed.writer import DistributedWriter

__all__ = ["DistributedReader", "DistributedWriter", "Progress"]
