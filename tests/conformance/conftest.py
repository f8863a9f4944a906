"""The stores that the suite runs over. A store that is added here inherits every test."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster, FakeGcsServer, MinioServer
from testing.servers import minio as minio_module
from tests.conformance.subject import Abilities, Subject
from tests.dialects.services import LIKENESSES, WITHOUT_CONDITIONS
from tests.keys import S3_KEYS

FILE = Abilities(
    flat_names=False,
    keeps_checksums=False,
    keeps_metadata=False,
    answers_by_http=False,
    makes_buckets=True,
    pages_count_prefixes=True,
    conditional_delete=True,
    conditional_copy=True,
    composes=False,
    conditional_large_write=True,
    nested_names=False,
)
GCS = Abilities(
    flat_names=True,
    keeps_checksums=True,
    keeps_metadata=True,
    answers_by_http=True,
    makes_buckets=False,
    pages_count_prefixes=True,
    conditional_delete=True,
    conditional_copy=True,
    composes=True,
    conditional_large_write=True,
)
# fake-gcs-server checks conditions of uploads only, and cuts pages by objects only.
FAKE_GCS = replace(
    GCS,
    pages_count_prefixes=False,
    conditional_delete=False,
    conditional_copy=False,
    conditional_large_write=False,
    joins_forget_types=False,
)

S3 = Abilities(
    flat_names=True,
    keeps_checksums=False,  # a listing names only their kind
    keeps_metadata=True,
    answers_by_http=True,
    makes_buckets=False,
    pages_count_prefixes=True,
    conditional_delete=True,
    conditional_copy=True,
    composes=False,
    conditional_large_write=True,
    listings_tell_types=False,
    writes_tell_times=False,
    part_bytes=5 << 20,
    uploads=("multipart",),
)


def minio_abilities(below: str) -> Abilities:
    """MinIO keeps objects as files and folders. It ignores the conditions of deletes and copies, at
    which headrace looks itself."""
    return replace(
        S3,
        flat_names=False,
        nested_names=None,
        refused_characters="\\",
        # A slash at the beginning of a full name is dropped.
        odd_names=frozenset({"trailing/", "x/" * 400, *([] if below else ["/leading"])}),
    )


AIS = Abilities(
    flat_names=False,
    keeps_checksums=False,  # they are XXH64, unless the bucket says otherwise
    keeps_metadata=True,
    answers_by_http=True,
    makes_buckets=False,
    pages_count_prefixes=True,
    conditional_delete=True,
    conditional_copy=True,
    composes=False,
    conditional_large_write=True,
    writes_tell_types=False,
    listings_tell_types=False,
    tells_times=False,
    redirects=True,
    conditions_have_status=False,  # headrace looks at the target before
    nested_names=False,  # objects are files
    refused_characters="".join(map(chr, [*range(0x20), 0x7F])),
    refused_endings=("..", "~"),
    control_characters=False,
    component_bytes=230,  # some more are part of the names of its own temporary files
    uploads=("multipart",),
)

# The fault server has no files: one name may be within another, and components are of any length.
AIS_FAULTS = replace(AIS, nested_names=True, component_bytes=255, odd_names=frozenset({"é" * 490}))

# Below it lies the root of the subjects that are no whole buckets: every character of it must be
# encoded as names are.
BELOW = "any/prä fix%2F+#?"


def _file(request: pytest.FixtureRequest, below: str) -> Subject:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    root = tmp_path / "bucket" / below
    root.mkdir(parents=True)

    def put(name: str, data: bytes) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def open_store(url: str = f"file://{root}", **options: object) -> headrace.Store:
        return headrace.Store(url, **options)  # type: ignore[arg-type]

    return Subject(
        FILE,
        f"file://{root}",
        f"file://{root}",
        open_store,
        f"file://{tmp_path}/missing",
        put,
        lambda name: (root / name).read_bytes(),
    )


def _gcs(
    abilities: Abilities, bucket: str, below: str, server: FaultServer | FakeGcsServer
) -> Subject:
    url = f"gs://{bucket}/{below}".rstrip("/")
    folder = f"{below}/" if below else ""

    def open_store(url: str = url, **options: object) -> headrace.Store:
        return headrace.Store(url, endpoint=server.url, **options)  # type: ignore[arg-type]

    return Subject(
        abilities,
        url,
        f"gs://{bucket}",
        open_store,
        f"gs://missing-bucket/{below}".rstrip("/"),
        lambda name, data: server.put(bucket, folder + name, data),
        lambda name: server.get(bucket, folder + name),
    )


def _fault_server(request: pytest.FixtureRequest, below: str) -> Subject:
    server: FaultServer = request.getfixturevalue("server")
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return _gcs(GCS, bucket, below, server)


def _fake_gcs(request: pytest.FixtureRequest, below: str) -> Subject:
    bucket: str = request.getfixturevalue("gcs_bucket")
    return _gcs(FAKE_GCS, bucket, below, request.getfixturevalue("fake_gcs"))


def _s3(
    abilities: Abilities,
    bucket: str,
    below: str,
    endpoint: str,
    keys: headrace.AwsKeys,
    put: Callable[[str, bytes], Any],
    get: Callable[[str], bytes],
) -> Subject:
    url = f"s3://{bucket}/{below}".rstrip("/")
    folder = f"{below}/" if below else ""

    def open_store(url: str = url, **options: Any) -> headrace.Store:
        options.setdefault("credentials", keys)
        return headrace.Store(url, endpoint=endpoint, **options)

    return Subject(
        abilities,
        url,
        f"s3://{bucket}",
        open_store,
        f"s3://missing-bucket/{below}".rstrip("/"),
        lambda name, data: put(folder + name, data),
        lambda name: get(folder + name),
    )


def _s3_fault_server(request: pytest.FixtureRequest, below: str) -> Subject:
    server: FaultServer = request.getfixturevalue("s3_server")
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return _s3(
        S3,
        bucket,
        below,
        server.url,
        S3_KEYS,
        lambda name, data: server.put(bucket, name, data),
        lambda name: server.get(bucket, name),
    )


def _minio(request: pytest.FixtureRequest, below: str) -> Subject:
    bucket: str = request.getfixturevalue("minio_bucket")
    server: MinioServer = request.getfixturevalue("minio")

    def get(name: str) -> bytes:
        status, _, body = server.request("GET", f"/{bucket}/{quote(name)}")
        assert status == 200
        return body

    def put(name: str, data: bytes) -> None:
        assert server.request("PUT", f"/{bucket}/{quote(name)}", data)[0] == 200

    keys = headrace.AwsKeys(minio_module.ACCESS_KEY, minio_module.SECRET_KEY)
    return _s3(minio_abilities(below), bucket, below, server.url, keys, put, get)


def _ais(
    server: AistoreCluster | FaultServer, bucket: str, below: str, abilities: Abilities
) -> Subject:
    url = f"ais://{bucket}/{below}".rstrip("/")
    folder = f"{below}/" if below else ""

    def open_store(url: str = url, **options: Any) -> headrace.Store:
        return headrace.Store(url, endpoint=server.url, **options)

    def get(name: str) -> bytes:
        data = server.get(bucket, folder + name)
        assert data is not None
        return data

    return Subject(
        abilities,
        url,
        f"ais://{bucket}",
        open_store,
        f"ais://missing-bucket/{below}".rstrip("/"),
        lambda name, data: server.put(bucket, folder + name, data),
        get,
    )


def _ais_of_one(request: pytest.FixtureRequest, below: str) -> Subject:
    cluster: AistoreCluster = request.getfixturevalue("ais_cluster")
    return _ais(cluster, cluster.make_bucket(), below, AIS)


def _ais_of_three(request: pytest.FixtureRequest, below: str) -> Subject:
    cluster: AistoreCluster = request.getfixturevalue("ais_cluster_of_three")
    # Each on a target of its own, they do not get into each other's way.
    sometimes = replace(AIS, nested_names="sometimes")
    return _ais(cluster, cluster.make_bucket(), below, sometimes)


def _ais_fault_server(request: pytest.FixtureRequest, below: str) -> Subject:
    server: FaultServer = request.getfixturevalue("ais_server")
    # The clusters are of 3.23; this one has what came later: multipart uploads and GetBatch.
    server.cluster(personality="B")
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return _ais(server, bucket, below, AIS_FAULTS)


_MAKERS = {
    "ais-faultserver": _ais_fault_server,
    "ais-of-one": _ais_of_one,
    "ais-of-three": _ais_of_three,
    "file": _file,
    "gs-faultserver": _fault_server,
    "gs-fake-gcs-server": _fake_gcs,
    "s3-faultserver": _s3_fault_server,
    "s3-minio": _minio,
}
_ROOTS = {"": "", "-below": BELOW}


def _like(name: str) -> Callable[[pytest.FixtureRequest, str], Subject]:
    """Make a subject at the fault server that has the manners of this service."""

    def make(request: pytest.FixtureRequest, below: str) -> Subject:
        made = _s3_fault_server(request, below)
        server: FaultServer = request.getfixturevalue("s3_server")
        server.like(name)
        return made

    return make


@pytest.fixture(
    params=[
        pytest.param((maker, below), id=f"{store}{root}")
        for store, maker in _MAKERS.items()
        for root, below in _ROOTS.items()
    ]
    + [
        pytest.param((_like(name), ""), id=f"s3-like-{name}", marks=pytest.mark.soak)
        for name in LIKENESSES
        if name not in WITHOUT_CONDITIONS and name != "file-tree"
    ]
)
def subject(request: pytest.FixtureRequest) -> Subject:
    maker, below = request.param
    headrace.shutdown()  # with the connections to the servers of the tests before
    made: Subject = maker(request, below)
    return made


@pytest.fixture
def store(subject: Subject) -> headrace.Store:
    return subject.open()
