"""What proves the bytes of what is written, on services that differ in the sums that they take."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS

PART = 5 << 20
DATA = bytes(range(256)) * (PART // 256) * 2 + b"the last part"


@pytest.fixture
def sums_server(s3_server: FaultServer) -> FaultServer:
    s3_server.bucket("bucket")
    return s3_server


def open_store(url: str, **options: Any) -> headrace.Store:
    few = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001)
    return headrace.Store("s3://bucket", endpoint=url, credentials=S3_KEYS, retry=few, **options)


def in_parts(store: headrace.Store, name: str = "a", data: bytes = DATA) -> headrace.ObjectInfo:
    writer = store.open_writer(name, part_bytes=PART)
    writer.write(data)
    return writer.close()


def level(store: headrace.Store, *, in_parts: bool) -> str | None:
    return store._handle().written_sums(in_parts)


def kinds(server: FaultServer) -> list[str]:
    return [entry["kind"] for entry in server.log()]


def refusing(*headers: tuple[str, str], status: int = 501) -> list[dict[str, Any]]:
    """Rules for a service that knows none of these headers, each (name, what it contains)."""
    return [
        {
            "match": {"header": {"name": name, "contains": contains}, "method": method},
            "action": {"status": status, "reason": "NotImplemented", "message": "A header"},
        }
        for name, contains in headers
        for method in ("PUT", "POST")
    ]


CRC32C = ("x-amz-checksum-crc32c", "=")
ALGORITHM = ("x-amz-checksum-algorithm", "C")
MD5 = ("content-md5", "=")
DIALECTS = {
    "crc64nvme": refusing(("x-amz-checksum-algorithm", "CRC32C"), status=400),
    "composite": refusing(("x-amz-checksum-type", "FULL_OBJECT")),
    "md5": refusing(CRC32C, ALGORITHM),
    "none": refusing(CRC32C, ALGORITHM, MD5),
}


@pytest.mark.parametrize("dialect", ["crc32c", *DIALECTS])
def test_an_upload_carries_the_strongest_sum_that_the_service_takes(
    sums_server: FaultServer, dialect: str
) -> None:
    sums_server.faults(DIALECTS.get(dialect, []))
    store = open_store(sums_server.url)
    in_parts(store)
    assert sums_server.get("bucket", "a") == DATA
    assert level(store, in_parts=True) == dialect
    assert sums_server.uploads()["multipart"] == []
    seen = len(sums_server.log())
    in_parts(store, "b")
    log = sums_server.log()[seen:]
    assert all(entry["status"] == 200 for entry in log), "what is known is not tried again"
    parts = [entry["headers"] for entry in log if entry["kind"] == "multipart_part"]
    carried = {"crc64nvme": "x-amz-checksum-crc64nvme", "md5": "content-md5"}
    sums = {"x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme", "content-md5"}
    expected = {carried.get(dialect, "x-amz-checksum-crc32c")} if dialect != "none" else set()
    assert [sums & set(part) for part in parts] == [expected] * 3


@pytest.mark.parametrize(
    ("dialect", "expected"), [("crc32c", "crc32c"), ("md5", "md5"), ("none", "none")]
)
def test_a_write_by_one_request_carries_the_strongest_sum_that_the_service_takes(
    sums_server: FaultServer, dialect: str, expected: str
) -> None:
    sums_server.faults(DIALECTS.get(dialect, []))
    store = open_store(sums_server.url)
    store.write("a", b"small")
    assert level(store, in_parts=False) == expected
    seen = len(sums_server.log())
    store.write("b", b"small")
    assert [entry["status"] for entry in sums_server.log()[seen:]] == [200]
    assert sums_server.get("bucket", "b") == b"small"


def test_the_sum_of_the_whole_is_told_of_an_upload_with_crc64nvme(sums_server: FaultServer) -> None:
    sums_server.faults(DIALECTS["crc64nvme"])
    store = open_store(sums_server.url)
    assert in_parts(store).checksum == store.stat("a").checksum
    checksum = store.stat("a").checksum
    assert checksum is not None
    assert checksum[0] == "crc64nvme"
    assert store.read("a").bytes() == DATA


def test_where_sums_are_ignored_parts_are_compared_by_their_etags(sums_server: FaultServer) -> None:
    sums_server.bucket("bucket", checksums=False)
    store = open_store(sums_server.url)
    in_parts(store)
    store.write("b", b"small")
    assert (level(store, in_parts=True), level(store, in_parts=False)) == ("md5", "md5")
    assert sums_server.get("bucket", "a") == DATA
    parts = [entry for entry in sums_server.log() if entry["kind"] == "multipart_part"]
    assert len(parts) == 3, "the ETag of the first one has proved it"


def test_a_refusal_for_another_reason_is_told_as_it_came_and_teaches_nothing(
    sums_server: FaultServer,
) -> None:
    sums_server.faults(
        [
            {
                "match": {"kind": kind},
                "count": count,
                "action": {"status": 400, "reason": "InvalidArgument", "message": message},
            }
            for kind in ("upload", "multipart_start")
            for count, message in ((1, "the first"), (99, "another"))
        ]
    )
    store = open_store(sums_server.url)
    with pytest.raises(headrace.InvalidArgumentError, match="the first"):
        in_parts(store)
    with pytest.raises(headrace.InvalidArgumentError, match="the first"):
        store.write("b", b"small")
    # Bytes that were refused with 400 are sent twice, as they might have been spoilt on their way.
    assert kinds(sums_server) == ["multipart_start"] * 4 + ["upload"] * 5
    assert (level(store, in_parts=True), level(store, in_parts=False)) == (None, None)
    sums_server.faults([])
    in_parts(store)
    assert level(store, in_parts=True) == "crc32c"


@pytest.mark.parametrize("forced", ["crc32c", "crc64nvme", "composite", "md5", "none"])
def test_an_option_says_what_proves_an_upload(sums_server: FaultServer, forced: Any) -> None:
    store = open_store(sums_server.url, provider=headrace.S3Options(checksum=forced))
    in_parts(store)
    store.write("b", b"small")
    assert sums_server.get("bucket", "a") == DATA
    carried = {name for entry in sums_server.log() for name in entry["headers"]}
    sums = {"x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme", "content-md5"} & carried
    expected = {"md5": {"content-md5"}, "crc64nvme": {"x-amz-checksum-crc64nvme"}, "none": set()}
    assert sums == expected.get(forced, {"x-amz-checksum-crc32c"})


def test_a_forced_sum_that_is_refused_is_not_left_out(sums_server: FaultServer) -> None:
    sums_server.faults(DIALECTS["md5"])
    store = open_store(sums_server.url, provider=headrace.S3Options(checksum="crc32c"))
    with pytest.raises(headrace.InvalidArgumentError, match="A header"):
        store.write("a", b"small")
    with pytest.raises(headrace.InvalidArgumentError, match="A header"):
        in_parts(store)


def test_what_a_service_takes_is_logged_once_for_its_host(
    sums_server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    sums_server.faults(DIALECTS["none"])
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for name in ("a", "b"):
            open_store(sums_server.url).write(name, b"small")
    said = [record.message for record in caplog.records if "is not proved" in record.message]
    assert len(said) == 1
    assert "s3://bucket/" in said[0]


# ── Bytes that arrive as others than were sent ──────────────────────────────────────────────────


SPOILT_PART = {
    "match": {"kind": "multipart_part"},
    "from": 2,
    "count": 1,
    "action": {"flip_sent_byte": 7},
}


@pytest.mark.parametrize("forced", ["crc32c", "crc64nvme", "composite", "md5"])
def test_a_part_that_arrived_spoilt_is_sent_again_at_every_level(
    sums_server: FaultServer, forced: Any
) -> None:
    sums_server.faults([SPOILT_PART])
    in_parts(open_store(sums_server.url, provider=headrace.S3Options(checksum=forced)))
    assert sums_server.get("bucket", "a") == DATA
    parts = [entry for entry in sums_server.log() if entry["kind"] == "multipart_part"]
    assert sorted(entry["status"] for entry in parts) == [200, 200, 200, 400]


def test_a_part_that_arrived_spoilt_and_was_accepted_is_sent_again_if_its_etag_tells(
    sums_server: FaultServer,
) -> None:
    sums_server.bucket("bucket", checksums=False)
    knowing = open_store(sums_server.url)
    in_parts(knowing)  # ETags are MD5s, and nothing else is compared
    seen = len(sums_server.log())
    sums_server.faults([SPOILT_PART])
    in_parts(knowing, "b")
    assert sums_server.get("bucket", "b") == DATA
    sent = [entry["kind"] for entry in sums_server.log()[seen:]].count("multipart_part")
    assert sent == 4


@pytest.mark.parametrize("forced", ["crc32c", "md5"])
def test_a_write_by_one_request_that_arrived_spoilt_is_sent_again(
    sums_server: FaultServer, forced: Any
) -> None:
    store = open_store(sums_server.url, provider=headrace.S3Options(checksum=forced))
    store.write("before", b"so that its conditions are known")
    seen = len(sums_server.log())
    match = {"kind": "upload", "path_contains": "/bucket/a"}
    sums_server.faults([{"match": match, "count": 1, "action": {"flip_sent_byte": 7}}])
    store.write("a", b"some bytes", if_generation="absent")
    assert sums_server.get("bucket", "a") == b"some bytes"
    log = [entry for entry in sums_server.log()[seen:] if entry["target"].startswith("/bucket/a")]
    assert [(entry["method"], entry["status"]) for entry in log] == [("PUT", 400), ("PUT", 200)]


# What services say of bytes that arrived as others, the last one in words that nobody knows.
@pytest.mark.parametrize("reason", ["ChecksumMismatch", "BadChecksum", "IncompleteBody", "Wrong"])
def test_bytes_that_were_spoilt_once_teach_nothing_about_sums(
    sums_server: FaultServer, reason: str
) -> None:
    action = {"status": 400, "reason": reason, "message": "what came is not what was announced"}
    sums_server.faults(
        [
            {"match": {"kind": kind}, "count": 1, "action": action}
            for kind in ("multipart_part", "upload")
        ]
    )
    store = open_store(sums_server.url)
    in_parts(store)
    store.write("b", b"small")
    assert (sums_server.get("bucket", "a"), sums_server.get("bucket", "b")) == (DATA, b"small")
    assert (level(store, in_parts=True), level(store, in_parts=False)) == ("crc32c", "crc32c")
    log = [each for each in sums_server.log() if each["kind"] in ("multipart_part", "upload")]
    assert all("x-amz-checksum-crc32c" in each["headers"] for each in log)
    assert kinds(sums_server).count("multipart_part") == 4
    assert kinds(sums_server).count("upload") == 2


def test_a_sum_that_is_refused_with_400_is_sent_twice_before_it_is_left_out(
    sums_server: FaultServer,
) -> None:
    sums_server.faults(refusing(CRC32C, ALGORITHM, status=400))
    store = open_store(sums_server.url)
    in_parts(store)
    store.write("b", b"small")
    store.write("c", b"small")
    assert (level(store, in_parts=True), level(store, in_parts=False)) == ("md5", "md5")
    log = sums_server.log()
    parts = [each["status"] for each in log if each["kind"] == "multipart_part"]
    assert parts == [200] * 3, "its start has told"
    assert [each["status"] for each in log if each["kind"] == "upload"] == [400, 400, 200, 200]


def test_memory_that_changes_is_not_taken_for_a_service_without_sums(
    sums_server: FaultServer,
) -> None:
    data = bytearray(DATA)
    refused = {"status": 400, "reason": "Wrong", "message": "what came is not what was announced"}
    sums_server.faults([{"match": {"kind": "upload"}, "action": refused}])
    writer = open_store(sums_server.url).open_writer("a", part_bytes=len(data))
    writer.write_lent(data)
    data[-1] ^= 0xFF
    with pytest.raises(headrace.CorruptDataError, match="have changed since"):
        writer.close()
    assert kinds(sums_server).count("upload") == 1


def test_a_write_that_arrives_spoilt_each_time_fails_when_it_was_sent_twice(
    sums_server: FaultServer,
) -> None:
    sums_server.faults([{"match": {"kind": "upload"}, "action": {"flip_sent_byte": 7}}])
    with pytest.raises(headrace.CorruptDataError, match=r"BadDigest.*2 attempts"):
        open_store(sums_server.url).write("a", b"some bytes")
    assert kinds(sums_server) == ["upload"] * 2
    assert sums_server.names("bucket") == []


@pytest.mark.parametrize("forced", ["auto", "crc32c", "crc64nvme", "composite", "md5", "none"])
@pytest.mark.parametrize("part_bytes", [PART, len(DATA)], ids=["in parts", "at once"])
def test_lent_memory_that_changes_before_it_is_sent_is_an_error_at_every_level(
    sums_server: FaultServer, forced: Any, part_bytes: int
) -> None:
    data = bytearray(DATA)
    store = open_store(sums_server.url, provider=headrace.S3Options(checksum=forced))
    writer = store.open_writer("a", part_bytes=part_bytes)
    writer.write_lent(data)
    data[-1] ^= 0xFF  # of the last part, which is sent at the end
    with pytest.raises(headrace.CorruptDataError, match="have changed since"):
        writer.close()
    in_parts = part_bytes == PART
    assert kinds(sums_server).count("multipart_part" if in_parts else "upload") <= 3 * in_parts + 1
    assert sums_server.names("bucket") == []
    assert sums_server.uploads()["multipart"] == []


@pytest.mark.parametrize("knows", [False, True], ids=["at first", "once known"])
def test_lent_memory_that_changes_is_an_error_where_the_service_ignores_sums(
    sums_server: FaultServer, knows: bool
) -> None:
    sums_server.bucket("bucket", checksums=False)
    store = open_store(sums_server.url)
    if knows:
        in_parts(store)
    data = bytearray(DATA)
    writer = store.open_writer("b", part_bytes=len(DATA) // 2 + 1)
    data[0] ^= 1  # otherwise than what is there already
    writer.write_lent(data)
    data[-1] ^= 0xFF
    with pytest.raises(headrace.CorruptDataError, match="have changed since"):
        writer.close()
    assert "b" not in sums_server.names("bucket")


def test_lent_memory_that_changes_while_it_is_sent_becomes_no_object_where_nothing_proves_it() -> (
    None
):
    with service(compares_md5=False, etags_are_md5=False, spoils=False) as server:
        data = bytearray(64 << 20)
        is_lent = threading.Event()

        def change() -> None:
            is_lent.wait()  # until then its sum may not have been taken
            data[-1] = 1

        server.at_first_bytes = change
        store = open_store(server.url, provider=headrace.S3Options(checksum="none"))
        writer = store.open_writer("a", part_bytes=32 << 20)
        writer.write_lent(data)
        is_lent.set()
        with pytest.raises(headrace.CorruptDataError, match="have changed since"):
            writer.close()
        assert server.object == b""


# ── Services that spoil what they are sent ───────────────────────────────────────────────────────


class Spoiling(BaseHTTPRequestHandler):
    """Knows no checksums but perhaps Content-MD5, and may spoil the second part."""

    protocol_version = "HTTP/1.1"
    compares_md5 = True
    etags_are_md5 = True

    def setup(self) -> None:
        super().setup()
        self.state: Any = self.server

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def etag(self, data: bytes) -> str:
        salt = b"" if self.state.etags_are_md5 else b"encrypted"
        return f'"{hashlib.md5(data + salt).hexdigest()}"'

    def received(self) -> bytes:
        size = int(self.headers.get("Content-Length") or 0)
        first = self.rfile.read(min(size, 1 << 10))
        if size:
            self.state.at_first_bytes()
        return first + self.rfile.read(size - len(first))

    def do_POST(self) -> None:
        body = self.received().decode()
        if self.path.endswith("?uploads="):
            text = "<InitiateMultipartUploadResult><UploadId>u</UploadId>"
            self.say(200, (text + "</InitiateMultipartUploadResult>").encode())
            return
        numbers = [int(each) for each in re.findall("<PartNumber>(.*?)</PartNumber>", body)]
        self.state.object = b"".join(self.state.parts[each] for each in numbers)
        text = f"<CompleteMultipartUploadResult><ETag>{self.etag(b'whole')}</ETag>"
        self.say(200, (text + "</CompleteMultipartUploadResult>").encode())

    def do_PUT(self) -> None:
        data = self.received()
        if len(data) < int(self.headers["Content-Length"]):
            self.close_connection = True
            return
        number = int(parse_qs(urlsplit(self.path).query)["partNumber"][0])
        self.state.sent.append((number, "Content-MD5" in self.headers))
        if number == 2 and self.state.spoils:
            data = b"?" + data[1:]
        expected = self.headers.get("Content-MD5")
        given = base64.b64encode(hashlib.md5(data).digest()).decode()
        if self.state.compares_md5 and expected not in (None, given):
            self.say(400, b"<Error><Code>BadDigest</Code><Message>other</Message></Error>")
            return
        self.state.parts[number] = data
        self.say(200, ETag=self.etag(data))

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.state.object)))
        self.send_header("ETag", self.etag(b"whole"))
        self.end_headers()

    def do_DELETE(self) -> None:
        self.state.parts.clear()
        self.say(204)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def service(*, compares_md5: bool, etags_are_md5: bool, spoils: bool) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Spoiling)
    server.parts, server.sent, server.object = {}, [], b""
    server.compares_md5, server.etags_are_md5 = compares_md5, etags_are_md5
    server.at_first_bytes = lambda: None
    server.spoils, server.url = spoils, f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("compares_md5", "etags_are_md5"), [(True, False), (False, True), (True, True)]
)
def test_a_part_that_is_spoilt_each_time_fails_the_upload_when_it_was_sent_twice(
    compares_md5: bool, etags_are_md5: bool
) -> None:
    with service(compares_md5=compares_md5, etags_are_md5=etags_are_md5, spoils=True) as server:
        with pytest.raises(headrace.CorruptDataError, match="part 2"):
            in_parts(open_store(server.url))
        assert [number for number, _ in server.sent].count(2) == 2
        assert server.object == b"", "it was not completed"
        assert server.parts == {}, "it was aborted"


def test_the_first_part_is_sent_again_with_its_md5_if_its_etag_proves_nothing() -> None:
    with service(compares_md5=True, etags_are_md5=False, spoils=False) as server:
        store = open_store(server.url)
        info = in_parts(store)
        assert server.object == DATA
        assert sorted(server.sent) == [(1, False), (1, True), (2, True), (3, True)]
        assert info.checksum is None, "what the service keeps no sum of has none"
        server.sent.clear()
        in_parts(store)
        assert sorted(server.sent) == [(1, True), (2, True), (3, True)]


@pytest.mark.parametrize("parts", [False, True], ids=["at once", "in parts"])
def test_refused_credentials_are_an_error_and_teach_nothing_about_sums(
    sums_server: FaultServer, parts: bool
) -> None:
    store = open_store(sums_server.url)
    action = {"status": 400, "reason": "InvalidAccessKeyId", "message": "unknown"}
    sums_server.faults([{"match": {"method": "PUT"}, "action": action}])
    with pytest.raises(headrace.HeadraceError, match="InvalidAccessKeyId"):
        in_parts(store) if parts else store.write("a", b"hello")
    # Refused once, and then accepted: it was the credentials.
    sums_server.faults([{"match": {"method": "PUT"}, "count": 1, "action": action}])
    fresh = open_store(sums_server.url)
    in_parts(fresh, "b") if parts else fresh.write("b", b"hello")
    assert level(fresh, in_parts=parts) == "crc32c"


# ── Levels that the service has taken before ─────────────────────────────────────────────────────


def refused_in_unknown_words(*headers: tuple[str, str]) -> list[dict[str, Any]]:
    rules = refusing(*headers, status=400)
    for rule in rules:
        rule["action"]["reason"] = "Wrong"
    return rules


@pytest.mark.parametrize("parts", [False, True], ids=["at once", "in parts"])
def test_a_sum_that_was_taken_is_left_out_if_it_is_what_is_refused_later(
    sums_server: FaultServer, parts: bool
) -> None:
    store = open_store(sums_server.url)
    in_parts(store) if parts else store.write("a", b"before")
    assert level(store, in_parts=parts) == "crc32c"
    sums_server.faults(refused_in_unknown_words(CRC32C, ALGORITHM))
    in_parts(store, "b") if parts else store.write("b", DATA)
    assert sums_server.get("bucket", "b") == DATA
    assert level(store, in_parts=parts) == "md5"


@pytest.mark.parametrize("parts", [False, True], ids=["at once", "in parts"])
def test_a_refusal_in_unknown_words_costs_no_sum_unless_the_bytes_are_taken_without(
    sums_server: FaultServer, parts: bool
) -> None:
    store = open_store(sums_server.url)
    in_parts(store) if parts else store.write("a", b"before")
    match = {"method": "PUT", "target_contains": "partNumber=2" if parts else "/bucket/b"}
    action = {"status": 400, "reason": "Wrong", "message": "no"}
    sums_server.faults([{"match": match, "action": action}])
    seen = len(sums_server.log())
    with pytest.raises(headrace.InvalidArgumentError, match="Wrong"):
        in_parts(store, "b") if parts else store.write("b", DATA)
    refused = [each for each in sums_server.log()[seen:] if each["status"] == 400]
    sums = [{"x-amz-checksum-crc32c", "content-md5"} & set(each["headers"]) for each in refused]
    assert sums == [{"x-amz-checksum-crc32c"}] * 2 + [{"content-md5"}] * 2
    taken = [
        each for each in sums_server.log() if each["status"] == 200 and each["method"] == "PUT"
    ]
    assert all("x-amz-checksum-crc32c" in each["headers"] for each in taken)
    assert level(store, in_parts=parts) == "crc32c"
    # Refused once: such bytes may have been spoilt on their way.
    sums_server.faults([{"match": match, "count": 1, "action": action}])
    in_parts(store, "b") if parts else store.write("b", DATA)
    assert level(store, in_parts=parts) == "crc32c"
