"""What goes to the proxy, what to the targets, and how often."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.ais.conftest import Open, by_node, know_the_map

NAMES = [f"dir/{i:03}" for i in range(60)]
ODD = ["q?q", "h#h", "p%q", "100%", "a%2Fb", "x+y z", "é/\U0001f600", "a;b&c=d", "\\", "'\""]


def test_a_read_goes_straight_to_the_target_that_has_the_object(
    ais_server: FaultServer, open_store: Open
) -> None:
    store = open_store()
    for name in NAMES:
        ais_server.put("bucket", name, name.encode())
    know_the_map(ais_server, store)
    at_proxy = by_node(ais_server, 0, "media")
    assert [s.bytes() for s in store.read_many(NAMES)] == [n.encode() for n in NAMES]
    assert by_node(ais_server, 0, "media") == at_proxy
    reads = [by_node(ais_server, k, "media") for k in (1, 2, 3)]
    assert sum(reads) >= len(NAMES)
    assert min(reads) > 0, "the names are spread over the targets"
    assert by_node(ais_server, 0, "smap") == 1


def test_without_direct_requests_each_read_is_redirected(
    ais_server: FaultServer, open_store: Open
) -> None:
    store = open_store(direct=False)
    for name in NAMES:
        ais_server.put("bucket", name, name.encode())
    assert [s.bytes() for s in store.read_many(NAMES)] == [n.encode() for n in NAMES]
    assert by_node(ais_server, 0, "media") == len(NAMES)
    assert sum(by_node(ais_server, k, "media") for k in (1, 2, 3)) == len(NAMES)


def test_stores_of_a_cluster_share_its_map(ais_server: FaultServer, open_store: Open) -> None:
    know_the_map(ais_server, open_store())
    for prefix in ("a", "b", "c"):
        other = open_store(f"ais://bucket/{prefix}")
        other.write("o", b"x")
        assert other.read("o").bytes() == b"x"
    assert by_node(ais_server, 0, "smap") == 1


@pytest.mark.parametrize("personality", ["A", "B"])
@pytest.mark.parametrize("name", ODD)
def test_names_make_the_round_trip(
    ais_server: FaultServer, store: headrace.Store, personality: str, name: str
) -> None:
    ais_server.cluster(personality=personality)
    store.write(name, name.encode())
    assert ais_server.get("bucket", name) == name.encode()
    assert store.read(name).bytes() == name.encode()
    assert store.stat(name).size_bytes == len(name.encode())
    assert [info.name for info in store.list()] == [name]
    store.delete(name)
    assert not store.exists(name)


@pytest.mark.parametrize("personality", ["A", "B"])
def test_the_body_of_a_write_goes_once_and_to_the_target(
    ais_server: FaultServer, store: headrace.Store, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    data = bytes(range(256)) * 4096
    for i in range(4):
        store.write(f"o{i}", data)
    assert by_node(ais_server, 0, "upload") == 4, "each begins at the proxy"
    traffic = ais_server.stats()["by_node"]
    assert traffic[0]["body_bytes_in"] == 0
    assert sum(traffic[k]["body_bytes_in"] for k in (1, 2, 3)) == 4 * len(data)


@pytest.mark.parametrize("personality", ["A", "B"])
@pytest.mark.parametrize("ask", [(0, 5), (3, 9), (95, 100), (95, 200), (100, 200), (0, 100)])
def test_ranges_are_what_content_range_says(
    ais_server: FaultServer,
    store: headrace.Store,
    personality: str,
    ask: tuple[int, int],
) -> None:
    ais_server.cluster(personality=personality)
    data = bytes(range(100))
    store.write("o", data)
    begin, end = ask
    (got,) = store.read_ranges([("o", begin, end)])
    assert got.bytes() == store.read("o", begin=begin, end=end).bytes() == data[begin:end]


@pytest.mark.parametrize("personality", ["A", "B"])
def test_a_large_object_is_read_in_ranges_and_its_whole_sum_compared(
    ais_server: FaultServer, open_store: Open, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    parallel = headrace.ParallelOptions(range_threshold_bytes=1 << 16, range_bytes=1 << 16)
    store = open_store(parallel=parallel)
    data = bytes(i * 7 % 251 for i in range(300_000))
    store.write("o", data)
    (info,) = store.list()
    before = headrace.metrics().checksums_verified_total
    assert store.read(info).bytes() == data
    assert store.read("o").bytes() == data
    assert headrace.metrics().checksums_verified_total == before + 2


@pytest.mark.parametrize("kind", ["xxhash", "crc32c", "md5", "sha256"])
def test_what_is_corrupted_on_its_way_is_noticed(
    ais_server: FaultServer, open_store: Open, kind: str
) -> None:
    ais_server.bucket("bucket", checksum=kind)
    store = open_store(verify="all")
    store.write("o", b"some bytes" * 100)
    assert store.read("o").bytes() == b"some bytes" * 100
    ais_server.faults([{"match": {"kind": "media", "node": "target"}, "action": {"flip_byte": 17}}])
    with pytest.raises(headrace.CorruptDataError):
        store.read("o")


def test_a_cluster_that_wants_redirected_requests_gets_them(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(refuses_direct=True)
    store = open_store()
    for name in NAMES:
        store.write(name, name.encode())
    assert [s.bytes() for s in store.read_many(NAMES)] == [n.encode() for n in NAMES]
    before = by_node(ais_server, 0, "media")
    assert [s.bytes() for s in store.read_many(NAMES)] == [n.encode() for n in NAMES]
    assert by_node(ais_server, 0, "media") == before + len(NAMES), "and no more direct ones"


def test_signed_redirects_are_followed_as_they_are(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(personality="B", signed_redirects=True, refuses_direct=True)
    store = open_store()
    for name in [*NAMES[:5], *ODD]:
        store.write(name, name.encode() * 3)
        assert store.read(name).bytes() == name.encode() * 3
        assert store.stat(name).size_bytes == 3 * len(name.encode())
        store.delete(name)


def test_connections_that_the_server_has_closed_cost_only_new_ones(
    ais_server: FaultServer, store: headrace.Store
) -> None:
    store.write("o", b"x")
    requests: dict[str, Callable[[], object]] = {
        "read": lambda: store.read("o"),
        "stat": lambda: store.stat("o"),
        "write": lambda: store.write("o", b"y"),
        "list": lambda: list(store.list()),
        "delete": lambda: store.delete("gone", missing_ok=True),
    }
    for mode in ("fin", "rst"):
        for request in requests.values():
            request()
            ais_server.close_connections(mode)
            request()
    assert headrace.metrics().retries_total == 0
    assert ais_server.get("bucket", "o") == b"y"


def test_the_token_goes_to_proxy_and_targets(ais_server: FaultServer, open_store: Open) -> None:
    ais_server.auth(["secret"])
    with pytest.raises(headrace.PermissionDeniedError):
        open_store().stat("o")
    store = open_store(credentials=headrace.BearerToken("secret"))
    store.write("o", b"x")
    assert store.read("o").bytes() == b"x"
    assert [info.name for info in store.list()] == ["o"]


def test_the_token_may_lie_in_a_file_that_is_read_again(
    ais_server: FaultServer,
    open_store: Open,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = f"{tmp_path}/token.json"
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", path)
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"token": "first"}')
    ais_server.auth(["first"])
    store = open_store()
    store.write("o", b"x")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"token": "second"}')
    ais_server.auth(["second"])
    assert store.read("o").bytes() == b"x"


def test_a_token_that_is_replaced_ends_no_direct_requests(
    ais_server: FaultServer,
    open_store: Open,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = f"{tmp_path}/token.json"
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", path)
    for token in ("first", "second"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'{{"token": "{token}"}}')
        ais_server.auth([token])
        if token == "first":
            store = open_store()
            know_the_map(ais_server, store)
        assert store.read("known").bytes() == b"x"
    before = by_node(ais_server, 0, "media")
    for _ in range(20):
        assert store.read("known").bytes() == b"x"
    assert by_node(ais_server, 0, "media") == before


def test_a_listed_object_that_is_gone_costs_one_map(
    ais_server: FaultServer, open_store: Open
) -> None:
    for name in NAMES[:10]:
        ais_server.put("bucket", name, b"x")
    store = open_store()
    know_the_map(ais_server, store)
    infos = [info for info in store.list() if info.name in NAMES]
    for info in infos:
        store.delete(info.name)
    before = by_node(ais_server, 0, "smap")
    for info in infos:
        with pytest.raises(headrace.NotFoundError):
            store.read(info)
    assert by_node(ais_server, 0, "smap") == before + len(infos)


@pytest.mark.parametrize(
    ("etl", "arguments", "data"),
    [("upper", "", b"SOME BYTES"), ("arguments", "64x64", b"64x64some bytes"), ("empty", "", b"")],
)
def test_objects_are_transformed_on_the_way(
    ais_server: FaultServer, open_store: Open, etl: str, arguments: str, data: bytes
) -> None:
    open_store().write("o", b"some bytes")
    store = open_store(provider=headrace.AisOptions(etl_name=etl, etl_args=arguments))
    (info,) = store.list()
    assert info.size_bytes == 10
    assert store.read(info).bytes() == data
    assert store.read("o").bytes() == data
    assert [s.bytes() for s in store.read_many(["o", info])] == [data, data]


def test_an_unknown_transformation_is_an_error(open_store: Open) -> None:
    open_store().write("o", b"some bytes")
    with pytest.raises(headrace.NotFoundError):
        open_store(provider=headrace.AisOptions(etl_name="nobody's")).read("o")


def test_buckets_of_one_name_are_different_buckets(
    ais_server: FaultServer, open_store: Open
) -> None:
    urls = {
        "bucket": "ais://bucket",
        "ais://#ns/bucket": "ais://#ns/bucket",
        "aws://bucket": "ais+s3://bucket",
    }
    for name, url in urls.items():
        ais_server.bucket(name)
        open_store(url).write("o", url.encode())
    for url in urls.values():
        assert open_store(url).read("o").bytes() == url.encode()
        (info,) = open_store(url).list()
        assert open_store(url).url_of(info.name) == f"{url}/o"


def test_without_an_endpoint_the_error_says_what_is_missing() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=r"AIS_ENDPOINT.*endpoint="):
        headrace.Store("ais://bucket").stat("o")


@pytest.mark.parametrize("piece_bytes", [1000, 70_000, 1 << 20, 3 << 20])
def test_a_file_that_is_read_in_order_is_compared_with_its_xxh64(
    ais_server: FaultServer, open_store: Open, piece_bytes: int
) -> None:
    store = open_store(direct=False)
    data = bytes(i * 7 % 251 for i in range(300_001)) * 10
    info = store.write("o", data)
    with headrace.open("o", "rb", store=store) as file:
        assert b"".join(iter(lambda: file.read(piece_bytes), b"")) == data
    wrong = headrace.ObjectInfo("o", info.size_bytes, info.generation, checksum=("xxh64", bytes(8)))
    with headrace.open(wrong, "rb", store=store) as file:
        came: list[bytes] = []
        with pytest.raises(headrace.CorruptDataError, match=f"XXH64 {0:016x}"):
            came.extend(iter(lambda: file.read(piece_bytes), b""))
        assert data.startswith(b"".join(came))
        assert sum(map(len, came)) < len(data)
        with pytest.raises(headrace.CorruptDataError):
            file.read(1)


def test_a_file_that_is_not_read_in_order_is_not_compared_and_that_is_told(
    ais_server: FaultServer, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    data = bytes(i * 7 % 251 for i in range(300_000))
    store.write("o", data)
    with headrace.open("o", "rb", store=store) as file:
        file.seek(200_000)
        assert file.read() == data[200_000:]
        file.seek(0)
        assert file.read() == data
    store.read("o")  # what the engine had to say comes with what it is waited for
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "read in parts, whose XXH64 cannot be joined" in text] != []
