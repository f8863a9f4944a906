"""Megatron-Core's own datasets, read through headrace."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.conftest import Child

GOLDEN = Path(__file__).parent / "golden"

# What users run, in short: the samples of GPTDataset, in the order in which they are packed.
SCRIPT = """
import json, os, pickle, sys, warnings
warnings.simplefilter("ignore")
import numpy, torch
import headrace.megatron
headrace.megatron.install(**json.loads(os.environ["OPTIONS"]))
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split

class Tokenizer:
    eod, pad, vocab_size, unique_identifiers = 0, 1, 50000, {"class": "of a test"}

golden, prefix, cache = sys.argv[1:4]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{cache}/rendezvous", rank=0, world_size=1
)
config = GPTDatasetConfig(
    random_seed=1234, sequence_length=8, blend=None, blend_per_split=None, split="1,0,0",
    mmap_bin_files=False, tokenizer=Tokenizer(), reset_position_ids=False,
    reset_attention_mask=False, eod_mask_loss=False, object_storage_cache_path=cache + "/idx",
    path_to_cache=cache,
)
low = GPTDataset.build_low_level_dataset(prefix, config)
told = json.load(open(f"{golden}/megatron.json"))
for packing in told["packings"]:
    dataset = GPTDataset(
        low, prefix, numpy.arange(len(low), dtype=numpy.int32), packing["num_samples"],
        Split.train, config,
    )
    places = {int(at): i for i, at in enumerate(dataset.shuffle_index)}
    for i, sample in enumerate(packing["samples"]):
        tokens = dataset[places[i]]
        assert [int(tokens["tokens"][0]), *tokens["labels"].tolist()] == sample, (i, sample)
# Also after a pickle, as in a worker, and from a local path as ever.
again = pickle.loads(pickle.dumps(low))
local = IndexedDataset(f"{golden}/megatron", mmap=True)
assert all((again[i] == local[i]).all() for i in range(len(local)))
assert (low.get(8, 3, 5) == local.get(8, 3, 5)).all()
found = sorted(os.path.relpath(os.path.join(folder, name), cache + "/idx")
               for folder, _, names in os.walk(cache + "/idx") for name in names)
assert found == [os.environ["CACHED"]], found
assert IndexedDataset.exists(prefix)
assert not IndexedDataset.exists(prefix + "-missing")
try:
    GPTDataset.build_low_level_dataset(prefix + "-missing", config)
except headrace.NotFoundError as error:
    assert "megatron-missing.idx" in str(error)
else:
    raise AssertionError("what is not there was read")
torch.distributed.destroy_process_group()
"""


def test_megatrons_gpt_dataset_reads_a_bucket(
    gcs: headrace.Store, server: FaultServer, run_child: Child, tmp_path: Path
) -> None:
    for name in ("megatron.bin", "megatron.idx"):
        gcs.write(f"corpus/{name}", (GOLDEN / name).read_bytes())
    server.reset(keep_buckets=True)
    run_child(
        SCRIPT,
        str(GOLDEN),
        "gs://bucket/corpus/megatron",
        str(tmp_path),
        OPTIONS=f'{{"endpoint": "{server.url}"}}',
        CACHED="gs/bucket/corpus/megatron.idx",
    )
    media = Counter(
        each["target"].partition("/o/")[2].partition("?")[0]
        for each in server.log()
        if each["kind"] == "media" and each["status"] < 300
    )
    assert media["corpus%2Fmegatron.idx"] == 1
    # Each read of a document is a request of its bytes.
    reads = [
        each["bytes_sent"]
        for each in server.log()
        if each["kind"] == "media" and "megatron.bin" in each["target"]
    ]
    assert len(reads) > 20
    assert max(reads) <= 30 * 2  # the longest document


# ---- what surrounds it, without Megatron-Core


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The functions that are replaced, in the modules that Megatron-Core has them in."""
    storage = ModuleType("megatron.core.datasets.object_storage_utils")
    datasets = ModuleType("megatron.core.datasets.indexed_dataset")
    storage.is_object_storage_path = lambda path: path.startswith("msc://")
    storage.get_object_storage_access = lambda _: "msc"
    storage.get_index_cache_path = lambda path, _: f"own of {path}"
    storage.cache_index_file = lambda *_: None
    storage.dataset_exists = lambda *_: True
    datasets.OBJECT_STORAGE_BIN_READERS = {"msc": object}
    datasets.is_object_storage_path = storage.is_object_storage_path
    for module in (storage, datasets):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return storage


class Config:
    path_to_idx_cache = "/cache"


def test_installing_replaces_what_modules_have_imported(storage: ModuleType) -> None:
    headrace.megatron.install()
    headrace.megatron.install()
    datasets = sys.modules["megatron.core.datasets.indexed_dataset"]
    for module in (storage, datasets):
        for url in ("gs://b/x", "s3://b/x", "ais://b/x", "ais+s3://b/x", "file:///x", "msc://p/x"):
            assert module.is_object_storage_path(url)
        for path in ("/data/x", "data/x", "http://x/y"):
            assert not module.is_object_storage_path(path)
    assert storage.get_object_storage_access("s3://b/x") == "headrace"
    assert storage.get_object_storage_access("msc://p/x") == "msc"
    assert datasets.OBJECT_STORAGE_BIN_READERS.keys() == {"msc", "headrace"}


def test_indexes_of_several_stores_have_places_of_their_own(storage: ModuleType) -> None:
    headrace.megatron.install()
    place = storage.get_index_cache_path
    assert place("s3://b/x.idx", Config) == "/cache/s3/b/x.idx"
    assert place("gs://b/x.idx", Config) == "/cache/gs/b/x.idx"
    assert place("msc://p/x.idx", Config) == "own of msc://p/x.idx"
    urls = [
        *("gs://b/x.idx", "gs://b//x.idx", "gs://b/%/x.idx", "gs://b/%25/x.idx", "gs:///b/x.idx"),
        *("s3://b/x.idx", "s3://gs/b/x.idx", "ais://b/x.idx", "ais+s3://b/x.idx"),
        *("gs://b/../x.idx", "gs://b/%2E%2E/x.idx", "gs://b/./x.idx", "gs://b/.../x.idx"),
        *("gs://b/a..b.idx", "gs://b/a%2E%2Eb.idx", "gs://b/../../../../x.idx", "file:///b/x.idx"),
    ]
    places = [os.path.normpath(place(url, Config)) for url in urls]
    assert len(set(places)) == len(urls)
    assert all(each.startswith("/cache/") for each in places)


def test_an_index_is_there_whole_or_not_at_all(
    storage: ModuleType, gcs: headrace.Store, server: FaultServer, tmp_path: Path
) -> None:
    headrace.megatron.install(endpoint=server.url)
    gcs.write("x.idx", b"index")
    place = tmp_path / "folder" / "x.idx"
    storage.cache_index_file("gs://bucket/x.idx", str(place))
    assert place.read_bytes() == b"index"
    server.faults([{"match": {"kind": "media"}, "action": {"status": 403}}])
    with pytest.raises(headrace.HeadraceError):
        storage.cache_index_file("gs://bucket/x.idx", str(place))
    assert [each.name for each in place.parent.iterdir()] == ["x.idx"]


def test_a_bin_that_was_replaced_is_not_read(
    storage: ModuleType, gcs: headrace.Store, server: FaultServer
) -> None:
    import numpy as np

    headrace.megatron.install(endpoint=server.url)
    readers = sys.modules["megatron.core.datasets.indexed_dataset"].OBJECT_STORAGE_BIN_READERS
    gcs.write("x.bin", np.arange(100, dtype="uint16").tobytes())
    reader = readers["headrace"]("gs://bucket/x.bin", Config)
    assert reader.read(np.uint16, np.int32(3), np.int64(20)).tolist() == [10, 11, 12]
    assert reader.read(np.uint16, 0, 200).tolist() == []
    with pytest.raises(headrace.HeadraceError):
        reader.read(np.uint16, 3, 196)
    gcs.write("x.bin", bytes(200))
    with pytest.raises(headrace.PreconditionFailedError, match=r"x\.bin"):
        reader.read(np.uint16, 3, 20)


def test_other_versions_are_refused(storage: ModuleType) -> None:
    del storage.get_index_cache_path
    with pytest.raises(headrace.InvalidArgumentError, match="has no get_index_cache_path"):
        headrace.megatron.install()
    with pytest.raises(TypeError, match="bin_chunk_nbytes"):
        headrace.megatron.install(bin_chunk_nbytes=5)


def test_the_tests_have_megatron_core() -> None:
    assert importlib.util.find_spec("megatron.core") is not None
