"""Programs written for dataflux run unchanged by ``python -m headrace.compat``, on fake-gcs-server.

They make the calls of the original's list-and-download demos and of its README.
"""

from __future__ import annotations

import pytest

from testing.servers import FakeGcsServer
from tests.compat.conftest import RunScript

PARSER = """
import argparse
import logging
import multiprocessing

from google.cloud import storage
from google.cloud.storage import retry
from torch.utils import data


def as_it_is(content_in_bytes):
    return content_in_bytes


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", type=str)
    parser.add_argument("--bucket", type=str)
    parser.add_argument("--prefix", type=str)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--no-dataflux", type=bool, default=False)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--multiprocessing-start-method", type=str, default=None)
    parser.add_argument("--initialize-storage-client", type=bool, default=False)
    return parser.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level="ERROR")
    multiprocessing.set_start_method(args.multiprocessing_start_method)
    retry_config = retry.DEFAULT_RETRY.with_timeout(300.0).with_delay(
        initial=1.0, maximum=45.0, multiplier=1.2
    )
    dataset = make_dataset(args, retry_config)
    loader = make_loader(args, dataset)
    for epoch in range(args.epochs):
        total_objects = total_bytes = 0
        for batch in loader:
            total_objects += len(batch)
            for object_bytes in batch:
                total_bytes += len(object_bytes)
        print(f"epoch {epoch}: {total_objects} objects, {total_bytes} bytes")
"""

MAP_DEMO = (
    PARSER
    + """

from dataflux_pytorch import dataflux_mapstyle_dataset


def make_dataset(args, retry_config):
    config = dataflux_mapstyle_dataset.Config(
        threads_per_process=2,
        max_composite_object_size=100000000,
        list_retry_config=retry_config,
        download_retry_config=retry_config,
    )
    if args.no_dataflux:
        config.max_composite_object_size = 0
        config.num_processes = 1
    if args.prefix:
        config.prefix = args.prefix
    dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
        project_name=args.project,
        bucket_name=args.bucket,
        config=config,
        data_format_fn=as_it_is,
        storage_client=storage.Client(project=args.project)
        if args.initialize_storage_client
        else None,
    )
    print(f"{len(dataset)} listed")
    return dataset


def make_loader(args, dataset):
    return data.DataLoader(
        dataset=dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.num_workers,
        prefetch_factor=2,
        persistent_workers=True,
        pin_memory=True,
    )


if __name__ == "__main__":
    main()
"""
)

ITERABLE_DEMO = (
    PARSER
    + """

from dataflux_pytorch import dataflux_iterable_dataset


def make_dataset(args, retry_config):
    config = dataflux_iterable_dataset.Config(
        max_composite_object_size=100000000,
        list_retry_config=retry_config,
        download_retry_config=retry_config,
    )
    if args.no_dataflux:
        config.max_composite_object_size = 0
        config.num_processes = 1
    if args.prefix:
        config.prefix = args.prefix
    dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
        project_name=args.project,
        bucket_name=args.bucket,
        config=config,
        data_format_fn=as_it_is,
        storage_client=storage.Client(project=args.project)
        if args.initialize_storage_client
        else None,
    )
    print(f"{len(dataset.objects)} listed")
    return dataset


def make_loader(args, dataset):
    return data.DataLoader(
        dataset=dataset,
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        prefetch_factor=2,
        persistent_workers=True,
        pin_memory=True,
    )


if __name__ == "__main__":
    main()
"""
)

README = """
from dataflux_pytorch import dataflux_iterable_dataset, dataflux_mapstyle_dataset
import sys

PROJECT_NAME, BUCKET_NAME, PREFIX = "project", sys.argv[1], "train/"

map_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
)
sample_object = map_dataset.objects[0]
print(sample_object[0], sample_object[1])
print(sum(len(each_object) for each_object in map_dataset))

iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_iterable_dataset.Config(prefix=PREFIX),
)
total = 0
for each_object in iterable_dataset:
    total += len(each_object)
print(total)

transform = lambda in_bytes: in_bytes.decode()
map_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
    data_format_fn=transform,
)
for each_object in map_dataset:
    print(each_object)
    break
dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
    data_format_fn=transform,
)
for each_object in dataset:
    print(each_object)
    break
"""

LIBRARY_README = """
import sys
from dataflux_core import download, fast_list

project, bucket = "project", sys.argv[1]
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
print(len(list_result), sum(map(len, download_result)))
"""

CHECKPOINT_README = """
import sys

import torch
from dataflux_pytorch import dataflux_checkpoint
from dataflux_pytorch.lightning import DatafluxLightningCheckpoint
from lightning import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

PROJECT_NAME, BUCKET_NAME = "project", sys.argv[1]

ckpt = dataflux_checkpoint.DatafluxCheckpoint(project_name=PROJECT_NAME, bucket_name=BUCKET_NAME)
CKPT_PATH = "checkpoints/epoch0.ckpt"
model = torch.nn.Linear(3, 4)
with ckpt.writer(CKPT_PATH) as writer:
    torch.save(model.state_dict(), writer)
with ckpt.reader(CKPT_PATH) as reader:
    read_state_dict = torch.load(reader)
model.load_state_dict(read_state_dict)

CKPT = f"gcs://{BUCKET_NAME}/checkpoints/ckpt.ckpt"
dataflux_ckpt = DatafluxLightningCheckpoint(project_name=PROJECT_NAME)


def make_trainer(max_steps):
    return Trainer(
        plugins=[dataflux_ckpt],
        min_epochs=4,
        max_epochs=5,
        max_steps=max_steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


trainer = make_trainer(10)
trainer.fit(BoringModel())
trainer.save_checkpoint(CKPT)

trainer = make_trainer(12)
trainer.fit(BoringModel(), ckpt_path=CKPT)
print(trainer.global_step)
"""

OBJECTS = 50
TOTAL_BYTES = sum(3 * (i + 1) for i in range(OBJECTS))


@pytest.fixture
def bucket(fake_gcs: FakeGcsServer, gcs_bucket: str) -> str:
    for i in range(OBJECTS):
        fake_gcs.put(gcs_bucket, f"train/{i:03d}", b"%03d" % i * (i + 1))
    fake_gcs.put(gcs_bucket, "other/x", b"x")
    return gcs_bucket


@pytest.mark.parametrize(
    ("demo", "method", "options"),
    [
        pytest.param(MAP_DEMO, "fork", ["--no-dataflux=1", "--num-workers=2"], id="map-fork"),
        pytest.param(MAP_DEMO, "spawn", ["--initialize-storage-client=1"], id="map-spawn"),
        pytest.param(MAP_DEMO, "forkserver", [], id="map-forkserver"),
        pytest.param(ITERABLE_DEMO, "fork", ["--num-workers=2"], id="iterable-fork"),
        pytest.param(
            ITERABLE_DEMO, "spawn", ["--initialize-storage-client=1"], id="iterable-spawn"
        ),
    ],
)
def test_the_demos_calls_run(
    fake_gcs: FakeGcsServer,
    bucket: str,
    run_script: RunScript,
    demo: str,
    method: str,
    options: list[str],
) -> None:
    printed = run_script(
        demo,
        "--project=project",
        f"--bucket={bucket}",
        "--prefix=train/",
        f"--multiprocessing-start-method={method}",
        *options,
        STORAGE_EMULATOR_HOST=fake_gcs.url,
        # pin_memory without an accelerator, and forking with threads on newer Pythons, are told.
        PYTHONWARNINGS="ignore",
    )
    assert printed.splitlines() == [
        f"{OBJECTS} listed",
        f"epoch 0: {OBJECTS} objects, {TOTAL_BYTES} bytes",
        f"epoch 1: {OBJECTS} objects, {TOTAL_BYTES} bytes",
    ]
    assert len(fake_gcs.names(bucket)) == OBJECTS + 1


def test_the_readmes_examples_run(
    fake_gcs: FakeGcsServer, bucket: str, run_script: RunScript
) -> None:
    printed = run_script(README, bucket, STORAGE_EMULATOR_HOST=fake_gcs.url)
    assert printed.splitlines() == ["train/000 3", str(TOTAL_BYTES), str(TOTAL_BYTES), "000", "000"]
    assert len(fake_gcs.names(bucket)) == OBJECTS + 1


def test_the_librarys_examples_run(
    fake_gcs: FakeGcsServer, bucket: str, run_script: RunScript
) -> None:
    printed = run_script(LIBRARY_README, bucket, STORAGE_EMULATOR_HOST=fake_gcs.url)
    assert printed.split() == [str(OBJECTS), str(TOTAL_BYTES)]


def test_the_readmes_checkpoints_are_saved_and_loaded(
    fake_gcs: FakeGcsServer, bucket: str, run_script: RunScript
) -> None:
    printed = run_script(
        CHECKPOINT_README, bucket, STORAGE_EMULATOR_HOST=fake_gcs.url, PYTHONWARNINGS="ignore"
    )
    assert printed.splitlines()[0] == "12"
    saved = [name for name in fake_gcs.names(bucket) if name.startswith("checkpoints/")]
    assert saved == ["checkpoints/ckpt.ckpt", "checkpoints/epoch0.ckpt"]
