"""A store's objects as fsspec's files and folders, whatever the scheme."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import hashlib
import io
import logging
import math
import numbers
import operator
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import has_magic
from typing import Any, ClassVar, NamedTuple

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.caching import caches
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.core import get_compression
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, other_paths, stringify_path

from headrace import _engine
from headrace._base.contexts import context
from headrace._base.errors import (
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    ResourceError,
)
from headrace._base.options import PREFETCH_BYTES, MiB, require, require_bytes
from headrace._engine import ObjectInfo
from headrace._files.reader_io import ObjectReaderIO
from headrace._files.writer_io import ObjectWriterIO, takes_files, write_file
from headrace._process.freed_memory import keep_freed_memory
from headrace._store.keywords import STORE_KEYWORDS, refuse_keywords
from headrace._store.listing import named
from headrace._store.location import after_scheme, before_wildcards, bucket_and_name, scheme_of
from headrace._store.moved_files import as_it_is, remove_moved
from headrace._store.store import Prefix, Store
from headrace.fsspec._files import CachedFile, ReadFile, TextFile, WriteFile, own_compressions
from headrace.fsspec._json_options import from_json, is_secret, to_json
from headrace.fsspec._threads import (
    Changes,
    LoopCallback,
    change_in_thread,
    in_thread,
    raise_if_over,
    wait_for,
)
from headrace.fsspec._transaction import StoreTransaction, Transactions

__all__ = ["StoreFileSystem"]

Entry = dict[str, Any]

# What one call of read and of write moves between an object and a local file.
_COPIED_BYTES = 16 * MiB
# What `Store.open_writer` takes of the keywords of ``open``; its part_bytes is fsspec's block_size.
_WRITER_OPTIONS = ("content_type", "expected_size_bytes", "max_parts_in_flight", "upload")
_ALL_AT_ONCE = 1 << 16
# Of what is longer it is asked first how much there is: callers give ends that no object has.
_LONG_BYTES = 1 << 30
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


def _number(name: str, value: Any) -> int | None:
    """Return a number of fsspec's convention, where no file system checks what it is given.

    Args:
        value: None and ``"default"`` leave it to headrace; a float is rounded down.

    Raises:
        InvalidArgumentError: it is no number.
    """
    if value is None or (isinstance(value, str) and value == "default"):
        return None
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(value)
        real: Any = value if isinstance(value, numbers.Real) else math.nan
        if math.isfinite(real):
            return int(real)
    raise InvalidArgumentError(f"{name} is {value!r}; it must be a number, or None for the default")


def _block_bytes(block_size: Any) -> int | None:
    """Return `block_size` as an int, or None: 0 asks fsspec's HTTPFileSystem for no blocks.

    Raises:
        InvalidArgumentError: it is no number, or negative.
    """
    size_bytes = _number("block_size", block_size)
    require(
        size_bytes is None or size_bytes >= 0,
        f"block_size is {block_size}; it must not be negative",
    )
    return size_bytes or None


def _depth(maxdepth: Any) -> int | None:
    """Return `maxdepth` as an int, or None.

    Raises:
        InvalidArgumentError: it is no number, or below 1.
    """
    depth = _number("maxdepth", maxdepth)
    require(depth is None or depth >= 1, f"maxdepth is {maxdepth}; it must be at least 1")
    return depth


def _count(batch_size: Any) -> int | None:
    """Return how many may be treated at a time, or None; -1, to fsspec, is all.

    Raises:
        InvalidArgumentError: it is no number, or negative.
    """
    count = _number("batch_size", batch_size)
    require(
        count is None or count >= -1,
        f"batch_size is {batch_size}; it must be at least 1, or -1 for all at once",
    )
    return _ALL_AT_ONCE if count == -1 else count or None


def _make_count(kwargs: dict[str, Any]) -> None:
    """Check the ``batch_size`` among the keywords of a method, and make it an int."""
    if "batch_size" in kwargs:
        kwargs["batch_size"] = _count(kwargs["batch_size"])


class _Span(NamedTuple):
    """What is to be read of an object."""

    at: int
    """Its place among all that is wanted."""
    name: str
    range: tuple[int, int | None] | None
    """None: all of it."""

    @property
    def size(self) -> int | None:
        """How many bytes these are, if the object has so many; None: that is not known."""
        if self.range is None or self.range[1] is None:
            return None
        return self.range[1] - self.range[0]


class _Reads:
    """Objects, or ranges, of one store that are being read together into bytes.

    Ranges whose size is known go straight into the bytes that are handed out.
    """

    def __init__(self, store: Store, reader: Store, spans: list[_Span]) -> None:
        self._store, self._spans = store, spans
        ranges = [span.range for span in spans if span.range is not None] or None
        self._filled = [_space(span.size) for span in spans if span.size is not None]
        self._views = [space.getbuffer() for space in self._filled]
        names = [span.name for span in spans]
        self._batch: _engine.Batch | None = reader._handle().start(
            names, self._views or None, ranges
        )

    def take(self, found: list[Any]) -> None:
        """Wait, and put bytes, or an error, into the place of each."""
        assert self._batch is not None
        samples: list[Any] = self._batch.take(return_errors=True)
        failed = [each if isinstance(each, Exception) else None for each in samples]
        if self._views:
            samples.clear()
            self._release()
        for i, (span, error) in enumerate(zip(self._spans, failed, strict=True)):
            if error is not None:
                found[span.at] = _again(self._store, span, error)
            elif self._filled:
                found[span.at] = self._filled[i].getvalue()  # no copy
            else:
                found[span.at] = samples[i].bytes()
                samples[i] = None  # its memory is free again

    def _release(self) -> None:
        # Both hold the views, and a BytesIO gives its bytes away only if nobody has a view of them.
        self._batch = None
        for view in self._views:
            view.release()

    def cancel(self) -> None:
        """End it early."""
        if self._batch is not None:
            self._batch.cancel()
            self._batch.drain()


class _Copied(NamedTuple):
    """What a copy has copied: from where to where."""

    objects: list[tuple[str, str, str]]
    """And the generation that was copied."""
    folders: list[tuple[str, str]]


def _twin(name: str, *, changes: bool = False) -> Callable[..., Any]:
    """Return the coroutine function that runs the method `name` in a thread."""
    runs = change_in_thread if changes else in_thread

    async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await runs(getattr(self, name), *args, **kwargs)

    run.__name__ = run.__qualname__ = f"_{name}"
    return run


class StoreFileSystem(AsyncFileSystem, metaclass=_OneForEachSetOfOptions):  # type: ignore[misc]
    """What the file systems of all schemes have in common; open one by `fsspec.filesystem`.

    Paths are ``bucket/name``, with or without the scheme. Folders are what names have in common:
    they need not be made, and an empty one does not exist. Nothing that was listed is remembered:
    each call asks the service.

    Sequences of paths and ranges are read by one batch of requests. Methods of the same names with
    an underscore are coroutines, which wait in threads; one that is cancelled, and writes or
    removes something, ends when that has ended. Instances pickle as their options, and may be used
    after a fork.

    Args:
        asynchronous: it is used by its coroutines, in the loop of whoever made it.
        loop: not used; fsspec gives it.
        batch_size: how many files `get`, `put`, `copy` and `rm` treat at a time.
        prefetch_bytes: what is fetched ahead of a file that is read sequentially, at most.
        options: of `headrace.Store`. What fsspec's convention passes to every file system does
            nothing: options of the cache of listings, ``block_size``, ``cache_type``, ``encoding``,
            and ``client_kwargs`` unless they name an endpoint, a region or keys.

    Raises:
        InvalidArgumentError: an option cannot work.
        TypeError: there is no such option; the message names the right one.

    Examples:
        >>> import fsspec
        >>> _ = headrace.fsspec.register()
        >>> fs = fsspec.filesystem("headrace+gs")
        >>> fs.cat_ranges(["bucket/notes.txt"] * 2, [0, 2], [2, 5])
        [b'no', b'tes']
        >>> with fsspec.open("headrace+gs://bucket/a.txt", "w") as file:
        ...     size = file.write("text")
    """

    protocol: str | tuple[str, ...] = ()
    transaction_type = StoreTransaction
    mirror_sync_methods = False  # ours wait for the engine, not for a loop
    scheme: ClassVar[str] = ""
    """Of the store's URLs."""
    _extra_tokenize_attributes = ("_options_digest",)
    _stripped: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._stripped = cls._stripped | {cls.scheme, *cls._protocols()}

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
        batch_size = _count(batch_size)
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
            _number(name, options.get(name))
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

    # ---- paths

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

    # ---- what there is

    def _entry(self, path: str, info: ObjectInfo) -> Entry:
        entry: Entry = {"name": path, "size": info.size_bytes, "type": "file"}
        if info.generation:
            entry["generation"] = info.generation
        if info.updated is not None:
            entry["mtime"] = info.updated.timestamp()
            entry["updated"] = info.updated
        return entry

    @staticmethod
    def _folder(path: str) -> Entry:
        return {"name": path, "size": 0, "type": "directory"}

    def _is_folder(self, path: str) -> bool:
        """Return whether something lies below `path`, or a placeholder for a folder is there."""
        store, name = self._at(path)
        # Of a bucket, the question is whether it exists: the page raises if it does not.
        found = store.list_page(f"{name}/" if name else "", max_results=1)
        return not name or bool(found.objects)

    def info(self, path: str, **_: Any) -> Entry:
        """Return ``name``, ``size`` in bytes, ``type``, and of objects more.

        That is ``generation``, and where the store tells it ``mtime`` (seconds since 1970) and
        ``updated`` (the same as a ``datetime``). ``type`` is ``"file"`` or ``"directory"``.

        Raises:
            FileNotFoundError: there is neither such an object nor anything below it.
            PermissionError: the credentials may not ask.
        """
        path = self._strip_protocol(path)
        if not path:
            return self._folder(path)
        store, name = self._at(path)
        found = store.stat(name, missing_ok=True) if name else None
        if found is not None:
            return self._entry(path, found)
        if self._is_folder(path):
            return self._folder(path)
        raise FileNotFoundError(errno.ENOENT, "no such object or folder", store.url_of(name))

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether there is an object, or something below `path`.

        Raises:
            PermissionError: the credentials may not ask.
        """
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path: str) -> bool:
        """Return whether there is such an object, by one request.

        Raises:
            PermissionError: the credentials may not ask.
        """
        if not self._strip_protocol(path):
            return False
        store, name = self._at(path)
        return bool(name) and store.exists(name)

    def isdir(self, path: str) -> bool:
        """Return whether something lies below `path`, and there is no object of this name.

        Raises:
            PermissionError: the credentials may not ask.
        """
        try:
            return bool(self.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def size(self, path: str) -> int | None:
        """Return the size of an object in bytes.

        Raises:
            FileNotFoundError: there is no such object or folder.
        """
        size_bytes: int | None = self.info(path)["size"]
        return size_bytes

    def sizes(self, paths: Sequence[str]) -> list[int]:
        """Return the sizes of many objects, asked for at a time.

        Raises:
            FileNotFoundError: an object is missing.
        """
        sizes = [0] * len(paths)
        for store, places in self._by_store(paths).items():
            names = [name for _, name in places]
            for (at, _), info in zip(places, store.stat_many(names), strict=True):
                sizes[at] = info.size_bytes
        return sizes

    def modified(self, path: str) -> Any:
        """Return when an object was written, as a ``datetime`` in UTC.

        Raises:
            FileNotFoundError: there is no such object.
            NotImplementedError: the store tells no times, as AIStore.
        """
        store, name = self._object_at(path)
        updated = store.stat(name).updated
        if updated is None:
            raise NotImplementedError(f"{store.url_of(name)}: this store tells no times")
        return updated

    def ukey(self, path: str) -> str:
        """Return a text that is another one when the object has changed.

        Raises:
            FileNotFoundError: there is no such object.
        """
        store, name = self._object_at(path)
        info = store.stat(name)
        facts = (store.url_of(name), info.generation, info.size_bytes)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return what lies directly below `path`, sorted by name; of an object, itself.

        Args:
            detail: as in `info`; otherwise the paths alone.

        Raises:
            FileNotFoundError: there is nothing.
        """
        path = self._strip_protocol(path)
        entries = self._listed(path)
        if entries is None:
            entries = [self.info(path)]
        return entries if detail else [each["name"] for each in entries]

    def _listed(self, path: str, prefix: str = "") -> list[Entry] | None:
        """Return what lies directly below `path`; None if there is no such folder."""
        store, name = self._at(path)
        below = f"{name}/" if name else ""
        entries, is_there = [], not name
        left = [(below, prefix)]
        for start, begin in left:
            for each in store.list(start + begin, delimiter="/"):
                is_there = True
                if each.name == f"{start}/":
                    # Paths do not end with a slash, so that what lies below two of them lies here.
                    left.append((each.name, ""))
                elif isinstance(each, Prefix):
                    entries.append(self._folder(self._path(store, each.name)))
                elif each.name != start:  # the placeholder of the folder itself
                    entries.append(self._entry(self._path(store, each.name), each))
        if len(left) > 1:
            entries.sort(key=lambda entry: str(entry["name"]))
        return entries if is_there else None

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **_: Any,
    ) -> Any:
        """Return everything below `path`, sorted; of an object, itself.

        Without `maxdepth` it is one listing, whose pages are fetched several at a time.

        Args:
            maxdepth: how deep; each level is listed by itself.
            withdirs: folders, too, `path` itself included.
            detail: a dict of what `info` says of each, instead of a list of paths.
            prefix: what names directly below `path` begin with.

        Raises:
            ValueError: `maxdepth` is below 1.
            PermissionError: the credentials may not list.
        """
        path, maxdepth = self._strip_protocol(path), _depth(maxdepth)
        if maxdepth is not None:
            entries = self._levels(path, maxdepth, withdirs, prefix)
        else:
            entries = self._all(path, withdirs, prefix)
        if not entries and not prefix and self.isfile(path):
            entries[path] = self.info(path)
        found = dict(sorted(entries.items()))
        return found if detail else list(found)

    def _levels(self, path: str, maxdepth: int, withdirs: bool, prefix: str) -> dict[str, Entry]:
        """Return what lies at most so deep below `path`, by a listing of each folder."""
        entries: dict[str, Entry] = {}
        level = [path]
        for depth in range(maxdepth):
            folders = []
            for folder in level:
                begin = "" if depth else prefix
                found: list[Entry] | None = None
                with contextlib.suppress(NotFoundError):  # no such bucket or directory
                    found = self._listed(folder, begin)
                if found is not None and withdirs and not begin:
                    entries.setdefault(folder, self._folder(folder))
                for entry in found or ():
                    is_folder = entry["type"] == "directory"
                    if withdirs or not is_folder:
                        entries.setdefault(entry["name"], entry)
                    if is_folder and entry["name"] != folder:
                        folders.append(entry["name"])
            level = folders
        return entries

    def _all(self, path: str, withdirs: bool, prefix: str) -> dict[str, Entry]:
        """Return everything that lies below `path`, by one listing."""
        store, name = self._at(path)
        below = f"{name}/" if name else ""
        entries: dict[str, Entry] = {}
        folders: set[str] = set()
        with contextlib.suppress(NotFoundError):  # no such bucket or directory
            for each in store.list(below + prefix):
                if each.name.endswith("/"):
                    folders.add(each.name)
                else:
                    full = self._path(store, each.name)
                    entries[full] = self._entry(full, each)
                if withdirs:
                    _add_folders(folders, each.name, below)
        if withdirs:
            folders |= self._empty_folders(store, below, prefix)
            if not prefix and (folders or entries or self.isdir(path)):
                entries.setdefault(path, self._folder(path))
            for folder in folders:
                full = self._path(store, folder)
                entries.setdefault(full, self._folder(full))
        return entries

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """Return what matches a pattern of fsspec, of which the service lists what may match.

        Args:
            maxdepth: how many levels ``**`` stands for, at most.
            kwargs: ``detail`` and ``withdirs``, as of `find`; folders are found by default.

        Raises:
            ValueError: `maxdepth` is below 1.
            PermissionError: the credentials may not list.
        """
        prefix = before_wildcards(self._strip_protocol(path)).rpartition("/")[2]
        return super().glob(path, maxdepth=_depth(maxdepth), **{"prefix": prefix, **kwargs})

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",
        **kwargs: Any,
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield each folder at and below `path` with the names of its folders and its files.

        A name is what stands behind the folder's path and a slash. The caller may remove folders
        from the list if it is ``topdown``: nothing below them is listed then.

        Args:
            maxdepth: so many levels, at most.
            topdown: a folder comes before those in it.
            on_error: of a folder that cannot be listed: ``"omit"``, ``"raise"``, or a function of
                the error.
            kwargs: ``detail``: dicts of what `info` says, instead of lists.

        Raises:
            ValueError: `maxdepth` is below 1.
            FileNotFoundError: with ``on_error="raise"``, there is no such folder.
        """
        maxdepth, detail = _depth(maxdepth), kwargs.get("detail", False)
        path = self._strip_protocol(path)
        try:
            listed = self.ls(path)
        except OSError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
            return
        begin = len(path) + 1 if path.rstrip("/") else len(path)
        folders: dict[str, Entry] = {}
        files: dict[str, Entry] = {}
        for entry in listed:
            kind = folders if entry["type"] == "directory" else files
            kind[entry["name"][begin:]] = entry
        given: tuple[str, Any, Any]
        given = path, folders if detail else list(folders), files if detail else list(files)
        if topdown:
            yield given
        if maxdepth is None or maxdepth > 1:
            below = None if maxdepth is None else maxdepth - 1
            for name in list(given[1]):
                full = folders[name]["name"]
                yield from self.walk(full, below, topdown, on_error, detail=detail)
        if not topdown:
            yield given

    def _empty_folders(self, store: Store, below: str, prefix: str) -> set[str]:  # noqa: ARG002
        """Return the folders that no listing tells."""
        return set()

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **_: Any,
    ) -> Any:
        """Return the bytes of all objects below `path`, or with ``total=False`` of each.

        Raises:
            PermissionError: the credentials may not list.
        """
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: entry["size"] for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    # ---- folders

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:  # noqa: ARG002
        """Do nothing: a folder exists as soon as something lies in it.

        Raises:
            InvalidArgumentError: no bucket is named.
        """
        self._at(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Do nothing: a folder exists as soon as something lies in it.

        Raises:
            InvalidArgumentError: no bucket is named.
        """
        self._at(path)

    def rmdir(self, path: str) -> None:
        """Do nothing, if nothing lies in the folder.

        Raises:
            OSError: something does.
        """
        store, name = self._at(path)
        if store.list_page(f"{name}/" if name else "", max_results=1).objects:
            raise OSError(errno.ENOTEMPTY, "the folder is not empty", store.url_of(name))

    # ---- reading

    def _missing(self, path: str, error: NotFoundError) -> OSError:
        """Return what is to be raised where no object is."""
        store, name = self._at(path)
        try:
            is_folder = self._is_folder(path)
        except HeadraceError:  # whoever may not list is told what the read told
            is_folder = False
        if is_folder:
            return IsADirectoryError(errno.EISDIR, "it is a folder", store.url_of(name))
        return error

    def _reader(
        self, path: str, *, if_generation: str | None = None, prefetch_bytes: int | None = None
    ) -> ReadFile:
        store, name = self._object_at(path)
        ahead = self._prefetch_bytes if prefetch_bytes is None else prefetch_bytes
        try:
            return ReadFile(
                self, path, store, name, if_generation=if_generation, prefetch_bytes=ahead
            )
        except NotFoundError as error:
            raise self._missing(path, error) from None

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        cache_type: str | None = None,
        **kwargs: Any,
    ) -> Any:
        block_bytes = _block_bytes(block_size)
        if mode == "rb":
            if cache_type is None:
                return self._reader(path, prefetch_bytes=kwargs.get("prefetch_bytes"))
            options = _cache_options(cache_type, cache_options)
            with self._reader(path, prefetch_bytes=0) as reader:
                store, info = self._object_at(path)[0], reader.info
            return CachedFile(self, path, store, info, block_size=block_bytes, **options)
        if mode not in ("wb", "xb", "ab"):
            raise InvalidArgumentError(
                f"{path}: mode is {mode!r}; it must be 'rb', 'wb', 'xb' or 'ab', or the same "
                "without b for text"
            )
        own_compressions()  # whoever has called us looks one up next
        store, name = self._object_at(path)
        if self._refuses_folders(path):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", store.url_of(name))
        if mode == "xb" and store.exists(name):
            raise FileExistsError(errno.EEXIST, "exists already", store.url_of(name))
        before = store.stat(name, missing_ok=True) if mode == "ab" else None
        conditions = {"wb": None, "xb": "absent"}
        condition = conditions.get(mode, "absent" if before is None else before.generation or None)
        file = WriteFile(
            self,
            path,
            store,
            name,
            autocommit=autocommit,
            exclusive=mode == "xb",
            if_generation=condition,
            part_bytes=block_bytes,
            **{key: each for key, each in kwargs.items() if key in _WRITER_OPTIONS},
        )
        if before is not None:
            try:
                self._append(store, before, file)
            except BaseException:
                file.abort()
                raise
        return file

    def _refuses_folders(self, path: str) -> bool:  # noqa: ARG002 - of directories it does
        return False

    @staticmethod
    def _append(store: Store, before: ObjectInfo, file: WriteFile) -> None:
        """Begin a file with what the object has until now."""
        with ObjectReaderIO(store, before) as reader:
            for piece in _pieces(reader, before.size_bytes):
                file.write(piece)

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        cache_options: Mapping[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open an object as a file.

        A file that is written becomes visible by ``close``, whole and verified, or not at all: if
        an exception is on its way, nothing does, also if ``fsspec.open`` or another library closes
        the file then; `headrace.ObjectWriterIO` has all cases. With mode ``"a"`` the object is
        written anew, with what it has in front; if somebody changes it meanwhile, ``close`` raises
        an error.

        Args:
            mode: ``"r"``, ``"w"``, ``"x"`` or ``"a"``, for bytes with ``"b"`` behind it.
            block_size: when writing, the bytes of a part, which is ``part_bytes`` of
                `headrace.open`, with its default; None, 0 and ``"default"`` are the default, and a
                float is rounded down. When reading, of a block of the cache, if there is a
                `cache_type`.
            cache_options: of the cache, if there is a `cache_type`.
            compression: as fsspec has it: ``"gzip"``, ``"infer"``.
            kwargs: ``prefetch_bytes`` of the file system, for this file; ``cache_type``, to read
                through a cache of fsspec's instead of headrace's own read-ahead; ``content_type``,
                ``expected_size_bytes``, ``max_parts_in_flight`` and ``upload`` of `headrace.open`;
                ``encoding``, ``errors`` and ``newline`` of text.

        Raises:
            FileNotFoundError: there is no such object to read.
            FileExistsError: mode ``"x"``, and there is one. ``close`` raises it, too.
            IsADirectoryError: it is a folder or a bucket.
            InvalidArgumentError: the mode, `block_size` or the cache cannot work.
        """
        common: dict[str, Any] = {"block_size": block_size, "cache_options": cache_options}
        if "r" in mode:
            return super().open(path, mode, compression=compression, **common, **kwargs)
        if "b" not in mode:
            text = {k: kwargs.pop(k) for k in ("encoding", "errors", "newline") if k in kwargs}
            binary = f"{mode.replace('t', '')}b"
            file = self.open(path, binary, compression=compression, **common, **kwargs)
            return TextFile(file, **text)
        name = get_compression(self._strip_protocol(path), compression)
        return super().open(path, mode, compression=name, **common, **kwargs)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Return the bytes ``[start, end)`` of an object, by default all; as in slices of Python.

        Raises:
            FileNotFoundError: there is no such object.
            CorruptDataError: all was read, and does not match the object's checksum.
        """
        found: list[Any] = self._read([(path, start, end)])
        _raise_first(found)
        data: bytes = found[0]
        return data

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any
    ) -> Any:
        """Return the bytes of an object, or a dict of those of several, which one batch reads.

        Args:
            path: an object; or a pattern, a list of names, or with `recursive` a folder.
            on_error: ``"raise"`` the first error, ``"omit"`` what fails, or ``"return"`` errors as
                values.
            kwargs: ``start`` and ``end``, for all of them.

        Raises:
            FileNotFoundError: there is no such object.
        """
        start, end = kwargs.get("start"), kwargs.get("end")
        paths = self.expand_path(path)
        if recursive:
            paths = sorted({found for each in paths for found in self.find(each)})
        is_one = isinstance(path, str) and paths == [self._strip_protocol(path)]
        found = self._read([(each, start, end) for each in paths])
        if on_error == "raise" or is_one:
            _raise_first(found)
        if is_one:
            return found[0]
        pairs = zip(paths, found, strict=True)
        return {p: f for p, f in pairs if on_error != "omit" or not isinstance(f, Exception)}

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Return the bytes of ranges of objects, in their order, read by one batch.

        Args:
            paths: one for each range.
            starts: the first byte of each, or of all; None and negative numbers as in slices.
            ends: one past the last byte of each, or of all.
            max_gap: read ranges of one object by one request if so few bytes lie between them;
                default: `ParallelOptions.max_gap_bytes`.
            on_error: ``"return"`` errors in their places, or ``"raise"`` the first one.

        Raises:
            TypeError: `paths` is not a list.
            ValueError: there are not as many starts and ends as paths.
        """
        if not isinstance(paths, list):
            raise TypeError(f"paths is a {type(paths).__name__}; it must be a list")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(starts) == len(ends) == len(paths):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends")
        gap = _number("max_gap", max_gap)
        found = self._read(list(zip(paths, starts, ends, strict=True)), gap)
        if on_error != "return":
            _raise_first(found)
        return found

    def _read(
        self, wanted: Sequence[tuple[str, int | None, int | None]], max_gap: int | None = None
    ) -> list[Any]:
        """Return bytes, or an error, for each path with a start and an end."""
        found: list[Any] = [None] * len(wanted)
        batches: list[_Reads] = []
        try:
            for store, spans in self._spans(wanted, found).items():
                reader = store if max_gap is None else _with_gap(store, max_gap)
                # Whole objects apart: they have checksums. And what may be how long is not known.
                whole = [span for span in spans if span.range is None]
                rest = [span for span in spans if span.range is not None and span.size is None]
                parts = [span for span in spans if span.size is not None]
                batches += [_Reads(store, reader, some) for some in (whole, rest, parts) if some]
            while batches:
                batches[0].take(found)
                batches.pop(0)
        finally:
            for reads in batches:
                reads.cancel()
        return found

    def _spans(
        self, wanted: Sequence[tuple[str, int | None, int | None]], found: list[Any]
    ) -> dict[Store, list[_Span]]:
        """Return what is to be read of each store.

        What cannot be, and what is empty, is put into `found` at once.
        """
        spans: dict[Store, list[_Span]] = {}
        last: tuple[str, Store, str] | None = None
        for at, (path, start, end) in enumerate(wanted):
            try:
                if last is None or path != last[0]:
                    last = (path, *self._object_at(path))
                _, store, name = last
                if min(start or 0, end or 0) < 0 or (end or 0) - (start or 0) > _LONG_BYTES:
                    start, end, _ = slice(start, end).indices(store.stat(name).size_bytes)
                begin = start or 0
                if end is not None and end <= begin:
                    store.stat(name)  # a missing object has no empty range either
                    found[at] = b""
                    continue
            except Exception as error:
                found[at] = error
                continue
            wants_all = begin == 0 and end is None
            spans.setdefault(store, []).append(_Span(at, name, None if wants_all else (begin, end)))
        return spans

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **_: Any,
    ) -> None:
        """Copy an object into a local file, which appears whole and verified, or not at all.

        Args:
            rpath: the object; a folder is made as a directory.
            lpath: the path of the file, or an open file.
            callback: is told of the bytes.
            outfile: an open file.

        Raises:
            FileNotFoundError: there is no such object.
            CorruptDataError: the bytes do not match the object's checksum.
            InvalidArgumentError: `lpath` has a ``..`` from the object's name, which would lead out
                of the folder that objects are copied into.
        """
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        if outfile is None and ".." in rpath.split("/") and ".." in os.fspath(lpath).split("/"):
            raise InvalidArgumentError(
                f"{rpath}: its name has a '..', which would lead out of the folder; copy it by "
                "itself, to a path without '..'"
            )
        try:
            reader = self._reader(rpath)
        except IsADirectoryError:
            if outfile is not None:
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        with reader, contextlib.ExitStack() as stack:
            callback.set_size(reader.size)
            if outfile is None:
                outfile = stack.enter_context(_local_file(os.path.abspath(lpath)))
            for piece in _pieces(reader, reader.size):
                outfile.write(piece)
                callback.relative_update(len(piece))

    # ---- writing

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write bytes as an object, which appears whole.

        Args:
            mode: ``"overwrite"``, or ``"create"``: nothing may be there.
            kwargs: ``content_type``.

        Raises:
            FileExistsError: mode ``"create"``, and there is an object.
            IsADirectoryError: `path` is a bucket.
        """
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        store, name = self._object_at(path)
        try:
            store.write(
                name,
                value,
                if_generation="absent" if mode == "create" else None,
                content_type=kwargs.get("content_type"),
            )
        except PreconditionFailedError as error:
            if mode != "create":
                raise
            raise FileExistsError(f"{store.url_of(name)}: exists already") from error

    def put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Copy a local file to an object, which appears whole and verified, or not at all.

        Args:
            lpath: the file; a directory is made as a folder.
            callback: is told of the bytes.
            mode: ``"overwrite"``, or ``"create"``: nothing may be there.
            kwargs: as of `open`.

        Raises:
            FileNotFoundError: there is no such file.
            FileExistsError: mode ``"create"``, and there is an object.
        """
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb", buffering=0) as source:
            found = os.fstat(source.fileno())
            if found.st_size > 0:  # a pipe has none
                kwargs.setdefault("expected_size_bytes", found.st_size)
            with self.open(rpath, "xb" if mode == "create" else "wb", **kwargs) as file:
                callback.set_size(found.st_size)
                # What is compressed on its way passes through here.
                steps: Iterator[int]
                if takes_files(file) and stat.S_ISREG(found.st_mode):
                    steps = write_file(file, source)
                else:
                    steps = (file.write(piece) for piece in _pieces(source, found.st_size))
                for size_bytes in steps:
                    raise_if_over()
                    callback.relative_update(size_bytes)

    def cp_file(self, path1: str, path2: str, *, done: _Copied | None = None, **_: Any) -> None:
        """Copy an object; the service does it, unless the two are in different buckets.

        Of a folder nothing is copied; it is made at `path2`, where folders are made at all.

        Args:
            done: is told what was copied, by `mv`.

        Raises:
            FileNotFoundError: there is no such object or folder, or no such bucket to copy to.
        """
        if not self._at(path2)[1] or not self._at(path1)[1]:  # a bucket is there, or is not
            if not self.isdir(path1) or self.isfile(path1):
                self._object_at(path2)  # raises
            if done is not None:
                done.folders.append((path1, path2))
            return
        (source, name), (target, to) = self._object_at(path1), self._object_at(path2)
        generation = ""
        try:
            if source is target:
                info = source.stat(name) if done is not None else None
                source.copy(name if info is None else info, to)
                generation = info.generation if info is not None else ""
            else:
                with (
                    self._reader(path1) as reader,
                    self.open(path2, "wb", expected_size_bytes=reader.size) as file,
                ):
                    for piece in _pieces(reader, reader.size):
                        file.write(piece)
                    generation = reader.info.generation
            if done is not None:
                done.objects.append((path1, path2, generation))
        except (NotFoundError, IsADirectoryError):
            if source.exists(name) or not self._is_folder(path1):  # then `path2` is what is missing
                raise
            self.makedirs(path2, exist_ok=True)
            if done is not None:
                done.folders.append((path1, path2))

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Move objects; a single one is renamed, so that it is never missing.

        Others are copied, and when that was done without an error, what was copied is deleted, and
        nothing else: of files not what lies behind a symbolic link to a folder.

        Raises:
            InvalidArgumentError: two sources have one target, or a target is another's source.
            PreconditionFailedError: a source was written anew meanwhile, and stays.
            FileNotFoundError: there is nothing, or no such bucket to move to.
            IsADirectoryError: it is a folder, and not `recursive`.
        """
        if isinstance(path1, str) and isinstance(path2, str):
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if source == target:
                return
            is_name = not recursive and not path2.endswith("/")
            if is_name and self.isfile(source) and not self.isdir(target):
                (store, name), (other, to) = self._object_at(source), self._object_at(target)
                if store is other and not self._is_link(source):
                    store.rename(name, to)
                    return
        done = _Copied([], [])
        kwargs |= {"on_error": "raise", "done": done}
        self.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
        if not done.objects and not (done.folders and recursive):
            raise IsADirectoryError(
                errno.EISDIR, "it is a folder, which takes recursive=True", str(path1)
            )
        tops = self._tops(path1)
        copied: dict[Any, list[tuple[str, str]]] = {}
        for source, target, at in done.objects:
            if source == target:
                continue
            if self._is_behind_link(tops, source):
                _logger.warning("%s lies behind a symbolic link: it was copied, and stays", source)
                continue
            # The names of one file go one by one.
            key = at if self.scheme == "file" else source
            copied.setdefault(key, []).append((source, at))
        wait_for(self._each, self._delete_moved, list(copied.values()), None)
        for source, target in sorted(done.folders, reverse=True):
            if source != target and not self._is_behind_link(tops, source):
                self._remove_folder(source)

    def _delete_moved(self, names: list[tuple[str, str]]) -> None:
        if len(names) == 1:
            [(path, generation)] = names
            remove_moved(*self._object_at(path), generation)
            return
        found = []
        for path, generation in names:
            store, name = self._object_at(path)
            found.append((store, name, generation, store.stat(name, missing_ok=True)))
        for store, name, generation, info in found:
            if info is not None and info.generation == generation:
                generation = as_it_is(store, info).generation
            remove_moved(store, name, generation)

    def _tops(self, path: Any) -> list[str]:
        """Return the folders in which all lies that is meant by `path`, or the names themselves."""
        if isinstance(path, list | tuple | set):
            return [self._strip_protocol(each) for each in path]
        text = self._strip_protocol(path)
        return [before_wildcards(text).rpartition("/")[0] + "/" if self._is_pattern(path) else text]

    def _is_link(self, path: str) -> bool:  # noqa: ARG002 - of files
        return False

    def _is_behind_link(self, tops: list[str], path: str) -> bool:  # noqa: ARG002 - of files
        """Return whether a link at or below all of `tops` is on the way to an object."""
        return False

    def _remove_folder(self, path: str) -> None:
        """Remove what says that there is an empty folder."""
        store, name = self._at(path)
        if name:
            store.delete(f"{name}/", missing_ok=True)

    def rm_file(self, path: str) -> None:
        """Delete an object.

        Raises:
            FileNotFoundError: there is none.
            IsADirectoryError: it is a folder, which takes ``rm(recursive=True)``.
        """
        store, name = self._object_at(path)
        try:
            store.delete(name)
        except NotFoundError as error:
            raise self._missing(path, error) from None

    def sign(self, path: str, expiration: int = 100, **_: Any) -> str:
        """Return a URL by which anybody can read an object of ``s3://`` for `expiration` seconds.

        Raises:
            InvalidArgumentError: the store has no such URLs.
        """
        store, name = self._object_at(path)
        return store.presigned_url(name, expires_s=expiration)

    # ---- many at a time: coroutines of fsspec and ours, which others wait for

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy objects into local files, several at a time, as fsspec's ``get`` does.

        Raises:
            FileNotFoundError: there is no such object.
        """
        kwargs |= {"recursive": recursive, "maxdepth": maxdepth}
        kwargs["callback"] = LoopCallback(callback)
        return wait_for(self._get, rpath, lpath, **kwargs)

    def put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy local files to objects, several at a time, as fsspec's ``put`` does.

        Raises:
            FileNotFoundError: there is no such file.
        """
        kwargs |= {"recursive": recursive, "maxdepth": maxdepth}
        kwargs["callback"] = LoopCallback(callback)
        return wait_for(self._put, lpath, rpath, **kwargs)

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Copy objects to objects, several at a time, as fsspec's ``copy`` does.

        Args:
            on_error: ``"raise"``, or ``"ignore"``: objects that are missing are passed over, and
                nobody is told.

        Raises:
            FileNotFoundError: there is no such object, or no such bucket to copy to.
        """
        # Not fsspec's "ignore", of a recursive copy: it would pass over a bucket that is missing.
        kwargs |= {"recursive": recursive, "maxdepth": maxdepth, "on_error": on_error or "raise"}
        return wait_for(self._copy, path1, path2, **kwargs)

    def pipe(self, path: Any, value: Any = None, **kwargs: Any) -> Any:
        """Write bytes as an object, or each value of a dict as the object of its key.

        Raises:
            PermissionError: the credentials may not write.
        """
        return wait_for(self._pipe, path, value, **kwargs)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete objects, several at a time, and with `recursive` all that lies below.

        Args:
            path: a name; a pattern, if nothing has it for a name; or a list of names.
            recursive: and all that lies below.
            maxdepth: so deep, at most.

        Raises:
            FileNotFoundError: there is nothing.
            IsADirectoryError: it is a folder, and not `recursive`.
            OSError: it is a symbolic link to a folder: what that has in it is not deleted.
        """
        wait_for(self._rm, path, recursive=recursive, maxdepth=maxdepth)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        maxdepth = _depth(maxdepth)
        is_pattern = await in_thread(self._is_pattern, path)
        paths = await self._expand_path(path)
        if not recursive:
            left = await self._rm_files(paths, batch_size, takes_folders=is_pattern)
            for each in left:
                if await self._exists(each):
                    raise IsADirectoryError(
                        errno.EISDIR, "it is a folder, which takes recursive=True", each
                    )
            return
        if maxdepth is not None:
            for each in paths:
                if not await self._exists(each):
                    raise FileNotFoundError(errno.ENOENT, "no such object or folder", each)
                if self._is_link(each) and not is_pattern and await self._isdir(each):
                    raise OSError(errno.ELOOP, "what a symbolic link leads to is not deleted", each)
            tops = await in_thread(self._tops, path)
            below = await self._expand_path(path, recursive=True, maxdepth=maxdepth)
            own = [each for each in below if not self._is_behind_link(tops, each)]
            await self._rm_files(own, batch_size, takes_folders=True)
            return
        # What lies below another one of them goes with that one.
        done = await asyncio.gather(
            *[self._rm_below(each, batch_size) for each in _outermost(paths)],
            return_exceptions=True,
        )
        _raise_first(done)

    async def _rm_files(
        self, paths: list[str], batch_size: int | None, *, takes_folders: bool
    ) -> list[str]:
        """Delete objects; return what was none, if `takes_folders`."""
        left: list[str] = []

        def delete(path: str) -> None:
            try:
                self.rm_file(path)
            except (IsADirectoryError, FileNotFoundError):
                if not takes_folders:
                    raise
                left.append(path)

        await self._each(delete, paths, batch_size)
        return left

    async def _rm_below(self, path: str, batch_size: int | None) -> None:
        store, name = self._at(path)
        names = await in_thread(_names_below, store, name)
        if not names:
            raise FileNotFoundError(errno.ENOENT, "no such object or folder", store.url_of(name))

        def delete(each: str) -> None:
            store.delete(each, missing_ok=True)

        await self._each(delete, names, batch_size)

    async def _each(
        self, function: Callable[[Any], None], items: Sequence[Any], batch_size: int | None
    ) -> None:
        """Call a function for each item, so many at a time; raise the first error after all."""
        at_a_time = asyncio.Semaphore(_count(batch_size) or self.batch_size or 64)

        async def call(item: Any) -> None:
            async with at_a_time:
                await change_in_thread(function, item)

        async with Changes():
            done = await asyncio.gather(*map(call, items), return_exceptions=True)
        _raise_first(done)

    def expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """Return the paths that are meant: what has the name, or else what matches the pattern.

        Args:
            path: a name or a pattern; or a list, of which each is a name.
            recursive: and all that lies below them.
            maxdepth: so deep, at most.
            assume_literal: it is no pattern.

        Raises:
            FileNotFoundError: there is nothing.
            ValueError: `maxdepth` is below 1.
        """
        is_name = assume_literal or not self._is_pattern(path)
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        how = {"recursive": recursive, "maxdepth": _depth(maxdepth), "assume_literal": is_name}
        kwargs |= how
        expanded: list[str] = super().expand_path(paths, **kwargs)
        return expanded

    def _is_pattern(self, path: Any) -> bool:
        """Return whether `path` is to be matched; see `named`."""
        if not isinstance(path, str | os.PathLike):
            return False
        text = self._strip_protocol(path)
        return has_magic(text) and not named(*self._at(text))

    def _pairs(
        self, source: Any, target: Any, recursive: bool, maxdepth: int | None, from_: Any, to: Any
    ) -> tuple[list[str], list[str]]:
        """Return what is to be copied, and to where, by the rules of fsspec.

        Args:
            from_: the file system of `source`.
            to: that of `target`.

        Raises:
            InvalidArgumentError: two sources have one target, or a target is another's source.
        """
        sources, targets = self._pairs_of(source, target, recursive, maxdepth, from_, to)
        _require_no_loss(sources, targets, from_, to)
        return sources, targets

    def _pairs_of(
        self, source: Any, target: Any, recursive: bool, maxdepth: int | None, from_: Any, to: Any
    ) -> tuple[list[str], list[str]]:
        if isinstance(source, list) and isinstance(target, list):
            return source, target
        source, target = stringify_path(source), stringify_path(target)
        is_one = isinstance(source, str)
        is_pattern = is_one and _is_pattern(from_, source)
        maxdepth = _depth(maxdepth)
        how = {"recursive": recursive, "maxdepth": maxdepth}
        # Of a list, and of a name, nothing is a pattern.
        names = source if is_pattern else [source] if is_one else source
        sources = from_.expand_path(names, **how, assume_literal=not is_pattern)
        if is_one and (not recursive or maxdepth is not None):
            sources = [each for each in sources if not from_.isdir(each)]
        into = isinstance(target, str) and (target.endswith("/") or to.isdir(target))
        keeps_name = is_pattern and len(sources) == 1
        if is_one and not is_pattern:
            keeps_name = into and not source.endswith("/")
        target = to._strip_protocol(target)
        if not sources:
            return [], []
        return sources, other_paths(sources, target, exists=keeps_name, flatten=not is_one)

    async def _get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        pairs = await in_thread(
            self._pairs, rpath, lpath, recursive, maxdepth, self, LocalFileSystem()
        )
        _make_count(kwargs)
        async with Changes():
            return await super()._get(*pairs, callback=callback, **kwargs)

    async def _put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        pairs = await in_thread(
            self._pairs, lpath, rpath, recursive, maxdepth, LocalFileSystem(), self
        )
        _make_count(kwargs)
        async with Changes():
            return await super()._put(*pairs, callback=callback, **kwargs)

    async def _copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        on_error: str | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        pairs = await in_thread(self._pairs, path1, path2, recursive, maxdepth, self, self)
        _make_count(kwargs)
        async with Changes():
            return await super()._copy(*pairs, recursive=recursive, on_error=on_error, **kwargs)

    async def _pipe(self, path: Any, value: Any = None, **kwargs: Any) -> Any:
        _make_count(kwargs)
        async with Changes():
            return await super()._pipe(path, value, **kwargs)

    _cat = _twin("cat")
    _cat_file = _twin("cat_file")
    _cat_ranges = _twin("cat_ranges")
    _cp_file = _twin("cp_file", changes=True)
    _du = _twin("du")
    _exists = _twin("exists")
    _expand_path = _twin("expand_path")
    _find = _twin("find")
    _get_file = _twin("get_file", changes=True)
    _info = _twin("info")
    _isdir = _twin("isdir")
    _isfile = _twin("isfile")
    _ls = _twin("ls")
    _makedirs = _twin("makedirs", changes=True)
    _mkdir = _twin("mkdir", changes=True)
    _pipe_file = _twin("pipe_file", changes=True)
    _put_file = _twin("put_file", changes=True)
    _rm_file = _twin("rm_file", changes=True)
    _size = _twin("size")
    _sizes = _twin("sizes")

    @property
    def transaction(self) -> StoreTransaction:
        """A new transaction, for a ``with``: what is written in it appears at its end."""
        return StoreTransaction(self)

    def start_transaction(self) -> StoreTransaction:
        """Begin a transaction without a ``with``, and return it; `end_transaction` is its end."""
        transaction = self.transaction
        transaction.start()
        return transaction

    def end_transaction(self) -> None:
        """Make all files visible that were written since `start_transaction`, in their order.

        Raises:
            HeadraceError: one could not become visible; nor did those behind it.
        """
        transaction = self.transaction
        transaction.complete()
        while transaction.is_begun_here:
            transaction.complete()

    # ---- inside

    def _by_store(self, paths: Iterable[str]) -> dict[Store, list[tuple[int, str]]]:
        """Return the names in each store, with their places."""
        found: dict[Store, list[tuple[int, str]]] = {}
        for at, path in enumerate(paths):
            store, name = self._object_at(path)
            found.setdefault(store, []).append((at, name))
        return found


def _cache_options(cache_type: Any, cache_options: Any) -> dict[str, Any]:
    """Return what makes one of fsspec's caches.

    Raises:
        InvalidArgumentError: there is no such cache, or the options are no dict.
    """
    known = sorted(filter(None, caches))
    require(
        isinstance(cache_type, str) and cache_type in known,
        f"cache_type is {cache_type!r}; it must be one of {', '.join(known)}",
    )
    require(
        cache_options is None or isinstance(cache_options, Mapping),
        f"cache_options is {cache_options!r}; it must be a dict",
    )
    return {"cache_type": cache_type, "cache_options": dict(cache_options or {})}


def _is_pattern(fs: Any, path: str) -> bool:
    if isinstance(fs, StoreFileSystem):
        return fs._is_pattern(path)
    return has_magic(path) and not os.path.lexists(fs._strip_protocol(path))


def _require_no_loss(sources: list[str], targets: list[str], from_: Any, to: Any) -> None:
    """Raise if a copy of files would replace what was copied, or what is still to be copied."""

    def is_folder(path: str) -> bool:
        return bool(from_.isdir(path)) and not from_.isfile(path)

    here = [from_._strip_protocol(each) for each in sources]
    there = [to._strip_protocol(each) for each in targets]
    are_one = from_ is to or (_is_local(from_) and _is_local(to))
    all_sources = set(here) if are_one else set()
    source_of: dict[str, str] = {}
    for source, target in zip(here, there, strict=False):
        other = source_of.setdefault(target, source)
        if source == target:
            continue
        if target not in all_sources and other == source:
            continue
        # Folders are made, or there; they replace nothing.
        if is_folder(source) or (other != source and is_folder(other)):
            continue
        if other != source:
            raise InvalidArgumentError(
                f"{target}: both {other} and {source} would be copied there: nothing was copied"
            )
        if not is_folder(target):
            raise InvalidArgumentError(
                f"{target}: would be replaced by {source}, and is to be copied itself: nothing was "
                "copied"
            )


def _is_local(fs: Any) -> bool:
    return isinstance(fs, LocalFileSystem) or getattr(fs, "scheme", "") == "file"


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that lie below no other one of them."""
    found: list[str] = []
    # In this order, what lies below a path comes right behind it.
    for path in sorted(set(paths), key=lambda each: f"{each.rstrip('/')}/"):
        if not found or not f"{path}/".startswith(f"{found[-1].rstrip('/')}/"):
            found.append(path)
    return found


def _add_folders(folders: set[str], name: str, below: str) -> None:
    """Add the folders that `name` lies in, as far as they lie below `below`."""
    end = name.rfind("/", len(below), len(name) - 1)
    while end > 0 and name[: end + 1] not in folders:
        folders.add(name[: end + 1])
        end = name.rfind("/", len(below), end)


def _names_below(store: Store, name: str) -> list[str]:
    """Return the object `name`, if there is one, and all that lies below, with placeholders."""
    names = [info.name for info in store.list(f"{name}/" if name else "")]
    if name and store.exists(name):
        names.append(name)
    return names


def _raise_first(found: Iterable[Any]) -> None:
    for each in found:
        if isinstance(each, BaseException):
            raise each


def _with_gap(store: Store, max_gap: int) -> Store:
    parallel = dataclasses.replace(store._settings.parallel, max_gap_bytes=max_gap)
    return store._derived(parallel=parallel)


def _space(size_bytes: int) -> io.BytesIO:
    """Return memory for so many bytes, which it gives away as ``bytes`` without a copy."""
    # It takes over bytes that nobody else refers to. The system gives large ones pages when they
    # are written to, which is when they arrive.
    return io.BytesIO(bytes(size_bytes))


def _read_into_bytes(store: Store, span: _Span) -> bytes:
    """Read what the memory budget has no room for into memory that is the caller's."""
    info = store.stat(span.name)
    begin, end = span.range or (0, None)
    end = info.size_bytes if end is None else min(end, info.size_bytes)
    filled = _space(end - begin)
    with filled.getbuffer() as into:
        if span.range is None:
            store.read(info, into=into)
        else:
            store.read(info, begin=begin, end=end, into=into)
    return filled.getvalue()


def _pieces(source: Any, size_bytes: int) -> Iterator[memoryview]:
    """Yield the bytes of a file, of about this size, by pieces, in memory that is used again."""
    buffer = bytearray(min(_COPIED_BYTES, size_bytes + 1))
    with memoryview(buffer) as view:
        while count := source.readinto(view):
            raise_if_over()
            with view[:count] as piece:
                yield piece


def _again(store: Store, span: _Span, error: Exception) -> Any:
    """Return what a read that has failed should have given, if there is another way to it."""
    try:
        if isinstance(error, InvalidArgumentError) and span.range is not None:
            # The range ends behind the object, or begins there: no error in Python.
            begin, end = span.range
            if begin >= store.stat(span.name).size_bytes:
                return b""
            return store.read(span.name, begin=begin, end=end).bytes()
        if isinstance(error, ResourceError):  # larger than the memory budget
            return _read_into_bytes(store, span)
    except Exception as another:
        return another
    return error


@context
def _local_file(path: str) -> Iterator[Any]:
    """Give a local file to write, which appears when all was written."""
    if os.path.exists(path) and not os.path.isfile(path):  # a device, a pipe; or an error
        with open(path, "wb") as file:
            yield file
        return
    folder, _, name = path.rpartition("/")
    with ObjectWriterIO(Store(folder or "/").open_writer(name)) as writer:
        yield writer
