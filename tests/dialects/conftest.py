"""Services that call themselves S3: the fault server like each of them, and other real ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import MinioServer
from testing.servers import minio as minio_module
from testing.servers.moto import MotoServer
from testing.servers.process import S3InFolder
from testing.servers.s3mock import S3MockServer
from testing.servers.versitygw import VersityServer
from tests.cli.conftest import nursery, run, start
from tests.dialects.services import LIKENESSES, Service
from tests.keys import S3_KEYS

__all__ = ["nursery", "run", "start"]  # fixtures of the command

REAL = ["minio", "versitygw", "moto", "s3mock"]


def _minio(request: pytest.FixtureRequest) -> Service:
    server: MinioServer = request.getfixturevalue("minio")
    options = {
        "credentials": headrace.AwsKeys(minio_module.ACCESS_KEY, minio_module.SECRET_KEY),
        "provider": headrace.S3Options(region=minio_module.REGION),
    }
    bucket = request.getfixturevalue("minio_bucket")
    return Service("minio", server.url, bucket, options, None)


def _other(request: pytest.FixtureRequest, name: str) -> Service:
    server: S3InFolder = request.getfixturevalue(name)
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.make_bucket(bucket)
    keys = headrace.AwsKeys(server.access_key, server.secret_key)
    return Service(name, server.url, bucket, {"credentials": keys}, None)


@pytest.fixture(scope="session")
def versitygw() -> Iterator[VersityServer]:
    """A versitygw for the whole run."""
    with VersityServer() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """A moto for the whole run."""
    with MotoServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3mock() -> Iterator[S3MockServer]:
    """An S3Mock for the whole run."""
    with S3MockServer() as server:
        yield server


@pytest.fixture(
    params=["usual", *LIKENESSES, *(pytest.param(name, marks=pytest.mark.soak) for name in REAL)]
)
def service(request: pytest.FixtureRequest) -> Service:
    """An empty bucket at each service; the real ones are for `make soak`."""
    name: str = request.param
    if name in REAL:
        headrace.shutdown()
        return _minio(request) if name == "minio" else _other(request, name)
    server: FaultServer = request.getfixturevalue("s3_server")
    if name != "usual":
        server.like(name)
    server.bucket("bucket")
    return Service(name, server.url, "bucket", {"credentials": S3_KEYS}, server)


@pytest.fixture
def environment(service: Service) -> dict[str, str]:
    """What the command and child processes need to be at the service."""
    keys = service.options["credentials"]
    return {
        "AWS_ENDPOINT_URL": service.endpoint,
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
    }
