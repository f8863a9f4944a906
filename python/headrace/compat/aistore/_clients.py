"""Stores with the settings of a client of the SDK's."""

from __future__ import annotations

import functools
import os
from typing import Any

from headrace import AisOptions, BearerToken, RetryOptions, Store, TimeoutOptions
from headrace.compat.aistore._sdk import sdk_class

__all__ = ["bucket_id", "bucket_url", "store_of_bucket", "store_of_object"]

_SCHEMES = {
    "ais": "ais",
    "aws": "ais+s3",
    "gcp": "ais+gs",
    "azure": "ais+az",
    "oci": "ais+oci",
    "ht": "ais+ht",
}

# What the SDK calls no limit.
_NO_LIMIT_S = 7 * 86400.0


def bucket_id(bucket: Any) -> tuple[str, str, str]:
    """Return what a bucket of the SDK's is known by in its cluster: provider, namespace, name."""
    namespace = "" if bucket.namespace is None else bucket.namespace.get_path()
    return _text_of(bucket.provider), namespace, bucket.name


def _text_of(provider: Any) -> str:
    return str(getattr(provider, "value", provider))  # a text, in older SDKs


def bucket_url(provider: str, namespace: str, name: str) -> str | None:
    """Return the URL of a bucket; None if headrace has none for this provider."""
    scheme = _SCHEMES.get(provider)
    if scheme is None:
        return None
    return f"{scheme}://{namespace}/{name}" if namespace not in ("", "@#") else f"{scheme}://{name}"


def store_of_bucket(bucket: Any) -> Store | None:
    """Return the store of a bucket of the SDK's; None if only the SDK can read it."""
    return _store(bucket.client, *bucket_id(bucket))


def store_of_object(value: Any) -> Store | None:
    """Return the store of the bucket that an object of the SDK's is in; None as above."""
    parameters = getattr(value, "query_params", None)
    if parameters is None:  # of an older SDK
        return None if value.bucket is None else store_of_bucket(value.bucket)
    return _store(
        value._client,
        parameters.get("provider", "ais"),
        parameters.get("namespace", ""),
        value.bucket_name,
    )


def _store(client: Any, provider: str, namespace: str, name: str) -> Store | None:
    settings = _settings(client)
    url = bucket_url(provider, namespace, name)
    if settings is None or url is None:
        return None
    return _made(url, *settings)


# An object of a list is asked for its store with every batch.
@functools.lru_cache(maxsize=256)
def _made(
    url: str,
    endpoint: str,
    token: str,
    retry: RetryOptions,
    timeout: TimeoutOptions,
    provider: AisOptions,
) -> Store:
    return Store(
        url,
        endpoint=endpoint,
        credentials=BearerToken(token) if token else "anonymous",
        retry=retry,
        timeout=timeout,
        provider=provider,
        # An object replaced after the listing is read whole, in its new version.
        on_change="reread",
    )


def _settings(client: Any) -> tuple[str, str, RetryOptions, TimeoutOptions, AisOptions] | None:
    """Return what a store needs to know of a client; None if the client itself must be used."""
    known = sdk_class("request_client", "RequestClient")
    if known is None or type(client) is not known:
        return None
    endpoint = client.base_url.removesuffix("/").removesuffix("/v1")
    provider = _certificates(client.session_manager)
    return endpoint, client.token or "", _retry(client), _timeout(client.timeout), provider


def _certificates(session: Any) -> AisOptions:
    """Return by what certificates a session and its cluster know each other."""
    # None, a file that has the key, too, or a pair of files; older SDKs know none.
    pair = getattr(session, "client_cert", None) or ""
    certificate, key = (pair, "") if isinstance(pair, str | os.PathLike) else pair
    return AisOptions(
        ca_file=os.fspath(session.ca_cert or ""),
        client_cert_file=os.fspath(certificate),
        client_key_file=os.fspath(key),
        skip_verify=bool(session.skip_verify),  # the session has looked at the environment
    )


def _retry(client: Any) -> RetryOptions:
    """Return the policy with as many attempts as the client's, and its longest pause."""
    config = getattr(getattr(client, "_retry_manager", None), "retry_config", None)
    network = getattr(config, "network_retry", None)
    http = getattr(config, "http_retry", None) or getattr(client.session_manager, "retry", None)
    attempts = [
        getattr(getattr(network, "stop", None), "max_attempt_number", None),
        _one_more(getattr(http, "total", None)),
    ]
    known = [each for each in attempts if isinstance(each, int) and each >= 1]
    pause = getattr(getattr(network, "wait", None), "max", None)
    default = RetryOptions()
    return RetryOptions(
        max_attempts=max(known, default=default.max_attempts),
        max_backoff_s=float(pause)
        if isinstance(pause, int | float) and 0 < pause < _NO_LIMIT_S
        else default.max_backoff_s,
    )


def _one_more(retries: Any) -> int | None:
    return retries + 1 if isinstance(retries, int) and not isinstance(retries, bool) else None


def _timeout(timeout: Any) -> TimeoutOptions:
    """Return the limits of a client: None, one number, or a pair for connecting and reading."""
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    connect_s, read_s = (_NO_LIMIT_S if each is None else float(each) for each in (connect, read))
    default = TimeoutOptions()
    return TimeoutOptions(
        connect_s=connect_s,
        tls_s=max(default.tls_s, connect_s),
        first_byte_s=read_s,
        stall_s=read_s,
        # The SDK limits each attempt, not all of them together.
        total_s=max(default.total_s, min(_NO_LIMIT_S, 10 * read_s)),
    )
