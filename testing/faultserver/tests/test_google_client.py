"""The API as Google's own client uses it."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from testing.faultserver.client import FaultServer

DATA = random.Random(1).randbytes(3_000_000)


@pytest.fixture
def bucket(server: FaultServer) -> Iterator[Any]:
    client = storage.Client(
        project="test",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": server.url},
    )
    yield client.create_bucket("bucket")
    client.close()


def kinds(server: FaultServer) -> dict[str, int]:
    return dict(server.stats()["by_kind"])


def test_upload_and_download_with_checksums(server: FaultServer, bucket: Any) -> None:
    blob = bucket.blob("dir/ünï + %/o.bin")
    blob.metadata = {"colour": "blue"}
    blob.upload_from_string(DATA, content_type="image/png", checksum="crc32c")
    assert kinds(server)["upload"] == 1
    fresh = bucket.get_blob("dir/ünï + %/o.bin")
    assert (fresh.size, fresh.content_type, fresh.metadata) == (
        len(DATA),
        "image/png",
        {"colour": "blue"},
    )
    assert fresh.crc32c == blob.crc32c
    for checksum in ("crc32c", "md5"):
        assert fresh.download_as_bytes(checksum=checksum) == DATA
    assert fresh.download_as_bytes(start=10, end=19) == DATA[10:20]
    assert fresh.download_as_bytes(start=len(DATA) - 5) == DATA[-5:]
    assert fresh.download_as_bytes(start=-5) == DATA[-5:]


def test_a_download_notices_a_wrong_byte(server: FaultServer, bucket: Any) -> None:
    bucket.blob("o").upload_from_string(DATA)
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 1234567}}])
    with pytest.raises(Exception, match=r"(?i)checksum"):
        bucket.blob("o").download_as_bytes(checksum="crc32c", retry=None)


def test_resumable_upload_in_parts(server: FaultServer, bucket: Any) -> None:
    blob = bucket.blob("big", chunk_size=1 << 20)
    blob.upload_from_file(io.BytesIO(DATA), checksum="crc32c")
    assert kinds(server)["resumable_start"] == 1
    assert kinds(server)["resumable_put"] == 3
    assert bucket.blob("big").download_as_bytes() == DATA
    assert server.uploads() == {"resumable": [], "multipart": []}


def test_resumable_upload_goes_on_after_errors(server: FaultServer, bucket: Any) -> None:
    server.faults(
        [{"match": {"kind": "resumable_put"}, "from": 2, "count": 1, "action": {"status": 503}}]
    )
    bucket.blob("big", chunk_size=1 << 20).upload_from_file(io.BytesIO(DATA))
    assert server.get("bucket", "big") == DATA
    assert server.stats()["by_status"]["503"] == 1


def test_a_wrong_sum_is_refused(bucket: Any) -> None:
    blob = bucket.blob("o")
    blob.crc32c = "AAAAAA=="
    blob.md5_hash = "AAAAAAAAAAAAAAAAAAAAAA=="
    blob._changes.update({"crc32c", "md5Hash"})
    with pytest.raises(exceptions.BadRequest):
        blob.upload_from_string(b"bytes", checksum=None)
    assert bucket.get_blob("o") is None


def test_listing_by_pages_prefix_and_delimiter(server: FaultServer, bucket: Any) -> None:
    names = ["a/1", "a/2", "a/b/3", "a/b/4", "a/c/5", "b", "c/6", "é/ü"]
    for name in names:
        server.put("bucket", name, b"x")

    def listed(**options: Any) -> tuple[list[str], list[str]]:
        found = bucket.list_blobs(**options)
        return [blob.name for blob in found], sorted(found.prefixes)

    assert listed() == (names, [])
    assert listed(page_size=3) == (names, [])
    assert listed(prefix="a/", page_size=1) == (names[:5], [])
    assert listed(delimiter="/", page_size=1) == (["b"], ["a/", "c/", "é/"])
    assert listed(prefix="a/", delimiter="/") == (["a/1", "a/2"], ["a/b/", "a/c/"])
    assert listed(start_offset="a/b/", end_offset="b") == (["a/b/3", "a/b/4", "a/c/5"], [])
    assert listed(fields="items(name),nextPageToken", page_size=3) == (names, [])
    assert listed(max_results=2) == (names[:2], [])
    assert kinds(server)["list"] == 1 + 3 + 5 + 4 + 1 + 1 + 3 + 1


def test_a_composite_of_composites_is_read_from_any_place_in_it(bucket: Any) -> None:
    contents = [b"", bytes(range(100)), b"", b"x" * 7, bytes(reversed(range(50))), b""]
    parts = [bucket.blob(f"piece/{number}") for number in range(len(contents))]
    for part, content in zip(parts, contents, strict=True):
        part.upload_from_string(content)
    inner = bucket.blob("inner")
    inner.compose(parts[:3])
    whole = bucket.blob("outer")
    whole.compose([parts[0], inner, *parts[3:], inner])
    for part in (*parts, inner):
        part.delete()
    expected = contents[1] + contents[3] + contents[4] + contents[1]
    assert whole.download_as_bytes(checksum="crc32c") == expected
    for begin in range(0, len(expected), 9):
        for end in (begin + 1, begin + 60, len(expected)):
            assert whole.download_as_bytes(start=begin, end=end - 1) == expected[begin:end]


def test_compose_rewrite_delete(bucket: Any) -> None:
    parts = [bucket.blob(f"part-{i}") for i in range(3)]
    for i, part in enumerate(parts):
        part.upload_from_string(DATA[i * 1000 : (i + 1) * 1000])
    whole = bucket.blob("whole")
    whole.content_type = "text/plain"
    whole.compose(parts, if_generation_match=0)
    assert (whole.component_count, whole.md5_hash) == (3, None)
    assert whole.download_as_bytes(checksum="crc32c") == DATA[:3000]
    with pytest.raises(exceptions.PreconditionFailed):
        whole.compose(parts, if_generation_match=0)
    with pytest.raises(exceptions.BadRequest):
        whole.compose(parts * 11)
    with pytest.raises(exceptions.NotFound):
        whole.compose([bucket.blob("nobody")])
    copy = bucket.blob("copy")
    token, done, size = copy.rewrite(whole)
    assert (token, done, size) == (None, 3000, 3000)
    assert bucket.copy_blob(copy, bucket, "second").download_as_bytes() == DATA[:3000]
    copy.delete()
    with pytest.raises(exceptions.NotFound):
        copy.delete()
    assert bucket.get_blob("copy") is None


def test_preconditions(bucket: Any) -> None:
    blob = bucket.blob("o")
    blob.upload_from_string(b"one", if_generation_match=0)
    first = blob.generation
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"two", if_generation_match=0)
    blob.upload_from_string(b"two", if_generation_match=first)
    assert blob.generation > first
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("o").download_as_bytes(if_generation_match=first)
    with pytest.raises(exceptions.NotFound):
        bucket.blob("o", generation=first).download_as_bytes()
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("o").delete(if_generation_match=first)
    blob.metadata = {"k": "v"}
    blob.patch()
    assert blob.metageneration == 2


def test_old_versions_of_a_versioned_bucket(server: FaultServer, bucket: Any) -> None:
    server.bucket("bucket", versioning=True)
    blob = bucket.blob("o")
    blob.upload_from_string(b"one")
    first = blob.generation
    blob.upload_from_string(b"two")
    assert bucket.blob("o", generation=first).download_as_bytes() == b"one"
    assert bucket.blob("o").download_as_bytes() == b"two"


def test_gzip_is_served_as_stored_or_unpacked(bucket: Any) -> None:
    packed = gzip.compress(DATA[:50_000])
    blob = bucket.blob("o")
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed)
    assert bucket.blob("o").download_as_bytes() == DATA[:50_000]
    assert bucket.blob("o").download_as_bytes(raw_download=True) == packed


def test_requester_pays(server: FaultServer, bucket: Any) -> None:
    server.put("bucket", "o", b"bytes")
    server.bucket("bucket", requester_pays=True)
    with pytest.raises(exceptions.BadRequest, match="no user project"):
        bucket.blob("o").download_as_bytes()
    paying = bucket.client.bucket("bucket", user_project="mine")
    assert paying.blob("o").download_as_bytes() == b"bytes"


def test_permissions(server: FaultServer, bucket: Any) -> None:
    asked = ["storage.objects.get", "storage.objects.delete"]
    assert bucket.test_iam_permissions(asked) == asked
    server.bucket("bucket", denied_permissions=["storage.objects.delete"])
    assert bucket.test_iam_permissions(asked) == asked[:1]


def test_buckets(bucket: Any) -> None:
    client = bucket.client
    assert [one.name for one in client.list_buckets()] == ["bucket"]
    assert client.lookup_bucket("nobody") is None
    with pytest.raises(exceptions.Conflict):
        client.create_bucket("bucket")
    bucket.delete()
    assert client.lookup_bucket("bucket") is None
