"""Sources of AIStore's SDK on a real cluster: the same as the SDK's own datasets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aistore.pytorch as original
import pytest
import requests
from aistore import Client
from aistore.sdk import Bucket, DataShard, Object
from aistore.sdk.enums import Colocation
from aistore.sdk.errors import (
    AISError,
    ErrBckNotFound,
    ErrETLNotFound,
    ErrObjNotFound,
    ErrRemoteBckNotFound,
)
from aistore.sdk.multiobj import ObjectRange
from aistore.sdk.retry_config import RetryConfig
from tenacity import stop_after_attempt
from torch.utils.data import DataLoader

import headrace
import headrace.compat.aistore.pytorch as ours
from headrace.compat.aistore._clients import store_of_bucket
from headrace.compat.aistore.pytorch import batch_iter_dataset
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster, Certificates
from tests.compat_aistore.conftest import keep_listing
from tests.compat_aistore.test_shards import ODD, samples, tar

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create", "ignore:unclosed:ResourceWarning"
)


@pytest.fixture
def client(ais_cluster_of_three: AistoreCluster) -> Client:
    return Client(ais_cluster_of_three.url)


@pytest.fixture
def bucket(client: Client, ais_bucket_of_three: str) -> Bucket:
    return client.bucket(ais_bucket_of_three)


@pytest.fixture
def contents(ais_cluster_of_three: AistoreCluster, bucket: Bucket) -> dict[str, bytes]:
    found = {f"train/{i:02d}": b"%02d" % i * i for i in range(60)}
    found |= {f"p{i}.bin": b"p%d" % i for i in range(4)}
    found |= {"odd/é ü+&.bin": b"odd", "odd/" + "n" * 150: b"long", "odd/a b": b"space"}
    for name, content in found.items():
        ais_cluster_of_three.put(bucket.name, name, content)
    return dict(sorted(found.items(), key=lambda pair: pair[0].encode()))


def sources(bucket: Bucket) -> dict[str, tuple[Any, Any]]:
    group = bucket.objects(obj_names=["train/07", "p2.bin", "train/03", "odd/a b"])
    ranged = bucket.objects(obj_range=ObjectRange("train/", 5, 15, pad_width=2))
    template = bucket.objects(obj_template="p{0..3}.bin")
    return {
        "bucket": (bucket, {}),
        "list": ([bucket], {bucket: None}),
        "prefix": (bucket, {bucket: "train/1"}),
        "prefixes": (bucket, {bucket: ["odd/", "train/0", "none"]}),
        "nothing": (bucket, {bucket: []}),
        "group": (group, {}),
        "group with a prefix": (group, {group: "train/"}),
        "range": (ranged, {}),
        "template": (template, {}),
        "several": ([template, bucket, group], {bucket: ["train/5"], group: "p"}),
    }


KINDS = ["bucket", "list", "prefix", "prefixes", "nothing", "group", "group with a prefix", "range",
         "template", "several"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_datasets_give_what_the_sdks_give(
    contents: dict[str, bytes], bucket: Bucket, kind: str
) -> None:
    source, prefixes = sources(bucket)[kind]
    theirs = original.AISMapDataset(source, prefixes)
    mapped = ours.AISMapDataset(source, prefixes)
    expected = [theirs[i] for i in range(len(theirs))]
    assert list(mapped) == expected
    assert mapped.__getitems__(range(len(mapped))) == expected
    assert len(mapped) == len(theirs)
    assert [(v.name, v.props_cached.size) for v in mapped.get_obj_list()] == [
        (v.name, v.props_cached.size) for v in theirs.get_obj_list()
    ]
    stream = ours.AISIterDataset(source, prefixes)
    assert list(stream) == list(original.AISIterDataset(source, prefixes)) == expected
    assert len(stream) == len(expected)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("partition", [False, True])
def test_workers_share_objects_as_with_the_sdk(
    contents: dict[str, bytes], bucket: Bucket, workers: int, partition: bool
) -> None:
    source, prefixes = sources(bucket)["several"]
    options: Any = {"partition_sources_by_worker": partition}
    found = [
        list(DataLoader(kind(source, prefixes, **options), batch_size=1, num_workers=workers))
        for kind in (original.AISIterDataset, ours.AISIterDataset)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_datasets_reach_workers_that_are_started(
    contents: dict[str, bytes], bucket: Bucket, method: str
) -> None:
    for dataset in (ours.AISMapDataset(bucket), ours.AISIterDataset(bucket)):
        loader = DataLoader(dataset, batch_size=16, num_workers=1, multiprocessing_context=method)
        assert {n: bytes(c) for batch in loader for n, c in zip(*batch, strict=True)} == contents


def test_an_equal_bucket_filters_and_warns(
    contents: dict[str, bytes], client: Client, bucket: Bucket
) -> None:
    again = client.bucket(bucket.name)
    with pytest.warns(UserWarning, match=f"another object for the bucket '{bucket.name}'"):
        assert len(ours.AISMapDataset(bucket, {again: "p"})) == 4
    with pytest.warns(UserWarning, match="'elsewhere' of prefix_map is none of the sources"):
        dataset = ours.AISIterDataset(bucket, {client.bucket("elsewhere"): "p"})
    assert len(dataset) == len(contents)


def test_a_key_is_about_its_own_source_alone(
    contents: dict[str, bytes], client: Client, bucket: Bucket
) -> None:
    one, other = client.bucket(bucket.name), client.bucket(bucket.name)
    for kind in (ours, original):
        for last in ({}, {other: None}):
            dataset = kind.AISIterDataset([one, other], {one: "p", **last})
            names = [name for name, _ in dataset]
            assert names == [f"p{i}.bin" for i in range(4)] + [*contents]
        partition = kind.AISIterDataset([one, other], {one: "p"}, partition_sources_by_worker=True)
        loader = DataLoader(partition, batch_size=None, num_workers=2)
        assert len([*iter(loader)]) == 4 + len(contents)
    elsewhere = Client("http://127.0.0.1:9").bucket(bucket.name)  # of another cluster
    with pytest.warns(UserWarning, match="of prefix_map is none of the sources"):
        assert len(ours.AISMapDataset(bucket, {elsewhere: "p"})) == len(contents)


def test_errors_are_those_of_the_sdk_too(
    ais_cluster_of_three: AistoreCluster, contents: dict[str, bytes], client: Client, bucket: Bucket
) -> None:
    mapped = ours.AISMapDataset(bucket)
    ais_cluster_of_three.delete(bucket.name, "p1.bin")
    at = [*contents].index("p1.bin")
    for read in (lambda: mapped[at], lambda: mapped.get_obj_list()[at].get_reader().read_all()):
        with pytest.raises(ErrObjNotFound, match=r"p1\.bin") as caught:
            read()
        assert isinstance(caught.value, headrace.NotFoundError)
        assert caught.value.status_code == 404
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value)
        assert str(again) == str(caught.value)
    with pytest.raises(AISError, match="missing"):
        ours.AISMapDataset(bucket.objects(obj_names=["p2.bin", "missing"]))
    with pytest.raises(ErrBckNotFound):
        ours.AISMapDataset(client.bucket("no-such-bucket"))
    with pytest.raises(ErrBckNotFound):
        list(ours.AISIterDataset(client.bucket("no-such-bucket")))
    with pytest.raises(ErrRemoteBckNotFound):
        ours.AISMapDataset(client.bucket("no-such-bucket", provider="gcp"))


def test_an_error_of_a_worker_is_one_of_the_sdk_too(
    ais_cluster_of_three: AistoreCluster, contents: dict[str, bytes], bucket: Bucket
) -> None:
    dataset = ours.AISMapDataset(bucket)
    ais_cluster_of_three.delete(bucket.name, "p1.bin")
    with pytest.raises(ErrObjNotFound, match=r"p1\.bin") as caught:
        list(DataLoader(dataset, batch_size=16, num_workers=1))
    assert caught.value.status_code == 404
    assert caught.value.message == str(caught.value)
    assert caught.value.req_url == ""  # torch keeps the text alone


def test_a_cluster_that_is_gone_is_an_error_of_requests() -> None:
    retry = RetryConfig.default()
    retry.network_retry.stop = stop_after_attempt(1)
    retry.http_retry.total = 0
    client = Client("http://127.0.0.1:9", retry_config=retry)
    with pytest.raises(requests.ConnectionError) as caught:
        ours.AISMapDataset(client.bucket("bucket"))
    assert isinstance(caught.value, headrace.UnavailableError)


def test_the_clients_settings_are_the_stores() -> None:
    retry = RetryConfig.default()
    retry.network_retry.stop = stop_after_attempt(3)
    retry.http_retry.total = 2
    client = Client(
        "http://127.0.0.1:9",
        timeout=(1.5, 7),
        token="secret",
        retry_config=retry,
        ca_cert="/some/ca.pem",
    )
    store = store_of_bucket(client.bucket("b", provider="gcp"))
    assert store is not None
    settings = store._settings
    assert store.url == "ais+gs://b"
    assert settings.endpoint == "http://127.0.0.1:9"
    assert settings.credentials == headrace.BearerToken("secret")
    assert (settings.timeout.connect_s, settings.timeout.first_byte_s) == (1.5, 7)
    assert settings.retry.max_attempts == 3
    assert settings.ais.ca_file == "/some/ca.pem"
    assert pickle.loads(pickle.dumps(store))._settings == settings
    patient = store_of_bucket(Client("http://127.0.0.1:9", timeout=0).bucket("b"))
    assert patient is not None
    assert patient._settings.timeout.connect_s > 86400


@pytest.mark.parametrize(
    ("given", "cert_file", "key_file"),
    [
        (None, "", ""),
        ("both.pem", "both.pem", ""),
        (("cert.pem", "key.pem"), "cert.pem", "key.pem"),
        (Path("both.pem"), "both.pem", ""),
    ],
)
def test_the_clients_certificate_is_the_stores(given: Any, cert_file: str, key_file: str) -> None:
    client = Client("https://127.0.0.1:9", client_cert=given)
    store = store_of_bucket(client.bucket("bucket"))
    assert store is not None
    options = store._settings.ais
    assert (options.client_cert_file, options.client_key_file) == (cert_file, key_file)
    assert options.skip_verify is False


@pytest.fixture
def tls_cluster(certificates: Certificates) -> Iterator[FaultServer]:
    with FaultServer(
        dialect="ais", tls_cert=certificates.cert_file, tls_key=certificates.key_file
    ) as server:
        server.bucket("bucket")
        server.put("bucket", "name", b"content")
        headrace.shutdown()
        yield server
        headrace.shutdown()


@pytest.mark.filterwarnings("ignore:Skipping SSL certificate verification")
def test_a_clients_ideas_of_certificates_are_the_stores(
    tls_cluster: FaultServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(**options: Any) -> dict[str, bytes]:
        client = Client(tls_cluster.url, **options)
        return dict(ours.AISMapDataset(client.bucket("bucket")))

    expected = {"name": b"content"}
    assert read(ca_cert=str(certificates.ca_file)) == expected
    with pytest.raises(headrace.PermissionDeniedError, match="certificate"):
        read()
    assert read(skip_verify=True) == expected
    monkeypatch.setenv("AIS_SKIP_VERIFY_CRT", "true")
    assert read() == expected
    plain = Client("http://127.0.0.1:9", skip_verify=True, client_cert="/none.pem")
    assert store_of_bucket(plain.bucket("bucket")) is not None


def test_objects_of_the_list_are_the_sdks(contents: dict[str, bytes], bucket: Bucket) -> None:
    value = ours.AISMapDataset(bucket).get_obj_list()[-1]
    name, content = [*contents.items()][-1]
    assert isinstance(value, Object)
    assert (value.name, value.bucket_name) == (name, bucket.name)
    assert value.get_reader().read_all() == content
    assert value.get_reader(byte_range="bytes=2-5").read_all() == content[2:6]
    assert value.props.size == value.props_cached.size == len(content)
    assert value.get_url() == bucket.object(name).get_url()
    assert pickle.loads(pickle.dumps(value)).get_reader().read_all() == content


def test_objects_of_the_sdks_own_are_read_together(
    contents: dict[str, bytes], bucket: Bucket
) -> None:
    class Own(ours.AISMapDataset):
        def _create_objects_list(self) -> Any:
            return list(bucket.list_all_objects_iter(prefix="train/"))

    dataset = Own(bucket)
    assert type(dataset.get_obj_list()[0]) is Object
    assert dict(dataset.__getitems__(range(60))) == {
        name: content for name, content in contents.items() if name.startswith("train/")
    }


def test_every_rule_of_batches_holds_for_the_sdks_buckets(
    contents: dict[str, bytes], bucket: Bucket
) -> None:
    for options in ({}, {"drop_last": True}, {"allow_oversized_samples": True}):
        theirs = original.DynamicBatchSampler(original.AISMapDataset(bucket), 100, **options)
        sampler = ours.DynamicBatchSampler(ours.AISMapDataset(bucket), 100, **options)
        assert list(sampler) == list(theirs)


def test_a_batch_dataset_reads_where_the_cluster_has_no_batches(
    ais_cluster_of_three: AistoreCluster,
    contents: dict[str, bytes],
    client: Client,
    bucket: Bucket,
) -> None:
    kind = batch_iter_dataset.AISBatchIterDataset
    for colocation in (Colocation.NONE, Colocation.TARGET_AWARE):
        assert dict(kind(bucket, client, colocation=colocation)) == contents
    with pytest.raises(NotImplementedError):
        list(kind(bucket, client, colocation=Colocation.TARGET_AND_SHARD_AWARE))
    group = bucket.objects(obj_names=["p1.bin", "p2.bin", "p3.bin"])
    dataset, strict = kind(group, client, cont_on_err=True), kind(group, client)
    keep_listing(dataset, strict)
    ais_cluster_of_three.delete(bucket.name, "p1.bin")
    ais_cluster_of_three.delete(bucket.name, "p2.bin")
    assert list(iter(dataset)) == [("p3.bin", b"p3")]
    with pytest.raises(RuntimeError, match=r"p1\.bin"):
        list(iter(strict))


def test_shards_give_what_the_sdks_give(
    ais_cluster_of_three: AistoreCluster, bucket: Bucket
) -> None:
    for name, members in (("0.tar", samples(0, 9)), ("1.tar", ODD), ("2.tar", samples(9, 12))):
        ais_cluster_of_three.put(bucket.name, name, tar(members))
    theirs = [(key, dict(fields)) for key, fields in iter(original.AISShardReader(bucket))]
    reader = ours.AISShardReader(bucket)
    assert [(key, dict(fields)) for key, fields in reader] == theirs
    assert len(list(reader)) == len(reader) == len(theirs)


def test_rows_of_shards_are_those_of_the_sdk(
    ais_cluster_of_three: AistoreCluster, bucket: Bucket
) -> None:
    for i in range(2):
        images = [(f"{n:02d}.jpg", b"%d" % n) for n in range(5)]
        labels = [(f"{n:02d}.cls", b"l%d" % n) for n in range(5)]
        ais_cluster_of_three.put(bucket.name, f"images-{i}.tar", tar(images[::-1]))
        ais_cluster_of_three.put(bucket.name, f"labels-{i}.tar", tar(labels))
    streams = [
        DataShard(ais_cluster_of_three.url, bucket.name, prefix=prefix)
        for prefix in ("images-", "labels-")
    ]
    rows = list(original.AISMultiShardStream(streams))
    assert len(rows) == 10
    assert list(ours.AISMultiShardStream(streams)) == rows
    own = [
        ours.DataShard(ais_cluster_of_three.url, bucket.name, prefix=prefix)
        for prefix in ("images-", "labels-")
    ]
    assert list(ours.AISMultiShardStream(own)) == rows


def test_a_url_is_a_source_without_the_sdk(
    ais_cluster_of_three: AistoreCluster,
    contents: dict[str, bytes],
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIS_ENDPOINT", ais_cluster_of_three.url)
    assert dict(ours.AISMapDataset(f"ais://{bucket.name}")) == contents
    assert dict(ours.AISIterDataset(f"ais://{bucket.name}/train")) == {
        name.removeprefix("train/"): content
        for name, content in contents.items()
        if name.startswith("train/")
    }


def test_an_etl_that_does_not_exist_is_an_error(contents: dict[str, bytes], bucket: Bucket) -> None:
    for read in (
        lambda: ours.AISMapDataset(bucket, etl_name="none")[0],
        lambda: list(ours.AISIterDataset(bucket, etl_name="none")),
    ):
        with pytest.raises(ErrETLNotFound, match="etl job none"):
            read()
