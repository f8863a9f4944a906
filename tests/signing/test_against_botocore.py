"""What the engine signs is what botocore signs, for requests of every shape."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, urlsplit

import botocore.auth
import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import example, given
from hypothesis import strategies as st

from tests.signing.signer import Signer

# What is in names, and what a signer could encode twice, not at all, or normalise away.
ODD = ["//", "/./", "/../", ".", "..", "+", "%2F", "%", "%25", " ", "~", "*", "'"]
ODD += ["ä", "日本", "\x01"]
NAMES = st.lists(st.sampled_from(ODD) | st.text(max_size=4), max_size=8).map("".join)
TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
VISIBLE = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)
VALUES = st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
PAYLOADS = st.sampled_from(
    ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "0123456789abcdef" * 4]
)
PARAMETERS = st.lists(
    st.tuples(
        st.sampled_from(["uploads", "versionId", "prefix", "list-type", "a", "a-b", "A"]), TEXTS
    ),
    max_size=5,
    unique_by=lambda each: each[0],
)
SIGNED_HEADERS = ["x-amz-meta-a", "X-Amz-Copy-Source", "x-amz-checksum-crc32c", "Content-MD5"]
SIGNED_HEADERS += ["content-type", "X-AMZ-Server-Side-Encryption"]
OTHER_HEADERS = ["Range", "If-Match", "Accept-Encoding", "x-forwarded-for", "User-Agent"]
REGIONS = st.sampled_from(["us-east-1", "eu-west-1", "auto", "ap-southeast-4"])
HOSTS = st.sampled_from(["s3.eu-west-1.amazonaws.com", "a.b.example", "127.0.0.1:9000", "[::1]:80"])
TIMES = st.datetimes(datetime.datetime(2000, 1, 1), datetime.datetime(2099, 12, 31))
METHODS = st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE"])


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    with Signer() as signer:
        yield signer


def at(time: datetime.datetime) -> datetime.datetime:
    return time.replace(microsecond=0, tzinfo=datetime.UTC)


def encoded(parameters: list[tuple[str, str]]) -> str:
    """A query as the engine sends it; a parameter of no value has no '='."""
    parts = [
        quote(name, safe="") + (f"={quote(value, safe='')}" if value else "")
        for name, value in parameters
    ]
    return f"?{'&'.join(parts)}" if parts else ""


@given(
    method=METHODS,
    host=HOSTS,
    name=NAMES,
    parameters=PARAMETERS,
    signed=st.dictionaries(st.sampled_from(SIGNED_HEADERS), VALUES, max_size=4),
    other=st.dictionaries(st.sampled_from(OTHER_HEADERS), VALUES, max_size=3),
    payload=PAYLOADS,
    token=VISIBLE,
    secret=VISIBLE.filter(bool),
    region=REGIONS,
    time=TIMES,
)
@example(
    method="GET",
    host="127.0.0.1:9000",
    name="a//b/./../c+d%2Fe f~ä",
    parameters=[("uploads", ""), ("a-b", "1"), ("a", "2")],
    signed={"x-amz-meta-a": "  two   blanks  "},
    other={"Range": "bytes=0-1"},
    payload="UNSIGNED-PAYLOAD",
    token="",
    secret="s",
    region="us-east-1",
    time=datetime.datetime(2024, 2, 29, 23, 59, 59),
)
def test_headers_are_signed_as_botocore_signs_them(
    signer: Signer,
    method: str,
    host: str,
    name: str,
    parameters: list[tuple[str, str]],
    signed: dict[str, str],
    other: dict[str, str],
    payload: str,
    token: str,
    secret: str,
    region: str,
    time: datetime.datetime,
) -> None:
    target = "/" + quote(f"bucket/{name}", safe="/~") + encoded(parameters)
    lines = "".join(f"{key}: {value}\r\n" for key, value in {**signed, **other}.items())
    answer = signer(
        as_="headers",
        method=method,
        target=target,
        authority=host,
        headers=lines,
        payload=payload,
        time_s=int(at(time).timestamp()),
        access_key_id="AKID",
        secret_access_key=secret,
        session_token=token,
        region=region,
        service="s3",
    )

    class Theirs(S3SigV4Auth):
        def payload(self, request: AWSRequest) -> str:
            return payload

    request = AWSRequest(method, f"https://{host}{target}", headers={**signed, "Host": host})
    sign(Theirs, request, secret, token, region, time)
    assert answer.startswith(lines)
    added = dict(line.split(": ", 1) for line in answer[len(lines) :].split("\r\n") if line)
    theirs = {key.lower(): value for key, value in request.headers.items()}
    assert {key.lower(): value for key, value in added.items()} == {
        key: theirs[key]
        for key in (
            *("x-amz-content-sha256", "x-amz-date", "authorization"),
            *(["x-amz-security-token"] if token else []),
        )
    }


@given(
    method=METHODS,
    host=HOSTS,
    name=NAMES,
    parameters=PARAMETERS,
    signed=st.dictionaries(st.sampled_from(["x-amz-meta-a", "X-Amz-Checksum-Mode"]), VALUES),
    token=VISIBLE,
    region=REGIONS,
    time=TIMES,
    expires_s=st.integers(1, 604800),
)
def test_urls_are_signed_as_botocore_signs_them(
    signer: Signer,
    method: str,
    host: str,
    name: str,
    parameters: list[tuple[str, str]],
    signed: dict[str, str],
    token: str,
    region: str,
    time: datetime.datetime,
    expires_s: int,
) -> None:
    target = "/" + quote(f"bucket/{name}", safe="/~") + encoded(parameters)
    answer = signer(
        as_="query",
        method=method,
        target=target,
        authority=host,
        headers="".join(f"{key}: {value}\r\n" for key, value in signed.items()),
        time_s=int(at(time).timestamp()),
        expires_s=expires_s,
        access_key_id="AKID",
        secret_access_key="secret",
        session_token=token,
        region=region,
        service="s3",
    )

    class Theirs(S3SigV4QueryAuth):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, expires=expires_s)

    request = AWSRequest(method, f"https://{host}{target}", headers={**signed, "Host": host})
    sign(Theirs, request, "secret", token, region, time)

    def parts(url: str) -> tuple[str, list[tuple[str, str]]]:
        split = urlsplit(url)
        return split.path, sorted(parse_qsl(split.query, keep_blank_values=True))

    assert answer.startswith(target)
    assert parts(answer) == parts(request.url.removeprefix(f"https://{host}"))


def sign(
    kind: type[S3SigV4Auth],
    request: AWSRequest,
    secret: str,
    token: str,
    region: str,
    time: datetime.datetime,
) -> None:
    """Let botocore sign `request`, as if it were `time`."""
    credentials = ReadOnlyCredentials("AKID", secret, token or None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: at(time))
        kind(credentials, "s3", region).add_auth(request)


@pytest.mark.parametrize("field", ["access_key_id", "secret_access_key", "session_token", "region"])
@pytest.mark.parametrize("text", ["a\r\nb", "a b", "ä"])
def test_keys_that_could_end_a_line_are_refused_without_being_shown(
    signer: Signer, field: str, text: str
) -> None:
    request = {"access_key_id": "AKID", "secret_access_key": "s", "region": "us-east-1"}
    with pytest.raises(ValueError) as caught:
        signer(as_="headers", method="GET", target="/", service="s3", **{**request, field: text})
    assert text not in str(caught.value)
    assert field.replace("_", " ") in str(caught.value)
