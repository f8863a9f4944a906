"""Who we are: tokens for the engine, made by google-auth on one thread.

The engine asks through a queue and parks the requests that need a token; however long a look-up
takes, other requests go on and each request still ends by its own deadline.
"""

from __future__ import annotations

import datetime
import functools
import threading
from typing import TYPE_CHECKING, Any

from headrace import _engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._credentials import GoogleCredentials

__all__ = ["CredentialsThread"]

SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)

# One exchange with a token service. Without a bound of its own google-auth waits two minutes.
_REQUEST_TIMEOUT_S = 30.0
_JOIN_TIMEOUT_S = 0.5

_ADVICE = (
    "no Google credentials were found: run `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS to a credentials file; public buckets need none: pass "
    'credentials="anonymous"'
)


class _Identity:
    """One account: where its tokens come from, and the engine's copy of them."""

    def __init__(
        self, engine_copy: _engine.Credentials, find: Callable[[], GoogleCredentials]
    ) -> None:
        self.engine_copy = engine_copy
        self._find = find
        self._source: GoogleCredentials | None = None
        self._provided: str | None = None

    def renew(self) -> None:
        """Give the engine a token that it has not had yet, or say why there is none."""
        import google.auth.exceptions

        try:
            token, expires_in_s = self._next_token()
        except google.auth.exceptions.DefaultCredentialsError as error:
            self.engine_copy.fail(f"{_ADVICE} ({error})", retryable=False)
        except google.auth.exceptions.TransportError as error:
            self.engine_copy.fail(f"the token service cannot be reached: {error}", retryable=True)
        except google.auth.exceptions.GoogleAuthError as error:
            self.engine_copy.fail(
                f"the token was refused: {error}",
                retryable=bool(getattr(error, "retryable", False)),
            )
        except Exception as error:  # a source of tokens is the user's code, too
            self.engine_copy.fail(
                f"the credentials failed: {type(error).__name__}: {error}", retryable=False
            )
        else:
            self._provided = token
            self.engine_copy.provide(f"Bearer {token}", expires_in_s)

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


class CredentialsThread:
    """The thread that makes tokens. A daemon: a token service that hangs does not hold up exit."""

    def __init__(self) -> None:
        self._queue = _engine.CredentialsQueue()
        self._lock = threading.Lock()
        self._identities: dict[int, _Identity] = {}
        self._ids: dict[int | None, int] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def credentials_of(self, source: GoogleCredentials | None) -> _engine.Credentials:
        """Return what the engine needs for `source`; None: Application Default Credentials."""
        key = None if source is None else id(source)  # `find` below keeps the object alive
        with self._lock:
            if key not in self._ids:
                find = _find_default if source is None else functools.partial(_with_scopes, source)
                identity_id = len(self._ids)
                self._identities[identity_id] = _Identity(
                    _engine.Credentials.from_queue(self._queue, identity_id), find
                )
                self._ids[key] = identity_id
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._serve, name="headrace-credentials", daemon=True
                )
                self._thread.start()
            return self._identities[self._ids[key]].engine_copy

    def stop(self) -> bool:
        """Make no more tokens. Waits a moment, and returns whether the thread has ended by then:
        a token service that hangs is not waited for."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._queue.stop()
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(_JOIN_TIMEOUT_S)
        return not thread.is_alive()

    def _serve(self) -> None:
        while not self._stopped:
            asking = self._queue.next(3600.0)
            if asking is not None:
                self._identities[asking.id].renew()
