"""The Python code blocks of dataflux's documents.

They are those of GoogleCloudPlatform/dataflux-pytorch at 3b1a25f and of dataflux-client-python.
`$BUCKET` stands for the name of a bucket. Packages that are not here have stand-ins: `STAND_INS`
holds their files, which lie in the folder "stand_ins".
"""

from __future__ import annotations

from tests.scripts import Block, Document

STAND_INS = {
    "torchvision/__init__.py": """
import torch

from torchvision import models, transforms
""",
    "torchvision/models.py": """
import torch


def resnet50():
    return torch.nn.Linear(3, 4)
""",
    "torchvision/transforms/__init__.py": "from torchvision.transforms import functional\n",
    "torchvision/transforms/functional.py": """
import numpy
import torch


def pil_to_tensor(image):
    return torch.from_numpy(numpy.array(image.convert("RGB"))).permute(2, 0, 1)
""",
    "google/colab/__init__.py": "",
    "google/colab/auth.py": "def authenticate_user(project_id):\n    pass\n",
}

WITH_STAND_INS = """
import sys

sys.path.append("stand_ins")
"""

# It looks for torchvision, and would take the stand-in's for a whole one.
AFTER_LIGHTNING = "import lightning.pytorch\n" + WITH_STAND_INS

IMAGES = """
import io

from google.cloud import storage
from PIL import Image


def put_images(bucket_name, prefix, count):
    bucket = storage.Client(project="project").bucket(bucket_name)
    for number in range(count):
        content = io.BytesIO()
        Image.new("RGB", (8, 8), (number, 0, 0)).save(content, "PNG")
        bucket.blob(f"{prefix}/{number:03d}.png").upload_from_string(content.getvalue())
"""

README = Document(
    "GCS connector for PyTorch, README.md",
    given=AFTER_LIGHTNING
    + IMAGES
    + """
put_images("$BUCKET", "train", 4)
# Names that the README uses and does not define.
PROJECT_ID = "project"
dataset = range(1)
""",
    blocks=[
        Block(
            "Data Loading: map-style",
            """
from dataflux_pytorch import dataflux_mapstyle_dataset

PROJECT_NAME = "project"
BUCKET_NAME = "$BUCKET"
PREFIX = "train/"

map_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
)

sample_object = map_dataset.objects[0]

name = sample_object[0]
size = sample_object[1]

for each_object in map_dataset:
    print(each_object)
""",
        ),
        Block(
            "Data Loading: iterable",
            """
from dataflux_pytorch import dataflux_iterable_dataset

iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
)

for each_object in iterable_dataset:
    print(each_object)
""",
        ),
        Block(
            "Data Loading: map-style, transformed",
            """
import io
import numpy
from PIL import Image

transform = lambda img_in_bytes: numpy.asarray(Image.open(io.BytesIO(img_in_bytes)))

map_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
    data_format_fn=transform,
)

for each_object in map_dataset:
    print(each_object)
""",
        ),
        Block(
            "Data Loading: iterable, transformed",
            """
iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
    data_format_fn=transform,
)
for each_object in dataset:
    print(each_object)
""",
        ),
        Block(
            "Checkpointing",
            """
import torch
import torchvision

from dataflux_pytorch import dataflux_checkpoint

ckpt = dataflux_checkpoint.DatafluxCheckpoint(
    project_name=PROJECT_NAME, bucket_name=BUCKET_NAME
)
CKPT_PATH = "checkpoints/epoch0.ckpt"

model = torchvision.models.resnet50()

with ckpt.writer(CKPT_PATH) as writer:
    torch.save(model.state_dict(), writer)

with ckpt.reader(CKPT_PATH) as reader:
    read_state_dict = torch.load(reader)

model.load_state_dict(read_state_dict)
""",
        ),
        Block(
            "Lightning Checkpointing",
            """
from lightning import Trainer
from lightning.pytorch.demos import WikiText2, LightningTransformer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from dataflux_pytorch.lightning import DatafluxLightningCheckpoint

CKPT = "gcs://$BUCKET/checkpoints/ckpt.ckpt"
dataflux_ckpt = DatafluxLightningCheckpoint(project_name=PROJECT_NAME)

dataset = WikiText2()
dataloader = DataLoader(dataset, num_workers=1)
model = LightningTransformer(vocab_size=dataset.vocab_size)
trainer = Trainer(
    plugins=[dataflux_ckpt],
    min_epochs=4,
    max_epochs=5,
    max_steps=10,
    accelerator="cpu",
)

trainer.fit(model, dataloader)
trainer.save_checkpoint(CKPT)
""",
        ),
        Block(
            "Async Checkpointing",
            """
import torch.distributed as dist
from torch.distributed.checkpoint import async_save
from dataflux_pytorch.lightning.gcs_filesystem import GCSDistributedWriter

# The reader's: a run of one rank, and what it saves.
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
path, project, storage_client = "gs://$BUCKET/async", "project", None
num_epochs, state_dict = 2, {"weight": torch.arange(10.0)}

default_ranks = list(range(dist.get_world_size()))
# The document has 'nccl', which needs a GPU.
checkpoint_group = dist.new_group(default_ranks, backend='gloo')

writer = GCSDistributedWriter(path, project, storage_client)

checkpoint_future = None
for _ in range(num_epochs):
    if checkpoint_future is not None:
        checkpoint_future.result()

    checkpoint_future = async_save(
        state_dict,
        checkpoint_id=path,
        storage_writer=writer,
        process_group=checkpoint_group)
""",
        ),
        Block(
            "Composite Objects",
            """
dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        max_composite_object_size=0,
        disable_compose=True,
    ),
)
""",
        ),
        Block(
            "Egress Throughput Limits",
            """
from google.cloud.storage.retry import DEFAULT_RETRY

dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        max_composite_object_size=0,
        list_retry_config=DEFAULT_RETRY.with_deadline(300.0).with_delay(
            initial=1.0, multiplier=1.2, maximum=45.0
        ),
        download_retry_config=DEFAULT_RETRY.with_deadline(600.0).with_delay(
            initial=1.0, multiplier=1.5, maximum=90.0
        ),
    ),
)
""",
        ),
    ],
    then="""
checkpoint_future.result()
dist.destroy_process_group()
print("listed:", len(map_dataset), len(iterable_dataset.objects), len(dataset))
""",
)

LIGHTNING_NOTEBOOK = Document(
    "Getting Started with Dataflux PyTorch Lightning Checkpoint (demo/lightning/*.ipynb), and "
    "demo/lightning/checkpoint/singlenode/README.md",
    given=AFTER_LIGHTNING,
    blocks=[
        Block(
            "Preparation",
            """
from google.colab import auth
PROJECT_ID = "project"
auth.authenticate_user(project_id=PROJECT_ID)
""",
        ),
        Block(
            "Lightning Checkpointing: the plugin",
            """
from dataflux_pytorch.lightning import DatafluxLightningCheckpoint

dataflux_ckpt = DatafluxLightningCheckpoint(project_name=PROJECT_ID)
CKPT_PATH = "gs://$BUCKET/demo/"
""",
        ),
        Block(
            "Lightning Checkpointing: the model",
            """
from lightning.pytorch.demos import WikiText2, LightningTransformer
from torch.utils.data import DataLoader

dataset = WikiText2()
dataloader = DataLoader(dataset, num_workers=1)

model = LightningTransformer(vocab_size=dataset.vocab_size)
""",
        ),
        Block(
            "Lightning Checkpointing: the callback",
            """
from lightning.pytorch.callbacks import ModelCheckpoint

checkpoint_callback = ModelCheckpoint(
    save_top_k=-1,
    every_n_train_steps=1,
    filename="checkpoint-{epoch:02d}-{step:02d}",
    enable_version_counter=True,
)
""",
        ),
        Block(
            "Lightning Checkpointing: the trainer",
            """
from lightning import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

trainer = Trainer(
    default_root_dir=CKPT_PATH,
    callbacks=[checkpoint_callback],
    plugins=[dataflux_ckpt],
    min_epochs=4,
    max_epochs=5,
    max_steps=3,
    accelerator="cpu",
)
trainer.fit(model, dataloader)
""",
        ),
        Block(
            "Lightning Checkpointing: by hand",
            """
CKPT = "gs://$BUCKET/path/to/checkpoint.ckpt"
trainer.save_checkpoint(CKPT)
""",
        ),
        Block(
            "Using AsyncCheckpointIO",
            """
from dataflux_pytorch.lightning import DatafluxLightningAsyncCheckpoint

dataflux_ckpt = DatafluxLightningAsyncCheckpoint(project_name="project")
""",
        ),
    ],
    then="""
# A trainer takes it as it took the other one; the default ModelCheckpoint saves to this folder.
Trainer(plugins=[dataflux_ckpt], max_steps=1, accelerator="cpu").fit(model, dataloader)
import pathlib
print("local:", *[each.name for each in pathlib.Path().rglob("*.ckpt")])
""",
)

WALKTHROUGH = Document(
    "Getting Started with Dataflux Dataset (demo/simple-walkthrough/*.ipynb)",
    given=WITH_STAND_INS
    + IMAGES
    + """
put_images("$BUCKET-public", "simple-demo-dataset", 40)
put_images("$BUCKET-public", "diffusiondb-large", 3)
display = print  # as in a notebook
""",
    blocks=[
        Block(
            "Preparation: the project",
            """
from google.colab import auth
PROJECT_ID = "project"
auth.authenticate_user(project_id=PROJECT_ID)
""",
        ),
        Block("Preparation: the bucket", 'BUCKET_NAME = "$BUCKET-own"\n'),
        Block(
            "Preparation: a new bucket",
            """
from google.cloud import storage

storage_client = storage.Client()
bucket = storage_client.bucket(BUCKET_NAME)
bucket.storage_class = "STANDARD"
new_bucket = storage_client.create_bucket(bucket, location="us")

print("made")
""",
        ),
        Block(
            "Preparation: the data",
            """
from google.cloud import storage

storage_client = storage.Client()
source_bucket = storage_client.bucket("$BUCKET-public")
all_files = [filename.name for filename in
             source_bucket.list_blobs(prefix="simple-demo-dataset")]

for i in range(len(all_files)):
    source_blob = source_bucket.blob(all_files[i])
    source_bucket.copy_blob(source_blob, new_bucket, all_files[i])

print("copied")
""",
        ),
        Block(
            "Map-style Dataset",
            """
from dataflux_pytorch import dataflux_mapstyle_dataset

PREFIX = "simple-demo-dataset"

dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
)

print(len(dataset.objects))
""",
        ),
        Block("Map-style Dataset: objects", "dataset.objects[0]\n"),
        Block(
            "Map-style Dataset: one",
            """
import io
from PIL import Image

Image.open(io.BytesIO(dataset[0])).reduce(2)
""",
        ),
        Block(
            "Map-style Dataset: five",
            """
count = 0
for object in dataset:
    display(dataset.objects[count][0])
    display(Image.open(io.BytesIO(object)).reduce(2))
    count += 1
    if (count == 5):
        break
""",
        ),
        Block(
            "Iterable-style Dataset",
            """
from dataflux_pytorch import dataflux_iterable_dataset

PREFIX = "simple-demo-dataset"

iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
)
""",
        ),
        Block(
            "Iterable-style Dataset: five",
            """
import io
from PIL import Image

count = 0
for object in iterable_dataset:
    display(iterable_dataset.objects[count][0])
    display(Image.open(io.BytesIO(object)).reduce(2))
    count += 1
    if (count == 5):
        break
""",
        ),
        Block(
            "DataLoaders: map-style",
            """
import torch
import torchvision

def load_image(content_bytes):
    img = Image.open(io.BytesIO(content_bytes)).resize((512, 512))
    return torchvision.transforms.functional.pil_to_tensor(img)

dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        sort_listing_results=True,
    ),
    data_format_fn=load_image,
)

loader = torch.utils.data.DataLoader(
    dataset,
    num_workers=2,
    batch_size=20,
    shuffle=True,
)
for batch in loader:
    print(batch.shape)
""",
        ),
        Block(
            "DataLoaders: iterable-style",
            """
import torch
import torchvision

def load_image(content_bytes):
    img = Image.open(io.BytesIO(content_bytes)).resize((512, 512))
    return torchvision.transforms.functional.pil_to_tensor(img)

dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        sort_listing_results=True,
    ),
    data_format_fn=load_image,
)

loader = torch.utils.data.DataLoader(
    dataset,
    num_workers=2,
    batch_size=20,
)
for batch in loader:
    print(batch.shape)
""",
        ),
        Block(
            "Data Listing: one process",
            """
from time import time
from dataflux_pytorch import dataflux_mapstyle_dataset

t0 = time()
dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_ID,
    bucket_name="$BUCKET-public",
    config=dataflux_mapstyle_dataset.Config(
        prefix="diffusiondb-large/",
        num_processes=1,
    ),
)
t1 = time()
print(f"{t1-t0} s for "
      f"{len(dataset.objects)} objects")
""",
        ),
        Block(
            "Data Listing: five processes",
            """
t0 = time()
dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_ID,
    bucket_name="$BUCKET-public",
    config=dataflux_mapstyle_dataset.Config(
        prefix="diffusiondb-large/",
        num_processes=5,
    ),
)
t1 = time()
print(f"{t1-t0} s for "
      f"{len(dataset.objects)} objects")
""",
        ),
        Block("Data Listing: CPUs", "import os\n\nos.cpu_count()\n"),
        Block(
            "Data Loading: composed",
            """
from time import time
from PIL import Image
import torch
import torchvision
import io

from dataflux_pytorch import dataflux_mapstyle_dataset

def load_image(content_bytes):
    img = Image.open(io.BytesIO(content_bytes)).resize((512, 512))
    return torchvision.transforms.functional.pil_to_tensor(img)

dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        sort_listing_results=True,
    ),
    data_format_fn=load_image,
)

loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=20,
)

t1 = time()
for batch in loader:
    pass
t2 = time()
print(f"{t2 - t1} s")
""",
        ),
        Block(
            "Data Loading: not composed",
            """
dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_ID,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        sort_listing_results=True,
        max_composite_object_size=0,
    ),
    data_format_fn=load_image,
)

loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=20,
)

t1 = time()
for batch in loader:
    pass
t2 = time()
print(f"{t2 - t1} s")
""",
        ),
        Block(
            "Checkpointing",
            """
from dataflux_pytorch import dataflux_checkpoint

ckpt = dataflux_checkpoint.DatafluxCheckpoint(
    project_name=PROJECT_ID, bucket_name=BUCKET_NAME
)
CKPT_PATH = "checkpoints/epoch0.ckpt"
""",
        ),
        Block(
            "Checkpointing: save",
            """
model = torchvision.models.resnet50()

with ckpt.writer(CKPT_PATH) as writer:
    torch.save(model.state_dict(), writer)
""",
        ),
        Block(
            "Checkpointing: load",
            """
with ckpt.reader(CKPT_PATH) as reader:
    read_state_dict = torch.load(reader)

model.load_state_dict(read_state_dict)
""",
        ),
    ],
    then='print("batches:", len(loader), tuple(batch.shape))\n',
)

PAIRS = """
import io

import numpy as np
import torch
from google.cloud import storage
from torch.utils.data import Dataset

bucket = storage.Client(project="project").bucket("$BUCKET")
for number in range(6):
    for folder in ("images", "labels"):
        content = io.BytesIO()
        np.save(content, np.full((1, 4), number, dtype=np.float32))
        bucket.blob(f"{folder}/{number}.npy").upload_from_string(content.getvalue())


class RandBalancedCrop:
    def __init__(self, patch_size, oversampling):
        pass

    def __call__(self, data):
        return data


def get_train_transforms():
    return lambda data: data


class flags:
    input_shape, oversampling, seed = [1, 4], 0.4, 1
    images_prefix, labels_prefix = "images/", "labels/"
    gcp_project, gcs_bucket = "project", "$BUCKET"
    accelerator, epochs, num_devices, num_nodes, num_workers = "cpu", 1, 1, 1, 1
"""

SEGMENTATION = Document(
    "Image segmentation with Ray (demo/image_segmentation/README.md)",
    given=PAIRS
    + """
import dataflux_core
from dataflux_pytorch import dataflux_mapstyle_dataset
from google.api_core.client_info import ClientInfo
""",
    blocks=[
        Block(
            "Workload: the dataset",
            """
class DatafluxPytTrain(Dataset):
    def __init__(
        self,
        project_name,
        bucket_name,
        config=dataflux_mapstyle_dataset.Config(),
        storage_client=None,
        **kwargs,
    ):
        self.train_transforms = get_train_transforms()
        patch_size, oversampling = kwargs["patch_size"], kwargs["oversampling"]
        images_prefix, labels_prefix = kwargs["images_prefix"], kwargs["labels_prefix"]
        self.patch_size = patch_size
        self.rand_crop = RandBalancedCrop(
            patch_size=patch_size, oversampling=oversampling
        )

        self.project_name = project_name
        self.bucket_name = bucket_name
        self.config = config
        self.dataflux_download_optimization_params = (
            dataflux_core.download.DataFluxDownloadOptimizationParams(
                max_composite_object_size=self.config.max_composite_object_size
            )
        )
        if not storage_client:
            self.storage_client = storage.Client(
                project=project_name,
                client_info=ClientInfo(user_agent="ours/1"),
            )

        self.images = dataflux_core.fast_list.ListingController(
            max_parallelism=self.config.num_processes,
            project=self.project_name,
            bucket=self.bucket_name,
            sort_results=self.config.sort_listing_results,
            prefix=images_prefix,
        ).run()
        self.labels = dataflux_core.fast_list.ListingController(
            max_parallelism=self.config.num_processes,
            project=self.project_name,
            bucket=self.bucket_name,
            sort_results=self.config.sort_listing_results,
            prefix=labels_prefix,
        ).run()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        image = np.load(
            io.BytesIO(
                dataflux_core.download.download_single(
                    storage_client=self.storage_client,
                    bucket_name=self.bucket_name,
                    object_name=self.images[idx][0],
                )
            ),
        )

        label = np.load(
            io.BytesIO(
                dataflux_core.download.download_single(
                    storage_client=self.storage_client,
                    bucket_name=self.bucket_name,
                    object_name=self.labels[idx][0],
                )
            ),
        )

        data = {"image": image, "label": label}
        data = self.rand_crop(data)
        data = self.train_transforms(data)
        return data["image"], data["label"]

    def __getitems__(self, indices):
        images_in_bytes = dataflux_core.download.dataflux_download(
            project_name=self.project_name,
            bucket_name=self.bucket_name,
            objects=[self.images[idx] for idx in indices],
            storage_client=self.storage_client,
            dataflux_download_optimization_params=self.dataflux_download_optimization_params,
        )

        labels_in_bytes = dataflux_core.download.dataflux_download(
            project_name=self.project_name,
            bucket_name=self.bucket_name,
            objects=[self.labels[idx] for idx in indices],
            storage_client=self.storage_client,
            dataflux_download_optimization_params=self.dataflux_download_optimization_params,
        )

        res = []
        for i in range(len(images_in_bytes)):
            data = {
                "image": np.load(io.BytesIO(images_in_bytes[i])),
                "label": np.load(io.BytesIO(labels_in_bytes[i])),
            }
            data = self.rand_crop(data)
            data = self.train_transforms(data)
            res.append((data["image"], data["label"]))
        return res
""",
        ),
        Block(
            "Workload: its arguments",
            """
train_data_kwargs = {
    "patch_size": flags.input_shape,
    "oversampling": flags.oversampling,
    "seed": flags.seed,
    "images_prefix": flags.images_prefix,
    "labels_prefix": flags.labels_prefix,
}
train_dataset = DatafluxPytTrain(
    project_name=flags.gcp_project,
    bucket_name=flags.gcs_bucket,
    config=dataflux_mapstyle_dataset.Config(sort_listing_results=True),
    **train_data_kwargs,
)
""",
        ),
    ],
    then="""
pairs = [train_dataset[i] for i in range(len(train_dataset))]
pairs += train_dataset.__getitems__([5, 2])
print("pairs:", *[int(image[0, 0]) for image, label in pairs if (image == label).all()])
""",
)

LIGHTNING_SEGMENTATION = Document(
    "Image segmentation with Lightning (demo/lightning/image_segmentation/README.md)",
    given=PAIRS
    + """
import lightning.pytorch as pl
from dataflux_pytorch import dataflux_mapstyle_dataset
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.utils.data.distributed import DistributedSampler
""",
    blocks=[
        Block(
            "Image Segmentation: the dataset",
            """
class DatafluxPytTrain(Dataset):
    def __init__(
            self,
            project_name,
            bucket_name,
            **kwargs,
        ):

            self.train_transforms = kwargs["transforms"]
            patch_size, oversampling = kwargs["patch_size"], kwargs["oversampling"]
            self.patch_size = patch_size
            self.rand_crop = RandBalancedCrop(patch_size=patch_size,
                                              oversampling=oversampling)

            self.project_name = project_name
            self.bucket_name = bucket_name

            self.images_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
                project_name=self.project_name,
                bucket_name=self.bucket_name,
                config=dataflux_mapstyle_dataset.Config(
                    sort_listing_results=True,
                    prefix=kwargs["images_prefix"],
                ),
            )

            self.labels_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
                project_name=self.project_name,
                bucket_name=self.bucket_name,
                config=dataflux_mapstyle_dataset.Config(
                    sort_listing_results=True,
                    prefix=kwargs["labels_prefix"],
                ),
            )

    # Left to the reader.
    def __len__(self):
        return len(self.images_dataset)

    def __getitem__(self, index):
        pair = self.images_dataset[index], self.labels_dataset[index]
        return tuple(torch.from_numpy(np.load(io.BytesIO(content))[0]) for content in pair)
""",
        ),
        Block(
            "Image Segmentation: the data module",
            """
class Unet3DDataModule(pl.LightningDataModule):
    def __init__(self, args):
        super().__init__()
        self.args = args

    def setup(self, stage="fit"):
        if stage == "fit":
            train_data_kwargs = {
                "patch_size": self.args.input_shape,
                "oversampling": self.args.oversampling,
                "seed": self.args.seed,
                "images_prefix": self.args.images_prefix,
                "labels_prefix": self.args.labels_prefix,
                "transforms": get_train_transforms(),
            }
            self.train_dataset = DatafluxPytTrain(
                project_name=self.args.gcp_project,
                bucket_name=self.args.gcs_bucket,
                **train_data_kwargs,
            )
            self.train_sampler = None
            if self.args.num_workers > 1:
                self.train_sampler = DistributedSampler(
                    self.train_dataset,
                    seed=self.args.seed,
                    drop_last=True
                )

    # Left to the reader.
    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=2)


class Unet3DLightning(BoringModel):
    def __init__(self, flags):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.seen = []

    def training_step(self, batch, index):
        images, labels = batch
        assert torch.equal(images, labels)
        self.seen += images[:, 0].int().tolist()
        return super().training_step(images, index)

    def val_dataloader(self):
        return None
""",
        ),
        Block(
            "Image Segmentation: the trainer",
            """
model = Unet3DLightning(flags)
train_data_loader = Unet3DDataModule(flags)
trainer = pl.Trainer(
    accelerator=flags.accelerator,
    max_epochs=flags.epochs,
    devices=flags.num_devices,
    num_nodes=flags.num_nodes,
    strategy="ddp",
)
trainer.fit(model=model, train_dataloaders=train_data_loader)
""",
        ),
    ],
    then='print("seen:", *sorted(model.seen))\n',
)

LIBRARY_README = Document(
    "dataflux-client-python, README.md",
    given="""
from google.cloud import storage

bucket_ = storage.Client(project="project").bucket("$BUCKET")
for number in range(50):
    bucket_.blob(f"train/{number:03d}").upload_from_string(b"x" * number)
project, bucket = "project", "$BUCKET"
""",
    blocks=[
        Block(
            "Fast List and Download",
            """
from dataflux_core import download, fast_list

list_result = fast_list.ListingController(
    max_parallelism=4, project=project, bucket=bucket, prefix="train/"
).run()
download_params = download.DataFluxDownloadOptimizationParams(10000000)
download_result = download.dataflux_download(
    project_name=project,
    bucket_name=bucket,
    objects=list_result,
    dataflux_download_optimization_params=download_params,
)
""",
        ),
    ],
    then="print('read:', len(list_result), sum(map(len, download_result)))\n",
)
