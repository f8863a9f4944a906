"""Services that refuse headers which a request would do without."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import headrace
from headrace import MiB, Store
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS

MODE, SIZE, SUM = "x-amz-checksum-mode", "x-amz-mp-object-size", "x-amz-checksum-crc32c"
HEADERS = (MODE, SIZE, SUM, "x-amz-checksum-type", "x-amz-checksum-algorithm")


def refusing(*headers: str, status: int = 501, **rule: Any) -> list[dict[str, Any]]:
    return [
        {"match": {"header": {"name": each, "contains": ""}, **rule}, "action": {"status": status}}
        for each in headers
    ]


def open_store(server: FaultServer, **options: Any) -> Store:
    server.bucket("bucket")
    return Store("s3://bucket", endpoint=server.url, credentials=S3_KEYS, **options)


def refused(server: FaultServer) -> list[str]:
    return [each["kind"] for each in server.log() if each["status"] in (400, 501)]


def write_in_parts(store: Store, name: str) -> bytes:
    data = bytes(range(256)) * (11 * MiB // 256)
    url = f"{store.url}/{name}"
    with headrace.open(url, "wb", part_bytes=5 * MiB, store=store) as file:
        file.write(data)
    return data


# 400 may be about anything: it is believed only of headers that were never taken.
@pytest.mark.parametrize(
    ("headers", "status"),
    [((MODE,), 501), ((SIZE,), 501), (HEADERS, 501)]
    + [((MODE,), 400), ((SIZE,), 400), (HEADERS, 400)],
)
def test_everything_works_without_the_header(
    s3_server: FaultServer, headers: tuple[str, ...], status: int
) -> None:
    store = open_store(s3_server)
    s3_server.put("bucket", "there", b"from another program")
    s3_server.faults(refusing(*headers, status=status))
    assert store.stat("there").size_bytes == 20
    assert store.read("there").bytes() == b"from another program"
    assert store.write("a", b"bytes").size_bytes == 5
    assert store.read("a").bytes() == b"bytes"
    data = write_in_parts(store, "parts")
    assert store.read("parts").bytes() == data
    assert store.copy("parts", "copied").size_bytes == len(data)
    assert store.rename("a", "renamed").name == "renamed"
    headrace.checkpoint.save({"x": torch.ones(3)}, f"{store.url}/c.pt", store=store)
    assert torch.equal(
        headrace.checkpoint.load(f"{store.url}/c.pt", store=store)["x"], torch.ones(3)
    )
    store.delete("renamed")
    assert sorted(each.name for each in store.list()) == ["c.pt", "copied", "parts", "there"]
    assert not any(s3_server.uploads().values())


@pytest.mark.parametrize(
    ("header", "call"),
    [
        (MODE, lambda store: store.read("there")),
        (MODE, lambda store: store.stat("there")),
        (SIZE, lambda store: write_in_parts(store, "parts")),
    ],
)
def test_it_is_learned_by_one_refused_request_and_said_once(
    s3_server: FaultServer,
    caplog: pytest.LogCaptureFixture,
    header: str,
    call: Callable[[Store], Any],
) -> None:
    store = open_store(s3_server)
    s3_server.put("bucket", "there", b"x")
    s3_server.faults(refusing(header))
    with caplog.at_level(logging.WARNING, "headrace"):
        call(store)
        first = len(refused(s3_server))
        call(store)
        call(open_store(s3_server))  # another store of the same service
        headrace.metrics()
    # Where the refusal names no header, those before it in the order are tried first.
    assert 1 <= first <= 2
    assert len(refused(s3_server)) == first
    told = [
        each.message for each in caplog.records if "it is left out for 10 minutes" in each.message
    ]
    assert len(told) == 1
    assert s3_server.url in told[0]
    assert header.startswith(told[0].partition("with the header ")[2].partition("...")[0])


def test_what_cannot_be_carried_out_at_all_fails_as_it_first_did(s3_server: FaultServer) -> None:
    store = open_store(s3_server)
    s3_server.faults([{"match": {"kind": "upload"}, "action": {"status": 501}}])
    with pytest.raises(headrace.InvalidArgumentError, match="does not implement"):
        store.write("a", b"b")
    tried = len(refused(s3_server))
    assert tried == 3  # with its CRC-32C, its MD5, and without a sum
    s3_server.faults([])
    store.write("a", b"b")
    [put] = [each for each in s3_server.log()[-1:] if each["kind"] == "upload"]
    assert SUM in {name.lower() for name in put["headers"]}


LATE = {"status": 200, "reason": "NotImplemented", "message": "a header you provided"}


@pytest.mark.parametrize("names_it", [True, False])
def test_a_header_that_is_refused_in_the_body_of_a_success_is_left_out_too(
    s3_server: FaultServer, names_it: bool
) -> None:
    store = open_store(s3_server)
    told = LATE | {"message": f"{LATE['message']}{f' ({SIZE})' if names_it else ''}"}
    match = {"kind": "multipart_complete", "header": {"name": SIZE, "contains": ""}}
    s3_server.faults([{"match": match, "action": told}])
    data = write_in_parts(store, "a")
    assert s3_server.get("bucket", "a") == data
    write_in_parts(store, "b")
    ends = [each for each in s3_server.log() if each["kind"] == "multipart_complete"]
    assert [SIZE in each["headers"] for each in ends] == [True, False, False]


def test_a_condition_that_is_refused_in_the_body_of_a_success_is_left_out_of_copies(
    s3_server: FaultServer,
) -> None:
    retry = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001)
    store = open_store(s3_server, retry=retry)
    store.write("a", b"bytes")
    lost = {"match": {"kind": "copy"}, "count": 1, "action": "reset"}
    match = {"kind": "copy", "header": {"name": "if-none-match", "contains": ""}}
    s3_server.faults([lost, {"match": match, "action": LATE}])
    store.copy("a", "b")
    assert s3_server.get("bucket", "b") == b"bytes"
    copies = [each for each in s3_server.log() if each["kind"] == "copy"]
    assert ["if-none-match" in each["headers"] for each in copies] == [False, True, False]


def test_what_is_refused_late_for_another_reason_is_told_and_teaches_nothing(
    s3_server: FaultServer,
) -> None:
    store = open_store(s3_server)
    match = {"kind": "multipart_complete"}
    s3_server.faults([{"match": match, "action": LATE | {"reason": "AccessDenied"}}])
    with pytest.raises(headrace.PermissionDeniedError, match="AccessDenied"):
        write_in_parts(store, "a")
    s3_server.faults([])
    write_in_parts(store, "b")
    ends = [each for each in s3_server.log() if each["kind"] == "multipart_complete"]
    assert [SIZE in each["headers"] for each in ends] == [True, True]


def test_a_service_that_refuses_to_tell_sums_is_not_asked_for_them_before_each_read(
    s3_server: FaultServer,
) -> None:
    in_parts = headrace.ParallelOptions(range_threshold_bytes=1 * MiB, range_bytes=1 * MiB)
    store = open_store(s3_server, parallel=in_parts)
    data = bytes(range(256)) * (3 * MiB // 256)
    for name in ("a", "b", "c"):
        s3_server.put("bucket", name, data)
    s3_server.faults(refusing(MODE))
    listed = list(store.list())
    assert store.read(listed[0]).bytes() == data  # which learns
    seen = len(s3_server.log())
    assert store.read(listed[1]).bytes() == data
    assert store.read("c").bytes() == data  # whose size is not known
    asked = [(each["method"], each["status"]) for each in s3_server.log()[seen:]]
    assert asked == [("GET", 206)] * 6


@pytest.mark.parametrize("status", [500, 503])
def test_a_service_that_is_busy_when_it_is_tried_without_is_asked_again(
    s3_server: FaultServer, status: int
) -> None:
    retry = headrace.RetryOptions(max_attempts=5, initial_backoff_s=0.001)
    store = open_store(s3_server, retry=retry)
    busy = {"match": {"kind": "upload"}, "count": 1, "action": {"status": status}}
    s3_server.faults([*refusing(SUM), busy])
    store.write("a", b"b")
    store.write("b", b"b")
    uploads = [each["status"] for each in s3_server.log() if each["kind"] == "upload"]
    assert uploads == [501, status, 200, 200]  # the second write has learned


@pytest.mark.parametrize("status", [403, 503, 500])
def test_other_refusals_teach_nothing(s3_server: FaultServer, status: int) -> None:
    retry = headrace.RetryOptions(max_attempts=2, initial_backoff_s=0.001)
    store = open_store(s3_server, retry=retry)
    s3_server.faults(refusing(SUM, status=status))
    with pytest.raises(headrace.HeadraceError):
        store.write("a", b"b")
    puts = [each for each in s3_server.log() if each["kind"] == "upload"]
    assert all(SUM in {name.lower() for name in each["headers"]} for each in puts)


def test_bytes_that_arrived_wrong_are_no_matter_of_headers(s3_server: FaultServer) -> None:
    retry = headrace.RetryOptions(max_attempts=2, initial_backoff_s=0.001)
    store = open_store(s3_server, retry=retry)
    s3_server.faults([{"match": {"kind": "upload"}, "action": "wrong_checksum"}])
    with pytest.raises(headrace.HeadraceError):
        store.write("a", b"b")
    puts = [each for each in s3_server.log() if each["kind"] == "upload"]
    assert all(SUM in {name.lower() for name in each["headers"]} for each in puts)


def test_a_checksum_that_is_called_invalid_is_not_left_out(s3_server: FaultServer) -> None:
    store = open_store(s3_server)
    invalid = {"status": 400, "reason": "InvalidDigest", "message": f"The {SUM} is not valid"}
    s3_server.faults([{"match": {"kind": "upload"}, "action": invalid}])
    with pytest.raises(headrace.HeadraceError, match="InvalidDigest"):
        store.write("a", b"b")
    puts = [each for each in s3_server.log() if each["kind"] == "upload"]
    assert all(SUM in {name.lower() for name in each["headers"]} for each in puts)


def test_a_header_that_was_taken_is_not_blamed_for_a_bad_request(s3_server: FaultServer) -> None:
    store = open_store(s3_server)
    store.write("a", b"b")
    s3_server.faults([{"match": {"kind": "upload"}, "action": {"status": 400}}])
    with pytest.raises(headrace.InvalidArgumentError):
        store.write("a", b"b")
    assert len(refused(s3_server)) == 1


def test_what_one_bucket_refuses_is_sent_to_another(s3_server: FaultServer) -> None:
    first = open_store(s3_server)
    s3_server.bucket("other")
    s3_server.put("bucket", "a", b"1")
    s3_server.put("other", "a", b"1")
    s3_server.faults(refusing(MODE, path_contains="/bucket/"))
    assert first.read("a").bytes() == b"1"
    other = Store("s3://other", endpoint=s3_server.url, credentials=S3_KEYS)
    assert other.read("a").bytes() == b"1"
    [read] = [each for each in s3_server.log() if "/other/" in each["target"]]
    assert MODE in {name.lower() for name in read["headers"]}
