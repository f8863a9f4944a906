"""Which credentials a store sends. Tokens of Google's are made in `_google_credentials`."""

from __future__ import annotations

import sys
from typing import Any, Literal, Protocol

from headrace import _engine, _process
from headrace._options import BearerToken, require

__all__ = ["CredentialsOption", "GoogleCredentials", "engine_credentials", "require_credentials"]


class GoogleCredentials(Protocol):
    """What is needed of a `google.auth.credentials.Credentials`."""

    token: Any
    expiry: Any

    @property
    def valid(self) -> bool: ...
    def refresh(self, request: Any) -> None: ...


CredentialsOption = Literal["google", "anonymous"] | BearerToken | GoogleCredentials | None


def require_credentials(credentials: CredentialsOption) -> None:
    """Refuse a text that stands for no credentials.

    Raises:
        InvalidArgumentError: it does not.
    """
    require(
        not isinstance(credentials, str) or credentials in ("google", "anonymous"),
        f"credentials is {credentials!r}; it must be 'google', 'anonymous', a BearerToken "
        "or an object of google-auth",
    )


def engine_credentials(credentials: CredentialsOption, endpoint: str) -> _engine.Credentials | None:
    """Return what the engine needs to sign requests to `endpoint`; None: they stay unsigned.

    A token that is meant for Google is not sent to another host unless the user says so.

    Args:
        credentials: what the store was given.
        endpoint: normalized; ``""`` is Google's own.
    """
    if credentials is None:
        credentials = "google" if _is_googles_own(endpoint) else "anonymous"
    if credentials == "anonymous" or _is_anonymous(credentials):
        return None
    if isinstance(credentials, BearerToken):
        return _engine.Credentials.from_token(f"Bearer {credentials.token}")
    source = None if isinstance(credentials, str) else credentials
    return _process.credentials_thread().credentials_of(source)


def _is_googles_own(endpoint: str) -> bool:
    if not endpoint:
        return True
    scheme, _, rest = endpoint.partition("://")
    host = rest.partition("/")[0].partition(":")[0]
    return scheme == "https" and host.endswith(".googleapis.com")


def _is_anonymous(credentials: object) -> bool:
    module = sys.modules.get("google.auth.credentials")
    return module is not None and isinstance(credentials, module.AnonymousCredentials)
