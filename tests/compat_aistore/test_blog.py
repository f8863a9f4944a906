"""The published examples of the plugin, scaled down, on a real cluster."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from aistore import Client
from aistore.sdk import Bucket
from aistore.sdk.multiobj import ObjectGroup
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from headrace.compat.aistore.pytorch import (
    AISBaseIterDataset,
    AISBaseMapDataset,
    AISIterDataset,
    AISMapDataset,
    AISShardReader,
    DynamicBatchSampler,
)
from headrace.compat.aistore.pytorch.utils import convert_mb_to_bytes
from testing.servers import AistoreCluster
from tests.compat_aistore.test_shards import tar

CLASSES = 3

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def picture(label: int, number: int) -> bytes:
    """A small PNG whose colour tells its class."""
    generator = torch.Generator().manual_seed(100 * label + number)
    pixels = torch.randint(0, 60, (16, 16, 3), generator=generator, dtype=torch.uint8)
    pixels[..., label] += 180
    out = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(out, "PNG")
    return out.getvalue()


def decoded(content: bytes) -> torch.Tensor:
    image = Image.open(io.BytesIO(content))
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.reshape(16, 16, 3).permute(2, 0, 1).float() / 255


@pytest.fixture
def bucket(ais_cluster: AistoreCluster, ais_bucket: str) -> Bucket:
    return Client(ais_cluster.url).bucket(ais_bucket)


@pytest.fixture
def pictures(ais_cluster: AistoreCluster, bucket: Bucket) -> dict[str, bytes]:
    contents = {
        f"train/{label}/{number:02d}.png": picture(label, number)
        for label in range(CLASSES)
        for number in range(16)
    }
    for name, content in contents.items():
        ais_cluster.put(bucket.name, name, content)
    return contents


class Pictures(AISBaseMapDataset):
    """As in the CIFAR-10 example: a map-style dataset of the user's own over an object group."""

    def __init__(self, ais_source_list: Any) -> None:
        super().__init__(ais_source_list)

    def __len__(self) -> int:
        return len(self._obj_list)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        value = self._obj_list[index]
        return decoded(value.get_reader().read_all()), int(value.name.split("/")[1])


class StreamOfPictures(AISBaseIterDataset):
    """The same, iterable."""

    def __iter__(self) -> Any:
        self._reset_iterator()
        objects, _ = self._get_worker_iter_info()
        for value in objects:
            yield decoded(value.get_reader().read_all()), int(value.name.split("/")[1])


class ResNet(nn.Module):
    """The smallest residual network that learns these pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.block = nn.Sequential(
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
        )
        self.last = nn.Linear(8, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.first(images)
        found = found + self.block(found)
        return self.last(found.mean((2, 3)))


def trained_accuracy(loader: Any, epochs: int) -> float:
    torch.manual_seed(1)
    model = ResNet()
    parameters = [*model.parameters()]
    for _ in range(epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            with torch.no_grad():
                # The optimizers of torch.optim take seconds to import.
                for each, slope in zip(
                    parameters, torch.autograd.grad(loss, parameters), strict=True
                ):
                    each -= 0.2 * slope
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += int((model(images).argmax(1) == labels).sum())
            total += len(labels)
    assert total == CLASSES * 16
    return right / total


def group_of(bucket: Bucket, pictures: dict[str, bytes]) -> ObjectGroup:
    return bucket.objects(obj_names=[*pictures])


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.soak), 2])
def test_a_network_learns_from_pictures_in_a_bucket(
    bucket: Bucket, pictures: dict[str, bytes], workers: int
) -> None:
    loader = DataLoader(
        Pictures(group_of(bucket, pictures)), batch_size=12, shuffle=True, num_workers=workers
    )
    assert trained_accuracy(loader, 6) > 0.9


def test_a_network_learns_from_a_stream_of_pictures(
    bucket: Bucket, pictures: dict[str, bytes]
) -> None:
    by_number = sorted(pictures, key=lambda name: name.rpartition("/")[2])  # classes mixed
    dataset = StreamOfPictures(bucket.objects(obj_names=by_number))
    assert trained_accuracy(DataLoader(dataset, batch_size=12), 6) > 0.9


def test_shards_of_pictures_train_as_well(
    ais_cluster: AistoreCluster, bucket: Bucket, pictures: dict[str, bytes]
) -> None:
    for number in range(4):
        members = []
        for name, content in [*pictures.items()][number::4]:
            _, label, file = name.split("/")
            key = f"{label}-{file.partition('.')[0]}"
            members += [(f"{key}.png", content), (f"{key}.cls", label.encode())]
        ais_cluster.put(bucket.name, f"shards/{number}.tar", tar(members))
    reader = AISShardReader(bucket, {bucket: "shards/"})

    def collate(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.stack([decoded(fields["png"]) for _, fields in samples])
        return images, torch.tensor([int(fields["cls"]) for _, fields in samples])

    loader = DataLoader(reader, batch_size=12, collate_fn=collate)
    assert trained_accuracy(loader, 8) > 0.9


@pytest.mark.parametrize(("limit_mb", "expected"), [(4, [4, 4, 2]), (3, [3, 3, 3, 1]), (0.5, [])])
def test_ten_objects_of_a_megabyte_make_dynamic_batches(
    ais_cluster: AistoreCluster, bucket: Bucket, limit_mb: float, expected: list[int]
) -> None:
    for number in range(10):
        ais_cluster.put(bucket.name, f"{number}.bin", b"%d" % number * 1_000_000)
    dataset = AISMapDataset(bucket)
    sampler = DynamicBatchSampler(dataset, convert_mb_to_bytes(limit_mb))
    batches = [[*map(len, contents)] for _, contents in DataLoader(dataset, batch_sampler=sampler)]
    assert [len(batch) for batch in batches] == expected
    assert {size for batch in batches for size in batch} <= {1_000_000}
    whole = DynamicBatchSampler(
        dataset, convert_mb_to_bytes(limit_mb), allow_oversized_samples=True
    )
    assert sorted(i for batch in whole for i in batch) == [*range(10)]


def test_all_workers_together_yield_every_object_once(
    bucket: Bucket, pictures: dict[str, bytes]
) -> None:
    loader = DataLoader(AISIterDataset(bucket), batch_size=8, num_workers=2)
    assert {n: bytes(c) for batch in loader for n, c in zip(*batch, strict=True)} == pictures
