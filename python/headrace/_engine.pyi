"""The engine, as headrace's Python modules see it. Not for users."""

import datetime
import os
import types
from builtins import bytes as Bytes  # noqa: N812 - Sample.bytes hides the type
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex, final, overload

import torch
from numpy import uint8
from numpy.typing import NDArray
from typing_extensions import Buffer

import headrace
from headrace._index.sample_rng import SampleRng

@final
class ObjectInfo:
    """What a store says about one object. Immutable, comparable, hashable; pickles.

    Reads accept it in place of a name: they then need not ask for the size, are pinned to its
    generation, and are verified against its checksum. Only the name is required; reads look up
    anything else that is missing.

    Examples:
        >>> info = headrace.Store("gs://bucket/train").stat("cat/001.jpg")
        >>> info.name, info.size_bytes
        ('cat/001.jpg', 52113)
        >>> headrace.ObjectInfo("cat/001.jpg").size_bytes is None
        True
    """

    def __init__(
        self,
        name: str,
        size_bytes: int | None = None,
        generation: str = "",
        crc32c: int | None = None,
        content_type: str = "",
        content_encoding: str = "",
        updated: datetime.datetime | None = None,
        storage_class: str = "",
        component_count: int = 0,
        metageneration: int = 0,
        checksum: tuple[str, bytes] | None = None,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The name below the root of its store, or of its index."""

    # `int | Any`: stores always report it, and few programs meet an object without it. The same
    # holds for `updated`, except on AIStore and in the response to a write to S3.
    @property
    def size_bytes(self) -> int | Any:
        """The size of the stored object in bytes; ``None`` if it is not known."""

    @property
    def generation(self) -> str:
        """The token for this very version."""

    @property
    def crc32c(self) -> int | None:
        """The CRC-32C of the stored bytes; ``None`` if the store keeps none."""

    @property
    def checksum(self) -> tuple[str, bytes] | None:
        """The kind and the value of the checksum of the stored bytes; ``None`` where none is known.

        A kind is ``"crc32c"``, ``"crc32"``, ``"crc64nvme"``, ``"sha1"``, ``"sha256"``, ``"md5"`` or
        ``"xxh64"``. `Store.stat` reports it, listings only on ``gs://``; an index may have any.
        """

    @property
    def content_type(self) -> str:
        """The MIME type; ``''`` where the store keeps none."""

    @property
    def content_encoding(self) -> str:
        """How the stored bytes are compressed, such as ``gzip``; ``''`` if they are not."""

    @property
    def updated(self) -> datetime.datetime | Any:
        """When it was written, in UTC; ``None`` if it is not known: AIStore keeps no such time, and
        S3 does not report it in its response to a write.
        """

    @property
    def _last_use(self) -> datetime.datetime | None: ...
    @property
    def storage_class(self) -> str:
        """The store's word for it, such as ``STANDARD``; ``''`` if it says none."""

    @property
    def component_count(self) -> int:
        """The number of parts that it was composed of; 0 if it was not composed."""

    @property
    def metageneration(self) -> int:
        """Counts changes of metadata within one generation; 0 if unknown."""

    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __repr__(self) -> str: ...

@final
class Sample(Buffer):
    """The bytes of one object, as a writable buffer that owns its memory.

    A sample stays valid after the store, the batch and the engine are gone, and pickles as a copy.
    Reads with ``into=`` give samples that refer to the caller's memory.

    Args:
        data: the bytes, which are copied.
        url: the value of `url`.
        generation: the value of `generation`.
        name: the value of `name`.
        index: the value of `index`.
        seed: the value of `seed`, any integer from 0 to 2^64 - 1.
        label: the value of `label`.

    Examples:
        >>> sample = headrace.Store("gs://bucket/train").read("cat/001.jpg")
        >>> sample.name, sample.url, sample.size_bytes
        ('cat/001.jpg', 'gs://bucket/train/cat/001.jpg', 52113)
    """

    def __init__(
        self,
        data: Buffer,
        url: str = "",
        generation: str = "",
        name: str = "",
        index: int | None = None,
        *,
        seed: int | None = None,
        label: Any = None,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The object's name below the root of its store, or of its index."""

    @property
    def url(self) -> str:
        """The whole URL of the object: ``gs://bucket/root/name``."""

    @property
    def index(self) -> int | None:
        """Its number in the `ObjectIndex` that it was read by; ``None`` if it was read by name."""

    @property
    def generation(self) -> str:
        """The version of the object that was read; ``''`` where the store has none."""

    @property
    def size_bytes(self) -> int:
        """The size in bytes; the same as ``len(sample)``."""

    @property
    def seed(self) -> int | None:
        """A number for the random part of a transform, from 0 to 2^63 - 1.

        It follows from the seed, the epoch and the sample's position in the order (from its number
        in a `headrace.torch.MapDataset`) alone: not from threads, worker processes or ranks, nor
        from where a run was resumed. ``None`` if no dataset or loader of headrace.torch has read
        the sample.
        """

    def rng(self) -> SampleRng:
        """The random generators that begin with ``seed``: ``.torch``, ``.numpy`` and ``.python``.

        Each call returns the same object, so that two operations of a transform draw different
        numbers.

        Raises:
            InvalidArgumentError: the sample has no seed.

        Examples:
            >>> if sample.rng().python.random() < 0.5:
            ...     image = image.flip(-1)
            >>> noise = torch.randn(3, generator=sample.rng().torch)
        """

    @property
    def label(self) -> Any:
        """The label of the object in the dataset that read it; ``None`` if it has none."""

    def __len__(self) -> int: ...
    def bytes(self) -> Bytes:
        """A copy as ``bytes``.

        Examples:
            >>> len(sample.bytes())
            52113
        """

    def text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The bytes as text, as ``bytes.decode`` gives it.

        Raises:
            UnicodeDecodeError: they are not valid in that encoding; a note names the sample.

        Examples:
            >>> headrace.Sample(b'a cat').text()
            'a cat'
        """

    def json(self) -> Any:
        """The bytes as JSON, parsed by ``json.loads``.

        Raises:
            ValueError: they are not JSON; a note names the sample.

        Examples:
            >>> headrace.Sample(b'{"label": 3}').json()
            {'label': 3}
        """

    def numpy(self) -> NDArray[uint8]:
        """A writable one-dimensional ``uint8`` array that shares the sample's memory.

        Raises:
            ImportError: NumPy is not installed.

        Examples:
            >>> sample.numpy().shape
            (52113,)
        """

    def tensor(self) -> torch.Tensor:
        """A writable one-dimensional ``uint8`` tensor that shares the sample's memory.

        Raises:
            ImportError: torch is not installed.

        Examples:
            >>> sample.tensor().float().mean() > 0
            tensor(True)
        """

    def __reduce__(self) -> tuple[Any, ...]: ...
    def __repr__(self) -> str: ...

def seed_samples(
    samples: list[Sample], seed: int, epoch: int, positions: Sequence[int] | Buffer
) -> None:
    """Gives each sample the seed of its position in the order of an epoch."""

def label_samples(samples: list[Sample], labels: list[Any]) -> None:
    """Gives each sample its label."""

@final
class BatchMemory(Buffer):
    """Memory for a batch, as a writable buffer; it counts as live."""

    def give_away(self) -> None:
        """From now on it is the caller's and does not count; when nobody refers to it any more, the
        engine uses it again.
        """

    def dlpack(self, shape: Sequence[int], code: int, bits: int) -> Any:
        """A capsule of DLPack, for torch.from_dlpack, with all of the memory as one tensor of a
        type that DLPack numbers so.
        """

@final
class ObjectIndex:
    """The names, sizes and versions of many objects, in a fixed order. Immutable.

    An entry is an object below one of the index' `roots`, or a byte range of one. About 25 bytes an
    object, outside Python's heap: ``index[i]`` makes an `ObjectInfo` when it is asked for.
    `Store.index` makes an index from a listing, `from_names`, `from_urls` and `from_objects` from
    what you have.

    Examples:
        >>> index = headrace.Store("gs://bucket/train").index()
        >>> len(index), index.name(0), index.url(0)
        (3, 'cat/001.jpg', 'gs://bucket/train/cat/001.jpg')
        >>> pictures = index.filter(suffix=".jpg")
        >>> pictures.position("cat/002.jpg")
        1
    """

    @staticmethod
    def from_objects(
        objects: Iterable[ObjectInfo],
        *,
        root: str | os.PathLike[str] = "",
        columns: Mapping[str, Any] | None = None,
    ) -> ObjectIndex:
        """An index of `objects`, in their order.

        Args:
            root: the URL that their names are relative to. Without it, the index belongs to no
                store: it can be read only from the store that it is given to.
            columns: your columns by name; see `with_columns`.

        Raises:
            InvalidArgumentError: an object has no name, or a column another number of values.

        Examples:
            >>> store = headrace.Store("gs://bucket/train")
            >>> recent = [info for info in store.list() if info.updated > yesterday]
            >>> len(headrace.ObjectIndex.from_objects(recent, root=store.url))
            3
        """

    @staticmethod
    def from_names(
        names: Sequence[str],
        *,
        root: str | os.PathLike[str] = "",
        sizes_bytes: Sequence[int | None] | Buffer | None = None,
        generations: Sequence[str | None] | None = None,
        begins: Sequence[int | None] | Buffer | None = None,
        ends: Sequence[int | None] | Buffer | None = None,
        checksums: Sequence[int | bytes | None] | None = None,
        checksum_kind: str = "crc32c",
        columns: Mapping[str, Any] | None = None,
    ) -> ObjectIndex:
        """An index of objects below one root, or of ranges of them, by their names. No request is
        sent: objects that do not exist fail when they are read.

        Args:
            names: one for each entry.
            root: the URL that they are relative to.
            sizes_bytes: of each whole object; ``None`` or -1 where it is not known.
            generations: of each object; reads are pinned to it.
            begins: where each entry begins in its object, for entries that are ranges.
            ends: where each entry ends. ``None`` or -1 for both: the whole object.
            checksums: of each entry, of its range or its object, as ``int`` or ``bytes``.
            checksum_kind: of all of these; see `checksum`.
            columns: your columns by name; see `with_columns`.

        Raises:
            InvalidArgumentError: a value cannot be, or there are not as many as entries.

        Examples:
            >>> index = headrace.ObjectIndex.from_names(
            ...     ["a.jpg", "b.jpg"], root="gs://bucket/train", columns={"label": [0, 1]}
            ... )
        """

    @staticmethod
    def from_urls(
        urls: Sequence[str],
        *,
        roots: Iterable[str | os.PathLike[str]] = (),
        sizes_bytes: Sequence[int | None] | Buffer | None = None,
        generations: Sequence[str | None] | None = None,
        begins: Sequence[int | None] | Buffer | None = None,
        ends: Sequence[int | None] | Buffer | None = None,
        checksums: Sequence[int | bytes | None] | None = None,
        checksum_kind: str = "crc32c",
        columns: Mapping[str, Any] | None = None,
    ) -> ObjectIndex:
        """An index of objects anywhere, or of ranges of them, by their URLs. No request is sent.

        Args:
            urls: one for each entry; a path is a file.
            roots: the URLs that names are relative to. Each name is relative to the nearest root
                above it; without one, to the bucket, or for a file to ``file:///``.
            sizes_bytes: of each whole object; ``None`` or -1 where it is not known.
            generations: of each object; reads are pinned to it.
            begins: where each entry begins in its object, for entries that are ranges.
            ends: where each entry ends. ``None`` or -1 for both: the whole object.
            checksums: of each entry, of its range or its object, as ``int`` or ``bytes``.
            checksum_kind: of all of these; see `checksum`.
            columns: your columns by name; see `with_columns`.

        Raises:
            InvalidArgumentError: a value cannot be, or there are not as many as entries.

        Examples:
            >>> index = headrace.ObjectIndex.from_urls(["gs://a/1.jpg", "gs://b/2.jpg"])
            >>> index.roots, index.name(1)
            (('gs://a', 'gs://b'), '2.jpg')
        """

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: SupportsIndex) -> ObjectInfo: ...
    @overload
    def __getitem__(self, key: slice) -> ObjectIndex: ...
    def __iter__(self) -> Iterator[ObjectInfo]: ...
    def __contains__(self, key: object) -> bool:
        """Whether an entry has this name or this URL, or is this `ObjectInfo`."""

    def __add__(self, other: ObjectIndex) -> ObjectIndex:
        """The entries of both; see `concat`."""

    def name(self, i: int) -> str:
        """The name of entry `i`, below its root; -1 is the last.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> index.name(0)
            'cat/001.jpg'
        """

    def url(self, i: int) -> str:
        """The whole URL of entry `i`: its root and its name; -1 is the last.

        Raises:
            IndexError: there is no such entry.
            InvalidArgumentError: the index does not say where its objects are.

        Examples:
            >>> index.url(-1)
            'gs://bucket/train/dog/001.jpg'
        """

    def info(self, i: int) -> ObjectInfo:
        """The object that entry `i` is, or is a range of: the same as ``index[i]``.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> index.info(0) == index[0]
            True
        """

    def range(self, i: int) -> tuple[int, int] | None:
        """The bytes ``[begin, end)`` of its object that entry `i` is; ``None``: all of them.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> tokens = headrace.ObjectIndex.from_names(["0.bin"], begins=[4096], ends=[8192])
            >>> tokens.range(0)
            (4096, 8192)
            >>> index.range(0) is None
            True
        """

    def checksum(self, i: int) -> tuple[str, bytes] | None:
        """The kind and the value of the checksum of what entry `i` is, its object or its range.

        A kind is ``"crc32c"``, ``"crc32"``, ``"crc64nvme"``, ``"sha1"``, ``"sha256"``, ``"md5"`` or
        ``"xxh64"``. Reads verify the three CRCs, and with ``verify="all"`` also the others except
        xxHash.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> kind, value = index.checksum(0)
            >>> kind, len(value)
            ('crc32c', 4)
        """

    def size_bytes(self, i: int) -> int | Any:
        """How many bytes entry `i` is: those of its object, or of its range. ``None`` where nobody
        has told it.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> index.size_bytes(0)
            52113
        """

    def sizes(self, indices: Sequence[int] | Buffer) -> memoryview:
        """The sizes of these entries in bytes, as a buffer of int64; -1 where one is not known.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> list(index.sizes([0, 2]))
            [52113, 48302]
        """

    def sum_bytes(self, indices: Sequence[int] | Buffer, unknown_bytes: int = 0) -> int:
        """How many bytes these entries have together, `unknown_bytes` for each whose size is not
        known.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> index.sum_bytes([0, 2])
            100415
        """

    @property
    def total_size_bytes(self) -> int | Any:
        """The size of all entries together in bytes; ``None`` if a size is not known."""

    @property
    def common_size_bytes(self) -> int | None:
        """The size of every entry, if all are of one size that is known; else ``None``."""

    @property
    def roots(self) -> tuple[str, ...]:
        """The URLs that names are relative to; ``''`` if none was given."""

    def position(self, name: str) -> int:
        """The number of the entry that has this name, or this whole URL, in less than a
        microsecond.

        Of several entries of one object it is the first. The first call makes a table of 5 to 11
        bytes for each object. Processes that are forked later share it; ask once before they are.

        Raises:
            NotFoundError: there is none; ``name in index`` tests for it.
            InvalidArgumentError: objects below several roots have this name; the message has their
                URLs.

        Examples:
            >>> index.position("cat/002.jpg")
            1
            >>> index.position("gs://bucket/train/cat/002.jpg")
            1
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of your columns, such as labels."""

    def column(
        self, name: str, indices: Sequence[int] | Buffer | None = None
    ) -> memoryview | list[str] | list[bytes]:
        """One of your columns: numbers as a buffer (int64, float64, bool), texts as a list.

        Args:
            indices: of these entries only; default: of all.

        Raises:
            InvalidArgumentError: there is no such column.
            IndexError: there is no such entry.

        Examples:
            >>> numpy.asarray(index.column("label")).tolist()
            [0, 0, 1]
        """

    def with_columns(self, columns: Mapping[str, Any]) -> ObjectIndex:
        """An index of the same entries with these columns in addition to its own.

        Args:
            columns: by name, one value for each entry: all ``bool``, ``int``, ``float``, ``str`` or
                ``bytes``, as a sequence, or a buffer such as a NumPy array. Booleans among integers
                become integers, and integers among floats become floats. A column of the same name
                is replaced; ``None`` removes it.

        Raises:
            InvalidArgumentError: a column has another number of values, or values that cannot be
                kept.

        Examples:
            >>> labels = [index.name(i).split("/")[0] for i in range(len(index))]
            >>> index.with_columns({"label": labels}).column("label")
            ['cat', 'cat', 'dog']
        """

    @property
    def fingerprint(self) -> str:
        """A hash of names, ranges, sizes and checksums in their order, and of nothing else: what a
        saved state belongs to. Data that was moved or copied to another root keeps it.
        """

    def select(self, indices: Sequence[int] | Buffer) -> ObjectIndex:
        """An index of these entries, in this order.

        Args:
            indices: integers, or a buffer of int64 such as a NumPy array; -1 is the last.

        Raises:
            IndexError: there is no such entry.

        Examples:
            >>> small = [i for i in range(len(index)) if index.size_bytes(i) < 50_000]
            >>> [info.name for info in index.select(small)]
            ['dog/001.jpg']
        """

    def filter(
        self,
        *,
        prefix: str | None = None,
        suffix: str | Iterable[str] | None = None,
        glob: str | None = None,
        min_size_bytes: int | None = None,
        max_size_bytes: int | None = None,
        leave_out: str | None = None,
    ) -> ObjectIndex:
        """An index of the entries that meet all of these conditions, in their order.

        Args:
            prefix: the name begins with it.
            suffix: the name ends with it, or with one of several.
            glob: the whole name matches: ``*`` is anything but ``/``, ``?`` one character,
                ``[a-z]`` and ``[!a-z]`` one of (not of) these, ``**`` anything, ``**/`` any folders
                or none.
            min_size_bytes: the entry has at least this size.
            max_size_bytes: the entry has at most this size. With either bound, entries of unknown
                size are left out.
            leave_out: characters that the parts of a hidden name begin with, such as ``"."``. Names
                with such a part below the last folder of `prefix`, or with a part ``__MACOSX``, are
                left out, and so are the markers of folders: empty objects that end with ``/`` or
                ``_$folder$``. A part such as ``_day=1`` is a partition's folder, and not hidden.
                With an empty text, only markers are left out.

        Raises:
            InvalidArgumentError: the pattern is malformed.
            TypeError: there is no such argument.

        Examples:
            >>> len(index.filter(prefix="cat/", suffix=(".jpg", ".png")))
            2
        """

    def windows(
        self,
        window_bytes: int,
        stride_bytes: int | None = None,
        *,
        begins: Sequence[int | None] | Buffer | None = None,
        ends: Sequence[int | None] | Buffer | None = None,
    ) -> ObjectIndex:
        """An index of evenly spaced ranges of each entry, such as the records of a file.

        The ranges are computed, not stored: 10^9 ranges of one object take no more memory than one.
        Ranges that would end behind their entry are left out, and so are columns. Stores keep no
        checksums of ranges, so reads of them are not verified against one.

        Args:
            window_bytes: the length of each range.
            stride_bytes: the distance from the start of a range to the start of the next one;
                default: the length of a range.
            begins: the first byte of each entry to use, such as the one behind a header; default,
                also for ``None``: 0.
            ends: the byte behind the last one of each entry to use; default, also for ``None``:
                the end of the entry.

        Raises:
            InvalidArgumentError: a length is 0, the size of an entry is not known, or ranges would
                begin or end outside of an entry.
            TypeError: a value is negative, or not an integer.

        Examples:
            >>> records = headrace.Store("gs://bucket/train").index().windows(4096)
            >>> records.range(1)
            (4096, 8192)
        """

    @staticmethod
    def concat(indexes: Iterable[ObjectIndex]) -> ObjectIndex:
        """An index of all entries of several, one index after the other.

        It has the roots of all, and their columns.

        Raises:
            InvalidArgumentError: the indexes do not have the same columns.

        Examples:
            >>> a, b = headrace.Store("gs://a").index(), headrace.Store("gs://b").index()
            >>> headrace.ObjectIndex.concat([a, b]).roots
            ('gs://a', 'gs://b')
        """

    def at(
        self, url: str | os.PathLike[str] | Mapping[str, str], *, keep_generations: bool = False
    ) -> ObjectIndex:
        """The same entries at another root, where the same objects lie, such as a copy of the
        bucket.

        No request is sent. A copy has other generations, so reads by the new index are not pinned
        to one; sizes and checksums stay, and so does the `fingerprint`.

        Args:
            url: the new root; of an index that has several, a mapping from old to new ones.
            keep_generations: the URL leads to the same objects, not to copies.

        Raises:
            InvalidArgumentError: this is not a URL, or it does not say where each of several roots
                goes.

        Examples:
            >>> index.at("gs://copy/train").url(0)
            'gs://copy/train/cat/001.jpg'
        """

    def rebased(self, url: str | os.PathLike[str]) -> ObjectIndex:
        """The same objects with names relative to another root of the same bucket.

        Datasets that get an `index` and a URL do this by themselves.

        Raises:
            InvalidArgumentError: some entries are outside that root, or it is another bucket: see
                `at`.

        Examples:
            >>> headrace.Store("gs://bucket").index("train/").rebased("gs://bucket/train").name(0)
            'cat/001.jpg'
        """

    def save(
        self, url: str | os.PathLike[str], *, store: headrace.Store | None = None, **options: Any
    ) -> ObjectInfo:
        """Write the index to an object or a file, atomically, so that later jobs need not list.

        Args:
            url: an object of any store, or a file.
            store: the store to write to; `url` may then be a name in it.
            options: options of `Store`, in place of `store`: ``endpoint=...``.

        Returns:
            The object that was written.

        Raises:
            InvalidArgumentError: the URL names no object.

        Examples:
            >>> index.save("gs://bucket/indexes/train").name
            'indexes/train'
        """

    @staticmethod
    def load(
        url: str | os.PathLike[str], *, store: headrace.Store | None = None, **options: Any
    ) -> ObjectIndex:
        """The index that `save` wrote. Nothing is listed: reading an object that has changed
        since then raises `PreconditionFailedError`.

        Args:
            url: the saved index, as for `save`.
            store: the store to read from.
            options: options of `Store`, in place of `store`.

        Raises:
            NotFoundError: there is no such object.
            CorruptDataError: it is truncated, damaged, not a saved index, or of another version.

        Examples:
            >>> len(headrace.ObjectIndex.load("gs://bucket/indexes/train"))
            3
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
    """The descriptor of its shared memory; -1 where it is too small for that."""

def index_from_descriptor(descriptor: int) -> ObjectIndex:
    """The index behind a copy of another process's descriptor, which is taken over."""

@final
class Order:
    """The order of one epoch: position → index, a pure function.

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
    def indices(self, begin: int, end: int, step: int = 1) -> memoryview:
        """What stands at every `step`-th position of [begin, end), as a buffer of int64."""

    def pick(self, positions: Sequence[int]) -> memoryview:
        """What stands at these positions, as a buffer of int64."""

@final
class BlockOrder:
    """As `Order`, in blocks of neighbours.

    Args:
        count: how many objects there are, below 2^63.
        seed: below 2^64.
        epoch: below 2^64.
        block_size: how many consecutive objects stay together.
        window_blocks: the objects of how many blocks are shuffled together.
    """

    def __init__(
        self, count: int, seed: int, epoch: int, block_size: int, window_blocks: int
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, position: int) -> int: ...
    def indices(self, begin: int, end: int, step: int = 1) -> memoryview:
        """What stands at every `step`-th position of [begin, end), as a buffer of int64."""

    def pick(self, positions: Sequence[int]) -> memoryview:
        """What stands at these positions, as a buffer of int64."""

@final
class DrawTable:
    """How likely each of several objects is drawn."""

    def __init__(self, weights: Buffer) -> None:
        """Of a buffer of doubles."""

    def __len__(self) -> int: ...

@final
class WeightedOrder:
    """As `Order`, drawn with replacement, by weights."""

    def __init__(self, table: DrawTable, count: int, seed: int, epoch: int) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, position: int) -> int: ...
    def indices(self, begin: int, end: int, step: int = 1) -> memoryview:
        """What stands at every `step`-th position of [begin, end), as a buffer of int64."""

    def pick(self, positions: Sequence[int]) -> memoryview:
        """What stands at these positions, as a buffer of int64."""

@final
class MixtureSchedule:
    """Which of several sources each sample of a mixture comes from."""

    def __init__(self, weights: Buffer) -> None:
        """Of a buffer of doubles."""

    @property
    def parts(self) -> list[int]:
        """How many samples of a period are of each source."""

@final
class MixtureOrder:
    """As `Order`, of several sources, laid one after the other."""

    def __init__(
        self,
        schedule: MixtureSchedule,
        counts: Sequence[int],
        count: int,
        seed: int,
        epoch: int,
        shuffle: bool,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, position: int) -> int: ...
    def indices(self, begin: int, end: int, step: int = 1) -> memoryview:
        """What stands at every `step`-th position of [begin, end), as a buffer of int64."""

    def pick(self, positions: Sequence[int]) -> memoryview:
        """What stands at these positions, as a buffer of int64."""

@final
class BatchSteps:
    """Batches of samples in some order, dealt to ranks step by step.

    Add the weights of the samples until `is_ready`, and take a step.

    Args:
        count: how many positions the order has.
        position: where the first step begins, but for those samples that wait.
        max_cost: of a batch; infinity: any.
        max_bytes: of a batch; infinity: any.
        max_samples: of a batch.
        boundaries: ascending costs; samples between the same two are batched together.
        skip_oversized: leave out samples that exceed a limit alone; else they are batches.
        world_size: how many batches a step has.
        drop_last: leave out batches at the end that are not full, or make no step.
        saturation: a batch filled to more than this share of a limit counts as full then.
    """

    def __init__(
        self,
        count: int,
        position: int,
        *,
        max_cost: float,
        max_bytes: float,
        max_samples: int | None,
        boundaries: Sequence[float],
        skip_oversized: bool,
        world_size: int,
        drop_last: bool,
        saturation: float,
    ) -> None: ...
    @property
    def position(self) -> int:
        """The position of the sample to add next."""

    @property
    def is_ready(self) -> bool:
        """Whether the next step is known."""

    def add(
        self,
        positions: Buffer | None,
        indices: Buffer,
        costs: Buffer | None,
        bytes: Buffer | None,
        fits: Callable[[int], bool] | None,
    ) -> None:
        """Add samples that wait, at these positions, or else the next ones of the order. Positions
        and indices are int64, weights are doubles. `fits` is asked with the index of each sample
        that the limits let join a batch.
        """

    def next(self, rank: int) -> tuple[memoryview, int, Sequence[int]] | None:
        """The positions of this rank's next batch; where the next step begins; and which samples
        before that wait, in any order. None at the end.
        """

    def take_left_out(self) -> memoryview:
        """The positions of samples that were left out since the last call."""

    @property
    def so_far_size(self) -> int: ...
    @property
    def so_far_cost(self) -> float: ...
    @property
    def so_far_bytes(self) -> float: ...
    @property
    def so_far_largest_cost(self) -> float: ...
    @property
    def so_far_positions(self) -> memoryview:
        """These five are about the batch that `fits` is being asked about."""

def packed_batches(costs: Buffer, max_cost: float) -> tuple[memoryview, memoryview, float]:
    """The positions of samples with these costs (doubles), batch after batch; where each full batch
    ends; and the cost of the rest. A sample that costs more than `max_cost` is a batch of its own
    before the one that is being filled.
    """

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

LEAST_TAIL_BYTES: int

def find_directory(tail: Buffer, file_bytes: int) -> int:
    """Where a zip's directory begins, by the last bytes of the file."""

def parse_directory(
    directory: Buffer, begin: int
) -> tuple[list[ZipEntry], list[tuple[int, bytes]], int | None]:
    """Entries; of a file that we wrote what stands around them, and the whole's CRC-32C."""

def crc32c(data: Buffer, begin: int = 0) -> int:
    """The CRC-32C of these bytes, after those that `begin` is the sum of."""

def crc32(data: Buffer, begin: int = 0) -> int:
    """The CRC-32 of zip."""

class CrcKind:
    """CRCs of one kind, as numbers: those of no bytes are 0."""

    def __init__(self, name: str) -> None:
        """`name`: ``crc32``, ``crc32c`` or ``crc64nvme``; ValueError for any other."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str:
        """For messages."""

    def of(self, data: Buffer) -> int:
        """The sum of these bytes."""

    def joined(self, first: int, next: int, next_size_bytes: int) -> int:
        """The sum of the bytes of `first` and, behind them, those of `next`."""

    def of_rest(self, whole: int, first: int, rest_size_bytes: int) -> int:
        """The sum of the bytes of `whole` that stand behind those of `first`."""

    def of_beginning(self, whole: int, last: int, last_size_bytes: int) -> int:
        """The sum of the bytes of `whole` that stand before those of `last`."""

class Xxh64:
    """XXH64 of bytes that come in order."""

    def __init__(self) -> None: ...
    def extend(self, data: Buffer) -> None:
        """Add these bytes, which follow those before."""

    def value(self) -> int:
        """The sum so far."""

class PackPlan:
    """What is packed into which shard; samples are positions in its order."""

    def __init__(
        self,
        index: ObjectIndex,
        *,
        max_shard_bytes: int,
        max_shard_samples: int | None,
        shuffle: bool,
        seed: int,
        label: str | None,
        documents: bool,
    ) -> None: ...
    @property
    def sample_count(self) -> int: ...
    @property
    def shard_count(self) -> int: ...
    @property
    def has_given_ranges(self) -> bool:
        """Whether entries may be ranges that reach behind their objects."""

    @property
    def left_out_count(self) -> int:
        """How many entries belong to no sample."""

    @property
    def first_left_out(self) -> str: ...
    def shard(self, i: int) -> tuple[int, int]:
        """The samples of a shard: the first, and one behind the last."""

    def source_bytes(self, begin: int, end: int) -> int:
        """The bytes of the entries of samples."""

    def piece(self, begin: int, end: int, max_bytes: int) -> PackPiece:
        """As many of the samples as fit into `max_bytes`, and at least one."""

class PackPiece:
    """Samples that are read and written together."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int:
        """One behind the last sample."""

    @property
    def size_bytes(self) -> int:
        """What it takes in its shard."""

    def lay_out(self, into: Buffer) -> tuple[memoryview, memoryview]:
        """Writes the samples without their data; the entries, and the place of each one's data."""

    def describe(self) -> list[tuple[str, list[str], str | None]]:
        """Of each sample the key, the names of the fields, one for each entry, and the label."""

class PackedFiles:
    """The files that were put into a shard."""

    def __init__(self) -> None: ...
    def add_planned(self, piece: PackPiece, offset_bytes: int) -> None:
        """Adds the files of a piece as it is laid out, from this byte on."""

    def add(self, name: str, begin: int, end: int) -> None:
        """Adds a file by its range."""

    def index(self, shard: ObjectIndex) -> ObjectIndex:
        """What index_members returns of this shard, the only entry of `shard`."""

def tar_header(name: str, size_bytes: int) -> bytes:
    """The headers of a file in a tar."""

class PieceWindow:
    """How many bytes of shards may be under way at a time, of all that are read with it."""

    def __init__(self, max_bytes: int) -> None: ...

class ShardRead:
    """A shard whose samples are being read."""

    def take(self) -> list[tuple[int, int, int, dict[str, Any]]]:
        """Waits; the samples that are ready, each with its number, the offset behind it, and its
        seed. There are none when the shard has ended.
        """

    def warnings(self) -> list[str]:
        """Warnings about the shard; complete once it has ended."""

    def cancel(self) -> None:
        """Asks for an early end."""

    def close(self) -> None:
        """Cancels, also for a thread that waits in take(), and waits until the engine is done."""

def sample_index(
    members: ObjectIndex, skip_errors: bool
) -> tuple[ObjectIndex, list[Exception], int, str]:
    """An index of samples, the errors of shards that are left out, how many members are in no
    sample, and the first of these.
    """

def shards_of_samples(samples: ObjectIndex) -> tuple[ObjectIndex, list[int]]:
    """The shards that samples are in, and the first sample of each."""

def sample_seeds(seed: int, epoch: int, begin: int, end: int) -> list[int]:
    """The seeds of the samples at these positions."""

def with_fields(samples: ObjectIndex, fields: Sequence[str]) -> ObjectIndex:
    """The same samples with these fields alone."""

def split_sample(sample: Sample) -> dict[str, Any]:
    """``__key__``, ``__url__``, and for each field a sample that shares the memory."""

def tar_members(
    archive: Buffer,
) -> tuple[list[str], str, dict[int, str], list[int], list[int], dict[int, list[tuple[int, int]]]]:
    """Of all members of a tar: their names, the letters of their types, where links lead, where
    their data begin and end. Of a sparse one, which is longer than its data, where these belong.
    """

def npy_header_bytes(beginning: Buffer) -> int:
    """The size of the header of a .npy file; twelve bytes of it are enough."""

def npy_header(beginning: Buffer) -> tuple[str, bool, tuple[int, ...], int]:
    """What the header of a .npy file says: type, Fortran order, shape, where the items begin."""

def megatron_index(file: Buffer) -> tuple[str, int, int, bool]:
    """What an .idx of Megatron-Core says: the type of tokens, the number of sequences, where the
    last one ends in the .bin, and whether they follow each other without a gap.
    """

class PackedSequences:
    """The sequences of a dataset of Megatron-Core in some order, as one stream of bytes."""

    @staticmethod
    def pack(file: Buffer, order: Sequence[int] | Buffer) -> PackedSequences:
        """Packs the sequences with these numbers; `file` is the .idx."""

    @staticmethod
    def from_parts(parts: Buffer) -> PackedSequences:
        """What has these `parts()`."""

    def parts(self) -> bytes:
        """Everything that the stream consists of, at most 16 bytes a sequence."""

    def file_byte(self, at: int) -> int:
        """Where in the .bin this byte of the stream lies."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all of them together."""

def plan_column_chunks(
    chunks: Sequence[tuple[int, int]], end: int, max_gap_bytes: int, max_request_bytes: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The ranges that requests for these column chunks read, and of each column chunk its request
    and its offset in that. `end`: where the file's footer begins.
    """

class Credential:
    """A value of the Authorization header, or keys to sign requests with."""

    @staticmethod
    def of_authorization(authorization: str) -> Credential: ...
    @staticmethod
    def of_keys(access_key: str, secret_key: str, session_token: str = "") -> Credential: ...

class Credentials:
    """The engine's copy of one identity's credential."""

    @staticmethod
    def fixed(credential: Credential) -> Credentials: ...
    @staticmethod
    def from_queue(queue: CredentialsQueue, id: int) -> Credentials: ...
    @property
    def id(self) -> int: ...
    def provide(self, credential: Credential, expires_in_s: float | None) -> None: ...
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
        """Counts memory that reads will fill and that is not the engine's, until it is released."""

    def batch_memory(self, size_bytes: int) -> BatchMemory:
        """Memory of this size, at least one byte; memory that was used before if there is any."""

    def take_warnings(self) -> list[str]:
        """What users should know though nothing has failed, since the last call."""

    def metrics(self) -> dict[str, Any]: ...

def pass_on_log() -> None:
    """Hands what the engine has logged to Python's logging."""

def fork_epoch() -> int:
    """How many forks lie behind this process."""

def exchange_if_equal(cells: Buffer, at: int, expected: int, wanted: int) -> bool:
    """Puts `wanted` in the place of `expected` into cell `at` of int64 cells, which processes may
    share, in one step; False: something else is there.
    """

def begin_exit(*, threads_left: bool) -> None:
    """From now on the waits of other threads end with SystemExit."""

MIN_RANGE_BYTES: int

def default_options() -> dict[str, Any]:
    """The engine's defaults, by the names that Engine and open_store take."""

def split_url(url: str) -> tuple[str, str, str, str]:
    """Scheme, bucket, name, and the URL as it is written normally."""

def split_root(url: str) -> tuple[str, str, str, str]:
    """Scheme, bucket, path and URL of the root that a store has which is opened there: without
    slashes at the end; a relative path begins at the working directory.
    """

def normalized_endpoint(endpoint: str, *, default_tls: bool) -> str: ...
def error_codes() -> list[tuple[str, str]]:
    """Every code of the engine with the name of its class in headrace._base.errors."""

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

def begin_timeline(attempts_per_thread: int) -> None:
    """Notes when each attempt does what, the last ones on each thread."""

def end_timeline() -> tuple[list[dict[str, Any]], int]:
    """The attempts that were noted, and how many older ones were overwritten. Times are those of
    time.perf_counter_ns(), on Linux; 0: it did not come to that.
    """

class Listing:
    """The objects of a bucket as they arrive."""

    def next(self) -> list[ObjectInfo] | None:
        """Waits; the next objects in the order of names, None at the end."""

    def index(self, root: str, on_progress: Callable[[int], object] | None = None) -> ObjectIndex:
        """Waits for all that is still to come, with names relative to `root`. `on_progress` is
        called now and then.
        """

    def cancel(self) -> None:
        """Ends what is under way."""

    def progress(self) -> tuple[int, int, bool, int]:
        """Names that have arrived, requests sent, whether everything has arrived, and how many
        objects with the root's own name were left out.
        """

class FileSource:
    """A local file, kept open to be read again while it is sent."""

    def __init__(self, descriptor: int) -> None: ...

def write_from(writer: ObjectWriter, file: FileSource, begin: int, most_bytes: int) -> int:
    """Write bytes of a file from `begin` on; return how many: 0 at its end, for 1 or more asked."""

class ObjectWriter:
    """An object that is being written: it sends parts while you write more.

    `Store.open_writer` returns one. `close` makes the object visible, whole and verified, or not at
    all. After an error, every later call raises that error. A writer that is dropped without
    `close` aborts, and so does one whose ``with`` block ends with an exception.

    Examples:
        >>> with store.open_writer("large.bin") as writer:
        ...     for piece in pieces:
        ...         size_bytes = writer.write(piece)
    """

    def write(self, data: Buffer) -> int:
        """Copy all of `data`, and return its size in bytes.

        Blocks while the maximum number of parts is in flight.

        Args:
            data: any contiguous buffer.

        Raises:
            HeadraceError: a part could not be sent; the object will not become visible.

        Examples:
            >>> store.open_writer("large.bin").write(b"some bytes")
            10
        """

    def write_lent(self, data: Buffer) -> int:
        """Write `data` without copying it: do not change it before `close` has returned.

        Args:
            data: any contiguous buffer, which is kept alive.

        Raises:
            HeadraceError: as `write`.

        Examples:
            >>> weights = torch.zeros(1000)
            >>> with store.open_writer("weights.bin") as writer:
            ...     size_bytes = writer.write_lent(weights.numpy())
        """

    def close(self) -> ObjectInfo:
        """Wait until all is durable and verified, make the object visible, and return its info.

        A second call returns the same.

        Raises:
            PreconditionFailedError: the object that exists is not the one that ``if_generation``
                names.
            HeadraceError: the object could not be written; nothing of it is visible.

        Examples:
            >>> writer = store.open_writer("small.bin")
            >>> writer.close().size_bytes
            0
        """

    def abort(self, *, patience_s: float = 5.0) -> None:
        """Give up: nothing becomes visible, and temporary objects are removed.

        It has no effect after `close`.

        Args:
            patience_s: how long to wait for their removal, which continues in the background.

        Raises:
            CancelledError: it was opened before a fork, in the parent process.

        Examples:
            >>> writer = store.open_writer("given-up.bin")
            >>> writer.abort()
            >>> store.exists("given-up.bin")
            False
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
        """The number of bytes written so far."""

    @property
    def crc32c(self) -> int:
        """The CRC-32C of the bytes written so far."""

    @property
    def url(self) -> str:
        """The URL of the object."""

    @property
    def left_behind(self) -> str | None:
        """Which temporary objects could not be removed, and why; None if none is left."""

class Batch:
    """Objects that are being read together."""

    def cancel(self) -> None:
        """Asks for an early end."""

    def drain(self) -> None:
        """Cancels, and waits until the engine is done with it."""

    def wait(self) -> None:
        """Waits; raises the first error."""

    def done(self) -> bool: ...
    def poll(self, at_most_s: float) -> bool:
        """Waits at most so long, and at most 50 ms; whether all is done. Signals are the caller's
        business.
        """

    def sums(self) -> list[int | None]:
        """Waits; the CRC of the bytes that came for each range."""

    def place_sums(self) -> list[list[int | None]]:
        """Waits; the CRC of the bytes that came for each place of each range."""

    def take(self, *, return_errors: bool) -> list[Sample]:
        """Waits; a sample for each object. Raises the first error, or returns errors in place."""

class StoreHandle:
    """A store of one engine."""

    def __init__(self, engine: Engine, url: str, options: dict[str, Any]) -> None: ...
    def start(
        self,
        items: Sequence[str | ObjectInfo],
        into: Sequence[Buffer] | None = None,
        ranges: Sequence[tuple[int, int | None]] | None = None,
        sum_kind: str = "",
    ) -> Batch:
        """Starts reading; the engine sums ranges by a CRC of this kind, for `Batch.sums`."""

    def start_members(self, members: Sequence[tuple[str, str]]) -> Batch:
        """Starts reading members of shards, each named by the shard's name and its own."""

    def start_scattered(
        self,
        items: Sequence[str | ObjectInfo],
        places: Sequence[Sequence[tuple[int, int, Buffer]]],
        *,
        sum_kind: str,
    ) -> Batch:
        """Starts reading one range of each, into places that are given as begin, end and memory;
        the engine sums each by a CRC of this kind, for `Batch.place_sums`.
        """

    def start_indexed(
        self, index: ObjectIndex, indices: Sequence[int] | Buffer, into: Buffer | None = None
    ) -> Batch:
        """Starts reading these objects; `into` is filled object after object, exactly."""

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
    def expect_reads(self, count: int) -> None:
        """Opens connections for this many reads that are about to start; see `Store`."""

    def stat(self, name: str) -> ObjectInfo: ...
    def stat_many(self, names: Sequence[str], missing_ok: bool) -> list[ObjectInfo | None]: ...
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
        content_encoding: str,
        part_bytes: int | None,
        expected_size_bytes: int | None,
        max_parts_in_flight: int,
        upload: str,
    ) -> ObjectWriter: ...
    def list_uploads(self, prefix: str) -> list[tuple[str, str, str]]:
        """Name, id and time of the multipart uploads that are neither completed nor aborted."""

    def abort_upload(self, name: str, upload_id: str) -> bool:
        """Gives a multipart upload up, with its parts. False if it was not there any more."""

    def remove(self, name: str, *, if_generation: str | None) -> None: ...
    def copy(
        self, source_name: str, source_generation: str, name: str, *, if_generation: str | None
    ) -> ObjectInfo: ...
    def rename(
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
    def presigned_url(self, name: str, *, method: str, expires_s: int) -> str: ...
    def not_compared(self, name: str, kind: str) -> None:
        """Logs, once for each host, that an object was read whole and compared with nothing."""

    def url_of(self, name: str) -> str: ...
    def written_sums(self, in_parts: bool) -> str | None: ...
    @property
    def tells_sums(self) -> bool: ...
    @property
    def expected_object_bytes(self) -> int: ...
    @property
    def useful_ahead(self) -> int: ...
    @property
    def useful_in_flight(self) -> int: ...

def expected_bytes(items: Sequence[str | ObjectInfo], unknown_bytes: int) -> int: ...

class IndexReader:
    """Reads the entries of an index, each from the store of its root.

    Args:
        index: the entries.
        stores: one for each of ``index.roots``, opened there.
    """

    def __init__(self, index: ObjectIndex, stores: Sequence[StoreHandle]) -> None: ...
    def start(
        self,
        indices: Sequence[int] | Buffer,
        into: Buffer | None = None,
        packed: PackedSequences | None = None,
        places: Buffer | None = None,
    ) -> Batch:
        """Starts reading these entries; `into` is filled entry after entry, exactly, or at
        `places`, which has an int64 for each. With `packed`, they are windows of that stream.
        """

    def members(
        self, skip_errors: bool, on_progress: Callable[[int], object] | None = None
    ) -> tuple[ObjectIndex, list[Exception], list[str]]:
        """Waits; the files in the entries, which are tars, the errors of those left out, and
        warnings of others. `on_progress` is called now and then with the number of tars that are
        done.
        """

    def start_shard(
        self,
        entry: int,
        *,
        first: int,
        offset: int,
        first_key: str,
        end: int | None,
        count: int | None,
        fields: Sequence[str],
        seed: int,
        epoch: int,
        verify: bool,
        asks_checksum: bool,
        likely_end_offset: int | None,
        piece_bytes: int,
        window: PieceWindow,
        max_ready_bytes: int,
    ) -> ShardRead:
        """Starts reading the samples of an entry, which is a shard."""

    @property
    def expected_object_bytes(self) -> int:
        """What to take for the size of an entry that has none; learnt while reading."""

    @property
    def useful_ahead(self) -> int:
        """How many entries to have under way or ready when they are taken in order."""

    @property
    def useful_in_flight(self) -> int:
        """How many entries to have under way."""
