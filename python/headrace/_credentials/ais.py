"""Tokens of AIStore's authentication server, as its command-line client keeps them in a file."""

from __future__ import annotations

import json
from pathlib import Path

from headrace import _engine
from headrace._process.credentials_thread import CredentialsThread

__all__ = ["ais_credentials"]


class _TokenFile:
    """A file that somebody else keeps fresh: ``{"token": "..."}``, or the bare token."""

    def __init__(self, path: str) -> None:
        self._path = path

    def renew(self, engine_copy: _engine.Credentials) -> None:
        """Give the engine what the file says now: the token before it may have expired."""
        try:
            text = Path(self._path).read_text(encoding="utf-8").strip()
            token = json.loads(text)["token"] if text.startswith("{") else text
        except (OSError, ValueError, KeyError) as error:
            engine_copy.fail(
                f"the token file {self._path}, which AIS_AUTHN_TOKEN_FILE names, cannot be "
                f"read: {type(error).__name__}: {error}",
                retryable=False,
            )
            return
        if (
            not isinstance(token, str)
            or not token.isascii()
            or not token.isprintable()
            or not token
        ):
            engine_copy.fail(f"there is no token in {self._path}", retryable=False)
            return
        engine_copy.provide(_engine.Credential.of_authorization(f"Bearer {token}"), None)


def ais_credentials(thread: CredentialsThread, path: str) -> _engine.Credentials:
    """Return what the engine needs for the token in the file `path`."""
    return thread.credentials_of(("ais", path), lambda: _TokenFile(path))
