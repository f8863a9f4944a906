"""Services that answer oddly: what is learned from them, and what is told to the caller."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import http.server
import logging
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import pytest

import headrace
from headrace import MiB, Store
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS

MODE = "x-amz-checksum-mode"
PART = 5 * MiB
DATA = bytes(range(256)) * (2 * PART // 256) + b"end"
QUICK = headrace.RetryOptions(max_attempts=5, initial_backoff_s=0.001)

Answer = tuple[int, bytes, dict[str, str]]


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Service:
    """A service that a test writes: keeps objects and one upload."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[int, bytes] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    def etag(self, data: bytes) -> str:
        return md5(data)

    def start(self, headers: dict[str, str]) -> Answer:
        return 200, b"<R><UploadId>u</UploadId></R>", {}

    def arrived(self, data: bytes) -> bytes:
        return data

    def end(self, name: str) -> Answer:
        self.objects[name] = b"".join(self.parts[number] for number in sorted(self.parts))
        return 200, b'<R><ETag>"made"</ETag></R>', {}

    def look(self, name: str) -> Answer:
        if name not in self.objects:
            return 404, b"", {}
        return 200, self.objects[name], {"ETag": '"made"'}

    def answer(self, method: str, path: str, headers: dict[str, str], data: bytes) -> Answer:
        self.requests.append((method, path, headers))
        split = urllib.parse.urlsplit(path)
        query = urllib.parse.parse_qs(split.query, keep_blank_values=True)
        name = split.path.rpartition("/")[2]
        if method == "POST":
            return self.start(headers) if "uploads" in query else self.end(name)
        if method == "PUT":
            data = self.arrived(data)
            if "partNumber" in query:
                self.parts[int(query["partNumber"][0])] = data
            else:
                self.objects[name] = data
            return 200, b"", {"ETag": f'"{self.etag(data)}"'}
        return self.look(name) if method in ("HEAD", "GET") else (204, b"", {})


@pytest.fixture
def serve() -> Iterator[Callable[[Service], Store]]:
    servers: list[http.server.ThreadingHTTPServer] = []

    def open_service(service: Service) -> Store:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, body, more = service.answer(self.command, self.path, headers, data)
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD" and status != 204:
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = reply  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        url = f"http://127.0.0.1:{server.server_port}"
        return Store("s3://bucket", endpoint=url, credentials=S3_KEYS, retry=QUICK)

    yield open_service
    for server in servers:
        server.shutdown()
        server.server_close()


def write_parts(store: Store, name: str = "a", **options: Any) -> headrace.ObjectInfo:
    writer = store.open_writer(name, part_bytes=PART, **options)
    writer.write(DATA)
    return writer.close()


def open_store(server: FaultServer, **options: Any) -> Store:
    options = {"credentials": S3_KEYS, "retry": QUICK} | options
    return Store("s3://bucket", endpoint=server.url, **options)


# ── Conditions ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [400, 501])
def test_conditions_are_asked_about_without_a_sum_where_sums_are_refused(
    s3_server: FaultServer, status: int
) -> None:
    s3_server.bucket(
        "bucket", conditional_writes="ignored", refused_headers={"content-md5": status}
    )
    store = open_store(s3_server)
    s3_server.put("bucket", "a", b"precious")
    with pytest.raises(headrace.InvalidArgumentError, match="ignores If-None-Match"):
        store.write("a", b"mine", if_generation="absent")
    assert s3_server.get("bucket", "a") == b"precious"
    assert s3_server.names("bucket") == ["a"]


def test_one_bad_request_teaches_nothing_about_conditions(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    condition = {"name": "if-none-match", "contains": ""}
    odd = {"match": {"kind": "upload", "header": condition}, "count": 1}
    s3_server.faults([odd | {"action": {"status": 400, "body": "<html>odd</html>"}}])
    store = open_store(s3_server)
    store.write("a", b"1", if_generation="absent")
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("a", b"2", if_generation="absent")


# ── Headers that are refused ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [400, 501])
def test_what_is_missing_is_not_found_where_a_header_is_refused(
    s3_server: FaultServer, status: int
) -> None:
    s3_server.bucket("bucket", refused_headers={MODE: status})
    store = open_store(s3_server)
    assert not store.exists("missing")
    with pytest.raises(headrace.NotFoundError):
        store.read("missing").bytes()
    with pytest.raises(headrace.NotFoundError):
        headrace.checkpoint.load("s3://bucket/missing.pt", store=store)
    # That was learned. Of a 400 without a word, the credentials may be the reason, too.
    refused = [entry["status"] for entry in s3_server.log()].count(status)
    assert refused == (1 if status == 501 else 2)


@pytest.mark.parametrize("status", [400, 501])
def test_an_upload_that_loses_a_race_says_so_where_a_header_is_refused(
    s3_server: FaultServer, status: int
) -> None:
    s3_server.bucket("bucket", refused_headers={"x-amz-mp-object-size": status})
    store = open_store(s3_server)
    writer = store.open_writer("a", part_bytes=PART, if_generation="absent")
    writer.write(DATA)
    s3_server.put("bucket", "a", b"theirs")
    # It was not there yet when it was looked at.
    s3_server.faults([{"match": {"kind": "get"}, "count": 1, "action": {"status": 404}}])
    with pytest.raises(headrace.PreconditionFailedError):
        writer.close()
    assert s3_server.get("bucket", "a") == b"theirs"


def test_who_may_not_read_hears_that_where_a_header_is_refused(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket", refused_headers={MODE: 501})
    s3_server.put("bucket", "a", b"1")
    without = {"match": {"kind": "media"}, "action": {"status": 403}}
    header = {"match": {"header": {"name": MODE, "contains": ""}}, "action": {"status": 501}}
    s3_server.faults([header, without])
    with pytest.raises(headrace.PermissionDeniedError):
        open_store(s3_server).read("a").bytes()


def test_a_header_is_found_by_its_name_in_lower_case(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    refused = {
        "match": {"kind": "upload", "header": {"name": "if-none-match", "contains": ""}},
        "action": {
            "status": 400,
            "reason": "InvalidArgument",
            "message": "Unsupported header: if-none-match",
        },
    }
    once = {"match": {"kind": "upload"}, "count": 1, "action": {"status": 500}}
    s3_server.faults([refused, once])
    open_store(s3_server).write("a", b"1")
    assert [entry["status"] for entry in s3_server.log()] == [500, 404, 400, 200]


def test_where_a_bucket_is_teaches_nothing_about_headers(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    s3_server.put("bucket", "a", b"1")
    elsewhere = {"status": 400, "body": "", "headers": {"x-amz-bucket-region": "eu-west-1"}}
    odd = {"status": 400, "body": ""}  # the credentials are the first that is tried
    s3_server.faults(
        [{"match": {"kind": "get"}, "count": 1, "action": action} for action in (odd, elsewhere)]
    )
    store = open_store(s3_server)
    store.stat("a")
    store.read("a").bytes()
    assert MODE in {name.lower() for name in s3_server.log()[-1]["headers"]}


def test_a_service_that_refuses_and_sends_elsewhere_in_turn_is_given_up(
    s3_server: FaultServer,
) -> None:
    s3_server.bucket("bucket")
    with_mode = {"kind": "get", "header": {"name": MODE, "contains": ""}}
    elsewhere = {"status": 301, "body": "", "headers": {"x-amz-bucket-region": "eu-west-1"}}
    s3_server.faults(
        [
            {"match": with_mode, "action": {"status": 400, "body": ""}},
            {"match": {"kind": "get"}, "action": elsewhere},
        ]
    )
    with pytest.raises(headrace.HeadraceError):
        open_store(s3_server).stat("a")
    assert len(s3_server.log()) < 100


def test_many_requests_that_learn_at_once_say_so_once(
    s3_server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    s3_server.bucket("bucket", refused_headers={MODE: 501})
    store = open_store(s3_server)
    names = [f"{number:02}" for number in range(64)]
    for name in names:
        s3_server.put("bucket", name, b"1")
    with (
        caplog.at_level(logging.WARNING, "headrace"),
        concurrent.futures.ThreadPoolExecutor(16) as threads,
    ):
        list(threads.map(store.stat, names))
        headrace.metrics()
    told = [each for each in caplog.records if "it is left out for 10 minutes" in each.message]
    assert len(told) == 1


# ── Sums ─────────────────────────────────────────────────────────────────────────────────────


class Salted(Service):
    """Its ETags are no MD5s, but for those of nothing."""

    def etag(self, data: bytes) -> str:
        return md5(data + b"salt" if data else b"")


def test_the_second_write_has_a_sum_that_a_service_compares(
    serve: Callable[[Service], Store],
) -> None:
    service = Salted()
    store = serve(service)
    for number in range(3):
        store.write(f"a{number}", b"bytes")
    sums = ["content-md5" in headers for _, _, headers in service.requests]
    assert sums == [False, True, True]


def test_an_empty_object_teaches_nothing_about_etags(serve: Callable[[Service], Store]) -> None:
    store = serve(Salted())
    store.write("_SUCCESS", b"")
    for number in range(3):
        store.write(f"a{number}", b"bytes")


class Echo(Service):
    """Repeats what an upload is started with, and does nothing about it."""

    refuses_sums = False

    def start(self, headers: dict[str, str]) -> Answer:
        names = ("x-amz-checksum-algorithm", "x-amz-checksum-type")
        echo = {name: headers[name] for name in names if name in headers}
        return 200, b"<R><UploadId>u</UploadId></R>", echo

    def answer(self, method: str, path: str, headers: dict[str, str], data: bytes) -> Answer:
        if self.refuses_sums and method == "PUT" and "x-amz-checksum-crc32c" in headers:
            return 501, b"<Error><Code>NotImplemented</Code></Error>", {}
        return super().answer(method, path, headers, data)


def test_a_sum_that_is_only_repeated_at_the_start_is_not_believed(
    serve: Callable[[Service], Store],
) -> None:
    class Spoiling(Echo):
        def arrived(self, data: bytes) -> bytes:
            return b"?" + data[1:] if self.parts else data

    with pytest.raises(headrace.CorruptDataError):
        write_parts(serve(Spoiling()))


def test_sums_of_parts_may_be_refused_after_they_were_repeated_at_the_start(
    serve: Callable[[Service], Store],
) -> None:
    service = Echo()
    service.refuses_sums = True
    write_parts(serve(service))
    assert service.objects["a"] == DATA


class Telling(Service):
    """Tells sums of two kinds of what it is sent."""

    crc32c_of: Callable[[bytes], int] = staticmethod(google_crc32c.value)

    def answer(self, method: str, path: str, headers: dict[str, str], data: bytes) -> Answer:
        status, body, more = super().answer(method, path, headers, data)
        if method == "PUT":
            sum_ = base64.b64encode(self.crc32c_of(data).to_bytes(4, "big")).decode()
            sha256 = base64.b64encode(hashlib.sha256(data).digest()).decode()
            more |= {"x-amz-checksum-sha256": sha256, "x-amz-checksum-crc32c": sum_}
        return status, body, more


def test_of_two_sums_in_one_answer_the_one_that_is_known_is_compared(
    serve: Callable[[Service], Store],
) -> None:
    service = Telling()
    store = serve(service)
    store.write("a", b"bytes")
    write_parts(store, "b")
    store.write("c", b"bytes")
    assert not any("content-md5" in headers for _, _, headers in service.requests)
    service.crc32c_of = lambda data: google_crc32c.value(data + b"?")
    with pytest.raises(headrace.CorruptDataError, match="CRC32C"):
        store.write("d", b"bytes")
    with pytest.raises(headrace.CorruptDataError, match="CRC32C"):
        write_parts(store, "e")


def test_a_malformed_sum_that_is_told_of_what_was_sent_is_none(
    serve: Callable[[Service], Store],
) -> None:
    class Malformed(Service):
        def answer(self, method: str, path: str, headers: dict[str, str], data: bytes) -> Answer:
            status, body, more = super().answer(method, path, headers, data)
            return status, body, more | {"x-amz-checksum-crc32c": "no sum"}

    service = Malformed()
    store = serve(service)
    write_parts(store)
    store.write("b", b"small")
    assert service.objects == {"a": DATA, "b": b"small"}
    assert [store._handle().written_sums(each) for each in (True, False)] == ["md5", "md5"]


@pytest.mark.parametrize("wrong", [False, True])
def test_the_end_of_an_upload_may_tell_a_sum_that_is_not_known_beside_one_that_is(
    serve: Callable[[Service], Store], wrong: bool
) -> None:
    class Ending(Telling):
        def end(self, name: str) -> Answer:
            super().end(name)
            known = google_crc32c.value(self.objects[name]) ^ wrong
            known_text = base64.b64encode(known.to_bytes(4, "big")).decode()
            sha256 = base64.b64encode(hashlib.sha256(b"").digest()).decode()
            sums = (
                f"<ChecksumSHA256>{sha256}</ChecksumSHA256>"
                f"<ChecksumCRC32C>{known_text}</ChecksumCRC32C>"
            )
            return 200, f'<R><ETag>"made"</ETag>{sums}</R>'.encode(), {}

    service = Ending()
    store = serve(service)
    if wrong:
        with pytest.raises(headrace.CorruptDataError):
            write_parts(store)
        return
    assert write_parts(store).size_bytes == len(DATA)
    assert "HEAD" not in [method for method, _, _ in service.requests], "the answer has proved it"


def test_a_sum_of_the_whole_may_be_called_one_of_the_parts(
    serve: Callable[[Service], Store],
) -> None:
    class Ending(Service):
        def end(self, name: str) -> Answer:
            super().end(name)
            whole = google_crc32c.value(self.objects[name]).to_bytes(4, "big")
            sums = (
                "<ChecksumType>COMPOSITE</ChecksumType>"
                f"<ChecksumCRC32C>{base64.b64encode(whole).decode()}</ChecksumCRC32C>"
            )
            return 200, f'<R><ETag>"made"</ETag>{sums}</R>'.encode(), {}

    service = Ending()
    assert write_parts(serve(service)).size_bytes == len(DATA)
    assert "HEAD" not in [method for method, _, _ in service.requests], "the answer has proved it"


# ── Answers that are not the service's ───────────────────────────────────────────────────────

PAGES = [b"<!DOCTYPE html><html>log in</html>", b'{"login": "https://proxy"}']
NO_PAGES = [b"", b" \n", b'<?xml version="1.0"?><DeleteResult/>', b"OK", b"null\n"]


class Portal(Service):
    """What something in between answers now and then, while nothing reaches the service."""

    def __init__(self, page: bytes, *, method: str, count: int = 1_000, query: str = "") -> None:
        super().__init__()
        self.page, self.method, self.left, self.query = page, method, count, query
        self.aborted = False

    def answer(self, method: str, path: str, headers: dict[str, str], data: bytes) -> Answer:
        if method == self.method and self.query in path and self.left > 0:
            self.left -= 1
            self.requests.append((method, path, headers))
            return 200, self.page, {"ETag": '"page"', "Content-Type": "text/html"}
        if method == "DELETE":
            self.aborted |= "uploadId" in path
            self.objects.pop(urllib.parse.urlsplit(path).path.rpartition("/")[2], None)
        return super().answer(method, path, headers, data)


def asked(service: Service, method: str) -> int:
    return [each for each, _, _ in service.requests].count(method)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_place_of_an_answer_to_a_delete_is_no_success(
    serve: Callable[[Service], Store], page: bytes
) -> None:
    service = Portal(page, method="DELETE")
    service.objects["a"] = b"bytes"
    with pytest.raises(headrace.UnavailableError, match="does not come from the service"):
        serve(service).delete("a")
    assert asked(service, "DELETE") == 5
    assert "a" in service.objects
    service.left = 1
    serve(service).delete("a")
    assert "a" not in service.objects


@pytest.mark.parametrize("body", NO_PAGES)
def test_a_delete_may_be_answered_by_nothing_by_a_word_or_by_xml(
    serve: Callable[[Service], Store], body: bytes
) -> None:
    service = Portal(body, method="DELETE")
    service.objects["a"] = b"bytes"
    serve(service).delete("a")
    assert asked(service, "DELETE") == 1


@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_place_of_an_answer_to_an_abort_is_no_success(
    serve: Callable[[Service], Store], page: bytes
) -> None:
    service = Portal(page, method="DELETE", count=1, query="uploadId=")
    assert serve(service)._handle().abort_upload("a", "u")
    assert asked(service, "DELETE") == 2
    assert service.aborted


@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_place_of_an_answer_to_a_write_is_no_success(
    serve: Callable[[Service], Store], page: bytes
) -> None:
    service = Portal(page, method="PUT", count=1)
    store = serve(service)
    store.write("a", b"bytes")
    assert service.objects["a"] == b"bytes"
    service.left = 1
    write_parts(store, "b")
    assert service.objects["b"] == DATA
    service.left = 1_000
    with pytest.raises(headrace.UnavailableError, match="does not come from the service"):
        write_parts(store, "c")


# ── Ends of uploads ──────────────────────────────────────────────────────────────────────────


def test_an_object_that_another_writer_has_replaced_at_once_is_not_told_as_ours(
    serve: Callable[[Service], Store],
) -> None:
    service = Service()
    service.look = lambda _: (200, b"?" * len(DATA), {"ETag": '"theirs"'})  # type: ignore[method-assign]
    assert write_parts(serve(service)).generation == "made"


def test_whether_a_lost_end_was_made_is_unknown_where_nothing_proves_it(
    serve: Callable[[Service], Store],
) -> None:
    class Losing(Service):
        def end(self, name: str) -> Answer:
            if not self.parts:
                return 404, b"<Error><Code>NoSuchUpload</Code></Error>", {}
            super().end(name)
            self.parts.clear()
            return 500, b"<Error><Code>InternalError</Code></Error>", {}

    service = Losing()
    with pytest.raises(headrace.UnavailableError, match="is unknown; read it"):
        write_parts(serve(service))
    assert service.objects["a"] == DATA
