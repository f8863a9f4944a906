"""Renames, which AIStore carries out as a copy and a removal, without conditions."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster
from tests.ais.conftest import Open
from tests.faults.conftest import FAST

DATA = bytes(i * 11 % 253 for i in range(100_000))


def by_kind(server: FaultServer) -> dict[str, int]:
    """What has succeeded."""
    done = [line["kind"] for line in server.log() if line["status"] in (200, 206)]
    return {kind: done.count(kind) for kind in ("get", "media", "upload", "rename", "delete")}


def statuses(server: FaultServer, status: int) -> list[dict[str, Any]]:
    return [line for line in server.log() if line["status"] == status]


@pytest.mark.parametrize("personality", ["A", "B"])
def test_it_is_one_request_and_a_look_at_the_source_before_and_at_both_after(
    ais_server: FaultServer, open_store: Open, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    ais_server.put("bucket", "source", DATA)
    moved = open_store().rename("source", "d/target")
    assert by_kind(ais_server) == {"get": 2, "media": 0, "upload": 0, "rename": 1, "delete": 0}
    assert len(statuses(ais_server, 404)) == 1  # the source is gone
    assert ais_server.names("bucket") == ["d/target"]
    assert ais_server.get("bucket", "d/target") == DATA
    assert moved == open_store().stat("d/target")


def test_a_condition_is_one_look_more(ais_server: FaultServer, open_store: Open) -> None:
    ais_server.put("bucket", "source", DATA)
    open_store().rename("source", "target", if_generation="absent")
    assert by_kind(ais_server)["get"] == 2
    assert len(statuses(ais_server, 404)) == 2
    assert ais_server.names("bucket") == ["target"]


@pytest.mark.parametrize("personality", ["A", "B"])
@pytest.mark.parametrize("node", [0, "target"], ids=["proxy", "target"])
@pytest.mark.parametrize("action", ["lost_answer", "reset", {"status": 503}], ids=str)
@pytest.mark.parametrize("before", [None, DATA, b"other"], ids=["free", "equal", "other"])
def test_whatever_fails_once_it_is_renamed(
    ais_server: FaultServer,
    open_store: Open,
    personality: str,
    node: Any,
    action: Any,
    before: bytes | None,
) -> None:
    ais_server.cluster(personality=personality)
    ais_server.put("bucket", "source", DATA)
    if before is not None:
        ais_server.put("bucket", "target", before)
    ais_server.faults([{"match": {"kind": "rename", "node": node}, "count": 1, "action": action}])
    store = open_store(retry=FAST)
    there = store.stat("target", missing_ok=True)
    condition = "absent" if there is None else there.generation
    moved = store.rename("source", "target", if_generation=condition)
    assert ais_server.fault_counts()[0]["fired"] == 1
    # Also if the same bytes were there before.
    assert ais_server.names("bucket") == ["target"]
    assert ais_server.get("bucket", "target") == DATA
    assert moved.size_bytes == len(DATA)


def test_what_comes_to_the_target_meanwhile_is_not_replaced_by_a_repeated_request(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.put("bucket", "source", DATA)
    ais_server.faults(
        [{"match": {"kind": "rename", "node": "target"}, "count": 1, "action": "stall_head"}]
    )
    store = open_store(retry=FAST)
    other = open_store()

    def write_when_sent() -> None:
        while not ais_server.fault_counts()[0]["fired"]:
            pass
        other.write("target", b"other")
        ais_server.release()  # a reset; nothing was renamed

    writer = threading.Thread(target=write_when_sent)
    writer.start()
    with pytest.raises(headrace.PreconditionFailedError, match="exists already"):
        store.rename("source", "target", if_generation="absent")
    writer.join()
    assert ais_server.names("bucket") == ["source", "target"]
    assert ais_server.get("bucket", "target") == b"other"


def test_a_source_that_is_removed_before_the_request_is_not_found(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.put("bucket", "source", DATA)
    # A server of 3.23 that has to send the object elsewhere answers 200 all the same.
    ais_server.faults(
        [
            {"match": {"kind": "rename", "node": "target"}, "action": {"status": 200, "body": ""}},
            {
                "match": {"kind": "get", "node": "target", "path_contains": "source"},
                "from": 2,
                "action": {"status": 404},
            },
        ]
    )
    with pytest.raises(headrace.NotFoundError) as caught:
        open_store().rename("source", "target")
    assert caught.value.url == "ais://bucket/source"


# A server that answers 200, and does nothing.
ONLY_SAYS_SO = {
    "match": {"kind": "rename", "node": "target"},
    "action": {"status": 200, "body": ""},
}


@pytest.mark.parametrize(("checksum", "there"), [("xxhash", DATA), ("none", DATA[::-1])])
def test_a_rename_that_was_not_made_is_no_success_whatever_is_at_the_target(
    ais_server: FaultServer, open_store: Open, checksum: str, there: bytes
) -> None:
    store = open_store()
    ais_server.bucket("bucket", checksum=checksum)
    ais_server.put("bucket", "source", DATA)
    ais_server.put("bucket", "target", there)
    ais_server.faults([ONLY_SAYS_SO])
    with pytest.raises(headrace.UnavailableError, match="it is still there") as caught:
        store.rename("source", "target")
    assert caught.value.url == "ais://bucket/source"
    assert "ais://bucket/target" in str(caught.value)
    assert by_kind(ais_server)["rename"] == 1
    assert ais_server.get("bucket", "source") == DATA
    assert ais_server.get("bucket", "target") == there


def test_a_rename_that_is_never_made_ends(ais_server: FaultServer, open_store: Open) -> None:
    ais_server.put("bucket", "source", DATA)
    ais_server.faults([ONLY_SAYS_SO])
    with pytest.raises(headrace.UnavailableError, match="nothing is there") as caught:
        open_store().rename("source", "target")
    assert caught.value.url == "ais://bucket/target"
    assert by_kind(ais_server)["rename"] == 3
    assert ais_server.names("bucket") == ["source"]


@pytest.mark.parametrize("personality", ["A", "B"])
def test_a_target_that_is_missing_for_a_moment_after_a_lost_answer_is_found(
    ais_server: FaultServer, open_store: Open, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    ais_server.put("bucket", "source", DATA)
    looks = {"kind": "get", "node": "target", "path_contains": "target"}
    lost = {"lost_answer": True}
    ais_server.faults(
        [
            {"match": {"kind": "rename", "node": "target"}, "count": 1, "action": lost},
            {"match": looks, "count": 1, "action": {"status": 404}},
        ]
    )
    moved = open_store(retry=FAST).rename("source", "target")
    assert [fault["fired"] for fault in ais_server.fault_counts()] == [1, 1]
    assert moved.size_bytes == len(DATA)
    assert ais_server.names("bucket") == ["target"]


def test_only_a_target_that_keeps_its_type_is_described(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(personality="A")
    store = open_store()
    for i in range(8):
        store.write(f"source{i}", DATA, content_type="text/plain")
        store.write(f"target{i}", b"", content_type="text/html", content_encoding="gzip")
        before = len(ais_server.log())
        moved = store.rename(f"source{i}", f"target{i}")
        assert (moved.content_type, moved.content_encoding) == ("text/plain", "")
        assert store.stat(f"target{i}").content_encoding == ""
        patches = [line for line in ais_server.log()[before:] if line["method"] == "PATCH"]
        assert [line["status"] for line in patches] in ([], [307, 200])
    done = [line for line in statuses(ais_server, 200) if line["method"] == "PATCH"]
    assert 0 < len(done) < 8


def test_an_encoded_object_never_appears_without_its_encoding(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(personality="A")
    store = open_store()
    store.exists("nothing")
    for i in range(8):
        store.write(f"source{i}", DATA, content_encoding="gzip")
        store.rename(f"source{i}", f"target{i}")
        assert store.stat(f"target{i}").content_encoding == "gzip"
    assert not [line for line in ais_server.log() if line["method"] == "PATCH"]
    done = by_kind(ais_server)
    assert 0 < done["rename"] < 8
    assert done["rename"] + done["delete"] == 8


def test_a_type_that_cannot_be_set_is_an_error_that_says_what_is_there(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(personality="A")
    store = open_store()
    ais_server.faults([{"match": {"method": "PATCH"}, "action": {"status": 403, "message": "no"}}])
    told = []
    for i in range(20):  # some of these pairs lie on two targets
        store.write(f"source{i}", DATA)
        store.write(f"target{i}", b"", content_type="text/html")
        try:
            store.rename(f"source{i}", f"target{i}")
        except headrace.PermissionDeniedError as error:
            told.append(str(error))
    assert told
    assert all("it is there, but its content type" in text for text in told)


@pytest.mark.parametrize("name", ["a#b", "a?b=1", "100%"])
def test_a_name_that_older_servers_cut_off_is_copied_and_removed(
    ais_server: FaultServer, open_store: Open, name: str
) -> None:
    ais_server.cluster(personality="A")
    ais_server.put("bucket", "source", DATA)
    open_store(direct=False).rename("source", name)
    done = by_kind(ais_server)
    assert (done["rename"], done["media"], done["upload"], done["delete"]) == (0, 1, 1, 1)
    assert ais_server.names("bucket") == [name]
    assert ais_server.get("bucket", name) == DATA


def test_objects_of_other_services_are_copied_and_removed(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.bucket("aws://cloud")
    ais_server.put("aws://cloud", "source", DATA)
    open_store("ais+s3://cloud", direct=False).rename("source", "target")
    assert by_kind(ais_server)["rename"] == 0
    assert ais_server.names("aws://cloud") == ["target"]


def test_on_a_cluster_an_object_moves_to_the_target_of_its_new_name(
    ais_cluster_of_three: AistoreCluster, ais_bucket_of_three: str
) -> None:
    store = headrace.Store(f"ais://{ais_bucket_of_three}", endpoint=ais_cluster_of_three.url)
    names = [f"from/{i}" for i in range(12)]
    for i, name in enumerate(names):
        store.write(name, DATA[: 1000 * i], content_type="text/plain")
    for i, name in enumerate(names):
        moved = store.rename(name, f"to/{i}", if_generation="absent")
        assert moved.size_bytes == 1000 * i
        assert moved.content_type == "text/plain"
    assert [info.name for info in store.list()] == sorted(f"to/{i}" for i in range(12))
    for i in range(12):
        assert store.read(f"to/{i}").bytes() == DATA[: 1000 * i]
    with pytest.raises(headrace.NotFoundError):
        store.rename("from/0", "to/99")
