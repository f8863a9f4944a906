"""The Python code blocks of AIStore's documents that use `aistore.pytorch`.

They are those of NVIDIA/aistore at 583e772, from Python SDK 1.8 on. `$ENDPOINT` stands for the
cluster's address and `$BUCKET` for a bucket. Blocks that only train or draw are left out.
"""

from __future__ import annotations

from tests.scripts import Block, Document

SHARDS = """
import io
import tarfile

from aistore.sdk import Client


def put_shards(bucket, count):
    for number in range(count):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for sample in range(3):
                for extension, data in (("jpg", b"picture"), ("cls", b"%d" % sample)):
                    info = tarfile.TarInfo(f"{number}-{sample}.{extension}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        name = f"imagenet-train-{number:06}.tar"
        bucket.object(name).get_writer().put_content(content.getvalue())
"""

README = Document(
    "AIS Plugin for PyTorch (python/aistore/pytorch/README.md)",
    given=SHARDS
    + """
import torch

for name in ("$BUCKET-1", "$BUCKET-2"):
    made = Client("$ENDPOINT").bucket(name).create(exist_ok=True)
    for number in range(3):
        made.object(f"{number}").get_writer().put_content(b"content")
put_shards(Client("$ENDPOINT").bucket("$BUCKET-3").create(exist_ok=True), 2)


class args:
    batch_size, workers = 4, 2
""",
    blocks=[
        Block(
            "Map-style Dataset",
            """
from aistore.pytorch import AISMapDataset
from aistore.sdk import Client
import os

ais_url = os.getenv("AIS_ENDPOINT", "http://localhost:1")
client = Client(ais_url)

dataset = AISMapDataset(
    ais_source_list=[client.bucket(bck_name="$BUCKET-1"), client.bucket(bck_name="$BUCKET-2")]
)

for i in range(len(dataset)):
    print(dataset[i])
""",
        ),
        Block(
            "Creating DataLoader from AISMapDataset",
            """
from aistore.pytorch import AISMapDataset
from aistore.sdk import Client
import os

ais_url = os.getenv("AIS_ENDPOINT", "http://localhost:1")
client = Client(ais_url)
dataset1_bck = client.bucket("$BUCKET-1").create(exist_ok=True)
dataset2_bck = client.bucket("$BUCKET-2").create(exist_ok=True)

train_loader = torch.utils.data.DataLoader(
    AISMapDataset(
        ais_source_list = [dataset1_bck, dataset2_bck]
    ),
    batch_size=args.batch_size, shuffle=True,
    num_workers=args.workers, pin_memory=True,
)
""",
        ),
        Block(
            "Using ShardReader",
            """
from aistore.pytorch import AISShardReader
from aistore.sdk import Client
import os

ais_url = os.getenv("AIS_ENDPOINT", "http://localhost:1")
client = Client(ais_url)
bucket = client.bucket("$BUCKET-3").create(exist_ok=True)

shard_reader = AISShardReader(
    bucket_list=bucket
)

for basename, content_dict in shard_reader:
    print(basename, sorted(content_dict))
""",
        ),
    ],
    then="print('samples:', sum(len(names) for names, _ in train_loader), basename)\n",
)

BLOG = Document(
    "AIStore with PyTorch (docs/_posts/2024-08-28-pytorch-integration.md)",
    given="""
import pickle
from io import BytesIO

import numpy
import torch
from aistore.pytorch import AISBaseIterDataset
from PIL import Image


def tensor_of(image):
    return torch.from_numpy(numpy.array(image))


transform = tensor_of
""",
    blocks=[
        Block(
            "Using AIStore with PyTorch",
            """
import os
from aistore.pytorch import AISIterDataset
from aistore.sdk import Client

AIS_ENDPOINT = "$ENDPOINT"

bucket = Client(AIS_ENDPOINT).bucket("$BUCKET").create(exist_ok=True)

iter_dataset = AISIterDataset(ais_source_list=bucket)

for name, data in iter_dataset:
    pass
""",
        ),
        Block(
            "Using AIStore with PyTorch: DataLoader",
            """
from torch.utils.data import DataLoader

loader = DataLoader(iter_dataset, batch_size=4, num_workers=2)

for names, data in loader:
    pass
""",
        ),
        Block(
            "Creating custom datasets",
            """
class CIFAR10Dataset(AISBaseIterDataset):
    # Left to the reader.
    def __init__(self, cifar_ais_source, prefix_map, transform):
        super().__init__(cifar_ais_source, prefix_map)
        self._transform = transform

    def __iter__(self):
        self._reset_iterator()

        worker_iter, _ = self._get_worker_iter_info()

        for obj in worker_iter:
            cifar_dict = pickle.load(BytesIO(obj.get_reader().read_all()), encoding="bytes")

            data = cifar_dict[b"data"]
            reshaped_data = data.reshape(4, 3, 32, 32).transpose(0, 2, 3, 1)

            image_tensors = [
                self._transform(Image.fromarray(image.astype('uint8'), 'RGB'))
                for image in reshaped_data
            ]

            yield from iter(zip(image_tensors, cifar_dict[b"labels"]))
""",
        ),
        Block(
            "Managing data across sources with prefixes",
            """
# The data that the document lists.
for file in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
    pixels = numpy.zeros((4, 3072), dtype=numpy.uint8)
    content = pickle.dumps({b"data": pixels, b"labels": [0, 1, 2, 3]})
    bucket.object(f"cifar-10-batches-py/{file}").get_writer().put_content(content)

train_dataset = CIFAR10Dataset(
    cifar_ais_source=bucket,
    prefix_map={
        bucket: [
            "cifar-10-batches-py/data_batch_1",
            "cifar-10-batches-py/data_batch_2",
            "cifar-10-batches-py/data_batch_3",
            "cifar-10-batches-py/data_batch_4",
            "cifar-10-batches-py/data_batch_5",
        ]
    },
    transform=transform
)

test_dataset = CIFAR10Dataset(
    cifar_ais_source=bucket,
    prefix_map={
        bucket: "cifar-10-batches-py/test_batch"
    },
    transform=transform
)
""",
        ),
        Block(
            "WebDataset and AISShardReader",
            SHARDS
            + """
put_shards(Client(AIS_ENDPOINT).bucket("$BUCKET-1").create(exist_ok=True), 2)
cifar, bucket = bucket, Client(AIS_ENDPOINT).bucket("$BUCKET-1")

from aistore.pytorch import AISShardReader

shard_reader = AISShardReader(bucket_list=bucket)

loader = DataLoader(shard_reader, batch_size=60, num_workers=4)

for basenames, content_dict in loader:
    print(basenames, sorted(content_dict))
""",
        ),
        Block(
            "Dynamic Batching",
            """
from aistore.pytorch import AISMapDataset, DynamicBatchSampler

dataset = AISMapDataset(ais_source_list=bucket)

loader = DataLoader(
    dataset=dataset,
    batch_sampler=DynamicBatchSampler(
        data_source=dataset,
        max_batch_size=25_000,
        shuffle=True,
    ),
    num_workers=3
)
""",
        ),
    ],
    then="""
counts = [len(list(dataset)) for dataset in (train_dataset, test_dataset)]
print("samples:", *counts, sorted(len(names) for names, _ in loader))
""",
)

ARTICLES = Document(
    "Articles of docs/_posts that read a bucket: 2024-08-16-ishard, 2025-08-22-huggingface-"
    "integration, 2026-03-25-parallel-download",
    given=SHARDS
    + """
from timeit import default_timer as timer

import torch

from aistore.pytorch import AISIterDataset, AISShardReader
from torch.utils.data import DataLoader

AIS_ENDPOINT = "$ENDPOINT"
made = Client(AIS_ENDPOINT).bucket("$BUCKET-1").create(exist_ok=True)
for number in range(9):
    content = torch.full((4,), float(number)).numpy().tobytes()
    made.object(f"{number}.bin").get_writer().put_content(content)
made = Client(AIS_ENDPOINT).bucket("$BUCKET-2").create(exist_ok=True)
for number in range(9):
    made.object(f"{number}.json").get_writer().put_content(b'{"number": %d}' % number)
put_shards(Client(AIS_ENDPOINT).bucket("$BUCKET-3").create(exist_ok=True), 3)
total = read = 0
""",
    blocks=[
        Block(
            "Loading from the original dataset",
            """
client = Client(AIS_ENDPOINT)
dataset = AISIterDataset(ais_source_list=client.bucket("$BUCKET-1"))
loader = DataLoader(dataset, batch_size=256, num_workers=8)

start = timer()
for urls, data in loader:
    for idx in range(len(urls)):
        total += len(data[idx])
elapsed_time = timer() - start

print(f"{elapsed_time:.2f} s")
""",
        ),
        Block(
            "Loading from the sharded dataset",
            """
client = Client(AIS_ENDPOINT)
shard_reader = AISShardReader(bucket_list=client.bucket("$BUCKET-3"))
loader = DataLoader(shard_reader, batch_size=256, num_workers=8)

start = timer()
for basenames, content_dict in loader:
    for idx, basename in enumerate(basenames):
        for k, v in content_dict.items():
            if v[idx] != b"":
                total += len(v[idx])
elapsed_time = timer() - start

print(f"{elapsed_time:.2f} s")
""",
        ),
        Block(
            "PyTorch Integration (Recommended for ML Training)",
            """
from aistore.sdk import Client
from aistore.pytorch import AISIterDataset
from torch.utils.data import DataLoader
import json

client = Client("$ENDPOINT")
dataset = AISIterDataset(ais_source_list=client.bucket("$BUCKET-2"))

loader = DataLoader(
    dataset,
    batch_size=32,
    num_workers=4,
)

for batch_names, batch_data in loader:
    parsed_samples = [json.loads(data) for data in batch_data]
    read += sum(sample["number"] for sample in parsed_samples)
""",
        ),
        Block(
            "PyTorch Integration",
            """
from torch.utils.data import DataLoader
from aistore import Client
from aistore.pytorch import AISParallelMapDataset

bucket = Client("$ENDPOINT").bucket("$BUCKET-1")
dataset = AISParallelMapDataset(bucket, num_workers=8)

loader = DataLoader(dataset, batch_size=8, num_workers=2, collate_fn=lambda x: x)
for batch in loader:
    for name, buf in batch:
        tensor = torch.frombuffer(buf.buf, dtype=torch.float32)
        read += int(tensor.sum())
        buf.close()
""",
        ),
    ],
    then="print('sums:', total, read)\n",
)

NOTEBOOKS = Document(
    "Notebooks of python/examples/pytorch: dataset_example, shard_reader_example, "
    "cifar10_training_example, resnet50_wds_train, multishard_dataset_example",
    given=SHARDS
    + """
from io import BytesIO
import pickle
from random import shuffle
from typing import List, Union, Dict

import numpy
import torch
from PIL import Image


class transforms:
    Compose = object


def transform(image):
    return torch.from_numpy(numpy.array(image))


BCK_NAME = "$BUCKET-3"
put_shards(Client("$ENDPOINT").bucket(BCK_NAME).create(exist_ok=True), 10)
""",
    blocks=[
        Block(
            "Creating Datasets: imports",
            """
import os
from torch.utils.data import DataLoader
from aistore.pytorch import AISMapDataset, AISIterDataset
from aistore.sdk import Client
""",
        ),
        Block(
            "Creating Datasets: setup",
            """
ais_url = os.getenv("AIS_ENDPOINT", "http://localhost:1")
client = Client(ais_url)
bucket = client.bucket("$BUCKET-1").create(exist_ok=True)
""",
        ),
        Block(
            "Creating Datasets: objects",
            """
object_names = [f"obj_{i}" for i in range(10)]
for name in object_names:
    bucket.object(name).get_writer().put_content(f"{name}: ours".encode("utf-8"))
""",
        ),
        Block(
            "Creating Datasets: map-style",
            """
map_dataset = AISMapDataset(ais_source_list=bucket)

for i in range(
    len(map_dataset)
):
    print(map_dataset[i])

map_data_loader = DataLoader(map_dataset, batch_size=10)
""",
        ),
        Block(
            "Creating Datasets: iterable-style",
            """
iter_dataset = AISIterDataset(ais_source_list=bucket)
for sample in iter_dataset:
    print(sample)

iter_data_loader = DataLoader(iter_dataset, batch_size=10)
""",
        ),
        Block(
            "ShardReader: imports",
            """
from aistore.sdk import Client
from aistore.pytorch.shard_reader import AISShardReader
""",
        ),
        Block(
            "ShardReader: setup",
            """
AIS_ENDPOINT = "$ENDPOINT"
AIS_PROVIDER = "ais"
BCK_NAME = "$BUCKET-3"

client = Client(endpoint=AIS_ENDPOINT)
bucket = client.bucket(BCK_NAME, AIS_PROVIDER).create(exist_ok=True)
""",
        ),
        Block(
            "ShardReader: read",
            """
shard_reader = AISShardReader(bucket_list=bucket)

for basename, content_dict in shard_reader:
    print(basename, list(content_dict.keys()))
""",
        ),
        Block(
            "ShardReader: DataLoader",
            """
from torch.utils.data import DataLoader

loader = DataLoader(shard_reader, batch_size=60, num_workers=4)

for basenames, content_dicts in loader:
    print(basename, list(content_dict.keys()))
""",
        ),
        Block(
            "ResNet50: shards",
            """
shard_indices = list(range(10))
shuffle(shard_indices)

train_boundary = int(len(shard_indices) * 0.8)

train_indices = shard_indices[:train_boundary]
validation_indices = shard_indices[train_boundary:]

train_shards = AISShardReader(
    bucket_list=bucket,
    prefix_map={
        bucket: [f"imagenet-train-{index:06}.tar" for index in train_indices]
    },
)

validation_shards = AISShardReader(
    bucket_list=bucket,
    prefix_map={
        bucket: [f"imagenet-train-{index:06}.tar" for index in validation_indices]
    },
)
""",
        ),
        Block(
            "ResNet50: DataLoader",
            """
BATCH_SIZE = 5
NUM_WORKERS = 4

train_loader = DataLoader(train_shards, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS)

validation_loader = DataLoader(
    validation_shards, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS
)
""",
        ),
        Block(
            "CIFAR-10: imports and data",
            """
from aistore.sdk import Client
from aistore.pytorch import AISBaseIterDataset
from aistore.sdk.ais_source import AISSource

client = Client(endpoint=AIS_ENDPOINT)
bucket = client.bucket("$BUCKET-4", AIS_PROVIDER)
bucket.create(exist_ok=False)
for file in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
    pixels = numpy.zeros((4, 3072), dtype=numpy.uint8)
    content = pickle.dumps({b"data": pixels, b"labels": [0, 1, 2, 3]})
    bucket.object(f"cifar-10-batches-py/{file}").get_writer().put_content(content)
""",
        ),
        Block(
            "CIFAR-10: the dataset",
            """
class CIFAR10Dataset(AISBaseIterDataset):
    def __init__(
        self,
        cifar_ais_source: AISSource,
        transform: transforms.Compose,
        prefix_map: Dict[AISSource, Union[str, List[str]]] = {},
    ):
        super().__init__(cifar_ais_source, prefix_map)
        self._transform = transform
        self._reset_iterator()

    def __iter__(self):
        worker_iter, _ = self._get_worker_iter_info()

        for obj in worker_iter:
            obj_file = BytesIO(obj.get_reader().read_all())

            cifar_dict = pickle.load(obj_file, encoding="bytes")

            data = cifar_dict[b"data"]
            labels = cifar_dict[b"labels"]

            assert data.shape == (
                4,
                3072,
            )
            assert len(labels) == 4

            reshaped_data = data.reshape(4, 3, 32, 32)

            reshaped_data = reshaped_data.transpose(0, 2, 3, 1)

            image_tensors = [
                self._transform(Image.fromarray(image.astype("uint8"), "RGB"))
                for image in reshaped_data
            ]

            yield from iter(zip(image_tensors, labels))
""",
        ),
        Block(
            "CIFAR-10: training and validation",
            """
train_dataset = CIFAR10Dataset(
    cifar_ais_source=bucket,
    prefix_map={
        bucket: [
            "cifar-10-batches-py/data_batch_1",
            "cifar-10-batches-py/data_batch_2",
            "cifar-10-batches-py/data_batch_3",
            "cifar-10-batches-py/data_batch_4",
            "cifar-10-batches-py/data_batch_5",
        ]
    },
    transform=transform,
)

test_dataset = CIFAR10Dataset(
    cifar_ais_source=bucket,
    prefix_map={bucket: "cifar-10-batches-py/test_batch"},
    transform=transform,
)

BATCH_SIZE = 5
NUM_WORKERS = 3

training_loader = DataLoader(
    dataset=train_dataset,
    num_workers=NUM_WORKERS,
    batch_size=BATCH_SIZE,
)

test_loader = DataLoader(
    dataset=test_dataset,
    num_workers=NUM_WORKERS,
    batch_size=BATCH_SIZE,
)
# The notebook makes several passes.
passes = [sum(len(labels) for _, labels in training_loader) for _ in range(2)]
""",
        ),
        Block(
            "Multiple shards",
            """
import io
from aistore.sdk.client import Client
from aistore.sdk.dataset.data_shard import DataShard
from aistore.pytorch import AISMultiShardStream

ais_url = os.getenv("AIS_ENDPOINT", "http://localhost:1")
client = Client(ais_url)
bucket = client.bucket("$BUCKET-5").create(exist_ok=True)
for name, extension in (("text_shard.tar", "txt"), ("class_shard.tar", "cls")):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for number in range(5):
            info = tarfile.TarInfo(name=f"file{number}.{extension}")
            info.size = 1
            tar.addfile(tarinfo=info, fileobj=io.BytesIO(b"%d" % number))
    bucket.object(obj_name=name).get_writer().put_content(content.getvalue())

shard1 = DataShard(
    client_url=ais_url,
    bucket_name="$BUCKET-5",
    prefix="text_shard.tar",
)
shard2 = DataShard(
    client_url=ais_url,
    bucket_name="$BUCKET-5",
    prefix="class_shard.tar",
)

dataset = AISMultiShardStream(data_sources=[shard1, shard2])

rows = 0
for data in dataset:
    text_content, class_content = data
    rows += text_content == class_content
bucket.delete()
""",
        ),
    ],
    then="""
counts = [sum(len(names) for names, _ in loader) for loader in (train_loader, validation_loader)]
print("notebooks:", *passes, *counts, rows)
""",
)

STALE = {
    # A module that no SDK from 1.8 on has.
    "the module dataset": "from aistore.pytorch.dataset import AISIterDataset\n",
    # An argument that is called max_batch_size.
    "batch_size": """
from aistore.pytorch.batch_iter_dataset import AISBatchIterDataset
from aistore.sdk import Client

client = Client("http://localhost:1")
batch_dataset = AISBatchIterDataset(
    ais_source_list=client.bucket("b"),
    client=client,
    batch_size=128,
    streaming=True,
    show_progress=False
)
""",
    "AISDataset": "from aistore.pytorch import AISDataset\n",
    "AISSourceLister": "from aistore.pytorch import AISSourceLister\n",
}
"""Blocks of the README and of two articles that neither the original runs any more; the guide
names them."""
