"""Which checksums of objects are compared, however they are read, and what is said of others."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import MinioServer
from testing.servers.minio import ACCESS_KEY, REGION, SECRET_KEY
from testing.servers.s3_client import client_of
from tests.keys import S3_KEYS

DATA = bytes(range(256)) * 1024
IN_PARTS = headrace.ParallelOptions(range_threshold_bytes=64 << 10, range_bytes=64 << 10)


@pytest.fixture
def server(s3_server: FaultServer) -> FaultServer:
    s3_server.bucket("bucket")
    return s3_server


def open_store(server: FaultServer, **options: Any) -> headrace.Store:
    return headrace.Store("s3://bucket", endpoint=server.url, credentials=S3_KEYS, **options)


def requests(server: FaultServer, since: int = 0) -> list[str]:
    return [f"{entry['method']} {entry['status']}" for entry in server.log()[since:]]


@pytest.mark.parametrize("parallel", [headrace.ParallelOptions(), IN_PARTS], ids=["one", "parts"])
@pytest.mark.parametrize(
    ("algorithm", "label", "verify"),
    [
        ("CRC32", "CRC32", True),
        ("CRC32C", "CRC32C", True),
        ("CRC64NVME", "CRC64NVME", True),
        ("SHA1", "SHA-1", "all"),
        ("SHA256", "SHA-256", "all"),
    ],
)
def test_crcs_are_compared_and_digests_if_that_is_asked_for(
    server: FaultServer, algorithm: str, label: str, verify: Any, parallel: headrace.ParallelOptions
) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm=algorithm)
    store = open_store(server, parallel=parallel, verify=verify)
    assert store.read("a").bytes() == DATA
    assert store.read(store.stat("a")).bytes() == DATA
    assert headrace.metrics().checksums_verified_total == 2
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 100}}])
    with pytest.raises(headrace.CorruptDataError, match=f"the bytes that came have {label} "):
        store.read("a")
    with pytest.raises(headrace.CorruptDataError, match=f"the bytes that came have {label} "):
        store.read(store.stat("a"))


def test_an_etag_is_compared_as_an_md5_if_that_is_asked_for(server: FaultServer) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="none")
    server.faults([{"match": {"kind": "media"}, "count": 2, "action": {"flip_byte": 100}}])
    with pytest.raises(headrace.CorruptDataError, match="the bytes that came have MD5 "):
        open_store(server, verify="all").read("a")
    assert open_store(server, verify="all").read("a").bytes() == DATA
    assert headrace.metrics().checksums_verified_total == 1


def test_a_byte_that_was_wrong_once_is_read_again(server: FaultServer) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="SHA256")
    server.faults([{"match": {"kind": "media"}, "count": 1, "action": {"flip_byte": 100}}])
    assert open_store(server, verify="all").read("a").bytes() == DATA
    assert requests(server) == ["GET 200", "GET 200"]


@pytest.mark.parametrize(
    ("meta", "verify", "why"),
    [
        ({"checksumAlgorithm": "SHA256"}, True, 'SHA-256, which verify="all" compares'),
        ({"checksumAlgorithm": "none"}, True, "the store tells no checksum of the whole object"),
        (
            {"checksumAlgorithm": "CRC32", "partBytes": 100_000, "checksumType": "COMPOSITE"},
            "all",
            "the store tells no checksum of the whole object",
        ),
    ],
    ids=["digest", "none", "composite"],
)
def test_what_is_not_compared_is_said_once(
    server: FaultServer,
    caplog: pytest.LogCaptureFixture,
    meta: dict[str, Any],
    verify: Any,
    why: str,
) -> None:
    for name in ("a", "b"):
        server.put("bucket", name, DATA, **meta)
    store = open_store(server, verify=verify)
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for name in ("a", "b", "a"):
            assert store.read(name).bytes() == DATA
    (said,) = caplog.messages
    assert why in said
    assert "s3://bucket/a" in said
    assert headrace.metrics().checksums_verified_total == 0


def test_nothing_is_said_where_nobody_wants_to_know(
    server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="none")
    server.put("bucket", "empty", b"", checksumAlgorithm="none")
    with caplog.at_level(logging.WARNING, logger="headrace"):
        open_store(server, verify=False).read("a")
        open_store(server).read("empty")
        open_store(server).read("a", begin=0, end=10)
    assert caplog.messages == []


def test_a_large_object_of_unknown_size_is_read_in_parts(server: FaultServer) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="CRC64NVME")
    assert open_store(server, parallel=IN_PARTS).read("a").bytes() == DATA
    # The first answer tells size and sum, and is not taken.
    assert requests(server) == ["GET 200"] + ["GET 206"] * 4
    assert headrace.metrics().checksums_verified_total == 1


def test_a_large_object_of_known_size_is_asked_for_its_sum_first(server: FaultServer) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="CRC64NVME")
    store = open_store(server, parallel=IN_PARTS)
    (listed,) = store.list()
    assert store.read(listed).bytes() == DATA
    assert requests(server, since=1) == ["HEAD 200"] + ["GET 206"] * 4
    assert headrace.metrics().checksums_verified_total == 1


CRCS = pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])


@CRCS
def test_a_file_that_was_read_in_any_order_is_compared_as_a_whole(
    server: FaultServer, algorithm: str
) -> None:
    server.put("bucket", "a", DATA * 6, checksumAlgorithm=algorithm)
    store = open_store(server)
    middle = len(DATA) * 3
    for order in ([(0, None)], [(middle, None), (0, middle)], [(0, 100), (90, middle), (5, None)]):
        with headrace.open("a", store=store) as file:
            for begin, end in order:
                file.seek(begin)
                assert file.read(-1 if end is None else end - begin) == (DATA * 6)[begin:end]
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 100}}])
    with headrace.open("a", store=store) as file:
        file.seek(middle)
        file.read()
        file.seek(0)
        with pytest.raises(
            headrace.CorruptDataError, match=f"the bytes that came have {algorithm}"
        ):
            file.read(middle)


def test_a_file_whose_object_has_a_digest_is_read_and_it_is_said_that_nothing_was_compared(
    server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="SHA256")
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for _ in range(2):
            with headrace.open("a", store=open_store(server)) as file:
                assert file.info.checksum is not None
                assert file.info.checksum[0] == "sha256"
                assert file.read() == DATA
        open_store(server).list()  # the log comes with calls
    (said,) = caplog.messages
    assert "s3://bucket/a were not compared with a checksum" in said


@CRCS
def test_a_file_that_a_listing_names_is_compared_too(server: FaultServer, algorithm: str) -> None:
    server.put("bucket", "a", DATA * 6, checksumAlgorithm=algorithm)
    store = open_store(server)
    (listed,) = store.list()
    with headrace.open(listed, store=store) as file:
        assert file.read() == DATA * 6
    assert requests(server).count("HEAD 200") == 1
    with headrace.open(headrace.ObjectInfo("a"), store=store) as file:
        assert file.info == store.stat("a")
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 100}}])
    with (
        headrace.open(listed, store=store) as file,
        pytest.raises(headrace.CorruptDataError, match=f"have {algorithm} "),
    ):
        file.read()


def test_a_file_that_a_listing_names_is_opened_without_a_request_where_no_sum_is_told(
    server: FaultServer,
) -> None:
    server.put("bucket", "a", DATA)
    server.put("bucket", "empty", b"")
    store = open_store(server)
    a, empty = store.list()
    seen = len(requests(server))
    with headrace.open(empty, store=store) as file:
        assert file.read() == b""
    assert requests(server, since=seen) == [], "there is nothing to be compared"
    mode = {"header": {"name": "x-amz-checksum-mode", "contains": ""}}
    server.faults([{"match": mode, "action": {"status": 501}}])
    store.stat("a")  # which learns that the service refuses to be asked
    seen = len(requests(server))
    with headrace.open(a, store=store) as file:
        assert file.read() == DATA
    assert not any(each.startswith("HEAD") for each in requests(server, since=seen))


def test_a_file_that_a_listing_names_is_not_another_generation(server: FaultServer) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="CRC32")
    store = open_store(server)
    (listed,) = store.list()
    server.put("bucket", "a", DATA + b"!", checksumAlgorithm="CRC32")
    with (
        headrace.open(listed, store=store) as file,
        pytest.raises(headrace.PreconditionFailedError),
    ):
        file.read()


@CRCS
def test_a_sum_that_stat_has_told_is_not_asked_for_again(
    server: FaultServer, algorithm: str
) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm=algorithm)
    store = open_store(server, parallel=IN_PARTS)
    info = store.stat("a")
    assert info.checksum is not None
    assert info.checksum[0] == algorithm.lower()
    assert store.read(info).bytes() == DATA
    assert requests(server, since=1) == ["GET 206"] * 4
    assert headrace.metrics().checksums_verified_total == 1


@CRCS
def test_an_index_of_what_stat_has_told_keeps_the_sums(server: FaultServer, algorithm: str) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm=algorithm)
    store = open_store(server)
    index = headrace.ObjectIndex.from_objects([store.stat("a")], root=store.url)
    assert index.checksum(0) == index.info(0).checksum == store.stat("a").checksum
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 100}}])
    with pytest.raises(headrace.CorruptDataError, match=f"the bytes that came have {algorithm} "):
        store.read(index.info(0))


def test_an_object_that_is_replaced_between_its_parts_is_told(server: FaultServer) -> None:
    server.put("bucket", "a", DATA, checksumAlgorithm="CRC32C")
    server.faults(
        [{"match": {"kind": "media"}, "count": 1, "action": {"old_generation_then_new": True}}]
    )
    with pytest.raises(headrace.PreconditionFailedError):
        open_store(server, parallel=IN_PARTS).read("a")


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_what_botocore_has_written_is_compared(
    minio: MinioServer, minio_bucket: str, algorithm: str
) -> None:
    headrace.shutdown()  # counters begin at 0
    key = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    with client_of(minio.url, key=key, region=REGION) as client:
        client.put_object(Bucket=minio_bucket, Key="a", Body=DATA, ChecksumAlgorithm=algorithm)
    store = headrace.Store(
        f"s3://{minio_bucket}",
        endpoint=minio.url,
        credentials=headrace.AwsKeys(ACCESS_KEY, SECRET_KEY),
        parallel=IN_PARTS,
        verify="all",
    )
    assert store.read("a").bytes() == DATA
    assert headrace.metrics().checksums_verified_total == 1


def test_verify_is_one_of_three(server: FaultServer) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="verify is 'some'"):
        open_store(server, verify="some")
