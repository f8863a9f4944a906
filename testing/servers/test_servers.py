"""The servers themselves: they start, answer, and are gone afterwards."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import ClientError

from testing.servers import (
    AistoreCluster,
    Certificates,
    DelayedServer,
    FakeGcsServer,
    MinioServer,
    Nginx,
    process,
)
from testing.servers.process import REPOSITORY, ServerProcess, free_port
from testing.servers.s3_client import client_of


def fetch(url: str, context: ssl.SSLContext | None = None) -> bytes:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(url, timeout=80.0) as answer:
        return bytes(answer.read())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_fake_gcs_stores_and_lists(host: str) -> None:
    with FakeGcsServer(host=host) as server:
        server.make_bucket("bucket")
        for name in ("a", "x/ä %2F+#?", "zero"):
            server.put("bucket", name, name.encode() if name != "zero" else b"")
        assert server.names("bucket") == ["a", "x/ä %2F+#?", "zero"]
        assert server.get("bucket", "x/ä %2F+#?") == "x/ä %2F+#?".encode()
        assert server.get("bucket", "zero") == b""


def test_fake_gcs_speaks_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with FakeGcsServer(certificates=certificates) as server:
        server.make_bucket("bucket")
        server.put("bucket", "a", b"1")
        assert server.get("bucket", "a") == b"1"
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(server.url, ssl.create_default_context())


def test_minio_stores_and_lists_and_leaves_nothing_behind() -> None:
    with MinioServer(buckets=["one", "two"], region="eu-west-1") as server:
        pid, folder = server.pid, server.folder
        assert server.request("PUT", "/two/x/%C3%A4%20%252F", b"bytes")[0] == 200
        status, headers, body = server.request("GET", "/two/x/%C3%A4%20%252F")
        assert (status, body) == (200, b"bytes")
        assert headers["ETag"] == f'"{hashlib.md5(b"bytes").hexdigest()}"'
        _, _, body = server.request("GET", "/two?list-type=2")
        assert "<Key>x/ä %2F</Key>".encode() in body
        assert b"<KeyCount>0<" in server.request("GET", "/one?list-type=2")[2]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            fetch(f"{server.url}/two/x/%C3%A4%20%252F")
        _, _, body = server.request("GET", "/two?location=")
        assert b"eu-west-1" in body
    assert not alive(pid)
    assert not folder.exists()


def test_minio_finds_a_bucket_in_the_host() -> None:
    with MinioServer(domains=["s3.test"]) as server:
        assert server.request("PUT", "/a/b", b"bytes", host="bucket.s3.test")[0] == 200
        assert server.get("a/b") == b"bytes"


def test_minio_speaks_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with MinioServer(certificates=certificates) as server:
        assert server.url.startswith("https://")
        assert server.request("PUT", "/bucket/a", b"1")[0] == 200
        assert server.get("a") == b"1"
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(server.url, ssl.create_default_context())


ODD_NAMES = ["a", "h#h", "p%q", "q?q", "x/ä %2F+#?", "é ü"]


@pytest.mark.parametrize("targets", [1, 3])
def test_aistore_stores_and_lists_and_leaves_nothing_behind(targets: int) -> None:
    with AistoreCluster(targets=targets) as cluster:
        pids = [cluster.pid(k) for k in range(targets + 1)]
        folders = [cluster.folder(k) for k in range(targets + 1)]
        assert set(cluster.map()["tmap"]) == {cluster.daemon_id(k) for k in range(1, targets + 1)}
        bucket, empty = cluster.make_bucket("bucket"), cluster.make_bucket()
        for name in ODD_NAMES:
            cluster.put(bucket, name, name.encode())
        cluster.put(bucket, "zero", b"")
        assert cluster.names(bucket) == [*ODD_NAMES[:5], "zero", ODD_NAMES[5]]
        assert cluster.names(bucket, "q") == ["q?q"]
        assert cluster.names(empty) == []
        for name in ODD_NAMES:
            assert cluster.get(bucket, name) == name.encode()
        assert cluster.get(bucket, "zero") == b""
        cluster.delete(bucket, "a")
        assert cluster.get(bucket, "a") is None
        with pytest.raises(RuntimeError, match="404"):
            cluster.delete(bucket, "a")
        cluster.make_bucket(bucket, namespace="#other")
        cluster.put(bucket, "a", b"of another namespace", namespace="#other")
        assert cluster.names(bucket, namespace="#other") == ["a"]
        assert cluster.get(bucket, "a") is None
    assert not any(map(alive, pids))
    assert not any(folder.exists() for folder in folders)


def test_aistore_listens_on_loopback_below_the_ephemeral_ports() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with AistoreCluster() as cluster:
        for k in (0, 1):
            for each in psutil.Process(cluster.pid(k)).net_connections("inet"):
                if each.status == psutil.CONN_LISTEN or each.type == socket.SOCK_DGRAM:
                    assert each.laddr.ip.startswith("127.")
                    assert each.laddr.port < first


def test_aistore_speaks_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with AistoreCluster(targets=2, certificates=certificates) as cluster:
        assert cluster.url.startswith("https://")
        bucket = cluster.make_bucket()
        # Where they lie hangs on the bucket's name, too: eight would at times lie on one target.
        names = [f"{i}" for i in range(40)]
        for name in names:
            cluster.put(bucket, name, name.encode())
        assert {cluster.target_of(bucket, name) for name in names} == {1, 2}
        assert [cluster.get(bucket, name) for name in names] == [name.encode() for name in names]
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(cluster.url, ssl.create_default_context())


@pytest.mark.soak
def test_a_target_of_aistore_leaves_or_crashes_and_comes_back_with_its_objects() -> None:
    with AistoreCluster(targets=3) as cluster:
        bucket = cluster.make_bucket()
        names = [f"{i:02d}" for i in range(12)]
        for name in names:
            cluster.put(bucket, name, name.encode())
        cluster.signal(3, signal.SIGTERM)
        cluster.wait_until_ready()
        assert set(cluster.map()["tmap"]) == {cluster.daemon_id(1), cluster.daemon_id(2)}
        cluster.revive(3)
        cluster.wait_until_ready()
        cluster.signal(2, signal.SIGKILL)
        assert set(cluster.map()["tmap"]) == {
            cluster.daemon_id(1),
            cluster.daemon_id(2),
            cluster.daemon_id(3),
        }
        cluster.revive(2)
        cluster.wait_until_ready()
        assert [cluster.get(bucket, name) for name in names] == [name.encode() for name in names]


def test_a_frozen_target_of_aistore_answers_when_it_thaws() -> None:
    with AistoreCluster() as cluster:
        bucket = cluster.make_bucket()
        cluster.put(bucket, "a", b"bytes")
        cluster.signal(1, signal.SIGSTOP)
        with socket.create_connection(("127.0.0.1", cluster.port + 1), timeout=80.0) as client:
            client.sendall(f"GET /v1/objects/{bucket}/a HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)
            cluster.signal(1, signal.SIGCONT)
            client.settimeout(80.0)
            assert client.recv(15) == b"HTTP/1.1 200 OK"


def test_aistore_serves_the_buckets_of_a_cloud() -> None:
    with MinioServer(buckets=["cloud"]) as cloud, AistoreCluster(targets=2, cloud=cloud) as cluster:
        assert cloud.request("PUT", "/cloud/x/%C3%A4", b"bytes")[0] == 200
        target = "/v1/objects/cloud/{}?provider=aws"
        status, headers, body = cluster.request("GET", target.format("x/%C3%A4"))
        assert (status, body) == (200, b"bytes")
        assert headers["Etag"] == hashlib.md5(b"bytes").hexdigest()
        assert cluster.request("PUT", target.format("new"), b"new")[0] == 200
        assert cloud.request("GET", "/cloud/new")[2] == b"new"
        assert cluster.request("GET", target.format("none"))[0] == 404
        assert cluster.request("HEAD", "/v1/buckets/none?provider=aws")[0] == 404


def test_two_clusters_of_aistore_do_not_meet() -> None:
    with AistoreCluster() as one, AistoreCluster() as other:
        assert one.map()["uuid"] != other.map()["uuid"]
        one.put(one.make_bucket("bucket"), "a", b"1")
        assert other.names(other.make_bucket("bucket")) == []


def test_an_aistore_that_cannot_start_says_why(tmp_path: Path) -> None:
    program = tmp_path / "aisnode"
    program.write_text("#!/bin/sh\necho no licence\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="no licence"):
        AistoreCluster(program=program, parent=tmp_path)
    assert list(tmp_path.iterdir()) == [program]


def test_nginx_serves_files_by_path_and_by_media_path(tmp_path: Path) -> None:
    (tmp_path / "b" / "x").mkdir(parents=True)
    (tmp_path / "b" / "x" / "a%2F b").write_bytes(b"hello")
    with Nginx(tmp_path) as server:
        assert fetch(f"{server.url}/b/x/a%252F%20b") == b"hello"
        assert fetch(f"{server.url}/storage/v1/b/b/o/x%2Fa%252F%20b?alt=media") == b"hello"
        assert fetch(f"{server.url}/download/storage/v1/b/b/o/x%2Fa%252F%20b") == b"hello"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(f"{server.url}/b/none")


def test_nginx_delays_all_requests_at_once_and_not_in_turn(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    latency_s = 0.5
    with Nginx(tmp_path, latency_s=latency_s) as server:
        threads = [threading.Thread(target=fetch, args=(f"{server.url}/a",)) for _ in range(16)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.monotonic() - begin
    assert took_s >= latency_s
    assert took_s < 16 * latency_s


SUM = base64.b64encode(b"\x9a\x71\xbb\x4c").decode()  # CRC32C of b"hello"


def test_nginx_looks_like_s3_to_botocore(tmp_path: Path) -> None:
    names = [f"{i:04d}" for i in range(2500)]
    (tmp_path / "b" / "x").mkdir(parents=True)
    for name in names:
        (tmp_path / "b" / "x" / name).write_bytes(b"hello")
    sums = {f"x/{name}": SUM for name in names}
    with (
        Nginx(tmp_path, sums={"b": sums}, latency_s=0.01) as server,
        client_of(server.url) as client,
    ):
        pages = list(client.get_paginator("list_objects_v2").paginate(Bucket="b"))
        assert [page["KeyCount"] for page in pages] == [1000, 1000, 500]
        listed = [each for page in pages for each in page["Contents"]]
        assert [each["Key"] for each in listed] == [f"x/{name}" for name in names]
        first = client.list_objects_v2(Bucket="b", StartAfter="x/0997", MaxKeys=3, Prefix="x/")
        assert [each["Key"] for each in first["Contents"]] == ["x/0998", "x/0999", "x/1000"]
        assert client.list_objects_v2(Bucket="b", Prefix="y")["KeyCount"] == 0
        head = client.head_object(Bucket="b", Key="x/0001", ChecksumMode="ENABLED")
        assert (head["ETag"], head["ContentLength"]) == (listed[1]["ETag"], listed[1]["Size"])
        assert head["LastModified"] == listed[1]["LastModified"]
        assert (head["ChecksumCRC32C"], head["ChecksumType"]) == (SUM, "FULL_OBJECT")
        for options, body, has_sum in (
            ({}, b"hello", True),
            ({"Range": "bytes=1-2"}, b"el", False),
            ({"IfMatch": listed[1]["ETag"]}, b"hello", True),
        ):
            got = client.get_object(Bucket="b", Key="x/0001", ChecksumMode="ENABLED", **options)
            with got["Body"] as stream:
                assert stream.read() == body
            assert ("ChecksumCRC32C" in got) == has_sum
        with pytest.raises(ClientError, match="412") as failed:
            client.get_object(Bucket="b", Key="x/0001", IfMatch='"other"')
        # nginx ends the connection then, and must say so: the next request would be lost.
        assert failed.value.response["ResponseMetadata"]["HTTPHeaders"]["connection"] == "close"
        with pytest.raises(ClientError, match="404"):
            client.get_object(Bucket="b", Key="none")
        # The same file as Google Cloud Storage has it.
        assert fetch(f"{server.url}/storage/v1/b/b/o/x%2F0001?alt=media") == b"hello"


def test_nginx_speaks_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    (tmp_path / "a").write_bytes(b"hello")
    with Nginx(tmp_path, certificates=certificates) as server:
        trusting = ssl.create_default_context(cafile=str(certificates.ca_file))
        assert fetch(f"{server.url}/a", trusting) == b"hello"


def test_a_delayed_server_passes_everything_on_late_and_logs_it() -> None:
    latency_s = 0.05
    with FakeGcsServer() as server:
        server.make_bucket("bucket")
        server.put("bucket", "x/ä %2F+#?", b"hello")
        with DelayedServer(server.url, latency_s=latency_s) as delayed:
            path = f"/storage/v1/b/bucket/o/{urllib.parse.quote('x/ä %2F+#?', safe='')}"
            assert b'"size":"5"' in fetch(f"{delayed.url}{path}")
            begin = time.monotonic()
            assert fetch(f"{delayed.url}{path}?alt=media") == b"hello"
            assert time.monotonic() - begin >= latency_s
            with pytest.raises(urllib.error.HTTPError, match="404"):
                fetch(f"{delayed.url}/storage/v1/b/bucket/o/none?alt=media")
            logged = delayed.requests_when(lambda log: len(log) == 3)
    assert [each.status for each in logged] == [200, 200, 404]
    assert [each.object_read for each in logged] == [None, "x/ä %2F+#?", "none"]
    assert logged[1].body_bytes == 5
    assert len({each.connection for each in logged}) == 3
    assert all(each.seconds >= latency_s * 0.9 for each in logged)  # nginx counts whole ms


def test_two_servers_at_once_have_ports_of_their_own() -> None:
    with FakeGcsServer() as first, FakeGcsServer() as second:
        assert first.port != second.port


def test_a_taken_port_is_an_error_that_shows_the_servers_own_words() -> None:
    with (
        FakeGcsServer() as first,
        pytest.raises(RuntimeError, match="address already in use"),
    ):
        FakeGcsServer(port=first.port)


@pytest.mark.parametrize("kind", [FakeGcsServer, MinioServer])
def test_a_port_that_was_taken_since_is_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch, kind: type[FakeGcsServer | MinioServer]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = listening.getsockname()[1]
        ports = [taken]
        monkeypatch.setattr(
            process, "free_port", lambda host: ports.pop() if ports else free_port(host)
        )
        with kind() as server:
            assert server.port != taken


def test_a_server_that_stops_listening_once_more_is_not_ready_yet(tmp_path: Path) -> None:
    program = (
        "import pathlib, socket, sys\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "def listen():\n"
        "    return socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "def wait_for(name):\n"
        "    while not (folder / name).exists(): pass\n"
        "first = listen()\n"
        "wait_for('seen')\n"
        "first.close()\n"
        "(folder / 'closed').touch()\n"
        "wait_for('refused')\n"
        "second = listen()\n"
        "second.accept()\n"
    )
    answers: list[str] = []

    def is_ready(port: int) -> bool:
        (tmp_path / "seen").touch()
        while not (tmp_path / "closed").exists():
            time.sleep(0.001)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=80.0).close()
        except ConnectionRefusedError:
            answers.append("refused")
            (tmp_path / "refused").touch()
            raise
        answers.append("accepted")
        return True

    ServerProcess(
        lambda port: [sys.executable, "-c", program, str(port)],
        host="127.0.0.1",
        port=0,
        log_file=tmp_path / "log",
        is_ready=is_ready,
    ).stop()
    assert answers == ["refused", "accepted"]


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from testing.servers import Nginx\n"
        f"server = Nginx(pathlib.Path({str(tmp_path)!r}))\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert child.stdin
    assert child.stdout
    with child:
        pid = int(child.stdout.readline())
        watch = os.pidfd_open(pid)
        assert alive(pid)
        child.send_signal(signal.SIGKILL)
    try:
        import select

        ready, _, _ = select.select([watch], [], [], 120.0)
        assert ready, "nginx outlived its parent"
    finally:
        os.close(watch)
