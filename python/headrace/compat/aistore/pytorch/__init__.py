"""``aistore.pytorch`` on headrace."""

from headrace.compat.aistore.pytorch.base_iter_dataset import AISBaseIterDataset
from headrace.compat.aistore.pytorch.base_map_dataset import AISBaseMapDataset
from headrace.compat.aistore.pytorch.batch_iter_dataset import AISBatchIterDataset
from headrace.compat.aistore.pytorch.dynamic_sampler import DynamicBatchSampler
from headrace.compat.aistore.pytorch.iter_dataset import AISIterDataset
from headrace.compat.aistore.pytorch.map_dataset import AISMapDataset
from headrace.compat.aistore.pytorch.multishard_dataset import AISMultiShardStream, DataShard
from headrace.compat.aistore.pytorch.parallel_map_dataset import AISParallelMapDataset
from headrace.compat.aistore.pytorch.shard_reader import AISShardReader

__all__ = [
    "AISBaseIterDataset",
    "AISBaseMapDataset",
    "AISBatchIterDataset",
    "AISIterDataset",
    "AISMapDataset",
    "AISMultiShardStream",
    "AISParallelMapDataset",
    "AISShardReader",
    "DataShard",
    "DynamicBatchSampler",
]
