"""The AIStore dialect beside the real server: the same requests get the same answers.

The server that tests build is of generation A. HEADRACE_AISNODE_B names one of generation B, with
which all of this is then repeated.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import tarfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from testing.faultserver.client import FaultServer
from testing.faultserver.tests.raw import Answer, RawClient
from testing.servers import AistoreCluster

PERSONALITIES = ["A", *(["B"] if os.environ.get("HEADRACE_AISNODE_B") else [])]
NAMES = ["a", "b/1", "b/2", "b/sub/3", "c", "d e/ü%2F", "h#h", "p%q", "q?q", "zero"]
REDIRECTED = "pid=pro00000&utm=1"
DATA = bytes(range(256)) * 40


def tar(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            information = tarfile.TarInfo(name)
            information.size = len(data)
            archive.addfile(information, io.BytesIO(data))
    return out.getvalue()


ARCHIVE = tar(("z.txt", b"zz"), ("m/a.txt", b"aaa"), ("m/.b", b""), ("x" * 120, b"long"))


class Side:
    """One of the two clusters: the ports of its nodes, and requests to them."""

    def __init__(self, host: str, ports: list[int]) -> None:
        self.host, self.ports = host, ports

    def call(
        self,
        node: int,
        method: str,
        target: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        with RawClient(self.host, self.ports[node]) as client:
            return client.call(method, target, headers, body)


# What each server makes for itself: times, ports, ids, and where it keeps its files.
OWN = [
    (r"127\.0\.0\.\d:\d+", "ADDRESS"),
    (r'"remote_addr":"[^"]*"', '"remote_addr":""'),
    (r'"(uuid|created|bid|created_time|creation_time)":"[^"]*"', r'"\1":""'),
    (r"utm=[0-9a-z]+", "utm="),
    (r'"atime":"[^"]*"', '"atime":""'),
    (r'"location":"(\w\[\w+\]):[^"]*"', r'"location":"\1"'),
    # Both name the place in a message that they did not understand.
    (r", error found in #.*?(?=\",\"method\")", ""),
    (r"(?<=unexpected character: )[^\"]*(?=\",)", ""),
    (r"apc\.LsoMsg\.(PageSize: )?Flags", "apc.LsoMsg.Flags"),
]
OWN_HEADERS = {"date", "ais-atime", "ais-mirror-paths"}


def plain(answer: Answer) -> dict[str, Any]:
    """Without what is a server's own; of a body only bytes that both must have."""
    headers = {}
    for name, value in answer.headers.items():
        if name in OWN_HEADERS or name.endswith("-uptime"):
            continue
        value = re.sub(r":mp\[.*", "", value) if name == "ais-location" else value
        value = re.sub(r"-[0-9a-z]+\"$", "", value) if name == "etag" else value
        headers[name] = own(value)
    headers.pop("last-modified", None)
    if "content-length" in headers:
        headers["content-length"] = "told"  # That there is one; the body is compared.
    body = own(answer.body.decode(errors="surrogateescape"))
    return {"status": answer.status, "headers": headers, "body": body}


def own(text: str) -> str:
    for pattern, replacement in OWN:
        text = re.sub(pattern, replacement, text)
    return text


class Pair:
    """The same request to both."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours, self.theirs = ours, theirs

    def same(
        self,
        node: int,
        method: str,
        target: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Our answer; it must be theirs, too."""
        told = self.ours.call(node, method, target, body, headers)
        assert plain(told) == plain(self.theirs.call(node, method, target, body, headers))
        return told

    def put(self, bucket: str, name: str, data: bytes) -> None:
        target = f"/v1/objects/{bucket}/{quote(name)}?provider=ais&{REDIRECTED}"
        assert self.same(1, "PUT", target, data).status == 200

    def listed(self, headers: dict[str, str] | None = None, **value: Any) -> Answer:
        body = json.dumps({"action": "list", "value": value}).encode()
        return self.same(0, "GET", "/v1/buckets/bucket?provider=ais", body, headers)


@pytest.fixture(scope="module", params=PERSONALITIES)
def personality(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def theirs(personality: str) -> Iterator[AistoreCluster]:
    program = os.environ["HEADRACE_AISNODE_B"] if personality == "B" else None
    with AistoreCluster(program=program) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ours(personality: str) -> Iterator[FaultServer]:
    with FaultServer(dialect="ais", targets=1, personality=personality) as server:
        yield server


@pytest.fixture
def pair(ours: FaultServer, theirs: AistoreCluster) -> Iterator[Pair]:
    ports = [int(node["url"].rpartition(":")[2]) for node in ours.nodes()]
    pair = Pair(Side("127.0.0.1", ports), Side("127.0.0.1", [theirs.port, theirs.port + 1]))
    pair.same(0, "POST", "/v1/buckets/bucket?provider=ais", b'{"action":"create-bck"}')
    for name in NAMES:
        pair.put("bucket", name, name.encode() if name != "zero" else b"")
    pair.put("bucket", "data", DATA)
    pair.put("bucket", "s.tar", ARCHIVE)
    yield pair
    pair.same(0, "DELETE", "/v1/buckets/bucket?provider=ais", b'{"action":"destroy-bck"}')


@pytest.mark.parametrize("node", [0, 1])
def test_the_map_has_the_same_members(pair: Pair, node: int) -> None:
    maps = [
        json.loads(side.call(node, "GET", "/v1/daemon?what=smap").body)
        for side in (pair.ours, pair.theirs)
    ]

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: value[name] if name in ("daemon_id", "daemon_type", "flags") else shape(each)
                for name, each in value.items()
                if name != "verifying_key"
            }
        return type(value).__name__

    assert shape(maps[0]) == shape(maps[1])
    digests = [each["tmap"]["tar00001"].get("id_digest") for each in maps]
    assert digests[0] == digests[1]


def test_all_is_well(pair: Pair) -> None:
    assert pair.same(0, "GET", "/v1/health?readiness=true").status == 200


def test_buckets_are_made_described_listed_and_destroyed(pair: Pair) -> None:
    create, destroy = b'{"action":"create-bck"}', b'{"action":"destroy-bck"}'
    everything = b'{"action":"list"}'
    pair.same(0, "POST", "/v1/buckets/bucket?provider=ais", create)  # It exists.
    assert pair.same(0, "POST", "/v1/buckets/second", create).status == 200
    pair.same(0, "POST", "/v1/buckets/bucket?provider=ais&namespace=%23ns", create)
    pair.same(0, "POST", "/v1/buckets/b@d", create)
    for query in ("?provider=ais", "", "/?provider=ais", "?provider=ais&namespace=%23ns"):
        pair.same(0, "GET", f"/v1/buckets{query}", everything)
    told = pair.same(0, "HEAD", "/v1/buckets/bucket?provider=ais")
    assert json.loads(told.headers["ais-bucket-props"])["checksum"]["type"] == "xxhash"
    for target in ("nope", "nope?provider=aws", "nope?provider=zz", "bucket?namespace=%23none"):
        assert "hdr-error" in pair.same(0, "HEAD", f"/v1/buckets/{target}").headers
    for action in (b'{"action":"zzz"}', b""):
        pair.same(0, "POST", "/v1/buckets/bucket?provider=ais", action)
    pair.same(0, "DELETE", "/v1/buckets/bucket?provider=ais", b'{"action":"zzz"}')
    pair.same(0, "PUT", "/v1/buckets/bucket?provider=ais")
    pair.same(0, "DELETE", "/v1/buckets/bucket?provider=ais&namespace=%23ns", destroy)
    assert pair.same(0, "DELETE", "/v1/buckets/second", destroy).status == 200
    assert pair.same(0, "DELETE", "/v1/buckets/second", destroy).status == 404


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("name", [*NAMES, "none", "a//b", "%FF"])
def test_the_proxy_redirects_and_encodes_alike(pair: Pair, method: str, name: str) -> None:
    encoded = name if name == "%FF" else quote(name)
    for query in ("?provider=ais", "", "?provider=ais&archpath=x%2Fy&z="):
        told = pair.same(0, method, f"/v1/objects/bucket/{encoded}{query}")
        assert told.status == (301 if method == "GET" else 307)


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_wrong_places_are_refused_alike(pair: Pair, method: str, node: int) -> None:
    for target in ("objects/nope/a", "objects/bucket", "objects/bucket/", "zzz"):
        if target.startswith("objects/bucket") and (node == 1 or method == "HEAD"):
            continue  # Only the proxy is asked like that.
        told = pair.same(node, method, f"/v1/{target}?provider=ais&{REDIRECTED}")
        assert told.status in (400, 404)


@pytest.mark.parametrize("name", [*NAMES, "none"])
def test_the_target_answers_without_the_proxy(pair: Pair, name: str) -> None:
    for method in ("GET", "HEAD"):
        told = pair.same(1, method, f"/v1/objects/bucket/{quote(name)}?provider=ais")
        assert told.status == (404 if name == "none" else 200)


def test_the_target_takes_no_changes_without_the_proxy(pair: Pair) -> None:
    rename = b'{"action":"rename-obj","name":"x"}'
    assert pair.same(1, "PUT", "/v1/objects/bucket/a?provider=ais", b"1").status == 400
    assert pair.same(1, "DELETE", "/v1/objects/bucket/a?provider=ais").status == 400
    assert pair.same(1, "POST", "/v1/objects/bucket/a?provider=ais", rename).status == 400


@pytest.mark.parametrize(
    "text",
    [
        *("bytes=2-4", "bytes=8-20", "bytes=0-0", "bytes=3-", "bytes=-3", "bytes=-0"),
        *("bytes=-100000", "bytes=10239-10239", "bytes=10240-", "bytes=99999-100000"),
        *("bytes=1-2,4-5", "bytes=5-2", "bytes=a-b", "bits=1-2"),
    ],
)
def test_ranges(pair: Pair, personality: str, text: str) -> None:
    headers = {"Range": text}
    told = pair.same(1, "GET", "/v1/objects/bucket/data?provider=ais", headers=headers)
    assert told.status in (200 if personality == "A" else 206, 416)
    pair.same(1, "GET", "/v1/objects/bucket/zero?provider=ais", headers={"Range": "bytes=0-0"})
    pair.same(1, "HEAD", "/v1/objects/bucket/data?provider=ais", headers=headers)


@pytest.mark.parametrize("kind", ["xxhash", "crc32c", "md5", "sha256", "sha512", "none"])
def test_checksums_of_each_kind(pair: Pair, kind: str) -> None:
    create = json.dumps({"action": "create-bck", "value": {"checksum": {"type": kind}}}).encode()
    pair.same(0, "POST", "/v1/buckets/sums", create)
    rng = random.Random(1)
    for size in (0, 1, 3, 4, 8, 31, 32, 33, 100, 100_000):
        pair.put("sums", f"{size}", rng.randbytes(size))
        pair.same(1, "GET", f"/v1/objects/sums/{size}")
    pair.same(0, "DELETE", "/v1/buckets/sums", b'{"action":"destroy-bck"}')


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("md5", "900150983cd24fb0d6963f7d28e17f72"),
        ("crc32c", "364b3fb7"),
        ("xxhash", "44bc2cf5ad770999"),
        ("md5", "0" * 32),
        ("crc32c", "00000000"),
        ("xxhash", "00"),
        ("none", ""),
    ],
)
def test_a_checksum_that_comes_along_is_verified(pair: Pair, kind: str, value: str) -> None:
    headers = {"ais-checksum-type": kind, "ais-checksum-value": value}
    for _ in range(2):  # The second time it may be what is there already.
        target = f"/v1/objects/bucket/abc?provider=ais&{REDIRECTED}"
        told = pair.same(1, "PUT", target, b"abc", headers)
        assert told.status == (500 if set(value) == {"0"} else 200)
        pair.same(1, "GET", "/v1/objects/bucket/abc?provider=ais")


def test_versions_and_custom_metadata(pair: Pair) -> None:
    target = f"/v1/objects/bucket/m?provider=ais&{REDIRECTED}"
    pair.same(1, "PUT", target, b"1", {"ais-custom-md": "k=v,l=w"})
    pair.same(1, "PUT", target, b"2")
    for method in ("GET", "HEAD"):
        told = pair.same(1, method, "/v1/objects/bucket/m?provider=ais")
        assert told.headers["ais-custom-md"] == "k=v,l=w"
        assert told.headers["ais-version"] == "2"


def test_head_tells_what_was_asked_for(pair: Pair) -> None:
    for props in ("name,size,etag,last-modified", "size,checksum,version,atime"):
        pair.same(1, "HEAD", f"/v1/objects/bucket/a?provider=ais&props={props}")


def test_objects_are_renamed_and_deleted(pair: Pair) -> None:
    def rename(name: str, to: str) -> Answer:
        body = json.dumps({"action": "rename-obj", "name": to}).encode()
        target = f"/v1/objects/bucket/{name}?provider=ais"
        pair.same(0, "POST", target, body)
        return pair.same(1, "POST", f"{target}&{REDIRECTED}", body)

    assert rename("a", "a2").status == 200
    assert rename("a2", "c").status == 200
    assert pair.same(1, "GET", "/v1/objects/bucket/c?provider=ais").body == b"a"
    assert rename("none", "x").status == 404
    for status in (200, 404):
        target = f"/v1/objects/bucket/c?provider=ais&{REDIRECTED}"
        assert pair.same(1, "DELETE", target).status == status
    pair.same(1, "GET", "/v1/objects/bucket/c?provider=ais")


BASE = {
    **{"prefix": "", "props": "name,size", "pagesize": 0, "uuid": "", "continuation_token": ""},
    **{"flags": "0", "start_after": ""},
}


@pytest.mark.parametrize(
    "value",
    [
        {},
        BASE,
        *({**BASE, "pagesize": n} for n in (1, 3, 12, 13, 20_000)),
        *({**BASE, "pagesize": 3, "continuation_token": token} for token in ("b/1", "b/x", "zero")),
        *({**BASE, "prefix": prefix} for prefix in ("b", "b/", "d e/", "nope", "q?")),
        *({**BASE, "start_after": name, "prefix": "b/"} for name in ("b/1", "a", "c")),
        *({**BASE, "flags": flags} for flags in ("1", "2", "16", "32", "2048", "10240")),
        *({**BASE, "flags": "2048", "prefix": prefix} for prefix in ("b", "b/", "b/sub/")),
        *({**BASE, "flags": "8"}, {**BASE, "flags": "8", "pagesize": 13}),
        {**BASE, "flags": "8", "pagesize": 3, "continuation_token": "s.tar/m/.b"},
        {**BASE, "flags": "512"},
        *({**BASE, "props": props} for props in ("name", "", "zzz", "checksum", "version,custom")),
        {**BASE, "props": "name,size,checksum,version,copies,location,atime"},
        *({**BASE, "pagesize": "2"}, {**BASE, "flags": 0}),
    ],
)
def test_listings(pair: Pair, value: dict[str, Any]) -> None:
    pair.listed(**value)


def test_a_listing_is_a_get_with_a_message(pair: Pair) -> None:
    target = "/v1/buckets/bucket?provider=ais"
    pair.same(0, "GET", target)
    for body in (b'{"action":"list"}', b'{"action":"list","value":null}'):
        assert pair.same(0, "GET", target, body).status == 400
    body = json.dumps({"action": "list", "value": BASE}).encode()
    assert pair.same(0, "POST", target, body).status == 400
    assert pair.same(0, "GET", "/v1/buckets/nope", body).status == 404


@pytest.mark.parametrize("props", ["name", "name,size", "name,size,checksum,version,copies"])
def test_listings_in_messagepack_differ_in_their_id_alone(pair: Pair, props: str) -> None:
    pair.put("bucket", "large", bytes(70_000))
    pair.put("bucket", "n" * 100, bytes(200))
    for prefix in ("", "b/", "nope"):
        body = json.dumps(
            {"action": "list", "value": {**BASE, "props": props, "prefix": prefix}}
        ).encode()
        bodies = []
        for side in (pair.ours, pair.theirs):
            told = side.call(
                0, "GET", "/v1/buckets/bucket", body, {"Accept": "application/msgpack"}
            )
            assert told.headers["content-type"] == "application/msgpack"
            found = re.fullmatch(rb"\x84\xa4UUID[\xa0-\xbf].*?(\xb1Cont.*)", told.body, re.DOTALL)
            assert found
            bodies.append(found[1])
        assert bodies[0] == bodies[1]


@pytest.mark.parametrize(
    "query",
    [
        *("archpath=z.txt", "archpath=m/.b", "archpath=none", "archpath=" + "x" * 120),
        *("archregx=m/&archmode=prefix", "archregx=z&archmode=wdskey"),
        *("archregx=txt&archmode=suffix", "archregx=a.t&archmode=substr"),
        *("archregx=%5Ez.*t$&archmode=regexp", "archregx=none&archmode=prefix"),
    ],
)
def test_members_of_archives(pair: Pair, query: str) -> None:
    target = f"/v1/objects/bucket/s.tar?provider=ais&{query}"
    bodies = []
    for side in (pair.ours, pair.theirs):
        told = side.call(1, "GET", target)
        # A small archive may come whole or in chunks.
        for name in ("transfer-encoding", "content-length"):
            told.headers.pop(name, None)
        bodies.append(plain(told))
    assert bodies[0] == bodies[1]
    pair.same(1, "HEAD", target)
    assert pair.same(1, "GET", target, headers={"Range": "bytes=0-0"}).status == 400


def test_appends(pair: Pair) -> None:
    def append(kind: str, handle: str, body: bytes) -> list[Answer]:
        told = []
        for side, own_handle in zip((pair.ours, pair.theirs), handle.split("\n"), strict=True):
            told.append(
                side.call(
                    1,
                    "PUT",
                    f"/v1/objects/bucket/ap?provider=ais&{REDIRECTED}&append_type={kind}"
                    f"&append_handle={quote(own_handle, safe='')}",
                    body,
                )
            )
        assert [each.status for each in told] == [200, 200]
        assert [each.body for each in told] == [b"", b""]
        return told

    handle = "\n"
    for body in (b"abc", b"", b"def"):
        told = append("append", handle, body)
        handle = "\n".join(each.headers["ais-append-handle"] for each in told)
    assert pair.same(1, "GET", "/v1/objects/bucket/ap?provider=ais").status == 404
    append("flush", handle, b"")
    assert pair.same(1, "GET", "/v1/objects/bucket/ap?provider=ais").body == b"abcdef"
    for query in ("append_type=zzz&append_handle=", "append_type=flush&append_handle="):
        pair.same(1, "PUT", f"/v1/objects/bucket/ap?provider=ais&{REDIRECTED}&{query}", b"1")


def test_many_are_deleted_at_once(pair: Pair) -> None:
    def delete(value: dict[str, Any]) -> None:
        body = json.dumps({"action": "delete-listrange", "value": value}).encode()
        for side in (pair.ours, pair.theirs):
            told = side.call(0, "DELETE", "/v1/buckets/bucket?provider=ais", body)
            assert (told.status, told.headers["content-type"]) == (200, "text/plain; charset=utf-8")
            assert re.fullmatch(rb"[\w-]{8,}", told.body)

    delete({"objnames": ["a", "c", "none"]})
    delete({"template": "b/"})
    left = [name for name in [*NAMES, "data", "s.tar"] if name not in ("a", "c")]
    left = sorted(name for name in left if not name.startswith("b/"))
    body = json.dumps({"action": "list", "value": BASE}).encode()

    def names(side: Side) -> list[str]:
        page = json.loads(side.call(0, "GET", "/v1/buckets/bucket?provider=ais", body).body)
        return [entry["name"] for entry in page["entries"]]

    assert names(pair.ours) == left
    while names(pair.theirs) != left:  # Theirs goes on after it has answered.
        pass


def test_a_message_that_is_unknown_is_refused(pair: Pair, personality: str) -> None:
    told = pair.same(
        1, "POST", f"/v1/objects/bucket/a?provider=ais&{REDIRECTED}", b'{"action":"z"}'
    )
    assert told.status == 400
    told = pair.same(0, "GET", "/v1/objects/bucket/a?provider=ais&etl_name=none")
    assert told.status == 301
    if personality == "A":
        pair.same(1, "GET", "/v1/objects/bucket/a?provider=ais&etl_name=none")
        start = b'{"action":"mpt-upload"}'
        target = f"/v1/objects/bucket/a?provider=ais&{REDIRECTED}"
        assert pair.same(1, "POST", target, start).status == 400
        batch = b'{"mime":".tar","in":[{"objname":"a"}],"strm":true}'
        told = pair.same(0, "GET", "/v1/ml/moss/bucket?provider=ais", batch)
        assert told.status == 400
        assert b"invalid request URI" in told.body


@pytest.mark.parametrize(
    ("length", "headers"),
    [
        (0, {}),
        (5, {"Expect": "100-continue"}),
        (5, {"Connection": "close"}),
        (300_000, {}),
        (300_000, {"Expect": "100-continue"}),
    ],
)
def test_a_put_is_redirected_before_its_body_comes(
    pair: Pair, length: int, headers: dict[str, str]
) -> None:
    told = []
    for side in (pair.ours, pair.theirs):
        with RawClient("127.0.0.1", side.ports[0]) as client:
            lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
            client.socket.sendall(
                f"PUT /v1/objects/bucket/a?provider=ais HTTP/1.1\r\nHost: a\r\n"
                f"Content-Length: {length}\r\n{''.join(lines)}\r\n".encode()
            )
            told.append(plain(client.answer()))
    assert told[0] == told[1]
    assert told[0]["status"] == 307


def test_a_small_body_is_waited_for(pair: Pair) -> None:
    for side in (pair.ours, pair.theirs):
        with RawClient("127.0.0.1", side.ports[0]) as client:
            head = "PUT /v1/objects/bucket/a?provider=ais HTTP/1.1\r\nHost: a\r\nContent-Length: 5"
            client.socket.sendall(f"{head}\r\n\r\n123".encode())
            client.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.socket.recv(1)
            client.socket.settimeout(20.0)
            client.socket.sendall(b"45")
            assert client.answer().status == 307


def test_objects_belong_to_the_same_targets(personality: str) -> None:
    program = os.environ["HEADRACE_AISNODE_B"] if personality == "B" else None
    rng = random.Random(3)
    names = [f"{rng.randbytes(rng.randrange(1, 20)).hex()}/{i}" for i in range(150)]
    with (
        AistoreCluster(targets=3, program=program) as theirs,
        FaultServer(dialect="ais", targets=3, personality=personality) as ours,
    ):
        for namespace in ("", "#ns"):
            theirs.make_bucket("bucket", namespace=namespace)
            ours.bucket(f"ais://{namespace}/bucket" if namespace else "bucket")
            query = f"provider=ais&namespace={quote(namespace, safe='')}"
            urls = [node["url"] for node in ours.nodes()]
            with RawClient(ours.host, ours.port) as client:
                for name in names:
                    told = client.call("HEAD", f"/v1/objects/bucket/{quote(name)}?{query}")
                    found = [
                        k for k, url in enumerate(urls) if told.headers["location"].startswith(url)
                    ]
                    assert found == [theirs.target_of("bucket", name, namespace=namespace)]
