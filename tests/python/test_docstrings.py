"""Every public function, class and method says what it raises and has an example, which runs."""

from __future__ import annotations

import datetime
import doctest
import inspect
import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.python.public import Public, is_of_another_library, public_callables
from tests.shards.tars import tar

PUBLIC = {each.name: each for each in public_callables()}

MADE_BY_A_CALL = {
    "headrace.Cleaned",
    "headrace.ListPage",
    "headrace.Metrics",
    "headrace.Prefix",
    "headrace.UnfinishedUpload",
    "headrace.checkpoint.TensorInfo",
    "headrace.types.LoaderStats",
}
"""Results: values that calls return, and nobody else makes."""

RAISES_NOTHING = {
    # Nobody makes these: functions return them, and say what they raise.
    "headrace.ObjectIndex": "made by Store.index and from_names, from_urls, from_objects",
    "headrace.ObjectReaderIO": "made by headrace.open",
    "headrace.ObjectWriter": "made by Store.open_writer",
    "headrace.ObjectWriterIO": "made by headrace.open",
    "headrace.Packed": "made by headrace.pack",
    "headrace.Trace": "made by headrace.trace",
    "headrace.Verdict": "made by Loader.stats, and by Trace.stop",
    "headrace.checkpoint.CheckpointReader": "made by headrace.checkpoint.open",
    # These make what they are given, and ask nobody.
    "headrace.ObjectInfo": "keeps what it is given",
    "headrace.Sample": "keeps what it is given",
    "headrace.Metrics.prometheus": "tells what it knows",
    "headrace.ObjectReaderIO.close": "what is under way is cancelled",
    "headrace.Sample.bytes": "copies memory",
    **{
        f"headrace.fsspec.{each}FileSystem.start_transaction": "notes that one has begun"
        for each in ("Ais", "Folder", "Gcs", "S3", "Store")
    },
    "headrace.Store.url_of": "asks nobody",
    "headrace.checkpoint.CheckpointReader.keys": "they were read when it was opened",
    "headrace.checkpoint.DistributedReader.prepare_global_plan": "returns the plans",
    "headrace.checkpoint.DistributedReader.prepare_local_plan": "returns the plan",
    "headrace.checkpoint.DistributedReader.validate_checkpoint_id": "answers yes or no",
    "headrace.checkpoint.DistributedWriter.attach": "keeps what it is given",
    "headrace.checkpoint.DistributedWriter.close": "does nothing",
    "headrace.checkpoint.DistributedWriter.prepare_global_plan": "returns the plans",
    "headrace.checkpoint.DistributedWriter.prepare_local_plan": "returns the plan",
    "headrace.checkpoint.DistributedWriter.storage_meta": "tells what it knows",
    "headrace.checkpoint.DistributedWriter.synchronize_staging": "does nothing",
    "headrace.checkpoint.DistributedWriter.validate_checkpoint_id": "answers yes or no",
    "headrace.huggingface.CheckpointCallback.on_train_begin": "what it cannot remove stays",
    "headrace.metrics": "tells what it knows",
    "headrace.shutdown": "ends things, whatever state they are in",
    "headrace.torch.CostBatchSampler.state_dict": "tells where it is",
    "headrace.torch.Loader.state_dict": "tells where it is",
    "headrace.torch.ParquetDataset.state_dict": "tells where it is",
    "headrace.torch.ShardStream.state_dict": "tells where it is",
    "headrace.torch.WeightedSampler.state_dict": "tells where it is",
    "headrace.torch_checkpointing.ObjectStorageConfig.create_storage": "asks nobody",
}

CALLED_BY_TORCH = {
    f"headrace.checkpoint.DistributedWriter.{name}"
    for name in ("close", "stage", "synchronize_staging")
}
"""Of torch's AsyncStager, which is a protocol and no base. What a base has is found by itself."""


ONLY_READ = {
    "headrace.configure",  # is for the whole process, of all tests
    "headrace.huggingface.CheckpointCallback",  # tests/huggingface and the guide run them
    "headrace.huggingface.CheckpointUploads",
    "headrace.huggingface.CheckpointUploads.close",
    "headrace.huggingface.CheckpointUploads.submit",
    "headrace.huggingface.CheckpointUploads.wait",
    "headrace.huggingface.download",
    "headrace.huggingface.latest",
    "headrace.huggingface.resume",
    "headrace.fsspec.register",  # is for the whole process, of all tests
    "headrace.lightning.AsyncCheckpointIO",  # tests/lightning has trainers
    "headrace.lightning.CheckpointIO",
    "headrace.ray.ranks",  # need a cluster; tests/ray has one
    "headrace.ray.read_objects",
    "headrace.ray.read_shards",
    "headrace.ray.report",
    "headrace.ray.restore",
    "headrace.megatron.install",  # is for the whole process; tests/tokens has one for it
    "headrace.torch_checkpointing.ObjectStorageConfig",  # tests/torch_checkpointing has it
    "headrace.torch_checkpointing.ObjectStorageConfig.create_storage",
    "headrace.torch_checkpointing.mark_complete",
}
"""Their examples do not run here; others may have lines that do not (``# doctest: +SKIP``)."""


def is_error(public: Public) -> bool:
    return isinstance(public.thing, type) and issubclass(public.thing, Exception)


def docstring_of(public: Public) -> str:
    return inspect.getdoc(public.thing) or ""


def test_all_that_can_raise_says_what() -> None:
    silent = {
        name
        for name, public in PUBLIC.items()
        if "Raises:\n" not in docstring_of(public)
        and not is_error(public)
        and name not in MADE_BY_A_CALL
    }
    assert silent == RAISES_NOTHING.keys() & PUBLIC.keys()


def test_all_that_users_call_has_an_example() -> None:
    bare = {
        name
        for name, public in PUBLIC.items()
        if ">>> " not in docstring_of(public)
        and not is_error(public)
        and not is_of_another_library(public)
    }
    assert bare == (MADE_BY_A_CALL | CALLED_BY_TORCH) & PUBLIC.keys()


# ---- examples


@pytest.fixture
def store(tmp_path: Path) -> headrace.Store:
    """What `store` is in the examples of `headrace.Store`."""
    store = headrace.Store(tmp_path / "store")
    for name, data in (("notes.txt", b"notes"), ("train/a.txt", b"a"), ("train/b.txt", b"b")):
        store.write(name, data)
    return store


SAMPLE = (("jpg", 1200), ("cls", 1))
"""Fields of samples in shards, and their sizes."""


def table() -> bytes:
    """Return a Parquet file of ten rows."""
    import pyarrow
    from pyarrow import parquet

    out = io.BytesIO()
    rows = {"image": [b"picture"] * 10, "label": range(10)}
    parquet.write_table(pyarrow.table(rows), out)
    return out.getvalue()


@pytest.fixture
def bucket(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``gs://`` is in the examples."""
    for name in ("a", "b", "bucket"):
        server.bucket(name)
        server.put("bucket", "notes.txt", b"notes")
        server.put(name, "1.jpg", b"picture")
    pictures = {"cat/001.jpg": 52113, "cat/002.jpg": 61004, "dog/001.jpg": 48302}
    for name, size_bytes in pictures.items():
        server.put("bucket", f"train/{name}", bytes([255]) * size_bytes)
    rows = [f"gs://bucket/train/{name},{name[:3]}" for name in pictures]
    server.put("bucket", "train.csv", "\n".join(["url,label", *rows]).encode())
    server.put("bucket", "tokens/train.bin", bytes(2 * 10_000))
    members = [(f"00000{i}.{field}", b"1" * size) for i in (0, 1) for field, size in SAMPLE]
    for i in range(2):
        server.put("bucket", f"shards/train-00{i}.tar", tar(members))
    server.put("bucket", "tables/part-000.parquet", table())
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)


@pytest.fixture
def names(bucket: None, store: headrace.Store, tmp_path: Path) -> dict[str, Any]:
    """What the names in the examples mean."""
    torch = pytest.importorskip("torch")
    import numpy
    import torch.distributed.checkpoint as dcp
    from torch.utils.data import DataLoader

    import headrace.checkpoint

    model = torch.nn.Linear(3, 2)
    headrace.checkpoint.save(model.state_dict(), "gs://bucket/run1/step100.pt")
    writer = headrace.checkpoint.DistributedWriter("gs://bucket/run1/step200")
    writer.attach({"config.json": b"{}"})
    dcp.save({"model": model.state_dict()}, storage_writer=writer, no_dist=True)

    def decode(sample: headrace.Sample) -> tuple[torch.Tensor, int]:
        return sample.tensor()[:4].float(), int("dog" in sample.name)

    dataset = headrace.torch.MapDataset("gs://bucket/train", decode)
    index = headrace.Store("gs://bucket/train").index().with_columns({"label": [0, 0, 1]})
    index.save("gs://bucket/indexes/train")
    loader = headrace.torch.Loader(dataset, batch_size=2)
    state = loader.state_dict()
    stream = headrace.torch.ShardStream("gs://bucket/shards")
    sample = headrace.Sample(bytes([255]) * 52113, index.url(0), name="cat/001.jpg", seed=7)
    lengths = [300, 200, 100]
    return {
        "CostBatchSampler": headrace.torch.CostBatchSampler,
        "DataLoader": DataLoader,
        "Loader": headrace.torch.Loader,
        "mix": headrace.torch.mix,
        "MapDataset": headrace.torch.MapDataset,
        "ParquetDataset": headrace.torch.ParquetDataset,
        "ShardDataset": headrace.torch.ShardDataset,
        "ShardStream": headrace.torch.ShardStream,
        "TokenDataset": headrace.torch.TokenDataset,
        "WeightedSampler": headrace.torch.WeightedSampler,
        "dataset": dataset,
        "decode": decode,
        "epoch": 0,
        "headrace": headrace,
        "index": index,
        "lengths": lengths,
        "loader": loader,
        "model": model,
        "numpy": numpy,
        "os": os,
        "pieces": [b"one", b"two"],
        "sample": sample,
        "sampler": headrace.torch.CostBatchSampler(dataset, cost=lengths, max_batch_cost=400),
        "shared_index": headrace.torch.shared_index,
        "signal": signal,
        "image": torch.zeros(3),
        "state": state,
        "store": store,
        "stream": stream,
        "torch": torch,
        "train": lambda *_: None,
        "yesterday": datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1),
    }


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_examples_run(names: dict[str, Any], store: headrace.Store) -> None:
    told: list[str] = []
    only_read = set()
    before = signal.getsignal(signal.SIGTERM)
    for name, public in PUBLIC.items():
        example = doctest.DocTestParser().get_doctest(
            docstring_of(public), dict(names), name, name, 0
        )
        # Each begins with what the one before was given.
        for info in list(store.list()):
            if info.name not in ("notes.txt", "train/a.txt", "train/b.txt"):
                store.delete(info.name)
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(example, out=told.append, clear_globs=False)
        if example.examples and runner.tries == 0:
            only_read.add(name)
    signal.signal(signal.SIGTERM, before)
    assert "".join(told) == ""
    assert only_read == ONLY_READ & PUBLIC.keys()
