"""URLs that let whoever has them send one request: as botocore makes them, and used by urllib."""

from __future__ import annotations

import datetime
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import botocore.auth
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import MinioServer
from testing.servers import minio as minio_module
from testing.servers.s3_client import client_of
from tests.keys import S3_KEYS

ODD = ["//", "/./", "..", "+", "%2F", "%", " ", "~", "*", "'", "ä", "日本", "\x01", "?", "#", "&="]
NAMES = st.lists(st.sampled_from(ODD) | st.text("ab/", max_size=3), min_size=1, max_size=6).map(
    "".join
)


def use(url: str, method: str = "GET", data: bytes | None = None) -> tuple[int, bytes]:
    """Send the request as somebody would who knows nothing but the URL."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def parts_of(url: str) -> tuple[Any, ...]:
    split = urlsplit(url)
    query = parse_qsl(split.query, keep_blank_values=True)
    return split.scheme, split.netloc, split.path, sorted(query)


@given(
    name=NAMES.filter(bool),
    method=st.sampled_from(["get_object", "put_object", "head_object", "delete_object"]),
    expires_s=st.integers(1, 604800),
    token=st.sampled_from(["", "a+token/=="]),
    endpoint=st.sampled_from(["", "http://127.0.0.1:9000", "https://example.com/base"]),
)
def test_they_are_what_botocore_makes(
    name: str, method: str, expires_s: int, token: str, endpoint: str
) -> None:
    store = headrace.Store(
        "s3://bucket",
        endpoint=endpoint or None,
        credentials=headrace.AwsKeys("AKID", "secret", token),
        provider=headrace.S3Options(region="eu-west-1"),
    )
    verb: Any = method.partition("_")[0].upper()
    url = store.presigned_url(name, method=verb, expires_s=expires_s)
    signed_at = datetime.datetime.strptime(
        dict(parse_qsl(urlsplit(url).query))["X-Amz-Date"], "%Y%m%dT%H%M%SZ"
    ).replace(tzinfo=datetime.UTC)
    key = {"access_key": "AKID", "secret_key": "secret"} | (
        {"session_token": token} if token else {}
    )
    with (
        client_of(
            endpoint or "https://s3.eu-west-1.amazonaws.com",
            key=key,
            region="eu-west-1",
            style="path" if endpoint else "virtual",
            signature_version="s3v4",
        ) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(botocore.auth, "get_current_datetime", lambda: signed_at)
        theirs = client.generate_presigned_url(
            method, Params={"Bucket": "bucket", "Key": name}, ExpiresIn=expires_s
        )
    assert parts_of(url) == parts_of(theirs)


@pytest.fixture
def store(s3_server: FaultServer) -> headrace.Store:
    s3_server.bucket("bucket")
    return headrace.Store("s3://bucket/run", endpoint=s3_server.url, credentials=S3_KEYS)


@pytest.mark.parametrize("name", ["a", "a b/ü+%2F?x=1&y#z", "//./"])
def test_whoever_has_one_reads_and_writes_with_it(
    store: headrace.Store, s3_server: FaultServer, name: str
) -> None:
    assert use(store.presigned_url(name, method="PUT"), "PUT", b"bytes")[0] == 200
    assert store.read(name).bytes() == b"bytes"
    assert use(store.presigned_url(name)) == (200, b"bytes")
    assert use(store.presigned_url(name, method="HEAD"), "HEAD") == (200, b"")
    assert use(store.presigned_url(name, method="DELETE"), "DELETE")[0] == 204
    assert not store.exists(name)


def test_one_is_for_its_own_method_and_name(store: headrace.Store, s3_server: FaultServer) -> None:
    store.write("a", b"1")
    store.write("b", b"2")
    url = store.presigned_url("a")
    assert use(url, "DELETE")[0] == 403
    assert use(url.replace("/run/a?", "/run/b?"))[0] == 403
    assert use(url)[0] == 200


def test_one_expires(store: headrace.Store, s3_server: FaultServer) -> None:
    store.write("a", b"1")
    url = store.presigned_url("a", expires_s=60)
    s3_server.clock(59)
    assert use(url)[0] == 200
    s3_server.clock(120)
    assert use(url)[0] == 403


def test_the_region_is_found_out_by_one_request_if_nobody_has_said_it(
    s3_server: FaultServer,
) -> None:
    s3_server.bucket("far", region="eu-north-1")
    s3_server.put("far", "a", b"1")
    store = headrace.Store("s3://far", endpoint=s3_server.url, credentials=S3_KEYS)
    assert use(store.presigned_url("a")) == (200, b"1")
    statuses = [entry["status"] for entry in s3_server.log()]
    assert statuses == [400, 200, 200]  # HEAD, the same in the right region, urllib's GET
    store.presigned_url("b")
    assert len(s3_server.log()) == 3


def test_where_the_region_is_the_usual_one_it_is_asked_for_once(
    store: headrace.Store, s3_server: FaultServer
) -> None:
    for name in "abc":
        store.presigned_url(name)
    assert [entry["status"] for entry in s3_server.log()] == [404]


def test_a_region_that_is_known_costs_no_request(s3_server: FaultServer) -> None:
    s3_server.bucket("bucket")
    here = headrace.S3Options(region="us-east-1")
    store = headrace.Store(
        "s3://bucket", endpoint=s3_server.url, credentials=S3_KEYS, provider=here
    )
    assert use(store.presigned_url("a", method="PUT"), "PUT", b"1")[0] == 200
    assert [entry["kind"] for entry in s3_server.log()] == ["upload"]


def test_one_for_a_bucket_whose_reader_pays_says_who_pays(s3_server: FaultServer) -> None:
    s3_server.bucket("paid", requester_pays=True)
    s3_server.put("paid", "a", b"1")
    options = headrace.S3Options(requester_pays=True)
    store = headrace.Store(
        "s3://paid", endpoint=s3_server.url, credentials=S3_KEYS, provider=options
    )
    assert use(store.presigned_url("a")) == (200, b"1")


def test_keys_of_the_environment_and_of_a_session_sign_them(
    s3_server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.keys({"access_key": "AKIDNEW", "secret_key": "new", "session_token": "two"})
    s3_server.bucket("bucket")
    s3_server.put("bucket", "a", b"1")

    class Session:
        """As one of botocore."""

        access_key, secret_key, token = "AKIDNEW", "new", "two"

        def get_credentials(self) -> Session:
            return self

        def get_frozen_credentials(self) -> Session:
            return self

    session = headrace.Store("s3://bucket", endpoint=s3_server.url, credentials=Session())
    assert use(session.presigned_url("a")) == (200, b"1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEW")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "new")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "two")
    assert use(headrace.Store("s3://bucket", endpoint=s3_server.url).presigned_url("a"))[0] == 200


def test_minio_takes_them(minio: MinioServer, minio_bucket: str) -> None:
    keys = headrace.AwsKeys(minio_module.ACCESS_KEY, minio_module.SECRET_KEY)
    store = headrace.Store(f"s3://{minio_bucket}/prä fix", endpoint=minio.url, credentials=keys)
    name = "a b/ü+%2F#.txt"
    assert use(store.presigned_url(name, method="PUT"), "PUT", b"bytes")[0] == 200
    assert store.read(name).bytes() == b"bytes"
    assert use(store.presigned_url(name)) == (200, b"bytes")
    assert use(store.presigned_url(name).replace("Signature=", "Signature=0"))[0] == 403


@pytest.mark.parametrize(
    ("url", "said"),
    [("gs://bucket", "generate_signed_url"), ("/data", "files have no presigned URLs")],
)
def test_other_stores_say_what_to_do_instead(url: str, said: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=said):
        headrace.Store(url).presigned_url("a")


def test_what_cannot_be_signed_is_refused(s3_server: FaultServer) -> None:
    def store(**options: Any) -> headrace.Store:
        options.setdefault("credentials", S3_KEYS)
        return headrace.Store("s3://bucket", endpoint=s3_server.url, **options)

    refused = headrace.InvalidArgumentError
    with pytest.raises(refused, match="anonymous"):
        store(credentials="anonymous").presigned_url("a")
    with pytest.raises(refused, match="method is 'POST'"):
        store().presigned_url("a", method="POST")  # type: ignore[arg-type]
    with pytest.raises(refused, match="seven days"):
        store().presigned_url("a", expires_s=604801)
    with pytest.raises(refused, match="expires_s is 0"):
        store().presigned_url("a", expires_s=0)
    with pytest.raises(refused, match="name must not be empty"):
        store().presigned_url("")
    sealed = headrace.S3Options(region="us-east-1", customer_key=bytes(32))
    with pytest.raises(refused, match="customer_key"):
        store(provider=sealed).presigned_url("a")
    encrypted = headrace.S3Options(region="us-east-1", encryption="AES256")
    with pytest.raises(refused, match="encryption"):
        store(provider=encrypted).presigned_url("a", method="PUT")
    assert store(provider=encrypted).presigned_url("a")
