"""Paths, and the stores they lie in."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import PREFETCH_BYTES, require_bytes
from headrace._process.freed_memory import keep_freed_memory
from headrace._store.keywords import STORE_KEYWORDS, refuse_keywords
from headrace._store.location import after_scheme, bucket_and_name, scheme_of
from headrace._store.store import Store
from headrace.fsspec._arguments import count_of, number_of
from headrace.fsspec._json_options import from_json, is_secret, to_json
from headrace.fsspec._transaction import Transactions

__all__ = ["Paths"]

# Options of fsspec itself; and what datasets adds to each dict of options that it is given.
_IGNORED = ("use_listings_cache", "listings_expiry_time", "max_paths", "hf")
# What programs give to file systems of all kinds alike, as fsspec's own take it. Of these headrace
# needs none: it reads ahead by itself, and a file's own are given to ``open``.
_HINTS = (
    "block_size", "default_block_size", "cache_type", "default_cache_type", "cache_options",
    "client_kwargs", "config_kwargs", "encoding", "errors", "newline", "trust_env",
)  # fmt: skip
# Of `client_kwargs`, these say where data is or who asks: to pass over them would be a mistake.
_NO_HINTS = ("endpoint_url", "region_name", "aws_access_key_id", "aws_secret_access_key", "verify")
# What users of gcsfs and s3fs write.
_INSTEAD = {
    "anon": 'give credentials="anonymous"',
    "token": 'give credentials="anonymous", credentials=headrace.BearerToken(...), or for s3:// '
    "credentials=headrace.AwsKeys(...)",
    "key": "give credentials=headrace.AwsKeys(key, secret)",
    "secret": "give credentials=headrace.AwsKeys(key, secret)",
    "endpoint_url": "give endpoint=...",
    "client_kwargs": "give endpoint=..., provider=headrace.S3Options(region=...)",
    "requester_pays": "give provider=headrace.GcsOptions(user_project=...) or "
    "provider=headrace.S3Options(requester_pays=True)",
}
_logger = logging.getLogger("headrace")


class _OneForEachSetOfOptions(type(AbstractFileSystem)):  # type: ignore[misc]
    """Instances are shared if their options are the same, those that are never printed included.

    fsspec tells options apart by their text, and the text of `AwsKeys` hides the secret.
    """

    _calling = threading.local()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs = {name: from_json(value) for name, value in kwargs.items()}
        cls._calling.digest = hashlib.sha256(_text_of(kwargs).encode()).hexdigest()
        return super().__call__(*args, **kwargs)

    @property
    def _options_digest(cls) -> str:
        return getattr(cls._calling, "digest", "")


def _text_of(value: Any) -> str:
    """Return text that is another one for other options."""
    if isinstance(value, Mapping):
        return repr({key: _text_of(each) for key, each in sorted(value.items())})
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}({_text_of(vars(value))})"
    return repr(value)


class Paths(AsyncFileSystem, metaclass=_OneForEachSetOfOptions):  # type: ignore[misc]
    """Options, and which store and name a path means."""

    protocol: str | tuple[str, ...] = ()
    scheme: ClassVar[str] = ""
    """Of the store's URLs."""
    _extra_tokenize_attributes = ("_options_digest",)
    _stripped: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._stripped = cls._stripped | {cls.scheme, *cls._protocols()} - {""}

    @classmethod
    def _protocols(cls) -> tuple[str, ...]:
        return (cls.protocol,) if isinstance(cls.protocol, str) else tuple(cls.protocol)

    def __init__(
        self,
        *args: Any,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: int | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
        **options: Any,
    ) -> None:
        if self._cached:
            return
        batch_size = count_of(batch_size)
        super().__init__(
            *args, asynchronous=asynchronous, loop=loop, batch_size=batch_size, **options
        )
        prefetch_bytes = require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        for name in _IGNORED:
            options.pop(name, None)
        self._pass_over_hints(options)
        unknown = [name for name in options if name not in STORE_KEYWORDS]
        refuse_keywords(f"{self._protocols()[0]}://", unknown, _INSTEAD, of=Store)
        self._prefetch_bytes = prefetch_bytes
        self._options = options
        self._stores: dict[str, Store] = {}
        self._transactions = Transactions()
        self._check_options()

    def _pass_over_hints(self, options: dict[str, Any]) -> None:
        """Take out of `options` what is no option of headrace's, and what it can do without."""
        for name in ("block_size", "default_block_size"):
            number_of(name, options.get(name))
        client = options.get("client_kwargs")
        if isinstance(client, Mapping) and any(name in client for name in _NO_HINTS):
            return  # it is refused, with the remedy
        hints = [name for name in _HINTS if options.pop(name, None) is not None]
        if hints:
            _logger.debug("%s:// does without %s", self._protocols()[0], ", ".join(hints))

    def _check_options(self) -> None:
        """Raise if no store could have these options."""
        Store(f"{self.scheme}://bucket", **self._options)

    @property
    def loop(self) -> Any:
        """The event loop of `asynchronous=False`; a forked child has another one."""
        if self._pid != os.getpid():
            self._pid: int = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    @property
    def fsid(self) -> str:
        """What it is to fsspec: ``headrace+gs``."""
        return f"headrace+{self.scheme}"

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """Return the file system as JSON has it; fsspec's ``from_dict`` is the way back.

        Args:
            include_password: leave out keys and tokens, if False.

        Raises:
            TypeError: from ``to_json``, with credentials that are an object of another library.
        """
        options = {
            name: to_json(value)
            for name, value in self.storage_options.items()
            if value is not None and name != "loop" and (include_password or not is_secret(value))
        }
        cls = type(self)
        where = {"cls": f"{cls.__module__}:{cls.__name__}", "protocol": self._protocols()[0]}
        return {**where, "args": list(self.storage_args), **options}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(stringify_path(path))
        for protocol in cls._protocols():
            text = text.removeprefix(f"{protocol}::")
        is_url = scheme_of(text) in cls._stripped
        return cls._normal(after_scheme(text) if is_url else text, is_url=is_url)

    @classmethod
    def _normal(cls, path: str, *, is_url: bool) -> str:  # noqa: ARG003 - of files it matters
        # A bucket has a name, so that a slash before it says nothing.
        return path.strip("/") if path.startswith("/") else path.rstrip("/")

    def _at(self, path: Any) -> tuple[Store, str]:
        """Return the store that `path` lies in, and the name there; ``""`` for all of it."""
        text = self._strip_protocol(path)
        if not text:
            raise InvalidArgumentError(
                f"{self._protocols()[0]}://: which bucket? There is no list of all buckets"
            )
        root, name = bucket_and_name(f"{self.scheme}://{text}")
        store = self._stores.get(root)
        if store is None:
            keep_freed_memory()
            store = self._stores.setdefault(root, Store(root, **self._options))
        return store, name

    def _object_at(self, path: Any) -> tuple[Store, str]:
        """Return the store of an object, and its name.

        Raises:
            IsADirectoryError: `path` is a whole bucket.
        """
        store, name = self._at(path)
        if not name:
            raise IsADirectoryError(errno.EISDIR, "it is a bucket, not an object", store.url)
        return store, name

    def _path(self, store: Store, name: str) -> str:
        """Return how fsspec writes a name."""
        full = f"{after_scheme(store.url).rstrip('/')}/{name}"
        return full.rstrip("/") or str(self.root_marker)

    def _by_store(self, paths: Iterable[str]) -> dict[Store, list[tuple[int, str]]]:
        """Return the names in each store, with their places."""
        found: dict[Store, list[tuple[int, str]]] = {}
        for at, path in enumerate(paths):
            store, name = self._object_at(path)
            found.setdefault(store, []).append((at, name))
        return found
