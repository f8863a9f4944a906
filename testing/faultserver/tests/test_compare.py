"""Field by field beside fake-gcs-server, which others wrote.

Where the two differ and the documentation of GCS sides with ours, the difference is named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from testing.faultserver.client import FaultServer
from testing.faultserver.tests.raw import Answer, RawClient, media
from testing.servers import FakeGcsServer

NAMES = ["a/1", "a/2", "a/b/3", "b", "c/ü +%"]


class Pair:
    """The same request to both servers."""

    def __init__(self, ours: RawClient, theirs: RawClient) -> None:
        self.ours, self.theirs = ours, theirs

    def call(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> tuple[Answer, Answer]:
        return (
            self.ours.call(method, target, headers, body),
            self.theirs.call(method, target, headers, body),
        )


@pytest.fixture(scope="module")
def theirs() -> Iterator[FakeGcsServer]:
    with FakeGcsServer() as server:
        server.make_bucket("cmp")
        for name in NAMES:
            server.put("cmp", name, name.encode() * 100, content_type="text/plain")
        yield server


@pytest.fixture
def pair(server: FaultServer, theirs: FakeGcsServer) -> Iterator[Pair]:
    for name in NAMES:
        server.put("cmp", name, name.encode() * 100, contentType="text/plain")
    parts = urlsplit(theirs.url)
    assert parts.hostname is not None
    assert parts.port is not None
    with (
        RawClient(server.host, server.port) as ours,
        RawClient(parts.hostname, parts.port, authority=parts.netloc) as other,
    ):
        yield Pair(ours, other)


# Made by each server for itself.
OWN = {"id", "etag", "generation", "timeCreated", "updated", "selfLink", "mediaLink"}
OWN |= {"timeStorageClassUpdated", "timeFinalized"}


def compare_resources(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    same = (set(ours) & set(theirs)) - OWN
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    # What every client of GCS may rely on must be there.
    needed = {"kind", "id", "name", "bucket", "generation", "metageneration", "contentType", "size"}
    needed |= {"crc32c", "md5Hash", "etag", "timeCreated", "updated", "storageClass", "mediaLink"}
    assert needed <= set(ours)
    assert same >= {"kind", "name", "bucket", "contentType", "size", "crc32c", "md5Hash"}
    for name in OWN & set(ours) & set(theirs):
        assert type(ours[name]) is type(theirs[name]), name


@pytest.mark.parametrize("name", NAMES)
def test_metadata(pair: Pair, name: str) -> None:
    ours, theirs = pair.call("GET", media("cmp", name).split("?")[0])
    assert ours.status == theirs.status == 200
    compare_resources(json.loads(ours.body), json.loads(theirs.body))


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?prefix=a/",
        "?delimiter=/",
        "?prefix=a/&delimiter=/",
        "?maxResults=2",
        "?startOffset=a/2&endOffset=c",
        "?prefix=nothing",
    ],
)
def test_listing(pair: Pair, query: str) -> None:
    ours, theirs = pair.call("GET", "/storage/v1/b/cmp/o" + query)
    assert ours.status == theirs.status == 200
    one, two = json.loads(ours.body), json.loads(theirs.body)
    assert one["kind"] == two["kind"]
    assert one.get("prefixes", []) == (two.get("prefixes") or [])
    assert ("nextPageToken" in one) == bool(two.get("nextPageToken"))
    names = [item["name"] for item in one.get("items", [])]
    assert names == [item["name"] for item in two.get("items") or []]
    for mine, other in zip(one.get("items", []), two.get("items") or [], strict=True):
        compare_resources(mine, other)


@pytest.mark.parametrize(
    "wanted", [None, "bytes=0-9", "bytes=5-", "bytes=-7", "bytes=0-100000", "bytes=100000-"]
)
@pytest.mark.parametrize("form", ["/storage/v1/b/cmp/o/b?alt=media", "/cmp/b"])
def test_media(pair: Pair, wanted: str | None, form: str) -> None:
    ours, theirs = pair.call("GET", form, {"Range": wanted} if wanted else {})
    assert ours.status == theirs.status
    if ours.status == 416:
        return
    assert ours.body == theirs.body
    for name in ("content-type", "content-length", "content-range", "accept-ranges"):
        assert ours.headers.get(name) == theirs.headers.get(name), name
    assert sorted(ours.headers["x-goog-hash"].split(",")) == sorted(
        theirs.headers["x-goog-hash"].split(",")
    )
    assert ours.headers["x-goog-stored-content-length"] == "100"
    assert set(ours.headers) >= {"x-goog-generation", "x-goog-metageneration", "etag"}


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/storage/v1/b/cmp/o/nobody"),
        ("GET", "/storage/v1/b/cmp/o/nobody?alt=media"),
        ("GET", "/storage/v1/b/nobody/o"),
        ("GET", "/storage/v1/b/nobody"),
        ("DELETE", "/storage/v1/b/cmp/o/nobody"),
        ("GET", "/storage/v1/b/cmp/o/b?generation=1"),
    ],
)
def test_what_is_not_there(pair: Pair, method: str, target: str) -> None:
    ours, theirs = pair.call(method, target)
    assert ours.status == theirs.status == 404
    if theirs.headers.get("content-type", "").startswith("application/json") and (
        "alt=media" not in target
    ):
        assert json.loads(ours.body)["error"]["code"] == json.loads(theirs.body)["error"]["code"]


def test_uploads(pair: Pair) -> None:
    target = "/upload/storage/v1/b/cmp/o?uploadType=media&name=up/1&ifGenerationMatch=0"
    ours, theirs = pair.call("POST", target, {"Content-Type": "text/plain"}, b"some bytes")
    assert ours.status == theirs.status == 200
    compare_resources(json.loads(ours.body), json.loads(theirs.body))
    ours, theirs = pair.call("POST", target, {"Content-Type": "text/plain"}, b"some bytes")
    assert ours.status == theirs.status == 412
    target = "/storage/v1/b/cmp/o/up%2F1"
    assert [answer.status for answer in pair.call("DELETE", target)] == [204, 200]


def test_multipart_upload_and_compose(pair: Pair) -> None:
    body = (
        b'--sep\r\nContent-Type: application/json\r\n\r\n{"name": "up/2", "metadata": {"k": "v"}}'
        b"\r\n--sep\r\nContent-Type: text/css\r\n\r\nbytes \r\n with lines\r\n--sep--\r\n"
    )
    kind = {"Content-Type": "multipart/related; boundary=sep"}
    target = "/upload/storage/v1/b/cmp/o?uploadType=multipart"
    ours, theirs = pair.call("POST", target, kind, body)
    assert ours.status == theirs.status == 200
    compare_resources(json.loads(ours.body), json.loads(theirs.body))
    sources = {"sourceObjects": [{"name": "up/2"}, {"name": "b"}]}
    request = {**sources, "destination": {"contentType": "text/plain"}}
    ours, theirs = pair.call(
        "POST",
        "/storage/v1/b/cmp/o/joined/compose",
        {"Content-Type": "application/json"},
        json.dumps(request).encode(),
    )
    assert ours.status == theirs.status == 200
    one, two = json.loads(ours.body), json.loads(theirs.body)
    assert (one["size"], one["crc32c"]) == (two["size"], two["crc32c"])
    # GCS: composite objects have no MD5, and say of how many components they are.
    assert "md5Hash" not in one
    assert one["componentCount"] == 2
    for name in ("up%2F2", "joined"):
        pair.call("DELETE", f"/storage/v1/b/cmp/o/{name}")


def test_resumable_upload(pair: Pair) -> None:
    start = pair.call(
        "POST",
        "/upload/storage/v1/b/cmp/o?uploadType=resumable&name=up/3",
        {"Content-Type": "application/json"},
        b'{"contentType": "text/plain"}',
    )
    data = bytes(range(256)) * 2048  # 512 KiB
    half = len(data) // 2
    finals = []
    for answer, client in zip(start, (pair.ours, pair.theirs), strict=True):
        assert answer.status == 200
        parts = urlsplit(answer.headers["location"])
        session = f"{parts.path}?{parts.query}"
        first = client.call("PUT", session, {"Content-Range": f"bytes 0-{half - 1}/*"}, data[:half])
        assert (first.status, first.headers["range"]) == (308, f"bytes=0-{half - 1}")
        last = {"Content-Range": f"bytes {half}-{len(data) - 1}/{len(data)}"}
        finals.append(client.call("PUT", session, last, data[half:]))
    assert [answer.status for answer in finals] == [200, 200]
    compare_resources(json.loads(finals[0].body), json.loads(finals[1].body))
    pair.call("DELETE", "/storage/v1/b/cmp/o/up%2F3")


def test_rewrite(pair: Pair) -> None:
    ours, theirs = pair.call("POST", "/storage/v1/b/cmp/o/b/rewriteTo/b/cmp/o/copied")
    one, two = json.loads(ours.body), json.loads(theirs.body)
    for name in ("kind", "totalBytesRewritten", "objectSize", "done"):
        assert str(one[name]) == str(two[name]), name
    compare_resources(one["resource"], two["resource"])
    pair.call("DELETE", "/storage/v1/b/cmp/o/copied")
