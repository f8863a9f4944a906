"""Tables that name objects: CSV and Parquet files, columns, rows, data frames."""

from __future__ import annotations

import csv
import io
import logging
import operator
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace._base.columns import KINDS, in_one_kind, missing_value, odd_value
from headrace._base.errors import CorruptDataError, InvalidArgumentError
from headrace._base.options import require
from headrace._base.pyarrow import pyarrow_for
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._store.location import is_local, is_whole, object_at
from headrace._store.store import Store

__all__ = ["columns_of_table", "index_of_table"]

Columns = dict[str, list[Any]]

_logger = logging.getLogger("headrace")

# The usual spellings. "007", "1_000" and " 7" are texts, and so is an integer that int64 cannot
# hold, or that float64 would change.
_INTEGER = re.compile("0|-?[1-9][0-9]*")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)?(\.[0-9]+|(?<=[0-9])\.?)([eE][-+]?[0-9]+)?|nan|-?inf")
_BOOLEANS = {"True": True, "TRUE": True, "true": True}
_BOOLEANS |= {"False": False, "FALSE": False, "false": False}
_LONGEST_NUMBER = 100
_LARGEST_INTEGER = (1 << 63) - 1
_LARGEST_EXACT_FLOAT = 1 << 53
_PARQUET = b"PAR1"  # at its beginning and its end


def index_of_table(
    table: Any,
    url: str,
    label: str | None,
    ranges: tuple[str, str] | None,
    root: str | os.PathLike[str] | Store | None,
    check: bool,
    options: Mapping[str, Any],
) -> tuple[ObjectIndex, tuple[Store, ...]]:
    """Return the objects named in the column `url`, with the other columns, and their stores.

    `ranges` names the columns that say which part of its object an entry is. The column `label`
    is in the index, if the table has it. Another one that an index cannot hold is left out, and
    the log says so.
    """
    require(
        not (options and isinstance(root, Store)),
        f"{', '.join(f'{name}=' for name in options)}: options belong to the Store that is given",
    )
    require(
        ranges is None or len({url, *ranges}) == 3,
        f"url is {url!r}, begin and end are {ranges!r}; name three columns",
    )
    columns = columns_of_table(table, url, label, options)
    for name in (url, *(ranges or ())):
        require(
            name in columns,
            f"the table has no column {name!r}; it has {', '.join(map(repr, columns)) or 'none'}",
        )
    urls = [_text_of_url(i, url, each) for i, each in enumerate(columns.pop(url))]
    require(len(urls) > 0, "the table has no rows; there is nothing to read")
    store = None
    if root is not None:
        store = root if isinstance(root, Store) else Store(root, **options)
        below = store.url_of("")
        urls = [each if is_whole(each, store) else below + each for each in urls]
    else:
        odd = next((i for i, each in enumerate(urls) if not is_whole(each)), None)
        require(
            odd is None,
            f"row {odd} of the table has {url}={urls[odd or 0]!r}, which is not a whole URL or "
            "path; root= says where such names are",
        )
    roots = [] if store is None else [store.url_of("")]
    parts: dict[str, Any] = {} if ranges is None else _parts(columns, *ranges)
    kept = _kept(columns, label)

    def made(**known: Any) -> ObjectIndex:
        return ObjectIndex.from_urls(urls, roots=roots, columns=kept, **parts, **known)

    index = made()
    by_root = {} if store is None else {store.url_of("").rstrip("/"): store}
    stores = tuple(by_root.get(each.rstrip("/")) or Store(each, **options) for each in index.roots)
    if check:
        infos = _infos(index, stores)
        if ranges is None:
            index = _with_infos(index, infos, kept)
        else:
            # Of these, whole objects are compared with the checksum that comes with the answer.
            index = made(
                sizes_bytes=[info.size_bytes for info in infos],
                generations=[info.generation for info in infos],
            )
    return index, stores


def _parts(columns: Columns, begin: str, end: str) -> dict[str, Any]:
    """Take out the columns that say where entries begin and end in their objects."""
    begins = [_offset(i, begin, each) for i, each in enumerate(columns.pop(begin))]
    ends = [_offset(i, end, each) for i, each in enumerate(columns.pop(end))]
    for i, (first, last) in enumerate(zip(begins, ends, strict=True)):
        require(
            (first is None) == (last is None) and (first or 0) <= (last or 0),
            f"row {i} of the table has {begin}={first} and {end}={last}; a part begins before it "
            "ends, and a whole object has neither",
        )
    return {"begins": begins, "ends": ends}


def _offset(row: int, column: str, value: Any) -> int | None:
    if value is None or value != value or value == "":  # a data frame has NaN where there is none
        return None
    try:
        offset = int(value) if isinstance(value, float | str) else operator.index(value)
    except (TypeError, ValueError, OverflowError):
        offset = -1
    require(
        offset >= 0 and (offset == value or str(offset) == value),
        f"row {row} of the table has {column}={value!r}; it must be a number of bytes, or None",
    )
    return offset


def _text_of_url(row: int, column: str, value: Any) -> str:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    require(
        isinstance(text, str) and text != "",
        f"row {row} of the table has {column}={value!r}; it must be a URL, a path or a name",
    )
    return str(text)


def _kept(columns: Columns, label: str | None) -> Columns:
    """Return the columns that an index can hold, each in one type."""
    kept = {}
    for name, values in columns.items():
        if name == label and (row := missing_value(values)) is not None:
            raise InvalidArgumentError(
                f"row {row} of the table has {name}={values[row]!r}; labels must be {KINDS}, and "
                "every row needs one: leave the row out"
            )
        same = in_one_kind(values)
        if same is not None:
            kept[name] = same
            continue
        row = odd_value(values)
        told = f"row {row} of the table has {name}={values[row]!r}"
        require(name != label, f"{told}; labels must be {KINDS}")
        _logger.info(
            "the dataset has no column %r, because %s; columns must be %s", name, told, KINDS
        )
    return kept


def columns_of_table(
    table: Any, url: str, label: str | None, options: Mapping[str, Any]
) -> Columns:
    """Return the values of each column of what may be a table: a mapping that is one itself.

    In a CSV file, the column `url` stays texts, and no row may lack its `label`.
    """
    if isinstance(table, str | os.PathLike):
        return _of_file(os.fspath(table), url, label, options)
    if isinstance(table, Mapping):
        columns = {name: _values(column) for name, column in table.items()}
    elif hasattr(table, "to_pydict"):  # a table of Arrow
        columns = _of_arrow(table, (url, label))
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        _require_once(table.columns)
        columns = {name: _values(table[name]) for name in table.columns}
    elif isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table):
        names = list(table[0]) if table else []
        for i, row in enumerate(table):
            require(row.keys() == set(names), f"row {i} has other columns than the first")
        columns = {name: [row[name] for row in table] for name in names}
    else:
        raise InvalidArgumentError(
            f"the table is a {type(table).__name__}; it must be the path or URL of a CSV or "
            "Parquet file, a mapping of columns, a list of dicts, or a data frame"
        )
    _require_once(columns)
    lengths = {name: len(values) for name, values in columns.items()}
    require(len(set(lengths.values())) <= 1, f"the columns have unequal lengths: {lengths}")
    return {str(name): values for name, values in columns.items()}


def _require_once(names: Iterable[Any], file: str = "") -> None:
    """Refuse two columns of one name, of which nobody knows which is meant."""
    count = Counter(map(str, names))
    twice = next((name for name, n in count.items() if n > 1), None)
    require(twice is None, f"{file}the table has the column {twice!r} twice")


def _values(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _of_file(path: str, url: str, label: str | None, options: Mapping[str, Any]) -> Columns:
    store, name = object_at(path, **({} if is_local(path) else options))
    content = store.read(name)
    if memoryview(content)[:4] == _PARQUET or name.endswith(".parquet"):
        return _of_parquet(content, store.url_of(name), (url, label))
    try:
        text = content.bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{store.url_of(name)}: the table is no CSV in UTF-8, and no Parquet file: {error}"
        ) from error
    return _of_csv(text, url, label)


def _of_parquet(content: Any, file: str, wanted: Sequence[str | None]) -> Columns:
    pyarrow, parquet = pyarrow_for(f"{file}: a Parquet file")
    try:
        file_of_it = parquet.ParquetFile(pyarrow.BufferReader(content))
        names = file_of_it.schema_arrow.names
        table = file_of_it.read()
    except (pyarrow.ArrowException, OSError) as error:
        raise CorruptDataError(f"{file}: it is no whole Parquet file: {error}") from error
    _require_once(names, f"{file}: ")
    return _of_arrow(table, wanted)


def _of_arrow(table: Any, wanted: Sequence[str | None]) -> Columns:
    """Return the columns, without those whose values Python cannot have, unless they are wanted."""
    _require_once(table.column_names)
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = table.column(name).to_pylist()
        except (ArithmeticError, ValueError) as error:  # times that Python does not have
            require(name not in wanted, f"the column {name!r} of the table: {error}")
            _logger.info("the dataset has no column %r: %s", name, error)
    return columns


def _of_csv(text: str, url: str, label: str | None) -> Columns:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise InvalidArgumentError(f"line {reader.line_num} of the table: {error}") from error
    require(len(rows) > 0, "the table is empty: its first line must name its columns")
    header = rows.pop(0)
    for name in header:
        require(
            name == name.strip(),
            f"the table's header has the column {name!r}: write it without the space beside it",
        )
    named = [at for at, name in enumerate(header) if name]
    _require_once([header[at] for at in named])
    if len(named) < len(header):  # such as the index that pandas writes
        _logger.info("a column of the table has no name, and was left out")
    for i, row in enumerate(rows):
        require(
            len(row) == len(header),
            f"row {i} of the table has {len(row)} values, and its header {len(header)}",
        )
        require(
            label not in header or row[header.index(label)] != "",
            f"row {i} of the table has no {label}",
        )
    columns = {header[at]: [row[at] for row in rows] for at in named}
    return {name: texts if name == url else _values_of(texts) for name, texts in columns.items()}


def _values_of(texts: list[str]) -> list[Any]:
    """Return booleans or numbers if all texts are these in their usual spelling, else the texts."""
    if all(text in _BOOLEANS for text in texts):
        return [_BOOLEANS[text] for text in texts]
    if not all(len(text) <= _LONGEST_NUMBER and _FLOAT.fullmatch(text) for text in texts):
        return texts
    integers = [int(text) for text in texts if _INTEGER.fullmatch(text)]
    largest = max(map(abs, integers), default=0)
    if len(integers) == len(texts):
        return integers if largest <= _LARGEST_INTEGER else list(texts)
    return [float(text) for text in texts] if largest <= _LARGEST_EXACT_FLOAT else texts


def _by_root(index: ObjectIndex) -> list[list[int]]:
    """Return the numbers of the entries below each of the index's roots."""
    numbers: dict[str, list[int]] = {root.rstrip("/"): [] for root in index.roots}
    for i in range(len(index)):
        numbers[index.url(i).removesuffix(index.name(i)).rstrip("/")].append(i)
    return list(numbers.values())


def _infos(index: ObjectIndex, stores: Sequence[Store]) -> list[ObjectInfo]:
    """Ask the stores about the object of each entry, once about each object."""
    found = dict[int, ObjectInfo]()
    for numbers, store in zip(_by_root(index), stores, strict=True):
        names = dict.fromkeys(map(index.name, numbers))
        infos = dict(zip(names, store.stat_many(names), strict=True))
        found.update((i, infos[index.name(i)]) for i in numbers)
    return [found[i] for i in range(len(index))]


def _with_infos(
    index: ObjectIndex, infos: Sequence[ObjectInfo], columns: Mapping[str, Any]
) -> ObjectIndex:
    """Return the same index with all that its stores say of each object."""
    by_root = _by_root(index)
    parts = [
        ObjectIndex.from_objects([infos[i] for i in numbers], root=root)
        for root, numbers in zip(index.roots, by_root, strict=True)
    ]
    numbers_of_parts = [i for numbers in by_root for i in numbers]
    in_order = sorted(range(len(index)), key=numbers_of_parts.__getitem__)
    return ObjectIndex.concat(parts).select(in_order).with_columns(columns)
