"""Parquet files: the row groups in them, what is read for each, and how it is decoded."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from torch.utils.data import get_worker_info

from headrace import _engine
from headrace._base.errors import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    add_note,
    with_url,
)
from headrace._base.on_error import OnError
from headrace._base.options import require
from headrace._base.pyarrow import pyarrow_for
from headrace._engine import ObjectIndex
from headrace._files.reader_io import place_of
from headrace._index.shards import tell_errors
from headrace._store.entry_reads import EntryReads
from headrace._store.store import Store
from headrace.torch._here import Here

__all__ = ["GroupRead", "RowGroups", "row_groups_of"]

WHAT = "ParquetDataset"
_TAIL_BYTES = 64 << 10  # read of each file at first; most footers are smaller
_FILES_AT_ONCE = 64
_ENDING = 8  # the footer's length and the magic number behind it
_LEAST_FILE_BYTES = 12
_MAX_REQUEST_BYTES = 8 << 20  # for several column chunks; the engine cuts larger ones into pieces
_KEPT_FOOTER_BYTES = 16 << 20
# That are taken out of small row groups together.
_ROWS_AT_ONCE, _BYTES_AT_ONCE, _GROUPS_AT_ONCE = 1024, 64 << 10, 32
_SMALL_ROWS_AT_ONCE, _SMALL_FACTOR = 16 << 10, 16  # of a row group, where they are in few bytes


class RowGroups:
    """The row groups with rows of some files, and which ranges of these are read for each.

    They are numbered file by file, and so are their rows. Per row group, these are some 50 bytes.
    """

    def __init__(
        self,
        files: ObjectIndex,
        stores: Sequence[Store],
        schema: Any,
        found: Iterable[tuple[int, str, _Found]],
        left_out: int,
    ) -> None:
        self.files = files
        self.left_out = left_out
        """How many of the files could not be read."""
        self.stores: tuple[Store, ...] = ()
        self.schema = schema
        """Of the columns that are wanted, as pyarrow has it."""
        self.footers = _Footers()
        self.rows, self.file_of, self.number_in_file = array("q"), array("q"), array("q")
        self._first_entry = array("q")
        self._footer_entry: dict[int, int] = {}
        urls: list[str] = []
        begins, ends, sizes = array("q"), array("q"), array("q")
        generations: list[str] = []

        def add(file: int, generation: str, begin: int, end: int) -> None:
            urls.append(files.url(file))
            generations.append(generation)
            sizes.append(files[file].size_bytes or 0)
            begins.append(begin)
            ends.append(end)

        for file, generation, each in found:
            for number, rows, requests in each.groups:
                self.file_of.append(file)
                self.number_in_file.append(number)
                self.rows.append(rows)
                self._first_entry.append(len(urls))
                for begin, end in requests:
                    add(file, generation, begin, end)
            self._footer_entry[file] = len(urls)
            add(file, generation, each.footer_begin, files[file].size_bytes or 0)
            self.footers.put(file, each.metadata)
        # Behind the requests for a row group lie those for the next one, or a footer.
        require(len(self.rows) > 0, "there are no rows: none of the Parquet files has any")
        self._entry_bytes = array(
            "q", (end - begin for begin, end in zip(begins, ends, strict=True))
        )
        self.entries = ObjectIndex.from_urls(
            urls, roots=files.roots, sizes_bytes=sizes, generations=generations,
            begins=begins, ends=ends,
        )  # fmt: skip
        of_root = dict(zip(files.roots, stores, strict=True))
        self.stores = tuple(of_root[root] for root in self.entries.roots)
        self.firsts = array("q", accumulate(self.rows, initial=0))
        self._here: Here | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that the number of a row depends on."""
        hashed = hashlib.sha256(self.files.fingerprint.encode())
        for each in (self.rows, self.file_of, self.number_in_file):
            hashed.update(each.tobytes())
        return hashed.hexdigest()

    def url(self, group: int) -> str:
        """Return the URL of the file of a row group."""
        return self.files.url(self.file_of[group])

    def name(self, group: int) -> str:
        """Return what messages call a row group."""
        return f"{self.url(group)}: row group {self.number_in_file[group]}"

    def group_of(self, row: int) -> int:
        """Return the row group of a row."""
        return bisect_right(self.firsts, row) - 1

    def add_note_of_row(self, error: BaseException, row: int, what: str = "in row") -> None:
        """Let an error say at which row it was raised, or of what that begins there."""
        group = self.group_of(row)
        add_note(
            error,
            f"{what} {row - self.firsts[group]} of row group {self.number_in_file[group]}, number "
            f"{row} of the dataset",
        )

    def requests(self, group: int) -> range:
        """Return the entries that are read for a row group."""
        first = self._first_entry[group]
        is_last = group + 1 == len(self.rows) or self.file_of[group + 1] != self.file_of[group]
        end = self._footer_entry[self.file_of[group]] if is_last else self._first_entry[group + 1]
        return range(first, end)

    def footer(self, group: int) -> int:
        """Return the entry that is the footer of a row group's file."""
        return self._footer_entry[self.file_of[group]]

    def rows_at_once(self, most_bytes: int = _BYTES_AT_ONCE) -> int:
        """Return how many rows are best taken out of the row groups together, of about so many
        bytes, if one row group has no more.
        """
        rows = self.firsts[-1]
        in_bytes = min(_BYTES_AT_ONCE, most_bytes) * rows // max(self._stored_bytes, 1)
        of_group = -(-rows // len(self))
        most = max(_ROWS_AT_ONCE, min(_SMALL_ROWS_AT_ONCE, _SMALL_FACTOR * in_bytes))
        return min(most, max(of_group, min(in_bytes, _GROUPS_AT_ONCE * of_group)))

    @cached_property
    def _stored_bytes(self) -> int:
        return sum(map(self.size_bytes, range(len(self))))

    def size_bytes(self, group: int) -> int:
        """Return how many bytes are read for a row group."""
        return sum(self._entry_bytes[entry] for entry in self.requests(group))

    def opened(self) -> tuple[_engine.Engine, _engine.IndexReader]:
        """Return the engine and the reader of this process."""
        here = self._here
        if here is None or not here.is_valid:
            here = self._here = Here(self.stores, self.entries)
        return here.opened()

    def start(self, group: int) -> GroupRead:
        """Begin to read a row group, and the footer of its file if that is no longer known."""
        metadata = self.footers.get(self.file_of[group])
        entries = list(self.requests(group))
        if metadata is None:
            entries.append(self.footer(group))
        batch = self.opened()[1].start(entries)
        return GroupRead(self, group, EntryReads(batch, self.entries, entries), metadata)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None}


class GroupRead:
    """A row group that is being read."""

    def __init__(self, groups: RowGroups, group: int, reads: EntryReads, metadata: Any) -> None:
        self.group = group
        self.size_bytes = groups.size_bytes(group)
        self.request_count = len(groups.requests(group))
        self._groups, self._reads, self._metadata = groups, reads, metadata

    def poll(self) -> bool:
        """Return whether its bytes are there."""
        return self._reads.poll(0)

    def cancel(self) -> None:
        """Ask for an early end."""
        self._reads.cancel()

    def drain(self) -> None:
        """Cancel, and wait until the engine is done with it."""
        self._reads.drain()

    def table(self) -> Any:
        """Wait, and return the rows as a ``pyarrow.Table``.

        pyarrow takes the bytes from where the engine has put them; they are free afterwards.

        Raises:
            CorruptDataError: what was read cannot be decoded.
            HeadraceError: it could not be read.
        """
        pyarrow, parquet = pyarrow_for(WHAT)
        groups, group = self._groups, self.group
        pieces = [pyarrow.py_buffer(each) for each in self._reads.take(return_errors=False)]
        metadata = self._metadata
        try:
            if metadata is None:
                metadata = parquet.read_metadata(pyarrow.BufferReader(pieces.pop()))
                groups.footers.put(groups.file_of[group], metadata)
            begins = [
                (groups.entries.range(entry) or (0, 0))[0] for entry in groups.requests(group)
            ]
            file = parquet.ParquetFile(
                pyarrow.PythonFile(_Pieces(begins, pieces), mode="r"),
                metadata=metadata,
                pre_buffer=False,  # all of it is here
                page_checksum_verification=True,
            )
            read = file.read_row_group(
                groups.number_in_file[group],
                columns=groups.schema.names,
                # A single column is decoded no faster by a thread of pyarrow's own.
                use_threads=len(groups.schema) > 1 and get_worker_info() is None,
            )
            # The schema's order, and plain values where a file has dictionaries.
            table = read.select(groups.schema.names).cast(groups.schema)
            if table.num_rows != groups.rows[group]:
                raise OSError(f"it has {table.num_rows} rows instead of {groups.rows[group]}")
            return table
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if _is_of_the_machine(error):
                raise
            raise with_url(
                CorruptDataError(f"{groups.name(group)} cannot be decoded: {error}"),
                groups.url(group),
            ) from error


def _is_of_the_machine(error: Exception) -> bool:
    """Return whether an error says nothing about the data, such as too many open files.

    pyarrow's own errors about data are also of the type OSError, but without a number; and ours
    about an object have the number of what they stand for.
    """
    return (
        isinstance(error, OSError)
        and not isinstance(error, HeadraceError)
        and error.errno is not None
    )


class _Pieces:
    """A file of which some pieces are there, for pyarrow."""

    closed = False

    def __init__(self, begins: list[int], pieces: list[Any]) -> None:
        self._begins, self._pieces = begins, pieces
        self._position = 0

    def read(self, size: int = -1) -> Any:
        at = bisect_right(self._begins, self._position) - 1
        offset = self._position - self._begins[at] if at >= 0 else 0
        if at < 0 or size < 0 or offset + size > self._pieces[at].size:
            raise OSError(
                f"its data is to be at byte {self._position}, where the footer names no column "
                f"chunk of {size} bytes"
            )
        self._position += size
        return self._pieces[at].slice(offset, size)

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = place_of(self, position, whence, self._end())
        return self._position

    def tell(self) -> int:
        return self._position

    def _end(self) -> int:
        return self._begins[-1] + int(self._pieces[-1].size)

    def size(self) -> int:
        return self._end()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class _Footers:
    """The footers of files that were used last, as pyarrow has them; not for other processes."""

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}
        self._size_bytes = 0

    def get(self, file: int) -> Any:
        """Return the footer of a file; None: it is not there."""
        metadata = self._kept.pop(file, None)
        if metadata is not None:
            self._kept[file] = metadata
        return metadata

    def put(self, file: int, metadata: Any) -> None:
        before = self._kept.pop(file, None)
        self._size_bytes += metadata.serialized_size - (before.serialized_size if before else 0)
        self._kept[file] = metadata
        while self._size_bytes > _KEPT_FOOTER_BYTES and len(self._kept) > 1:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._size_bytes -= oldest.serialized_size

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": {}, "_size_bytes": 0}


class _Found:
    """What the footer of a file says."""

    def __init__(self, url: str, metadata: Any, footer_begin: int, wanted: _Wanted) -> None:
        self.metadata = metadata
        self.footer_begin = footer_begin
        self.groups: list[tuple[int, int, list[tuple[int, int]]]] = []
        """Of each row group: its number, its rows, and the ranges to read."""
        # A file without rows says little about its columns: pandas, for one, gives them no types.
        leaves = wanted.leaves(url, metadata) if metadata.num_rows > 0 else []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows == 0:
                continue
            chunks = [_chunk(url, group.column(leaf)) for leaf in leaves]
            try:
                requests, _ = _engine.plan_column_chunks(
                    chunks, footer_begin, wanted.max_gap_bytes, _MAX_REQUEST_BYTES
                )
            except CorruptDataError as error:
                raise with_url(
                    CorruptDataError(f"{url}: row group {number}: {error}: it is damaged"), url
                ) from error
            self.groups.append((number, group.num_rows, requests))


def _chunk(url: str, column: Any) -> tuple[int, int]:
    """Return the range of a column chunk."""
    require(
        not column.file_path,
        f"{url}: its column {column.path_in_schema!r} lies in another file, {column.file_path}, "
        "which headrace does not read",
    )
    begin = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < begin:
        begin = column.dictionary_page_offset
    end = begin + column.total_compressed_size
    return (begin, end) if 0 <= begin <= end else (0, 0)  # which the planner refuses


class _Wanted:
    """The columns that are wanted, and their schema, which the first file gives to all others."""

    def __init__(self, columns: Sequence[str] | None, max_gap_bytes: int) -> None:
        self._columns = columns
        self.max_gap_bytes = max_gap_bytes
        self.schema: Any = None
        self._first = ""

    def leaves(self, url: str, metadata: Any) -> list[int]:
        """Return which column chunks of each row group are wanted."""
        schema = self._schema(url, metadata)
        if self.schema is None:
            self.schema, self._first = schema, url
        for mine, here in zip(self.schema, schema, strict=True):
            require(
                mine.type == here.type,
                f"{url}: its column {mine.name!r} is {here.type}, and that of {self._first} is "
                f"{mine.type}: give files of one type, or columns= without it",
            )
        paths = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
        names = tuple(schema.names)
        begins = tuple(name + "." for name in names)
        return [leaf for leaf, path in enumerate(paths) if path in names or path.startswith(begins)]

    def _schema(self, url: str, metadata: Any) -> Any:
        pyarrow, _ = pyarrow_for(WHAT)
        whole = metadata.schema.to_arrow_schema()
        names = whole.names if self._columns is None else list(self._columns)
        if self._columns is None and self.schema is not None:
            names = self.schema.names
            more = sorted(set(whole.names) - set(names))
            require(
                not more,
                f"{url}: it has the column {more[:1]}, which {self._first} has not: give columns= "
                "that all files have",
            )
        fields = []
        for name in names:
            found = whole.get_all_field_indices(name)
            require(
                len(found) == 1,
                f"{url}: it has "
                + (f"{len(found)} columns" if found else "no column")
                + f" {name!r}; its columns are {', '.join(map(repr, whole.names))}",
            )
            kind = whole.field(found[0]).type
            fields.append(pyarrow.field(name, _plain(kind)))
        require(len(fields) > 0, f"{url}: it has no columns")
        return pyarrow.schema(fields)


def _plain(kind: Any) -> Any:
    """Return the type with the same values that does not depend on the library that wrote them.

    Files hold texts, bytes and lists alike, whatever the size of the offsets that their writer had
    in memory; a hint of it in the footer makes other types of them. Large offsets hold all values,
    and pyarrow takes no rows of views.
    """
    pyarrow, _ = pyarrow_for(WHAT)
    types = pyarrow.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pyarrow.large_string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pyarrow.large_binary()
    if isinstance(kind, pyarrow.ListType | pyarrow.LargeListType) or _is_list_view(kind):
        return pyarrow.large_list(_plain(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(_plain(kind.value_type), kind.list_size)
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pyarrow.struct([field.with_type(_plain(field.type)) for field in fields])
    if types.is_map(kind):
        return pyarrow.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


def _is_list_view(kind: Any) -> bool:
    types = pyarrow_for(WHAT)[0].types
    return any(
        name in vars(types) and vars(types)[name](kind)
        for name in ("is_list_view", "is_large_list_view")  # of newer pyarrow alone
    )


def row_groups_of(
    files: ObjectIndex,
    stores: Sequence[Store],
    columns: Sequence[str] | None,
    on_error: OnError,
) -> RowGroups:
    """Read the footers of Parquet files, many at the same time, and return their row groups.

    Raises:
        CorruptDataError: a file is no Parquet file, or was cut.
        InvalidArgumentError: a file is encrypted or lacks a column; there are no rows.
    """
    gap = stores[0]._settings.parallel.max_gap_bytes
    wanted = _Wanted(columns, 0 if gap is None else gap)
    errors: list[Exception] = []

    def found() -> Iterator[tuple[int, str, _Found]]:
        for file, tail in _tails(files, stores):
            try:
                if isinstance(tail, Exception):
                    raise tail
                made = _found(files, file, tail, wanted)
            except HeadraceError as error:
                if on_error == "raise":
                    raise
                errors.append(error)
            else:
                yield file, tail.generation, made

    every = list(found())
    tell_errors(errors, on_error)
    require(len(every) > 0, f"there are no rows: all {len(errors)} files were left out (on_error)")
    return RowGroups(files, stores, wanted.schema, every, len(errors))


def _found(files: ObjectIndex, file: int, tail: Any, wanted: _Wanted) -> _Found:
    pyarrow, parquet = pyarrow_for(WHAT)
    url, size = files.url(file), files[file].size_bytes or 0
    try:
        metadata = parquet.read_metadata(pyarrow.BufferReader(pyarrow.py_buffer(tail)))
        return _Found(url, metadata, size - _ENDING - _footer_bytes(url, size, tail), wanted)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # names are decoded
        if isinstance(error, HeadraceError) or _is_of_the_machine(error):
            raise
        raise with_url(
            CorruptDataError(f"{url}: its footer cannot be read: {error}"), url
        ) from error


def _tails(files: ObjectIndex, stores: Sequence[Store]) -> Iterator[tuple[int, Any]]:
    """Yield of each file its last bytes, with the whole footer, or an error."""
    under_way: deque[tuple[list[int], EntryReads | None]] = deque()

    def start(numbers: Sequence[int], tail_bytes: Sequence[int]) -> EntryReads:
        sizes = [files[file].size_bytes or 0 for file in numbers]
        index = ObjectIndex.from_urls(
            [files.url(file) for file in numbers],
            roots=files.roots,
            sizes_bytes=sizes,
            generations=[files[file].generation for file in numbers],
            begins=[max(0, size - tail) for size, tail in zip(sizes, tail_bytes, strict=True)],
            ends=sizes,
        )
        of_root = dict(zip(files.roots, stores, strict=True))
        opened = [of_root[root]._open()[1] for root in index.roots]
        every = range(len(index))
        return EntryReads(_engine.IndexReader(index, opened).start(every), index, every)

    def finish(numbers: list[int], reads: EntryReads | None) -> Iterator[tuple[int, Any]]:
        tails: list[Any] = [] if reads is None else reads.take(return_errors=True)
        short: dict[int, int] = {}
        for at, (file, tail) in enumerate(zip(numbers, tails, strict=True)):
            if isinstance(tail, Exception):
                continue
            try:
                length = _footer_bytes(files.url(file), files[file].size_bytes or 0, tail)
            except HeadraceError as error:
                tails[at] = error
            else:
                if length + _ENDING > len(tail):
                    short[at] = length + _ENDING
        if short:
            again = start([numbers[at] for at in short], list(short.values()))
            for at, tail in zip(short, again.take(return_errors=True), strict=True):
                tails[at] = tail
        yield from zip(numbers, tails, strict=True)

    try:
        for first in range(0, len(files), _FILES_AT_ONCE):
            numbers = []
            for file in range(first, min(first + _FILES_AT_ONCE, len(files))):
                size = files[file].size_bytes or 0
                if size < _LEAST_FILE_BYTES:
                    error = CorruptDataError(
                        f"{files.url(file)}: it has {size} bytes, and no Parquet file is so short: "
                        "it is none, or was cut"
                    )
                    yield file, with_url(error, files.url(file))
                else:
                    numbers.append(file)
            if numbers:
                under_way.append((numbers, start(numbers, [_TAIL_BYTES] * len(numbers))))
            if len(under_way) > 1:
                yield from finish(*under_way.popleft())
        while under_way:
            yield from finish(*under_way.popleft())
    finally:
        for _, reads in under_way:
            if reads is not None:
                reads.drain()


def _footer_bytes(url: str, size_bytes: int, tail: Any) -> int:
    """Return how long a file's footer is, of which `tail` has the end."""
    ending = bytes(memoryview(tail)[-_ENDING:])
    error: HeadraceError
    if ending[4:] == b"PARE":
        error = InvalidArgumentError(
            f"{url}: its footer is encrypted, and headrace reads Parquet files that are not"
        )
        raise with_url(error, url)
    length = int.from_bytes(ending[:4], "little")
    if ending[4:] != b"PAR1":
        error = CorruptDataError(
            f"{url}: it does not end as Parquet files do (PAR1): it is none, or was cut"
        )
        raise with_url(error, url)
    if length + _LEAST_FILE_BYTES > size_bytes:
        error = CorruptDataError(
            f"{url}: its footer is to have {length} bytes, and the file has {size_bytes}: it was "
            "cut, or is damaged"
        )
        raise with_url(error, url)
    return length
