"""Which credentials the requests of a store have. Some are renewed on a thread of their own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from headrace import _engine
from headrace._base.errors import InvalidArgumentError, text_of
from headrace._base.imported import imported
from headrace._base.options import AwsKeys, BearerToken, Environment, host_of, provider_of, require
from headrace._credentials.aws_configuration import AwsConfiguration
from headrace._process import process

__all__ = [
    "AwsCredentials",
    "CredentialsOption",
    "GoogleCredentials",
    "arrived",
    "engine_credentials",
    "require_credentials",
    "require_credentials_for",
    "travelling",
]


class GoogleCredentials(Protocol):
    """What is needed of a `google.auth.credentials.Credentials`."""

    token: Any
    expiry: Any

    @property
    def valid(self) -> bool: ...
    def refresh(self, request: Any) -> None: ...


class AwsCredentials(Protocol):
    """What is needed of the credentials of botocore and boto3; a session of theirs will do, too."""

    def get_frozen_credentials(self) -> Any: ...


class _AwsSession(Protocol):
    def get_credentials(self) -> Any: ...


CredentialsOption = (
    Literal["google", "aws", "anonymous"]
    | BearerToken
    | AwsKeys
    | GoogleCredentials
    | AwsCredentials
    | _AwsSession
    | None
)


def require_credentials(credentials: CredentialsOption) -> None:
    """Refuse what is no credentials of any provider.

    Raises:
        InvalidArgumentError: it is none.
    """
    require(
        credentials == "anonymous"
        or any(is_taken(credentials) for is_taken, _ in _TAKEN.values())
        or credentials is None,
        f"credentials is {_name_of(credentials)}; it must be 'google', 'aws', 'anonymous', a "
        "BearerToken, AwsKeys, or an object of google-auth or botocore",
    )


def require_credentials_for(scheme: str, credentials: CredentialsOption) -> None:
    """Refuse credentials of another provider. A directory has no service, and ignores all.

    Raises:
        InvalidArgumentError: they are.
    """
    provider = provider_of(scheme)
    if provider not in _TAKEN or credentials is None or credentials == "anonymous":
        return
    is_taken, what = _TAKEN[provider]
    require(
        is_taken(credentials),
        f"credentials is {_name_of(credentials)}, which is not for {provider}://; it takes {what}, "
        "or 'anonymous'",
    )


def engine_credentials(
    scheme: str,
    credentials: CredentialsOption,
    endpoint: str,
    environment: Environment,
    aws: AwsConfiguration,
) -> _engine.Credentials | None:
    """Return what the engine needs for requests to `endpoint`; None: they stay unsigned.

    Args:
        scheme: of the store.
        credentials: what the store was given.
        endpoint: normalized; ``""`` is the service's own.
        environment: what the environment variables say.
        aws: what a store of ``s3://`` has found.
    """
    if scheme == "gs":
        return _for_google(credentials, endpoint)
    if scheme == "s3":
        return _for_s3(credentials, environment, aws)
    if provider_of(scheme) == "ais":
        return _for_ais(credentials, environment)
    return None


def _for_google(credentials: CredentialsOption, endpoint: str) -> _engine.Credentials | None:
    # A token that is meant for Google is not sent to another host unless the user says so.
    if credentials is None:
        credentials = "google" if _is_googles_own(endpoint) else "anonymous"
    if credentials == "anonymous" or _is_anonymous(credentials):
        return None
    if isinstance(credentials, BearerToken):
        bearer = _engine.Credential.of_authorization(f"Bearer {credentials.token}")
        return _engine.Credentials.fixed(bearer)
    from headrace._credentials.google import google_credentials

    source: Any = None if credentials == "google" else credentials
    return google_credentials(process.credentials_thread(), source)


def _for_s3(
    credentials: CredentialsOption, environment: Environment, aws: AwsConfiguration
) -> _engine.Credentials | None:
    if credentials == "anonymous":
        return None
    if credentials is None or credentials == "aws":
        credentials = environment.aws_keys() or "aws"
    if _is_frozen(credentials):
        frozen: Any = credentials
        credentials = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token or "")
    if isinstance(credentials, AwsKeys):
        return _engine.Credentials.fixed(
            _engine.Credential.of_keys(
                credentials.access_key_id, credentials.secret_access_key, credentials.session_token
            )
        )
    from headrace._credentials.aws import aws_credentials

    source: Any = None if credentials == "aws" else credentials
    return aws_credentials(process.credentials_thread(), source, aws)


def _for_ais(
    credentials: CredentialsOption, environment: Environment
) -> _engine.Credentials | None:
    if credentials is None and environment.ais_token:
        credentials = BearerToken(environment.ais_token)
    if isinstance(credentials, BearerToken):
        bearer = _engine.Credential.of_authorization(f"Bearer {credentials.token}")
        return _engine.Credentials.fixed(bearer)
    if credentials is None and environment.ais_token_file:
        from headrace._credentials.ais import ais_credentials

        return ais_credentials(process.credentials_thread(), environment.ais_token_file)
    return None


class _Travelling:
    """Credentials on their way to another process. Only then is it asked whether they pickle."""

    def __init__(self, url: str, credentials: Any) -> None:
        self.url, self.credentials = url, credentials

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickle.dumps(self.credentials)
        except Exception as error:  # of the library that they are of
            raise InvalidArgumentError(
                f"{self.url}: credentials is {_name_of(self.credentials)}, which does not pickle "
                f"({text_of(error)}), so that neither the store nor a dataset of it can be sent to "
                "another process. Every process can find its own: leave credentials out "
                '("google", "aws"); or give keys or a token: headrace.AwsKeys(...), '
                "headrace.BearerToken(...)"
            ) from error
        return _Travelling, (self.url, self.credentials)

    def __deepcopy__(self, _: Any) -> _Travelling:
        return self  # they are one identity, in this process


def travelling(url: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a store's settings as they are pickled; `arrived` is the way back."""
    return {**settings, "credentials": _Travelling(url, settings["credentials"])}


def arrived(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of which `travelling` made these."""
    return {**settings, "credentials": settings["credentials"].credentials}


def _is_frozen(credentials: object) -> bool:
    """Return whether these are keys as botocore hands them out at one moment."""
    names = ("access_key", "secret_key", "token")
    return all(hasattr(credentials, name) for name in names) and not hasattr(
        credentials, "get_frozen_credentials"
    )


def _is_for_google(credentials: object) -> bool:
    if isinstance(credentials, BearerToken) or _is_anonymous(credentials):
        return True
    return credentials == "google" or hasattr(credentials, "refresh")


def _is_for_s3(credentials: object) -> bool:
    if isinstance(credentials, AwsKeys) or _is_frozen(credentials):
        return True
    asked = ("get_frozen_credentials", "get_credentials")
    return credentials == "aws" or any(hasattr(credentials, name) for name in asked)


def _is_for_ais(credentials: object) -> bool:
    return isinstance(credentials, BearerToken)


# Of each provider: what it takes, and how that is called.
_TAKEN: dict[str, tuple[Callable[[object], bool], str]] = {
    "gs": (_is_for_google, "'google', a BearerToken, an object of google-auth"),
    "s3": (_is_for_s3, "'aws', AwsKeys, credentials or a session of botocore or boto3"),
    "ais": (_is_for_ais, "a BearerToken"),
}


def _name_of(credentials: object) -> str:
    return repr(credentials) if isinstance(credentials, str) else type(credentials).__name__


def _is_googles_own(endpoint: str) -> bool:
    if not endpoint:
        return True
    return endpoint.startswith("https://") and host_of(endpoint).endswith(".googleapis.com")


def _is_anonymous(credentials: object) -> bool:
    anonymous = imported("google.auth.credentials", "AnonymousCredentials")
    return anonymous is not None and isinstance(credentials, anonymous)
