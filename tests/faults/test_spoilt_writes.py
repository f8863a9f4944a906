"""What arrives as other bytes than were sent is sent again, by every way of writing."""

from __future__ import annotations

from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer

PART = 5 << 20
DATA = bytes(range(256)) * (2 * PART // 256) + b"the last part"


def spoils(kind: str, *, count: int, **match: Any) -> list[dict[str, Any]]:
    rule = {"match": {"kind": kind, **match}, "count": count, "action": {"flip_sent_byte": 9_000}}
    return [rule]


@pytest.mark.parametrize(("way", "kind"), [("parts", "upload"), ("multipart", "multipart_part")])
def test_a_part_that_arrived_spoilt_is_sent_again(way: Any, kind: str) -> None:
    with FaultServer() as server:
        server.bucket("bucket")
        store = headrace.Store("gs://bucket", endpoint=server.url)
        server.faults(spoils(kind, count=1))
        writer = store.open_writer("a", part_bytes=PART, upload=way)
        writer.write(DATA)
        writer.close()
        assert server.get("bucket", "a") == DATA
        statuses = [entry["status"] for entry in server.log() if entry["kind"] == kind]
        assert sorted(statuses) == [200, 200, 200, 400]
        assert server.names("bucket") == ["a"]


@pytest.mark.parametrize(("dialect", "match"), [("gcs", {}), ("ais", {"node": "target"})])
def test_a_write_by_one_request_that_arrived_spoilt_is_sent_again_once(
    dialect: str, match: dict[str, Any]
) -> None:
    with FaultServer(dialect=dialect) as server:
        server.bucket("bucket")
        url = {"gcs": "gs://bucket", "ais": "ais://bucket"}[dialect]
        store = headrace.Store(url, endpoint=server.url)
        server.faults(spoils("upload", count=1, **match))
        store.write("a", DATA)
        assert server.get("bucket", "a") == DATA
        server.faults(spoils("upload", count=99, **match))
        with pytest.raises(headrace.CorruptDataError, match="2 attempts"):
            store.write("b", DATA)
        statuses = [entry["status"] for entry in server.log() if entry["fault"] is not None]
        assert len(statuses) == 3
        assert all(status >= 400 for status in statuses)
        assert server.names("bucket") == ["a"]
