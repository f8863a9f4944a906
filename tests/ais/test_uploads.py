"""Large objects: multipart uploads where the server has them, streams where it does not."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import torch

import headrace
import headrace.checkpoint
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster
from tests.faults.conftest import FAST

PART = 1 << 16
DATA = bytes(i * 11 % 253 for i in range(5 * PART + 17))


@pytest.mark.parametrize("personality", ["A", "B"])
def test_what_is_written_in_parts_replaces_what_was_there(
    ais_server: FaultServer, store: headrace.Store, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    store.write("o", b"before")
    for data in (DATA, DATA[::-1]):
        writer = store.open_writer("o", part_bytes=PART)
        writer.write(data)
        info = writer.close()
        assert ais_server.get("bucket", "o") == data
        assert info.generation == store.stat("o").generation
        assert store.read(info).bytes() == data
    assert ais_server.names("bucket") == ["o"]


def test_the_kind_of_upload_is_found_out_once(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    ais_server.cluster(personality="A")
    for i in range(3):
        writer = store.open_writer(f"o{i}", part_bytes=PART)
        writer.write(DATA)
        writer.close()
    refused = [line for line in ais_server.log() if line["status"] == 400]
    assert len([line for line in refused if line["method"] == "POST"]) == 1


def test_a_piece_whose_answer_is_lost_is_not_sent_twice(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    ais_server.cluster(personality="A")
    store.write("o", b"before")
    ais_server.faults(
        [
            {
                "match": {"kind": "append", "node": "target"},
                "from": 3,
                "count": 1,
                "action": {"lost_answer": True},
            }
        ]
    )

    def write() -> None:
        writer = store.open_writer("o", part_bytes=PART)
        writer.write(DATA)
        writer.close()

    with pytest.raises(headrace.UnavailableError, match="written again"):
        write()
    assert ais_server.get("bucket", "o") == b"before"


def write_in_parts(store: headrace.Store, name: str) -> None:
    with store.open_writer(name, part_bytes=PART) as writer:
        writer.write(DATA)


@pytest.mark.parametrize(
    ("match", "action"),
    [
        ({"kind": "append", "node": 0}, {"status": 503}),
        ({"kind": "append", "node": 0}, {"reset": True}),
        ({"target_contains": "append_type=flush", "node": 0}, {"status": 503}),
        ({"target_contains": "append_type=flush", "node": "target"}, {"lost_answer": True}),
    ],
)
def test_what_surely_was_not_applied_or_does_no_harm_is_sent_again(
    ais_server: FaultServer, open_store: Any, match: dict[str, Any], action: dict[str, Any]
) -> None:
    ais_server.cluster(personality="A")
    store = open_store(retry=FAST)
    ais_server.faults([{"match": match, "from": 1, "count": 1, "action": action}])
    write_in_parts(store, "o")
    assert ais_server.get("bucket", "o") == DATA
    assert ais_server.names("bucket") == ["o"]


def test_one_odd_refusal_does_not_end_multipart_uploads(
    ais_server: FaultServer, open_store: Any
) -> None:
    odd = {"status": 400, "message": "bucket quota is odd"}
    ais_server.faults([{"match": {"kind": "rename", "node": 0}, "count": 1, "action": odd}])
    store = open_store(direct=False)
    for name in ("a", "b"):
        write_in_parts(store, name)
        assert ais_server.get("bucket", name) == DATA
    done = {line["kind"] for line in ais_server.log() if line["status"] == 200}
    assert {"append", "multipart_complete"} <= done


def test_an_upload_that_waits_for_the_map_can_be_aborted(
    ais_server: FaultServer, open_store: Any
) -> None:
    ais_server.cluster(personality="A")
    ais_server.faults([{"match": {"kind": "smap"}, "action": {"stall_head": True}}])
    # Without an abort that reaches the wait, this takes as long.
    long = headrace.TimeoutOptions(total_s=200, first_byte_s=200)
    writer = open_store(timeout=long).open_writer("o", part_bytes=PART)
    writer.write(DATA)
    writer.abort()
    headrace.shutdown()
    assert ais_server.names("bucket") == []


def test_an_upload_without_a_map_says_why(ais_server: FaultServer, open_store: Any) -> None:
    ais_server.cluster(personality="A")
    ais_server.faults([{"match": {"kind": "smap"}, "action": {"status": 403}}])
    with pytest.raises(headrace.PermissionDeniedError, match=r"map of the cluster.*403"):
        write_in_parts(open_store(retry=FAST), "o")


def test_a_copy_where_nothing_tells_generations_is_read_at_once(
    ais_server: FaultServer, open_store: Any
) -> None:
    ais_server.bucket("bucket", checksum="none")
    store = open_store()
    data = (DATA * 100)[: 30 << 20]
    ais_server.put("bucket", "a", data)
    assert store.copy("a", "b").size_bytes == len(data)
    assert ais_server.get("bucket", "b") == data
    reads = [e for e in ais_server.log() if e["kind"] == "media" and e["status"] in (200, 206)]
    assert len(reads) == 2  # The first has found that nothing is told.


@pytest.mark.parametrize("generation", [False, True])
def test_a_write_of_what_is_there_is_told_as_it_is(
    ais_server: FaultServer, store: headrace.Store, generation: bool
) -> None:
    ais_server.bucket("bucket", checksum="crc32c")
    first = store.write("o", DATA)
    again = store.write("o", DATA, if_generation=first.generation if generation else None)
    assert again.generation == first.generation == store.stat("o").generation


class WebServer(BaseHTTPRequestHandler):
    """Answers everything with the same page."""

    protocol_version = "HTTP/1.1"  # so that it lets a request continue, whose body it reads first

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"hello")

    do_HEAD = do_PUT = do_GET  # noqa: N815


def test_an_endpoint_that_is_no_aistore_is_an_error() -> None:
    # One thread a connection: else the second waits until the first is closed as idle.
    with ThreadingHTTPServer(("127.0.0.1", 0), WebServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            store = headrace.Store("ais://bucket", endpoint=url)
            for call in (
                lambda: store.read("x"),
                lambda: store.exists("x"),
                lambda: store.write("x", b"1"),
            ):
                with pytest.raises(ValueError, match="is the endpoint an AIStore proxy"):
                    call()
        finally:
            headrace.shutdown()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("", r"but 0 bytes"),
        ("<html>Log in</html>", r"but 19 bytes: <html>Log in</html>"),
        ("x\r\n", r"but 3 bytes: x"),
        ("x" * 3000, r"but 3000 bytes: x{100}"),
    ],
)
def test_an_upload_that_is_given_no_usable_id_is_an_error(
    ais_server: FaultServer, open_store: Any, answer: str, told: str
) -> None:
    start = {"match": {"kind": "rename"}, "action": {"status": 200, "body": answer}}
    ais_server.faults([start])
    with pytest.raises(headrace.CorruptDataError, match="no usable upload id, " + told):
        write_in_parts(open_store(), "o")
    assert ais_server.names("bucket") == []


@pytest.mark.parametrize("personality", ["A", "B"])
def test_an_abort_leaves_nothing(
    ais_server: FaultServer, store: headrace.Store, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    store.write("o", b"before")
    writer = store.open_writer("o", part_bytes=PART)
    writer.write(DATA)
    writer.abort()
    headrace.shutdown()
    assert ais_server.get("bucket", "o") == b"before"
    assert ais_server.names("bucket") == ["o"]


@pytest.mark.parametrize("size_bytes", [0, 1, 40 << 20])
def test_a_copy_passes_through_and_is_verified(
    ais_server: FaultServer, store: headrace.Store, size_bytes: int
) -> None:
    data = (DATA * (size_bytes // len(DATA) + 1))[:size_bytes]
    store.write("a %+#?é", data, content_type="text/plain")
    copy = store.copy("a %+#?é", "b")
    assert (copy.name, copy.size_bytes) == ("b", size_bytes)
    assert ais_server.get("bucket", "b") == data
    with pytest.raises(headrace.PreconditionFailedError):
        store.copy("b", "a %+#?é", if_generation="absent")


@pytest.mark.parametrize("size_bytes", [1000, 40 << 20])
@pytest.mark.parametrize(
    "options",
    [
        {"content_encoding": "decompress"},
        {"provider": headrace.AisOptions(etl_name="upper")},
    ],
    ids=["decompress", "etl"],
)
@pytest.mark.parametrize("url", ["ais://bucket", "ais://bucket/below"])
def test_what_passes_through_is_what_is_stored(
    ais_server: FaultServer, open_store: Any, url: str, options: dict[str, Any], size_bytes: int
) -> None:
    data = (DATA * (size_bytes // len(DATA) + 1))[:size_bytes]
    root = url.removeprefix("ais://bucket").removeprefix("/")
    below = f"{root}/" if root else ""
    plain = open_store(url)
    plain.write("source", data, content_type="text/plain", content_encoding="gzip")
    plain.write("target", b"valuable")
    store = open_store(url, **options)
    copy = store.copy("source", "target")
    assert (copy.name, copy.size_bytes, copy.content_encoding) == ("target", size_bytes, "gzip")
    assert ais_server.get("bucket", f"{below}target") == data
    moved = store.rename("source", "100%")
    assert (moved.name, moved.size_bytes, moved.content_encoding) == ("100%", size_bytes, "gzip")
    assert ais_server.get("bucket", f"{below}100%") == data
    assert not plain.exists("source")


@pytest.mark.parametrize("personality", ["A", "B"])
def test_type_and_encoding_of_what_is_written_in_parts_are_kept(
    ais_server: FaultServer, store: headrace.Store, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    store.write("o", b"before", content_type="text/before", content_encoding="gzip")
    with store.open_writer("o", part_bytes=PART, content_type="text/plain") as writer:
        writer.write(DATA)
    info = writer.close()
    assert (info.content_type, info.content_encoding) == ("text/plain", "")
    found = store.stat("o")
    assert (found.content_type, found.content_encoding) == ("text/plain", "")
    assert found.generation == info.generation
    assert [e["status"] for e in ais_server.log() if e["method"] == "PATCH"] == [307, 200]


@pytest.mark.parametrize("personality", ["A", "B"])
def test_what_is_written_in_parts_without_a_type_costs_no_more(
    ais_server: FaultServer, store: headrace.Store, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    write_in_parts(store, "o")
    assert not [e for e in ais_server.log() if e["method"] == "PATCH"]


@pytest.mark.parametrize("personality", ["A", "B"])
def test_what_replaces_a_typed_object_in_parts_is_described_where_it_has_to_be(
    ais_server: FaultServer, store: headrace.Store, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    store.write("o", b"before", content_type="text/before", content_encoding="gzip")
    for _ in range(2):
        write_in_parts(store, "o")
        found = store.stat("o")
        assert (found.content_type, found.content_encoding) == ("", "")
    patches = [e["status"] for e in ais_server.log() if e["method"] == "PATCH"]
    assert patches in ([], [307, 200])


def all_requests(server: FaultServer) -> dict[str, dict[str, int]]:
    """How many requests of each kind the proxy has sent on, and targets have carried out."""
    found: dict[str, dict[str, int]] = {"sent on": {}, "carried out": {}}
    for line in server.log():
        if line["kind"] != "smap":
            assert line["status"] in (200, 307)
            kinds = found["sent on" if line["status"] == 307 else "carried out"]
            kinds[line["kind"]] = kinds.get(line["kind"], 0) + 1
    return found


@pytest.mark.parametrize("content_type", [None, "text/plain"])
def test_a_multipart_upload_is_its_parts_and_a_start_an_end_a_look_and_its_description(
    ais_server: FaultServer, store: headrace.Store, content_type: str | None
) -> None:
    ais_server.cluster(personality="B")
    with store.open_writer("o", part_bytes=PART, content_type=content_type) as writer:
        writer.write(DATA)
    once = {"rename": 1, "multipart_part": 6, "multipart_complete": 1, "get": 1}
    if content_type is not None:
        once["patch"] = 1
    assert all_requests(ais_server) == {"sent on": once, "carried out": once}
    proxy = ais_server.stats()["by_node"][0]
    assert proxy["body_bytes_in"] < PART, "commands, and no bytes of the object"


def test_a_checkpoint_is_saved_by_as_many_requests(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    ais_server.cluster(personality="B")
    state = {f"layer.{i}": torch.zeros(1 << 20) for i in range(12)}
    headrace.checkpoint.save(state, "ais://bucket/a.pt", store=store)
    # 48 MiB and a bit, in parts of 16 MiB; a checkpoint has a content type.
    once = {"rename": 1, "multipart_part": 4, "multipart_complete": 1, "get": 1, "patch": 1}
    assert all_requests(ais_server) == {"sent on": once, "carried out": once}
    loaded = headrace.checkpoint.load("ais://bucket/a.pt", store=store)
    assert loaded.keys() == state.keys()


def test_a_type_that_cannot_be_set_is_an_error_that_says_what_is_there(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    refuse = {"status": 403, "message": "no"}
    ais_server.faults([{"match": {"method": "PATCH"}, "action": refuse}])
    writer = store.open_writer("o", part_bytes=PART, content_type="text/plain")
    writer.write(DATA)
    with pytest.raises(
        headrace.PermissionDeniedError, match="it was written, but its content type"
    ):
        writer.close()
    assert ais_server.get("bucket", "o") == DATA


def test_a_stream_whose_type_cannot_be_set_leaves_what_was_there(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    ais_server.cluster(personality="A")
    store.write("o", b"before")
    refuse = {"status": 403, "message": "no"}
    ais_server.faults([{"match": {"method": "PATCH"}, "action": refuse}])
    writer = store.open_writer("o", part_bytes=PART, content_type="text/plain")
    writer.write(DATA)
    with pytest.raises(headrace.PermissionDeniedError):
        writer.close()
    headrace.shutdown()
    assert ais_server.names("bucket") == ["o"]
    assert ais_server.get("bucket", "o") == b"before"


def test_a_real_cluster_keeps_the_type_and_encoding_of_a_stream(
    ais_cluster_of_three: AistoreCluster,
) -> None:
    bucket = ais_cluster_of_three.make_bucket()
    store = headrace.Store(f"ais://{bucket}", endpoint=ais_cluster_of_three.url)
    for name in ("a", "b c#%"):
        with store.open_writer(
            name, part_bytes=PART, content_type="text/plain", content_encoding="gzip"
        ) as writer:
            writer.write(DATA)
        info = store.stat(name)
        assert (info.content_type, info.content_encoding) == ("text/plain", "gzip")
        assert store.read(name).bytes() == DATA
