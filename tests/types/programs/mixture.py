"""A mixture of two datasets."""

from __future__ import annotations

from typing import assert_type

import torch
from torch.utils.data import ConcatDataset

from headrace.torch import Loader, MapDataset, MixtureSampler

code, prose = MapDataset("gs://bucket/code"), MapDataset("gs://bucket/prose")
both: ConcatDataset[torch.Tensor] = ConcatDataset([code, prose])
loader = Loader(both, 64, sampler=MixtureSampler(both, [3, 1], seed=7))
assert_type(loader, Loader[torch.Tensor])

MixtureSampler(both, [3, 1], sed=7)  # wrong
MixtureSampler(both)  # wrong
Loader(both, 64, sampler=3)  # wrong
