"""The stores that the suite runs over. A store that is added here inherits every test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer
from tests.conformance.subject import Abilities, Subject

# What is searched for does not depend on how fast the machine is.
hypothesis.settings.register_profile("conformance", deadline=None, max_examples=40)
hypothesis.settings.load_profile("conformance")

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


@pytest.fixture(scope="session")
def conformance_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


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
    server: FaultServer = request.getfixturevalue("conformance_server")
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.bucket(bucket)
    return _gcs(GCS, bucket, below, server)


def _fake_gcs(request: pytest.FixtureRequest, below: str) -> Subject:
    bucket: str = request.getfixturevalue("gcs_bucket")
    return _gcs(FAKE_GCS, bucket, below, request.getfixturevalue("fake_gcs"))


_MAKERS = {"file": _file, "gs-faultserver": _fault_server, "gs-fake-gcs-server": _fake_gcs}
_ROOTS = {"": "", "-below": BELOW}


@pytest.fixture(
    params=[
        pytest.param((maker, below), id=f"{store}{root}")
        for store, maker in _MAKERS.items()
        for root, below in _ROOTS.items()
    ]
)
def subject(request: pytest.FixtureRequest) -> Subject:
    maker, below = request.param
    made: Subject = maker(request, below)
    return made


@pytest.fixture
def store(subject: Subject) -> headrace.Store:
    return subject.open()
