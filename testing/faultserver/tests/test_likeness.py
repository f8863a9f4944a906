"""The manners of services that call themselves S3, seen from a socket."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import md5
from xml.etree import ElementTree

import pytest

from testing.faultserver.client import FaultServer
from testing.faultserver.tests.raw import Answer, RawClient
from testing.faultserver.tests.test_s3 import code, crc32c, crc64nvme

DATA = b"0123456789" * 100
CRC32C = {"x-amz-checksum-crc32c": crc32c(DATA)}
CRC64 = {"x-amz-checksum-crc64nvme": crc64nvme(DATA)}
NEW = {"If-None-Match": "*"}


@pytest.fixture
def server(running_s3_server: FaultServer) -> FaultServer:
    running_s3_server.reset()
    running_s3_server.put("b", "o", DATA)
    return running_s3_server


def what(answer: Answer) -> tuple[int, str]:
    return answer.status, code(answer.body)


def start(client: RawClient, headers: dict[str, str] | None = None, name: str = "big") -> str:
    answer = client.call("POST", f"/b/{name}?uploads", headers)
    assert answer.status == 200, answer
    found = re.search(rb"UploadId>(?:<!\[CDATA\[)?([^<\]]+)", answer.body)
    assert found is not None
    return found.group(1).decode()


def put_parts(client: RawClient, upload: str, *parts: bytes) -> bytes:
    """Return the body that completes the upload."""
    out = b""
    for number, part in enumerate(parts, 1):
        answer = client.call("PUT", f"/b/big?partNumber={number}&uploadId={upload}", body=part)
        assert answer.status == 200, answer
        etag = answer.headers["etag"].encode()
        out += b"<Part><PartNumber>%d</PartNumber><ETag>%b</ETag></Part>" % (number, etag)
    return b"<CompleteMultipartUpload>" + out + b"</CompleteMultipartUpload>"


def test_a_server_is_started_like_a_service_and_stays_so_after_a_reset() -> None:
    with FaultServer(dialect="s3", like=["sums-501", "conditions-400"]) as server:
        for _ in range(2):
            server.reset()
            server.put("b", "o", DATA)
            with RawClient(server.host, server.port) as client:
                assert what(client.call("PUT", "/b/n", CRC32C, DATA)) == (501, "NotImplemented")
                assert what(client.call("PUT", "/b/n", NEW, DATA)) == (400, "InvalidArgument")
            server.bucket("b", checksums=True)


def test_a_reset_forgets_what_was_said_while_the_server_ran(
    server: FaultServer, client: RawClient
) -> None:
    server.like("sums-501")
    server.reset()
    server.put("b", "o", DATA)
    assert client.call("PUT", "/b/n", CRC32C, DATA).status == 200


def test_one_bucket_alone_can_differ(server: FaultServer, client: RawClient) -> None:
    server.bucket("c", checksums="refused_400")
    assert client.call("PUT", "/b/n", CRC32C, DATA).status == 200
    assert client.call("PUT", "/c/n", CRC32C, DATA).status == 400


def test_an_unknown_service_or_value_is_refused(server: FaultServer) -> None:
    with pytest.raises(ValueError, match="no such service: nobody"):
        server.like("nobody")
    with pytest.raises(ValueError, match="checksums cannot be"):
        server.like(checksums="some")
    with pytest.raises(ValueError, match="xml cannot be"):
        server.like(xml=["json"])


def test_gcs_has_no_such_services() -> None:
    with FaultServer() as server, pytest.raises(ValueError, match="only S3"):
        server.like("no-sums")


def test_crc64_only_refuses_other_algorithms_and_sums_of_parts(
    server: FaultServer, client: RawClient
) -> None:
    server.like("crc64-only")
    assert client.call("PUT", "/b/n", CRC64, DATA).status == 200
    assert what(client.call("PUT", "/b/n", CRC32C, DATA)) == (400, "InvalidRequest")
    named = {"x-amz-checksum-algorithm": "CRC32C"}
    assert what(client.call("POST", "/b/big?uploads", named)) == (400, "InvalidRequest")
    composite = {"x-amz-checksum-algorithm": "CRC64NVME", "x-amz-checksum-type": "COMPOSITE"}
    assert what(client.call("POST", "/b/big?uploads", composite)) == (400, "InvalidRequest")
    start(client, {"x-amz-checksum-algorithm": "CRC64NVME", "x-amz-checksum-type": "FULL_OBJECT"})


def test_composite_only_refuses_sums_of_the_whole(server: FaultServer, client: RawClient) -> None:
    server.like("composite-only")
    full = {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}
    assert what(client.call("POST", "/b/big?uploads", full)) == (400, "InvalidRequest")
    assert what(client.call("PUT", "/b/n", CRC64, DATA)) == (400, "InvalidRequest")
    start(client, {"x-amz-checksum-algorithm": "CRC32C"})
    assert client.call("PUT", "/b/n", CRC32C, DATA).status == 200


def test_without_sums_a_wrong_one_is_not_seen_and_none_is_told(
    server: FaultServer, client: RawClient
) -> None:
    server.like("no-sums")
    wrong = {"x-amz-checksum-crc32c": crc32c(b"other")}
    answer = client.call("PUT", "/b/n", wrong, DATA)
    assert answer.status == 200
    assert not [name for name in answer.headers if "checksum" in name]
    md5_of_other = {"Content-MD5": b64encode(md5(b"other").digest()).decode()}
    assert what(client.call("PUT", "/b/n", md5_of_other, DATA)) == (400, "BadDigest")


@pytest.mark.parametrize(
    ("like", "expected"),
    [("sums-501", (501, "NotImplemented")), ("sums-400", (400, "InvalidArgument"))],
)
def test_refused_sums_name_the_header_and_reads_that_ask_for_one_go_through(
    server: FaultServer, client: RawClient, like: str, expected: tuple[int, str]
) -> None:
    server.like(like)
    answer = client.call("PUT", "/b/n", CRC32C, DATA)
    assert what(answer) == expected
    assert b"x-amz-checksum-crc32c" in answer.body
    for headers in ({"x-amz-checksum-algorithm": "CRC32C"}, {"x-amz-checksum-type": "COMPOSITE"}):
        assert what(client.call("POST", "/b/big?uploads", headers)) == expected
    assert client.call("PUT", "/b/n", None, DATA).status == 200
    read = client.call("GET", "/b/o", {"x-amz-checksum-mode": "ENABLED"})
    assert (read.status, read.body) == (200, DATA)
    assert not [name for name in read.headers if "checksum" in name]


def test_the_size_of_an_upload_is_a_refused_header(server: FaultServer, client: RawClient) -> None:
    server.like("no-object-size")
    upload = start(client)
    body = put_parts(client, upload, DATA)
    size = {"x-amz-mp-object-size": str(len(DATA))}
    target = f"/b/big?uploadId={upload}"
    assert what(client.call("POST", target, size, body)) == (501, "NotImplemented")
    assert client.call("POST", target, None, body).status == 200


def test_conditions_that_are_ignored_overwrite(server: FaultServer, client: RawClient) -> None:
    server.like("no-conditions")
    assert client.call("PUT", "/b/o", NEW, b"other").status == 200
    assert client.call("DELETE", "/b/o", {"If-Match": '"nobody\'s"'}).status == 204


@pytest.mark.parametrize(
    ("like", "expected"),
    [("conditions-501", (501, "NotImplemented")), ("conditions-400", (400, "InvalidArgument"))],
)
def test_conditions_that_are_refused_change_nothing(
    server: FaultServer, client: RawClient, like: str, expected: tuple[int, str]
) -> None:
    server.like(like)
    assert what(client.call("PUT", "/b/n", NEW, DATA)) == expected
    assert what(client.call("DELETE", "/b/o", {"If-Match": "*"})) == expected
    assert server.names("b") == ["o"]


def test_a_copy_is_left_without_a_sum(server: FaultServer, client: RawClient) -> None:
    copy = {"x-amz-copy-source": "/b/o", "x-amz-checksum-algorithm": "CRC32C"}
    assert b"<ChecksumCRC32C>" in client.call("PUT", "/b/first", copy).body
    server.like("no-copy-sums")
    answer = client.call("PUT", "/b/second", copy)
    assert answer.status == 200
    assert b"Checksum" not in answer.body
    head = client.call("HEAD", "/b/second", {"x-amz-checksum-mode": "ENABLED"})
    assert not [name for name in head.headers if "checksum" in name]


def test_parts_of_two_sizes_are_refused_at_the_end(server: FaultServer, client: RawClient) -> None:
    server.like("equal-parts")
    server.uploads_config(min_part_bytes=1)
    for parts, expected in [
        ((b"12", b"123", b"1"), (400, "InvalidPart")),
        ((b"12", b"12", b"1"), (200, "")),
    ]:
        upload = start(client)
        body = put_parts(client, upload, *parts)
        assert what(client.call("POST", f"/b/big?uploadId={upload}", None, body)) == expected


def test_each_connection_is_closed_after_its_answer_without_a_word(
    server: FaultServer, client: RawClient
) -> None:
    server.like("closes")
    answer = client.call("GET", "/b/o")
    assert (answer.status, answer.body, answer.end) == (200, DATA, "whole")
    assert "connection" not in answer.headers
    assert client.more() == "fin"


def test_each_connection_is_reset_after_its_answer(server: FaultServer, client: RawClient) -> None:
    server.like("resets")
    answer = client.call("GET", "/b/o")
    assert (answer.status, answer.body, answer.end) == (200, DATA, "whole")
    assert client.more() == "rst"


def test_each_connection_is_reset_when_the_next_request_comes(
    server: FaultServer, client: RawClient
) -> None:
    server.like("resets-next")
    assert client.call("GET", "/b/o").body == DATA
    assert client.call("PUT", "/b/new", None, b"bytes").end == "rst"
    assert server.names("b") == ["o"], "nothing is carried out"


def test_a_connection_on_which_nothing_is_asked_is_closed(
    server: FaultServer, client: RawClient
) -> None:
    server.like("closes-idle")
    answer = client.call("GET", "/b/o")
    assert (answer.body, "connection" in answer.headers) == (DATA, False)
    assert client.more() == "fin"


@pytest.mark.parametrize(
    ("like", "pattern"),
    [
        ("short-root", rb'<InitiateMultipartUpload xmlns="[^"]+"><Bucket>b</Bucket>.*'),
        ("no-namespace", rb"<InitiateMultipartUploadResult><Bucket>b</Bucket>.*"),
        (
            "prefix",
            rb'<s3:InitiateMultipartUploadResult xmlns:s3="[^"]+"><s3:Bucket>b</s3:Bucket>.*'
            rb"</s3:InitiateMultipartUploadResult>",
        ),
        (
            "cdata",
            rb'<InitiateMultipartUploadResult xmlns="[^"]+"><Bucket><!\[CDATA\[b\]\]></Bucket>.*',
        ),
    ],
)
def test_xml_is_written_as_some_services_write_it(
    server: FaultServer, client: RawClient, like: str, pattern: bytes
) -> None:
    server.like(like)
    answer = client.call("POST", "/b/big?uploads")
    assert re.search(pattern, answer.body), answer.body
    assert client.call("GET", "/b/o").body == DATA


@pytest.mark.parametrize("like", ["short-root", "no-namespace", "prefix", "cdata"])
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/b?list-type=2"), ("GET", "/b/none"), ("POST", "/b/big?uploads")],
)
def test_every_form_of_xml_is_xml(
    server: FaultServer, client: RawClient, like: str, method: str, target: str
) -> None:
    server.like(like)
    server.put("b", "a&b <c>", b"x")
    body = client.call(method, target).body
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(body).iter()}
    assert names & {"Key", "Code", "UploadId"}


def test_sections_of_characters_have_names_without_escapes(
    server: FaultServer, client: RawClient
) -> None:
    server.like("cdata")
    server.put("b", "a&b <c>", b"x")
    assert b"<Key><![CDATA[a&b <c>]]></Key>" in client.call("GET", "/b?list-type=2").body


def test_an_error_has_the_prefix_too(server: FaultServer, client: RawClient) -> None:
    server.like("prefix")
    assert b"<s3:Code>NoSuchKey</s3:Code>" in client.call("GET", "/b/none").body


def test_deleting_many_is_not_there(server: FaultServer, client: RawClient) -> None:
    server.like("no-delete-many")
    body = b"<Delete><Object><Key>o</Key></Object></Delete>"
    headers = {"Content-MD5": b64encode(md5(body).digest()).decode()}
    assert what(client.call("POST", "/b?delete", headers, body)) == (501, "NotImplemented")
    assert server.names("b") == ["o"]


def test_a_listing_has_no_order(server: FaultServer, client: RawClient) -> None:
    server.like("unordered")
    server.put("b", "a", b"")
    listed = client.call("GET", "/b?list-type=2").body
    assert re.findall(rb"<Key>(\w+)</Key>", listed) == [b"o", b"a"]


def test_nothing_is_written_below_an_object(server: FaultServer, client: RawClient) -> None:
    server.like("file-tree")
    refused = (409, "ObjectParentIsFile")
    assert what(client.call("PUT", "/b/o/x", None, DATA)) == refused
    assert what(client.call("PUT", "/b/c", {"x-amz-copy-source": "/b/o"})) == (200, "")
    assert what(client.call("PUT", "/b/c/x/y", {"x-amz-copy-source": "/b/o"})) == refused
    assert what(client.call("POST", "/b/o/x?uploads")) == refused


def test_a_whole_object_has_a_range(server: FaultServer, client: RawClient) -> None:
    server.like("stray-range")
    answer = client.call("GET", "/b/o")
    assert (answer.status, answer.headers["content-range"]) == (200, "bytes 0-999/1000")
    server.put("b", "empty", b"")
    answer = client.call("GET", "/b/empty")
    assert (answer.status, answer.headers["content-range"]) == (200, "bytes 0-0/0")


def test_a_status_line_has_no_reason(server: FaultServer, client: RawClient) -> None:
    server.like("no-reason")
    client.send("GET", "/b/o")
    while b"\r\n" not in client.waiting:
        assert client.more() == ""
    assert client.waiting.startswith(b"HTTP/1.1 200\r\n")
