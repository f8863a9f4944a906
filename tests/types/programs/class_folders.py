"""Class folders with labels, and a resume in the middle of an epoch."""

from __future__ import annotations

from typing import assert_type

import torch
from torch.utils.data import ConcatDataset, DataLoader, random_split

from headrace import Sample
from headrace.torch import Loader, MapDataset


def decode(sample: Sample) -> torch.Tensor:
    return sample.tensor().float()


def length(sample: Sample) -> int:
    return len(sample)


def text(sample: Sample) -> dict[str, torch.Tensor]:
    return {"bytes": sample.tensor()}


def stacked(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, list[int]]:
    return torch.stack([image for image, _ in samples]), [label for _, label in samples]


folders = MapDataset.from_folders("gs://bucket/train", decode)
assert_type(folders, MapDataset[tuple[torch.Tensor, int]])
assert_type(folders[0], tuple[torch.Tensor, int])
loader = Loader(folders, 64, shuffle=True, seed=7, device="cuda")
assert_type(loader, Loader[list[torch.Tensor]])
for images, labels in loader:
    assert_type(images, torch.Tensor)
    print(images.mean(), labels.shape)
state = loader.state_dict()
loader.load_state_dict(state)

assert_type(Loader(folders, 64, collate_fn=stacked), Loader[tuple[torch.Tensor, list[int]]])
plain = MapDataset("gs://bucket/train", endpoint="http://localhost", suffix=".jpg")
assert_type(plain[0], torch.Tensor)
assert_type(Loader(plain, 4), Loader[torch.Tensor])
assert_type(Loader(MapDataset("data", length), batch_size=4), Loader[torch.Tensor])
assert_type(Loader(MapDataset("data", text), 4), Loader[dict[str, torch.Tensor]])
assert_type(MapDataset("data", decode, labels=len)[0], tuple[torch.Tensor, int])
labelled = MapDataset("data", decode, labels={"a.jpg": 1.5})
assert_type(labelled[0], tuple[torch.Tensor, float])
assert_type(Loader(labelled, 4), Loader[list[torch.Tensor]])
first, second = random_split(plain, [0.9, 0.1])
assert_type(Loader(first, max_batch_bytes=1 << 20, batch_size=8), Loader[torch.Tensor])
both: ConcatDataset[torch.Tensor] = ConcatDataset([first, second])
assert_type(Loader(both, 4), Loader[torch.Tensor])
DataLoader(plain, batch_size=4)

folders = MapDataset.from_folders("gs://bucket/train", endpont="http://localhost")  # wrong
MapDataset.from_folders("gs://bucket/train", decode, shuffle=True)  # wrong
MapDataset("data", lambda sample: sample.no_such_method())  # wrong
plain[0].no_such_method()  # wrong
Loader(plain)  # wrong
Loader(plain, 4, shufle=True)  # wrong
Loader(plain, 4, num_workers=4)  # wrong
Loader(plain, 4, shuffle="blocks")  # wrong
Loader(plain, "4")  # wrong
for batch in Loader(plain, 4):
    batch.no_such_method()  # wrong
MapDataset("data", decode, batch_size=4)  # wrong
