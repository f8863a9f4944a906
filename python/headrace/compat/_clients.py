"""What a ``storage_client`` argument stands for, and how it reaches another process.

A ``google.cloud.storage.Client`` stands for an account, a project and an endpoint; these go to the
engine. Any other object is used itself. Neither Google's client nor what it holds can be pickled,
so a client crosses to another process as what it stands for and is made anew there.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

from headrace._errors import InvalidArgumentError
from headrace._options import read_environment

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
    """What a ``google.cloud.storage.Client`` was made of."""

    project: str | None
    endpoint: str
    """As the client has it, with ``http://`` or ``https://``."""
    credentials: Any
    """An object of google-auth."""


def settings_of(client: Any) -> GoogleClientSettings | None:
    """Return what `client` stands for, or None if the client itself has to be used.

    That is so for everything that is not a ``google.cloud.storage.Client`` (a mock of one is not),
    and for one whose requests go through a session of the caller's own.
    """
    # Who holds such a client has imported its module; we need not.
    storage = sys.modules.get("google.cloud.storage")
    if storage is None or not issubclass(type(client), storage.Client):
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
        InvalidArgumentError: `name` is none of a bucket: a URL, or one with a name of an object.
    """
    if not isinstance(name, str) or "/" in name or not name:
        raise InvalidArgumentError(
            f"the bucket's name is {name!r}; it must be a bucket's alone, without gs:// and /"
        )
    return f"gs://{name}"


def store_options_of(client: Any) -> dict[str, Any] | None:
    """Return the options of a `Store` for what `client` stands for; None: it is used itself."""
    if client is None:
        return {"endpoint": read_environment().emulator_endpoint or None}
    settings = settings_of(client)
    if settings is None:
        return None
    return {"endpoint": settings.endpoint, "credentials": settings.credentials}


def make_google_client(project: str | None, settings: GoogleClientSettings | None = None) -> Any:
    """Return a new ``google.cloud.storage.Client``: the default one, or one of these settings.

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
    """A client on its way through a pickle; `restore` gives it back.

    Args:
        client: Google's, any other that pickles by itself, or None.
    """

    def __init__(self, client: Any) -> None:
        self._settings = settings_of(client)
        self._client = client if self._settings is None else None

    def restore(self) -> Any:
        if self._settings is not None:
            return make_google_client(self._settings.project, self._settings)
        return self._client


def _is_googles_session(session: Any) -> bool:
    module = sys.modules.get("google.auth.transport.requests")
    return module is not None and type(session) is module.AuthorizedSession
