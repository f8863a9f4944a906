"""Training states in object storage."""

from headrace.checkpoint.distributed import DistributedReader, DistributedWriter, Progress

__all__ = ["DistributedReader", "DistributedWriter", "Progress"]
