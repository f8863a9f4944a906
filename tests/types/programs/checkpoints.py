"""Checkpoints: one file, and torch.distributed.checkpoint."""

from __future__ import annotations

from typing import Any, assert_type

import torch
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

import headrace.checkpoint
import headrace.ray
from headrace.checkpoint import DistributedReader, DistributedWriter

model = torch.nn.Linear(2, 2)
info = headrace.checkpoint.save(model.state_dict(), "gs://bucket/run/step1.pt", progress=True)
assert_type(info, headrace.ObjectInfo)
found = headrace.checkpoint.latest("gs://bucket/run")
state: dict[str, Any] = headrace.checkpoint.load("gs://bucket/run/step1.pt", map_location="cpu")
reader = headrace.checkpoint.open("gs://bucket/run/step1.pt")
writer: StorageWriter = DistributedWriter("gs://bucket/run/step2", endpoint="http://localhost")
reader_of_all: StorageReader = DistributedReader("gs://bucket/run/step2", verify=False)
headrace.ray.report({"loss": 1.0}, state, "gs://bucket/run/step3.pt", if_generation="absent")

headrace.checkpoint.save(state, "gs://bucket/run/step1.pt", overwrite=True)  # wrong
headrace.checkpoint.save(state, "gs://bucket/run/step1.pt", format="onnx")  # wrong
headrace.checkpoint.load("gs://bucket/run/step1.pt", weight_only=True)  # wrong
headrace.checkpoint.latest("gs://bucket/run", by="date")  # wrong
DistributedWriter("gs://bucket/run/step2", theads=4)  # wrong
headrace.ray.report({}, state, "gs://bucket/run/step3.pt", if_generaton="absent")  # wrong
headrace.ray.restore(weight_only=True)  # wrong
