"""Keys of AWS's, found by botocore on the credentials thread.

botocore's chain: environment, assumed role, web identity, SSO and ``aws login``, profiles,
``credential_process``, container and instance metadata.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace import _engine
from headrace._base.errors import text_of
from headrace._credentials.aws_configuration import AwsConfiguration
from headrace._process import process
from headrace._process.credentials_thread import CredentialsThread

__all__ = ["aws_credentials", "find_in_chain"]

# For keys that botocore renews without saying when: it is asked again so often.
_ASKED_AGAIN_S = 300.0

_ADVICE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, run `aws configure`, or pass "
    'credentials=headrace.AwsKeys(...); public buckets need none: pass credentials="anonymous"'
)


class _AwsSource:
    """One identity of AWS's."""

    def __init__(self, find: Callable[[], Any], aws: AwsConfiguration) -> None:
        self._find = find
        self._aws = aws
        self._source: Any = None
        self._provided: tuple[str, str, str | None] | None = None

    def renew(self, engine_copy: _engine.Credentials) -> None:
        """Give the engine keys that it has not had yet, or say why there are none."""
        try:
            keys, expires_in_s = self._next_keys()
        except ImportError:
            engine_copy.fail(
                f"no AWS credentials were found without botocore, which "
                f"{self._aws.keys_origin or 'profiles, roles and instance metadata'} needs: "
                f"pip install 'headrace[s3]'; or {_ADVICE}",
                retryable=False,
            )
        except LookupError as error:
            engine_copy.fail(str(error), retryable=False)
        except Exception as error:  # botocore has dozens, and a source is the user's code, too
            engine_copy.fail(
                f"the AWS credentials failed: {type(error).__name__}: {text_of(error)}",
                retryable=_is_transient(error),
            )
        else:
            self._provided = keys
            access_key, secret_key, token = keys
            engine_copy.provide(
                _engine.Credential.of_keys(access_key, secret_key, token or ""), expires_in_s
            )

    def _next_keys(self) -> tuple[tuple[str, str, str | None], float | None]:
        keys = self._keys()
        if keys == self._provided:
            # The service refused them: whatever made them is asked anew, without what it remembers.
            self._source = None
            keys = self._keys()
        expiry = getattr(self._source, "_expiry_time", None)
        if expiry is None:
            is_renewed = hasattr(self._source, "refresh_needed")
            return keys, _ASKED_AGAIN_S if is_renewed else None
        return keys, (expiry - datetime.datetime.now(datetime.UTC)).total_seconds()

    def _keys(self) -> tuple[str, str, str | None]:
        if self._source is None:
            self._source = self._find()
        if self._source is None:
            raise self._nothing_found()
        frozen = self._source.get_frozen_credentials()
        if not frozen.access_key or not frozen.secret_key:
            raise self._nothing_found()
        return frozen.access_key, frozen.secret_key, frozen.token

    def _nothing_found(self) -> LookupError:
        named = f" in profile {self._aws.profile!r}" if self._aws.profile else ""
        return LookupError(f"no AWS credentials were found{named}: {_ADVICE}")


def _is_transient(error: Exception) -> bool:
    try:
        from botocore import exceptions
    except ImportError:  # the source is the user's own
        return isinstance(error, ConnectionError)
    if isinstance(error, exceptions.ClientError):
        head = error.response.get("ResponseMetadata", {})
        return bool(head.get("HTTPStatusCode", 0) >= 500)
    return isinstance(
        error,
        exceptions.HTTPClientError
        | exceptions.ConnectionError
        | exceptions.MetadataRetrievalError
        | ConnectionError,
    )


def find_in_chain(aws: AwsConfiguration) -> Any:
    """Return the credentials that botocore's chain finds in that profile of these files; or None.

    Raises:
        Exception: of botocore's; or there is no botocore.
    """
    with process.importing():
        import botocore.session

    session = botocore.session.get_session()
    # Not the session's own variables: with these it would pass over the environment.
    store = session.get_component("config_store")
    for name in ("profile", "config_file", "credentials_file"):
        store.set_config_variable(name, getattr(aws, name))
    return session.get_credentials()


def aws_credentials(
    thread: CredentialsThread, source: Any, aws: AwsConfiguration
) -> _engine.Credentials:
    """Return what the engine needs for `source`, a session or credentials of botocore's or boto3's;
    None: botocore's default chain, in the profile of `aws`.
    """
    if source is None:
        key = ("aws", aws.profile, aws.config_file, aws.credentials_file)
        return thread.credentials_of(key, lambda: _AwsSource(partial(find_in_chain, aws), aws))
    find = source.get_credentials if hasattr(source, "get_credentials") else lambda: source
    return thread.credentials_of(("aws", id(source)), lambda: _AwsSource(find, aws))
