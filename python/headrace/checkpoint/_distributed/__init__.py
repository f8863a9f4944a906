"""``torch.distributed.checkpoint`` on a store: one folder, written and read by many ranks.

Public names are those of `headrace.checkpoint`.
"""

from headrace._base.face import belong_to
from headrace.checkpoint._distributed.reader import DistributedReader as DistributedReader
from headrace.checkpoint._distributed.writer import DistributedWriter as DistributedWriter

belong_to("headrace.checkpoint", ["DistributedReader", "DistributedWriter"], globals())
