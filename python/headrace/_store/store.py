"""What lies below one root, in a bucket or a directory: list, read, write."""

from __future__ import annotations

import builtins
import logging
import operator
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Never, overload

from headrace import _engine
from headrace._base.errors import HeadraceError, InvalidArgumentError, NotFoundError
from headrace._base.imported import imported
from headrace._base.options import (
    PARTS_IN_FLIGHT,
    ContentEncoding,
    OnChange,
    ParallelOptions,
    ProviderOptions,
    RetryOptions,
    TimeoutOptions,
    VerifyOption,
    require,
    require_bytes,
    require_count,
    require_provider,
)
from headrace._base.progress import CountOption, count_names
from headrace._credentials.aws_configuration import AwsConfiguration
from headrace._credentials.credentials import (
    CredentialsOption,
    arrived,
    require_credentials_for,
    travelling,
)
from headrace._engine import ObjectIndex, ObjectInfo, ObjectWriter, Sample
from headrace._process import process
from headrace._store.keywords import refuse_keywords
from headrace._store.listing import OrderOfPages, index_objects, list_objects
from headrace._store.members import read_members
from headrace._store.read_ahead import as_batch, read_ahead, start_batch
from headrace._store.settings import StoreSettings

if TYPE_CHECKING:
    import torch
    from typing_extensions import Buffer

    BytesLike = Buffer | torch.Tensor


__all__ = ["ListPage", "Prefix", "Store"]

NameOrInfo = str | ObjectInfo
UploadWay = Literal["parts", "multipart", "resumable"]

# More requests than a host ever gets at once.
_MOST_EXPECTED = 1 << 16

# Of gs://: 64 bits with a sign.
_GENERATION = re.compile("[0-9]{1,19}")

_logger = logging.getLogger("headrace")


class ListPage(NamedTuple):
    """One answer of a listing."""

    objects: list[ObjectInfo]
    prefixes: list[str]
    """The common prefixes, when a delimiter was given."""
    next_page_token: str
    """Where the next page starts; ``""`` on the last one."""
    placeholders: int = 0
    """Objects with the name of the store's root itself, which were left out: 0 or 1."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the names of several objects begin with, up to a delimiter: one of `Store.list`."""

    name: str
    """Relative to the store, with the delimiter at its end: ``train/``."""


class Store:
    """The objects below one root: ``gs://bucket``, ``s3://bucket/run``, ``ais://b``, ``/path``.

    Names are relative to the root, in every call and on every store: with
    ``Store("gs://bucket/run")`` the name ``a/b`` is the object ``gs://bucket/run/a/b``, and with
    ``Store("/data/run")`` the file ``/data/run/a/b``. ``gs://bucket/run`` and ``gs://bucket/run/``
    are the same root; ``gs://bucket/run2`` lies outside of it.

    A store is cheap: connections and threads belong to the process and start when first needed. It
    may be used from all threads, after a fork, and it pickles as its configuration. What the
    environment and AWS's files say is read when a store is first used; from then on it stays. Every
    call raises a `HeadraceError` with ``url``, ``http_status`` and ``attempts`` when it fails.

    Args:
        url: the root: a bucket, a folder in a bucket, or a directory. Nothing is asked of the
            service, so a root need not exist. For a part of a name there is ``list(prefix=)``.
        endpoint: ``http://host:port`` of another service that speaks the same protocol. Default:
            the service's own, or what STORAGE_EMULATOR_HOST (``gs://``) or AWS's variables and
            files (``s3://``, as for boto3) say. ``ais://`` needs one, here or in AIS_ENDPOINT: that
            of a proxy of the cluster, or of a gateway before the proxies. A directory has no
            service: `endpoint`, `credentials` and `provider` do nothing there, so that a program
            can be given one set of options for all its URLs.
        credentials: for ``gs://`` ``"google"`` (Application Default Credentials, the default), a
            `BearerToken`, or an object of google-auth; for ``s3://`` ``"aws"`` (the environment's
            keys, or else botocore's chain, in the profile that AWS_PROFILE names; the default),
            `AwsKeys`, or credentials or a session of botocore or boto3; for ``ais://`` a
            `BearerToken` (default: what AIS_AUTHN_TOKEN or AIS_AUTHN_TOKEN_FILE has, or none);
            ``"anonymous"`` for all. An emulator, and an endpoint outside googleapis.com, gets no
            token of Google's by default: it is not meant for it.
        user_agent_suffix: appended to ``headrace/<version>`` in requests.
        retry: how often failed requests are sent again.
        timeout: how long to wait for what.
        parallel: how many requests run at a time, how large objects are split, and which ranges are
            read together.
        on_change: what to do when an object is no longer the generation of the `ObjectInfo`:
            ``"error"`` raises `PreconditionFailedError`, ``"reread"`` reads what is there now.
        content_encoding: ``"stored"`` gives the stored bytes of objects with
            ``Content-Encoding: gzip``, ``"decompress"`` what they contain.
        verify: compare the bytes of whole objects with the checksum that the store keeps: True
            those that cost next to nothing (CRC-32C, CRC-32, CRC-64/NVME); ``"all"`` also SHA-1,
            SHA-256 and MD5, which take longer than reading; False none. The first object that has
            no checksum to compare is logged as a warning.
        provider: what one provider alone has: `GcsOptions` for ``gs://``, `S3Options` for
            ``s3://``, `AisOptions` for ``ais://``.

    Raises:
        InvalidArgumentError: the URL or an option cannot work, or `credentials` or `provider` are
            those of another provider.
        TypeError: there is no such option; the message names the right one.

    Examples:
        >>> store = headrace.Store("gs://bucket/run", timeout=headrace.TimeoutOptions(total_s=60))
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        endpoint: str | None = None,
        credentials: CredentialsOption = None,
        user_agent_suffix: str = "",
        retry: RetryOptions = RetryOptions(),  # noqa: B008 - frozen
        timeout: TimeoutOptions = TimeoutOptions(),  # noqa: B008
        parallel: ParallelOptions = ParallelOptions(),  # noqa: B008
        on_change: OnChange = "error",
        content_encoding: ContentEncoding = "stored",
        verify: VerifyOption = True,
        provider: ProviderOptions | None = None,
        **unknown: Never,
    ) -> None:
        refuse_keywords("headrace.Store", unknown, of=Store)
        self._settings = StoreSettings(
            endpoint=endpoint,
            credentials=credentials,
            user_agent_suffix=user_agent_suffix,
            retry=retry,
            timeout=timeout,
            parallel=parallel,
            on_change=on_change,
            content_encoding=content_encoding,
            verify=verify,
            provider=provider,
        )
        self._scheme, self._bucket, self._path, self._url = _engine.split_root(os.fspath(url))
        require_provider(self._scheme, provider)
        require_credentials_for(self._scheme, credentials)
        self._opened: tuple[_engine.Engine, _engine.StoreHandle] | None = None
        # Found out at the first opening, and kept, whatever becomes of the environment.
        self._aws: AwsConfiguration | None = None

    # ---- what it is

    @property
    def url(self) -> str:
        """The root's URL, without a slash at its end; of a directory, absolute.

        Only the root directory of the machine has one: ``file:///``.
        """
        return self._url

    def url_of(self, name: str) -> str:
        """Return the URL of the object `name`: the root's, a slash, and the name.

        Examples:
            >>> headrace.Store("gs://bucket/run").url_of("a/b")
            'gs://bucket/run/a/b'
        """
        return self._handle().url_of(name)

    def __repr__(self) -> str:
        return f"headrace.Store({self._url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._url, travelling(self._url, vars(self._settings)), self._aws)

    # ---- listing

    @overload
    def list(
        self,
        prefix: str = "",
        *,
        delimiter: None = None,
        start_offset: str | None = None,
        end_offset: str | None = None,
        max_results: int | None = None,
        max_pages_in_flight: int | None = None,
    ) -> Iterator[ObjectInfo]: ...
    @overload
    def list(
        self,
        prefix: str = "",
        *,
        delimiter: str,
        start_offset: str | None = None,
        end_offset: str | None = None,
        max_results: int | None = None,
        max_pages_in_flight: int | None = None,
    ) -> Iterator[ObjectInfo | Prefix]: ...
    def list(
        self,
        prefix: str = "",
        *,
        delimiter: str | None = None,
        start_offset: str | None = None,
        end_offset: str | None = None,
        max_results: int | None = None,
        max_pages_in_flight: int | None = None,
    ) -> Iterator[Any]:
        """Yield the objects whose names begin with `prefix`, in UTF-8 byte order of the names.

        On object stores, what lies below ``dataflux-composed-objects/`` and ``headrace-uploads/``
        in the bucket is temporary and no data: it is left out unless it is asked for. So is the
        placeholder that browsers of buckets write for a folder, an object whose name is that of the
        root and a slash; it is noted in the log. The same holds for `list_page` and `index`.

        Each object that exists throughout comes exactly once; one that is added or deleted
        meanwhile may come. Without `delimiter` and `max_results`, from the second page on, several
        pages are fetched at a time, ahead of the caller.

        Args:
            prefix: any text that names begin with: ``train/``, ``train/img-0``.
            delimiter: names with it after the prefix are not listed one by one: what they have in
                common up to it comes once, as a `Prefix` (``"/"``: one level, as of a folder).
            start_offset: names from this one on.
            end_offset: names before this one.
            max_results: stop after so many. Default: list all.
            max_pages_in_flight: pages that are fetched at a time, at most; 1: page after page.
                Default: what the engine finds useful, which is as good as any number.

        Raises:
            NotFoundError: there is no such bucket or directory; or nothing is below the root, and
                names beside it begin with its text: `prefix` is for that.

        Examples:
            >>> [info.name for info in store.list("train/")]
            ['train/a.txt', 'train/b.txt']
            >>> [entry.name for entry in store.list(delimiter="/")]
            ['notes.txt', 'train/']
        """
        pages = _pages(max_pages_in_flight)
        _require_text("prefix", prefix)
        if max_results is not None:
            max_results = require_count("max_results", max_results, minimum=0)
        whole_root = not (prefix or start_offset or end_offset)
        found = placeholders = 0
        if not delimiter and max_results is None:
            listing = self._handle().start_listing(
                prefix=prefix,
                start_offset=start_offset or "",
                end_offset=end_offset or "",
                only_for_reading=False,
                eager=False,
                max_pages_in_flight=pages,
            )
            yield from list_objects(listing)
            found, _, _, placeholders = listing.progress()
        else:
            left = sys.maxsize if max_results is None else max_results
            token = ""
            order = OrderOfPages(self.url_of(prefix))
            while left > 0:
                page = self.list_page(
                    prefix,
                    delimiter=delimiter,
                    page_token=token,
                    start_offset=start_offset,
                    end_offset=end_offset,
                    max_results=None if max_results is None else min(left, 1000),
                )
                order.check(page.objects, page.prefixes)
                entries: builtins.list[ObjectInfo | Prefix] = [*page.objects]
                if page.prefixes:
                    entries += map(Prefix, page.prefixes)
                    entries.sort(key=lambda entry: entry.name.encode())
                placeholders += page.placeholders
                found += len(entries)
                yield from entries[:left]
                left -= len(entries)
                token = page.next_page_token
                if not token:
                    break
        self._note_end(found, placeholders, whole_root=whole_root)

    def list_page(
        self,
        prefix: str = "",
        *,
        delimiter: str | None = None,
        page_token: str = "",
        start_offset: str | None = None,
        end_offset: str | None = None,
        max_results: int | None = None,
    ) -> ListPage:
        """Return one page of a listing, with the common prefixes if there is a delimiter.

        Args:
            prefix: any text that names begin with.
            delimiter: as for `list`.
            page_token: ``next_page_token`` of the page before.
            start_offset: names from this one on.
            end_offset: names before this one.
            max_results: objects and prefixes on the page, at most; default: what the store gives.

        Raises:
            NotFoundError: there is no such bucket or directory.

        Examples:
            >>> page = store.list_page(delimiter="/")
            >>> [info.name for info in page.objects], page.prefixes, page.next_page_token
            (['notes.txt'], ['train/'], '')
        """
        _require_text("prefix", prefix)
        if max_results is not None:
            max_results = require_count("max_results", max_results, minimum=1)
        return ListPage(
            *self._handle().list_page(
                prefix=prefix,
                delimiter=delimiter or "",
                page_token=page_token,
                start_offset=start_offset or "",
                end_offset=end_offset or "",
                max_results=max_results or 0,
            )
        )

    def index(
        self,
        prefix: str = "",
        *,
        progress: CountOption = False,
        max_pages_in_flight: int | None = None,
        **unknown: Never,
    ) -> ObjectIndex:
        """List the objects whose names begin with `prefix` into an index, in the order of `list`.

        Pages are fetched several at a time, and ask only for what reading needs: name, size,
        generation and CRC-32C. The other fields of the index' `ObjectInfo` are empty.

        Args:
            prefix: any text that names begin with.
            progress: show a bar (needs tqdm), or call this some twenty times a second with
                ``(names, None)``, how many names have arrived; what it raises ends the listing.
            max_pages_in_flight: as for `list`.

        Raises:
            NotFoundError: as `list`.

        Examples:
            >>> index = store.index("train/")
            >>> len(index), index.name(0)
            (2, 'train/a.txt')
        """
        refuse_keywords("Store.index", unknown, of=Store.index)
        _require_text("prefix", prefix)
        listing = self._handle().start_listing(
            prefix=prefix,
            start_offset="",
            end_offset="",
            only_for_reading=True,
            eager=True,
            max_pages_in_flight=_pages(max_pages_in_flight),
        )
        with count_names(progress, self._url) as on_progress:
            index = index_objects(listing, self._url, on_progress)
        self._note_end(len(index), listing.progress()[3], whole_root=not prefix)
        return index

    def expect_reads(self, count: int) -> None:
        """Say that so many objects will be read soon, so that their connections are opened now.

        Returns at once. A new process that lists and then reads has to wait for its connections
        twice, once for the listing and once for the reads: TCP and TLS take two round trips each
        time. After this call they are opened at the same time. No more are opened than requests
        may run at a time (`ParallelOptions`), than the memory budget has room for objects, or than
        are missing. Those that nothing uses are closed after 20 seconds. If a connection cannot be
        opened, that is no error here: the read that needs it opens another one, or raises.

        In directories it does nothing, nor where reads go to hosts that are yet to be found out (an
        AIStore cluster's targets) or many objects come by one request (`ComposeOptions`).

        Args:
            count: how many, such as the size of a batch.

        Raises:
            InvalidArgumentError: `count` is less than 1.

        Examples:
            >>> store.expect_reads(64)
            >>> index = store.index("train/")
        """
        count = require_count("count", count, minimum=1)
        self._handle().expect_reads(min(count, _MOST_EXPECTED))

    def _note_end(self, found: int, placeholders: int, *, whole_root: bool) -> None:
        """Tell what a listing left out, and what its root may have been meant to be."""
        if placeholders:
            _logger.info(
                "%s: the object %s, which only marks the folder, was left out",
                self._url,
                self.url_of(""),
            )
        elif not found and whole_root and self._scheme != "file" and self._path:
            self._require_no_neighbours()

    def _require_no_neighbours(self) -> None:
        """Raise if names begin with the text of this root, which has nothing below it."""
        bucket = f"{self._scheme}://{self._bucket}"
        try:
            beside = self._derived(bucket).list_page(self._path, max_results=1).objects
        except HeadraceError:  # who may list this root only is not told
            return
        if not beside:
            return
        folder, _, last = self._path.rpartition("/")
        parent = f"{bucket}/{folder}" if folder else bucket
        name = beside[0].name
        if name == self._path:
            told = f"it is an object, not a folder: open the store at {parent} and name it {last!r}"
        else:
            told = (
                f"nothing is below this folder, but names begin so, such as {bucket}/{name}: for a "
                f"part of a name use headrace.Store({parent!r}) and prefix={last!r}"
            )
        error = NotFoundError(f"{self._url}: {told}")
        error.url = self._url
        raise error

    # ---- asking

    @overload
    def stat(self, name: str) -> ObjectInfo: ...
    @overload
    def stat(self, name: str, *, missing_ok: Literal[False]) -> ObjectInfo: ...
    @overload
    def stat(self, name: str, *, missing_ok: bool) -> ObjectInfo | None: ...
    def stat(self, name: str, *, missing_ok: bool = False) -> ObjectInfo | None:
        """Return what the store knows of an object; None if it is missing and `missing_ok`.

        Raises:
            NotFoundError: there is no such object, and not `missing_ok`.

        Examples:
            >>> store.stat("notes.txt").size_bytes
            5
            >>> store.stat("missing.txt", missing_ok=True) is None
            True
        """
        try:
            return self._handle().stat(name)
        except NotFoundError:
            if missing_ok:
                return None
            raise

    @overload
    def stat_many(self, names: Iterable[str]) -> builtins.list[ObjectInfo]: ...
    @overload
    def stat_many(
        self, names: Iterable[str], *, missing_ok: Literal[False]
    ) -> builtins.list[ObjectInfo]: ...
    @overload
    def stat_many(
        self, names: Iterable[str], *, missing_ok: bool
    ) -> builtins.list[ObjectInfo | None]: ...
    def stat_many(self, names: Iterable[str], *, missing_ok: bool = False) -> Any:
        """Return what the store knows of many objects, in the order of `names`.

        As many are asked for at a time as the store bears.

        Args:
            missing_ok: None stands in the place of an object that is missing.

        Raises:
            NotFoundError: an object is missing, and not `missing_ok`. The error names it.

        Examples:
            >>> [info.size_bytes for info in store.stat_many(["train/a.txt", "train/b.txt"])]
            [1, 1]
        """
        if isinstance(names, str):
            raise TypeError("several names are needed, not one str")
        return self._handle().stat_many(builtins.list(names), missing_ok)

    def exists(self, name: str) -> bool:
        """Return whether there is such an object.

        Raises:
            PermissionDeniedError: the credentials may not ask.

        Examples:
            >>> store.exists("notes.txt")
            True
        """
        return self.stat(name, missing_ok=True) is not None

    # ---- reading

    def read(
        self,
        name: NameOrInfo,
        *,
        begin: int | None = None,
        end: int | None = None,
        into: BytesLike | None = None,
    ) -> Sample:
        """Read one object, or the bytes ``[begin, end)`` of it.

        Args:
            name: a name, or an `ObjectInfo`, to which the read is pinned.
            begin: the first byte; default 0.
            end: one past the last; may lie beyond the object's end, which is the default.
            into: where the bytes go: a writable buffer or a CPU tensor, exactly as long as what is
                read. Whatever happens, when this returns nothing will be written there any more;
                after an error the contents are undefined.

        Raises:
            NotFoundError: there is no such object.
            PreconditionFailedError: it is no longer the generation of the `ObjectInfo`.
            CorruptDataError: the bytes do not match the object's checksum.

        Examples:
            >>> store.read("notes.txt").bytes()
            b'notes'
            >>> store.read("notes.txt", begin=1, end=3).bytes()
            b'ot'
        """
        ranges = None
        if begin is not None or end is not None:
            ranges = [_range_of(0 if begin is None else begin, end)]
        buffers = None if into is None else (_writable(into),)
        return self._handle().start((name,), buffers, ranges).take(return_errors=False)[0]

    def read_ranges(
        self,
        ranges: Iterable[tuple[NameOrInfo, int, int]],
        *,
        into: Sequence[BytesLike] | None = None,
    ) -> builtins.list[Sample]:
        """Read parts of objects, all at once, and return them in the order of `ranges`.

        Ranges of one object that lie close together are read by one request
        (`ParallelOptions.max_gap_bytes`), and each still has memory of its own. A range that is
        larger than ``range_threshold_bytes`` is read by several. There is no checksum for a part of
        an object: with an `ObjectInfo` its generation is sure, the bytes are as good as the
        transport.

        Args:
            ranges: objects, each with the first byte and one past the last.
            into: one writable buffer for each range, exactly as long.

        Raises:
            NotFoundError: an object is missing.
            PreconditionFailedError: an object is no longer the generation of its `ObjectInfo`.

        Examples:
            >>> parts = store.read_ranges([("notes.txt", 0, 2), ("notes.txt", 3, 5)])
            >>> [part.bytes() for part in parts]
            [b'no', b'es']
        """
        items, spans = [], []
        for name, begin, end in ranges:
            items.append(name)
            spans.append(_range_of(begin, end))
        buffers = None if into is None else [_writable(each) for each in into]
        return self._handle().start(items, buffers, spans).take(return_errors=False)

    @overload
    def read_many(
        self,
        names: Iterable[NameOrInfo],
        *,
        into: Sequence[BytesLike] | None = None,
        on_error: Literal["raise"] = "raise",
    ) -> builtins.list[Sample]: ...
    @overload
    def read_many(
        self,
        names: Iterable[NameOrInfo],
        *,
        into: Sequence[BytesLike] | None = None,
        on_error: Literal["return"],
    ) -> builtins.list[Sample | HeadraceError]: ...
    def read_many(
        self,
        names: Iterable[NameOrInfo],
        *,
        into: Sequence[BytesLike] | None = None,
        on_error: Literal["raise", "return"] = "raise",
    ) -> Any:
        """Read many objects at once, and return them in the order of `names`.

        Args:
            names: names and `ObjectInfo`, mixed as you like. With an `ObjectInfo` the size is known
                before the first byte arrives, and the checksum is the listed one. Of an
                `ObjectIndex`, each entry is read: the object, or the range of it.
            into: one writable buffer for each object, exactly as long as the object.
            on_error: ``"raise"`` raises the first error in order, with a note on how many objects
                failed besides; ``"return"`` puts the exception in the object's place.

        Raises:
            HeadraceError: an object could not be read, as for `read`; not with ``"return"``.

        Examples:
            >>> samples = store.read_many(store.list("train/"))
            >>> [sample.bytes() for sample in samples]
            [b'a', b'b']
        """
        return_errors = _return_errors(on_error)
        items = as_batch(names)
        if into is None:
            return start_batch(self._handle(), items).take(return_errors=return_errors)
        buffers = [_writable(each) for each in into]
        if isinstance(items, ObjectIndex):
            require(
                all(items.range(i) is None for i in range(len(items))),
                "entries of the index are ranges, and into= takes whole objects: use read_ranges()",
            )
            items = builtins.list(items)
        return self._handle().start(items, buffers).take(return_errors=return_errors)

    @overload
    def read_members(
        self, members: Iterable[tuple[str, str]], *, on_error: Literal["raise"] = "raise"
    ) -> builtins.list[Sample]: ...
    @overload
    def read_members(
        self, members: Iterable[tuple[str, str]], *, on_error: Literal["return"]
    ) -> builtins.list[Sample | HeadraceError]: ...
    def read_members(
        self, members: Iterable[tuple[str, str]], *, on_error: Literal["raise", "return"] = "raise"
    ) -> Any:
        """Read members of shards, which AIStore takes out on the server, in the given order.

        Only the members come over the network. Each is a request of its own, for which the server
        goes through the shard from its beginning. The server tells no size, no checksum and no
        generation of a member, so a sample is as good as the transport and the shard: one that was
        cut off may give a member that is cut off. A sample's ``url`` has the member's name behind
        the shard's: ``ais://bucket/a.tar/member``.

        Args:
            members: pairs of a shard's name and a member's, as the shard has it (``./a`` is not
                ``a``). Shards are tar, tar.gz, tgz, tar.lz4 and zip files, by their names.
            on_error: as for `read_many`.

        Raises:
            InvalidArgumentError: the store is not on ``ais://``, or the object is no shard.
            NotFoundError: a shard is missing, or has no such member; the message says which.

        Examples:
            >>> ais = headrace.Store("ais://bucket")  # doctest: +SKIP
            >>> pairs = [("a.tar", "cat.jpg"), ("a.tar", "dog.jpg")]
            >>> cat, dog = ais.read_members(pairs)  # doctest: +SKIP
            >>> cat.url  # doctest: +SKIP
            'ais://bucket/a.tar/cat.jpg'
        """
        return read_members(self, members, return_errors=_return_errors(on_error))

    @overload
    def read_batches(
        self,
        batches: Iterable[Iterable[NameOrInfo]],
        *,
        prefetch_bytes: int | None = None,
        on_error: Literal["raise"] = "raise",
    ) -> Iterator[builtins.list[Sample]]: ...
    @overload
    def read_batches(
        self,
        batches: Iterable[Iterable[NameOrInfo]],
        *,
        prefetch_bytes: int | None = None,
        on_error: Literal["return"],
    ) -> Iterator[builtins.list[Sample | HeadraceError]]: ...
    def read_batches(
        self,
        batches: Iterable[Iterable[NameOrInfo]],
        *,
        prefetch_bytes: int | None = None,
        on_error: Literal["raise", "return"] = "raise",
        **unknown: Never,
    ) -> Any:
        """Read batch after batch, several of them at a time, and yield them in order.

        While you work on one batch the next ones are read. `batches` is pulled from only when there
        is room for another one, on the thread that asks for the next batch; one batch is always
        under way. When the iterator is closed, dropped or ended by an exception, what was read
        ahead is cancelled. An exception of `batches` itself is raised after the batches that came
        before it.

        Args:
            batches: the batches, each with names and `ObjectInfo`, or an `ObjectIndex`.
            prefetch_bytes: how much may be in flight, or read and not yet yielded. Default: what
                keeps the connections busy, and at most half of the memory budget.
            on_error: as for `read_many`. After an error was raised, the iterator is at its end.

        Raises:
            HeadraceError: as for `read_many`, when the batch is asked for.

        Examples:
            >>> batches = [["train/a.txt"], ["train/b.txt", "notes.txt"]]
            >>> for samples in store.read_batches(batches):
            ...     print([sample.bytes() for sample in samples])
            [b'a']
            [b'b', b'notes']
        """
        refuse_keywords("Store.read_batches", unknown, of=Store.read_batches)
        return_errors = _return_errors(on_error)
        if prefetch_bytes is not None:
            prefetch_bytes = require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        return read_ahead(self._open(), iter(batches), prefetch_bytes, return_errors)

    # ---- writing

    def write(
        self,
        name: str,
        data: BytesLike,
        *,
        if_generation: str | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
    ) -> ObjectInfo:
        """Write one object, atomically: it is there whole, or not at all.

        Args:
            data: any contiguous buffer, or a CPU tensor.
            if_generation: replace exactly this generation; ``"absent"``: only if there is none. If
                the response is lost, an object that holds just these bytes counts as this write, so
                give a lock contents of its own, such as a random token.
            content_type: default ``application/octet-stream``.
            content_encoding: such as ``gzip``, if `data` is compressed already.

        Raises:
            PreconditionFailedError: something else is there than `if_generation` says.
            InvalidArgumentError: the store cannot hold an object of this name.

        Examples:
            >>> info = store.write("log/1.txt", b"began", if_generation="absent")
            >>> store.write("log/1.txt", b"ended", if_generation=info.generation).size_bytes
            5
        """
        return self._handle().write(
            name,
            _tensor_bytes(data),
            if_generation=self._precondition(if_generation),
            content_type=content_type or "",
            content_encoding=content_encoding or "",
        )

    def open_writer(
        self,
        name: str,
        *,
        if_generation: str | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        part_bytes: int | None = None,
        expected_size_bytes: int | None = None,
        max_parts_in_flight: int = PARTS_IN_FLIGHT,
        upload: UploadWay | None = None,
    ) -> ObjectWriter:
        """Return a writer for one object of any size: parts are under way while more come.

        The object becomes visible by the writer's ``close()``, whole and with its size and CRC-32C
        checked, or not at all. `headrace.open` gives the same as a file. In memory are at most
        ``max_parts_in_flight + 1`` parts of what was copied.

        Args:
            if_generation: of the object that is replaced, as for `write`.
            content_type: default ``application/octet-stream``.
            content_encoding: such as ``gzip``, if what is written is compressed already.
            part_bytes: bytes of every part; an object that is no larger is written by one request.
                Default: 16 MiB, or less under a small memory budget, where the service takes any
                number of parts. S3 takes 10,000: there, parts are large enough for
                `expected_size_bytes`, or, if that is not given, grow while the object does, until
                `max_parts_in_flight` of them fill the memory budget. ``docs/guide/s3.md`` lists how
                large an object can become.
            expected_size_bytes: how large the object will be, if that is known. It need not be
                exact.
            max_parts_in_flight: parts that are under way at a time.
            upload: how they reach the service. ``"parts"`` (the default of ``gs://``): as temporary
                objects below ``headrace-uploads/``, which the service joins. ``"multipart"`` (the
                only way of ``s3://``): as one multipart upload; on ``gs://`` it makes a temporary
                object, which is then copied. ``"resumable"`` (``gs://``): one after the other,
                without temporary objects; for buckets with a retention policy, where those could
                not be deleted. Files are written in one way only.

        Raises:
            InvalidArgumentError: the store cannot hold an object of this name or size, or the
                numbers cannot work. All other errors come from the writer, when it sends something.

        Examples:
            >>> writer = store.open_writer("large.bin")
            >>> for _ in range(3):
            ...     _ = writer.write(bytes(1000))
            >>> writer.close().size_bytes
            3000
        """
        require(
            upload in (None, "parts", "multipart", "resumable"),
            f"upload is {upload!r}; it must be 'parts', 'multipart' or 'resumable'",
        )
        if part_bytes is not None:
            part_bytes = require_bytes("part_bytes", part_bytes, minimum=1)
        if expected_size_bytes is not None:
            expected_size_bytes = require_bytes(
                "expected_size_bytes", expected_size_bytes, minimum=0
            )
        max_parts_in_flight = require_count("max_parts_in_flight", max_parts_in_flight, minimum=1)
        return self._handle().open_writer(
            name,
            if_generation=self._precondition(if_generation),
            content_type=content_type or "",
            content_encoding=content_encoding or "",
            part_bytes=part_bytes,
            expected_size_bytes=expected_size_bytes,
            max_parts_in_flight=max_parts_in_flight,
            upload=upload or "",
        )

    def delete(
        self, name: str, *, if_generation: str | None = None, missing_ok: bool = False
    ) -> None:
        """Delete one object.

        Raises:
            NotFoundError: there is none, and not `missing_ok`.
            PreconditionFailedError: another generation is there than `if_generation` says.

        Examples:
            >>> store.delete("missing.txt", missing_ok=True)
        """
        try:
            self._handle().remove(name, if_generation=self._precondition(if_generation))
        except NotFoundError:
            if not missing_ok:
                raise

    def copy(
        self, source: NameOrInfo, name: str, *, if_generation: str | None = None
    ) -> ObjectInfo:
        """Copy an object to `name` within the store, without reading it here.

        S3 copies objects above 5 GiB only in parts: such a copy is a multipart upload, all of whose
        parts are of one generation of the source, and which is aborted unless it is completed. It
        has the source's metadata, but not its tags.

        Args:
            source: a name, or an `ObjectInfo` for exactly that generation.
            if_generation: of the object that is replaced, as for `write`.

        Raises:
            NotFoundError: there is no such source.
            PreconditionFailedError: the source has changed, or something else is at `name`.

        Examples:
            >>> store.copy("notes.txt", "old/notes.txt").name
            'old/notes.txt'
        """
        return self._handle().copy(
            *_name_and_generation(source), name, if_generation=self._precondition(if_generation)
        )

    def rename(
        self, source: NameOrInfo, name: str, *, if_generation: str | None = None
    ) -> ObjectInfo:
        """Give an object another name within the store, and return what is there now.

        The object appears under the new name whole, replacing what was there, and is then gone from
        the old one. If the call fails or the process is killed, it has at least one of the names.

        - In a directory the rename is atomic: no reader sees both names, or none. (Across file
          systems, the file is copied and then deleted.)
        - On ``gs://`` and ``s3://`` the service copies the object, whatever its size, and deletes
          the source if it still is the generation that was copied. For a moment both are there.
        - On ``ais://`` one request does it, which the server carries out as a copy and a deletion,
          too. AIStore has no conditions: headrace looks at the source and at the target before,
          and another writer can come between. The bytes pass through the client where AIStore does
          not rename well: in buckets of other providers, for new names with ``%``, ``#`` or ``?``,
          and if the object has both a content type and a content encoding.

        Args:
            source: a name, or an `ObjectInfo` for exactly that generation.
            if_generation: of the object that is replaced, as for `write`.

        Raises:
            NotFoundError: there is no such source.
            PreconditionFailedError: the source has changed, or something else is at `name`.
            InvalidArgumentError: the source has this name already, or the store cannot hold an
                object of this name.
            HeadraceError: if the source was copied and could not be deleted, the message says that
                both are there.

        Examples:
            >>> _ = store.write("draft.txt", b"text")
            >>> store.rename("draft.txt", "final.txt", if_generation="absent").name
            'final.txt'
            >>> store.exists("draft.txt")
            False
        """
        return self._handle().rename(
            *_name_and_generation(source), name, if_generation=self._precondition(if_generation)
        )

    def presigned_url(
        self,
        name: str,
        *,
        method: Literal["GET", "HEAD", "PUT", "DELETE"] = "GET",
        expires_s: int = 3600,
    ) -> str:
        """Return a URL with which whoever has it may send one kind of request for an object.

        For ``s3://``: the URL carries a signature by the store's credentials, and allows what they
        allow, until it expires or they do, whichever comes first. The object need not exist. No
        request is sent, unless nobody said in which region the bucket is and no answer has told it
        yet: then one finds out.

        Args:
            method: ``"GET"`` to read, ``"PUT"`` to write by one request, ``"HEAD"``, ``"DELETE"``.
            expires_s: for how many seconds, at most seven days.

        Raises:
            InvalidArgumentError: the store is not on ``s3://``; it has no credentials; or its
                options need headers, which no URL has: a ``customer_key``, and for ``"PUT"``
                ``encryption``.

        Examples:
            >>> keys = headrace.AwsKeys("AKID", "secret")
            >>> there = headrace.S3Options(region="eu-west-1")
            >>> s3 = headrace.Store("s3://my-bucket", credentials=keys, provider=there)
            >>> s3.presigned_url("a b.txt", expires_s=60).partition("?")[0]
            'https://my-bucket.s3.eu-west-1.amazonaws.com/a%20b.txt'
        """
        require(
            method in ("GET", "HEAD", "PUT", "DELETE"),
            f"method is {method!r}; it must be 'GET', 'HEAD', 'PUT' or 'DELETE'",
        )
        expires_s = require_count("expires_s", expires_s, minimum=1)
        require(expires_s <= 604800, f"expires_s is {expires_s}; it must be at most seven days")
        require(
            self._scheme != "gs",
            f"{self._url}: presigned URLs are for s3:// only; for gs:// use generate_signed_url "
            "of google-cloud-storage, which signs with the key of a service account",
        )
        require(
            self._scheme != "file",
            f"{self._url}: files have no presigned URLs; share the path, or serve the folder",
        )
        return self._handle().presigned_url(name, method=method, expires_s=expires_s)

    def compose(
        self,
        sources: Iterable[ObjectInfo],
        name: str,
        *,
        if_generation: str | None = None,
        content_type: str | None = None,
    ) -> ObjectInfo:
        """Compose objects of this store into one, on the server, without reading them here.

        The size and the CRC-32C of the result are checked against those of the sources. Google
        Cloud Storage can do it; other stores raise `InvalidArgumentError`.

        Args:
            sources: 1 to 32 objects, in order; each must still be in its generation.
            name: of the object that they become.
            if_generation: of the object that is replaced, as for `write`.
            content_type: default ``application/octet-stream``.

        Raises:
            PreconditionFailedError: a source has changed, or something else is at `name`.
            InvalidArgumentError: the store cannot compose, or not so many.

        Examples:
            >>> bucket = headrace.Store("gs://bucket")
            >>> parts = [bucket.write(f"part-{i}", b"...") for i in range(3)]
            >>> bucket.compose(parts, "whole").size_bytes
            9
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of the new object must be a str, not {name!r}")
        given: Any = sources
        infos = [] if isinstance(given, str) else builtins.list(given)
        if isinstance(given, str) or not all(isinstance(each, ObjectInfo) for each in infos):
            raise TypeError(f"the sources must be ObjectInfo, not {sources!r}: stat tells them")
        return self._handle().compose(
            infos,
            name,
            content_type=content_type or "",
            if_generation=self._precondition(if_generation),
        )

    # ---- inside

    def _precondition(self, if_generation: str | None) -> str | None:
        """Return what the engine takes: "" for no object."""
        if if_generation in (None, "absent"):
            return "" if if_generation else None
        require(
            isinstance(if_generation, str) and if_generation != "",
            f"if_generation is {if_generation!r}; it must be the generation of an object as a str, "
            "or 'absent'",
        )
        # Services differ in what they make of another one: some write without the condition.
        require(
            self._scheme != "gs" or _GENERATION.fullmatch(if_generation) is not None,
            f"if_generation is {if_generation!r}, and the generations of gs:// are numbers",
        )
        return if_generation

    # ---- for the other modules of the package, which use of a store only what is public, and this,
    # and `_settings`, the `StoreSettings` that it was made with

    def _derived(self, url: str | None = None, **changes: Any) -> Store:
        """Return a store with the same settings, but for those in `changes`, and maybe at `url`."""
        store = Store(self._url if url is None else url, **{**vars(self._settings), **changes})
        if not changes.keys() & {"endpoint", "credentials", "provider"}:
            store._aws = self._aws
        return store

    def _open(self) -> tuple[_engine.Engine, _engine.StoreHandle]:
        """Return the engine of this process, and this store in it; both start with first use."""
        engine = process.current_engine()
        opened = self._opened
        if opened is not None and opened[0] is engine:
            return opened
        aws = self._found_aws()
        with process.lock():
            if self._opened is None or self._opened[0] is not engine:
                options = self._settings.engine_options(self._scheme, aws)
                handle = _engine.StoreHandle(engine, self._url, options)
                if self._settings.gcs.compose_small_objects is not None:
                    process.stop_with_process()
                self._opened = (engine, handle)
            return self._opened

    def _found_aws(self) -> AwsConfiguration | None:
        """Return where requests go, and as whom, if that is for AWS's variables and files to say.

        Raises:
            InvalidArgumentError: they say what cannot work.
        """
        if self._aws is None and self._scheme == "s3":
            self._aws = self._settings.aws_configuration()
        return self._aws

    def _handle(self) -> _engine.StoreHandle:
        """Return this store in the engine of this process."""
        return self._open()[1]


def _rebuild(url: str, settings: dict[str, Any], aws: AwsConfiguration | None) -> Store:
    store = Store(url, **arrived(settings))
    store._aws = aws
    return store


def _name_and_generation(source: NameOrInfo) -> tuple[str, str]:
    return (source, "") if isinstance(source, str) else (source.name, source.generation)


def _range_of(begin: Any, end: Any) -> tuple[int, int | None]:
    try:
        first = operator.index(begin)
        last = None if end is None else operator.index(end)
    except TypeError:
        raise InvalidArgumentError(
            f"begin={begin!r}, end={end!r}: a range begins and ends at integers"
        ) from None
    require(
        first >= 0 and (last is None or first <= last < 1 << 63),
        f"begin={begin}, end={end}: a range begins at 0 or later, does not end before it begins, "
        "and ends below 2**63",
    )
    return first, last


def _pages(max_pages_in_flight: int | None) -> int:
    """Return what the engine takes: 0 leaves it to it."""
    if max_pages_in_flight is None:
        return 0
    return require_count("max_pages_in_flight", max_pages_in_flight, minimum=1)


def _return_errors(on_error: str) -> bool:
    require(
        on_error in ("raise", "return"),
        f"on_error is {on_error!r}; it must be 'raise' or 'return'",
    )
    return on_error == "return"


def _require_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}; it must be a str")


def _tensor_bytes(data: Any) -> Any:
    """Return the bytes of a CPU tensor as a buffer, which torch itself does not offer."""
    tensor = imported("torch", "Tensor")
    if tensor is None or not isinstance(data, tensor):
        try:
            memoryview(data)
        except TypeError:
            raise TypeError(
                f"a {type(data).__name__} is no buffer of bytes: give bytes, a bytearray, a NumPy "
                "array or a CPU tensor; text is encoded first"
            ) from None
        return data
    if data.device.type != "cpu" or not data.is_contiguous():
        raise InvalidArgumentError("the tensor must be contiguous and on the CPU")
    return data.detach().reshape(-1).view(imported("torch", "uint8")).numpy()


def _writable(buffer: Any) -> Any:
    return _tensor_bytes(buffer)
