"""AWS's variables and files: read as boto3 reads them, which is asked here, too; or refused."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import botocore.exceptions
import botocore.session
import hypothesis
import hypothesis.strategies as st
import pytest
from botocore.awsrequest import AWSResponse
from botocore.loaders import Loader

import headrace
from headrace._credentials import aws_files
from headrace._credentials.aws_configuration import AwsConfiguration
from headrace._credentials.aws_files import Setting, read_aws_files
from headrace.fsspec import S3FileSystem
from testing.faultserver.client import FaultServer
from testing.servers import Certificates
from tests.conftest import SEARCHED
from tests.keys import S3_KEYS

KEYS = (
    f"aws_access_key_id = {S3_KEYS.access_key_id}\n"
    f"aws_secret_access_key = {S3_KEYS.secret_access_key}\n"
)
REGION = "eu-west-9"
NOWHERE = "http://127.0.0.1:9"
ONCE = headrace.RetryOptions(max_attempts=1)


@dataclass
class Machine:
    """A machine with nothing of AWS's but what a test gives it."""

    folder: Path
    set: Callable[[str, str], None]
    """Sets an environment variable."""

    @property
    def config_file(self) -> Path:
        return self.folder / "config"

    @property
    def credentials_file(self) -> Path:
        return self.folder / "credentials"

    def config(self, text: str) -> None:
        self.config_file.write_text(text)

    def credentials(self, text: str) -> None:
        self.credentials_file.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    machine = Machine(tmp_path, monkeypatch.setenv)
    machine.set("AWS_CONFIG_FILE", str(machine.config_file))
    machine.set("AWS_SHARED_CREDENTIALS_FILE", str(machine.credentials_file))
    machine.set("AWS_EC2_METADATA_DISABLED", "true")
    return machine


@pytest.fixture
def there(s3_server: FaultServer) -> FaultServer:
    """A service with the object ``s3://bucket/a``, which refuses what is signed for another
    region."""
    s3_server.bucket("bucket", region=REGION)
    s3_server.put("bucket", "a", b"there")
    return s3_server


def configuration(**options: Any) -> AwsConfiguration:
    """What a store finds out before its first request."""
    return headrace.Store("s3://bucket", **options)._settings.aws_configuration()


def regions(server: FaultServer) -> set[str]:
    """The regions that requests were signed for."""
    return {line["headers"]["authorization"].split("/")[2] for line in server.log()}


# ---- where requests go

OWN = f"region = {REGION}\n{KEYS}"
WAYS: dict[str, Callable[[str], tuple[str, str, dict[str, str]]]] = {
    "the default profile": lambda url: (f"[default]\n{OWN}endpoint_url = {url}\n", "", {}),
    "a profile that AWS_PROFILE names": lambda url: (
        f"[default]\nendpoint_url = {NOWHERE}\n[profile own]\n{OWN}endpoint_url = {url}\n",
        "",
        {"AWS_PROFILE": "own"},
    ),
    "AWS_DEFAULT_PROFILE before AWS_PROFILE": lambda url: (
        f"[profile own]\n{OWN}endpoint_url = {url}\n[profile other]\n",
        "",
        {"AWS_PROFILE": "other", "AWS_DEFAULT_PROFILE": "own"},
    ),
    "a section of services before the profile": lambda url: (
        f"[default]\n{OWN}services = mine\nendpoint_url = {NOWHERE}\n"
        f"[services mine]\ns3 =\n  endpoint_url = {url}\nsts =\n  endpoint_url = {NOWHERE}\n",
        "",
        {},
    ),
    "AWS_ENDPOINT_URL before the files": lambda url: (
        f"[default]\n{OWN}services = mine\nendpoint_url = {NOWHERE}\n"
        f"[services mine]\ns3 =\n  endpoint_url = {NOWHERE}\n",
        "",
        {"AWS_ENDPOINT_URL": url},
    ),
    "AWS_ENDPOINT_URL_S3 before AWS_ENDPOINT_URL": lambda url: (
        f"[default]\n{OWN}",
        "",
        {"AWS_ENDPOINT_URL": NOWHERE, "AWS_ENDPOINT_URL_S3": url},
    ),
    "keys in variables and the rest in the profile": lambda url: (
        f"[default]\nregion = {REGION}\nendpoint_url = {url}\n",
        "",
        {
            "AWS_ACCESS_KEY_ID": S3_KEYS.access_key_id,
            "AWS_SECRET_ACCESS_KEY": S3_KEYS.secret_access_key,
        },
    ),
    "keys in the other file": lambda url: (
        f"[profile own]\nregion = {REGION}\nendpoint_url = {url}\n",
        f"[own]\n{KEYS}",
        {"AWS_PROFILE": "own"},
    ),
    "all of it in the file of keys, which counts more": lambda url: (
        f"[default]\nregion = us-west-2\nendpoint_url = {NOWHERE}\n",
        f"[default]\n{OWN}endpoint_url = {url}\n",
        {},
    ),
    "AWS_DEFAULT_REGION before AWS_REGION and the profile": lambda url: (
        f"[default]\nregion = us-west-2\n{KEYS}endpoint_url = {url}\n",
        "",
        {"AWS_DEFAULT_REGION": REGION, "AWS_REGION": "us-west-1"},
    ),
    "AWS_REGION before the profile": lambda url: (
        f"[default]\nregion = us-west-2\n{KEYS}endpoint_url = {url}\n",
        "",
        {"AWS_REGION": REGION},
    ),
    "variables that are set to nothing": lambda url: (
        f"[default]\n{OWN}endpoint_url = {url}\n",
        "",
        {"AWS_PROFILE": "", "AWS_ENDPOINT_URL_S3": "", "AWS_DEFAULT_REGION": ""},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_requests_go_where_it_is_configured(way: str, machine: Machine, there: FaultServer) -> None:
    config, credentials, variables = WAYS[way](there.url)
    machine.config(config)
    machine.credentials(credentials)
    for name, value in variables.items():
        machine.set(name, value)
    assert headrace.Store("s3://bucket", retry=ONCE).read("a").bytes() == b"there"
    assert [line["status"] for line in there.log()] == [200]
    assert regions(there) == {REGION}


@pytest.mark.parametrize("inside", [False, True])
def test_configured_endpoints_are_ignored_if_that_is_configured(
    inside: bool, machine: Machine
) -> None:
    ignores = "ignore_configured_endpoint_urls = true\n" if inside else ""
    machine.config(f"[default]\n{OWN}endpoint_url = {NOWHERE}\n{ignores}")
    machine.set("AWS_ENDPOINT_URL", NOWHERE)
    if not inside:
        machine.set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "True")
    store = headrace.Store("s3://bucket")
    assert urlsplit(store.presigned_url("a")).netloc == f"bucket.s3.{REGION}.amazonaws.com"
    # An argument is none of these.
    given = headrace.Store("s3://bucket", endpoint="http://127.0.0.1:1")
    assert urlsplit(given.presigned_url("a")).netloc == "127.0.0.1:1"


def test_arguments_come_before_everything(machine: Machine, there: FaultServer) -> None:
    machine.config(
        f"[default]\nregion = us-west-2\nendpoint_url = {NOWHERE}\nservices = missing\n"
        "request_checksum_calculation = when_required\nuse_fips_endpoint = true\n"
        "s3 =\n  addressing_style = virtual\n  use_accelerate_endpoint = true\n"
    )
    machine.set("AWS_ENDPOINT_URL_S3", NOWHERE)
    machine.set("AWS_DEFAULT_REGION", "us-west-1")
    options = headrace.S3Options(region=REGION, addressing="path", checksum="crc32c", fips=False)
    store = headrace.Store(
        "s3://bucket", endpoint=there.url, credentials=S3_KEYS, provider=options, retry=ONCE
    )
    assert store.read("a").bytes() == b"there"
    assert regions(there) == {REGION}
    found = store._settings.aws_configuration()
    assert (found.addressing, found.checksum, found.fips) == ("path", "crc32c", False)


def test_fsspec_reads_the_same_configuration(machine: Machine, there: FaultServer) -> None:
    machine.config(f"[profile own]\n{OWN}endpoint_url = {there.url}\n")
    machine.set("AWS_PROFILE", "own")
    assert S3FileSystem(skip_instance_cache=True).cat_file("bucket/a") == b"there"
    assert regions(there) == {REGION}


def test_a_session_has_the_configuration_of_its_own_profile(
    machine: Machine, there: FaultServer
) -> None:
    machine.config(
        f"[default]\nregion = us-west-2\nendpoint_url = {NOWHERE}\n"
        f"[profile own]\n{OWN}endpoint_url = {there.url}\n"
    )
    session = botocore.session.Session(profile="own")
    store = headrace.Store("s3://bucket", credentials=session, retry=ONCE)
    assert store.read("a").bytes() == b"there"

    class Boto3Session:
        """As far as boto3's differs from botocore's, which it has inside."""

        def __init__(self) -> None:
            self._session = session
            self.get_credentials = session.get_credentials

    store = headrace.Store("s3://bucket", credentials=Boto3Session(), retry=ONCE)
    assert store.read("a").bytes() == b"there"
    session.set_config_variable("region", "us-west-1")
    assert configuration(credentials=session).region == "us-west-1"
    missing = botocore.session.Session(profile="missing")
    with pytest.raises(headrace.InvalidArgumentError, match="profile of the session is 'missing'"):
        configuration(credentials=missing)


def test_stores_of_two_profiles_each_have_their_own_keys(
    machine: Machine, there: FaultServer
) -> None:
    other = {"access_key": "AKIDOTHER", "secret_key": "other"}
    there.keys(
        {"access_key": S3_KEYS.access_key_id, "secret_key": S3_KEYS.secret_access_key}, other
    )
    place = f"region = {REGION}\nendpoint_url = {there.url}\n"
    machine.config(
        f"[profile one]\n{place}{KEYS}[profile two]\n{place}"
        "aws_access_key_id = AKIDOTHER\naws_secret_access_key = other\n"
    )
    for profile in ("one", "two", "one"):
        machine.set("AWS_PROFILE", profile)
        assert headrace.Store("s3://bucket").read("a").bytes() == b"there"
    ids = [line["headers"]["authorization"].split("Credential=")[1] for line in there.log()]
    mine = S3_KEYS.access_key_id
    assert [each.split("/")[0] for each in ids] == [mine, "AKIDOTHER", mine]


def test_a_bundle_of_certificates_is_what_servers_are_judged_by(
    machine: Machine, certificates: Certificates
) -> None:
    with FaultServer(
        dialect="s3", tls_cert=certificates.cert_file, tls_key=certificates.key_file
    ) as server:
        server.put("bucket", "a", b"there")
        machine.config(f"[default]\nca_bundle = {certificates.ca_file}\nendpoint_url={server.url}")
        store = headrace.Store("s3://bucket", credentials="anonymous", retry=ONCE)
        assert store.read("a").bytes() == b"there"
        headrace.shutdown()


def test_what_goes_along_with_writes_is_configured(machine: Machine, there: FaultServer) -> None:
    machine.config(
        f"[default]\n{OWN}endpoint_url = {there.url}\n"
        "request_checksum_calculation = WHEN_REQUIRED\n"
    )
    headrace.Store("s3://bucket").write("b", b"1")
    (line,) = there.log()
    assert "content-md5" in line["headers"]
    assert not [name for name in line["headers"] if name.startswith("x-amz-checksum")]
    machine.set("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    assert configuration().checksum == "auto"


# ---- what was found is kept


def test_an_opened_store_keeps_what_it_has_found(machine: Machine, there: FaultServer) -> None:
    machine.config(f"[default]\n{OWN}endpoint_url = {there.url}\n")
    store = headrace.Store("s3://bucket", retry=ONCE)
    late = headrace.Store("s3://bucket", retry=ONCE)
    assert store.read("a").bytes() == b"there"
    machine.config(f"[default]\n{OWN}endpoint_url = {NOWHERE}\n")
    derived = store._derived(on_change="reread")
    for each in (store, derived, pickle.loads(pickle.dumps(store))):
        assert each.read("a").bytes() == b"there"
    with pytest.raises(headrace.UnavailableError):
        late.read("a")
    elsewhere = store._derived(endpoint="http://127.0.0.1:1")
    with pytest.raises(headrace.UnavailableError, match=r"127\.0\.0\.1:1"):
        elsewhere.read("a")


def test_a_store_finds_keys_in_the_home_directory_of_its_process(
    machine: Machine, there: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is another one on another machine: the profile is of the same name there."""
    monkeypatch.delenv("AWS_CONFIG_FILE")
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    homes = [machine.folder / "one", machine.folder / "two"]
    for home in homes:
        (home / ".aws").mkdir(parents=True)
        (home / ".aws" / "credentials").write_text(f"[own]\n{KEYS}")
    (homes[0] / ".aws" / "config").write_text(
        f"[profile own]\nregion = {REGION}\nendpoint_url = {there.url}\n"
    )
    machine.set("HOME", str(homes[0]))
    machine.set("AWS_PROFILE", "own")
    store = headrace.Store("s3://bucket", retry=ONCE)
    assert store.read("a").bytes() == b"there"
    (homes[0] / ".aws" / "credentials").unlink()
    machine.set("HOME", str(homes[1]))
    monkeypatch.delenv("AWS_PROFILE")
    headrace.shutdown()
    assert pickle.loads(pickle.dumps(store)).read("a").bytes() == b"there"
    assert regions(there) == {REGION}


@pytest.mark.parametrize("name", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"])
def test_a_file_can_be_named_by_any_kind_of_path(
    name: str, machine: Machine, there: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.folder / "here").write_text(f"[default]\n{OWN}endpoint_url = {there.url}\n")
    machine.set("HOME", str(machine.folder))
    machine.set("FOLDER", str(machine.folder))
    monkeypatch.chdir(machine.folder)
    for path in ("here", "~/here", "$FOLDER/here"):
        machine.set(name, path)
        store = headrace.Store("s3://bucket", retry=ONCE)
        assert store.read("a").bytes() == b"there"
    machine.set(name, "")
    assert configuration().endpoint == ""


def read(store: headrace.Store) -> bytes:
    return store.read("a").bytes()


@pytest.mark.usefixtures("own_forkserver")
@pytest.mark.parametrize(
    "method", ["fork", pytest.param("spawn", marks=pytest.mark.soak), "forkserver"]
)
def test_another_process_reads_from_where_an_opened_store_does(
    method: str, machine: Machine, there: FaultServer
) -> None:
    machine.config(f"[profile own]\n{OWN}endpoint_url = {there.url}\n")
    machine.set("AWS_PROFILE", "own")
    store = headrace.Store("s3://bucket", retry=ONCE)
    assert store.read("a").bytes() == b"there"
    machine.set("AWS_PROFILE", "gone")
    machine.set("AWS_ENDPOINT_URL", NOWHERE)
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(read, (store,)) == b"there"
    assert regions(there) == {REGION}


def test_nothing_secret_travels_with_a_store(machine: Machine, there: FaultServer) -> None:
    machine.config(f"[default]\n{OWN}endpoint_url = {there.url}\n")
    store = headrace.Store("s3://bucket")
    store.read("a")
    assert S3_KEYS.secret_access_key.encode() not in pickle.dumps(store)
    assert S3_KEYS.secret_access_key not in repr(store._settings.aws_configuration())


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were parsed, in order."""
    paths: list[str] = []
    real = aws_files._sections

    def counted(path: str) -> Any:
        paths.append(path)
        return real(path)

    monkeypatch.setattr(aws_files, "_sections", counted)
    return paths


def test_files_are_parsed_once_for_all_stores(machine: Machine, parsed: list[str]) -> None:
    machine.config(f"[default]\n{OWN}endpoint_url = {NOWHERE}\n")
    os.utime(machine.config_file, (1, 1))
    for _ in range(10_000):
        assert headrace.Store("s3://bucket").url_of("a") == "s3://bucket/a"
    assert parsed == [str(machine.config_file), str(machine.credentials_file)]


def test_a_file_that_changes_is_parsed_again(machine: Machine, parsed: list[str]) -> None:
    """Even if it is as long as before, and its times are set back."""
    for region in ("eu-west-1", "eu-west-2", "eu-west-3"):
        machine.config(f"[default]\nregion = {region}\n")
        assert configuration().region == region
        os.utime(machine.config_file, (1, 1))
        assert configuration().region == region
        assert configuration().region == region
    machine.credentials("[default]\nregion = us-west-1\n")
    assert configuration().region == "us-west-1"
    assert len(parsed) == 2 * 7
    machine.credentials_file.unlink()
    assert configuration().region == "eu-west-3"


# ---- what cannot work, or cannot be obeyed


@pytest.mark.parametrize(
    ("config", "variables", "named"),
    [
        ("[default]\n", {"AWS_PROFILE": "own"}, "AWS_PROFILE is 'own', and there is no such"),
        ("[own]\n", {"AWS_PROFILE": "own"}, r"must be called \[profile own\]"),
        ("[profile a]\n", {"AWS_DEFAULT_PROFILE": "b"}, r"AWS_DEFAULT_PROFILE.*\(profiles: a\)"),
        ("[default]\nservices = mine\n", {}, r"services of \[default\] in .*\[services mine\]"),
        ("[default]\nservices = m\n[services m]\ns3 = x\n", {}, r"s3 of \[services m\].*indented"),
        ("[default]\ns3 = path\n", {}, r"s3 of \[default\] in /.*config is 'path'"),
        ("[default]\ns3 =\n  addressing_style = dns\n", {}, "addressing_style below s3.*virtual"),
        ("[default]\ns3 =\n  use_accelerate_endpoint = true\n", {}, "Transfer Acceleration"),
        ("[default]\ns3 =\n  payload_signing_enabled = true\n", {}, "payload_signing_enabled"),
        ("[default]\ns3 =\n  signature_version = s3\n", {}, r"signature_version.*\(s3v4\) only"),
        ("[default]\nuse_fips_endpoint = yes\n", {}, r"use_fips_endpoint.*true or false"),
        ("", {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "1"}, r"URLS is '1': it must be true or"),
        ("", {"AWS_USE_DUALSTACK_ENDPOINT": "on"}, r"AWS_USE_DUALSTACK_ENDPOINT is 'on'"),
        ("[default]\nregion = us-west-2 # here\n", {}, r"region of \[default\].*no region"),
        ("", {"AWS_REGION": "EU West"}, "AWS_REGION is 'EU West'"),
        ("[default]\nregion =\n  a = b\n", {}, r"region of \[default\].*one value"),
        ("[default]\nendpoint_url = ftp://x\n", {}, r"endpoint_url of \[default\] in .*ftp"),
        ("", {"AWS_ENDPOINT_URL_S3": "https://host:port"}, "AWS_ENDPOINT_URL_S3: .*host:port"),
        ("[default]\nca_bundle = /no/such.pem\n", {}, "ca_bundle of .*/no/such.pem.*no such file"),
        ("", {"AWS_CA_BUNDLE": "/no/such.pem"}, "AWS_CA_BUNDLE is '/no/such.pem'"),
        ("", {"AWS_REQUEST_CHECKSUM_CALCULATION": "never"}, "AWS_REQUEST_CHECKSUM_CALCULATION"),
        ("[default]\nresponse_checksum_validation = no\n", {}, "response_checksum_validation"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_its_place(
    config: str, variables: dict[str, str], named: str, machine: Machine
) -> None:
    machine.config(config)
    for name, value in variables.items():
        machine.set(name, value)
    with pytest.raises(headrace.InvalidArgumentError, match=named):
        headrace.Store("s3://bucket", credentials=S3_KEYS).stat("a")
    # Stores of others do not care.
    assert not headrace.Store(machine.folder).exists("x")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("aws_secret_access_key = hunter2\n", "line 1 is in no section"),
        ("[default]\naws_secret_access_key hunter2\n", "line 2 is not 'name = value'"),
        ("[default]\n[a]\n[default]\nx = hunter2\n", r"line 3: the section \[default\] is there"),
        ("[default]\nx = hunter2\nX = hunter2\n", r"line 3: x is set twice in \[default\]"),
        ("[default]\ns3 =\n  hunter2\n", "a line below 's3' is not 'name = value'"),
    ],
)
def test_a_file_that_is_no_file_of_profiles_is_refused_without_its_text(
    text: str, named: str, machine: Machine
) -> None:
    machine.config(text)
    with pytest.raises(headrace.InvalidArgumentError, match=named) as caught:
        configuration()
    assert str(machine.config_file) in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(machine: Machine) -> None:
    machine.config_file.write_bytes(b"[default]\nregion = \xff\n")
    with pytest.raises(headrace.InvalidArgumentError, match=str(machine.config_file)):
        configuration()


def test_what_concerns_signatures_does_not_concern_anonymous_requests(machine: Machine) -> None:
    machine.config("[default]\ns3 =\n  signature_version = s3\n  payload_signing_enabled = true\n")
    assert configuration(credentials="anonymous") == configuration(credentials="anonymous")


def test_a_key_without_its_secret_is_refused(machine: Machine) -> None:
    machine.set("AWS_ACCESS_KEY_ID", "AKID")
    with pytest.raises(headrace.InvalidArgumentError, match="AWS_SECRET_ACCESS_KEY is not"):
        headrace.Store("s3://bucket", endpoint=NOWHERE).stat("a")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("role_arn = arn\nsource_profile = base\n", "role_arn"),
        ("credential_process = cat\n", "credential_process"),
        ("sso_session = mine\nsso_account_id = 1\n", "sso_session"),
        (KEYS, "aws_access_key_id"),
    ],
)
def test_without_botocore_the_error_names_what_needs_it(
    settings: str, named: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.config(f"[profile own]\n{settings}")
    machine.set("AWS_PROFILE", "own")
    for module in [each for each in sys.modules if each.partition(".")[0] == "botocore"]:
        monkeypatch.setitem(sys.modules, module, None)
    headrace.shutdown()
    try:
        with pytest.raises(headrace.HeadraceError) as caught:
            headrace.Store("s3://bucket", endpoint=NOWHERE, retry=ONCE).stat("a")
    finally:
        headrace.shutdown()
    assert f"{named} of [profile own] in {machine.config_file}" in str(caught.value)
    assert "pip install 'headrace[s3]'" in str(caught.value)


# ---- as boto3: the same answers to whatever can be configured

NAMES = ["default", "own", "two words", "services x"]
ENDPOINTS = ["http://127.0.0.1:9000", "https://storage.example", "https://other.example:8443"]
REGIONS = ["eu-west-1", "us-east-1", "cn-north-1", "eusc-de-east-1", "us-gov-west-1", "aws-global"]
FLAGS = ["true", "True", "false", "TRUE"]
TOP = {
    "region": [*REGIONS, "not a region"],
    "endpoint_url": ENDPOINTS,
    "ENDPOINT_URL": ENDPOINTS,
    "services": ["mine", "none"],
    "ignore_configured_endpoint_urls": FLAGS,
    "use_dualstack_endpoint": FLAGS,
    "use_fips_endpoint": FLAGS,
    "request_checksum_calculation": ["when_required", "When_Supported", "always"],
    "colour": ["50%", "%(region)s", "a = b"],
}
BLOCK = {
    "addressing_style": ["auto", "path", "virtual", "dns"],
    "use_dualstack_endpoint": FLAGS,
    "use_accelerate_endpoint": FLAGS,
    "Addressing_Style": ["path"],
    "max_concurrent_requests": ["20"],
}
VARIABLES = {
    "AWS_ENDPOINT_URL_S3": ["", *ENDPOINTS],
    "AWS_ENDPOINT_URL": ["", *ENDPOINTS],
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": ["", *FLAGS],
    "AWS_DEFAULT_REGION": REGIONS,
    "AWS_PROFILE": [*NAMES, "missing"],
    "AWS_DEFAULT_PROFILE": NAMES,
    "AWS_USE_DUALSTACK_ENDPOINT": ["", *FLAGS],
    "AWS_USE_FIPS_ENDPOINT": ["", *FLAGS],
}


def chosen(choices: dict[str, list[str]], most: int) -> st.SearchStrategy[dict[str, str]]:
    """Some of the names, each with one of its values."""
    names = st.lists(st.sampled_from(sorted(choices)), unique=True, max_size=most)
    return names.flatmap(
        lambda names: st.fixed_dictionaries(
            {each: st.sampled_from(choices[each]) for each in names}
        )
    )


def lines(settings: dict[str, str], indent: str = "") -> str:
    return "".join(f"{indent}{name} = {value}\n" for name, value in settings.items())


@st.composite
def profile(draw: st.DrawFn) -> str:
    text = lines(draw(chosen(TOP, 4)))
    block = draw(chosen(BLOCK, 3))
    if block:
        text += f"s3 =\n{lines(block, draw(st.sampled_from(['  ', chr(9)])))}"
    return text


@st.composite
def config_file(draw: st.DrawFn) -> str:
    titles = {
        "default": "[default]",
        "own": draw(st.sampled_from(["[profile own]", '[profile "own"]', "[profile  own]"])),
        "two words": draw(st.sampled_from(["[profile 'two words']", "[profile two words]"])),
    }
    text = ""
    for name in draw(st.lists(st.sampled_from(sorted(titles)), unique=True)):
        text += f"{titles[name]}\n{draw(profile())}"
    if draw(st.booleans()):
        service = draw(st.sampled_from(["s3", "sts", "S3"]))
        text += (
            f"[services mine]\n{service} =\n  endpoint_url = {draw(st.sampled_from(ENDPOINTS))}\n"
        )
    return text


@st.composite
def credentials_file(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2))
    return "".join(f"[{name}]\n{draw(profile())}" for name in names)


LOADER = Loader(include_default_search_paths=True)


def asked_by_boto3() -> tuple[str, str, str]:
    """Where boto3 sends a request: host with scheme, path, and the region that it is signed for.

    Raises:
        Exception: of botocore's.
    """
    session = botocore.session.Session()
    session.register_component("data_loader", LOADER)
    client = session.create_client("s3", aws_access_key_id="AKID", aws_secret_access_key="key")
    sent = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 403, {}, None)

    client.meta.events.register("before-send.s3", answer)
    with (
        mock.patch.object(AWSResponse, "content", b""),
        pytest.raises(botocore.exceptions.ClientError),
    ):
        client.get_object(Bucket="bucket", Key="k")
    (request,) = sent
    url = urlsplit(request.url)
    scope = request.headers["Authorization"].decode().split("Credential=")[1].split(",")[0]
    return f"{url.scheme}://{url.netloc}", url.path, scope.split("/")[2]


def asked_by_us() -> tuple[str, str, str]:
    """The same of headrace."""
    found = configuration(credentials=S3_KEYS)
    # A request whose region is not known is signed for this one, too, but not before it is sent.
    options = None if found.region else headrace.S3Options(region="us-east-1")
    store = headrace.Store("s3://bucket", credentials=S3_KEYS, provider=options)
    url = urlsplit(store.presigned_url("k"))
    (credential,) = parse_qs(url.query)["X-Amz-Credential"]
    return f"{url.scheme}://{url.netloc}", url.path, credential.split("/")[2]


def answer_of(ask: Callable[[], tuple[str, str, str]]) -> tuple[str, str, str] | Exception:
    try:
        return ask()
    except Exception as error:  # botocore has many kinds
        return error


# boto3 asks the host of all regions for this one; it stands for that of the region.
SAME_HOST = {
    "https://bucket.s3.amazonaws.com": "https://bucket.s3.us-east-1.amazonaws.com",
    "https://s3.amazonaws.com": "https://s3.us-east-1.amazonaws.com",
}


@pytest.fixture(scope="module")
def files() -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "config", Path(folder) / "credentials"


@hypothesis.settings(max_examples=SEARCHED or 120)
@hypothesis.given(
    config=config_file(), credentials=credentials_file(), variables=chosen(VARIABLES, 3)
)
def test_requests_go_where_boto3_sends_them(
    files: tuple[Path, Path], config: str, credentials: str, variables: dict[str, str]
) -> None:
    files[0].write_text(config)
    files[1].write_text(credentials)
    own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    own |= {"AWS_CONFIG_FILE": str(files[0]), "AWS_SHARED_CREDENTIALS_FILE": str(files[1])}
    with mock.patch.dict(os.environ, {**own, **variables}, clear=True):
        theirs, ours = answer_of(asked_by_boto3), answer_of(asked_by_us)
    if isinstance(theirs, Exception):
        assert isinstance(ours, headrace.InvalidArgumentError)
    elif "s3-accelerate" in theirs[0]:
        assert "headrace does not use S3 Transfer Acceleration" in str(ours)
    else:
        host, path, region = theirs
        assert ours == (SAME_HOST.get(host, host), path, region)


PIECES = st.sampled_from(
    [
        "[default]",
        "[profile own]",
        "[profile 'a b']",
        "[profile a b]",
        "[profilex own]",
        "[profile]",
        "[services s]",
        "[sso-session s]",
        "[DEFAULT]",
        "[Default]",
        "[own]",
        "[profile 'open]",
        "region = x",
        "Region: y",
        "region",
        "empty =",
        "s3 =",
        "  a = b",
        "\tA = c = d",
        "    ",
        "  word",
        "# comment",
        "  # comment",
        "; comment",
        "key = 100%",
        "key = a ; b",
        "key = %(region)s",
        "k:v = w",
        "= nothing",
        "",
    ]
)


def bare(settings: dict[str, dict[str, Setting]]) -> dict[str, dict[str, Any]]:
    return {
        section: {name: each.value for name, each in values.items()}
        for section, values in settings.items()
    }


@hypothesis.settings(max_examples=SEARCHED or 250)
@hypothesis.given(
    config=st.lists(PIECES | st.text(max_size=8), max_size=12),
    credentials=st.lists(PIECES, max_size=6),
)
def test_files_are_parsed_as_botocore_parses_them(
    files: tuple[Path, Path], config: list[str], credentials: list[str]
) -> None:
    files[0].write_bytes("\n".join(config).encode(errors="surrogateescape"))
    files[1].write_text("\n".join(credentials))
    session = botocore.session.Session()
    session.set_config_variable("config_file", str(files[0]))
    session.set_config_variable("credentials_file", str(files[1]))
    try:
        theirs = session.full_config
    except botocore.exceptions.ConfigParseError:
        with pytest.raises(headrace.InvalidArgumentError):
            read_aws_files(str(files[0]), str(files[1]))
        return
    ours = read_aws_files(str(files[0]), str(files[1]))
    assert bare(ours.profiles) == theirs["profiles"]
    assert bare(ours.services) == theirs["services"]
