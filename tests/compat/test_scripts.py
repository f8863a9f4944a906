"""Programs written for dataflux run unchanged by ``python -m headrace.compat``, on fake-gcs-server.

They make the calls of the original's list-and-download demos, and every code block that its
documents print.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testing.servers import FakeGcsServer
from tests.compat.printed import (
    LIBRARY_README,
    LIGHTNING_NOTEBOOK,
    LIGHTNING_SEGMENTATION,
    README,
    SEGMENTATION,
    STAND_INS,
    WALKTHROUGH,
)
from tests.scripts import Document, RunScript

RunDocument = Callable[[Document], str]

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
        pytest.param(
            MAP_DEMO,
            "spawn",
            ["--initialize-storage-client=1"],
            id="map-spawn",
            marks=pytest.mark.soak,
        ),
        pytest.param(MAP_DEMO, "forkserver", [], id="map-forkserver"),
        pytest.param(
            ITERABLE_DEMO, "fork", ["--num-workers=2"], id="iterable-fork", marks=pytest.mark.soak
        ),
        pytest.param(
            ITERABLE_DEMO,
            "spawn",
            ["--initialize-storage-client=1"],
            id="iterable-spawn",
            marks=pytest.mark.soak,
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


@pytest.fixture
def run_document(
    fake_gcs: FakeGcsServer, gcs_bucket: str, run_script: RunScript, tmp_path: Path
) -> RunDocument:
    """Run all blocks of a document, and return what was printed."""
    for name, content in STAND_INS.items():
        file = tmp_path / "stand_ins" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    text = tmp_path / "data" / "wikitext-2.txt"  # of Lightning's demos, which download it
    text.parent.mkdir()
    text.write_text("a text of a few words\n" * 200)

    def run(document: Document) -> str:
        printed = run_script(
            document.script(BUCKET=gcs_bucket),
            STORAGE_EMULATOR_HOST=fake_gcs.url,
            GOOGLE_CLOUD_PROJECT="project",
            PYTHONWARNINGS="ignore",
        )
        document.require_ran(printed)
        return printed

    return run


def test_the_blocks_of_the_readme_run(
    fake_gcs: FakeGcsServer, gcs_bucket: str, run_document: RunDocument, tmp_path: Path
) -> None:
    printed = run_document(README)
    assert "listed: 4 4 4" in printed
    names = fake_gcs.names(gcs_bucket)
    assert [name for name in names if not name.startswith(("train/", "async/"))] == [
        "checkpoints/ckpt.ckpt",
        "checkpoints/epoch0.ckpt",
    ]
    assert "async/.metadata" in names
    # What Lightning saves by itself when a fit ends.
    assert [file.name for file in tmp_path.rglob("*.ckpt")] == ["epoch=0-step=10.ckpt"]


def test_the_blocks_of_the_lightning_notebook_run(
    fake_gcs: FakeGcsServer, gcs_bucket: str, run_document: RunDocument
) -> None:
    printed = run_document(LIGHTNING_NOTEBOOK)
    assert "local: epoch=0-step=1.ckpt" in printed
    saved = [name for name in fake_gcs.names(gcs_bucket) if name.endswith(".ckpt")]
    folder = "demo/lightning_logs/version_0/checkpoints"
    assert saved == [
        *(f"{folder}/checkpoint-epoch=00-step={step:02d}.ckpt" for step in (1, 2, 3)),
        "path/to/checkpoint.ckpt",
    ]


def test_the_blocks_of_the_walkthrough_run(
    fake_gcs: FakeGcsServer, gcs_bucket: str, run_document: RunDocument
) -> None:
    fake_gcs.make_bucket(f"{gcs_bucket}-public")
    printed = run_document(WALKTHROUGH)
    assert "batches: 2 (20, 3, 512, 512)" in printed
    assert printed.count("torch.Size([20, 3, 512, 512])") == 4
    assert len(fake_gcs.names(f"{gcs_bucket}-own")) == 41


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(SEGMENTATION, "pairs: 0 1 2 3 4 5 5 2", id="segmentation"),
        pytest.param(LIGHTNING_SEGMENTATION, "seen: 0 1 2 3 4 5", id="lightning-segmentation"),
        pytest.param(LIBRARY_README, f"read: 50 {sum(range(50))}", id="library"),
    ],
)
def test_the_blocks_of_the_other_documents_run(
    run_document: RunDocument, document: Document, expected: str
) -> None:
    assert expected in run_document(document)
