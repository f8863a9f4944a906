"""Objects of a bucket as datasets and batches for torch.

`Loader` makes batches of a dataset without worker processes, read ahead by the engine, in an order
that can be resumed in the middle of an epoch. If you need worker processes, torch's own DataLoader
takes the same datasets:

* `MapDataset`: objects.
* `ShardDataset`: samples that are packed in tar shards.
* `ShardStream`: samples of tar shards that are compressed, or whose samples are small.
* `ParquetDataset`: rows of Parquet files.
* `TokenDataset`: samples of tokens from files of them.
* `mix`: several of these in fixed shares.

>>> from headrace.torch import Loader, MapDataset
>>> dataset = MapDataset("gs://bucket/train/", transform=decode)      # doctest: +SKIP
>>> for batch in Loader(dataset, batch_size=256, shuffle=True):       # doctest: +SKIP
...     train(batch)
"""

from __future__ import annotations

from headrace._base import torch_package  # noqa: F401  # first: it says what to install
from headrace._base.face import belong_to
from headrace.torch._batch_sampler import CostBatchSampler
from headrace.torch._loader import Loader
from headrace.torch._map_dataset import MapDataset
from headrace.torch._mix import mix
from headrace.torch._parquet_dataset import ParquetDataset
from headrace.torch._shard_dataset import ShardDataset
from headrace.torch._shard_stream import ShardStream
from headrace.torch._shared_index import shared_index
from headrace.torch._token_dataset import TokenDataset
from headrace.torch._weighted_sampler import WeightedSampler

__all__ = [
    "CostBatchSampler",
    "Loader",
    "MapDataset",
    "ParquetDataset",
    "ShardDataset",
    "ShardStream",
    "TokenDataset",
    "WeightedSampler",
    "mix",
    "shared_index",
]

belong_to(__name__, __all__, globals())
