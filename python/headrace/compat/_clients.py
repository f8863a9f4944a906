"""The settings in a ``storage_client`` argument, and how they reach another process.

A ``google.cloud.storage.Client`` holds an account, a project and an endpoint; the engine uses
these. Any other object is used itself. Google's client cannot be pickled, so only its settings
cross to another process, where a new client is made of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from headrace import InvalidArgumentError
from headrace._base.imported import imported
from headrace._base.options import read_environment

__all__ = [
    "GoogleClientSettings",
    "PickledClient",
    "bucket_url",
    "make_google_client",
    "settings_of",
    "store_options_of",
]


@dataclass(frozen=True)
class GoogleClientSettings:
    """The settings of a ``google.cloud.storage.Client``."""

    project: str | None
    endpoint: str
    """The client's endpoint, with ``http://`` or ``https://``."""
    credentials: Any
    """An object of google-auth."""


def settings_of(client: Any) -> GoogleClientSettings | None:
    """Return the settings of `client`, or None if the client itself must be used.

    The client itself must be used if it is not a ``google.cloud.storage.Client`` (a mock is not),
    or if its requests go through a session of the caller's own.
    """
    # The owner of such a client has imported its module.
    kind = imported("google.cloud.storage", "Client")
    if kind is None or not issubclass(type(client), kind):
        return None
    session = client._http_internal
    if session is not None and not _is_googles_session(session):
        return None
    return GoogleClientSettings(
        project=client.project,
        endpoint=client._connection.API_BASE_URL,
        credentials=client._credentials,
    )


def bucket_url(name: Any) -> str:
    """Return the URL of the bucket `name`.

    Raises:
        InvalidArgumentError: `name` is not a bucket's name but, say, a URL.
    """
    if not isinstance(name, str) or "/" in name or not name:
        raise InvalidArgumentError(
            f"the bucket's name is {name!r}; it must be a bucket's alone, without gs:// and /"
        )
    return f"gs://{name}"


def store_options_of(client: Any) -> dict[str, Any] | None:
    """Return the options of a `Store` like `client`; None if the client itself must be used."""
    if client is None:
        return {"endpoint": read_environment().endpoint("gs") or None}
    settings = settings_of(client)
    if settings is None:
        return None
    return {"endpoint": settings.endpoint, "credentials": settings.credentials}


def make_google_client(project: str | None, settings: GoogleClientSettings | None = None) -> Any:
    """Return a new ``google.cloud.storage.Client``, the default one or one with `settings`.

    Raises:
        ImportError: google-cloud-storage is not installed.
    """
    storage: Any = importlib.import_module("google.cloud.storage")
    if settings is None:
        return storage.Client(project=project)
    return storage.Client(
        project=settings.project,
        credentials=settings.credentials,
        client_options={"api_endpoint": settings.endpoint},
    )


class PickledClient:
    """A client in a pickle; `restore` returns it.

    Args:
        client: Google's client, any other that pickles by itself, or None.
    """

    def __init__(self, client: Any) -> None:
        self._settings = settings_of(client)
        self._client = client if self._settings is None else None

    def restore(self) -> Any:
        if self._settings is not None:
            return make_google_client(self._settings.project, self._settings)
        return self._client


def _is_googles_session(session: Any) -> bool:
    return type(session) is imported("google.auth.transport.requests", "AuthorizedSession")
