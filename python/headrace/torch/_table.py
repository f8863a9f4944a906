"""Tables that name objects: CSV files, columns, rows, data frames."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace import ObjectIndex
from headrace._errors import InvalidArgumentError
from headrace._location import is_local, is_whole, object_at
from headrace._options import require
from headrace._store import Store

__all__ = ["index_of_table"]

Columns = dict[str, list[Any]]


def index_of_table(
    table: Any,
    url: str,
    root: str | os.PathLike[str] | Store | None,
    check: bool,
    options: Mapping[str, Any],
) -> tuple[ObjectIndex, tuple[Store, ...]]:
    """Return the objects named in the column `url`, with the other columns, and their stores."""
    columns = _columns(table, options)
    require(
        url in columns,
        f"the table has no column {url!r}; it has {', '.join(map(repr, columns)) or 'none'}",
    )
    urls = [os.fspath(each) for each in columns.pop(url)]
    require(len(urls) > 0, "the table has no rows; there is nothing to read")
    store = None
    if root is not None:
        store = root if isinstance(root, Store) else Store(root, **options)
        below = store.url_of("")
        urls = [each if is_whole(each) else below + each for each in urls]
    else:
        odd = next((i for i, each in enumerate(urls) if not is_whole(each)), None)
        require(
            odd is None,
            f"row {odd} of the table has {url}={urls[odd or 0]!r}, which is not a whole URL or "
            "path; root= says where such names are",
        )
    roots = [] if store is None else [store.url_of("")]
    kept = {name: values for name, values in columns.items() if _can_be_kept(values)}
    index = ObjectIndex.from_urls(urls, roots=roots, columns=kept)
    by_root = {} if store is None else {store.url_of("").rstrip("/"): store}
    stores = tuple(by_root.get(each.rstrip("/")) or Store(each, **options) for each in index.roots)
    if check:
        index = _checked(index, stores, urls, roots, kept)
    return index, stores


def _columns(table: Any, options: Mapping[str, Any]) -> Columns:
    if isinstance(table, str | os.PathLike):
        return _of_csv(_text_of(os.fspath(table), options))
    if isinstance(table, Mapping):
        columns = {name: _values(column) for name, column in table.items()}
    elif hasattr(table, "to_pydict"):  # a table of Arrow
        columns = table.to_pydict()
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        columns = {name: _values(table[name]) for name in table.columns}
    elif isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table):
        names = list(table[0]) if table else []
        for i, row in enumerate(table):
            require(row.keys() == set(names), f"row {i} has other columns than the first")
        columns = {name: [row[name] for row in table] for name in names}
    else:
        raise InvalidArgumentError(
            f"the table is a {type(table).__name__}; it must be the path or URL of a CSV file, a "
            "mapping of columns, a list of dicts, or a data frame"
        )
    lengths = {name: len(values) for name, values in columns.items()}
    require(len(set(lengths.values())) <= 1, f"the columns have unequal lengths: {lengths}")
    return {str(name): values for name, values in columns.items()}


def _values(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _text_of(url: str, options: Mapping[str, Any]) -> str:
    store, name = object_at(url, **({} if is_local(url) else options))
    try:
        return store.read(name).bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{store.url_of(name)}: the table is no CSV in UTF-8: {error}"
        ) from error


def _of_csv(text: str) -> Columns:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise InvalidArgumentError(f"line {reader.line_num} of the table: {error}") from error
    require(len(rows) > 0, "the table is empty: its first line must name its columns")
    header = rows.pop(0)
    for i, row in enumerate(rows):
        require(
            len(row) == len(header),
            f"row {i} of the table has {len(row)} values, and its header {len(header)}",
        )
    return {name: _numbers([row[at] for row in rows]) for at, name in enumerate(header)}


def _numbers(texts: list[str]) -> list[Any]:
    """Return numbers if all texts are numbers in their usual spelling, else the texts."""
    kinds: tuple[Callable[[str], Any], ...] = (int, float)
    for kind in kinds:
        try:
            values = [kind(text) for text in texts]
        except ValueError:
            continue
        if kind is float or all(
            str(value) == text for value, text in zip(values, texts, strict=True)
        ):
            return values
    return texts


def _can_be_kept(values: list[Any]) -> bool:
    return any(all(isinstance(v, kind) for v in values) for kind in (int, float, str, bytes))


def _checked(
    index: ObjectIndex,
    stores: Sequence[Store],
    urls: Sequence[str],
    roots: Sequence[str],
    columns: Mapping[str, Any],
) -> ObjectIndex:
    """Return the same index with each object's size, generation and checksum from its store."""
    by_root: dict[str, list[int]] = {root.rstrip("/"): [] for root in index.roots}
    for i in range(len(index)):
        by_root[index.url(i).removesuffix(index.name(i)).rstrip("/")].append(i)
    sizes: list[int] = [-1] * len(index)
    generations = [""] * len(index)
    sums: list[int | None] = [None] * len(index)
    for (_, numbers), store in zip(by_root.items(), stores, strict=True):
        for i, info in zip(numbers, store.stat_many([index.name(i) for i in numbers]), strict=True):
            sizes[i], generations[i], sums[i] = info.size_bytes, info.generation, info.crc32c
    return ObjectIndex.from_urls(
        urls,
        roots=roots,
        sizes_bytes=sizes,
        generations=generations,
        checksums=sums,
        columns=columns,
    )
