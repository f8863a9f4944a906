"""What a store was told: its options, checked, and as the engine takes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from headrace import _engine
from headrace._base.options import (
    AisOptions,
    ContentEncoding,
    Environment,
    GcsOptions,
    OnChange,
    ParallelOptions,
    ProviderOptions,
    RetryOptions,
    S3Options,
    TimeoutOptions,
    VerifyOption,
    provider_of,
    read_environment,
    require,
    require_header,
)
from headrace._credentials.aws_configuration import AwsConfiguration, aws_configuration
from headrace._credentials.ca_files import ca_file
from headrace._credentials.credentials import (
    CredentialsOption,
    engine_credentials,
    require_credentials,
)

__all__ = ["LoadOptions", "StoreOptions", "StoreSettings"]


class LoadOptions(TypedDict, total=False):
    """The keywords of `Store` where `verify` is one of the function's own."""

    endpoint: str | None
    credentials: CredentialsOption
    user_agent_suffix: str
    retry: RetryOptions
    timeout: TimeoutOptions
    parallel: ParallelOptions
    on_change: OnChange
    content_encoding: ContentEncoding
    provider: ProviderOptions | None


class StoreOptions(LoadOptions, total=False):
    """The keywords of `Store`, which explains them, as type checkers see them."""

    verify: VerifyOption


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The keywords of `Store`, which explains them. Immutable; pickles with the store.

    Raises:
        InvalidArgumentError: an option cannot work.
    """

    endpoint: str | None
    credentials: CredentialsOption
    user_agent_suffix: str
    retry: RetryOptions
    timeout: TimeoutOptions
    parallel: ParallelOptions
    on_change: OnChange
    content_encoding: ContentEncoding
    verify: VerifyOption
    provider: ProviderOptions | None

    def __post_init__(self) -> None:
        for name, kind in (
            ("retry", RetryOptions),
            ("timeout", TimeoutOptions),
            ("parallel", ParallelOptions),
        ):
            value = getattr(self, name)
            require(
                isinstance(value, kind),
                f"{name} is {value!r}; it must be headrace.{kind.__name__}(...)",
            )
        require(self.on_change in ("error", "reread"), f"on_change is {self.on_change!r}")
        require(
            self.content_encoding in ("stored", "decompress"),
            f"content_encoding is {self.content_encoding!r}",
        )
        require(
            self.verify in (True, False, "all"),
            f"verify is {self.verify!r}; it must be True, False or 'all'",
        )
        require_credentials(self.credentials)
        require_header("user_agent_suffix", self.user_agent_suffix)
        if self.endpoint is not None:
            require(
                self.endpoint != "",
                "endpoint is empty; leave it out, or pass None, for the service's own",
            )
            normal = _engine.normalized_endpoint(self.endpoint, default_tls=True)
            object.__setattr__(self, "endpoint", normal)

    @property
    def gcs(self) -> GcsOptions:
        """The options of ``gs://``, with which other stores do nothing."""
        return self.provider if isinstance(self.provider, GcsOptions) else GcsOptions()

    @property
    def s3(self) -> S3Options:
        """The options of ``s3://``, with which other stores do nothing."""
        return self.provider if isinstance(self.provider, S3Options) else S3Options()

    @property
    def ais(self) -> AisOptions:
        """The options of ``ais://``, with which other stores do nothing."""
        return self.provider if isinstance(self.provider, AisOptions) else AisOptions()

    def aws_configuration(self) -> AwsConfiguration:
        """Return where requests to ``s3://`` go, and as whom.

        Raises:
            InvalidArgumentError: the environment, or a file of AWS's, says what cannot work.
        """
        return aws_configuration(
            read_environment().aws,
            endpoint=self.endpoint,
            options=self.s3,
            credentials=self.credentials,
        )

    def engine_options(self, scheme: str, aws: AwsConfiguration | None = None) -> dict[str, Any]:
        """Return them as the engine takes them, for a store of `scheme` in this process.

        Args:
            scheme: of the store.
            aws: what a store of ``s3://`` has found; default: what is found now.
        """
        environment = read_environment()
        if aws is None:
            aws = self.aws_configuration() if scheme == "s3" else AwsConfiguration()
        endpoint = aws.endpoint or self.endpoint or environment.endpoint(scheme)
        compose = self.gcs.compose_small_objects
        options: dict[str, Any] = {
            "endpoint": endpoint,
            "credentials": engine_credentials(scheme, self.credentials, endpoint, environment, aws),
            "user_agent_suffix": self.user_agent_suffix,
            "on_change": self.on_change,
            "content_encoding": self.content_encoding,
            "verify": self.verify,
            **asdict(self.retry),
            **asdict(self.timeout),
            **asdict(self.parallel),
            "hedge": environment.hedge if self.parallel.hedge is None else self.parallel.hedge,
            "user_project": self.gcs.user_project or "",
            "temporary_prefix": self.gcs.temporary_prefix,
            **{f"s3_{name}": value for name, value in vars(self.s3).items()},
            "s3_region": aws.region,
            "s3_addressing": aws.addressing,
            "s3_dual_stack": aws.dual_stack,
            "s3_fips": aws.fips,
            "s3_checksum": aws.checksum,
            "s3_customer_key": self.s3.customer_key or b"",
            "ais_direct": self.ais.direct,
            "ais_etl_name": self.ais.etl_name,
            "ais_etl_args": self.ais.etl_args,
            "ais_get_batch": self.ais.get_batch,
            "compose_small_objects": compose is not None,
            "http_proxy": environment.http_proxy,
            "https_proxy": environment.https_proxy,
            "no_proxy": environment.no_proxy,
            "ca_file": ca_file(aws.ca_file or self._ca_file(scheme, environment)),
            **self._client_certificate(scheme, environment),
        }
        if compose is not None:
            options.update({f"compose_{name}": value for name, value in asdict(compose).items()})
        options["initial_in_flight"] = min(
            self.parallel.initial_in_flight, self.parallel.max_in_flight
        )
        return options

    def _client_certificate(self, scheme: str, environment: Environment) -> dict[str, Any]:
        if provider_of(scheme) != "ais":
            return {}
        skips = self.ais.skip_verify
        # A certificate and its key come from one place.
        own = bool(self.ais.client_cert_file)
        return {
            "client_cert_file": (
                self.ais.client_cert_file if own else environment.ais_client_cert_file
            ),
            "client_key_file": self.ais.client_key_file if own else environment.ais_client_key_file,
            "skip_verify": environment.ais_skip_verify if skips is None else skips,
        }

    def _ca_file(self, scheme: str, environment: Environment) -> str:
        own = self.ais.ca_file or environment.ais_ca_file if provider_of(scheme) == "ais" else ""
        return own or environment.ca_file
