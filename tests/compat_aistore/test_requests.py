"""What a cluster is asked for: listings, reads, batches; and answers that lack something."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aistore import Client
from aistore.sdk import Bucket
from torch.utils.data import DataLoader

import headrace
from headrace import AisOptions
from headrace.compat.aistore.pytorch import (
    AISBaseIterDataset,
    AISBaseMapDataset,
    AISBatchIterDataset,
    AISIterDataset,
    AISMapDataset,
    AISMultiShardStream,
    AISShardReader,
)
from testing.faultserver.client import FaultServer
from tests.compat_aistore.conftest import keep_listing
from tests.compat_aistore.test_shards import samples, tar

COUNT = 200

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def cluster(ais_server: FaultServer) -> FaultServer:
    """A proxy and three targets, with an empty bucket; it keeps a log."""
    ais_server.bucket("bucket")
    return ais_server


@pytest.fixture
def count(cluster: FaultServer) -> Callable[[str], int]:
    """How many requests of a kind have been carried out, when all have ended.

    A request that the proxy sent on to a target, since the map was not known yet, is one.
    """

    def counted(kind: str) -> int:
        headrace.shutdown()
        return cluster.carried_out(kind)

    return counted


@pytest.fixture
def contents(cluster: FaultServer) -> dict[str, bytes]:
    found = {f"train/{i:03d}": b"%03d" % i * (i % 50) for i in range(COUNT)}
    for name, content in found.items():
        cluster.put("bucket", name, content)
    return found


@pytest.fixture
def bucket(cluster: FaultServer) -> Bucket:
    return Client(cluster.url).bucket("bucket")


def test_a_subclass_may_read_by_threads(
    cluster: FaultServer,
    contents: dict[str, bytes],
    bucket: Bucket,
    count: Callable[[str], int],
) -> None:
    def read(value: Any) -> tuple[str, bytes]:
        return value.name, value.get_reader().read_all()

    class Mapped(AISBaseMapDataset):
        def __len__(self) -> int:
            return len(self._obj_list)

        def __getitem__(self, index: int) -> Any:
            # All threads wait for the same batch.
            first, *_ = pool.map(read, [self._obj_list[index]] * 4)
            return first

    class Streamed(AISBaseIterDataset):
        def __iter__(self) -> Any:
            self._reset_iterator()
            objects, _ = self._get_worker_iter_info()
            return pool.map(read, objects)

    cluster.latency(first_byte_ms=20)  # so that they do wait
    with ThreadPoolExecutor(8) as pool:
        loader = DataLoader(Mapped(bucket), batch_size=50, collate_fn=dict)
        assert {name: data for batch in loader for name, data in batch.items()} == contents
        assert dict(Streamed(bucket)) == contents
    assert count("media") >= 2 * COUNT


def test_a_new_token_of_the_client_is_that_of_the_next_read(
    cluster: FaultServer, contents: dict[str, bytes]
) -> None:
    cluster.auth(["first"])
    client = Client(cluster.url, token="first")
    dataset = AISMapDataset(client.bucket("bucket"))
    assert dict(dataset) == contents
    cluster.auth(["second"])
    client._request_client.token = "second"
    assert dataset[7] == ("train/007", contents["train/007"])
    reader = dataset.get_obj_list()[9].get_reader()
    assert reader.as_file().read() == contents["train/009"]
    assert dict(pickle.loads(pickle.dumps(dataset))) == contents


def test_a_prefix_that_is_a_folders_name_warns_once(cluster: FaultServer, bucket: Bucket) -> None:
    names = ["train", "train-small/1", "train.tar", "train/1", "train/2", "train0", "x/é", "x/é/1"]
    for name in names:
        cluster.put("bucket", name, tar(samples(0, 2)))
    text = r"'train' of the bucket 'bucket' is the name of a folder, with 2 of the 6 .* 'train/'"
    with pytest.warns(UserWarning, match=text) as caught:
        dataset = AISMapDataset(bucket, {bucket: ["train", "x/é"]})
    assert [name for name, _ in dataset] == names
    stream = AISIterDataset(bucket, {bucket: "train"})
    with pytest.warns(UserWarning, match=text) as caught_later:
        passes = [[name for name, _ in stream] for _ in range(2)]
    assert passes == [names[:6]] * 2
    shards: Any = type("Stream", (), {"bucket": bucket, "prefix": "train", "etl_name": None})
    rows = AISMultiShardStream([shards])
    with pytest.warns(UserWarning, match=text) as caught_of_shards:
        counts = [len(list(rows)) for _ in range(2)]
    assert counts[0] == counts[1]
    assert [len(each) for each in (caught, caught_later, caught_of_shards)] == [1, 1, 1]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for prefix in ["train/", "tra", "x/", "train-", "none"]:
            AISMapDataset(bucket, {bucket: prefix})


def test_a_shard_is_one_request(cluster: FaultServer, count: Callable[[str], int]) -> None:
    provider = AisOptions(get_batch="never")
    bucket = headrace.Store("ais://bucket", endpoint=cluster.url, provider=provider)
    for i in range(3):
        cluster.put("bucket", f"{i}.tar", tar(samples(10 * i, 10 * i + 10)))
    assert len(list(iter(AISShardReader(bucket)))) == 30
    assert count("media") == 3
    stream: Any = type("Stream", (), {"bucket": bucket, "prefix": "", "etl_name": None})
    assert len(list(AISMultiShardStream([stream]))) == 60
    assert count("media") == 6


@pytest.fixture(params=["always", "never"])
def source(request: pytest.FixtureRequest, cluster: FaultServer) -> headrace.Store:
    """The bucket, read by batches or object by object."""
    provider = AisOptions(get_batch=request.param)
    return headrace.Store(
        "ais://bucket", endpoint=cluster.url, provider=provider, on_change="reread"
    )


@pytest.mark.parametrize("missing", [[], [0], [0, 1], [*range(20)], [5, 77, 198, 199]])
def test_missing_entries_of_a_batch_are_the_ones_that_are_left_out(
    cluster: FaultServer,
    contents: dict[str, bytes],
    source: headrace.Store,
    caplog: pytest.LogCaptureFixture,
    missing: list[int],
) -> None:
    dataset = AISBatchIterDataset(source, None, cont_on_err=True)
    strict = AISBatchIterDataset(source, None)
    keep_listing(dataset, strict)
    names = [*contents]
    for i in missing:
        source.delete(names[i])
    left = {name: content for i, (name, content) in enumerate(contents.items()) if i not in missing}
    assert dict(iter(dataset)) == left
    skipped = [each.getMessage() for each in caplog.records if "Skipping" in each.getMessage()]
    assert skipped == [f"Skipping {names[i]}: there is no such object" for i in missing]
    if missing:
        with pytest.raises(RuntimeError, match=names[missing[0]]):
            list(iter(strict))


def test_a_batch_is_one_request_where_the_cluster_has_it(
    cluster: FaultServer, contents: dict[str, bytes]
) -> None:
    provider = AisOptions(get_batch="always")
    store = headrace.Store("ais://bucket", endpoint=cluster.url, provider=provider)
    assert dict(AISBatchIterDataset(store, None, max_batch_size=50)) == contents
    headrace.shutdown()
    log = cluster.log()
    batches = [each for each in log if each["kind"] == "moss" and "/gbt-" not in each["target"]]
    assert 1 <= len(batches) <= 4
    assert sum(each["kind"] == "media" for each in log) < COUNT // 2
