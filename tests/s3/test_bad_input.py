"""What S3 and its users get wrong: a clear error, or the right result after few requests more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import Certificates
from tests.keys import S3_KEYS
from tests.s3.conftest import Configure
from tests.s3.test_requests import PART, Frozen, Rotating, kinds, open_store, statuses

OLD = Frozen("AKIDOLD", "old", "one")
NEW = Frozen("AKIDNEW", "new", "two")

CALLS: dict[str, Callable[[headrace.Store], Any]] = {
    "read": lambda store: store.read("a").bytes(),
    "read_many": lambda store: [sample.bytes() for sample in store.read_many(["a"])],
    "stat": lambda store: store.stat("a").size_bytes,
    "list": lambda store: [info.name for info in store.list()],
    "write": lambda store: store.write("new", b"2").size_bytes,
    "copy": lambda store: store.copy("a", "copied").name,
    "delete": lambda store: store.delete("a"),
}
each_call = pytest.mark.parametrize("call", CALLS)


def key_of(frozen: Frozen, **more: Any) -> dict[str, Any]:
    """What the server is told of keys."""
    token = {"session_token": frozen.token}
    return {"access_key": frozen.access_key, "secret_key": frozen.secret_key, **token, **more}


def refusals(server: FaultServer) -> list[int]:
    return [status for status in statuses(server) if status >= 300]


# ---- keys


@pytest.mark.parametrize(
    ("left", "status"),
    [([], 403), ([key_of(OLD, expired=True)], 400)],
    ids=["rotated", "expired"],
)
def test_an_epoch_goes_on_when_its_keys_end_in_the_middle(
    s3_server: FaultServer, left: list[dict[str, Any]], status: int
) -> None:
    pytest.importorskip("torch")
    from headrace.torch import Loader, MapDataset

    for i in range(200):
        s3_server.put("bucket", f"{i:03}", b"%03d" % i * 300)
    s3_server.keys(key_of(OLD))
    source = Rotating([OLD, NEW])
    dataset = MapDataset(
        open_store(s3_server, credentials=source), lambda sample: int(sample.bytes()[:3])
    )
    batches = iter(Loader(dataset, 10, shuffle=True, prefetch_bytes=10_000))
    seen = next(batches).tolist()
    assert refusals(s3_server) == []
    s3_server.keys(key_of(NEW), *left)
    for batch in batches:
        seen += batch.tolist()
    assert sorted(seen) == list(range(200))
    assert source.asked == 2
    assert {*refusals(s3_server)} == {status}
    # What was refused was sent once more, and nothing else.
    assert kinds(s3_server).count("media") == 200 + len(refusals(s3_server))


def test_keys_that_end_and_have_no_successor_are_told_after_one_attempt_more(
    s3_server: FaultServer,
) -> None:
    s3_server.put("bucket", "a", b"1")
    s3_server.keys(key_of(OLD))
    store = open_store(s3_server, credentials=Rotating([OLD]))
    assert store.read("a").bytes() == b"1"
    s3_server.keys(key_of(OLD, expired=True))
    with pytest.raises(headrace.PermissionDeniedError, match="ExpiredToken") as caught:
        store.read("a")
    assert (caught.value.attempts, caught.value.url) == (2, "s3://bucket/a")


@each_call
def test_a_token_that_has_expired_is_replaced_whatever_is_asked(
    s3_server: FaultServer, call: str
) -> None:
    """A response to HEAD tells no more than 400."""
    s3_server.put("bucket", "a", b"1")
    s3_server.keys(key_of(OLD, expired=True), key_of(NEW))
    store = open_store(s3_server, credentials=Rotating([OLD, NEW]))
    CALLS[call](store)
    assert refusals(s3_server) == [400]


# ---- the clock, the region, the owner


@each_call
@pytest.mark.parametrize("offset_s", [-3600, 3600])
def test_a_clock_that_is_an_hour_off_is_set_right_whatever_is_asked(
    configure: Configure, s3_server: FaultServer, offset_s: int, call: str
) -> None:
    """A response to HEAD tells the time only by its `Date`."""
    configure(io_threads=1)  # each thread learns it by itself
    s3_server.put("bucket", "a", b"1")
    s3_server.clock(offset_s)
    store = open_store(s3_server)
    CALLS[call](store)
    assert refusals(s3_server) == [403]
    CALLS["list"](store)
    assert refusals(s3_server) == [403]


@each_call
def test_a_region_that_is_wrong_is_set_right_whatever_is_asked(
    s3_server: FaultServer, call: str
) -> None:
    s3_server.bucket("bucket", region="eu-north-1")
    s3_server.put("bucket", "a", b"1")
    store = open_store(s3_server, provider=headrace.S3Options(region="us-west-2"))
    CALLS[call](store)
    assert refusals(s3_server) == [400]
    CALLS["list"](store)
    assert refusals(s3_server) == [400]


@each_call
def test_a_bucket_of_another_account_is_denied_at_once(s3_server: FaultServer, call: str) -> None:
    s3_server.bucket("bucket", access_keys=["AKIDOTHER"])
    s3_server.put("bucket", "a", b"1")
    with pytest.raises(headrace.PermissionDeniedError) as caught:
        CALLS[call](open_store(s3_server))
    assert (caught.value.http_status, caught.value.attempts) == (403, 1)
    assert "s3://bucket" in str(caught.value)
    assert statuses(s3_server) == [403]


# ---- names


@pytest.fixture
def over_tls(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    with FaultServer(
        dialect="s3", tls_cert=certificates.cert_file, tls_key=certificates.key_file
    ) as server:
        headrace.shutdown()
        yield server
        headrace.shutdown()


def test_a_bucket_with_dots_is_reached_over_tls_by_its_path(over_tls: FaultServer) -> None:
    over_tls.bucket("my.bucket.name")
    store = open_store(over_tls, "s3://my.bucket.name")
    store.write("a", b"1")
    assert store.read("a").bytes() == b"1"
    assert {line["target"] for line in over_tls.log()} == {"/my.bucket.name/a"}


def test_a_bucket_with_dots_has_no_host_of_its_own_and_the_error_says_what_to_do(
    over_tls: FaultServer,
) -> None:
    over_tls.bucket("my.bucket.name")
    options = headrace.S3Options(addressing="virtual")
    with pytest.raises(headrace.InvalidArgumentError, match="use addressing 'path'"):
        open_store(over_tls, "s3://my.bucket.name", provider=options).read("a")
    assert over_tls.log() == []


NAMES = ["a//b", "./a", "../a", ".", "..", "a/.", "+", "a+b c", "%2F", "a%2Fb", "\x01", "\x1f\x7f"]


@pytest.mark.parametrize("encodes", [True, False], ids=["encoded", "plain"])
def test_names_come_back_from_listings_as_they_are(s3_server: FaultServer, encodes: bool) -> None:
    """Signed, too: the server looks at every signature."""
    # XML has no way to write most control characters: without an encoding they cannot be listed.
    names = [name for name in NAMES if encodes or name.isprintable()]
    s3_server.bucket("bucket", encoding_type=encodes)
    store = open_store(s3_server)
    for name in names:
        store.write(name, name.encode())
    assert s3_server.names("bucket") == sorted(names)
    assert [info.name for info in store.list()] == sorted(names)
    for name in names:
        assert store.read(name).bytes() == name.encode()
        assert store.stat(name).size_bytes == len(name)
        assert name in [info.name for info in store.list(name)]
        assert name in [info.name for info in store.list(start_offset=name)]
        assert store.copy(name, f"copy of {name}").size_bytes == len(name)


def test_a_large_object_may_have_any_name(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    store = open_store(s3_server)
    name = "".join(NAMES)
    with store.open_writer(name, part_bytes=PART) as writer:
        writer.write(bytes(PART + 1))
    assert kinds(s3_server).count("multipart_part") == 2
    assert s3_server.names("bucket") == [name]
    assert len(store.read(name)) == PART + 1


# ---- objects that change, and responses that are not what they seem


@pytest.mark.parametrize("on_change", ["error", "reread"])
def test_a_large_object_that_is_replaced_in_mid_read_is_never_mixed(
    s3_server: FaultServer, on_change: Any
) -> None:
    data = bytes(range(256)) * 4000
    s3_server.put("bucket", "a", data, checksumAlgorithm="CRC32C")
    small = headrace.ParallelOptions(range_threshold_bytes=100_000, range_bytes=100_000)
    store = open_store(s3_server, parallel=small, on_change=on_change)
    (listed,) = store.list()
    change = {"old_generation_then_new": True}
    s3_server.faults([{"match": {"kind": "media"}, "from": 4, "count": 1, "action": change}])
    if on_change == "error":
        with pytest.raises(headrace.PreconditionFailedError) as caught:
            store.read(listed)
        assert caught.value.url == "s3://bucket/a"
    else:
        assert store.read(listed).bytes() == s3_server.get("bucket", "a") != data


def error_in_a_success(kind: str, **more: Any) -> list[dict[str, Any]]:
    action = {"status": 200, "reason": "InternalError"}
    return [{"match": {"kind": kind}, "action": action, **more}]


def test_a_copy_that_fails_in_a_good_status_is_sent_again(s3_server: FaultServer) -> None:
    s3_server.put("bucket", "a", b"1")
    s3_server.faults(error_in_a_success("copy", count=1))
    open_store(s3_server).copy("a", "b")
    assert s3_server.get("bucket", "b") == b"1"
    assert kinds(s3_server).count("copy") == 2


FEW = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001, max_backoff_s=0.002)


def test_a_copy_that_always_fails_in_a_good_status_is_an_error(s3_server: FaultServer) -> None:
    s3_server.put("bucket", "a", b"1")
    s3_server.faults(error_in_a_success("copy"))
    with pytest.raises(headrace.UnavailableError, match="InternalError"):
        open_store(s3_server, retry=FEW).copy("a", "b")
    assert s3_server.names("bucket") == ["a"]


def test_a_completion_that_always_fails_in_a_good_status_leaves_nothing(
    s3_server: FaultServer,
) -> None:
    s3_server.bucket("bucket")
    s3_server.faults(error_in_a_success("multipart_complete"))
    writer = open_store(s3_server, retry=FEW).open_writer("a", part_bytes=PART)
    writer.write(bytes(2 * PART))
    with pytest.raises(headrace.UnavailableError, match="InternalError"):
        writer.close()
    assert s3_server.names("bucket") == []
    assert s3_server.uploads()["multipart"] == []


@pytest.mark.parametrize("fault", ["repeats_page", "repeats_token", "unordered"])
@pytest.mark.parametrize("how", ["list", "folders", "index"])
def test_a_listing_that_contradicts_itself_is_refused(
    s3_server: FaultServer, fault: str, how: str
) -> None:
    s3_server.bucket("bucket", list_fault=fault)
    for i in range(2500):
        s3_server.put("bucket", f"{i:05}", b"")
    store = open_store(s3_server)
    ways: dict[str, Callable[[], Any]] = {
        "list": lambda: list(store.list()),
        "folders": lambda: list(store.list(delimiter="/")),
        "index": store.index,
    }
    with pytest.raises(headrace.CorruptDataError) as caught:
        ways[how]()
    assert "s3://bucket" in str(caught.value)
    assert len(s3_server.log()) < 50


def test_keys_are_in_no_error_and_no_log(
    s3_server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    s3_server.bucket("bucket", denied_permissions=["s3:PutObject"])
    store = open_store(s3_server)
    with pytest.raises(headrace.PermissionDeniedError) as caught:
        store.write("a", b"1")
    told = f"{caught.value!r} {caught.value} {store!r} {caplog.text}"
    assert S3_KEYS.secret_access_key not in told
    assert S3_KEYS.access_key_id not in told
