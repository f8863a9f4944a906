"""Made buckets, caps, records, TLS, IPv6, proxying, the XML API."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from testing.faultserver.client import FaultServer, find_binary
from testing.faultserver.tests.raw import RawClient, media
from testing.servers import Certificates

SHAPES = ["flat", "uuid", "deep", "one_folder", "skewed", "long_prefix", "unicode", "pattern"]
SHAPES += ["all_unicode", "last_byte"]


def pages(client: RawClient, bucket: str, query: str = "") -> list[dict[str, Any]]:
    found = []
    token = ""
    while True:
        target = f"/storage/v1/b/{bucket}/o?{query}" + (f"&pageToken={token}" if token else "")
        page = json.loads(client.call("GET", target).body)
        found.append(page)
        if "nextPageToken" not in page:
            return found
        token = quote(page["nextPageToken"])


def crc32c(data: bytes) -> str:
    table = []
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
        table.append(crc)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 255]
    return b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_made_bucket_lists_in_order_and_whole(server: FaultServer, shape: str) -> None:
    server.synthetic(
        "made", 2500, [1, 6000], shape=shape, prefix="p/", name_pattern="s-{shard}/{index:04d}.jpg"
    )
    with RawClient(server.host, server.port) as client:
        listed = [item for page in pages(client, "made") for item in page["items"]]
        names = [item["name"] for item in listed]
        assert len(set(names)) == 2500
        assert names == sorted(names, key=str.encode)
        assert all(name.startswith("p/") for name in names)
        for item in listed[::500]:
            answer = client.call("GET", media("made", item["name"]))
            assert len(answer.body) == int(item["size"])
            assert crc32c(answer.body) == item["crc32c"]
            assert f"crc32c={item['crc32c']}" in answer.headers["x-goog-hash"]
            assert answer.headers["x-goog-generation"] == item["generation"]


def test_a_million_names(server: FaultServer) -> None:
    server.synthetic("made", 1_000_000, 100_000, shape="skewed")
    with RawClient(server.host, server.port) as client:
        (page,) = pages(client, "made", "delimiter=/")
        assert page["prefixes"] == ["aa/", "mm/", "zz/"]
        (last, *rest) = pages(client, "made", "startOffset=zz/0999&fields=items(name,size)")
        assert rest == []
        assert [item["name"] for item in last["items"]] == [
            f"zz/{i:07d}" for i in range(999_000, 1_000_000)
        ]
        assert last["items"][0] == {"name": "zz/0999000", "size": "100000"}


def test_made_buckets_take_writes_and_deletes(server: FaultServer) -> None:
    server.synthetic("made", 5, 10, shape="flat")
    with RawClient(server.host, server.port) as client:
        assert client.call("DELETE", "/storage/v1/b/made/o/0000001").status == 204
        assert client.call("DELETE", "/storage/v1/b/made/o/0000001").status == 404
        for name in ("0000002", "00000025"):
            target = f"/upload/storage/v1/b/made/o?uploadType=media&name={name}"
            assert client.call("POST", target, body=b"written").status == 200
    assert server.names("made") == ["0000000", "0000002", "00000025", "0000003", "0000004"]
    assert server.get("made", "0000002") == b"written"


@pytest.mark.parametrize("value", ["zzz", "", "1 2", "65024-1017", "1" * 23])
@pytest.mark.parametrize("name", ["ifGenerationMatch", "ifMetagenerationNotMatch"])
def test_a_precondition_that_is_no_number_is_refused(
    server: FaultServer, name: str, value: str
) -> None:
    server.put("b", "o", b"first")
    query = f"{name}={quote(value)}"
    with RawClient(server.host, server.port) as client:
        for method, target in (
            ("POST", f"/upload/storage/v1/b/b/o?uploadType=media&name=o&{query}"),
            ("POST", f"/upload/storage/v1/b/b/o?uploadType=resumable&name=o&{query}"),
            ("POST", f"/storage/v1/b/b/o/o/rewriteTo/b/b/o/p?{query}"),
            ("POST", f"/storage/v1/b/b/o/p/compose?{query}"),
            ("DELETE", f"/storage/v1/b/b/o/o?{query}"),
            ("GET", f"/storage/v1/b/b/o/o?{query}"),
        ):
            answer = client.call(method, target)
            assert (answer.status, target) == (400, target)
            assert name in json.loads(answer.body)["error"]["message"]
        answer = client.call("PUT", "/b/o", {"x-goog-if-generation-match": "zzz"}, b"second")
        assert answer.status == 400
    assert server.names("b") == ["o"]
    assert server.get("b", "o") == b"first"


def test_contents_are_the_same_every_time_and_differ(server: FaultServer) -> None:
    server.synthetic("made", 300, 2_000_000, shape="flat", seed=3)
    first = [server.get("made", f"{i:07d}") for i in (0, 1, 256)]
    server.synthetic("made", 300, 2_000_000, shape="flat", seed=3)
    assert [server.get("made", f"{i:07d}") for i in (0, 1, 256)] == first
    assert len(set(first)) == 3


def test_a_page_can_be_slow(server: FaultServer) -> None:
    server.synthetic("made", 10, 10, list_delay_ms=100)
    with RawClient(server.host, server.port) as client:
        client.call("GET", "/storage/v1/b/made/o")
    line = server.log()[0]
    assert line["t_end_s"] - line["t_start_s"] >= 0.1


def test_a_cap_on_the_rate(server: FaultServer) -> None:
    server.put("b", "o", b"x")
    server.limit(requests_per_s=0.001, burst=3, status=429, retry_after=7)
    with RawClient(server.host, server.port) as client:
        answers = [client.call("GET", media("b", "o")) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].headers["retry-after"] == "7"
        error = json.loads(answers[-1].body)["error"]
        assert error["errors"][0]["reason"] == "rateLimitExceeded"
        server.limit()
        assert client.call("GET", media("b", "o")).status == 200
    assert server.stats()["throttled"] == 2


def test_a_cap_on_the_rate_below_one_prefix(server: FaultServer) -> None:
    for name in ("hot/o", "cold/o"):
        server.put("b", name, b"x")
    server.limit(prefixes=[{"bucket": "b", "prefix": "hot/", "requests_per_s": 0.001, "burst": 2}])
    with RawClient(server.host, server.port) as client:
        statuses = [client.call("GET", media("b", "hot/o")).status for _ in range(2)]
        statuses.append(client.call("GET", "/storage/v1/b/b/o?prefix=hot%2F").status)
        assert statuses == [200, 200, 429]
        assert client.call("GET", media("b", "cold/o")).status == 200
        assert client.call("GET", "/storage/v1/b/b/o?prefix=cold%2F").status == 200
        assert client.call("GET", "/storage/v1/b/b/o").status == 200


def test_a_cap_on_requests_in_flight(server: FaultServer) -> None:
    server.put("b", "o", b"x")
    server.limit(in_flight=1, status=503)
    server.faults([{"count": 1, "action": "stall_head"}])
    with (
        RawClient(server.host, server.port) as stalled,
        RawClient(server.host, server.port) as client,
    ):
        stalled.send("GET", media("b", "o"))
        while server.stats()["in_flight"] == 0:
            pass
        assert client.call("GET", media("b", "o")).status == 503
        server.release()
        assert stalled.more() == "rst"
        assert client.call("GET", media("b", "o")).status == 200


def test_a_cap_on_bytes(server: FaultServer) -> None:
    server.put("b", "o", bytes(300_000))
    server.limit(bytes_per_s=1_000_000)
    with RawClient(server.host, server.port) as client:
        assert len(client.call("GET", media("b", "o")).body) == 300_000
    line = server.log()[0]
    assert line["t_end_s"] - line["t_start_s"] >= 0.28


def test_latency_and_its_tail(server: FaultServer) -> None:
    server.put("b", "o", b"x")
    server.latency(5, tail_fraction=0.2, tail_ms=60, seed=2)
    with RawClient(server.host, server.port) as client:
        for _ in range(20):
            client.call("GET", media("b", "o"))
    took = [line["t_end_s"] - line["t_start_s"] for line in server.log()]
    assert min(took) >= 0.005
    assert 1 <= sum(one >= 0.06 for one in took) < 20


def test_the_log_and_the_counters(server: FaultServer) -> None:
    server.put("b", "o", b"0123456789")
    with RawClient(server.host, server.port) as client:
        headers = {"User-Agent": "test/1", "X-Test-Client": "a", "Range": "bytes=2-4", "X-No": "1"}
        client.call("GET", media("b", "o"), headers)
        client.call("GET", "http://elsewhere:80" + media("b", "o"))
        first, second = server.log()
        assert first["headers"] == {
            "host": "test",
            "user-agent": "test/1",
            "x-test-client": "a",
            "range": "bytes=2-4",
        }
        assert (first["kind"], first["status"], first["bytes_sent"]) == ("media", 206, 3)
        assert first["connection"] == second["connection"]
        assert (first["absolute_form"], second["absolute_form"]) == (False, True)
        assert second["target"].startswith("http://elsewhere:80/storage")
        assert server.log(since=first["n"]) == [second]
        stats = server.stats()
    assert stats["by_kind"] == {"media": 2}
    assert stats["by_status"] == {"200": 1, "206": 1}
    assert stats["success_by_user_agent"] == {"test/1": 1}
    assert stats["success_by_client"] == {"a": 1}
    assert stats["body_bytes_out"] == 13
    assert stats["connections_opened"] == 1
    assert [one["requests"] for one in stats["connections"]] == [2]


def test_the_log_is_a_ring() -> None:
    with FaultServer(log_capacity=3) as server:
        server.put("b", "o", b"x")
        with RawClient(server.host, server.port) as client:
            for _ in range(5):
                client.call("GET", media("b", "o"))
        assert [line["n"] for line in server.log()] == [3, 4, 5]


def test_tokens(server: FaultServer) -> None:
    server.put("b", "o", b"x")
    server.put("private", "o", b"x")
    server.bucket("private", tokens=["B"])
    with RawClient(server.host, server.port) as client:
        assert client.call("GET", media("b", "o")).status == 200
        assert client.call("GET", media("private", "o")).status == 401
        assert (
            client.call("GET", media("private", "o"), {"Authorization": "Bearer B"}).status == 200
        )
        server.auth(["A"])
        answer = client.call("GET", media("b", "o"), {"Authorization": "Bearer stale"})
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert client.call("GET", media("b", "o"), {"Authorization": "Bearer A"}).status == 200


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def test_tls_and_resumption(certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    data = os.urandom(1_000_000)
    with FaultServer(
        tls_cert=certificates.cert_file, tls_key=certificates.key_file, threads=2
    ) as server:
        assert server.url.startswith("https://")
        server.put("b", "o", data)
        before = server.stats()["tls_handshakes_full"]
        with RawClient(server.host, server.port, context) as client:
            assert client.call("GET", media("b", "o")).body == data
            assert isinstance(client.socket, ssl.SSLSocket)
            session = client.socket.session
        with socket.create_connection((server.host, server.port)) as plain:
            again = context.wrap_socket(plain, server_hostname=server.host, session=session)
            with again:
                again.sendall(b"GET /b/o HTTP/1.1\r\nHost: test\r\n\r\n")
                assert again.recv(15) == b"HTTP/1.1 200 OK"
                assert again.session_reused
        stats = server.stats()
        assert stats["tls_handshakes_full"] == before + 1
        assert stats["tls_handshakes_resumed"] == 1
        server.faults([{"action": {"cut_after_bytes": 70000}}])
        with RawClient(server.host, server.port, context) as client:
            answer = client.call("GET", media("b", "o"))
            assert (answer.body, answer.end) == (data[:70000], "fin")


def test_ipv6() -> None:
    with FaultServer(bind="::1") as server:
        assert server.url.startswith("http://[::1]:")
        server.put("b", "o", b"x")
        with RawClient("::1", server.port) as client:
            assert client.call("GET", media("b", "o")).body == b"x"


def test_a_tunnel(server: FaultServer, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    with FaultServer(tls_cert=certificates.cert_file, tls_key=certificates.key_file) as far:
        far.put("b", "o", b"x" * 100_000)
        server.connect_map({"storage.test:443": f"127.0.0.1:{far.port}"})
        with RawClient(server.host, server.port) as client:
            client.send("CONNECT", "storage.test:443", {"Proxy-Authorization": "Basic eDp5"})
            assert client.head().status == 200
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            assert client.call("GET", media("b", "o")).body == b"x" * 100_000
        with RawClient(server.host, server.port) as client:
            assert client.call("CONNECT", "192.0.2.1:443").status == 403
    lines = server.log()
    assert [(line["kind"], line["status"]) for line in lines] == [
        ("connect", 200),
        ("connect", 403),
    ]
    assert lines[0]["headers"]["proxy-authorization"] == "Basic eDp5"


def test_xml_multipart_upload(server: FaultServer) -> None:
    server.bucket("b")
    server.min_part_bytes(100_000)
    parts = [os.urandom(100_000), os.urandom(100_000), b"end"]
    with RawClient(server.host, server.port) as client:
        refused = client.call("POST", "/b/dir/o?uploads", {"x-goog-if-generation-match": "0"})
        assert refused.status == 400
        start = client.call("POST", "/b/dir/o?uploads", {"Content-Type": "text/plain"}).body
        (upload,) = re.findall(r"<UploadId>(\w+)</UploadId>", start.decode())
        xml = "<CompleteMultipartUpload>"
        for number, part in enumerate(parts, start=1):
            answer = client.call(
                "PUT",
                f"/b/dir/o?partNumber={number}&uploadId={upload}",
                {"x-goog-hash": f"crc32c={crc32c(part)}"},
                part,
            )
            etag = f'"{hashlib.md5(part).hexdigest()}"'
            assert (answer.status, answer.headers["etag"]) == (200, etag)
            xml += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        wrong = client.call(
            "PUT",
            f"/b/dir/o?partNumber=4&uploadId={upload}",
            {"x-goog-hash": "crc32c=AAAAAA=="},
            b"bytes",
        )
        assert wrong.status == 400
        assert b"<Key>dir/o</Key>" in client.call("GET", "/b?uploads").body
        assert server.uploads()["multipart"] == [{"bucket": "b", "name": "dir/o", "parts": 3}]
        target = f"/b/dir/o?uploadId={upload}"
        assert client.call("GET", target).body.count(b"<Part>") == 3
        short = client.call(
            "POST",
            target,
            body=b"<CompleteMultipartUpload><Part><PartNumber>9"
            b"</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>",
        )
        assert b"InvalidPart" in short.body
        done = client.call("POST", target, body=(xml + "</CompleteMultipartUpload>").encode())
        assert done.status == 200
        assert client.call("POST", target, body=xml.encode()).status == 404
        whole = client.call("GET", "/b/dir/o")
        assert whole.body == b"".join(parts)
        assert "md5=" not in whole.headers["x-goog-hash"]
        start = client.call("POST", "/b/dir/p?uploads").body
        (upload,) = re.findall(r"<UploadId>(\w+)</UploadId>", start.decode())
        assert client.call("DELETE", f"/b/dir/p?uploadId={upload}").status == 204
    assert server.uploads() == {"resumable": [], "multipart": []}
    assert server.names("b") == ["dir/o"]


def test_a_resumable_upload_can_be_cancelled(server: FaultServer) -> None:
    server.bucket("b")
    with RawClient(server.host, server.port) as client:
        start = client.call("POST", "/upload/storage/v1/b/b/o?uploadType=resumable&name=o")
        session = start.headers["location"].removeprefix("http://test")
        assert client.call("DELETE", session).status == 499
        assert client.call("PUT", session, body=b"bytes").status == 499
    assert server.names("b") == []


def test_expect_continue_and_chunked_requests(server: FaultServer) -> None:
    server.bucket("b")
    with RawClient(server.host, server.port) as client:
        client.socket.sendall(
            b"POST /upload/storage/v1/b/b/o?uploadType=media&name=o HTTP/1.1\r\nHost: test\r\n"
            b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
        )
        assert client.head().status == 100
        client.socket.sendall(b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: t\r\n\r\n")
        assert client.answer().status == 200
    assert server.get("b", "o") == b"hello world"


def test_requests_may_be_pipelined(server: FaultServer) -> None:
    server.put("b", "o", bytes(200_000))
    with RawClient(server.host, server.port) as client:
        for _ in range(10):
            client.send("GET", media("b", "o"))
        for _ in range(10):
            assert len(client.answer().body) == 200_000


@pytest.mark.parametrize(
    "head", [b"nonsense\r\n\r\n", b"GET / HTTP/3.0\r\n\r\n", b"GET / HTTP/1.1\r\nbroken\r\n\r\n"]
)
def test_bad_requests_end_the_connection(server: FaultServer, head: bytes) -> None:
    with RawClient(server.host, server.port) as client:
        client.socket.sendall(head)
        assert client.answer().status == 400
        assert client.more() == "fin"


def test_it_stops_on_sigterm_and_writes_its_port(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    with subprocess.Popen(
        [find_binary(), "--port-file", str(port_file)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == f"listening on http://127.0.0.1:{int(port_file.read_text())}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=80) == 0
