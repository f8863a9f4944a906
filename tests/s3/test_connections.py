"""Servers that end connections without a word: nothing is lost or carried out twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import Certificates
from tests.keys import S3_KEYS

WRITES = 12


@pytest.fixture(params=["closes", "resets", "resets-next", "closes-idle"])
def like(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def server(
    request: pytest.FixtureRequest, certificates: Certificates, like: str
) -> Iterator[FaultServer]:
    files = {"tls_cert": certificates.cert_file, "tls_key": certificates.key_file}
    with FaultServer(dialect="s3", like=like, **(files if request.param else {})) as server:
        server.bucket("bucket")
        headrace.shutdown()
        yield server
        headrace.shutdown()


@pytest.fixture
def store(
    server: FaultServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> headrace.Store:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    return headrace.Store(
        "s3://bucket",
        endpoint=server.url,
        credentials=S3_KEYS,
        # More than the one that a dead connection costs would be an error.
        retry=headrace.RetryOptions(max_attempts=2),
    )


def carried_out(server: FaultServer, method: str) -> int:
    """How often, but for the objects that show whether conditions are kept."""
    return sum(
        line["method"] == method and line["status"] == 200
        for line in server.log()
        if "headrace-uploads" not in line["target"]
    )


def test_a_write_with_a_condition_is_carried_out_once(
    server: FaultServer, store: headrace.Store
) -> None:
    generation = store.write("a", b"first", if_generation="absent").generation
    for i in range(WRITES):
        generation = store.write("a", b"%d" % i, if_generation=generation).generation
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("a", b"other", if_generation="absent")
    assert bytes(store.read("a")) == b"%d" % (WRITES - 1)
    assert carried_out(server, "PUT") == 1 + WRITES


def test_a_body_larger_than_a_socket_takes_arrives_once(
    server: FaultServer, store: headrace.Store
) -> None:
    data = bytes(range(256)) * (1 << 13)
    for name in ("a", "b", "c"):
        store.write(name, data, if_generation="absent")
        assert bytes(store.read(name)) == data
    assert carried_out(server, "PUT") == 3
    assert server.names("bucket") == ["a", "b", "c"]


def test_an_upload_of_parts_is_ended_once(server: FaultServer, store: headrace.Store) -> None:
    data = bytes(range(256)) * (1 << 16)  # in parts of 5 MiB and the rest
    with store.open_writer("large", part_bytes=5 << 20, if_generation="absent") as writer:
        writer.write(data)
    assert bytes(store.read("large")) == data
    assert server.uploads()["multipart"] == []


def test_reads_cost_a_connection_and_no_retry(
    server: FaultServer, store: headrace.Store, like: str
) -> None:
    server.put("bucket", "a", b"data")
    before = headrace.metrics().retries_total
    for _ in range(WRITES):
        assert bytes(store.read("a")) == b"data"
    assert headrace.metrics().retries_total == before
    assert carried_out(server, "GET") == WRITES
