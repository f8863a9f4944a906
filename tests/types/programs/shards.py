"""Tar shards, at random and as streams."""

from __future__ import annotations

from typing import Any, assert_type

import torch
from torch.utils.data import DataLoader

from headrace.torch import Loader, ShardDataset, ShardStream
from headrace.types import Fields


def decode(fields: dict[str, Any]) -> tuple[torch.Tensor, int]:
    return fields["jpg"].tensor(), int(fields["cls"].bytes())


shards = ShardDataset("gs://bucket/shards/{000..099}.tar", decode, fields=["jpg", "cls"])
assert_type(shards[0], tuple[torch.Tensor, int])
for images, _labels in Loader(shards, 64, shuffle=True):
    assert_type(images, torch.Tensor)
plain = ShardDataset("shards")
assert_type(plain[0], Fields)
by_name: dict[str, Any] = plain[0]
assert_type(Loader(plain, 8), Loader[dict[str, Any]])
for fields in Loader(ShardDataset("shards", seed=7), 8):
    assert_type(fields, dict[str, Any])
stream = ShardStream("gs://bucket/shards/", decode, shuffle=True, on_error="skip")
assert_type(next(iter(stream)), tuple[torch.Tensor, int])
DataLoader(stream, batch_size=4, num_workers=2)

ShardDataset("shards", decode, feilds=["jpg"])  # wrong
ShardStream("shards", decode, shuffle_widow=100)  # wrong
ShardStream("shards", decode, on_error="ignore")  # wrong
shards[0].no_such_method()  # wrong
