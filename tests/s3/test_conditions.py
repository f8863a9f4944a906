"""Services without conditional writes are found out, and nothing is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import MinioServer
from testing.servers import minio as minio_module
from tests.keys import S3_KEYS

PART = 5 << 20
LOOK = headrace.S3Options(conditional_writes="look")


def open_store(server: FaultServer, **options: Any) -> headrace.Store:
    return headrace.Store("s3://bucket/run", endpoint=server.url, credentials=S3_KEYS, **options)


def kinds(server: FaultServer) -> list[str]:
    return [entry["kind"] for entry in server.log()]


@pytest.mark.parametrize("support", ["ignored", "refused"])
def test_a_service_without_conditions_is_named_and_overwrites_nothing(
    s3_server: FaultServer, support: str
) -> None:
    s3_server.bucket("bucket", conditional_writes=support)
    store = open_store(s3_server)
    before = store.write("a", b"before")
    said = rf"this service {support.replace('ed', 'es')} If-None-Match on writes.*'look'"
    for _ in range(2):
        with pytest.raises(headrace.InvalidArgumentError, match=said):
            store.write("a", b"after", if_generation="absent")
    with pytest.raises(headrace.InvalidArgumentError, match="If-Match on writes"):
        store.write("a", b"after", if_generation=before.generation)
    with (
        pytest.raises(headrace.InvalidArgumentError, match=said),
        store.open_writer("a", part_bytes=PART, if_generation="absent") as writer,
    ):
        writer.write(bytes(2 * PART))
    assert s3_server.get("bucket", "run/a") == b"before"
    assert s3_server.names("bucket") == ["run/a"]
    assert s3_server.uploads()["multipart"] == []


def test_it_is_found_out_once_for_all_stores_at_an_endpoint(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    open_store(s3_server).write("a", b"1", if_generation="absent")
    assert kinds(s3_server) == ["upload", "upload", "upload", "delete", "upload"]
    assert [entry["status"] for entry in s3_server.log()] == [200, 412, 412, 204, 200]
    before = len(s3_server.log())
    store = open_store(s3_server, user_agent_suffix="")
    store.write("b", b"1", if_generation="absent")
    store.write("b", b"2", if_generation=store.stat("b").generation)
    assert kinds(s3_server)[before:] == ["upload", "get", "upload"]
    assert s3_server.names("bucket") == ["run/a", "run/b"]


def test_what_it_is_found_out_with_is_outside_the_root_and_goes_away(
    s3_server: FaultServer,
) -> None:
    s3_server.bucket("bucket")
    s3_server.faults([{"match": {"kind": "delete"}, "action": {"status": 403}}])
    store = open_store(s3_server)
    store.write("a", b"1", if_generation="absent")
    left, _ = s3_server.names("bucket")
    assert left.startswith("headrace-uploads/")
    bucket = headrace.Store("s3://bucket", endpoint=s3_server.url, credentials=S3_KEYS)
    assert [info.name for info in bucket.list()] == ["run/a"]  # listings hide it
    s3_server.faults([])
    cleaned = headrace.clean(bucket, older_than_s=0)
    assert [info.name for info in cleaned.deleted] == [left]


def test_writes_without_a_condition_find_nothing_out(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket", conditional_writes="ignored")
    open_store(s3_server).write("a", b"1")
    assert kinds(s3_server) == ["upload"]


def test_who_may_not_write_outside_the_root_takes_the_service_at_its_word(
    s3_server: FaultServer,
) -> None:
    s3_server.bucket("bucket")
    outside = {"match": {"path_contains": "/headrace-uploads/"}, "action": {"status": 403}}
    s3_server.faults([outside])
    store = open_store(s3_server)
    store.write("a", b"1", if_generation="absent")
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("a", b"2", if_generation="absent")
    assert kinds(s3_server) == ["upload"] * 4  # it asks each time


def test_whoever_may_not_find_out_finds_nothing_out_for_others(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket", conditional_writes="ignored")
    outside = {"match": {"path_contains": "/headrace-uploads/"}, "action": {"status": 403}}
    s3_server.faults([outside])
    open_store(s3_server).write("a", b"1", if_generation="absent")
    s3_server.faults([])
    with pytest.raises(headrace.InvalidArgumentError, match="ignores If-None-Match"):
        open_store(s3_server).write("a", b"2", if_generation="absent")
    assert s3_server.get("bucket", "run/a") == b"1"


def test_a_lost_answer_while_it_is_found_out_is_no_answer(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    s3_server.faults([{"match": {"kind": "upload"}, "count": 1, "action": {"lost_answer": True}}])
    store = open_store(s3_server)
    store.write("a", b"1", if_generation="absent")
    assert s3_server.names("bucket") == ["run/a"]
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("a", b"2", if_generation="absent")


def test_a_clock_that_is_off_does_not_pass_for_missing_permission(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket", conditional_writes="ignored")
    s3_server.clock(3600)
    with pytest.raises(headrace.InvalidArgumentError, match="ignores If-None-Match"):
        open_store(s3_server).write("a", b"1", if_generation="absent")


def test_a_service_that_keeps_to_conditions_of_single_writes_only_is_looked_at_first(
    s3_server: FaultServer,
) -> None:
    s3_server.bucket("bucket")
    store = open_store(s3_server)
    store.write("a", b"before", if_generation="absent")
    # From here on it ignores them, which single writes would not notice any more.
    s3_server.bucket("bucket", conditional_writes="ignored")
    with (
        pytest.raises(headrace.PreconditionFailedError, match="exists already"),
        store.open_writer("a", part_bytes=PART, if_generation="absent") as writer,
    ):
        writer.write(bytes(2 * PART))
    assert s3_server.get("bucket", "run/a") == b"before"
    assert s3_server.uploads()["multipart"] == []


@pytest.mark.parametrize("support", ["ignored", "refused"])
def test_with_look_headrace_looks_first(s3_server: FaultServer, support: str) -> None:
    s3_server.bucket("bucket", conditional_writes=support)
    store = open_store(s3_server, provider=LOOK)
    before = store.write("a", b"1", if_generation="absent")
    assert kinds(s3_server) == ["get", "upload"]
    with pytest.raises(headrace.PreconditionFailedError, match="exists already"):
        store.write("a", b"2", if_generation="absent")
    after = store.write("a", b"2", if_generation=before.generation)
    with pytest.raises(headrace.PreconditionFailedError, match="is not in generation"):
        store.write("a", b"3", if_generation=before.generation)
    with store.open_writer("large", part_bytes=PART, if_generation="absent") as writer:
        writer.write(bytes(2 * PART))
    with (
        pytest.raises(headrace.PreconditionFailedError),
        store.open_writer("large", part_bytes=PART, if_generation="absent") as writer,
    ):
        writer.write(bytes(2 * PART))
    assert store.stat("a").generation == after.generation
    assert s3_server.uploads()["multipart"] == []


def test_minio_keeps_to_them(minio: MinioServer, minio_bucket: str) -> None:
    headrace.shutdown()
    keys = headrace.AwsKeys(minio_module.ACCESS_KEY, minio_module.SECRET_KEY)
    store = headrace.Store(f"s3://{minio_bucket}", endpoint=minio.url, credentials=keys)
    info = store.write("a", b"1", if_generation="absent")
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("a", b"2", if_generation="absent")
    store.write("a", b"2", if_generation=info.generation)
    assert [each.name for each in store.list("headrace-uploads/")] == []


RESET = {"reset": True}
QUICK = headrace.RetryOptions(max_attempts=6, initial_backoff_s=0.001)


def write_one(store: headrace.Store) -> bytes:
    store.write("a", b"bytes")
    return b"bytes"


def write_parts(store: headrace.Store) -> bytes:
    data = bytes(range(256)) * (2 * PART // 256)
    with store.open_writer("a", part_bytes=PART) as writer:
        writer.write(data)
    return data


def copy_one(store: headrace.Store) -> bytes:
    store.copy("source", "a")
    return b"copied"


@pytest.mark.parametrize("before", [None, b"before"])
@pytest.mark.parametrize("action", [{"status": 500}, {"status": 503}, RESET])
@pytest.mark.parametrize(
    ("kind", "write"),
    [("upload", write_one), ("multipart_complete", write_parts), ("copy", copy_one)],
)
def test_a_write_without_a_condition_that_has_to_be_repeated_works_where_conditions_are_refused(
    s3_server: FaultServer,
    kind: str,
    write: Callable[[headrace.Store], bytes],
    action: dict[str, Any],
    before: bytes | None,
) -> None:
    s3_server.bucket("bucket", conditional_writes="refused")
    s3_server.put("bucket", "run/source", b"copied")
    if before is not None:
        s3_server.put("bucket", "run/a", before)
    store = open_store(s3_server, retry=QUICK)
    once = [{"match": {"kind": kind}, "count": 1, "action": action}]
    s3_server.faults(once)
    data = write(store)
    assert s3_server.get("bucket", "run/a") == data
    assert s3_server.uploads()["multipart"] == []
    refused = [entry for entry in s3_server.log() if entry["status"] == 501]
    assert 1 <= len(refused) <= 2  # what is optional is left out one by one
    # What was learned is not asked again.
    s3_server.faults(once)
    assert s3_server.get("bucket", "run/a") == write(store)
    assert len([entry for entry in s3_server.log() if entry["status"] == 501]) == len(refused)


def test_what_one_bucket_refuses_says_nothing_about_another(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket", conditional_writes="refused")
    s3_server.bucket("other")
    store = open_store(s3_server)
    store.write("a", b"1")
    with pytest.raises(headrace.InvalidArgumentError, match="refuses If-None-Match"):
        store.write("a", b"2", if_generation="absent")
    other = headrace.Store("s3://other", endpoint=s3_server.url, credentials=S3_KEYS)
    other.write("a", b"1", if_generation="absent")
    with pytest.raises(headrace.PreconditionFailedError):
        other.write("a", b"2", if_generation="absent")


def test_the_condition_of_a_removal_that_is_refused_is_tried_once(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    condition = {"name": "if-match", "contains": ""}
    s3_server.faults(
        [{"match": {"kind": "delete", "header": condition}, "action": {"status": 501}}]
    )
    store = open_store(s3_server)
    for name in ("a", "b", "c"):
        store.write(name, name.encode())
        store.rename(name, f"{name}2")
    refused = [entry for entry in s3_server.log() if entry["status"] == 501]
    assert [entry["kind"] for entry in refused] == ["delete"]
    assert s3_server.names("bucket") == ["run/a2", "run/b2", "run/c2"]
