"""The S3 dialect beside MinIO, which others wrote, as botocore reads both.

Where the two differ and Amazon's documentation sides with ours, the difference is named here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from testing.faultserver.client import FaultServer
from testing.servers import minio
from testing.servers.s3_client import client_of

MIB = 1 << 20
NAMES = ["a/1", "a/2", "a/b/3", "b", "c/ü +%&<>'\"", "d/e"]
KEY = {"access_key": minio.ACCESS_KEY, "secret_key": minio.SECRET_KEY}
DATA = random.Random(2).randbytes(5 * MIB)

# Made by each server for itself, or its own way to say who it is.
OWN = {
    "ResponseMetadata",
    "LastModified",
    "VersionId",
    "UploadId",
    "Owner",
    "Initiator",
    "Location",
}
# Amazon tells these of every object; MinIO only of those that it encrypted, or never.
OURS = {"ServerSideEncryption", "ChecksumType", "ChecksumAlgorithm"}
# Tokens are each server's own; so is the storage class where it is the usual one.
TOKENS = {"ContinuationToken", "NextContinuationToken", "NextMarker"}


class Pair:
    """The same request to both servers."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours, self.theirs = ours, theirs

    def call(self, operation: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return (
            getattr(self.ours, operation)(Bucket="bucket", **options),
            getattr(self.theirs, operation)(Bucket="bucket", **options),
        )

    def same(self, operation: str, **options: Any) -> dict[str, Any]:
        """What both say; it must be the same."""
        ours, theirs = (plain(told) for told in self.call(operation, **options))
        assert ours == theirs
        return ours

    def same_error(self, operation: str, **options: Any) -> tuple[int, str]:
        """The status and the code by which both refuse."""
        told = []
        for client in (self.ours, self.theirs):
            with pytest.raises(ClientError) as caught:
                getattr(client, operation)(Bucket="bucket", **options)
            response = caught.value.response
            told.append((response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]))
        assert told[0] == told[1]
        return told[0]


def plain(value: Any) -> Any:
    """Without what each server makes for itself, and with bodies read."""
    if isinstance(value, dict):
        return {
            name: plain(each)
            for name, each in value.items()
            if name not in OWN | OURS | TOKENS and each != ""
        }
    if isinstance(value, list):
        return [plain(each) for each in value]
    if hasattr(value, "read"):
        with value:
            return value.read()
    return value


@pytest.fixture(scope="module")
def running() -> Iterator[FaultServer]:
    with FaultServer(dialect="s3") as server:
        yield server


@pytest.fixture(scope="module")
def theirs() -> Iterator[minio.MinioServer]:
    with minio.MinioServer() as server:
        yield server


@pytest.fixture
def pair(running: FaultServer, theirs: minio.MinioServer) -> Iterator[Pair]:
    running.reset()
    running.keys(KEY)
    running.bucket("bucket")
    with client_of(running.url, key=KEY) as ours, client_of(theirs.url, key=KEY) as other:
        for page in other.get_paginator("list_objects_v2").paginate(Bucket="bucket"):
            for each in page.get("Contents", []):
                other.delete_object(Bucket="bucket", Key=each["Key"])
        for name in NAMES:
            for client in (ours, other):
                client.put_object(
                    Bucket="bucket",
                    Key=name,
                    Body=name.encode() * 100,
                    ContentType="text/plain",
                    Metadata={"colour": "blue"},
                )
        yield Pair(ours, other)


@pytest.mark.parametrize("name", NAMES)
def test_one_object(pair: Pair, name: str) -> None:
    head = pair.same("head_object", Key=name)
    assert head["ContentType"] == "text/plain"
    assert head["Metadata"] == {"colour": "blue"}
    got = pair.same("get_object", Key=name, ChecksumMode="ENABLED")
    assert got["Body"] == name.encode() * 100
    assert got["ChecksumCRC32"]
    part = pair.same("get_object", Key=name, Range="bytes=2-11", ChecksumMode="ENABLED")
    assert len(part["Body"]) == 10
    assert pair.same_error("get_object", Key=name, Range="bytes=99999-")[0] == 416


def test_headers_have_the_same_form(pair: Pair) -> None:
    ours, theirs = pair.call("head_object", Key="b")
    for name in ("last-modified", "etag", "content-length", "content-type", "accept-ranges"):
        one, two = (told["ResponseMetadata"]["HTTPHeaders"][name] for told in (ours, theirs))
        if name != "last-modified":
            assert one == two
        assert len(one) == len(two)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"Prefix": "a/"},
        {"Delimiter": "/"},
        {"Prefix": "a/", "Delimiter": "/"},
        {"Prefix": "c", "Delimiter": "/"},
        {"MaxKeys": 2},
        {"MaxKeys": 0},
        {"StartAfter": "a/2"},
        {"StartAfter": "a/1x"},
        {"StartAfter": "c", "Delimiter": "/"},
        {"StartAfter": "z"},
        {"Prefix": "nothing"},
        {"FetchOwner": True},
    ],
)
def test_listing(pair: Pair, options: dict[str, Any]) -> None:
    pair.same("list_objects_v2", **options)


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_listing_page_by_page(pair: Pair, delimiter: str) -> None:
    pages = []
    for client in (pair.ours, pair.theirs):
        found = client.get_paginator("list_objects_v2").paginate(
            Bucket="bucket", Delimiter=delimiter, PaginationConfig={"PageSize": 1}
        )
        # MinIO says that there is more after the last name, and then sends an empty page. Amazon:
        # IsTruncated is false "if all of the results were returned".
        pages.append([plain(page) for page in found if page["KeyCount"] > 0])
        for page in pages[-1]:
            del page["IsTruncated"]
    assert pages[0] == pages[1]
    assert len(pages[0]) == (4 if delimiter else len(NAMES))


def test_writes_and_their_conditions(pair: Pair) -> None:
    pair.same("put_object", Key="new", Body=b"one")
    pair.same("put_object", Key="sum", Body=b"one", ChecksumAlgorithm="SHA256")
    first = pair.same("head_object", Key="new")["ETag"]
    assert pair.same_error("put_object", Key="new", Body=b"x", IfNoneMatch="*")[0] == 412
    assert pair.same_error("put_object", Key="new", Body=b"x", IfMatch='"other"')[0] == 412
    assert pair.same_error("put_object", Key="none", Body=b"x", IfMatch=first)[0] == 404
    pair.same("put_object", Key="new", Body=b"two", IfMatch=first)
    assert pair.same_error("get_object", Key="new", IfMatch=first)[0] == 412
    second = pair.same("head_object", Key="new")["ETag"]
    assert pair.same_error("get_object", Key="new", IfNoneMatch=second)[0] == 304
    pair.same("delete_object", Key="new")
    pair.same("delete_object", Key="new")
    assert pair.same_error("get_object", Key="new") == (404, "NoSuchKey")
    assert pair.same_error("head_object", Key="new")[0] == 404


def test_wrong_sums(pair: Pair) -> None:
    assert pair.same_error(
        "put_object", Key="o", Body=b"x", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA=="
    ) == (400, "BadDigest")
    assert pair.same_error("put_object", Key="o", Body=b"x", ContentMD5="abc") == (
        400,
        "InvalidDigest",
    )


def test_copies(pair: Pair) -> None:
    ours, theirs = (
        plain(each) for each in pair.call("copy_object", Key="copy", CopySource="bucket/b")
    )
    # Amazon: CopyObjectResult has the checksum, if the object has one.
    assert ours["CopyObjectResult"].pop("ChecksumCRC32")
    assert ours == theirs
    assert pair.same("head_object", Key="copy")["Metadata"] == {"colour": "blue"}
    assert pair.same_error(
        "copy_object", Key="copy", CopySource="bucket/b", CopySourceIfMatch='"other"'
    ) == (412, "PreconditionFailed")
    assert pair.same_error("copy_object", Key="copy", CopySource="bucket/none") == (
        404,
        "NoSuchKey",
    )
    assert pair.same_error("copy_object", Key="b", CopySource="bucket/b") == (
        400,
        "InvalidRequest",
    )


def test_many_deletes(pair: Pair) -> None:
    done = pair.same(
        "delete_objects", Delete={"Objects": [{"Key": name} for name in ("a/1", "none", "b")]}
    )
    assert len(done["Deleted"]) == 3


def test_a_multipart_upload(pair: Pair) -> None:
    told = []
    for client in (pair.ours, pair.theirs):
        # With none named, MinIO takes what the parts bring; Amazon makes it a CRC64NVME.
        begun = client.create_multipart_upload(
            Bucket="bucket", Key="big", ContentType="image/png", ChecksumAlgorithm="CRC32"
        )
        upload = {"Bucket": "bucket", "Key": "big", "UploadId": begun["UploadId"]}
        parts = []
        steps: list[Any] = []
        for number, data in enumerate((DATA, b"end"), start=1):
            part = client.upload_part(**upload, PartNumber=number, Body=data)
            steps.append(plain(part))
            parts.append(
                {
                    "PartNumber": number,
                    "ETag": part["ETag"],
                    "ChecksumCRC32": part["ChecksumCRC32"],
                }
            )
        steps.append(plain(client.list_parts(**upload)["Parts"]))
        for wrong in (
            [{**parts[0], "ETag": '"0123"'}],
            [parts[1], parts[0]],
            [{**parts[0], "PartNumber": 7}],
        ):
            with pytest.raises(ClientError) as caught:
                client.complete_multipart_upload(**upload, MultipartUpload={"Parts": wrong})
            steps.append(caught.value.response["Error"]["Code"])
        done = client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        steps.append(plain(done))
        with pytest.raises(ClientError) as caught:
            client.upload_part(**upload, PartNumber=1, Body=b"x")
        steps.append(caught.value.response["Error"]["Code"])
        told.append(steps)
    assert told[0] == told[1]
    head = pair.same("head_object", Key="big", ChecksumMode="ENABLED")
    assert head["ETag"].endswith('-2"')
    assert head["ChecksumCRC32"].endswith("-2")
    assert pair.same("head_object", Key="big", PartNumber=2)["PartsCount"] == 2


def test_small_parts_and_conditions_on_the_last_step(pair: Pair) -> None:
    told = []
    for client in (pair.ours, pair.theirs):
        steps = []
        for options, sizes in (({}, (3, 3)), ({"IfNoneMatch": "*"}, (3,))):
            begun = client.create_multipart_upload(Bucket="bucket", Key="b")
            upload = {"Bucket": "bucket", "Key": "b", "UploadId": begun["UploadId"]}
            parts = []
            for number, size in enumerate(sizes, start=1):
                part = client.upload_part(**upload, PartNumber=number, Body=b"x" * size)
                parts.append(
                    {
                        "PartNumber": number,
                        "ETag": part["ETag"],
                        "ChecksumCRC32": part["ChecksumCRC32"],
                    }
                )
            with pytest.raises(ClientError) as caught:
                client.complete_multipart_upload(
                    **upload, MultipartUpload={"Parts": parts}, **options
                )
            steps.append(caught.value.response["Error"]["Code"])
            client.abort_multipart_upload(**upload)
        told.append(steps)
    assert told[0] == told[1] == ["EntityTooSmall", "PreconditionFailed"]


def test_buckets_that_are_not_there(pair: Pair) -> None:
    for client in (pair.ours, pair.theirs):
        for operation, options in (
            ("list_objects_v2", {}),
            ("put_object", {"Key": "o", "Body": b"x"}),
            ("get_object", {"Key": "o"}),
            ("create_multipart_upload", {"Key": "o"}),
        ):
            with pytest.raises(ClientError) as caught:
                getattr(client, operation)(Bucket="missing", **options)
            assert caught.value.response["Error"]["Code"] == "NoSuchBucket"


@pytest.mark.parametrize(
    "key",
    [{**KEY, "secret_key": "wrong-password"}, {**KEY, "access_key": "nobody"}],
    ids=["wrong secret", "unknown key"],
)
def test_strangers(running: FaultServer, theirs: minio.MinioServer, key: dict[str, str]) -> None:
    running.reset()
    running.keys(KEY)
    running.bucket("bucket")
    told = []
    for url in (running.url, theirs.url):
        with client_of(url, key=key) as client, pytest.raises(ClientError) as caught:
            client.list_objects_v2(Bucket="bucket")
        response = caught.value.response
        told.append((response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]))
    assert told[0] == told[1]
