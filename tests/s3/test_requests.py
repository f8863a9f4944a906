"""What only S3 does: signatures, regions, conditions, uploads that make the object themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS
from tests.s3.conftest import Configure

PART = 5 << 20


def open_store(server: FaultServer, url: str = "s3://bucket", **options: Any) -> headrace.Store:
    options.setdefault("credentials", S3_KEYS)
    return headrace.Store(url, endpoint=server.url, **options)


def statuses(server: FaultServer) -> list[int]:
    return [entry["status"] for entry in server.log()]


def all_good(statuses: list[int]) -> bool:
    return all(status in (200, 206) for status in statuses)


def kinds(server: FaultServer) -> list[str]:
    return [entry["kind"] for entry in server.log()]


def test_the_region_is_found_out_once_for_all_requests(s3_server: FaultServer) -> None:
    s3_server.bucket("far", region="eu-north-1")
    store = open_store(s3_server, "s3://far")
    store.write("a", b"1")
    assert statuses(s3_server) == [400, 200]
    store.read("a")
    assert statuses(s3_server)[2:] == [200]


def test_a_region_that_is_given_costs_no_request(s3_server: FaultServer) -> None:
    s3_server.bucket("far", region="eu-north-1")
    options = headrace.S3Options(region="eu-north-1")
    open_store(s3_server, "s3://far", provider=options).write("a", b"1")
    assert statuses(s3_server) == [200]


def test_a_bucket_that_is_at_another_host_is_named_and_not_followed(s3_server: FaultServer) -> None:
    s3_server.bucket("moved", redirect_to="http://other.example:1", redirect_status=307)
    with pytest.raises(headrace.HeadraceError, match=r"other\.example"):
        open_store(s3_server, "s3://moved").stat("a")
    assert len(s3_server.log()) == 1


@pytest.mark.parametrize("offset_s", [-3600, 3600])
def test_a_clock_that_is_off_is_set_right_with_one_request_more(
    configure: Configure, s3: headrace.Store, s3_server: FaultServer, offset_s: int
) -> None:
    configure(io_threads=1)  # each thread learns it by itself
    s3_server.clock(offset_s)
    s3.write("a", b"1")
    assert statuses(s3_server) == [403, 200]
    assert s3.read("a").bytes() == b"1"
    assert statuses(s3_server)[2:] == [200]


def test_a_wrong_secret_is_told_with_what_the_server_says(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    keys = headrace.AwsKeys(S3_KEYS.access_key_id, "not-the-secret")
    with pytest.raises(headrace.PermissionDeniedError, match="SignatureDoesNotMatch") as caught:
        list(open_store(s3_server, credentials=keys).list())
    assert "not-the-secret" not in str(caught.value)
    assert caught.value.attempts == 1


def test_nothing_is_signed_anonymously(s3_server: FaultServer) -> None:
    s3_server.bucket("open", public=True)
    s3_server.put("open", "a", b"1")
    store = open_store(s3_server, "s3://open", credentials="anonymous")
    assert store.read("a").bytes() == b"1"
    (entry,) = s3_server.log()
    assert "authorization" not in {name.lower() for name in entry["headers"]}


@dataclass
class Frozen:
    """What botocore's credentials give."""

    access_key: str
    secret_key: str
    token: str | None = None


@dataclass
class Rotating:
    """Credentials like botocore's, whose keys are others whenever somebody asks for them anew."""

    keys: list[Frozen]
    asked: int = field(default=0)

    def get_credentials(self) -> Rotating:
        return self

    def get_frozen_credentials(self) -> Frozen:
        keys = self.keys[min(self.asked, len(self.keys) - 1)]
        self.asked += 1
        return keys


def test_keys_that_were_rotated_are_asked_for_anew_and_the_request_goes_on(
    s3_server: FaultServer,
) -> None:
    s3_server.bucket("bucket")
    new = Frozen(S3_KEYS.access_key_id, S3_KEYS.secret_access_key)
    source = Rotating([Frozen("AKIDOLD", "old"), new])
    store = open_store(s3_server, credentials=source)
    store.write("a", b"1")
    assert statuses(s3_server) == [403, 200]
    assert source.asked == 2


def test_a_token_that_has_expired_is_replaced(s3_server: FaultServer) -> None:
    s3_server.keys(
        {"access_key": "AKIDOLD", "secret_key": "old", "session_token": "one", "expired": True},
        {"access_key": "AKIDNEW", "secret_key": "new", "session_token": "two"},
    )
    s3_server.bucket("bucket")
    source = Rotating([Frozen("AKIDOLD", "old", "one"), Frozen("AKIDNEW", "new", "two")])
    open_store(s3_server, credentials=source).write("a", b"1")
    assert statuses(s3_server) == [400, 200]


def test_keys_of_the_environment_need_no_botocore(
    s3_server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.bucket("bucket")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEYS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_KEYS.secret_access_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    store = headrace.Store("s3://bucket")
    store.write("a", b"1")
    assert store.read("a").bytes() == b"1"


def test_a_credential_for_another_provider_is_refused(s3_server: FaultServer) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="not for s3"):
        open_store(s3_server, credentials=headrace.BearerToken("x")).stat("a")
    with pytest.raises(headrace.InvalidArgumentError, match="not for gs"):
        headrace.Store("gs://bucket", endpoint=s3_server.url, credentials=S3_KEYS).stat("a")


def test_a_write_whose_answer_was_lost_is_settled_by_looking(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    s3.write("first", b"", if_generation="absent")  # what the server does with conditions is known
    before = len(s3_server.log())
    s3_server.faults([{"match": {"kind": "upload"}, "count": 1, "action": {"lost_answer": True}}])
    info = s3.write("a", b"bytes", if_generation="absent")
    assert info.generation == s3.stat("a").generation
    assert kinds(s3_server)[before:][:2] == ["upload", "get"]


def test_a_completion_whose_answer_was_lost_is_settled_by_looking(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    s3_server.faults(
        [{"match": {"kind": "multipart_complete"}, "count": 1, "action": {"lost_answer": True}}]
    )
    data = bytes(range(256)) * (2 * PART // 256) + b"end"
    with s3.open_writer("a", part_bytes=PART, if_generation="absent") as writer:
        writer.write(data)
    assert s3_server.get("bucket", "a") == data
    assert kinds(s3_server).count("multipart_complete") == 1
    assert s3_server.uploads()["multipart"] == []


def test_a_completion_that_fails_in_a_good_status_is_sent_again(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    s3_server.faults(
        [
            {
                "match": {"kind": "multipart_complete"},
                "count": 1,
                "action": {"status": 200, "reason": "InternalError"},
            }
        ]
    )
    data = bytes(2 * PART)
    with s3.open_writer("a", part_bytes=PART) as writer:
        writer.write(data)
    assert s3_server.get("bucket", "a") == data


def test_a_lost_write_over_an_object_of_the_same_size_is_not_reported_saved(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    s3_server.bucket("bucket", checksums=False)
    s3.write("a", b"older")
    s3_server.faults([{"match": {"kind": "upload"}, "action": {"reset": True}}])
    few = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001)
    with pytest.raises(headrace.UnavailableError):
        open_store(s3_server, retry=few).write("a", b"newer")
    assert s3_server.get("bucket", "a") == b"older"


def test_an_upload_that_is_aborted_leaves_no_parts(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    writer = s3.open_writer("a", part_bytes=PART)
    writer.write(bytes(2 * PART))
    writer.abort()
    assert s3_server.uploads()["multipart"] == []
    assert s3_server.names("bucket") == []


def test_an_upload_makes_the_object_itself_with_one_sum_for_all_of_it(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    with s3.open_writer("a", part_bytes=PART) as writer:
        writer.write(bytes(3 * PART))
    assert sorted(kinds(s3_server)) == sorted(
        ["multipart_start", *["multipart_part"] * 3, "multipart_complete"]
    )
    assert s3.stat("a").crc32c == writer.crc32c


def test_an_upload_of_which_the_service_tells_no_sum_is_looked_at(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    s3_server.bucket("bucket", checksums=False)
    with s3.open_writer("a", part_bytes=PART, content_type="x/y") as writer:
        writer.write(bytes(2 * PART))
    assert kinds(s3_server)[-2:] == ["multipart_complete", "get"]


def test_what_is_told_of_a_completed_upload_is_what_is_there(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    writer = s3.open_writer("a", part_bytes=PART, content_type="x/y", content_encoding="gzip")
    writer.write(bytes(2 * PART))
    info, found = writer.close(), s3.stat("a")
    assert info.updated is None  # the service does not say
    assert found.updated is not None
    for name in ("name", "size_bytes", "generation", "crc32c", "content_type", "content_encoding"):
        assert getattr(info, name) == getattr(found, name), name


def test_an_object_is_looked_at_whatever_its_size(
    configure: Configure, s3: headrace.Store, s3_server: FaultServer
) -> None:
    """A response to HEAD has the length of the object, and no body that would need memory."""
    configure(memory_budget_bytes=8 << 20)
    s3_server.put("bucket", "a", bytes(7 << 20))
    assert s3.stat("a").size_bytes == 7 << 20
    with s3.open_writer("b", part_bytes=PART) as writer:
        writer.write(bytes(PART + 1))
    assert s3.stat("b").size_bytes == PART + 1


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 3500])
def test_every_name_is_listed_once_whatever_the_pages(s3_server: FaultServer, count: int) -> None:
    s3_server.synthetic("many", count, 10, shape="uuid")
    store = open_store(s3_server, "s3://many")
    index = store.index()
    names = [index.name(i) for i in range(len(index))]
    assert names == s3_server.names("many")
    assert len(names) == count


@pytest.mark.parametrize("shape", ["flat", "deep", "unicode", "all_unicode", "last_byte"])
def test_a_large_listing_is_right_in_every_shape(s3_server: FaultServer, shape: str) -> None:
    s3_server.synthetic("many", 20_000, 10, shape=shape, max_page=1000)
    index = open_store(s3_server, "s3://many").index()
    assert [index.name(i) for i in range(len(index))] == s3_server.names("many")
    lists = kinds(s3_server).count("list")
    assert 20 <= lists <= 80, lists


def test_a_listing_that_repeats_its_page_is_refused(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket", list_fault="repeats_token")
    for i in range(1500):
        s3_server.put("bucket", f"{i:05}", b"")
    with pytest.raises(headrace.CorruptDataError):
        list(open_store(s3_server).list(delimiter="/"))


def test_who_pays_and_who_owns_is_told_with_every_request(s3_server: FaultServer) -> None:
    s3_server.bucket("paid", requester_pays=True)
    with pytest.raises(headrace.PermissionDeniedError):
        open_store(s3_server, "s3://paid").write("a", b"1")
    options = headrace.S3Options(requester_pays=True)
    store = open_store(s3_server, "s3://paid", provider=options)
    store.write("a", b"1")
    assert [info.name for info in store.list()] == ["a"]
    assert store.read("a").bytes() == b"1"


def test_an_object_under_the_callers_key_is_read_with_it_alone(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    options = headrace.S3Options(customer_key=bytes(range(32)))
    sealed = open_store(s3_server, provider=options)
    sealed.write("a", b"secret")
    with sealed.open_writer("large", part_bytes=PART) as writer:
        writer.write(bytes(2 * PART))
    assert sealed.read("a").bytes() == b"secret"
    assert sealed.stat("large").size_bytes == 2 * PART
    with pytest.raises(headrace.HeadraceError):
        open_store(s3_server).read("a")
    assert "\\x1f" not in repr(options)


def test_slow_down_is_throttling(s3: headrace.Store, s3_server: FaultServer) -> None:
    s3.write("a", b"1")
    slow = {"status": 503, "reason": "SlowDown"}
    s3_server.faults([{"match": {"kind": "media"}, "count": 2, "action": slow}])
    before = headrace.metrics().throttled_total
    assert s3.read("a").bytes() == b"1"
    assert headrace.metrics().throttled_total - before == 2


@pytest.mark.parametrize("full", [{"status": 507}, {"status": 507, "reason": "XMinioStorageFull"}])
def test_a_full_disk_is_told_at_once(
    s3: headrace.Store, s3_server: FaultServer, full: dict[str, Any]
) -> None:
    s3_server.faults([{"match": {"kind": "upload"}, "action": full}])
    with pytest.raises(headrace.ResourceError, match="HTTP 507, 1 attempt,"):
        s3.write("a", b"1")
    assert sum(each["kind"] == "upload" for each in s3_server.log()) == 1


def test_bytes_that_do_not_match_the_stored_sum_are_never_handed_out(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    s3.write("a", b"0123456789")
    s3_server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 3}}])
    with pytest.raises(headrace.CorruptDataError):
        s3.read("a")
    s3_server.faults([{"match": {"kind": "media"}, "count": 1, "action": {"flip_byte": 3}}])
    assert s3.read("a").bytes() == b"0123456789"


def test_a_large_object_is_compared_with_its_sum_for_one_request_more(
    s3: headrace.Store, s3_server: FaultServer
) -> None:
    data = bytes(range(256)) * (20 * 4096)
    with s3.open_writer("a", part_bytes=PART) as writer:
        writer.write(data)
    (listed,) = s3.list()
    before = len(s3_server.log())
    small = headrace.ParallelOptions(range_threshold_bytes=1 << 20, range_bytes=1 << 20)
    store = open_store(s3_server, parallel=small)
    assert store.read(listed).bytes() == data
    assert kinds(s3_server)[before:] == ["get", *["media"] * 20]
    s3_server.faults([{"match": {"kind": "media"}, "from": 7, "action": {"flip_byte": 3}}])
    with pytest.raises(headrace.CorruptDataError):
        store.read(listed)
    with pytest.raises(headrace.CorruptDataError):
        store.read("a")


def test_a_directory_bucket_is_refused_by_name() -> None:
    store = headrace.Store("s3://b--use1-az4--x-s3", credentials="anonymous")
    with pytest.raises(headrace.InvalidArgumentError, match="Express"):
        store.stat("a")
