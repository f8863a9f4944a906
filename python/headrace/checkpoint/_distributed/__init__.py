"""``torch.distributed.checkpoint`` on a store: one folder, written and read by many ranks.

Public names are those of `headrace.checkpoint`.
"""

from headrace.checkpoint._distributed.reader import DistributedReader as DistributedReader
from headrace.checkpoint._distributed.writer import DistributedWriter as DistributedWriter

# The public module, in messages, in documentation and in pickles.
DistributedReader.__module__ = DistributedWriter.__module__ = "headrace.checkpoint"
