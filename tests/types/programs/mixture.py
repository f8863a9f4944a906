"""A mixture of two datasets."""

from __future__ import annotations

from typing import assert_type

import torch
from torch.utils.data import DataLoader

import headrace
from headrace.torch import Loader, MapDataset

code, prose = MapDataset("gs://bucket/code"), MapDataset("gs://bucket/prose")
both = headrace.mix([code, prose], weights=[3, 1])
assert_type(both[0], torch.Tensor)
assert_type(Loader(both, 64, shuffle=True, seed=7), Loader[torch.Tensor])
DataLoader(both, batch_size=64)

headrace.mix([code, prose])  # wrong
headrace.mix([code, prose], wieghts=[3, 1])  # wrong
headrace.mix([code, 3], [3, 1])  # wrong
Loader(both, 64, sampler=3)  # wrong
