"""Tokens of Google's, made by google-auth on the credentials thread."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._process import process
from headrace._process.credentials_thread import CredentialsThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._credentials.credentials import GoogleCredentials

__all__ = ["google_credentials"]

SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)

# One exchange with a token service. Without a bound of its own google-auth waits two minutes.
_REQUEST_TIMEOUT_S = 30.0

_ADVICE = (
    "no Google credentials were found: run `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS to a credentials file; public buckets need none: pass "
    'credentials="anonymous"'
)


class _GoogleSource:
    """One account of Google's."""

    def __init__(self, find: Callable[[], GoogleCredentials]) -> None:
        self._find = find
        self._source: GoogleCredentials | None = None
        self._provided: str | None = None

    def renew(self, engine_copy: _engine.Credentials) -> None:
        """Give the engine a token that it has not had yet, or say why there is none."""
        _import_all()
        import google.auth.exceptions

        try:
            token, expires_in_s = self._next_token()
        except google.auth.exceptions.DefaultCredentialsError as error:
            engine_copy.fail(f"{_ADVICE} ({error})", retryable=False)
        except google.auth.exceptions.TransportError as error:
            engine_copy.fail(f"the token service cannot be reached: {error}", retryable=True)
        except google.auth.exceptions.GoogleAuthError as error:
            engine_copy.fail(
                f"the token was refused: {error}",
                retryable=bool(getattr(error, "retryable", False)),
            )
        else:
            self._provided = token
            engine_copy.provide(
                _engine.Credential.of_authorization(f"Bearer {token}"), expires_in_s
            )

    def _next_token(self) -> tuple[str, float | None]:
        import google.auth.transport.requests
        import requests

        if self._source is None:
            self._source = self._find()
        source = self._source
        # The engine asks again before a token ends, and when the service refused it. In both cases
        # google-auth may still take the old one for valid.
        if not source.valid or source.token == self._provided:
            with requests.Session() as session:
                request = google.auth.transport.requests.Request(session=session)
                source.refresh(functools.partial(request, timeout=_REQUEST_TIMEOUT_S))
        if not source.token:
            raise ValueError("no token came")
        if source.expiry is None:
            return source.token, None
        # google-auth keeps naive times in UTC.
        expiry = source.expiry.replace(tzinfo=datetime.UTC)
        left = expiry - datetime.datetime.now(datetime.UTC)
        return source.token, left.total_seconds()


# What google-auth and requests import where they need it. Older ones lack some.
_IMPORTED_LATE = (
    "netrc",
    "google.auth.compute_engine",
    "google.auth.external_account",
    "google.auth.identity_pool",
    "google.auth.impersonated_credentials",
    "google.oauth2.credentials",
    "google.oauth2.service_account",
    "google.oauth2.sts",
    "google.oauth2.utils",
)


def _import_all() -> None:
    """Import what an exchange needs, while no fork can begin."""
    with process.importing():
        import google.auth.transport.requests  # noqa: F401

        for name in _IMPORTED_LATE:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def _find_default() -> GoogleCredentials:
    import google.auth

    source: GoogleCredentials
    source, _ = google.auth.default(scopes=SCOPES)
    return source


def _with_scopes(source: GoogleCredentials) -> GoogleCredentials:
    import google.auth.credentials

    with_scopes: Any = google.auth.credentials.with_scopes_if_required  # ships no types
    scoped: GoogleCredentials = with_scopes(source, SCOPES)
    return scoped


def google_credentials(
    thread: CredentialsThread, source: GoogleCredentials | None
) -> _engine.Credentials:
    """Return what the engine needs for `source`; None: Application Default Credentials."""
    if source is None:
        return thread.credentials_of(("google", None), lambda: _GoogleSource(_find_default))
    # `find` keeps the object alive, and so its id its own.
    find = functools.partial(_with_scopes, source)
    return thread.credentials_of(("google", id(source)), lambda: _GoogleSource(find))
