"""File systems of fsspec to test: a folder, and buckets on real servers and on the fault server."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.fsspec
from headrace.fsspec import FolderFileSystem, GcsFileSystem, S3FileSystem, StoreFileSystem
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer, MinioServer
from testing.servers import minio as minio_module

headrace.fsspec.register()  # as an installed wheel has it, by its entry points


@dataclass(frozen=True)
class Place:
    """An empty folder of a file system."""

    fs: StoreFileSystem
    path: str
    options: dict[str, Any]
    keeps_empty_folders: bool = False

    @property
    def url(self) -> str:
        return str(self.fs.unstrip_protocol(self.path))

    def at(self, name: str) -> str:
        return f"{self.path}/{name}"


def _file(request: pytest.FixtureRequest) -> Place:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    root = tmp_path / "root"
    root.mkdir()
    return Place(FolderFileSystem(), str(root), {}, keeps_empty_folders=True)


def _fake_gcs(request: pytest.FixtureRequest) -> Place:
    server: FakeGcsServer = request.getfixturevalue("fake_gcs")
    options = {"endpoint": server.url}
    return Place(GcsFileSystem(**options), request.getfixturevalue("gcs_bucket"), options)


def _minio(request: pytest.FixtureRequest) -> Place:
    server: MinioServer = request.getfixturevalue("minio")
    options = {
        "endpoint": server.url,
        "credentials": headrace.AwsKeys(minio_module.ACCESS_KEY, minio_module.SECRET_KEY),
        "provider": headrace.S3Options(region=minio_module.REGION),
    }
    return Place(S3FileSystem(**options), request.getfixturevalue("minio_bucket"), options)


@pytest.fixture(params=["file", "fake_gcs", "minio"])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty folder or bucket of each kind."""
    makers = {"file": _file, "fake_gcs": _fake_gcs, "minio": _minio}
    return makers[request.param](request)


@pytest.fixture
def counted(server: FaultServer) -> Place:
    """A bucket on the fault server, which counts requests."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    options = {"endpoint": server.url}
    return Place(GcsFileSystem(**options), bucket, options)
