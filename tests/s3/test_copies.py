"""Copies of objects that S3 copies only in parts, on real servers; the limit is lowered here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
from headrace import _engine
from headrace._process import process
from testing.faultserver.client import FaultServer
from testing.servers import MinioServer
from testing.servers import minio as minio_module
from testing.servers.s3_client import client_of
from tests.keys import S3_KEYS

PART = 5 << 20
DATA = os.urandom(12 << 20)


@pytest.fixture(params=["s3_server", "minio"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[headrace.Store, Any]]:
    """A store, and botocore's client of the same bucket, called like the store's."""
    server: FaultServer | MinioServer = request.getfixturevalue(request.param)
    keys, bucket = S3_KEYS, "bucket"
    if isinstance(server, MinioServer):
        keys = headrace.AwsKeys(minio_module.ACCESS_KEY, minio_module.SECRET_KEY)
        bucket = request.getfixturevalue("minio_bucket")
    else:
        server.bucket(bucket)
    key = {"access_key": keys.access_key_id, "secret_key": keys.secret_access_key}
    with client_of(server.url, key=key) as client:
        yield headrace.Store(f"s3://{bucket}", endpoint=server.url, credentials=keys), client


def lowered(store: headrace.Store) -> _engine.StoreHandle:
    """The same store, which copies more than a part only in parts."""
    options = store._settings.engine_options("s3")
    limits = {"max_copy_bytes": PART, "copied_part_bytes": PART}
    return _engine.StoreHandle(process.current_engine(), store.url, {**options, **limits})


def test_a_copy_in_parts_is_the_object_with_all_that_describes_it(
    place: tuple[headrace.Store, Any],
) -> None:
    store, client = place
    bucket = store.url.removeprefix("s3://")
    described = {
        "ContentType": "text/x-tape",
        "ContentEncoding": "br",
        "ContentDisposition": 'attachment; filename="a b"',
        "CacheControl": "no-store",
        "Metadata": {"who": "me", "why": "a reason"},
    }
    client.put_object(Bucket=bucket, Key="prä fix/in+1", Body=DATA, **described)
    copied = lowered(store).copy("prä fix/in+1", "", "out", if_generation="")
    assert copied.size_bytes == len(DATA)
    assert copied.generation.endswith("-3")  # made of three parts
    found = client.head_object(Bucket=bucket, Key="out")
    assert {name: found[name] for name in described} == described
    assert store.read("out").bytes() == DATA
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


def test_a_copy_over_what_must_not_be_there_is_refused_and_aborted(
    place: tuple[headrace.Store, Any],
) -> None:
    store, client = place
    store.write("in", DATA)
    store.write("out", b"others")
    with pytest.raises(headrace.PreconditionFailedError):
        lowered(store).copy("in", "", "out", if_generation="")
    assert store.read("out").bytes() == b"others"
    bucket = store.url.removeprefix("s3://")
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
