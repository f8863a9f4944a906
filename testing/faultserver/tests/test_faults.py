"""Each way of misbehaving, seen from a socket."""

from __future__ import annotations

import email.utils
import hashlib
import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testing.faultserver.client import FaultServer
from testing.faultserver.tests.raw import Answer, RawClient, media

DATA = bytes(range(256)) * 400  # 100 KiB
TARGET = media("b", "o")


@pytest.fixture
def client(server: FaultServer) -> Iterator[RawClient]:
    server.put("b", "o", DATA)
    with RawClient(server.host, server.port) as client:
        yield client


def once(action: Any, **rule: Any) -> list[dict[str, Any]]:
    return [{"match": {"kind": "media"}, "count": 1, "action": action, **rule}]


def wait_for(condition: Callable[[], bool]) -> None:
    """Until the server's record says so; only the time limit of the test ends it otherwise."""
    while not condition():
        pass  # Each look is a round trip.


def test_without_rules_the_object_comes_whole(client: RawClient) -> None:
    answer = client.call("GET", TARGET)
    assert (answer.status, answer.body, answer.end) == (200, DATA, "whole")


def test_reset_and_the_log_tells_of_it(server: FaultServer, client: RawClient) -> None:
    server.faults(once("reset"))
    assert client.call("GET", TARGET) == Answer(end="rst")
    with RawClient(server.host, server.port) as second:
        assert second.call("GET", TARGET).body == DATA
    first, after = server.log()
    assert (first["status"], first["end"], first["fault"]) == (0, "reset", 0)
    assert (after["status"], after["end"], after["fault"]) == (200, "done", None)
    assert after["bytes_sent"] == len(DATA)


def test_reset_after_bytes_sends_just_those(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"reset_after_bytes": 1000}))
    answer = client.call("GET", TARGET)
    assert (answer.status, answer.body, answer.end) == (200, DATA[:1000], "rst")
    assert answer.headers["content-length"] == str(len(DATA))


def test_cut_after_bytes_ends_clean(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"cut_after_bytes": 70000}))
    answer = client.call("GET", TARGET)
    assert (answer.body, answer.end) == (DATA[:70000], "fin")


def test_a_stall_lasts_until_release(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"stall_after_bytes": 10}))
    client.send("GET", TARGET)
    assert client.head().status == 200
    while len(client.waiting) < 10:
        assert client.more() == ""
    assert server.log()[0]["t_end_s"] is None
    server.release()
    assert client.more() == "rst"
    assert client.waiting == DATA[:10]
    assert server.log()[0]["end"] == "stalled"


def test_stall_head_answers_nothing(server: FaultServer, client: RawClient) -> None:
    server.faults(once("stall_head"))
    client.send("GET", TARGET)
    wait_for(lambda: server.stats()["in_flight"] == 1)
    assert client.is_silent()
    server.reset(keep_buckets=True)
    assert client.more() == "rst"


def test_a_client_that_leaves_a_stall_is_seen(server: FaultServer, client: RawClient) -> None:
    server.faults(once("stall_head"))
    client.send("GET", TARGET)
    wait_for(lambda: server.stats()["in_flight"] == 1)
    client.socket.close()
    wait_for(lambda: server.stats()["in_flight"] == 0)
    assert server.stats()["connections_client_fin"] == 1
    assert server.log()[0]["end"] == "client_closed"


def test_delay_holds_back_one_answer_and_no_other(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"delay_ms": 3000}))
    client.send("GET", TARGET)
    wait_for(lambda: server.stats()["in_flight"] == 1)
    with RawClient(server.host, server.port) as second:
        assert second.call("GET", TARGET).body == DATA
    assert client.answer().body == DATA
    delayed, quick = server.log()
    assert delayed["t_end_s"] - delayed["t_start_s"] >= 3
    assert delayed["t_end_s"] > quick["t_end_s"]


def test_many_delays_run_side_by_side(server: FaultServer) -> None:
    server.put("b", "o", DATA)
    server.faults([{"match": {"kind": "media"}, "action": {"delay_ms": 3000}}])
    clients = [RawClient(server.host, server.port) for _ in range(100)]
    for one in clients:
        one.send("GET", TARGET)
    for one in clients:
        with one:
            assert one.answer().status == 200
    assert server.stats()["max_in_flight"] == 100


def test_drip_sends_pieces_at_a_pace(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"drip": {"bytes": 20000, "every_ms": 20}}))
    assert client.call("GET", TARGET).body == DATA
    line = server.log()[0]
    assert line["t_end_s"] - line["t_start_s"] >= 0.1  # 102,400 bytes are six pieces


def test_wrong_length_more_than_there_is(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"wrong_length": 5}))
    answer = client.call("GET", TARGET)
    assert answer.headers["content-length"] == str(len(DATA) + 5)
    assert (answer.body, answer.end) == (DATA, "fin")


def test_wrong_length_less_than_there_is(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"wrong_length": -5}))
    answer = client.call("GET", TARGET)
    assert answer.body == DATA[:-5]
    while len(client.waiting) < 5:
        assert client.more() == ""
    assert client.waiting == DATA[-5:]


def test_wrong_checksum_and_none(server: FaultServer, client: RawClient) -> None:
    right = client.call("GET", TARGET).headers["x-goog-hash"]
    server.faults(once("wrong_checksum") + once("no_hash"))
    spoiled = client.call("GET", TARGET)
    assert spoiled.body == DATA
    for said, wrong in zip(
        right.split(","), spoiled.headers["x-goog-hash"].split(","), strict=True
    ):
        assert said.split("=")[0] == wrong.split("=")[0]
        assert said != wrong
    assert "x-goog-hash" not in client.call("GET", TARGET).headers


def test_no_checksum_in_metadata(server: FaultServer, client: RawClient) -> None:
    target = TARGET.split("?")[0]
    for kind, path in [("get", target), ("list", target.rpartition("/")[0])]:
        right = json.loads(client.call("GET", path).body)
        server.faults([{"match": {"kind": kind}, "action": "no_hash"}])
        bare = json.loads(client.call("GET", path).body)
        for said in right.get("items", [right]):
            del said["crc32c"], said["md5Hash"]
        assert bare == right


def test_wrong_checksum_in_metadata(server: FaultServer, client: RawClient) -> None:
    target = TARGET.split("?")[0]
    right = json.loads(client.call("GET", target).body)
    server.faults([{"match": {"kind": "get"}, "action": "wrong_checksum"}])
    wrong = json.loads(client.call("GET", target).body)
    assert {name for name in right if right[name] != wrong[name]} == {"crc32c", "md5Hash"}


@pytest.mark.parametrize("offset", [0, 1, 51200, len(DATA) - 1])
def test_flip_byte_changes_one_byte_only(
    server: FaultServer, client: RawClient, offset: int
) -> None:
    server.faults(once({"flip_byte": offset}))
    answer = client.call("GET", TARGET)
    assert [i for i in range(len(DATA)) if answer.body[i] != DATA[i]] == [offset]
    assert b64encode(hashlib.md5(DATA).digest()).decode() in answer.headers["x-goog-hash"]


def test_flip_byte_in_a_range_and_in_a_made_object(server: FaultServer, client: RawClient) -> None:
    server.synthetic("s", 3, 5000)
    target = media("s", server.names("s")[1])
    right = client.call("GET", target).body
    server.faults(once({"flip_byte": 7}))
    answer = client.call("GET", target, {"Range": "bytes=10-29"})
    assert answer.status == 206
    assert [i for i in range(20) if answer.body[i] != right[10 + i]] == [7]


def test_status_with_a_reason_and_retry_after(server: FaultServer, client: RawClient) -> None:
    action = {"status": 429, "reason": "rateLimitExceeded", "message": "egress", "retry_after_s": 2}
    server.faults(once(action))
    answer = client.call("GET", TARGET)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["message"]) == (429, 429, "egress")
    assert error["errors"][0]["reason"] == "rateLimitExceeded"
    assert answer.headers["retry-after"] == "2"
    assert client.call("GET", TARGET).body == DATA  # on the same connection


def test_retry_after_as_a_date(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"status": 503, "retry_after_date_s": 3600, "body": "busy"}))
    answer = client.call("GET", TARGET)
    then = email.utils.parsedate_to_datetime(answer.headers["retry-after"])
    assert (answer.status, answer.body) == (503, b"busy")
    assert 3500 < then.timestamp() - time.time() < 3700


def test_a_faulty_status_does_nothing_unless_told_to(
    server: FaultServer, client: RawClient
) -> None:
    rule = {"match": {"kind": "delete"}, "count": 1}
    server.faults([{**rule, "action": {"status": 503}}])
    assert client.call("DELETE", TARGET.split("?")[0]).status == 503
    assert server.names("b") == ["o"]
    server.faults([{**rule, "action": {"status": 503, "perform": True}}])
    assert client.call("DELETE", TARGET.split("?")[0]).status == 503
    assert server.names("b") == []


def test_lost_answer_does_the_operation(server: FaultServer, client: RawClient) -> None:
    server.faults([{"match": {"kind": "upload"}, "action": "lost_answer"}])
    target = "/upload/storage/v1/b/b/o?uploadType=media&name=new"
    assert client.call("POST", target, body=b"bytes").end == "rst"
    assert server.get("b", "new") == b"bytes"


def test_close_after_says_so_or_not(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"close_after": True}) + once({"close_after": "announced"}))
    answer = client.call("GET", TARGET)
    assert answer.body == DATA
    assert "connection" not in answer.headers
    assert client.more() == "fin"
    with RawClient(server.host, server.port) as second:
        assert second.call("GET", TARGET).headers["connection"] == "close"
        assert second.more() == "fin"


def test_chunked_bodies_can_be_cut_too(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"chunked": True}) + once({"chunked": True, "cut_after_bytes": 40000}))
    answer = client.call("GET", TARGET)
    assert "content-length" not in answer.headers
    assert (answer.body, answer.end) == (DATA, "whole")
    answer = client.call("GET", TARGET)
    assert answer.end == "fin"
    assert DATA.startswith(answer.body)


def test_garbage_and_huge_heads(server: FaultServer, client: RawClient) -> None:
    server.faults(once({"huge_head": 300000}) + once({"garbage_head": "SSH-2.0-x\r\n"}))
    assert len(client.call("GET", TARGET).headers["x-padding"]) == 300000
    client.send("GET", TARGET)
    while client.more() == "":
        pass
    assert client.waiting == b"SSH-2.0-x\r\n"


def test_wrong_and_ignored_ranges(server: FaultServer, client: RawClient) -> None:
    rules = once("wrong_range") + once({"wrong_range": "bytes 5-9/10"}) + once("ignore_range")
    server.faults(rules)
    ranged = {"Range": "bytes=100-199"}
    shifted = client.call("GET", TARGET, ranged)
    assert shifted.headers["content-range"] == f"bytes 101-200/{len(DATA) + 1}"
    assert client.call("GET", TARGET, ranged).headers["content-range"] == "bytes 5-9/10"
    whole = client.call("GET", TARGET, ranged)
    assert (whole.status, whole.body) == (200, DATA)


def test_the_object_changes_between_two_reads(server: FaultServer, client: RawClient) -> None:
    server.faults(once("old_generation_then_new"))
    old = client.call("GET", TARGET, {"Range": "bytes=0-9"})
    new = client.call("GET", TARGET, {"Range": "bytes=10-19"})
    assert old.body == DATA[:10]
    assert new.body == bytes(255 - byte for byte in DATA[10:20])
    assert int(new.headers["x-goog-generation"]) > int(old.headers["x-goog-generation"])
    pinned = TARGET + "&generation=" + old.headers["x-goog-generation"]
    assert client.call("GET", pinned).status == 404


def test_refused_connections(server: FaultServer) -> None:
    server.put("b", "o", DATA)
    server.faults([{"action": "refuse", "count": 2}])
    for _ in range(2):
        try:
            with RawClient(server.host, server.port) as client:
                assert client.more() == "rst"
        except ConnectionResetError:
            pass  # The reset may be there before connect() has returned.
    with RawClient(server.host, server.port) as client:
        assert client.call("GET", TARGET).body == DATA
    stats = server.stats()
    assert stats["connections_closed_by"]["refused"] == 2
    assert stats["connections_opened"] == 1


def test_an_early_answer_does_not_wait_for_the_body(server: FaultServer, client: RawClient) -> None:
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 413, "early": True}}])
    target = "/upload/storage/v1/b/b/o?uploadType=media&name=new"
    client.send("POST", target, {"Content-Length": "1000000"})
    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert server.names("b") == ["o"]


def test_a_cut_upload_keeps_whole_units(server: FaultServer, client: RawClient) -> None:
    start = client.call("POST", "/upload/storage/v1/b/b/o?uploadType=resumable&name=big")
    session = start.headers["location"].removeprefix("http://test")
    server.faults(
        [
            {
                "match": {"kind": "resumable_put"},
                "count": 1,
                "action": {"cut_request_after_bytes": 600000},
            }
        ]
    )
    data = bytes(1000000)
    assert client.call("PUT", session, body=data).end == "rst"
    with RawClient(server.host, server.port) as second:
        asked = second.call("PUT", session, {"Content-Range": "bytes */1000000"})
        assert (asked.status, asked.headers["range"]) == (308, "bytes=0-524287")
        rest = second.call(
            "PUT", session, {"Content-Range": "bytes 524288-999999/1000000"}, data[524288:]
        )
        assert rest.status == 200
    assert server.get("b", "big") == data


def test_from_count_every_and_fraction(server: FaultServer, client: RawClient) -> None:
    def statuses(rule: dict[str, Any], requests: int) -> list[int]:
        server.faults([{"match": {"kind": "media"}, "action": {"status": 503}, **rule}])
        return [client.call("GET", TARGET, {"Range": "bytes=0-0"}).status for _ in range(requests)]

    assert statuses({"from": 2, "count": 2}, 5) == [206, 503, 503, 206, 206]
    assert statuses({"every": 3}, 6) == [206, 206, 503, 206, 206, 503]
    drawn = statuses({"fraction": 0.3, "seed": 5}, 200)
    assert drawn == statuses({"fraction": 0.3, "seed": 5}, 200)
    assert 30 < drawn.count(503) < 90
    assert server.fault_counts() == [{"matched": 200, "fired": drawn.count(503)}]


def test_matchers(server: FaultServer, client: RawClient) -> None:
    server.put("b", "dir/other", b"x")
    server.faults(
        [
            {"match": {"path_contains": "dir/other", "method": "GET"}, "action": {"status": 500}},
            {
                "match": {"header": {"name": "X-Test-Client", "contains": "two"}},
                "action": {"status": 502},
            },
            {"match": {"kind": ["get", "list"], "has_range": False}, "action": {"status": 504}},
        ]
    )
    assert client.call("GET", media("b", "dir/other")).status == 500
    assert client.call("HEAD", media("b", "dir/other")).status == 200
    assert client.call("GET", TARGET, {"X-Test-Client": "number two"}).status == 502
    assert client.call("GET", "/storage/v1/b/b/o").status == 504
    assert client.call("GET", TARGET).status == 200


def test_a_part_of_a_path_is_not_looked_for_in_the_query(
    server: FaultServer, client: RawClient
) -> None:
    """A generation contains every short number sooner or later."""
    server.put("b", "o", b"x")
    server.faults([{"match": {"path_contains": "0009"}, "action": {"status": 500}}])
    assert client.call("GET", media("b", "o") + "&prefix=0009").status == 200
    server.faults([{"match": {"target_contains": "prefix=0009"}, "action": {"status": 500}}])
    assert client.call("GET", media("b", "o") + "&prefix=0009").status == 500


def test_a_wrong_rule_is_refused_with_a_sentence(server: FaultServer) -> None:
    with pytest.raises(ValueError, match="no such action: explode"):
        server.faults([{"action": "explode"}])
    with pytest.raises(ValueError, match="no such matcher: colour"):
        server.faults([{"match": {"colour": "red"}, "action": "reset"}])


def test_closing_idle_connections(server: FaultServer, client: RawClient) -> None:
    assert client.call("GET", TARGET).status == 200
    server.close_connections("fin")
    assert client.more() == "fin"
    with RawClient(server.host, server.port) as second:
        assert second.call("GET", TARGET).status == 200
        server.close_connections("rst")
        assert second.more() == "rst"
