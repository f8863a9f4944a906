"""Buckets in a namespace of a real cluster: the same as the SDK's own datasets."""

from __future__ import annotations

import aistore.pytorch as original
import pytest
from aistore import Client
from aistore.sdk import Bucket
from aistore.sdk.types import Namespace
from torch.utils.data import DataLoader

import headrace.compat.aistore.pytorch as ours
from testing.servers import AistoreCluster

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create", "ignore:unclosed:ResourceWarning"
)

CONTENTS = {f"train/{i:02}": b"%02d" % i * i for i in range(20)} | {"other": b"o"}


@pytest.fixture
def bucket(ais_cluster_of_three: AistoreCluster, ais_bucket_of_three: str) -> Bucket:
    """A bucket in a namespace; one of the same name outside of it has other objects."""
    ais_cluster_of_three.make_bucket(ais_bucket_of_three, namespace="#ns")
    for name, content in CONTENTS.items():
        ais_cluster_of_three.put(ais_bucket_of_three, name, content, namespace="#ns")
        ais_cluster_of_three.put(ais_bucket_of_three, name + "-outside", b"x")
    client = Client(ais_cluster_of_three.url)
    return client.bucket(ais_bucket_of_three, namespace=Namespace(name="ns"))


def test_datasets_read_a_bucket_in_a_namespace(bucket: Bucket) -> None:
    expected = sorted(CONTENTS.items())
    theirs = original.AISMapDataset(bucket)
    assert [theirs[i] for i in range(len(theirs))] == expected
    mapped = ours.AISMapDataset(bucket)
    assert [*mapped] == expected
    assert mapped.__getitems__([3, 1, 3]) == [expected[i] for i in (3, 1, 3)]
    assert [*ours.AISIterDataset(bucket)] == expected
    assert [*ours.AISIterDataset(bucket, {bucket: "train/1"})] == [
        pair for pair in expected if pair[0].startswith("train/1")
    ]


def test_workers_read_a_bucket_in_a_namespace(bucket: Bucket) -> None:
    loader = DataLoader(ours.AISIterDataset(bucket), batch_size=None, num_workers=2)
    assert {name: bytes(content) for name, content in loader} == CONTENTS
