"""Options, and what the environment says."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch

import headrace
import headrace.torch
from headrace import _engine
from headrace._base.options import EngineOptions, read_environment


def test_defaults_are_the_engines() -> None:
    ours = {
        **dataclasses.asdict(headrace.RetryOptions()),
        **dataclasses.asdict(headrace.TimeoutOptions()),
        **dataclasses.asdict(headrace.ParallelOptions()),
        **dataclasses.asdict(headrace.GcsOptions()),
        **dataclasses.asdict(EngineOptions()),
        **{f"compose_{k}": v for k, v in dataclasses.asdict(headrace.ComposeOptions()).items()},
        **{f"s3_{k}": v for k, v in dataclasses.asdict(headrace.S3Options()).items()},
        **{f"ais_{k}": v for k, v in dataclasses.asdict(headrace.AisOptions()).items()},
    }
    for name, parameter in inspect.signature(headrace.Store).parameters.items():
        if name not in ("url", "retry", "timeout", "parallel", "provider", "unknown"):
            ours[name] = parameter.default
    theirs = _engine.default_options()
    of_the_environment = {"ca_file", "http_proxy", "https_proxy", "no_proxy"}
    of_the_environment |= {"client_cert_file", "client_key_file", "skip_verify"}
    of_services = {"max_copy_bytes", "copied_part_bytes"}
    of_services |= {"min_multipart_part_bytes", "max_multipart_parts"}
    assert set(theirs) - set(ours) == of_the_environment | of_services
    for name in set(ours) & set(theirs):
        assert (ours[name] or theirs[name]) == theirs[name], name


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: headrace.RetryOptions(max_attempts=0), "max_attempts"),
        (lambda: headrace.RetryOptions(max_attempts=True), "max_attempts is True"),
        (lambda: headrace.RetryOptions(backoff_multiplier=0.5), "backoff_multiplier"),
        (lambda: headrace.TimeoutOptions(total_s=0), "total_s"),
        (lambda: headrace.TimeoutOptions(stall_s=float("nan")), "stall_s"),
        (lambda: headrace.configure(memory_budget_bytes=-1), "memory_budget_bytes"),
        (lambda: headrace.ParallelOptions(max_in_flight=0), "max_in_flight"),
        (lambda: headrace.ParallelOptions(range_bytes=0), "range_bytes"),
        (lambda: headrace.ParallelOptions(range_bytes=(64 << 10) - 1), "at least 65536"),
        (lambda: headrace.ComposeOptions(max_objects=1), "max_objects"),
        (lambda: headrace.ComposeOptions(max_objects=33), "max_objects"),
        (lambda: headrace.ComposeOptions(max_size_bytes=0), "max_size_bytes"),
        (lambda: headrace.ComposeOptions(max_in_flight=0), "max_in_flight"),
        (lambda: headrace.ComposeOptions(pause_s=0), "pause_s"),
        (lambda: headrace.ComposeOptions(sweep_age_s=-1), "sweep_age_s"),
        (lambda: headrace.GcsOptions(compose_small_objects=True), "compose_small_objects"),
        *(
            (partial(headrace.GcsOptions, temporary_prefix=each), "the name of a folder in the b")
            for each in ("..", "a/../b", "/x/", "x//", "a\nb", "/", "a//b", ".")
        ),
        (lambda: headrace.S3Options(addressing="dns"), "addressing"),
        (lambda: headrace.S3Options(encryption="aes"), "encryption"),
        (lambda: headrace.S3Options(conditional_writes="no"), "conditional_writes"),
        (lambda: headrace.S3Options(checksum="sha1"), "checksum"),
        (lambda: headrace.S3Options(customer_key=b"short"), "customer_key"),
        (lambda: headrace.S3Options(kms_key_id="a\nb"), "kms_key_id"),
        (lambda: headrace.AisOptions(direct="yes"), "direct"),  # type: ignore[arg-type]
        (lambda: headrace.AisOptions(etl_args="a"), "etl_name"),
        (lambda: headrace.AisOptions(ca_file=5), "ca_file"),  # type: ignore[arg-type]
        (lambda: headrace.AisOptions(client_cert_file=b"x"), "client_cert_file"),  # type: ignore[arg-type]
        (lambda: headrace.AisOptions(client_key_file="k"), "pass client_cert_file, too"),
        (lambda: headrace.AisOptions(skip_verify="no"), "skip_verify"),  # type: ignore[arg-type]
        (lambda: headrace.AisOptions(skip_verify=1), "skip_verify"),  # type: ignore[arg-type]
        (lambda: headrace.AwsKeys("id", ""), "secret_access_key"),
        (lambda: headrace.AwsKeys("i d", "secret"), "access_key_id"),
        (lambda: headrace.Store("gs://b", on_change="ignore"), "on_change"),
        (lambda: headrace.Store("gs://b", content_encoding="gzip"), "content_encoding"),
        (lambda: headrace.Store("gs://b", credentials="me"), "credentials"),
        (lambda: headrace.BearerToken("a\nb"), "token"),
    ],
)
def test_an_option_that_cannot_work_is_named(make: object, named: str) -> None:
    headrace.shutdown()  # `configure` would first refuse a running engine, of a test before
    with pytest.raises(headrace.InvalidArgumentError, match=named):
        make()  # type: ignore[operator]


class GoogleAuth:
    token, expiry, valid = "token", None, True

    def refresh(self, request: object) -> None: ...


class Botocore:
    def get_frozen_credentials(self) -> None: ...


class Frozen(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None


# Which schemes take what; a directory takes all that somebody does.
GS, S3, AIS = "gs://b", "s3://b", ("ais://b", "ais+s3://b")
OF_A_SERVICE: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"credentials": "google"}, (GS,)),
    ({"credentials": "aws"}, (S3,)),
    ({"credentials": "anonymous"}, (GS, S3, *AIS)),
    ({"credentials": None}, (GS, S3, *AIS)),
    ({"credentials": headrace.BearerToken("token")}, (GS, *AIS)),
    ({"credentials": headrace.AwsKeys("id", "secret")}, (S3,)),
    ({"credentials": GoogleAuth()}, (GS,)),
    ({"credentials": Botocore()}, (S3,)),
    ({"credentials": Frozen("id", "secret", None)}, (S3,)),
    ({"credentials": "me"}, ()),
    ({"credentials": 3}, ()),
    ({"credentials": ""}, ()),
    ({"provider": headrace.GcsOptions()}, (GS,)),
    ({"provider": headrace.S3Options()}, (S3,)),
    ({"provider": headrace.AisOptions()}, AIS),
    ({"provider": None}, (GS, S3, *AIS)),
    ({"provider": "s3"}, ()),
    ({"provider": headrace.RetryOptions()}, ()),
    ({"endpoint": "http://127.0.0.1:1"}, (GS, S3, *AIS)),
    ({"endpoint": None}, (GS, S3, *AIS)),
    ({"endpoint": ""}, ()),
    ({"endpoint": "ftp://h"}, ()),
]


@pytest.mark.parametrize("url", [GS, S3, *AIS, "file:///data"])
@pytest.mark.parametrize(("option", "takers"), OF_A_SERVICE)
def test_an_option_of_a_service_is_taken_ignored_by_directories_or_refused_when_a_store_is_made(
    url: str, option: dict[str, Any], takers: tuple[str, ...]
) -> None:
    if url in takers or (url.startswith("file:") and takers):
        assert headrace.Store(url, **option).url == url
        return
    [(name, value)] = option.items()
    with pytest.raises(headrace.InvalidArgumentError, match=name) as caught:
        headrace.Store(url, **option)
    # What would work, and is no secret.
    assert value == "ftp://h" or re.search("takes|must be|leave it out", str(caught.value))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "foreign", "advice", "advised"),
    [
        ("gs://b", "aws", "BearerToken", headrace.BearerToken("token")),
        ("gs://b", headrace.AwsKeys("id", "secret"), "'anonymous'", "anonymous"),
        ("s3://b", "google", "AwsKeys", headrace.AwsKeys("id", "secret")),
        ("s3://b", headrace.BearerToken("token"), "'anonymous'", "anonymous"),
        ("ais://b", "google", "BearerToken", headrace.BearerToken("token")),
        ("ais+s3://b", headrace.AwsKeys("id", "secret"), "'anonymous'", "anonymous"),
    ],
)
def test_credentials_of_another_provider_are_refused_with_those_that_work(
    url: str, foreign: Any, advice: str, advised: Any
) -> None:
    endpoint = "http://127.0.0.1:1"
    with pytest.raises(headrace.InvalidArgumentError, match=f"credentials is .* takes .*{advice}"):
        headrace.Store(url, endpoint=endpoint, credentials=foreign)
    store = headrace.Store(url, endpoint=endpoint, credentials=advised)
    assert store.url_of("a") == f"{url}/a"


def test_a_directory_works_with_what_is_meant_for_a_service(tmp_path: Path) -> None:
    keys = headrace.AwsKeys("id", "secret")
    options: dict[str, Any] = {"credentials": keys, "provider": headrace.S3Options(region="r")}
    store = headrace.Store(tmp_path, endpoint="http://127.0.0.1:1", **options)
    store.write("a", b"bytes")
    assert (tmp_path / "a").read_bytes() == b"bytes"


@pytest.mark.parametrize("url", ["ftp://b/o", "gs://", "gs:///o", "gs://bad bucket/o"])
def test_a_url_that_cannot_work_is_named(url: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError) as caught:
        headrace.Store(url)
    assert url in str(caught.value)


@pytest.mark.parametrize("endpoint", ["http://", "http://h:99999", "ftp://h"])
def test_an_endpoint_that_cannot_work_is_refused(endpoint: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.Store("gs://b", endpoint=endpoint)


def test_options_are_frozen_and_by_keyword() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        headrace.RetryOptions().max_attempts = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        headrace.TimeoutOptions(1.0)  # type: ignore[misc]


def test_a_token_is_not_printed() -> None:
    token = headrace.BearerToken("secret")
    assert "secret" not in repr(token)
    assert pickle.loads(pickle.dumps(token)) == token


def test_the_environment_says_nothing_by_default() -> None:
    environment = read_environment({})
    assert environment.engine == EngineOptions()
    assert environment.endpoint("gs") == environment.endpoint("ais") == ""
    assert environment.aws == {}
    assert environment.aws_keys() is None
    assert environment.http_proxy == environment.ca_file == ""


@pytest.mark.parametrize(
    ("variables", "skips"),
    [
        ({}, False),
        ({"AIS_SKIP_VERIFY_CRT": "true"}, True),
        ({"AIS_SKIP_VERIFY_CRT": " Yes "}, True),
        ({"AIS_SKIP_VERIFY_CRT": "0"}, False),
        ({"AIS_SKIP_VERIFY_CRT": "", "AIS_SKIP_VERIFY": "1"}, False),
        ({"AIS_SKIP_VERIFY": "1"}, True),
    ],
)
def test_whether_certificates_are_verified_is_read_as_the_sdk_reads_it(
    variables: dict[str, str], skips: bool
) -> None:
    assert read_environment(variables).ais_skip_verify is skips


def test_a_client_certificate_of_the_environment_needs_its_key() -> None:
    alone = read_environment({"AIS_CRT": "/c.pem"})
    assert (alone.ais_client_cert_file, alone.ais_client_key_file) == ("", "")
    both = read_environment({"AIS_CRT": "/c.pem", "AIS_CRT_KEY": "/k.pem"})
    assert (both.ais_client_cert_file, both.ais_client_key_file) == ("/c.pem", "/k.pem")


def test_the_environment_is_read() -> None:
    environment = read_environment(
        {
            "STORAGE_EMULATOR_HOST": "localhost:4443",
            "HTTPS_PROXY": "http://capital:1",
            "https_proxy": "http://small:1",
            "NO_PROXY": "example.com",
            "SSL_CERT_FILE": "/ca.pem",
            "HEADRACE_IO_THREADS": "3",
            "HEADRACE_FILE_THREADS": "2",
            "HEADRACE_MEMORY_BUDGET_BYTES": "2097152",
        }
    )
    assert environment.endpoint("gs") == "http://localhost:4443"
    assert environment.endpoint("file") == ""
    assert environment.https_proxy == "http://small:1"
    assert environment.no_proxy == "example.com"
    assert environment.ca_file == "/ca.pem"
    assert environment.engine == EngineOptions(
        io_threads=3, file_threads=2, memory_budget_bytes=2 * headrace.MiB
    )


def test_the_environment_of_aws_is_read() -> None:
    environment = read_environment(
        {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "hidden",
            "AWS_SESSION_TOKEN": "hidden-too",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }
    )
    assert environment.aws_keys() == headrace.AwsKeys("key", "hidden", "hidden-too")
    assert environment.aws["AWS_DEFAULT_REGION"] == "eu-west-1"
    assert "hidden" not in repr(environment)


def test_what_cannot_work_on_one_provider_does_not_concern_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://host:port")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert not headrace.Store(tmp_path).exists("x")
    once = headrace.RetryOptions(max_attempts=1)
    with pytest.raises(headrace.UnavailableError):
        headrace.Store("gs://bucket", endpoint="http://127.0.0.1:1", retry=once).stat("x")
    with pytest.raises(headrace.InvalidArgumentError, match="host:port"):
        headrace.Store("s3://bucket").stat("x")
    with pytest.raises(headrace.InvalidArgumentError, match="AwsKeys"):
        headrace.Store("s3://bucket", endpoint="http://127.0.0.1:1").stat("x")


def test_a_cgi_program_takes_no_proxy_from_its_client() -> None:
    environment = read_environment({"REQUEST_METHOD": "GET", "HTTP_PROXY": "http://evil:1"})
    assert environment.http_proxy == ""


@pytest.mark.parametrize(("value", "hedge"), [("", True), ("1", True), ("0", False)])
def test_hedging_is_turned_on_and_off_by_a_variable(value: str, hedge: bool) -> None:
    assert read_environment({"HEADRACE_HEDGE": value}).hedge is hedge


def test_a_store_that_says_whether_it_hedges_does_not_ask_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for of_environment in (False, True):
        monkeypatch.setenv("HEADRACE_HEDGE", str(int(of_environment)))
        for of_store in (None, False, True):
            store = headrace.Store("gs://b", parallel=headrace.ParallelOptions(hedge=of_store))
            wanted = of_environment if of_store is None else of_store
            assert store._settings.engine_options("gs")["hedge"] is wanted


def test_hedging_is_on_or_off() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=r"ParallelOptions\.hedge is 'yes'"):
        headrace.ParallelOptions(hedge="yes")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="HEADRACE_HEDGE is 'off'"):
        read_environment({"HEADRACE_HEDGE": "off"})


@pytest.mark.parametrize("value", ["many", "-1", "1e9", "9" * 40])
def test_a_variable_that_cannot_work_is_refused(value: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError):
        read_environment({"HEADRACE_IO_THREADS": value})


def test_configure_comes_before_the_first_use(run_child: object, tmp_path: object) -> None:
    run_child(  # type: ignore[operator]
        """
        import sys
        import headrace
        headrace.configure(memory_budget_bytes=5 * headrace.MiB)
        headrace.Store(sys.argv[1]).exists("x")
        assert headrace.metrics().memory_budget_bytes == 5 * headrace.MiB
        try:
            headrace.configure()
        except headrace.InvalidArgumentError as error:
            assert "before the first use" in str(error)
        else:
            raise AssertionError
        """,
        str(tmp_path),
    )


def test_what_configure_is_not_given_is_as_the_environment_says(
    run_child: object, tmp_path: object
) -> None:
    run_child(  # type: ignore[operator]
        """
        import os
        import sys
        os.environ["HEADRACE_MEMORY_BUDGET_BYTES"] = str(6 << 20)
        import headrace
        headrace.configure(memory_budget_bytes=5 << 20)
        headrace.configure(io_threads=1)
        headrace.Store(sys.argv[1]).exists("x")
        assert headrace.metrics().memory_budget_bytes == 6 << 20
        """,
        str(tmp_path),
    )


# What takes a size or a count, in every part of the package; each gets a folder with `a.bin`.
TAKING_INTEGERS: dict[str, Callable[[Path, Any], Any]] = {
    "RetryOptions.max_attempts": lambda _, n: headrace.RetryOptions(max_attempts=n),
    "ParallelOptions.max_in_flight": lambda _, n: headrace.ParallelOptions(max_in_flight=n),
    "ComposeOptions.max_objects": lambda _, n: headrace.ComposeOptions(max_objects=n),
    "max_results": lambda at, n: headrace.Store(at).list_page(max_results=n),
    "begin": lambda at, n: headrace.Store(at).read("a.bin", begin=n),
    "end": lambda at, n: headrace.Store(at).read("a.bin", end=n),
    "begin, of ranges": lambda at, n: headrace.Store(at).read_ranges([("a.bin", n, 8)]),
    "expected_size_bytes": lambda at, n: (
        headrace.Store(at).open_writer("b", expected_size_bytes=n).abort()
    ),
    "prefetch_bytes": lambda at, n: headrace.open(at / "a.bin", prefetch_bytes=n).close(),
    "batch_size": lambda at, n: headrace.torch.Loader(headrace.torch.MapDataset(at), batch_size=n),
    "seed": lambda at, n: headrace.torch.Loader(
        headrace.torch.MapDataset(at), batch_size=1, shuffle=True, seed=n
    ),
    "seq_len": lambda at, n: headrace.torch.TokenDataset(at / "a.bin", dtype="uint8", seq_len=n),
}


@pytest.mark.parametrize("name", TAKING_INTEGERS)
def test_integers_of_every_kind_are_taken_everywhere_and_floats_nowhere(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(8))
    take = partial(TAKING_INTEGERS[name], tmp_path)
    for good in (4, numpy.int64(4), numpy.uint8(4), torch.tensor(4)):
        take(good)
    argument = name.partition(",")[0]
    for bad in (4.0, 1e6, numpy.float64(4), numpy.float32(4), 4.5, float("nan"), float("inf"), "4"):
        with pytest.raises(headrace.InvalidArgumentError) as error:
            take(bad)
        assert argument in str(error.value)
        assert repr(bad) in str(error.value)
        assert "integer" in str(error.value)


def test_a_size_that_is_a_whole_float_is_refused_with_the_integer_to_write() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=r"1000000\.0; .* write 1000000$"):
        headrace.RetryOptions(max_attempts=1e6)  # type: ignore[arg-type]


def test_options_have_plain_integers_whatever_was_given() -> None:
    options = headrace.ParallelOptions(range_bytes=numpy.int64(1 << 20))  # type: ignore[arg-type]
    assert type(options.range_bytes) is int
    assert options == headrace.ParallelOptions(range_bytes=1 << 20)
