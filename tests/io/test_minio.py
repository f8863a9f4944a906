"""Multipart uploads to a real server that has them: MinIO."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

import headrace
from testing.servers import minio

MIB = 1 << 20
DATA = os.urandom(5 * 5 * MIB + 100)


@pytest.fixture(scope="module")
def shared() -> Iterator[minio.MinioAsGcs]:
    with minio.MinioAsGcs() as server:
        yield server


@pytest.fixture
def server(shared: minio.MinioAsGcs) -> minio.MinioAsGcs:
    shared.log.clear()
    return shared


@pytest.fixture
def store(server: minio.MinioAsGcs) -> headrace.Store:
    return headrace.Store("gs://bucket", endpoint=server.url)


def open_writer(store: headrace.Store, name: str) -> headrace.ObjectWriterIO:
    return headrace.open(name, "wb", store=store, part_bytes=5 * MIB, upload="multipart")


def unfinished(server: minio.MinioAsGcs) -> list[str]:
    """What MinIO itself keeps of uploads that were begun and neither completed nor aborted."""
    root = server.minio.folder / ".minio.sys" / "multipart"
    return [str(path) for path in root.glob("*/*")] if root.exists() else []


@pytest.mark.parametrize("name", ["a.pt", "run 1/ümlaut & more.pt"])
def test_parts_in_parallel_become_one_object(
    store: headrace.Store, server: minio.MinioAsGcs, name: str
) -> None:
    with open_writer(store, name) as file:
        file.write(DATA)
    assert file.info is not None
    assert file.info.size_bytes == len(DATA)
    assert server.minio.get(name) == DATA
    assert Counter(server.log) == {"POST uploads": 1, "PUT partNumber": 6, "POST uploadId": 1}
    assert server.max_in_flight > 1
    assert server.minio.names("headrace-uploads/") == []
    assert unfinished(server) == []


def test_an_abort_leaves_no_object_and_no_upload(
    store: headrace.Store, server: minio.MinioAsGcs
) -> None:
    file = open_writer(store, "aborted")
    file.write(DATA)
    while "PUT partNumber" not in server.log:  # an upload that was not begun need not be aborted
        time.sleep(0.001)
    file.abort()
    assert server.log.count("DELETE uploadId") == 1
    assert server.minio.get("aborted") is None
    assert server.minio.names("headrace-uploads/") == []
    assert unfinished(server) == []


def test_an_unfinished_upload_is_listed_and_aborted(
    store: headrace.Store, server: minio.MinioAsGcs
) -> None:
    name = f"headrace-uploads/{7:032x}/000001"
    status, _, _ = server.minio.request("POST", f"/bucket/{name}?uploads")
    assert status == 200
    # MinIO lists the uploads of one name, not those below a prefix.
    ((listed, upload_id, initiated),) = store._handle().list_uploads(name)
    assert listed == name
    assert initiated
    assert len(unfinished(server)) == 1
    assert store._handle().abort_upload(name, upload_id)
    store._handle().abort_upload(name, upload_id)  # MinIO takes it for done
    assert store._handle().list_uploads(name) == []
    assert unfinished(server) == []


def test_a_part_that_the_server_refuses_is_the_error_and_leaves_nothing(
    store: headrace.Store, server: minio.MinioAsGcs
) -> None:
    missing = headrace.Store("gs://missing", endpoint=server.url)
    file = open_writer(missing, "a")

    def write_for_ever() -> None:
        while True:
            file.write(DATA)

    with pytest.raises(headrace.NotFoundError, match="NoSuchBucket"):
        write_for_ever()
    with pytest.raises(headrace.NotFoundError, match=r"gs://missing/a"):
        file.close()
    assert unfinished(server) == []
