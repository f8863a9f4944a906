"""The S3 dialect as botocore uses it, which Amazon wrote."""

from __future__ import annotations

import hashlib
import io
import random
import urllib.error
import urllib.request
import zlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    ResponseStreamingError,
)

from testing.faultserver.client import FaultServer
from testing.servers import Certificates
from testing.servers.s3_client import KEY, client_of

DATA = random.Random(1).randbytes(300_000)
MIB = 1 << 20
NAMES = ["a/1", "a/2", "a/b/3", "b", "c//d", "c/%2F+ &<ü>'\".txt", "d. .", "e\x01\n"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def running() -> Iterator[FaultServer]:
    with FaultServer(dialect="s3", domains=["s3.test"]) as server:
        yield server


@pytest.fixture
def server(running: FaultServer) -> FaultServer:
    running.reset()
    running.keys(KEY)
    running.bucket("bucket")
    return running


@pytest.fixture
def client(server: FaultServer) -> Iterator[Any]:
    with client_of(server.url) as client:
        yield client


def code(caught: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def read(client: Any, name: str, **options: Any) -> bytes:
    body = client.get_object(Bucket="bucket", Key=name, **options)["Body"]
    with body:
        return bytes(body.read())


# ── objects


@pytest.mark.parametrize("name", NAMES)
def test_put_get_head_delete(server: FaultServer, client: Any, name: str) -> None:
    put = client.put_object(
        Bucket="bucket", Key=name, Body=DATA, ContentType="image/png", Metadata={"colour": "blue"}
    )
    etag = f'"{hashlib.md5(DATA).hexdigest()}"'
    assert put["ETag"] == etag
    assert server.get("bucket", name) == DATA
    head = client.head_object(Bucket="bucket", Key=name)
    assert (head["ContentLength"], head["ETag"], head["ContentType"], head["Metadata"]) == (
        len(DATA),
        etag,
        "image/png",
        {"colour": "blue"},
    )
    assert read(client, name) == DATA
    assert read(client, name, Range="bytes=10-19") == DATA[10:20]
    assert read(client, name, Range="bytes=-5") == DATA[-5:]
    client.delete_object(Bucket="bucket", Key=name)
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="bucket", Key=name)
    if name.isprintable():
        assert code(caught) == (404, "NoSuchKey")
        assert caught.value.response["Error"]["Key"] == name
    else:
        # An error tells the name, and XML has no such characters: botocore cannot read it.
        assert code(caught) == (404, "404")
    client.delete_object(Bucket="bucket", Key=name)  # Of nothing is fine, too.
    assert server.stats()["by_kind"] == {
        "upload": 1,
        "get": 1,
        "media": 4,
        "delete": 2,
    }


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums_both_ways(server: FaultServer, client: Any, algorithm: str) -> None:
    put = client.put_object(Bucket="bucket", Key="o", Body=DATA, ChecksumAlgorithm=algorithm)
    told = client.get_object(Bucket="bucket", Key="o", ChecksumMode="ENABLED")
    assert told["Body"].read() == DATA
    assert told[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    assert told["ChecksumType"] == "FULL_OBJECT"
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 12345}}])
    with pytest.raises(Exception, match=r"(?i)checksum"):
        read(client, "o", ChecksumMode="ENABLED")
    server.faults([{"match": {"kind": "media"}, "action": "wrong_checksum"}])
    with pytest.raises(Exception, match=r"(?i)checksum"):
        read(client, "o", ChecksumMode="ENABLED")
    server.faults([{"match": {"kind": "media"}, "action": "no_hash"}])
    bare = client.get_object(Bucket="bucket", Key="o", ChecksumMode="ENABLED")
    assert bare["Body"].read() == DATA
    assert f"Checksum{algorithm}" not in bare


def test_a_range_comes_without_the_checksum_of_the_whole(client: Any) -> None:
    client.put_object(Bucket="bucket", Key="o", Body=DATA)
    part = client.get_object(Bucket="bucket", Key="o", Range="bytes=0-9", ChecksumMode="ENABLED")
    assert part["Body"].read() == DATA[:10]
    assert not [name for name in part if name.startswith("Checksum")]


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"ContentMD5": b64encode(bytes(16)).decode()}, "BadDigest"),
        ({"ContentMD5": "abc"}, "InvalidDigest"),
        ({"ChecksumCRC32": "AAAAAA=="}, "BadDigest"),
        ({"ChecksumCRC32": "AAAA"}, "InvalidRequest"),
        ({"ChecksumSHA256": b64encode(bytes(32)).decode()}, "BadDigest"),
    ],
)
def test_a_wrong_sum_is_refused_and_nothing_is_stored(
    server: FaultServer, client: Any, headers: dict[str, str], wanted: str
) -> None:
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="bucket", Key="o", Body=b"bytes", **headers)
    assert code(caught) == (400, wanted)
    assert server.names("bucket") == []


def test_a_body_in_chunks_brings_its_checksum_in_a_trailer(certificates: Certificates) -> None:
    with FaultServer(
        dialect="s3", tls_cert=certificates.cert_file, tls_key=certificates.key_file
    ) as server:
        server.keys(KEY)
        server.bucket("bucket")
        with client_of(server.url, ca_file=certificates.ca_file) as client:
            put = client.put_object(Bucket="bucket", Key="o", Body=io.BytesIO(DATA))
            assert read(client, "o") == DATA
            assert "ContentEncoding" not in client.head_object(Bucket="bucket", Key="o")
        (line,) = [line for line in server.log() if line["kind"] == "upload"]
        assert line["headers"]["x-amz-content-sha256"] == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        assert line["headers"]["x-amz-trailer"] == "x-amz-checksum-crc32"
        assert line["headers"]["content-encoding"] == "aws-chunked"
        assert line["bytes_received"] > len(DATA)
        assert put["ChecksumCRC32"]


def test_conditional_reads(client: Any) -> None:
    etag = client.put_object(Bucket="bucket", Key="o", Body=b"one")["ETag"]
    assert read(client, "o", IfMatch=etag) == b"one"
    assert read(client, "o", IfNoneMatch='"other"') == b"one"
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="bucket", Key="o", IfMatch='"other"')
    assert code(caught) == (412, "PreconditionFailed")
    assert caught.value.response["Error"]["Condition"] == "If-Match"
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="bucket", Key="o", IfNoneMatch=etag)
    assert code(caught)[0] == 304


def test_conditional_writes(server: FaultServer, client: Any) -> None:
    first = client.put_object(Bucket="bucket", Key="o", Body=b"one", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="bucket", Key="o", Body=b"two", IfNoneMatch="*")
    assert code(caught) == (412, "PreconditionFailed")
    client.put_object(Bucket="bucket", Key="o", Body=b"two", IfMatch=first)
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="bucket", Key="o", Body=b"three", IfMatch=first)
    assert code(caught) == (412, "PreconditionFailed")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="bucket", Key="none", Body=b"three", IfMatch=first)
    assert code(caught) == (404, "NoSuchKey")
    with pytest.raises(ClientError) as caught:
        client.delete_object(Bucket="bucket", Key="o", IfMatch=first)
    assert code(caught) == (412, "PreconditionFailed")
    with pytest.raises(ClientError) as caught:
        client.delete_object(Bucket="bucket", Key="none", IfMatch=first)
    assert code(caught) == (404, "NoSuchKey")
    assert server.get("bucket", "o") == b"two"
    client.delete_object(Bucket="bucket", Key="o", IfMatch=f'"{hashlib.md5(b"two").hexdigest()}"')
    assert server.names("bucket") == []


@pytest.mark.parametrize("support", ["ignored", "refused"])
def test_a_server_that_lacks_conditional_writes(
    server: FaultServer, client: Any, support: str
) -> None:
    server.put("bucket", "o", b"one")
    server.bucket("bucket", conditional_writes=support, conditional_deletes=support)
    if support == "ignored":
        client.put_object(Bucket="bucket", Key="o", Body=b"two", IfNoneMatch="*")
        client.delete_object(Bucket="bucket", Key="o", IfMatch='"other"')
        assert server.names("bucket") == []
        return
    for call in (
        lambda: client.put_object(Bucket="bucket", Key="o", Body=b"two", IfNoneMatch="*"),
        lambda: client.delete_object(Bucket="bucket", Key="o", IfMatch='"other"'),
    ):
        with pytest.raises(ClientError) as caught:
            call()
        assert code(caught) == (501, "NotImplemented")
    assert server.get("bucket", "o") == b"one"


def test_a_server_that_lacks_checksums(server: FaultServer, client: Any) -> None:
    server.bucket("bucket", checksums=False)
    put = client.put_object(Bucket="bucket", Key="o", Body=DATA, ChecksumCRC32="AAAAAA==")
    assert not [name for name in put if name.startswith("Checksum")]
    got = client.get_object(Bucket="bucket", Key="o", ChecksumMode="ENABLED")
    assert got["Body"].read() == DATA
    assert not [name for name in got if name.startswith("Checksum")]


def test_copies(server: FaultServer, client: Any) -> None:
    etag = client.put_object(
        Bucket="bucket", Key="dir/a +%", Body=DATA, ContentType="image/png", Metadata={"k": "v"}
    )["ETag"]
    source = {"Bucket": "bucket", "Key": "dir/a +%"}
    done = client.copy_object(Bucket="bucket", Key="kept", CopySource=source)
    assert done["CopyObjectResult"]["ETag"] == etag
    head = client.head_object(Bucket="bucket", Key="kept")
    assert (head["ContentType"], head["Metadata"]) == ("image/png", {"k": "v"})
    client.copy_object(
        Bucket="bucket",
        Key="replaced",
        CopySource=source,
        MetadataDirective="REPLACE",
        ContentType="text/plain",
        CopySourceIfMatch=etag,
    )
    head = client.head_object(Bucket="bucket", Key="replaced")
    assert (head["ContentType"], head["Metadata"]) == ("text/plain", {})
    for wrong, wanted in (
        ({"CopySourceIfMatch": '"other"'}, (412, "PreconditionFailed")),
        ({"IfNoneMatch": "*", "Key": "kept"}, (412, "PreconditionFailed")),
        ({"CopySource": "bucket/none"}, (404, "NoSuchKey")),
        ({"Key": "dir/a +%"}, (400, "InvalidRequest")),
    ):
        with pytest.raises(ClientError) as caught:
            client.copy_object(**{"Bucket": "bucket", "Key": "new", "CopySource": source, **wrong})
        assert code(caught) == wanted
    assert server.get("bucket", "kept") == DATA


def test_a_200_with_an_error_in_its_body_is_an_error(server: FaultServer, client: Any) -> None:
    server.put("bucket", "o", b"x")
    server.faults(
        [{"match": {"kind": "copy"}, "action": {"status": 200, "reason": "InternalError"}}]
    )
    with pytest.raises(ClientError) as caught:
        client.copy_object(Bucket="bucket", Key="p", CopySource="bucket/o")
    assert caught.value.response["Error"]["Code"] == "InternalError"
    assert server.names("bucket") == ["o"]


def test_many_deletes_at_once(server: FaultServer, client: Any) -> None:
    for name in NAMES:
        server.put("bucket", name, b"x")
    done = client.delete_objects(
        Bucket="bucket",
        Delete={"Objects": [{"Key": name} for name in [*NAMES[:3], "none"]]},
    )
    assert [each["Key"] for each in done["Deleted"]] == [*NAMES[:3], "none"]
    assert "Errors" not in done
    done = client.delete_objects(
        Bucket="bucket",
        Delete={"Objects": [{"Key": "b", "ETag": '"other"'}, {"Key": "c//d"}], "Quiet": True},
    )
    assert "Deleted" not in done
    assert [(each["Key"], each["Code"]) for each in done["Errors"]] == [("b", "PreconditionFailed")]
    assert server.names("bucket") == sorted(["b", *NAMES[5:]], key=str.encode)
    assert server.stats()["by_kind"] == {"delete_many": 2}


def test_encryption_is_echoed_and_a_customers_key_is_asked_for(client: Any) -> None:
    put = client.put_object(
        Bucket="bucket", Key="kms", Body=b"x", ServerSideEncryption="aws:kms", SSEKMSKeyId="mine"
    )
    assert (put["ServerSideEncryption"], put["SSEKMSKeyId"]) == ("aws:kms", "mine")
    assert put["ETag"] != f'"{hashlib.md5(b"x").hexdigest()}"'
    assert client.head_object(Bucket="bucket", Key="kms")["SSEKMSKeyId"] == "mine"
    own = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": b"k" * 32}
    client.put_object(Bucket="bucket", Key="own", Body=b"secret", **own)
    assert read(client, "own", **own) == b"secret"
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="bucket", Key="own")
    assert code(caught) == (400, "InvalidRequest")
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="bucket", Key="own", **{**own, "SSECustomerKey": b"o" * 32})
    assert code(caught) == (403, "AccessDenied")


def test_requester_pays(server: FaultServer, client: Any) -> None:
    server.put("bucket", "o", b"bytes")
    server.bucket("bucket", requester_pays=True)
    with pytest.raises(ClientError) as caught:
        read(client, "o")
    assert code(caught) == (403, "AccessDenied")
    assert read(client, "o", RequestPayer="requester") == b"bytes"
    page = client.list_objects_v2(Bucket="bucket", RequestPayer="requester")
    assert page["KeyCount"] == 1


def test_versions(server: FaultServer, client: Any) -> None:
    client.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    assert client.get_bucket_versioning(Bucket="bucket")["Status"] == "Enabled"
    server.bucket("bucket", version_id_bytes=1000)
    first = client.put_object(Bucket="bucket", Key="o", Body=b"one")["VersionId"]
    second = client.put_object(Bucket="bucket", Key="o", Body=b"two")["VersionId"]
    assert len(first) == len(second) == 1000
    assert read(client, "o", VersionId=first) == b"one"
    got = client.get_object(Bucket="bucket", Key="o")
    assert (got["VersionId"], got["Body"].read()) == (second, b"two")
    marker = client.delete_object(Bucket="bucket", Key="o")
    assert marker["DeleteMarker"]
    with pytest.raises(ClientError) as caught:
        read(client, "o")
    assert code(caught) == (404, "NoSuchKey")
    with pytest.raises(ClientError) as caught:
        read(client, "o", VersionId=marker["VersionId"])
    assert code(caught) == (405, "MethodNotAllowed")
    listed = client.list_object_versions(Bucket="bucket", Prefix="o")
    assert [(each["VersionId"], each["IsLatest"]) for each in listed["Versions"]] == [
        (second, False),
        (first, False),
    ]
    assert [(each["VersionId"], each["IsLatest"]) for each in listed["DeleteMarkers"]] == [
        (marker["VersionId"], True)
    ]
    assert "Contents" not in client.list_objects_v2(Bucket="bucket")
    client.delete_object(Bucket="bucket", Key="o", VersionId=marker["VersionId"])
    assert read(client, "o") == b"two"
    client.delete_object(Bucket="bucket", Key="o", VersionId=second)
    assert read(client, "o") == b"one"


# ── listing


def listed(client: Any, **options: Any) -> tuple[list[str], list[str]]:
    names, prefixes = [], []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="bucket", **options):
        found = [each["Key"] for each in page.get("Contents", [])]
        folders = [each["Prefix"] for each in page.get("CommonPrefixes", [])]
        assert page["KeyCount"] == len(found) + len(folders)
        names += found
        prefixes += folders
    return names, prefixes


def test_listing_by_pages_prefix_delimiter_and_start(server: FaultServer, client: Any) -> None:
    for name in NAMES:
        server.put("bucket", name, b"x")
    names = sorted(NAMES, key=str.encode)
    assert listed(client) == (names, [])
    assert listed(client, PaginationConfig={"PageSize": 1}) == (names, [])
    assert listed(client, Prefix="a/", PaginationConfig={"PageSize": 2}) == (names[:3], [])
    assert listed(client, Delimiter="/", PaginationConfig={"PageSize": 1}) == (
        ["b", "d. .", "e\x01\n"],
        ["a/", "c/"],
    )
    assert listed(client, Prefix="c/", Delimiter="/") == (["c/%2F+ &<ü>'\".txt"], ["c//"])
    assert listed(client, StartAfter="a/2") == (names[2:], [])
    assert listed(client, StartAfter="a/2\x00") == (names[2:], [])
    assert listed(client, StartAfter="a/", Delimiter="/")[1] == ["c/"]
    assert listed(client, StartAfter="a/1", Delimiter="/")[1] == ["a/", "c/"]
    page = client.list_objects_v2(Bucket="bucket", FetchOwner=True, MaxKeys=1)
    (entry,) = page["Contents"]
    assert (entry["Size"], entry["StorageClass"], entry["Owner"]["ID"]) == (
        1,
        "STANDARD",
        "headrace",
    )
    assert entry["ChecksumAlgorithm"] == ["CRC64NVME"]
    assert page["IsTruncated"]
    assert not client.list_objects_v2(Bucket="bucket", MaxKeys=0)["IsTruncated"]


def test_the_older_listing(server: FaultServer, client: Any) -> None:
    for name in NAMES:
        server.put("bucket", name, b"x")
    pages = client.get_paginator("list_objects").paginate(
        Bucket="bucket", Delimiter="/", PaginationConfig={"PageSize": 1}
    )
    found = [
        each.get("Key") or each.get("Prefix")
        for page in pages
        for each in [*page.get("Contents", []), *page.get("CommonPrefixes", [])]
    ]
    assert found == ["a/", "b", "c/", "d. .", "e\x01\n"]


def test_a_listing_that_repeats_or_has_no_order(server: FaultServer, client: Any) -> None:
    for name in "abc":
        server.put("bucket", name, b"x")
    server.bucket("bucket", list_fault="unordered")
    assert listed(client)[0] == ["c", "b", "a"]
    for fault in ("repeats_page", "repeats_token"):
        server.bucket("bucket", list_fault=fault)
        tokens: list[str] = []
        for _ in range(5):
            last = {"ContinuationToken": tokens[-1]} if tokens else {}
            page = client.list_objects_v2(Bucket="bucket", **last)
            assert [each["Key"] for each in page["Contents"]] == ["a", "b", "c"]
            assert page["IsTruncated"]
            tokens.append(page["NextContinuationToken"])
        assert len(set(tokens)) == (5 if fault == "repeats_page" else 1)


def test_a_million_names(server: FaultServer, client: Any) -> None:
    server.synthetic("bucket", 1_000_000, 1000, shape="skewed")
    assert listed(client, Delimiter="/") == ([], ["aa/", "mm/", "zz/"])
    assert listed(client, StartAfter="zz/0999997")[0] == ["zz/0999998", "zz/0999999"]
    got = client.get_object(Bucket="bucket", Key="mm/0500000", ChecksumMode="ENABLED")
    assert len(got["Body"].read()) == 1000
    assert got["ChecksumCRC32C"]


# ── multipart uploads

PARTS = [random.Random(i).randbytes(5 * MIB if i < 2 else 77) for i in range(3)]


def start(client: Any, name: str = "big", **options: Any) -> dict[str, Any]:
    begun = client.create_multipart_upload(Bucket="bucket", Key=name, **options)
    return {"Bucket": "bucket", "Key": name, "UploadId": begun["UploadId"]}


def plain_part(told: dict[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in told if name == "ETag" or name.startswith("Checksum")}


def send(client: Any, upload: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    sent = []
    for number, data in enumerate(PARTS, start=1):
        told = client.upload_part(**upload, PartNumber=number, Body=data, **options)
        sent.append({"PartNumber": number, **plain_part(told)})
    return sent


def test_a_multipart_upload(server: FaultServer, client: Any) -> None:
    upload = start(client, ContentType="image/png")
    parts = send(client, upload)
    found = client.list_parts(**upload, MaxParts=2)
    assert [(each["PartNumber"], each["Size"]) for each in found["Parts"]] == [
        (1, 5 * MIB),
        (2, 5 * MIB),
    ]
    assert found["IsTruncated"]
    rest = client.list_parts(**upload, PartNumberMarker=found["NextPartNumberMarker"])
    assert [each["ETag"] for each in rest["Parts"]] == [parts[2]["ETag"]]
    (listed_upload,) = client.list_multipart_uploads(Bucket="bucket")["Uploads"]
    assert (listed_upload["Key"], listed_upload["UploadId"]) == ("big", upload["UploadId"])
    done = client.complete_multipart_upload(
        **upload, MultipartUpload={"Parts": parts}, MpuObjectSize=10 * MIB + 77
    )
    md5s = b"".join(hashlib.md5(part).digest() for part in PARTS)
    assert done["ETag"] == f'"{hashlib.md5(md5s).hexdigest()}-3"'
    assert server.get("bucket", "big") == b"".join(PARTS)
    head = client.head_object(Bucket="bucket", Key="big", PartNumber=3)
    assert (head["ContentLength"], head["PartsCount"]) == (77, 3)
    assert server.uploads()["multipart"] == []
    with pytest.raises(ClientError) as caught:
        client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert code(caught) == (404, "NoSuchUpload")


def test_a_server_that_lets_an_upload_be_completed_again(server: FaultServer, client: Any) -> None:
    server.bucket("bucket", completes_again=True)
    upload = start(client)
    parts = {"Parts": send(client, upload)}
    server.faults([{"match": {"kind": "multipart_complete"}, "count": 1, "action": "lost_answer"}])
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        client.complete_multipart_upload(**upload, MultipartUpload=parts)
    again = client.complete_multipart_upload(**upload, MultipartUpload=parts)
    assert again["ETag"] == client.head_object(Bucket="bucket", Key="big")["ETag"]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("CRC32", "FULL_OBJECT"),
        ("CRC32", "COMPOSITE"),
        ("SHA256", "COMPOSITE"),
    ],
)
def test_checksums_of_multipart_uploads(client: Any, algorithm: str, kind: str) -> None:
    upload = start(client, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    parts = send(client, upload, ChecksumAlgorithm=algorithm)
    wrong = {f"Checksum{algorithm}": b64encode(bytes(4 if algorithm == "CRC32" else 32)).decode()}
    with pytest.raises(ClientError) as caught:
        client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, **wrong)
    assert code(caught) == (400, "BadDigest")
    done = client.complete_multipart_upload(
        **upload, MultipartUpload={"Parts": parts}, ChecksumType=kind
    )
    assert done["ChecksumType"] == kind
    head = client.head_object(Bucket="bucket", Key="big", ChecksumMode="ENABLED")
    assert head[f"Checksum{algorithm}"] == done[f"Checksum{algorithm}"]
    assert head[f"Checksum{algorithm}"].endswith("-3") == (kind == "COMPOSITE")
    if (algorithm, kind) == ("CRC32", "FULL_OBJECT"):
        crc = zlib.crc32(b"".join(PARTS)).to_bytes(4, "big")
        assert done["ChecksumCRC32"] == b64encode(crc).decode()
    if algorithm == "SHA256":
        sums = b"".join(hashlib.sha256(part).digest() for part in PARTS)
        assert done["ChecksumSHA256"] == b64encode(hashlib.sha256(sums).digest()).decode() + "-3"
    third = client.head_object(Bucket="bucket", Key="big", PartNumber=3, ChecksumMode="ENABLED")
    assert third[f"Checksum{algorithm}"] == parts[2][f"Checksum{algorithm}"]
    told = client.get_object_attributes(
        Bucket="bucket", Key="big", ObjectAttributes=["Checksum", "ObjectParts", "ObjectSize"]
    )
    assert told["ObjectSize"] == 10 * MIB + 77
    assert [part["Size"] for part in told["ObjectParts"]["Parts"]] == [5 * MIB, 5 * MIB, 77]
    assert told["Checksum"]["ChecksumType"] == kind


def test_an_upload_with_a_composite_checksum_needs_those_of_its_parts(client: Any) -> None:
    upload = start(client, ChecksumAlgorithm="SHA256")
    with pytest.raises(ClientError, match=r"expected checksum Type: sha256, actual .*: crc32"):
        send(client, upload, ChecksumAlgorithm="CRC32")
    parts = send(client, upload, ChecksumAlgorithm="SHA256")
    for part in parts:
        del part["ChecksumSHA256"]
    with pytest.raises(ClientError, match="It was missing for part 1 in the request"):
        client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


def test_conditions_hold_when_an_upload_is_completed(server: FaultServer, client: Any) -> None:
    server.put("bucket", "big", b"old")
    upload = start(client)
    parts = {"Parts": send(client, upload)}
    with pytest.raises(ClientError) as caught:
        client.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*")
    assert code(caught) == (412, "PreconditionFailed")
    assert server.get("bucket", "big") == b"old"
    etag = client.head_object(Bucket="bucket", Key="big")["ETag"]
    client.complete_multipart_upload(**upload, MultipartUpload=parts, IfMatch=etag)
    assert server.get("bucket", "big") == b"".join(PARTS)


def test_what_is_wrong_with_an_upload_is_told_apart(server: FaultServer, client: Any) -> None:
    upload = start(client)
    parts = send(client, upload)
    small = client.upload_part(**upload, PartNumber=4, Body=b"small")
    four = [*parts, {"PartNumber": 4, "ETag": small["ETag"]}]
    for listed_parts, options, wanted in (
        ([{**parts[0], "ETag": '"other"'}], {}, "InvalidPart"),
        ([{**parts[0], "PartNumber": 9}], {}, "InvalidPart"),
        ([parts[1], parts[0]], {}, "InvalidPartOrder"),
        (four, {}, "EntityTooSmall"),
        (parts, {"MpuObjectSize": 5}, "InvalidRequest"),
    ):
        with pytest.raises(ClientError) as caught:
            client.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": listed_parts}, **options
            )
        assert code(caught) == (400, wanted)
    client.abort_multipart_upload(**upload)
    with pytest.raises(ClientError) as caught:
        client.upload_part(**upload, PartNumber=1, Body=b"x")
    assert code(caught) == (404, "NoSuchUpload")
    assert server.uploads()["multipart"] == []


def test_parts_by_copy(server: FaultServer, client: Any) -> None:
    server.put("bucket", "source", PARTS[0])
    upload = start(client)
    first = client.upload_part_copy(**upload, PartNumber=1, CopySource="bucket/source")
    second = client.upload_part_copy(
        **upload, PartNumber=2, CopySource="bucket/source", CopySourceRange="bytes=10-19"
    )
    parts = [
        {"PartNumber": number, **plain_part(told["CopyPartResult"])}
        for number, told in enumerate((first, second), start=1)
    ]
    client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert server.get("bucket", "big") == PARTS[0] + PARTS[0][10:20]
    assert server.stats()["by_kind"]["multipart_part_copy"] == 2


def test_unfinished_uploads_are_listed_by_pages_and_grow_old(
    server: FaultServer, client: Any
) -> None:
    for name in ("x/b", "x/a", "x/a", "y"):
        start(client, name)
    server.age_uploads(86_400)
    newest = start(client, "x/c")
    pages = client.get_paginator("list_multipart_uploads").paginate(
        Bucket="bucket", Prefix="x/", PaginationConfig={"PageSize": 1}
    )
    found = [each for page in pages for each in page["Uploads"]]
    assert [each["Key"] for each in found] == ["x/a", "x/a", "x/b", "x/c"]
    assert found[3]["UploadId"] == newest["UploadId"]
    assert (found[3]["Initiated"] - found[0]["Initiated"]).total_seconds() >= 86_400


# ── who may, and where


def test_signatures_sessions_and_strangers(server: FaultServer) -> None:
    server.put("bucket", "o", b"bytes")
    with client_of(server.url) as client:
        assert read(client, "o") == b"bytes"
    for key, wanted in (
        ({**KEY, "secret_key": "wrong"}, (403, "SignatureDoesNotMatch")),
        ({**KEY, "access_key": "NOBODY"}, (403, "InvalidAccessKeyId")),
        ({**KEY, "session_token": "unexpected"}, (400, "InvalidToken")),
        (None, (403, "AccessDenied")),
    ):
        with client_of(server.url, key=key) as client, pytest.raises(ClientError) as caught:
            read(client, "o")
        assert code(caught) == wanted
    session = {**KEY, "session_token": "token/with+signs="}
    server.keys(session)
    with client_of(server.url, key=session) as client:
        assert read(client, "o") == b"bytes"
    server.keys({**session, "expired": True})
    with client_of(server.url, key=session) as client, pytest.raises(ClientError) as caught:
        read(client, "o")
    assert code(caught) == (400, "ExpiredToken")
    server.keys()
    with client_of(server.url, key=None) as client:
        assert read(client, "o") == b"bytes"


def test_a_bucket_of_others_and_a_public_one(server: FaultServer, client: Any) -> None:
    server.put("others", "o", b"bytes")
    server.bucket("others", access_keys=["SOMEBODY"])
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="others", Key="o")
    assert code(caught) == (403, "AccessDenied")
    assert [each["Name"] for each in client.list_buckets()["Buckets"]] == ["bucket"]
    server.bucket("others", public=True)
    with client_of(server.url, key=None) as nobody:
        assert nobody.get_object(Bucket="others", Key="o")["Body"].read() == b"bytes"


def test_who_may_not_list_is_not_told_what_exists(server: FaultServer, client: Any) -> None:
    server.bucket("bucket", denied_permissions=["s3:ListBucket"])
    for call in (lambda: read(client, "none"), lambda: client.list_objects_v2(Bucket="bucket")):
        with pytest.raises(ClientError) as caught:
            call()
        assert code(caught) == (403, "AccessDenied")


def test_a_clock_that_is_off(server: FaultServer, client: Any) -> None:
    server.put("bucket", "o", b"bytes")
    server.clock(3600)
    with pytest.raises(ClientError) as caught:
        read(client, "o")
    assert code(caught) == (403, "RequestTimeTooSkewed")
    assert caught.value.response["Error"]["ServerTime"].endswith("Z")
    server.clock(600)
    assert read(client, "o") == b"bytes"


def test_presigned_urls(server: FaultServer) -> None:
    server.put("bucket", "dir/ü +", b"bytes")
    with client_of(server.url, signature_version="s3v4") as client:
        url = client.generate_presigned_url(
            "get_object", {"Bucket": "bucket", "Key": "dir/ü +"}, ExpiresIn=60
        )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url) as answer:
        assert answer.read() == b"bytes"

    def refused(changed: str) -> bytes:
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(changed)
        with caught.value as answer:
            assert answer.code == 403
            return bytes(answer.read())

    assert b"SignatureDoesNotMatch" in refused(url.replace("Expires=60", "Expires=61"))
    server.clock(120)
    assert b"Request has expired" in refused(url)


def test_virtual_hosts(server: FaultServer) -> None:
    # The server is its own proxy, so that the name needs no address.
    proxies = {"http": server.url}
    with client_of("http://s3.test", style="virtual", proxies=proxies) as client:
        client.put_object(Bucket="bucket", Key="a/b", Body=b"bytes")
        assert read(client, "a/b") == b"bytes"
        assert listed(client) == (["a/b"], [])
    hosts = {line["headers"]["host"] for line in server.log()}
    assert hosts == {"bucket.s3.test"}
    assert server.get("bucket", "a/b") == b"bytes"


def test_a_bucket_in_another_region(server: FaultServer) -> None:
    server.put("far", "o", b"bytes")
    server.bucket("far", region="eu-west-1")
    with client_of(server.url, region="eu-west-1") as client:
        assert client.get_object(Bucket="far", Key="o")["Body"].read() == b"bytes"
        assert client.get_bucket_location(Bucket="far")["LocationConstraint"] == "eu-west-1"
        assert client.head_bucket(Bucket="far")["BucketRegion"] == "eu-west-1"
    # botocore learns the region from the error and signs anew.
    with client_of(server.url, region="us-east-1") as client:
        assert client.get_object(Bucket="far", Key="o")["Body"].read() == b"bytes"
    statuses = [(line["kind"], line["status"]) for line in server.log()[3:]]
    assert statuses[0] == ("media", 400)
    assert statuses[-1] == ("media", 200)


def test_a_redirect_names_the_endpoint_and_the_region(server: FaultServer, client: Any) -> None:
    server.put("far", "o", b"bytes")
    server.bucket("far", region="eu-west-1", redirect_to="eu.s3.test:1")
    client.meta.events.unregister("needs-retry.s3", unique_id=None)
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="far", Key="o")
    assert code(caught)[0] == 301
    headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-amz-bucket-region"] == "eu-west-1"
    server.bucket("far", redirect_status=307)
    with pytest.raises((ClientError, HTTPClientError)):
        client.get_object(Bucket="far", Key="o")
    assert {line["status"] for line in server.log()} >= {301, 307}


def test_buckets(server: FaultServer, client: Any) -> None:
    client.create_bucket(
        Bucket="new", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    assert [each["Name"] for each in client.list_buckets()["Buckets"]] == ["bucket", "new"]
    with pytest.raises(ClientError) as caught:
        client.create_bucket(Bucket="bucket")
    assert code(caught) == (409, "BucketAlreadyOwnedByYou")
    server.put("bucket", "o", b"x")
    with pytest.raises(ClientError) as caught:
        client.delete_bucket(Bucket="bucket")
    assert code(caught) == (409, "BucketNotEmpty")
    client.delete_object(Bucket="bucket", Key="o")
    client.delete_bucket(Bucket="bucket")
    with pytest.raises(ClientError) as caught:
        client.head_bucket(Bucket="bucket")
    assert code(caught) == (404, "404")
    with pytest.raises(ClientError) as caught:
        client.list_objects_v2(Bucket="bucket")
    assert code(caught) == (404, "NoSuchBucket")


# ── faults


def test_throttling_of_one_prefix(server: FaultServer, client: Any) -> None:
    for name in ("hot/o", "cold/o"):
        server.put("bucket", name, b"x")
    server.limit(
        prefixes=[{"bucket": "bucket", "prefix": "hot/", "requests_per_s": 0.001, "burst": 2}]
    )
    assert [read(client, "hot/o") for _ in range(2)] == [b"x", b"x"]
    with pytest.raises(ClientError) as caught:
        read(client, "hot/o")
    assert code(caught) == (503, "SlowDown")
    with pytest.raises(ClientError) as caught:
        client.list_objects_v2(Bucket="bucket", Prefix="hot/")
    assert code(caught) == (503, "SlowDown")
    assert [read(client, "cold/o") for _ in range(5)] == [b"x"] * 5
    for prefix in ("cold/", "hot", ""):
        client.list_objects_v2(Bucket="bucket", Prefix=prefix)
    assert server.stats()["throttled"] == 2


def test_throttling_of_one_bucket(server: FaultServer, client: Any) -> None:
    for bucket in ("hot", "cold"):
        server.put(bucket, "o", b"x")
    server.limit(prefixes=[{"bucket": "hot", "prefix": "", "requests_per_s": 0.001, "burst": 1}])
    client.head_object(Bucket="hot", Key="o")
    with pytest.raises(ClientError) as caught:
        client.list_objects_v2(Bucket="hot")
    assert code(caught) == (503, "SlowDown")
    for _ in range(3):
        client.list_objects_v2(Bucket="cold")
    assert server.stats()["throttled"] == 1


def test_errors_carry_the_id_of_the_request(client: Any) -> None:
    with pytest.raises(ClientError) as caught:
        read(client, "none")
    metadata = caught.value.response["ResponseMetadata"]
    assert metadata["RequestId"] == metadata["HTTPHeaders"]["x-amz-request-id"]
    assert metadata["HostId"] == metadata["HTTPHeaders"]["x-amz-id-2"]


def test_a_cut_body_is_noticed(server: FaultServer, client: Any) -> None:
    server.put("bucket", "o", DATA)
    server.faults([{"match": {"kind": "media"}, "action": {"cut_after_bytes": 1000}}])
    with pytest.raises((ResponseStreamingError, HTTPClientError)):
        read(client, "o")
