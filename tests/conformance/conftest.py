"""The stores that the suite runs over. A store that is added here inherits every test."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer
from tests.conformance.subject import Abilities, Subject

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
FAKE_GCS = Abilities(
    flat_names=True,
    keeps_checksums=True,
    keeps_metadata=True,
    answers_by_http=True,
    makes_buckets=False,
    pages_count_prefixes=False,
    conditional_delete=False,
    conditional_copy=False,
    composes=True,
    conditional_large_write=False,
)


def _file(request: pytest.FixtureRequest) -> Subject:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    root = tmp_path / "bucket"
    root.mkdir()

    def put(name: str, data: bytes) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def open_store(url: str = f"file://{root}", **options: object) -> headrace.Store:
        return headrace.Store(url, **options)  # type: ignore[arg-type]

    return Subject(
        FILE,
        f"file://{root}",
        open_store,
        f"file://{tmp_path}/missing",
        put,
        lambda name: (root / name).read_bytes(),
    )


def _gcs(abilities: Abilities, bucket: str, server: FaultServer | FakeGcsServer) -> Subject:
    def open_store(url: str = f"gs://{bucket}", **options: object) -> headrace.Store:
        return headrace.Store(url, endpoint=server.url, **options)  # type: ignore[arg-type]

    return Subject(
        abilities,
        f"gs://{bucket}",
        open_store,
        "gs://missing-bucket",
        partial(server.put, bucket),
        partial(server.get, bucket),
    )


def _fault_server(request: pytest.FixtureRequest) -> Subject:
    server: FaultServer = request.getfixturevalue("server")
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return _gcs(GCS, bucket, server)


def _fake_gcs(request: pytest.FixtureRequest) -> Subject:
    bucket: str = request.getfixturevalue("gcs_bucket")
    return _gcs(FAKE_GCS, bucket, request.getfixturevalue("fake_gcs"))


_MAKERS = {"file": _file, "gs-faultserver": _fault_server, "gs-fake-gcs-server": _fake_gcs}


@pytest.fixture(params=list(_MAKERS))
def subject(request: pytest.FixtureRequest) -> Subject:
    return _MAKERS[request.param](request)


@pytest.fixture
def store(subject: Subject) -> headrace.Store:
    return subject.open()
