"""The AIStore dialect seen from a socket: nodes that come and go, GetBatch, and the faults."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from testing.faultserver.client import FaultServer
from testing.faultserver.tests.raw import Answer, RawClient

DATA = bytes(range(256)) * 40
TARGETS = (1, 2, 3)


@pytest.fixture(scope="module")
def running() -> Iterator[FaultServer]:
    with FaultServer(dialect="ais", targets=3) as server:
        yield server


@pytest.fixture
def server(running: FaultServer) -> FaultServer:
    running.reset()
    running.bucket("b")
    return running


def port(server: FaultServer, node: int) -> int:
    return int(server.nodes()[node]["url"].rpartition(":")[2])


def call(
    server: FaultServer,
    node: int,
    method: str,
    target: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Answer:
    with RawClient(server.host, port(server, node)) as client:
        return client.call(method, target, headers, body)


def node_of(server: FaultServer, answer: Answer) -> int:
    """The node that an answer redirects to."""
    where = urlsplit(answer.headers["location"]).port
    return [urlsplit(node["url"]).port for node in server.nodes()].index(where)


def target_of(name: str) -> str:
    return f"/v1/objects/b/{quote(name)}?provider=ais"


def through(
    server: FaultServer,
    method: str,
    target: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Answer:
    """As a client does it: the proxy first, and the body for the target alone."""
    sent_to_proxy = b"" if method == "PUT" else body
    told = call(server, 0, method, target, sent_to_proxy, headers)
    if told.status not in (301, 307):
        return told
    where = urlsplit(told.headers["location"])
    return call(server, node_of(server, told), method, f"{where.path}?{where.query}", body, headers)


def owner_of(server: FaultServer, name: str) -> int:
    return node_of(server, call(server, 0, "HEAD", target_of(name)))


def names_by_owner(server: FaultServer, count: int = 60) -> dict[int, list[str]]:
    out: dict[int, list[str]] = {k: [] for k in TARGETS}
    for i in range(count):
        out[owner_of(server, f"{i:03d}")].append(f"{i:03d}")
    return out


# Nodes.


def test_each_object_is_at_one_target_and_nowhere_else(server: FaultServer) -> None:
    names = names_by_owner(server)
    assert all(len(names[k]) > 5 for k in TARGETS)
    for k in TARGETS:
        server.put("b", names[k][0], DATA)
        for node in TARGETS:
            told = call(server, node, "GET", target_of(names[k][0]))
            assert told.status == (200 if node == k else 404)
            assert told.body == DATA if node == k else b'"tcode":"ErrNotFound"' in told.body


def test_a_write_goes_to_the_target_and_the_proxy_sees_none_of_its_body(
    server: FaultServer,
) -> None:
    assert through(server, "PUT", target_of("a"), DATA).status == 200
    assert server.get("b", "a") == DATA
    nodes = server.stats()["by_node"]
    assert nodes[0] == {
        **{"requests": 1, "body_bytes_in": 0},
        **{"body_bytes_unread": 0, "body_bytes_out": 0},
    }
    assert nodes[owner_of(server, "a")]["body_bytes_in"] == len(DATA)
    assert [(line["node"], line["kind"]) for line in server.log()][:2] == [
        (0, "upload"),
        (owner_of(server, "a"), "upload"),
    ]


@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_bytes_that_reach_the_proxy_are_counted(server: FaultServer, size: int) -> None:
    assert call(server, 0, "PUT", target_of("a"), bytes(size)).status == 307
    told = server.stats()["by_node"][0]
    # A large body is not waited for: the proxy answers, and throws away what comes.
    assert (told["body_bytes_in"] == size) is (size < 256 << 10)
    assert (told["body_bytes_unread"] > 0) is (size >= 256 << 10)


def test_a_target_that_is_down_refuses_and_resets_and_comes_back(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    k = owner_of(server, "a")
    with RawClient(server.host, port(server, k)) as client:
        assert client.call("GET", target_of("a")).status == 200
        server.node(k, up=False)
        assert client.answer().end in ("rst", "fin")
    with pytest.raises(ConnectionRefusedError):
        RawClient(server.host, port(server, k))
    assert owner_of(server, "a") == k  # The map still has it.
    server.node(k, up=True)
    assert call(server, k, "GET", target_of("a")).body == DATA


def test_a_target_that_left_takes_its_objects_along_until_the_cluster_is_rebalanced(
    server: FaultServer,
) -> None:
    names = names_by_owner(server)
    for each in (name for some in names.values() for name in some):
        server.put("b", each, each.encode())
    version = int(json.loads(call(server, 0, "GET", "/v1/daemon?what=smap").body)["version"])
    server.node(2, in_map=False, up=False)
    told = json.loads(call(server, 0, "GET", "/v1/daemon?what=smap").body)
    assert set(told["tmap"]) == {"tar00001", "tar00003"}
    assert int(told["version"]) > version
    assert owner_of(server, names[2][0]) in (1, 3)
    assert through(server, "GET", target_of(names[2][0])).status == 404
    assert through(server, "GET", target_of(names[1][0])).status == 200
    server.cluster(rebalance=True)
    for some in names.values():
        assert through(server, "GET", target_of(some[0])).body == some[0].encode()
    server.node(2, in_map=True, up=True)
    assert through(server, "GET", target_of(names[2][0])).status == 404
    server.cluster(rebalance=True)
    assert through(server, "GET", target_of(names[2][0])).status == 200


def test_a_write_to_a_target_that_is_not_the_owner_is_taken_and_found_by_nobody(
    server: FaultServer,
) -> None:
    owner = owner_of(server, "o")
    wrong = TARGETS[owner % len(TARGETS)]
    path = target_of("o") + "&pid=pro00000&utm=1"
    assert call(server, wrong, "PUT", path, DATA).status == 200
    assert through(server, "GET", target_of("o")).status == 404
    assert call(server, owner, "GET", target_of("o")).status == 404
    assert call(server, wrong, "GET", target_of("o")).body == DATA


def test_nobody_is_sent_to_a_target_in_maintenance(server: FaultServer) -> None:
    server.node(1, map_flags=4)
    told = json.loads(call(server, 0, "GET", "/v1/daemon?what=smap").body)
    assert told["tmap"]["tar00001"]["flags"] == 4
    assert {owner_of(server, f"{i}") for i in range(40)} == {2, 3}


@pytest.mark.parametrize("node", [0, 2])
def test_a_node_moves_to_another_port(server: FaultServer, node: int) -> None:
    before = port(server, node)
    server.node(node, move=True)
    after = port(server, node)
    assert before != after
    with pytest.raises(ConnectionRefusedError):
        RawClient(server.host, before)
    told = json.loads(call(server, 0, "GET", "/v1/daemon?what=smap").body)
    known = told["proxy_si"] if node == 0 else told["tmap"]["tar00002"]
    assert known["public_net"]["direct_url"].endswith(f":{after}")
    assert server.url == server.nodes()[0]["url"]
    server.reset()
    assert port(server, node) == before


def test_without_targets_there_is_an_error(server: FaultServer) -> None:
    for k in TARGETS:
        server.node(k, in_map=False)
    assert call(server, 0, "GET", target_of("a")).status == 503


@pytest.mark.parametrize(
    "spec", [{"node": 9}, {"node": 0, "in_map": False}, {"node": 1, "zzz": 1}, {}]
)
def test_wrong_changes_of_nodes_are_refused(server: FaultServer, spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"node|map"):
        server._post("node", spec)
    with pytest.raises(ValueError, match="no such member"):
        server.cluster(zzz=1)


def test_idle_connections_are_closed(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    with RawClient(server.host, port(server, owner_of(server, "a"))) as client:
        assert client.call("GET", target_of("a")).status == 200
        server.idle(0.05)
        assert client.answer().end == "fin"
    with RawClient(server.host, server.port) as fresh:
        assert fresh.answer().end == "fin"
    assert server.nodes()  # Control connections stay.


def test_rules_choose_their_nodes(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    server.faults([{"match": {"kind": "media", "node": "target"}, "action": {"status": 503}}])
    assert call(server, 0, "GET", target_of("a")).status == 301
    told = through(server, "GET", target_of("a"))
    assert told.status == 503
    assert json.loads(told.body)["node"] == f"t[tar0000{owner_of(server, 'a')}]"
    server.faults([{"match": {"node": 0}, "action": {"status": 500, "reason": "ErrX"}}])
    told = call(server, 0, "GET", target_of("a"))
    assert (told.status, json.loads(told.body)["tcode"]) == (500, "ErrX")
    told = call(server, 0, "HEAD", target_of("a"))
    assert json.loads(told.headers["hdr-error"])["tcode"] == "ErrX"
    with pytest.raises(ValueError, match="node is"):
        server.faults([{"match": {"node": "proxy"}, "action": "reset"}])


def test_checksums_are_spoiled_or_left_out(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    k = owner_of(server, "a")
    good = call(server, k, "GET", target_of("a")).headers["ais-checksum-value"]
    server.faults([{"match": {"kind": ["media", "get"]}, "action": "wrong_checksum"}])
    for method in ("GET", "HEAD"):
        bad = call(server, k, method, target_of("a")).headers["ais-checksum-value"]
        assert len(bad) == len(good)
        assert bad != good
    server.faults([{"match": {"kind": "media"}, "action": "no_hash"}])
    assert not [h for h in call(server, k, "GET", target_of("a")).headers if "checksum" in h]
    server.faults([{"match": {"kind": "list"}, "action": "no_hash"}])
    assert [set(entry) for entry in listed(server, props="name,checksum,size")] == [
        {"name", "size", "flags"}
    ]


# Who may ask.


def test_tokens(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    server.auth(["good"])
    k = owner_of_with(server, "a", "good")
    for node in (0, k):
        told = call(server, node, "GET", target_of("a"))
        assert (told.status, json.loads(told.body)["message"]) == (401, "token required")
        bad = {"Authorization": "Bearer bad"}
        told = call(server, node, "GET", target_of("a"), headers=bad)
        assert (told.status, json.loads(told.body)["message"]) == (401, "invalid token")
    assert call(server, 0, "GET", "/v1/health").status == 200
    server.cluster(tokens_have_expired=True)
    told = call(server, 0, "GET", target_of("a"), headers={"Authorization": "Bearer old"})
    assert json.loads(told.body)["message"] == "token expired"
    good = {"Authorization": "Bearer good"}
    assert call(server, k, "GET", target_of("a"), headers=good).status == 200


def owner_of_with(server: FaultServer, name: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return node_of(server, call(server, 0, "HEAD", target_of(name), headers=headers))


def test_direct_requests_are_refused_when_they_are_to_be(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    k = owner_of(server, "a")
    server.cluster(refuses_direct=True)
    assert call(server, k, "GET", target_of("a")).status == 401
    assert call(server, k, "HEAD", target_of("a")).status == 401
    assert through(server, "GET", target_of("a")).body == DATA


def test_a_signed_redirect_must_come_back_as_it_was(server: FaultServer) -> None:
    server.cluster(signed_redirects=True)

    def redirect(method: str, size: int) -> tuple[int, str]:
        with RawClient(server.host, server.port) as client:
            client.socket.sendall(
                f"{method} {target_of('a#b')} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                f"Content-Length: {size}\r\n\r\n".encode()
            )
            told = client.answer()
        where = urlsplit(told.headers["location"])
        assert {pair.partition("=")[0] for pair in where.query.split("&")} == {
            *("provider", "pid", "utm", "vpams", "x", "u")
        }
        return node_of(server, told), f"{where.path}?{where.query}"

    k, target = redirect("PUT", len(DATA))
    for wrong in (
        target.replace("x=", "x=1"),
        re.sub(r"u=.", "u=_", target),
        target.partition("&u=")[0],
        target.replace("a%23b", "a%23c"),
    ):
        assert call(server, k, "PUT", wrong, DATA).status == 401
    assert call(server, k, "PUT", target, DATA + b"1").status == 401  # It covers the length.
    assert call(server, k, "DELETE", target).status == 401
    assert call(server, k, "PUT", target, DATA).status == 200
    assert server.get("b", "a#b") == DATA
    assert call(server, k, "GET", target_of("a#b")).status == 401
    assert through(server, "GET", target_of("a#b")).body == DATA


def test_the_personality_can_be_changed(server: FaultServer) -> None:
    server.put("b", "a#b", DATA)
    k = owner_of(server, "a#b")
    for personality, status in (("A", 200), ("B", 206)):
        server.cluster(personality=personality)
        told = call(server, k, "GET", target_of("a#b"), headers={"Range": "bytes=1-2"})
        assert (told.status, told.headers["content-range"]) == (status, f"bytes 1-2/{len(DATA)}")
        told = call(server, 0, "GET", target_of("a#b"))
        assert ("a%23b" in told.headers["location"]) is (personality == "B")
    with pytest.raises(ValueError, match="personality"):
        server.cluster(personality="C")


# Listings and buckets.


def listed(server: FaultServer, bucket: str = "b", **value: Any) -> list[dict[str, Any]]:
    """All entries, page by page."""
    entries: list[dict[str, Any]] = []
    asked = {"props": "name,size", "pagesize": 0, "flags": "0", **value}
    while True:
        body = json.dumps({"action": "list", "value": asked}).encode()
        page = json.loads(call(server, 0, "GET", f"/v1/buckets/{bucket}", body).body)
        entries += page["entries"] or []
        if not page["continuation_token"] or len(entries) > 50_000:
            return entries
        asked |= {name: page[name] for name in ("uuid", "continuation_token")}


def test_a_synthetic_bucket_is_read_and_listed_like_any(server: FaultServer) -> None:
    server.synthetic("made", 25_000, 1000, shape="flat")
    entries = listed(server, "made")
    assert [each["name"] for each in entries] == [f"{i:07d}" for i in range(25_000)]
    assert {each["size"] for each in entries} == {"1000"}
    assert server.stats()["by_kind"]["list"] == 3  # Of 10,000 names.
    told = through(server, "GET", "/v1/objects/made/0000123?provider=ais")
    assert (told.status, len(told.body)) == (200, 1000)
    assert through(server, "PUT", "/v1/objects/made/copy?provider=ais", told.body).status == 200
    copy = through(server, "HEAD", "/v1/objects/made/copy?provider=ais")
    assert copy.headers["ais-checksum-value"] == told.headers["ais-checksum-value"]


def test_listings_lose_pages_on_request(server: FaultServer) -> None:
    for i in range(10):
        server.put("b", f"{i}", b"1")
    names = [each["name"] for each in listed(server, pagesize=3)]
    assert names == [f"{i}" for i in range(10)]
    server.bucket("b", list_fault="drops_page")
    assert [each["name"] for each in listed(server, pagesize=3)] == [*"0126789"]
    server.bucket("b", list_fault="ends_early")
    assert [each["name"] for each in listed(server, pagesize=3)] == [*"012"]
    server.bucket("b", list_fault="repeats_token")
    assert len(listed(server, pagesize=3)) > 50_000
    with pytest.raises(ValueError, match="list_fault"):
        server.bucket("b", list_fault="zzz")


def test_a_page_that_ends_within_an_archive_goes_on_there_if_it_names_its_walk(
    server: FaultServer,
) -> None:
    for name in ("a.tar", "b.tar"):
        server.put("b", name, archive(**{f"m{i}": b"1" for i in range(10)}))
    everything = [each["name"] for each in listed(server, flags="8")]
    assert len(everything) == 22
    assert [each["name"] for each in listed(server, flags="8", pagesize=4)] == everything
    value = {"flags": "8", "pagesize": 4, "continuation_token": "a.tar/m2"}
    body = json.dumps({"action": "list", "value": value}).encode()
    page = json.loads(call(server, 0, "GET", "/v1/buckets/b", body).body)
    assert page["entries"][0]["name"] == "b.tar"


def test_buckets_of_other_providers_and_namespaces_are_others(server: FaultServer) -> None:
    server.put("b", "o", b"ais")
    server.put("ais://#ns/b", "o", b"namespace")
    server.put("ais://@uuid#ns/b", "o", b"remote")
    server.put("aws://b", "o", b"cloud", isCold=True)
    for query, body in (
        ("provider=ais", b"ais"),
        ("provider=ais&namespace=%23ns", b"namespace"),
        ("namespace=%40uuid%23ns", b"remote"),
        ("provider=s3", b"cloud"),
        ("provider=aws", b"cloud"),
    ):
        told = through(server, "GET", f"/v1/objects/b/o?{query}")
        assert (told.status, told.body) == (200, body)
    assert call(server, 0, "HEAD", "/v1/buckets/b?provider=gs").status == 404


def test_a_cold_object_is_present_once_it_was_read(server: FaultServer) -> None:
    server.put("aws://b", "o", b"cloud", isCold=True)

    def flags() -> int:
        body = json.dumps({"action": "list", "value": {"flags": "0"}}).encode()
        page = json.loads(call(server, 0, "GET", "/v1/buckets/b?provider=aws", body).body)
        return int(page["entries"][0].get("flags", 0))

    assert flags() == 0
    assert through(server, "GET", "/v1/objects/b/o?provider=aws").body == b"cloud"
    assert flags() == 64


@pytest.mark.parametrize("kind", ["md5", "crc32c", "none"])
def test_the_type_of_checksums_is_the_buckets(server: FaultServer, kind: str) -> None:
    server.bucket("b", checksum=kind)
    server.put("b", "a", b"abc")
    told = through(server, "GET", target_of("a"))
    known = {"md5": "900150983cd24fb0d6963f7d28e17f72", "crc32c": "364b3fb7"}
    assert told.headers.get("ais-checksum-type") == (None if kind == "none" else kind)
    assert told.headers.get("ais-checksum-value") == known.get(kind)


# Uploads in parts, transformations, archives.


def test_multipart_uploads(server: FaultServer) -> None:
    def part(k: int, number: int, data: bytes) -> Answer:
        target = f"{target_of('mp')}&uploadId={upload}&partNumber={number}"
        return call(server, k, "PUT", f"{target}&pid=pro00000&utm=1", data)

    def act(action: str, value: Any = None, upload: str = "", method: str = "POST") -> Answer:
        body = json.dumps({"action": action, "value": value}).encode()
        suffix = f"&uploadId={upload}" if upload else ""
        return through(server, method, target_of("mp") + suffix, body)

    k = owner_of(server, "mp")
    told = act("mpt-upload")
    upload = told.body.decode()
    assert told.status == 200
    assert part(k, 2, b"world").status == part(k, 1, b"hello ").status == 200
    assert part(k, 0, b"").status == 500
    assert server.uploads()["multipart"] == [{"bucket": "b", "name": "mp", "parts": 2}]
    assert act("mpt-complete", [{"part-number": 1}], upload).status == 400
    assert through(server, "GET", target_of("mp")).status == 404
    assert act("mpt-complete", [{"part-number": n} for n in (1, 2)], upload).status == 200
    told = through(server, "GET", target_of("mp"))
    assert (told.body, told.headers["ais-checksum-type"]) == (b"hello world", "crc32c")
    upload = act("mpt-upload").body.decode()
    assert part(k, 1, b"1").status == 200
    assert act("mpt-abort", None, upload, "DELETE").status == 200
    assert act("mpt-abort", None, upload, "DELETE").status == 404
    assert server.uploads()["multipart"] == []
    assert server.stats()["by_kind"]["multipart_part"] == 4


def test_transformations(server: FaultServer) -> None:
    server.put("b", "a", b"bytes")
    known = {
        "echo": b"bytes",
        "upper": b"BYTES",
        "md5": b"4b3a6218bb3e3a7303e8a171a60fcf92",
        "arguments&etl_args=x%3D1": b"x=1bytes",
        "empty": b"",
    }
    for query, made in known.items():
        told = through(server, "GET", f"{target_of('a')}&etl_name={query}")
        assert (told.status, told.body) == (200, made)
        assert "ais-checksum-value" not in told.headers
    told = through(server, "GET", f"{target_of('a')}&etl_name=none")
    assert (told.status, b"etl job none does not exist" in told.body) == (404, True)


def archive(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, data in members.items():
            information = tarfile.TarInfo(name)
            information.size = len(data)
            made.addfile(information, io.BytesIO(data))
    return out.getvalue()


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["tar", "tgz", "tar.gz", "zip"])
def test_members_of_all_kinds_of_archives(server: FaultServer, kind: str) -> None:
    members = {"b.txt": b"2", "a" * 150: b"long", "é": DATA}
    made = zipped(**members) if kind == "zip" else archive(**members)
    server.put("b", f"s.{kind}", gzip.compress(made) if "gz" in kind else made)
    for name, data in members.items():
        told = through(server, "GET", f"{target_of(f's.{kind}')}&archpath={quote(name)}")
        assert (told.status, told.body) == (200, data)
    names = [each["name"] for each in listed(server, flags="8")]
    assert names == [f"s.{kind}", *sorted(f"s.{kind}/{name}" for name in members)]


# GetBatch.


def batch(
    server: FaultServer, entries: list[Any], query: str = "provider=ais", **spec: Any
) -> Answer:
    asked = {"mime": ".tar", "in": entries, "coer": False, "onob": False, "strm": True, **spec}
    return through(server, "GET", f"/v1/ml/moss/b?{query}", json.dumps(asked).encode())


def members(told: Answer) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(told.body)) as made:
        return [(each.name, made.extractfile(each).read()) for each in made]  # type: ignore[union-attr]


def entries(*names: str) -> list[dict[str, Any]]:
    return [{"objname": name} for name in names]


def test_a_batch_is_the_archive_that_the_real_server_makes(server: FaultServer) -> None:
    """The golden archive is what version 1.5.0 sent for these objects."""
    long = "d/" * 40 + "x" * 60
    names = ["a", "b/1", "zero", "a", "é ü", long, "y" * 150, "q?q"]
    server.bucket("bucket")
    for name in names:
        server.put("bucket", name, name.encode() if name != "zero" else b"")
    asked = {"mime": ".tar", "in": entries(*names), "strm": True}
    body = json.dumps(asked).encode()
    told = through(server, "GET", "/v1/ml/moss/bucket?provider=ais", body)
    golden = gzip.decompress((Path(__file__).parent / "golden" / "get_batch.tar.gz").read_bytes())
    assert without_times(told.body) == without_times(golden)
    assert told.headers["transfer-encoding"] == "chunked"
    assert told.headers["content-type"] == "application/x-tar"


def without_times(made: bytes) -> bytes:
    out = bytearray(made)
    for at in range(0, len(out), 512):
        if out[at + 257 : at + 262] == b"ustar" and out[at + 156 : at + 157] == b"0":
            out[at + 136 : at + 156] = bytes(20)  # Time and checksum.
    return bytes(out)


def test_a_batch_keeps_order_and_duplicates_over_all_targets(server: FaultServer) -> None:
    names = [f"{i * 7919 % 500:03d}" for i in range(500)] + ["007", "007"]
    for name in set(names):
        server.put("b", name, name.encode() * 100)
    assert members(batch(server, entries(*names))) == [
        (f"b/{name}", name.encode() * 100) for name in names
    ]
    assert members(batch(server, entries(*names), onob=True))[0][0] == names[0]


def test_ranges_members_and_other_buckets_in_a_batch(server: FaultServer) -> None:
    server.put("b", "o", DATA)
    server.put("b", "s.tar", archive(m=b"member"))
    server.put("ais://#ns/c", "n", b"namespace")
    asked = [
        {"objname": "o", "start": 10, "length": 5},
        {"objname": "o", "start": len(DATA) - 3, "length": -1},
        {"objname": "o", "length": 2},
        {"objname": "s.tar", "archpath": "m"},
        {"objname": "n", "uname": "ais/@#ns/c"},
    ]
    assert members(batch(server, asked)) == [
        ("b/o", DATA[10:15]),
        ("b/o", DATA[-3:]),
        ("b/o", DATA[:2]),
        ("b/s.tar/m", b"member"),
        ("c/n", b"namespace"),
    ]


@pytest.mark.parametrize("mime", [".tgz", ".tar.gz", ".zip"])
def test_other_archives_of_a_batch(server: FaultServer, mime: str) -> None:
    server.put("b", "a", DATA)
    told = batch(server, entries("a"), mime=mime)
    if mime == ".zip":
        with zipfile.ZipFile(io.BytesIO(told.body)) as made:
            assert made.read("b/a") == DATA
    else:
        told.body = gzip.decompress(told.body)
        assert members(told) == [("b/a", DATA)]


def test_a_batch_that_does_not_stream_tells_of_each_entry(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    told = batch(
        server, [*entries("none"), {"objname": "a", "opaque": "AQ=="}], strm=False, coer=True
    )
    boundary = told.headers["content-type"].partition("boundary=")[2]
    parts = told.body.split(b"--" + boundary.encode())
    assert parts[3] == b"--\r\n"
    head, metadata = parts[1].split(b"\r\n\r\n", 1)
    assert b'name="metadata"' in head
    out = json.loads(metadata)["out"]
    assert [(each["objname"], each["size"]) for each in out] == [("none", 0), ("a", len(DATA))]
    assert "does not exist" in out[0]["err_msg"]
    assert out[1]["opaque"] == "AQ=="
    made = Answer(body=parts[2].split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n"))
    assert members(made) == [("__404__/b/none", b""), ("b/a", DATA)]
    told = batch(server, entries("a", "none"), strm=False)
    assert (told.status, json.loads(told.body)["tcode"]) == (404, "ErrNotFound")


def test_a_strict_stream_ends_early_where_the_sender_misses_its_own(server: FaultServer) -> None:
    for name in ("a", "z"):
        server.put("b", name, name.encode())
    missing_owner = owner_of(server, "none")
    seen = set()
    for _ in range(40):
        told = batch(server, entries("a", "none", "z"))
        sender = server.log()[-1]["node"]
        got = [name for name, _ in members(told)]
        assert got == (["b/a"] if sender == missing_owner else ["b/a", "__404__/b/none", "b/z"])
        assert told.end == "whole"
        seen.add(sender == missing_owner)
    assert seen == {True, False}
    server.cluster(moss={"missing": "ends_early"})
    assert [name for name, _ in members(batch(server, entries("a", "none", "z")))] == ["b/a"]
    server.cluster(moss={"missing": "marker"})
    assert len(members(batch(server, entries("a", "none", "z")))) == 3


def test_a_batch_with_too_many_missing_ends_as_if_it_were_complete(server: FaultServer) -> None:
    server.put("b", "a", b"1")
    names = [*(f"none{i}" for i in range(20)), "a"]
    told = batch(server, entries(*names), coer=True)
    assert len(members(told)) == 9
    assert batch(server, entries(*names), coer=True, strm=False).status == 400
    server.cluster(moss={"max_soft_errors": 20})
    assert len(members(batch(server, entries(*names), coer=True))) == 21
    server.cluster(moss={"ends_after": 4})
    assert len(members(batch(server, entries(*names), coer=True))) == 4


@pytest.mark.parametrize(
    ("start", "length"), [(0, len(DATA) + 1), (len(DATA), 1), (len(DATA) * 2, -1)]
)
def test_a_range_that_is_not_there_hangs_or_is_empty_or_everything(
    server: FaultServer, start: int, length: int
) -> None:
    server.put("b", "a", DATA)
    asked = [*entries("a"), {"objname": "a", "start": start, "length": length}, *entries("a")]
    server.cluster(moss={"out_of_range": "whole"})
    assert members(batch(server, asked)) == [("b/a", DATA)] * 3
    server.cluster(moss={"out_of_range": "empty"})
    assert members(batch(server, asked)) == [("b/a", DATA)]
    server.cluster(moss={"out_of_range": "hangs"})
    told = call(server, 0, "GET", "/v1/ml/moss/b", moss_body(asked))
    where = urlsplit(told.headers["location"])
    with RawClient(server.host, where.port or 0) as client:
        client.send("GET", f"{where.path}?{where.query}", None, moss_body(asked))
        assert client.head().status == 200
        while len(client.waiting) < 512 + len(DATA) + len("2a00\r\n\r\n"):
            assert client.more() == ""
        assert server.log()[-1]["end"] == "open"
        client.waiting = b""
        assert client.is_silent()
        server.release()
        while not client.more():
            pass
    assert server.log()[-1]["end"] == "stalled"


def moss_body(asked: list[Any]) -> bytes:
    return json.dumps({"mime": ".tar", "in": asked, "strm": True}).encode()


def test_a_seed_decides_what_becomes_of_such_ranges(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    asked = [{"objname": "a", "start": 0, "length": len(DATA) + 1}]
    sent = []
    for _ in range(20):
        told = call(server, 0, "GET", "/v1/ml/moss/b", moss_body(asked))
        where = urlsplit(told.headers["location"])
        with RawClient(server.host, where.port or 0) as client:
            client.send("GET", f"{where.path}?{where.query}", None, moss_body(asked))
            client.head()
            line = server.log()[-1]
            sent.append("hangs" if line["end"] == "open" else line["bytes_sent"] // 512)
    assert set(sent) == {"hangs", 2, 2 + 1 + len(DATA) // 512}


def test_objects_that_the_cluster_does_not_have_are_missing_in_a_batch(server: FaultServer) -> None:
    server.put("aws://b", "cold", b"cloud", isCold=True)
    names = names_by_owner(server)
    for k in TARGETS:
        server.put("b", names[k][0], b"1")
    told = batch(server, [{"objname": "cold", "bucket": "b", "provider": "aws"}], coer=True)
    assert members(told) == [("__404__/b/cold", b"")]
    server.node(2, up=False, in_map=False)
    told = batch(server, entries(*(names[k][0] for k in TARGETS)), coer=True)
    assert [name.startswith("__404__") for name, _ in members(told)] == [False, True, False]


def test_a_batch_is_prepared_by_the_proxy_and_fetched_once(server: FaultServer) -> None:
    server.put("b", "a", DATA)
    body = moss_body(entries("a"))
    told = call(server, 0, "GET", "/v1/ml/moss/b", body)
    assert told.status == 307
    where = urlsplit(told.headers["location"])
    k, target = node_of(server, told), f"{where.path}?{where.query}"
    assert call(server, k % 3 + 1, "GET", target, body).status == 404
    assert call(server, k, "GET", target, body).status == 200
    assert call(server, k, "GET", target, body).status == 404
    assert call(server, k, "GET", "/v1/ml/moss/b", body).status == 401
    assert call(server, 0, "POST", "/v1/ml/moss/b", body).status == 405
    server.cluster(personality="A")
    told = call(server, 0, "GET", "/v1/ml/moss/b", body)
    assert (told.status, b"invalid request URI" in told.body) == (400, True)


def test_with_colocation_the_target_with_the_most_entries_sends(server: FaultServer) -> None:
    names = names_by_owner(server)
    for k in TARGETS:
        other = k % 3 + 1
        asked = moss_body(entries(*names[k][:4], names[other][0]))
        told = call(server, 0, "GET", "/v1/ml/moss/b?provider=ais&coloc=1", asked)
        assert node_of(server, told) == k


@pytest.mark.parametrize(
    "asked",
    [
        {"in": []},
        {"in": [{"objname": ""}]},
        {"in": [{"objname": "a", "start": 5}]},
        {"in": [{"objname": "a", "start": -1, "length": 1}]},
        {"in": [{"objname": "a"}], "mime": ".zzz"},
        [],
    ],
)
def test_wrong_batches_are_refused(server: FaultServer, asked: Any) -> None:
    told = call(server, 0, "GET", "/v1/ml/moss/b", json.dumps(asked).encode())
    assert told.status == 400
    assert call(server, 0, "GET", "/v1/ml/moss/none", moss_body(entries("a"))).status == 404
    assert call(server, 0, "GET", "/v1/ml/moss", moss_body(entries("a"))).status == 400
