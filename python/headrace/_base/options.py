"""What can be set, with its default and the reason for it, and what the environment says.

The defaults are the engine's own; a test holds both to be equal.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from headrace import _engine
from headrace._base.errors import InvalidArgumentError

__all__ = [
    "AisOptions",
    "AwsKeys",
    "BearerToken",
    "ComposeOptions",
    "ContentEncoding",
    "EngineOptions",
    "Environment",
    "GcsOptions",
    "GiB",
    "KiB",
    "MiB",
    "OnChange",
    "ParallelOptions",
    "ProviderOptions",
    "RetryOptions",
    "S3Addressing",
    "S3Checksum",
    "S3Options",
    "TimeoutOptions",
    "read_environment",
]

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30

# Defaults of arguments that several functions have in common.
PARTS_IN_FLIGHT = 8
PREFETCH_BYTES = 64 * MiB

OnChange = Literal["error", "reread"]
ContentEncoding = Literal["stored", "decompress"]
VerifyOption = bool | Literal["all"]

# Longer than any training run; the engine's clock counts nanoseconds in 63 bits.
_MAX_DURATION_S = 10 * 365 * 86400.0


def require(condition: bool, text: str) -> None:
    """Raise InvalidArgumentError with `text` unless `condition`."""
    if not condition:
        raise InvalidArgumentError(text)


def require_bool(name: str, value: bool) -> None:
    require(isinstance(value, bool), f"{name} is {value!r}; it must be True or False")


def is_weights_only(value: bool | None) -> bool:
    """Return whether a load leaves the pickle to torch's restricted unpickler: unless it is False.

    Raises:
        InvalidArgumentError: it is neither a bool nor None.
    """
    require(
        value is None or isinstance(value, bool),
        f"weights_only is {value!r}; it must be True, None (which means True) or False",
    )
    return value is not False


def integer(name: str, value: Any, *, minimum: int, end: int | None = None, unit: str = "") -> int:
    """Return `value` as an int from `minimum` to below `end`: whatever Python takes for an index.

    NumPy's integers are; a bool and a float are not, whatever their value.

    Raises:
        InvalidArgumentError: it is none, or outside.
    """
    must = f"{name} is {value!r}; it must be an integer of at least {minimum}{unit}"
    if isinstance(value, float) and value.is_integer():
        raise InvalidArgumentError(f"{must}, not a float: write {int(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(must) from None
    require(number >= minimum and not isinstance(value, bool), must)
    if end is not None and number >= end:
        below = f"2^{end.bit_length() - 1}" if end.bit_count() == 1 else str(end)
        raise InvalidArgumentError(f"{must} and below {below}")
    return number


def require_count(name: str, value: Any, *, minimum: int) -> int:
    return integer(name, value, minimum=minimum, end=1 << 32)


def require_bytes(name: str, value: Any, *, minimum: int) -> int:
    return integer(name, value, minimum=minimum, end=1 << 63, unit=" bytes")


def _make_integers(
    options: Any, as_int: Callable[..., int], *, of: str = "", **minimums: int
) -> None:
    """Check these fields of frozen options, and make them ints."""
    for each, minimum in minimums.items():
        number = as_int(f"{of}{each}", getattr(options, each), minimum=minimum)
        object.__setattr__(options, each, number)


def require_header(name: str, text: str) -> None:
    """Refuse what cannot be part of a header: a line break would begin another one."""
    require(
        isinstance(text, str) and text.isascii() and (text.isprintable() or not text),
        f"{name} must consist of printable ASCII characters, without line breaks",
    )


def _require_duration(name: str, value: float) -> None:
    require(
        isinstance(value, int | float) and 0 < value <= _MAX_DURATION_S,
        f"{name} is {value!r}; it must be above 0 s and at most ten years",
    )


@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """How often, and how soon, a request that failed is sent again.

    Only what can be repeated safely, and only errors that another attempt may cure, are retried.
    When a host that has failed every request answers again, requests that wait are sent at once,
    more and more of them with each answer. While it fails, one that waits is sent now and then to
    find that out; it does not count as an attempt.

    Raises:
        InvalidArgumentError: a value cannot work.

    Examples:
        >>> store = headrace.Store("gs://bucket", retry=headrace.RetryOptions(max_attempts=3))
    """

    max_attempts: int = 10
    """Attempts of one request, the first included."""
    initial_backoff_s: float = 0.1
    """The upper end of the first wait; the wait is drawn from [0, that]: many clients that were
    refused together must not come back together."""
    max_backoff_s: float = 20.0
    """The upper end that no wait exceeds."""
    backoff_multiplier: float = 2.0
    """By what the upper end grows from wait to wait."""
    budget_tokens: int = 500
    """Retries per host that may be saved up; each costs one, each success earns a tenth. Keeps a
    broken service from seeing a multiple of its load."""

    def __post_init__(self) -> None:
        _make_integers(self, require_count, of="RetryOptions.", max_attempts=1, budget_tokens=0)
        _require_duration("RetryOptions.initial_backoff_s", self.initial_backoff_s)
        _require_duration("RetryOptions.max_backoff_s", self.max_backoff_s)
        require(
            1.0 <= self.backoff_multiplier <= 1000.0,
            f"RetryOptions.backoff_multiplier is {self.backoff_multiplier!r}; "
            "it must be from 1 to 1000",
        )


@dataclass(frozen=True, kw_only=True)
class TimeoutOptions:
    """How long to wait for what, in seconds.

    Raises:
        InvalidArgumentError: a value cannot work.

    Examples:
        >>> patient = headrace.TimeoutOptions(total_s=3600)
        >>> store = headrace.Store("gs://bucket", timeout=patient)
    """

    connect_s: float = 5.0
    """One TCP connection to one address; the name look-up is bounded by it, too."""
    tls_s: float = 10.0
    """The TLS handshake."""
    first_byte_s: float = 30.0
    """From the request's last byte to the answer's first."""
    stall_s: float = 30.0
    """Without one byte of progress in either direction."""
    total_s: float = 300.0
    """One request with all its attempts and the waits between them."""

    def __post_init__(self) -> None:
        for name in ("connect_s", "tls_s", "first_byte_s", "stall_s", "total_s"):
            _require_duration(f"TimeoutOptions.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class ParallelOptions:
    """How many requests run at a time, what is read by several of them, and what by one.

    Raises:
        InvalidArgumentError: a value cannot work.

    Examples:
        >>> gentle = headrace.ParallelOptions(max_in_flight=16, initial_in_flight=4)
        >>> store = headrace.Store("gs://bucket", parallel=gentle)
    """

    max_in_flight: int = 512
    """Requests of every kind in flight per host and process, at most, over all stores that have the
    same options for the host; below that the engine adapts by itself. In addition, hedges may be a
    twentieth of it, and answers that they made unnecessary a third."""
    initial_in_flight: int = 64
    """Where it starts."""
    range_threshold_bytes: int = 16 * MiB
    """Larger objects are read by parallel ranges ..."""
    range_bytes: int = 8 * MiB
    """... of this size, at least 64 KiB. Files are read by ranges of 1 MiB or more."""
    max_gap_bytes: int | None = 4 * KiB
    """Ranges of one object that are wanted together are read by one request, up to 1 MiB, if at
    most so many bytes lie between them, which are read and dropped: up to some 60 KiB, this takes a
    client less CPU time than a request. 0: only ranges without a gap; None: each range is a
    request of its own."""
    hedge: bool | None = None
    """Whether a read, a stat or a page of a listing that takes longer than almost all others of its
    size is requested once more over another connection, and then a third time. What is answered
    first counts. This adds at most 3 % of requests and of bytes, nothing while the service
    throttles, and `Metrics.hedges_total` counts it. Default: what HEADRACE_HEDGE says, or else
    True."""

    def __post_init__(self) -> None:
        of = "ParallelOptions."
        _make_integers(self, require_count, of=of, max_in_flight=1, initial_in_flight=1)
        least = _engine.MIN_RANGE_BYTES
        _make_integers(self, require_bytes, of=of, range_threshold_bytes=1, range_bytes=least)
        if self.max_gap_bytes is not None:
            _make_integers(self, require_bytes, of=of, max_gap_bytes=0)
        require(
            self.hedge is None or isinstance(self.hedge, bool),
            f"ParallelOptions.hedge is {self.hedge!r}; it must be a bool or None",
        )


@dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """How ``GcsOptions(compose_small_objects=ComposeOptions())`` reads small objects together.

    The objects of a batch are composed, group by group, into temporary objects of the same bucket,
    each of which is read, checked, split and deleted. ``docs/guide/small_objects.md`` says when
    that helps and what it costs.

    Raises:
        InvalidArgumentError: a value cannot work.

    Examples:
        >>> compose = headrace.ComposeOptions(max_objects=16)
        >>> provider = headrace.GcsOptions(compose_small_objects=compose)
        >>> store = headrace.Store("gs://bucket", provider=provider)
    """

    max_size_bytes: int = 16 * MiB
    """Bytes of objects that are composed into one, at most. A larger object is read by itself."""
    max_objects: int = 32
    """Objects that are composed into one, at most; 32 is what the service takes."""
    max_in_flight: int = 32
    """Temporary objects that exist at a time, at most."""
    pause_s: float = 5.0
    """How long objects are read one by one after the service was too busy to compose them."""
    sweep_age_s: float = 3600.0
    """What processes that were killed have left is deleted once it is so old, by the next one that
    composes objects in the bucket."""

    def __post_init__(self) -> None:
        _make_integers(self, require_bytes, of="ComposeOptions.", max_size_bytes=1)
        _make_integers(self, require_count, of="ComposeOptions.", max_objects=2, max_in_flight=1)
        require(
            self.max_objects <= 32,
            f"ComposeOptions.max_objects is {self.max_objects}; it must be from 2 to 32",
        )
        _require_duration("ComposeOptions.pause_s", self.pause_s)
        require(
            isinstance(self.sweep_age_s, int | float) and 0 <= self.sweep_age_s <= _MAX_DURATION_S,
            f"ComposeOptions.sweep_age_s is {self.sweep_age_s!r}; it must be from 0 s to ten years",
        )


@dataclass(frozen=True, kw_only=True)
class GcsOptions:
    """What only Google Cloud Storage has (``Store("gs://...", provider=GcsOptions(...))``).

    Raises:
        InvalidArgumentError: a value cannot work.

    Examples:
        >>> provider = headrace.GcsOptions(user_project="my-project")
        >>> store = headrace.Store("gs://bucket", provider=provider)
    """

    user_project: str | None = None
    """The project that is billed, for requester-pays buckets."""
    compose_small_objects: ComposeOptions | None = None
    """Compose small objects of a batch on the server and read them as one, in every call and class
    that reads batches from the store. It **writes** to the bucket, below
    ``dataflux-composed-objects/``, and deletes what it wrote. Only objects of which an `ObjectInfo`
    or `ObjectIndex` tells size, generation and CRC-32C are composed; all others are read one
    by one.
    """
    temporary_prefix: str = ""
    """Where in the bucket (``"team/tmp"``) temporary objects are written, for credentials that may
    write only there. Give it to every store that lists this place, and to `clean`. Default: at the
    bucket's root, whatever the store's root is."""

    def __post_init__(self) -> None:
        require(
            self.user_project is None or isinstance(self.user_project, str),
            f"GcsOptions.user_project is {self.user_project!r}; it must be a project's name",
        )
        require_header("GcsOptions.user_project", self.user_project or "")
        require(
            self.compose_small_objects is None
            or isinstance(self.compose_small_objects, ComposeOptions),
            f"GcsOptions.compose_small_objects is {self.compose_small_objects!r}; it must be a "
            "ComposeOptions or None",
        )
        require(
            isinstance(self.temporary_prefix, str),
            f"GcsOptions.temporary_prefix is {self.temporary_prefix!r}; it must be a str",
        )
        prefix = self.temporary_prefix.removesuffix("/")
        require(
            not self.temporary_prefix
            or (prefix.isprintable() and not {"", ".", ".."} & {*prefix.split("/")}),
            f"GcsOptions.temporary_prefix is {self.temporary_prefix!r}; it must be the name of a "
            "folder in the bucket, such as 'team/tmp', without '..', line breaks or a slash before",
        )


S3Addressing = Literal["auto", "path", "virtual"]
S3Checksum = Literal["auto", "crc32c", "crc64nvme", "composite", "md5", "none"]


@dataclass(frozen=True, kw_only=True)
class S3Options:
    """What only S3 and its kind have (``Store("s3://...", provider=S3Options(...))``).

    Raises:
        InvalidArgumentError: a value cannot work.

    Examples:
        >>> provider = headrace.S3Options(region="eu-west-1", requester_pays=True)
        >>> store = headrace.Store("s3://bucket", provider=provider)
    """

    region: str | None = None
    """Where the bucket is. Default: what AWS_DEFAULT_REGION, AWS_REGION or the AWS profile says; a
    bucket that is elsewhere is followed to its region, once for all requests."""
    addressing: S3Addressing | None = None
    """``"path"``: ``https://endpoint/bucket/name``. ``"virtual"``: ``https://bucket.endpoint/name``.
    ``"auto"``: the second at AWS, unless the bucket's name does not fit; the first elsewhere.
    Default: the ``addressing_style`` of the AWS profile, or ``"auto"``."""
    dual_stack: bool | None = None
    """Use the endpoints of AWS that have IPv6, too. Default: what AWS_USE_DUALSTACK_ENDPOINT or the
    AWS profile says, or False; they count at AWS's own endpoints only."""
    fips: bool | None = None
    """Use the endpoints of AWS with FIPS-validated cryptography. Default: what
    AWS_USE_FIPS_ENDPOINT or the AWS profile says, or False; they count at AWS's own endpoints
    only."""
    requester_pays: bool = False
    """Pay for requests to buckets of others that ask for it."""
    expected_bucket_owner: str = ""
    """An account: requests are refused if the bucket belongs to another one."""
    encryption: Literal["", "AES256", "aws:kms", "aws:kms:dsse"] = ""
    """How the service encrypts new objects. Default: as the bucket says."""
    kms_key_id: str = ""
    """The key for ``"aws:kms"``. Default: the account's own."""
    customer_key: bytes | None = field(default=None, repr=False)
    """SSE-C: the 32 bytes with which the service encrypts and decrypts objects, and which it does
    not keep. They are sent with requests, so the endpoint must use TLS."""
    equal_parts: bool | None = None
    """Whether the service takes an upload only if all its parts but the last have one size, as
    Cloudflare R2 does. A write of unknown size then has parts that are as large as the memory
    budget allows, instead of growing ones. Default: True at R2's own endpoints, and at a service
    that has refused an upload for it; that upload has to be written again."""
    checksum: S3Checksum | None = None
    """What proves the bytes of what is written. ``"auto"``: the strongest that the service takes,
    which its first answers show. ``"crc32c"`` and ``"crc64nvme"``: a sum of the whole object, kept
    with it. ``"composite"``: a CRC-32C of each part. ``"md5"``: ``Content-MD5`` of each request;
    MD5 costs about 1.5 s of CPU time per GiB. ``"none"``: nothing but the size. Default: ``"md5"``
    if AWS_REQUEST_CHECKSUM_CALCULATION or the AWS profile says ``when_required``, or ``"auto"``."""
    conditional_writes: Literal["service", "look"] = "service"
    """Who checks ``if_generation`` of writes. ``"service"``: the service does; outside of AWS, four
    requests find out, once for each endpoint, whether it keeps to conditions, and a write with
    one is refused if it does not. ``"look"``: headrace looks at the object first, which leaves a
    moment in which another writer can come between."""

    def __post_init__(self) -> None:
        require(
            self.region is None or isinstance(self.region, str),
            f"S3Options.region is {self.region!r}; it must be a name like 'eu-west-1'",
        )
        require(
            self.addressing in (None, "auto", "path", "virtual"),
            f"S3Options.addressing is {self.addressing!r}; it must be 'auto', 'path' or 'virtual'",
        )
        for name in ("dual_stack", "fips"):
            value = getattr(self, name)
            require(
                value is None or isinstance(value, bool),
                f"S3Options.{name} is {value!r}; it must be a bool or None",
            )
        require(
            self.encryption in ("", "AES256", "aws:kms", "aws:kms:dsse"),
            f"S3Options.encryption is {self.encryption!r}; it must be 'AES256', 'aws:kms' or "
            "'aws:kms:dsse'",
        )
        require(
            self.equal_parts is None or isinstance(self.equal_parts, bool),
            f"S3Options.equal_parts is {self.equal_parts!r}; it must be a bool or None",
        )
        require(
            self.checksum in (None, "auto", "crc32c", "crc64nvme", "composite", "md5", "none"),
            f"S3Options.checksum is {self.checksum!r}; it must be 'auto', 'crc32c', 'crc64nvme', "
            "'composite', 'md5' or 'none'",
        )
        require(
            self.conditional_writes in ("service", "look"),
            f"S3Options.conditional_writes is {self.conditional_writes!r}; it must be 'service' or "
            "'look'",
        )
        require_header("S3Options.expected_bucket_owner", self.expected_bucket_owner)
        require_header("S3Options.kms_key_id", self.kms_key_id)
        require(
            self.customer_key is None
            or (isinstance(self.customer_key, bytes) and len(self.customer_key) == 32),
            "S3Options.customer_key must be 32 bytes",
        )


@dataclass(frozen=True, kw_only=True)
class AisOptions:
    """What only AIStore has (``Store("ais://...", provider=AisOptions(...))``).

    Raises:
        InvalidArgumentError: a value cannot work.

    Examples:
        >>> provider = headrace.AisOptions(etl_name="resize", etl_args="256x256")
        >>> cluster = "http://localhost:51080"
        >>> store = headrace.Store("ais://bucket", endpoint=cluster, provider=provider)
    """

    direct: bool = True
    """Read straight from the target that has the object, which headrace computes from the
    cluster's map. A target that refuses makes headrace go through the proxy. False: every request
    goes to the proxy, which sends it on."""
    etl_name: str = ""
    """An ETL of the cluster that transforms the objects that are read. What comes has neither the
    size nor the checksum of the stored object, so that it cannot be verified, and comes in one
    request."""
    etl_args: str = ""
    """Arguments for `etl_name`, as the ETL understands them."""
    ca_file: str = ""
    """A file of certificates by which the cluster's are judged. Default: what AIS_CLIENT_CA or
    SSL_CERT_FILE says, or else the system's."""
    client_cert_file: str = ""
    """A PEM file with the certificate by which the cluster knows this client (mutual TLS). Default:
    what AIS_CRT says, if AIS_CRT_KEY says where its key is."""
    client_key_file: str = ""
    """A PEM file with the key of that certificate, not encrypted. Default: the key is in
    `client_cert_file`, too."""
    skip_verify: bool | None = None
    """True: any certificate of the cluster's is taken, so that whoever is in between can read and
    change everything. A warning says so. Default: what AIS_SKIP_VERIFY_CRT says."""
    get_batch: Literal["auto", "always", "never"] = "auto"
    """Whether one request gets many objects of a batch (GetBatch, of AIStore 4.0 and newer).
    ``"auto"``: headrace measures whether that is faster than a request for each object, by the size
    of the objects, and again now and then. What such a request does not bring is read by itself, so
    the results are the same. A store with ``content_encoding="decompress"`` has none."""

    def __post_init__(self) -> None:
        require(
            isinstance(self.direct, bool),
            f"AisOptions.direct is {self.direct!r}; it must be a bool",
        )
        for name in ("etl_name", "etl_args", "ca_file", "client_cert_file", "client_key_file"):
            require(
                isinstance(getattr(self, name), str),
                f"AisOptions.{name} is {getattr(self, name)!r}; it must be a str",
            )
        require(
            self.get_batch in ("auto", "always", "never"),
            f"AisOptions.get_batch is {self.get_batch!r}; it must be 'auto', 'always' or 'never'",
        )
        require(
            bool(self.etl_name) or not self.etl_args,
            "AisOptions.etl_args are those of an ETL: pass etl_name, too",
        )
        require(
            self.skip_verify is None or isinstance(self.skip_verify, bool),
            f"AisOptions.skip_verify is {self.skip_verify!r}; it must be a bool or None",
        )
        require(
            bool(self.client_cert_file) or not self.client_key_file,
            "AisOptions.client_key_file is that of a certificate: pass client_cert_file, too",
        )


ProviderOptions = GcsOptions | S3Options | AisOptions

# What a scheme's stores take as ``provider=``.
_PROVIDERS: dict[str, type] = {"gs": GcsOptions, "s3": S3Options, "ais": AisOptions}


def host_of(endpoint: str) -> str:
    """Return the host in an endpoint, without brackets; ``""`` if there is none."""
    return urlsplit(endpoint).hostname or ""


def provider_of(scheme: str) -> str:
    """Return whose stores `scheme` means: ``"ais"`` for ``"ais+s3"``, which is behind AIStore."""
    return scheme.partition("+")[0]


def require_provider(scheme: str, provider: object) -> None:
    """Check that the stores of `scheme` take `provider`. A directory takes, and ignores, all.

    Raises:
        InvalidArgumentError: it is another provider's, or nobody's.
    """
    if provider is None:
        return
    anybodys = tuple(_PROVIDERS.values())
    mine = _PROVIDERS.get(provider_of(scheme), anybodys)
    if isinstance(provider, mine):
        return
    known = isinstance(provider, anybodys)
    what = f"{type(provider).__name__} is for another provider" if known else f"it is {provider!r}"
    article = "an" if scheme.startswith(("ais", "s3")) else "a"
    takes = "those of any provider" if isinstance(mine, tuple) else mine.__name__
    raise InvalidArgumentError(f"provider: {what}; {article} {scheme}:// store takes {takes}")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What all stores of a process share: what `headrace.configure` takes, each with its reason."""

    io_threads: int = 0
    """Threads that speak to the network; 0: one per core, at most four."""
    file_threads: int = 4
    """Threads that read and write files, for ``file://``; started when first needed."""
    memory_budget_bytes: int = 1 * GiB
    """What is in flight and read ahead may take. What the user holds is counted and slows
    read-ahead, but a read that somebody waits for is always admitted."""

    def __post_init__(self) -> None:
        _make_integers(self, require_count, io_threads=0, file_threads=1)
        _make_integers(self, require_bytes, memory_budget_bytes=1 * MiB)


@dataclass(frozen=True)
class BearerToken:
    """An OAuth 2.0 access token that somebody else keeps fresh. It is never printed.

    Raises:
        InvalidArgumentError: the token is empty, or not printable ASCII.

    Examples:
        >>> token = headrace.BearerToken("ya29.example")
        >>> store = headrace.Store("gs://bucket", credentials=token)
    """

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        require(
            bool(self.token) and self.token.isascii() and self.token.isprintable(),
            "BearerToken: the token must be printable ASCII and not empty",
        )


@dataclass(frozen=True)
class AwsKeys:
    """Keys of an AWS account, or of another service that speaks S3. They are never printed.

    Raises:
        InvalidArgumentError: a key is missing, or not printable ASCII.

    Examples:
        >>> keys = headrace.AwsKeys("AKIDEXAMPLE", "secret")
        >>> store = headrace.Store("s3://bucket", credentials=keys)
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    """Of temporary keys only."""

    def __post_init__(self) -> None:
        for name in ("access_key_id", "secret_access_key", "session_token"):
            text = getattr(self, name)
            require(
                isinstance(text, str)
                and (bool(text) or name == "session_token")
                and text.isascii()
                and ((text.isprintable() and " " not in text) or not text),
                f"AwsKeys: {name} must be printable ASCII without spaces"
                + ("" if name == "session_token" else " and not empty"),
            )


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the environment variables say. ``docs/reference/environment.md`` lists them.

    What concerns one provider is looked at when a store of it is opened.
    """

    emulator_host: str = ""
    ais_endpoint: str = ""
    ais_token: str = field(default="", repr=False)
    ais_token_file: str = ""
    ais_ca_file: str = ""
    ais_client_cert_file: str = ""
    ais_client_key_file: str = ""
    ais_skip_verify: bool = False
    aws: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables that boto3 reads, too; see `headrace._credentials.aws_configuration`."""
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    ca_file: str = ""
    hedge: bool = True
    trace: str = ""
    force_weights_only: bool = False
    engine: EngineOptions = EngineOptions()

    def endpoint(self, scheme: str) -> str:
        """Return the endpoint, normalized, that stores of `scheme` have; ``""``: the service's own.

        That of ``s3://`` depends on files, too: `headrace._credentials.aws_configuration` finds it.

        Raises:
            InvalidArgumentError: what the variable says is no endpoint.
        """
        provider = provider_of(scheme)
        text = {"ais": self.ais_endpoint, "gs": self.emulator_host}.get(provider, "")
        return _engine.normalized_endpoint(text, default_tls=False) if text else ""

    def aws_keys(self) -> AwsKeys | None:
        """Return the keys, if there are any.

        Raises:
            InvalidArgumentError: they cannot be keys, or one of the two is missing.
        """
        access_key_id = self.aws.get("AWS_ACCESS_KEY_ID", "")
        secret_access_key = self.aws.get("AWS_SECRET_ACCESS_KEY", "")
        if not access_key_id:
            return None
        require(
            bool(secret_access_key),
            "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not: set both or neither",
        )
        token = self.aws.get("AWS_SECURITY_TOKEN") or self.aws.get("AWS_SESSION_TOKEN", "")
        return AwsKeys(access_key_id, secret_access_key, token)


_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_RESPONSE_CHECKSUM_VALIDATION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SECURITY_TOKEN",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
)


def read_environment(environ: Mapping[str, str] = os.environ) -> Environment:
    """Read every environment variable that headrace itself looks at. Nothing else reads any.

    Raises:
        InvalidArgumentError: a variable has a value that cannot work.
    """

    def proxy(name: str) -> str:
        # http_proxy in capitals is not looked at in CGI programs, where a client could set it by
        # the header "Proxy:".
        if name == "http_proxy" and "REQUEST_METHOD" in environ:
            return environ.get(name, "")
        return environ.get(name) or environ.get(name.upper(), "")

    def number(name: str, default: int) -> int:
        text = environ.get(name, "").strip()
        if not text:
            return default
        require(text.isdecimal(), f"{name} is {text!r}; it must be a whole number")
        return int(text)

    def is_true(name: str) -> bool:
        return environ.get(name, "").strip().lower() in ("1", "t", "true", "y", "yes", "on")

    def switch(name: str, *, default: bool) -> bool:
        text = environ.get(name, "").strip()
        require(text in ("", "0", "1"), f"{name} is {text!r}; it must be 0 or 1")
        return text == "1" if text else default

    # As AIStore's SDK takes them: a certificate without its key is passed over, and the older name
    # of a switch counts where the newer one is not set.
    has_pair = bool(environ.get("AIS_CRT") and environ.get("AIS_CRT_KEY"))
    is_new_name = "AIS_SKIP_VERIFY_CRT" in environ
    defaults = EngineOptions()
    return Environment(
        emulator_host=environ.get("STORAGE_EMULATOR_HOST", ""),
        ais_endpoint=environ.get("AIS_ENDPOINT", ""),
        ais_token=environ.get("AIS_AUTHN_TOKEN", ""),
        ais_token_file=environ.get("AIS_AUTHN_TOKEN_FILE", ""),
        ais_ca_file=environ.get("AIS_CLIENT_CA", ""),
        ais_client_cert_file=environ.get("AIS_CRT", "") if has_pair else "",
        ais_client_key_file=environ.get("AIS_CRT_KEY", "") if has_pair else "",
        ais_skip_verify=is_true("AIS_SKIP_VERIFY_CRT" if is_new_name else "AIS_SKIP_VERIFY"),
        aws={name: environ[name] for name in _AWS_VARIABLES if name in environ},
        http_proxy=proxy("http_proxy"),
        https_proxy=proxy("https_proxy"),
        no_proxy=proxy("no_proxy"),
        ca_file=environ.get("SSL_CERT_FILE", ""),
        hedge=switch("HEADRACE_HEDGE", default=True),
        trace=environ.get("HEADRACE_TRACE", "").strip(),
        force_weights_only=is_true("TORCH_FORCE_WEIGHTS_ONLY_LOAD"),
        engine=EngineOptions(
            io_threads=number("HEADRACE_IO_THREADS", defaults.io_threads),
            file_threads=number("HEADRACE_FILE_THREADS", defaults.file_threads),
            memory_budget_bytes=number(
                "HEADRACE_MEMORY_BUDGET_BYTES", defaults.memory_budget_bytes
            ),
        ),
    )
