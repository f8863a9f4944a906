"""botocore's chain of credentials: each source of keys, keys that end, and sources that fail."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.credentials
import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.s3.aws_services import CONTAINER_TOKEN, SSO_TOKEN, AwsServices, Keys
from tests.s3.test_requests import Frozen, statuses

FIRST, SECOND = Keys("FIRST"), Keys("SECOND")
ROLE = "arn:aws:iam::123456789012:role/reader"
START_URL = "https://start.example"


@pytest.fixture
def services() -> Iterator[AwsServices]:
    services = AwsServices()
    yield services
    services.stop()


@dataclass
class Account:
    """A machine with no keys but those that a test gives it."""

    folder: Path
    services: AwsServices
    set: Callable[[str, str], None]
    """Sets an environment variable."""

    def config(self, text: str) -> None:
        """Write the file of profiles."""
        (self.folder / "config").write_text(text)

    def publish(self, keys: Keys) -> None:
        """From now on these are the keys, whatever gives them."""
        self.services.keys = keys
        (self.folder / "shared").write_text(
            f"[default]\naws_access_key_id={keys.access_key}\n"
            f"aws_secret_access_key={keys.secret_key}\naws_session_token={keys.token}\n"
        )
        process = {"Version": 1, **keys.members("SessionToken")}
        (self.folder / "process.json").write_text(json.dumps(process))
        login = {
            "accessToken": {
                "accessKeyId": keys.access_key,
                "secretAccessKey": keys.secret_key,
                "sessionToken": keys.token,
                "expiresAt": keys.expires_at,
                "accountId": "123456789012",
            },
            "refreshToken": "refresh",
            "dpopKey": "key",
            "clientId": "client",
        }
        name = hashlib.sha256(ROLE.encode()).hexdigest()
        (self.folder / f"{name}.json").write_text(json.dumps(login))


@pytest.fixture
def account(tmp_path: Path, services: AwsServices, monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account(tmp_path, services, monkeypatch.setenv)
    account.set("AWS_CONFIG_FILE", str(tmp_path / "config"))
    account.set("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    account.set("AWS_EC2_METADATA_DISABLED", "true")
    account.set("AWS_DEFAULT_REGION", "us-east-1")
    account.set("AWS_MAX_ATTEMPTS", "1")
    account.publish(FIRST)
    return account


# ---- the sources


def shared_file(account: Account) -> None:
    account.set("AWS_SHARED_CREDENTIALS_FILE", str(account.folder / "shared"))


def process(account: Account) -> None:
    account.config(f"[default]\ncredential_process = cat {account.folder}/process.json\n")


def assumed_role(account: Account) -> None:
    account.set("AWS_ENDPOINT_URL_STS", account.services.url)
    account.set("AWS_PROFILE", "reader")
    account.config(
        f"[profile reader]\nrole_arn = {ROLE}\nsource_profile = base\n"
        "[profile base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = base\n"
    )


def web_identity(account: Account) -> None:
    token = account.folder / "token"
    token.write_text("web-token")
    account.set("AWS_ENDPOINT_URL_STS", account.services.url)
    account.set("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    account.set("AWS_ROLE_ARN", ROLE)


def container(account: Account) -> None:
    account.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{account.services.url}/container")
    account.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER_TOKEN)


def instance(account: Account) -> None:
    account.set("AWS_EC2_METADATA_DISABLED", "false")
    account.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", account.services.url)


def sso(account: Account) -> None:
    """What ``aws sso login`` has left is a file with a token."""
    account.set("AWS_ENDPOINT_URL_SSO", account.services.url)
    account.config(
        f"[default]\nsso_start_url = {START_URL}\nsso_region = us-east-1\n"
        "sso_account_id = 123456789012\nsso_role_name = reader\n"
    )
    name = hashlib.sha1(START_URL.encode()).hexdigest()
    token = {"accessToken": SSO_TOKEN, "expiresAt": Keys("").expires_at}
    (account.folder / f"{name}.json").write_text(json.dumps(token))


def login(account: Account) -> None:
    """What ``aws login`` has left is a file with keys."""
    account.set("AWS_LOGIN_CACHE_DIRECTORY", str(account.folder))
    account.config(f"[default]\nlogin_session = {ROLE}\n")


SOURCES = [shared_file, process, assumed_role, web_identity, container, instance, sso, login]


@pytest.fixture(params=SOURCES, ids=[source.__name__ for source in SOURCES])
def source(
    request: pytest.FixtureRequest, account: Account, monkeypatch: pytest.MonkeyPatch
) -> str:
    """An account that has its keys from there; the name of the source."""
    # botocore looks into the home directory that there was when it was imported.
    provider = botocore.credentials.SSOProvider
    monkeypatch.setattr(provider, "_SSO_TOKEN_CACHE_DIR", str(account.folder))
    # Keys of `aws login` are renewed by awscrt. They are read without it.
    monkeypatch.setattr(botocore.credentials, "EC", object())
    request.param(account)
    return str(request.param.__name__)


FEW = headrace.RetryOptions(max_attempts=2, initial_backoff_s=0.001, max_backoff_s=0.002)


@pytest.fixture
def store(s3_server: FaultServer) -> headrace.Store:
    """A bucket with the object ``a``, for whoever has keys."""
    s3_server.put("bucket", "a", b"1")
    s3_server.keys(FIRST.for_server)
    return headrace.Store("s3://bucket", endpoint=s3_server.url, retry=FEW)


def signed_by(log: list[dict[str, Any]]) -> list[str]:
    """The names of the keys of all requests, without repetitions."""
    names: list[str] = []
    for line in log:
        key = line["headers"]["authorization"].partition("Credential=AKID")[2].partition("/")[0]
        if names[-1:] != [key]:
            names.append(key)
    return names


def test_keys_come_from_every_source(
    source: str, store: headrace.Store, s3_server: FaultServer, services: AwsServices
) -> None:
    assert store.read("a").bytes() == b"1"
    store.write("b", b"2")
    assert [info.name for info in store.list()] == ["a", "b"]
    assert statuses(s3_server) == [200] * 3
    assert signed_by(s3_server.log()) == ["FIRST"]
    # Once for all requests; files are no services.
    assert len(services.asked) == (0 if source in ("shared_file", "process", "login") else 1)


def test_keys_of_every_source_that_are_refused_are_replaced(
    source: str, store: headrace.Store, account: Account, s3_server: FaultServer
) -> None:
    assert store.read("a").bytes() == b"1"
    account.publish(SECOND)
    s3_server.keys(SECOND.for_server)
    assert store.read("a").bytes() == b"1"
    assert statuses(s3_server) == [200, 403, 200]
    assert signed_by(s3_server.log()) == ["FIRST", "SECOND"]


# The process's keys have their end when they are published, the role's when they are given.
@pytest.mark.parametrize(
    ("give", "life_s"), [(process, 8.0), (assumed_role, 6.0)], ids=["process", "assumed_role"]
)
def test_keys_are_renewed_before_they_expire(
    give: Callable[[Account], None],
    life_s: float,
    store: headrace.Store,
    account: Account,
    s3_server: FaultServer,
) -> None:
    give(account)
    account.publish(Keys("FIRST", life_s))
    assert store.read("a").bytes() == b"1"
    account.publish(SECOND)
    s3_server.keys(FIRST.for_server, SECOND.for_server)
    deadline, seen = time.monotonic() + 120, s3_server.log()
    while signed_by(seen[-1:]) != ["SECOND"]:
        assert time.monotonic() < deadline, "they are never renewed"
        assert store.read("a").bytes() == b"1"
        seen += s3_server.log(since=seen[-1]["n"])
    assert {line["status"] for line in seen} == {200}


def test_the_environment_comes_before_all_others(
    account: Account, store: headrace.Store, s3_server: FaultServer, services: AwsServices
) -> None:
    container(account)
    account.set("AWS_ACCESS_KEY_ID", SECOND.access_key)
    account.set("AWS_SECRET_ACCESS_KEY", SECOND.secret_key)
    account.set("AWS_SESSION_TOKEN", SECOND.token)
    s3_server.keys(SECOND.for_server)
    assert store.read("a").bytes() == b"1"
    assert services.asked == []


# ---- sources that fail


def failure_of(store: headrace.Store, kind: type[headrace.HeadraceError]) -> str:
    with pytest.raises(kind) as caught:
        store.read("a")
    assert caught.value.url == "s3://bucket/a"
    return str(caught.value)


def test_no_source_is_told_with_what_to_do(
    account: Account, store: headrace.Store, s3_server: FaultServer
) -> None:
    told = failure_of(store, headrace.PermissionDeniedError)
    assert "no AWS credentials were found: set AWS_ACCESS_KEY_ID" in told
    assert "aws configure" in told
    assert s3_server.log() == []


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        (f"credential_process = {sys.executable} -c 'raise SystemExit(\"ask IT\")'", "ask IT"),
        ("role_arn = x\nsource_profile = nobody", "nobody"),
    ],
    ids=["process", "role"],
)
def test_a_profile_that_cannot_work_is_told_in_botocores_words(
    account: Account, store: headrace.Store, profile: str, told: str
) -> None:
    account.config(f"[default]\n{profile}\n")
    text = failure_of(store, headrace.PermissionDeniedError)
    assert "the AWS credentials failed" in text
    assert told in text


def test_a_role_that_may_not_be_assumed_is_told_at_once(
    account: Account, store: headrace.Store, services: AwsServices
) -> None:
    assumed_role(account)
    services.status = 403
    told = failure_of(store, headrace.PermissionDeniedError)
    assert "you may not assume that role" in told
    assert services.asked == ["AssumeRole"]


@pytest.mark.parametrize("how", ["500", "nobody there"])
def test_a_service_that_is_down_is_asked_again(
    account: Account, store: headrace.Store, services: AwsServices, how: str
) -> None:
    assumed_role(account)
    if how == "500":
        services.status = 500
    else:
        other = AwsServices()
        other.stop()
        account.set("AWS_ENDPOINT_URL_STS", other.url)
    assert "the AWS credentials failed" in failure_of(store, headrace.UnavailableError)
    services.status = 200
    account.set("AWS_ENDPOINT_URL_STS", services.url)
    headrace.shutdown()  # or else the failure counts for a second
    assert store.read("a").bytes() == b"1"


def test_login_without_awscrt_says_what_to_install(account: Account, store: headrace.Store) -> None:
    if botocore.credentials.EC is not None:
        pytest.skip("awscrt is installed")
    login(account)
    assert "botocore[crt]" in failure_of(store, headrace.PermissionDeniedError)


def test_without_botocore_a_source_that_fails_is_told_and_asked_again(
    s3_server: FaultServer, store: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Source:
        is_closed = True

        def get_frozen_credentials(self) -> Any:
            if self.is_closed:
                raise OSError("the vault is closed")
            return Frozen(FIRST.access_key, FIRST.secret_key, FIRST.token)

    monkeypatch.setitem(sys.modules, "botocore", None)
    mine = Source()
    own = headrace.Store("s3://bucket", endpoint=s3_server.url, credentials=mine)
    told = failure_of(own, headrace.PermissionDeniedError)
    assert "the vault is closed" in told
    assert "botocore" not in told
    told = failure_of(store, headrace.PermissionDeniedError)
    assert "pip install 'headrace[s3]'" in told
    mine.is_closed = False
    headrace.shutdown()  # or else the failure counts for a second
    assert own.read("a").bytes() == b"1"
