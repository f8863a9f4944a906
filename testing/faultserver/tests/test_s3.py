"""The S3 dialect seen from a socket: what no client of others would send, and the faults."""

from __future__ import annotations

import re
import zlib
from base64 import b64encode
from typing import Any

import pytest

from testing.faultserver.client import FaultServer
from testing.faultserver.tests.raw import RawClient

DATA = bytes(range(256)) * 400  # 100 KiB


@pytest.fixture
def server(running_s3_server: FaultServer) -> FaultServer:
    running_s3_server.reset()
    running_s3_server.put("b", "o", DATA)
    return running_s3_server


def code(body: bytes) -> str:
    found = re.search(rb"<Code>(\w+)</Code>", body)
    return found.group(1).decode() if found else ""


def crc64nvme(data: bytes) -> str:
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x9A6C9329AC4BC9B5 if crc & 1 else crc >> 1
    return b64encode((crc ^ 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")).decode()


def crc32c(data: bytes) -> str:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
    return b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


ASKS = {"x-amz-checksum-mode": "ENABLED"}


def test_the_sums_of_crc64nvme_and_crc32c_are_the_published_ones(client: RawClient) -> None:
    assert crc64nvme(b"123456789") == b64encode(bytes.fromhex("ae8b14860a799888")).decode()
    for data in (b"", b"a", b"123456789", DATA[:1001]):
        told = client.call("PUT", "/b/sum", {"x-amz-checksum-crc64nvme": crc64nvme(data)}, data)
        assert (told.status, told.headers["x-amz-checksum-crc64nvme"]) == (200, crc64nvme(data))
        told = client.call("PUT", "/b/sum", {"x-amz-checksum-crc32c": crc32c(data)}, data)
        assert (told.status, told.headers["x-amz-checksum-crc32c"]) == (200, crc32c(data))
    # What comes without a checksum gets one.
    client.call("PUT", "/b/sum", {}, b"123456789")
    head = client.call("HEAD", "/b/sum", ASKS).headers
    assert head["x-amz-checksum-crc64nvme"] == crc64nvme(b"123456789")
    assert head["x-amz-checksum-type"] == "FULL_OBJECT"


@pytest.mark.parametrize("name", ["crc64nvme", "crc32c"])
def test_sums_of_parts_are_joined_to_that_of_the_whole(
    server: FaultServer, client: RawClient, name: str
) -> None:
    reference = {"crc64nvme": crc64nvme, "crc32c": crc32c}[name]
    server.min_part_bytes(1)
    parts = [DATA[:1000], b"x" * 77, DATA[5000:5001]]
    wishes = {"x-amz-checksum-algorithm": name.upper(), "x-amz-checksum-type": "FULL_OBJECT"}
    begun = client.call("POST", "/b/big?uploads", wishes).body
    (upload,) = re.findall(rb"<UploadId>([^<]+)</UploadId>", begun)
    xml = "<CompleteMultipartUpload>"
    for number, part in enumerate(parts, start=1):
        target = f"/b/big?partNumber={number}&uploadId={upload.decode()}"
        told = client.call("PUT", target, {f"x-amz-checksum-{name}": reference(part)}, part)
        assert told.status == 200
        xml += f"<Part><PartNumber>{number}</PartNumber><ETag>{told.headers['etag']}</ETag></Part>"
    target = f"/b/big?uploadId={upload.decode()}"
    body = (xml + "</CompleteMultipartUpload>").encode()
    whole = {f"x-amz-checksum-{name}": reference(b"".join(parts))}
    assert client.call("POST", target, whole, body).status == 200
    assert (
        client.call("HEAD", "/b/big", ASKS).headers[f"x-amz-checksum-{name}"] == whole.popitem()[1]
    )


@pytest.mark.parametrize(
    ("sizes", "status"), [([5, 5, 2], 200), ([5, 5, 5], 200), ([5, 4, 5], 400), ([4, 4, 5], 400)]
)
def test_parts_that_must_have_one_size_are_refused_if_they_have_not(
    server: FaultServer, client: RawClient, sizes: list[int], status: int
) -> None:
    server.uploads_config(min_part_bytes=1, max_parts=3, equal_parts=True)
    begun = client.call("POST", "/b/o?uploads").body
    (upload,) = re.findall(rb"<UploadId>([^<]+)</UploadId>", begun)
    xml = "<CompleteMultipartUpload>"
    for number, size in enumerate(sizes, start=1):
        target = f"/b/o?partNumber={number}&uploadId={upload.decode()}"
        etag = client.call("PUT", target, {}, bytes(size)).headers["etag"]
        xml += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
    one_more = f"/b/o?partNumber=4&uploadId={upload.decode()}"
    assert client.call("PUT", one_more, {}, b"1").status == 400
    body = (xml + "</CompleteMultipartUpload>").encode()
    answer = client.call("POST", f"/b/o?uploadId={upload.decode()}", {}, body)
    assert answer.status == status
    assert (b"must have the same length" in answer.body) == (status == 400)


def chunked(data: bytes, sizes: list[int], trailer: str) -> bytes:
    out = b""
    at = 0
    for size in [*sizes, len(data) - sum(sizes)]:
        out += f"{size:x}\r\n".encode() + data[at : at + size] + b"\r\n"
        at += size
    return out + b"0\r\n" + trailer.encode() + b"\r\n"


TRAILED = {
    "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    "content-encoding": "aws-chunked",
    "x-amz-trailer": "x-amz-checksum-crc32",
    "x-amz-decoded-content-length": str(len(DATA)),
}
CRC = b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()


@pytest.mark.parametrize(
    ("sizes", "trailer", "headers", "wanted"),
    [
        ([8192, 65536], f"x-amz-checksum-crc32:{CRC}\r\n", {}, ""),
        ([8192, 100], f"x-amz-checksum-crc32:{CRC}\r\n", {}, "InvalidChunkSizeError"),
        ([65536], "x-amz-checksum-crc32:AAAAAA==\r\n", {}, "BadDigest"),
        ([65536], f"x-amz-checksum-sha1:{CRC}\r\n", {}, "MalformedTrailerError"),
        ([65536], "", {}, "MalformedTrailerError"),
        (
            [],
            f"x-amz-checksum-crc32:{CRC}\r\n",
            {"x-amz-decoded-content-length": "9"},
            "IncompleteBody",
        ),
        ([], "", {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}, "NotImplemented"),
    ],
)
def test_bodies_in_chunks_with_trailers(
    server: FaultServer,
    client: RawClient,
    sizes: list[int],
    trailer: str,
    headers: dict[str, str],
    wanted: str,
) -> None:
    body = chunked(DATA, sizes, trailer)
    answer = client.call("PUT", "/b/new", {**TRAILED, **headers}, body)
    assert code(answer.body) == wanted
    assert (answer.status == 200) == (wanted == "")
    assert server.names("b") == (["o"] if wanted else ["new", "o"])
    if not wanted:
        assert answer.headers["x-amz-checksum-crc32"] == CRC
        assert "content-encoding" not in client.call("HEAD", "/b/new").headers
        assert server.get("b", "new") == DATA


def test_an_upload_needs_a_length_that_is_no_chunked_encoding(
    server: FaultServer, client: RawClient
) -> None:
    client.socket.sendall(b"PUT /b/new HTTP/1.1\r\nHost: test\r\n\r\n")
    answer = client.answer()
    assert (answer.status, code(answer.body)) == (411, "MissingContentLength")
    client.socket.sendall(
        b"PUT /b/new HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\n\r\n"
    )
    answer = client.answer()
    assert (answer.status, code(answer.body)) == (501, "NotImplemented")
    assert server.names("b") == ["o"]


def test_ranges(client: RawClient) -> None:
    got = client.call("GET", "/b/o", {"Range": "bytes=100-199"})
    assert (got.status, got.body) == (206, DATA[100:200])
    assert got.headers["content-range"] == f"bytes 100-199/{len(DATA)}"
    beyond = client.call("GET", "/b/o", {"Range": f"bytes={len(DATA)}-"})
    assert (beyond.status, code(beyond.body)) == (416, "InvalidRange")
    assert f"<ActualObjectSize>{len(DATA)}<".encode() in beyond.body
    assert client.call("GET", "/b/o", {"Range": "lines=1-2"}).body == DATA
    archived = {"x-amz-storage-class": "GLACIER"}
    assert client.call("PUT", "/b/cold", archived, b"x").status == 200
    refused = client.call("GET", "/b/cold")
    assert (refused.status, code(refused.body)) == (403, "InvalidObjectState")


@pytest.mark.parametrize("host", ["b.localhost:1234", "B.LOCALHOST"])
def test_a_bucket_may_stand_in_the_host(server: FaultServer, host: str) -> None:
    with RawClient(server.host, server.port, authority=host) as client:
        assert client.call("GET", "/o").body == DATA
        assert b"<Key>o</Key>" in client.call("GET", "/?list-type=2").body
    assert [line["kind"] for line in server.log()] == ["media", "list"]


@pytest.mark.parametrize("status", [301, 307])
def test_a_bucket_is_served_at_its_own_endpoint_only(server: FaultServer, status: int) -> None:
    server.bucket("b", region="eu-west-1", redirect_to="localhost:1", redirect_status=status)
    with RawClient(server.host, server.port) as client:
        answer = client.call("GET", "/b/o?x-id=GetObject")
        assert answer.status == status
        assert answer.headers["x-amz-bucket-region"] == "eu-west-1"
        assert b"<Endpoint>localhost:1</Endpoint>" in answer.body
        location = "http://localhost:1/b/o?x-id=GetObject" if status == 307 else None
        assert answer.headers.get("location") == location
        head = client.call("HEAD", "/b")
        assert (head.status, head.headers["x-amz-bucket-region"]) == (status, "eu-west-1")
    with RawClient(server.host, server.port, authority="localhost:1") as client:
        assert client.call("GET", "/b/o").body == DATA
    with RawClient(server.host, server.port, authority="b.localhost:1") as client:
        assert client.call("GET", "/o").body == DATA


def test_names_are_taken_as_they_are(server: FaultServer, client: RawClient) -> None:
    for target, name in (
        ("/b//x", "/x"),
        ("/b/a//b/", "a//b/"),
        ("/b/./..", "./.."),
        ("/b/a+b%20c", "a+b c"),
        ("/b/%2Fy%252F", "/y%2F"),
        ("/b/%01%C3%BC", "\x01ü"),
    ):
        assert client.call("PUT", target, body=b"x").status == 200
        assert name in server.names("b")
        assert client.call("GET", target).body == b"x"


def test_a_listing_in_plain_xml_and_encoded(server: FaultServer, client: RawClient) -> None:
    server.put("b", "a b+&\x01/x", b"x")
    plain = client.call("GET", "/b?list-type=2").body
    assert b"<Key>a b+&amp;&#x01;/x</Key>" in plain
    encoded = client.call("GET", "/b?list-type=2&encoding-type=url").body
    assert b"<Key>a+b%2B%26%01/x</Key>" in encoded
    assert b"<EncodingType>url</EncodingType>" in encoded
    server.bucket("b", encoding_type=False)
    assert client.call("GET", "/b?list-type=2&encoding-type=url").body == plain
    for query in ("max-keys=-1", "max-keys=x", "continuation-token=x", "list-type=3"):
        answer = client.call("GET", f"/b?list-type=2&{query}".replace("list-type=2&list", "list"))
        assert (answer.status, code(answer.body)) == (400, "InvalidArgument")


def test_made_buckets_have_checksums_and_take_writes(
    server: FaultServer, client: RawClient
) -> None:
    server.synthetic("made", 5, [1, 6000], shape="flat")
    for name in server.names("made"):
        got = client.call("GET", f"/made/{name}", ASKS)
        assert got.headers["x-amz-checksum-crc32c"] == crc32c(got.body)
        assert f"{got.headers['etag'][1:-1]}".encode() in client.call("GET", "/made").body
    assert client.call("PUT", "/made/0000002", body=b"written").status == 200
    assert client.call("DELETE", "/made/0000001").status == 204
    assert client.call("GET", "/made/0000002").body == b"written"
    assert server.names("made") == ["0000000", "0000002", "0000003", "0000004"]


def test_pages_of_a_made_bucket_come_late_and_hold_each_name_once(
    server: FaultServer, client: RawClient
) -> None:
    server.synthetic("made", 2500, 1, shape="flat", list_delay_ms=100)
    names: list[str] = []
    after = ""
    for count in (1000, 1000, 500):
        page = client.call("GET", f"/made?list-type=2&start-after={after}").body.decode()
        found = re.findall("<Key>(.*?)</Key>", page)
        assert len(found) == count
        names += found
        after = names[-1]
    assert names == [f"{i:07d}" for i in range(2500)]
    assert all(line["t_end_s"] - line["t_start_s"] >= 0.1 for line in server.log())


def test_objects_are_put_with_the_checksums_that_a_test_wants(
    server: FaultServer, client: RawClient
) -> None:
    server.put("b", "bare", DATA, checksumAlgorithm="none")
    assert not [n for n in client.call("HEAD", "/b/bare", ASKS).headers if "checksum" in n]
    server.put(
        "b", "parts", DATA, checksumAlgorithm="CRC32", checksumType="COMPOSITE", partBytes=60_000
    )
    head = client.call("HEAD", "/b/parts", ASKS).headers
    sums = b"".join(zlib.crc32(part).to_bytes(4, "big") for part in (DATA[:60_000], DATA[60_000:]))
    whole = b64encode(zlib.crc32(sums).to_bytes(4, "big")).decode()
    assert head["x-amz-checksum-crc32"] == whole + "-2"
    assert head["x-amz-checksum-type"] == "COMPOSITE"
    assert head["etag"].endswith('-2"')


def test_made_up_faults_act_on_checksums_in_heads_and_results(
    server: FaultServer, client: RawClient
) -> None:
    rule = {"match": {"kind": "media"}, "count": 1}
    right = client.call("GET", "/b/o", ASKS).headers
    server.faults([{**rule, "action": "wrong_checksum"}, {**rule, "action": "no_hash"}])
    wrong = client.call("GET", "/b/o", ASKS).headers
    assert wrong["etag"] == right["etag"]
    assert wrong["x-amz-checksum-type"] == right["x-amz-checksum-type"]
    assert wrong["x-amz-checksum-crc64nvme"] != right["x-amz-checksum-crc64nvme"]
    assert not [n for n in client.call("GET", "/b/o", ASKS).headers if "checksum" in n]
    rule = {"match": {"kind": "copy"}, "count": 1}
    copy = ("PUT", "/b/p", {"x-amz-copy-source": "/b/o"})
    right_body = client.call(*copy).body
    server.faults([{**rule, "action": "wrong_checksum"}, {**rule, "action": "no_hash"}])
    sums = [re.findall(rb"<ChecksumCRC64NVME>([^<]+)<", right_body)]
    sums.append(re.findall(rb"<ChecksumCRC64NVME>([^<]+)<", client.call(*copy).body))
    assert len(sums[0]) == len(sums[1]) == 1
    assert sums[0] != sums[1]
    bare = client.call(*copy).body
    assert b"Checksum" not in bare
    assert b"</CopyObjectResult>" in bare
    listing = client.call("GET", "/b?list-type=2").body
    assert b"<ChecksumAlgorithm>" in listing
    server.faults([{"match": {"kind": "list"}, "action": "no_hash"}])
    assert b"Checksum" not in client.call("GET", "/b?list-type=2").body


def test_a_fault_is_an_error_of_s3(server: FaultServer, client: RawClient) -> None:
    for action, wanted in (
        ({"status": 503}, (503, "ServiceUnavailable")),
        ({"status": 503, "reason": "SlowDown"}, (503, "SlowDown")),
        ({"status": 500}, (500, "InternalError")),
        ({"status": 403}, (403, "AccessDenied")),
        ({"status": 404}, (404, "NoSuchKey")),
        (
            {"status": 409, "reason": "ConditionalRequestConflict"},
            (409, "ConditionalRequestConflict"),
        ),
    ):
        server.faults([{"action": action}])
        answer = client.call("GET", "/b/o")
        assert (answer.status, code(answer.body)) == wanted
        assert answer.headers["x-amz-request-id"].encode() in answer.body
    server.faults([{"action": {"pad_body": 5, "chunked": True}}])
    assert client.call("GET", "/b?list-type=2").body.startswith(b"     <?xml")
    server.faults([])
    server.limit(requests_per_s=0.001, burst=1)
    assert client.call("GET", "/b/o").status == 200
    answer = client.call("GET", "/b/o")
    assert (answer.status, code(answer.body)) == (503, "SlowDown")


def test_the_object_changes_between_two_reads(server: FaultServer, client: RawClient) -> None:
    server.faults([{"count": 1, "action": "old_generation_then_new"}])
    old = client.call("GET", "/b/o", {"Range": "bytes=0-9"})
    pinned = {"Range": "bytes=10-19", "If-Match": old.headers["etag"]}
    answer = client.call("GET", "/b/o", pinned)
    assert (answer.status, code(answer.body)) == (412, "PreconditionFailed")
    new = client.call("GET", "/b/o", ASKS)
    assert new.body == bytes(255 - byte for byte in DATA)
    assert new.headers["etag"] != old.headers["etag"]
    assert new.headers["x-amz-checksum-crc64nvme"] == crc64nvme(new.body)


def test_lost_and_cut_uploads(server: FaultServer, client: RawClient) -> None:
    server.faults([{"match": {"kind": "upload"}, "count": 1, "action": "lost_answer"}])
    assert client.call("PUT", "/b/new", body=b"bytes").end == "rst"
    assert server.get("b", "new") == b"bytes"
    server.faults([{"match": {"kind": "upload"}, "action": {"cut_request_after_bytes": 1000}}])
    with RawClient(server.host, server.port) as second:
        assert second.call("PUT", "/b/cut", body=DATA).end == "rst"
    assert server.names("b") == ["new", "o"]


SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=K/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=" + "0" * 64,
    "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
    "x-amz-date": "20260101T000000Z",
}


@pytest.mark.parametrize(
    ("changes", "status", "wanted"),
    [
        ({"Authorization": "Bearer x"}, 400, "AuthorizationHeaderMalformed"),
        ({"Authorization": "AWS4-HMAC-SHA256 Credential=K"}, 400, "AuthorizationHeaderMalformed"),
        ({"x-amz-content-sha256": ""}, 400, "InvalidRequest"),
        ({"x-amz-date": "yesterday"}, 403, "AccessDenied"),
        ({"x-amz-date": "20260102T000000Z"}, 400, "AuthorizationHeaderMalformed"),
        ({}, 403, "RequestTimeTooSkewed"),
    ],
)
def test_signatures_that_cannot_be_right(
    server: FaultServer, client: RawClient, changes: dict[str, str], status: int, wanted: str
) -> None:
    server.keys({"access_key": "K", "secret_key": "S"})
    answer = client.call("GET", "/b/o", {**SIGNED, **changes})
    assert (answer.status, code(answer.body)) == (status, wanted)


def test_members_of_buckets_are_checked(server: FaultServer) -> None:
    wrong: list[dict[str, Any]] = [
        {"colour": "red"},
        {"conditional_writes": "perhaps"},
        {"default_checksum": "MD4"},
        {"list_fault": "sometimes"},
        {"redirect_status": 302},
    ]
    for members in wrong:
        with pytest.raises(ValueError, match=next(iter(members))):
            server.bucket("b", **members)
