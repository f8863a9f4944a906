"""The engine, as headrace's Python modules see it. Not for users."""

from builtins import bytes as Bytes
from collections.abc import Callable, Iterable, Iterator, Sequence
import datetime
import os
import types
from typing import Any, SupportsIndex, final, overload

from numpy import uint8
from numpy.typing import NDArray
import torch
from typing_extensions import Buffer

@final
class ObjectInfo(object):
    """
    What a store says about one object. Immutable, comparable, hashable; pickles.

    Reads take it in place of a name; then they need no question about the size, are pinned to its
    generation and are verified against its checksum.
    """

    def __init__(
        self,
        name: str,
        size_bytes: int,
        generation: str = "",
        crc32c: int | None = None,
        content_type: str = "",
        content_encoding: str = "",
        updated: datetime.datetime | None = None,
        storage_class: str = "",
        component_count: int = 0,
        metageneration: int = 0,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The full name inside the bucket."""

    @property
    def size_bytes(self) -> int:
        """The size of the stored object."""

    @property
    def generation(self) -> str:
        """The token for this very version."""

    @property
    def crc32c(self) -> int | None:
        """The CRC-32C of the stored bytes; ``None`` where the store keeps none."""

    @property
    def content_type(self) -> str:
        """The MIME type; ``''`` where the store keeps none."""

    @property
    def content_encoding(self) -> str:
        """
        How the stored bytes are compressed, such as ``gzip``; ``''`` if they are not.
        """

    @property
    def updated(self) -> datetime.datetime:
        """When it was written, in UTC."""

    @property
    def storage_class(self) -> str:
        """The store's word for it, such as ``STANDARD``; ``''`` if it says none."""

    @property
    def component_count(self) -> int:
        """Of how many parts it was composed; 0 if it was not."""

    @property
    def metageneration(self) -> int:
        """Counts changes of metadata within one generation; 0 if unknown."""

    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __repr__(self) -> str: ...

@final
class Sample(Buffer):
    """
    The bytes of one object, as a writable buffer that owns its memory.

    A sample stays valid after the store, the batch and the engine are gone, and pickles as a copy.
    Reads with ``into=`` give samples that refer to the caller's memory.

    Args:
        data: bytes that the sample gets a copy of.
        url: what ``url`` will say.
        generation: what ``generation`` will say.
    """

    def __init__(self, data: Buffer, url: str = "", generation: str = "") -> None: ...
    @property
    def url(self) -> str:
        """The URL of the object: ``gs://bucket/name``."""

    @property
    def generation(self) -> str:
        """
        The version of the object that was read; ``''`` where the store has none.
        """

    @property
    def size_bytes(self) -> int:
        """How many bytes there are; the same as ``len(sample)``."""

    def __len__(self) -> int: ...
    def bytes(self) -> Bytes:
        """A copy as ``bytes``."""

    def numpy(self) -> NDArray[uint8]:
        """
        A writable one-dimensional ``uint8`` array that shares the sample's memory.
        """

    def tensor(self) -> torch.Tensor:
        """
        A writable one-dimensional ``uint8`` tensor that shares the sample's memory.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...
    def __repr__(self) -> str: ...

@final
class ObjectIndex(object):
    """
    The names, sizes and versions of many objects, in a fixed order. Immutable.

    About 25 bytes an object, outside Python's heap: ``index[i]`` makes an `ObjectInfo` when it is asked
    for. `Store.index` makes one from a listing, `ObjectIndex.from_objects` from anything.
    """

    @staticmethod
    def from_objects(
        objects: Iterable[ObjectInfo], *, store_url: str = "", prefix: str = ""
    ) -> ObjectIndex:
        """
        An index of `objects`, in their order.

        Args:
            store_url: what ``store_url`` will say.
            prefix: what ``prefix`` will say.

        Raises:
            InvalidArgumentError: an object has no name.
        """

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: SupportsIndex) -> ObjectInfo: ...
    @overload
    def __getitem__(self, key: slice) -> ObjectIndex: ...
    def __iter__(self) -> Iterator[ObjectInfo]: ...
    def name(self, i: int) -> str:
        """The name of object `i`; -1 is the last."""

    def size_bytes(self, i: int) -> int:
        """The size of object `i`; -1 is the last."""

    def sizes(self, indices: Sequence[int] | Buffer) -> memoryview:
        """The sizes of these objects in bytes, as a buffer of int64."""

    def sum_bytes(self, indices: Sequence[int] | Buffer) -> int:
        """How many bytes these objects have together."""

    @property
    def total_size_bytes(self) -> int:
        """How many bytes all objects have together."""

    @property
    def common_size_bytes(self) -> int | None:
        """The size of every object, if all are of one size; else ``None``."""

    @property
    def store_url(self) -> str:
        """
        The URL of the store that was listed, to which names are appended; ``''`` if nobody said.
        """

    @property
    def prefix(self) -> str:
        """The prefix that was listed."""

    @property
    def fingerprint(self) -> str:
        """
        A hash of names, sizes and generations in their order: what a saved state belongs to.
        """

    def select(self, indices: Sequence[int] | Buffer) -> ObjectIndex:
        """
        An index of these objects, in this order.

        Args:
            indices: integers, or a buffer of int64 such as a NumPy array; -1 is the last.

        Raises:
            IndexError: there is no such object.
        """

    def filter(
        self,
        *,
        suffix: str | Iterable[str] | None = None,
        glob: str | None = None,
        min_size_bytes: int | None = None,
        max_size_bytes: int | None = None,
    ) -> ObjectIndex:
        """
        An index of the objects for which all of this holds, in their order.

        Args:
            suffix: the name ends with it, or with one of several.
            glob: the whole name matches: ``*`` is anything but ``/``, ``?`` one character, ``[a-z]`` and
                ``[!a-z]`` one of (not of) these, ``**`` anything, ``**/`` any folders or none.
            min_size_bytes: the object has so many bytes at least ...
            max_size_bytes: ... and at most.

        Raises:
            InvalidArgumentError: the pattern makes no sense.
        """

    def save(self, url: str | os.PathLike[str], **store_options: Any) -> ObjectInfo:
        """
        Write a manifest, atomically, so that the next job need not list.

        Args:
            url: of the manifest: an object of any store, or a file.
            store_options: as for `Store`: ``endpoint=...``.

        Returns what was written.
        """

    @staticmethod
    def load(url: str | os.PathLike[str], **store_options: Any) -> ObjectIndex:
        """
        The index that `save` wrote. Nothing is listed: objects that have changed since are noticed when
        they are read, by `PreconditionFailedError`.

        Raises:
            NotFoundError: there is no such manifest.
            CorruptDataError: it is cut, changed, no manifest, or of a newer version.
        """

    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> ObjectIndex: ...
    def __deepcopy__(self, memo: object) -> ObjectIndex: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __repr__(self) -> str: ...

def index_image(index: ObjectIndex) -> bytes:
    """What index_from_image() takes."""

def index_from_image(image: Buffer, url: str = "") -> ObjectIndex:
    """`url` is where it came from, for errors."""

def index_descriptor(index: ObjectIndex) -> int:
    """
    The descriptor of its shared memory; -1 where it is too small for that.
    """

def index_from_descriptor(descriptor: int) -> ObjectIndex:
    """
    The index behind a copy of another process's descriptor, which is taken over.
    """

@final
class Order(object):
    """
    The order of one epoch: position → index, a pure function.

    Nothing is stored: any position is computed without those before it.

    Args:
        count: how many objects there are, below 2^63.
        seed: below 2^64.
        epoch: below 2^64.
        shuffle: ``False`` gives the identity.
    """

    def __init__(self, count: int, seed: int, epoch: int, shuffle: bool) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, position: int) -> int: ...
    def indices(self, begin: int, end: int) -> memoryview:
        """What stands at positions [begin, end), as a buffer of int64."""

def crc32c(data: Buffer, begin: int = 0) -> int:
    """The CRC-32C of these bytes, after those that `begin` is the sum of."""

def crc32(data: Buffer, begin: int = 0) -> int:
    """The CRC-32 of zip."""

class ZipLayout:
    """How a checkpoint's records lie in their file."""

    def __init__(self) -> None: ...
    def begin_record(self, name: str, size_bytes: int) -> bytes:
        """Returns what comes before the content."""

    def add(self, data: Buffer) -> None:
        """The next bytes of the content: summed, not kept."""

    def end_record(self) -> bytes:
        """Returns what comes after the content."""

    def finish(self) -> bytes:
        """Returns the directory, which ends the file."""

    @property
    def offset_bytes(self) -> int: ...

class ZipEntry:
    """A record, as a zip's directory tells of it."""

    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def header_offset_bytes(self) -> int: ...
    @property
    def crc32(self) -> int: ...
    @property
    def crc32c(self) -> int | None: ...
    @property
    def begin(self) -> int | None:
        """None: its local header must be read."""

    def content_begin(self, local_header: Buffer) -> int: ...

LEAST_TAIL_BYTES: int = 512

def find_directory(tail: Buffer, file_bytes: int) -> int:
    """Where a zip's directory begins, by the last bytes of the file."""

def parse_directory(
    directory: Buffer, begin: int
) -> tuple[list[ZipEntry], list[tuple[int, bytes]], int | None]:
    """
    Entries; of a file that we wrote what stands around them, and the whole's CRC-32C.
    """

class Credentials:
    """The engine's copy of one identity's token."""

    @staticmethod
    def from_token(authorization: str) -> Credentials: ...
    @staticmethod
    def from_queue(queue: CredentialsQueue, id: int) -> Credentials: ...
    @property
    def id(self) -> int: ...
    def provide(self, authorization: str, expires_in_s: float | None) -> None: ...
    def fail(self, message: str, *, retryable: bool) -> None: ...

class CredentialsQueue:
    """Where the engine's credentials wait for the credentials thread."""

    def __init__(self) -> None: ...
    def next(self, timeout_s: float) -> Credentials | None: ...
    def stop(self) -> None: ...

class Charge:
    """Memory that counts as live."""

    def release(self) -> None: ...

class Engine:
    """The threads and the memory of this process."""

    def __init__(self, options: dict[str, Any]) -> None: ...
    def stop(self) -> None:
        """Ends what is in progress, and joins the threads."""

    @property
    def usable(self) -> bool:
        """False after a fork."""

    @property
    def live_bytes(self) -> int: ...
    @property
    def budget_bytes(self) -> int: ...
    def charge(self, size_bytes: int) -> Charge:
        """
        Counts memory that reads will fill and that is not the engine's, until it is released.
        """

    def take_warnings(self) -> list[str]:
        """What users should know though nothing has failed, since the last call."""

    def metrics(self) -> dict[str, int]: ...

def pass_on_log() -> None:
    """Hands what the engine has logged to Python's logging."""

def fork_epoch() -> int:
    """How many forks lie behind this process."""

def begin_exit(*, threads_left: bool) -> None:
    """
    From now on only this thread is let back into the interpreter by a wait of ours.
    """

def default_options() -> dict[str, Any]:
    """The engine's defaults, by the names that Engine and open_store take."""

def split_url(url: str) -> tuple[str, str, str, str]:
    """Scheme, bucket, name, and the URL as it is written normally."""

def split_root(url: str) -> tuple[str, str, str, str]:
    """
    Scheme, bucket, path and URL of the root that a store has which is opened there: without slashes at the end; a relative path begins at the working directory.
    """

def normalized_endpoint(endpoint: str, *, default_tls: bool) -> str: ...
def error_codes() -> list[tuple[str, str]]:
    """
    Every code of the engine with the name of its class in headrace._errors.
    """

def make_exception(
    code: int,
    message: str,
    *,
    url: str = "",
    http_status: int = 0,
    request_id: str = "",
    attempts: int = 0,
) -> Exception:
    """The exception that a failing request with these facts raises."""

class Listing:
    """The objects of a bucket as they arrive."""

    def next(self) -> list[ObjectInfo] | None:
        """Waits; the next objects in the order of names, None at the end."""

    def index(
        self, store_url: str, prefix: str, on_progress: Callable[[int], object] | None = None
    ) -> ObjectIndex:
        """
        Waits for all that is still to come. `on_progress` is called now and then.
        """

    def cancel(self) -> None:
        """Ends what is under way."""

    def progress(self) -> tuple[int, int, bool, int]:
        """
        Names that have arrived, requests sent, whether everything has arrived, and how many objects with the root's own name were left out.
        """

class ObjectWriter:
    """
    One object that is being written: parts of it are under way while more come.

    `Store.open_writer` gives one. The object becomes visible by `close`, whole and verified, or
    not at all. The first error is the one that every later call raises. What is dropped without
    `close` is aborted; so is, in a ``with`` statement, what an exception ends.

    Example:
        >>> with store.open_writer("large.bin") as writer:  # doctest: +SKIP
        ...     for piece in pieces:
        ...         writer.write(piece)
    """

    def write(self, data: Buffer) -> int:
        """
        Take all of `data`, which is copied, and return how many bytes that were.

        Waits while as many parts are under way as may be.

        Args:
            data: any contiguous buffer.

        Raises:
            HeadraceError: a part could not be sent; the object will not become visible.
        """

    def write_lent(self, data: Buffer) -> int:
        """
        Take `data` without copying it: it must not change before `close` has returned.

        Args:
            data: any contiguous buffer, which is kept alive.

        Raises:
            HeadraceError: as `write`.
        """

    def close(self) -> ObjectInfo:
        """
        Wait until all is durable and verified, make it visible, and return what it is.

        A second call gives the same answer.

        Raises:
            PreconditionFailedError: something else is there than ``if_generation`` says.
            HeadraceError: the object could not be written; nothing of it is visible.
        """

    def abort(self, *, patience_s: float = 5.0) -> None:
        """
        End it: nothing becomes visible, and what was put somewhere is removed.

        Without effect after `close`.

        Args:
            patience_s: how long to wait for the removal, which goes on by itself.
        """

    def __enter__(self) -> ObjectWriter:
        """Return the writer."""

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        """Close it, or abort it where an exception ends the block."""

    @property
    def size_bytes(self) -> int:
        """How many bytes were taken so far."""

    @property
    def crc32c(self) -> int:
        """The CRC-32C of the bytes that were taken."""

    @property
    def url(self) -> str:
        """The URL of the object."""

    @property
    def left_behind(self) -> str | None:
        """What could not be removed, and why; None if nothing is left."""

class Batch:
    """Objects that are being read together."""

    def cancel(self) -> None:
        """Asks for an early end."""

    def drain(self) -> None:
        """Cancels, and waits until the engine is done with it."""

    def wait(self) -> None:
        """Waits; raises the first error."""

    def done(self) -> bool: ...
    def take(self, *, return_errors: bool) -> list[Sample]:
        """
        Waits; a sample for each object. Raises the first error, or returns errors in place.
        """

class StoreHandle:
    """A store of one engine."""

    def __init__(self, engine: Engine, url: str, options: dict[str, Any]) -> None: ...
    def start(
        self,
        items: Sequence[str | ObjectInfo],
        into: Sequence[Buffer] | None = None,
        ranges: Sequence[tuple[int, int | None]] | None = None,
    ) -> Batch: ...
    def start_indexed(
        self, index: ObjectIndex, indices: Sequence[int] | Buffer, into: Buffer | None = None
    ) -> Batch:
        """
        Starts reading these objects; `into` is filled object after object, exactly.
        """

    def list_page(
        self,
        *,
        prefix: str,
        delimiter: str,
        page_token: str,
        start_offset: str,
        end_offset: str,
        max_results: int,
    ) -> tuple[list[ObjectInfo], list[str], str, int]: ...
    def start_listing(
        self,
        *,
        prefix: str,
        start_offset: str,
        end_offset: str,
        only_for_reading: bool,
        eager: bool,
        max_pages_in_flight: int,
    ) -> Listing: ...
    def stat(self, name: str) -> ObjectInfo: ...
    def write(
        self,
        name: str,
        data: Buffer,
        *,
        if_generation: str | None,
        content_type: str,
        content_encoding: str,
    ) -> ObjectInfo: ...
    def open_writer(
        self,
        name: str,
        *,
        if_generation: str | None,
        content_type: str,
        part_bytes: int,
        max_parts_in_flight: int,
        upload: str,
    ) -> ObjectWriter: ...
    def list_uploads(self, prefix: str) -> list[tuple[str, str, str]]:
        """
        Name, id and time of the multipart uploads that are neither completed nor aborted.
        """

    def abort_upload(self, name: str, upload_id: str) -> bool:
        """
        Gives a multipart upload up, with its parts. False if it was not there any more.
        """

    def remove(self, name: str, *, if_generation: str | None) -> None: ...
    def copy(
        self, source_name: str, source_generation: str, name: str, *, if_generation: str | None
    ) -> ObjectInfo: ...
    def compose(
        self,
        sources: Sequence[ObjectInfo],
        name: str,
        *,
        content_type: str,
        if_generation: str | None,
    ) -> ObjectInfo: ...
    def url_of(self, name: str) -> str: ...
    @property
    def expected_object_bytes(self) -> int: ...
    @property
    def useful_in_flight(self) -> int: ...

def expected_bytes(items: Sequence[str | ObjectInfo], unknown_bytes: int) -> int: ...
