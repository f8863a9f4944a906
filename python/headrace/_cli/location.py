"""What a URL on the command line means."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import headrace
from headrace import (
    GcsOptions,
    InvalidArgumentError,
    NotFoundError,
    ObjectInfo,
    RetryOptions,
    S3Options,
    Store,
    TimeoutOptions,
)
from headrace._store.location import bucket_and_name, bucket_of, is_local, scheme_of

__all__ = ["Connection", "Location", "first_wildcard", "missing_bucket", "not_found", "url_of"]

# For requests that carry a whole large object. What hangs is noticed by the stall time-out.
_PATIENT = TimeoutOptions(total_s=24 * 3600.0)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The options that all commands share, and the stores that were made with them."""

    endpoint: str | None = None
    anonymous: bool = False
    user_project: str | None = None
    requester_pays: bool = False
    region: str | None = None
    temporary_prefix: str | None = None
    attempts: int | None = None
    literal: bool = False
    verbose: bool = False
    _stores: dict[str, Store] = field(default_factory=dict, compare=False, repr=False)

    def joined(self, **behind: object) -> Connection:
        """Return these options with those that stand behind the command's name."""
        return replace(self, **{name: value for name, value in behind.items() if value})  # type: ignore[arg-type]

    def store(self, url: str) -> Store:
        """Return the store of a bucket; it is made once."""
        if url not in self._stores:
            self._stores[url] = Store(url, **self.options_of(url))
        return self._stores[url]

    def patient_store(self, url: str) -> Store:
        """Return a store whose requests may take as long as they make progress."""
        return Store(url, timeout=_PATIENT, **self.options_of(url))

    def options_of(self, url: str) -> dict[str, Any]:
        """Return the options of a store at `url`."""
        if is_local(url):
            return {}
        return {
            "endpoint": self.endpoint,
            "credentials": "anonymous" if self.anonymous else None,
            "provider": self._provider(url),
            "retry": RetryOptions(max_attempts=self.attempts or RetryOptions.max_attempts),
            # Digests, too: who copies objects wants to know more than how fast that went.
            "verify": "all",
            "user_agent_suffix": "headrace-cli",
        }

    def _provider(self, url: str) -> GcsOptions | S3Options | None:
        """Return what only the provider at `url` has.

        Of several URLs each takes its own, so that copies between providers can have both.
        """
        if scheme_of(url) == "s3":
            return S3Options(region=self.region, requester_pays=self.requester_pays)
        gcs = GcsOptions(
            user_project=self.user_project, temporary_prefix=self.temporary_prefix or ""
        )
        # None where nobody gave one: others than gs:// take none.
        return None if gcs == GcsOptions() else gcs


@dataclass(frozen=True)
class Location:
    """A name, the beginning of names, or a pattern of names, in a store.

    Files are objects of the machine's root directory, so that all stores look alike: the name of
    ``file:///a/b`` is ``a/b``.
    """

    store: Store
    name: str
    """``""`` for the whole store; ends with ``/`` if only what lies below is meant."""
    is_pattern: bool = False
    """Whether the name has wildcards; see `headrace._cli.wildcards`."""
    info: ObjectInfo | None = None
    """What is known of the object of this name, if it was listed."""

    @classmethod
    def parse(cls, text: str, connection: Connection, *, wildcards: bool = False) -> Location:
        """Return what `text` says.

        Args:
            wildcards: take ``*``, ``?`` and ``[`` as such, unless there is a file of that name.

        Raises:
            InvalidArgumentError: no URL has this form.
        """
        _require_utf8(text)
        root, name = bucket_and_name(text)
        _require_utf8(name)  # of a path: also where we are
        is_pattern = wildcards and first_wildcard(name) < len(name)
        if is_pattern and root == "file:///":
            # A shell has replaced patterns of files already: what is left may be a name.
            is_pattern = not os.path.lexists(f"/{name}")
        return cls(connection.store(root), name, is_pattern)

    @property
    def is_file(self) -> bool:
        return is_local(self.store.url)

    @property
    def url(self) -> str:
        return url_of(self.store, self.name)

    @property
    def is_folder(self) -> bool:
        """Whether only what lies below can be meant."""
        return not self.name or self.name.endswith("/")

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory of this machine."""
        return self.is_file and os.path.isdir(f"/{self.name}")

    @property
    def without_slash(self) -> Location:
        """The same as somebody would write it who means the folder, not what lies below it."""
        return replace(self, name=self.name.rstrip("/"))

    @property
    def as_folder(self) -> Location:
        """What lies below it, and nothing else."""
        return replace(self, name=self.below)

    @property
    def last_name(self) -> str:
        """The last component: ``c`` of ``a/b/c``; ``""`` of a folder."""
        return self.name.rpartition("/")[2]

    @property
    def below(self) -> str:
        """What the names of everything below begin with."""
        return self.name if self.is_folder else f"{self.name}/"


def first_wildcard(text: str) -> int:
    """Return where the first ``*``, ``?`` or ``[`` is; the length of `text` if there is none."""
    return min((at for at in map(text.find, "*?[") if at >= 0), default=len(text))


def _require_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{text!r} is not UTF-8, as URLs are") from None


def url_of(store: Store, name: str) -> str:
    """Return the URL of a name; also of ``""`` and of what ends with ``/``."""
    return store.url_of(name) if name else store.url


def not_found(location: Location, text: str) -> headrace.NotFoundError:
    """Return the error for a location where nothing is."""
    error = headrace.NotFoundError(f"{location.url}: {text}")
    error.url = location.url
    return error


def missing_bucket(error: Exception, store: Store) -> NotFoundError | None:
    """Return an error that says so, if `error` came because there is no such bucket.

    A listing says so itself. A 404 of an object does not say which of the two is missing, with some
    services: then the bucket is listed.
    """
    if not isinstance(error, NotFoundError) or is_local(store.url):
        return None
    bucket, _ = bucket_of(store)
    of_bucket = error
    if error.url != bucket.url:
        try:
            bucket.list_page(max_results=1)
        except NotFoundError as found:
            of_bucket = found
        except headrace.HeadraceError:  # it may not be listed
            return None
        else:
            return None
    told = NotFoundError(f"{bucket.url}: there is no such bucket")
    told.url = bucket.url
    told.http_status, told.attempts = of_bucket.http_status, of_bucket.attempts
    told.request_id = of_bucket.request_id
    return told
