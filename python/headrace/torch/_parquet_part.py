"""Rows of Parquet files as a part of what a `Loader` reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from headrace._base.errors import HeadraceError, add_note
from headrace._store.chosen import Chosen
from headrace.torch._parquet_files import GroupRead, GroupReads, RowGroups
from headrace.torch._parquet_rows import columns_of, joined, picked, rows_of
from headrace.torch._unit_reads import Held, MeanSizes, UnitPart
from headrace.torch._units import Places

__all__ = ["ParquetPart"]


class ParquetPart(UnitPart):
    """The rows of a `ParquetDataset`, of which a row group is a unit."""

    def __init__(
        self,
        groups: RowGroups,
        open_groups: int,
        transform: Callable[[Any], Any] | None,
        chosen: Chosen,
        name: str,
    ) -> None:
        self._groups, self._transform, self._chosen, self._name = groups, transform, chosen, name
        self._reads: GroupReads | None = None
        self._fingerprint = groups.fingerprint
        sizes = [groups.size_bytes(group) for group in range(len(groups))]
        window = -(-groups.firsts[-1] * open_groups // len(groups))
        super().__init__(
            MeanSizes(groups.files, groups.firsts, sizes),
            groups.firsts,
            window,
        )
        self.stores = groups.stores

    @property
    def has_columns(self) -> bool:
        """Whether a batch of its samples may be made of whole columns."""
        return self._transform is None

    def columns(self, samples: Sequence[Held]) -> dict[str, Any]:
        """Return the columns of these samples, which may be of several reads or come repeatedly."""
        of_reads: dict[int, tuple[_Read, list[int], list[int]]] = {}
        for place, each in enumerate(samples):
            read, at = each.value
            _, rows, places = of_reads.setdefault(id(read), (read, [], []))
            rows.append(at)
            places.append(place)
        tables = [picked(read.table, numpy.array(rows)) for read, rows, _ in of_reads.values()]
        places_of = [numpy.array(places) for _, _, places in of_reads.values()]
        return columns_of(joined(tables, places_of))

    def url(self, index: int) -> str:
        """Return the URL of the file of a row."""
        return self._groups.url(self._groups.group_of(index))

    def _member(self, _: int) -> None:
        return None

    def _opened(self) -> Any:
        return self._reads_here().opened()

    def _reads_here(self) -> GroupReads:
        if self._reads is None or not self._reads.is_valid:
            self._reads = GroupReads(self._groups)
        return self._reads

    def _open(self, unit: int, first: int) -> _Group:  # noqa: ARG002
        return _Group(self._reads_here().start(unit), self._groups.rows[unit])

    def _held(self, found: Sequence[tuple[Any, Places]], indices: Sequence[int]) -> list[Held]:
        read = _Read(*zip(*found, strict=True))
        return [Held((read, at), self, index) for at, index in enumerate(indices)]

    def _made(self, held: Held) -> Any:
        read, at = held.value
        row = read.row(at)
        if self._transform is None:
            return row
        try:
            return self._transform(row)
        except Exception as error:
            groups, group = self._groups, self._groups.group_of(held.index)
            add_note(
                error,
                f"in row {held.index - groups.firsts[group]} of row group "
                f"{groups.number_in_file[group]}, number {held.index} of the dataset",
            )
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_reads": None}

    def __repr__(self) -> str:
        return self._name


class _Read:
    """Rows that were read together, as one table, and each as a dict once somebody needs one."""

    def __init__(self, tables: Sequence[Any], places: Sequence[Places]) -> None:
        self.table = joined(tables, places)
        self._lock = threading.Lock()
        self._dicts: list[dict[str, Any]] | None = None

    def row(self, at: int) -> dict[str, Any]:
        with self._lock:
            if self._dicts is None:
                self._dicts = rows_of(self.table)
            return self._dicts[at]


class _Group:
    """A row group that is being read, and decoded by whoever takes rows of it first."""

    def __init__(self, read: GroupRead, rows: int) -> None:
        self._read = read
        self._left = rows
        self._lock = threading.Lock()
        self._table: Any = None
        self._error: HeadraceError | None = None

    def has(self, _: Places) -> bool:
        return True

    def ask(self, numbers: Places) -> bool:
        self._left -= len(numbers)
        return self._left <= 0

    def poll(self) -> bool:
        return self._table is not None or self._read.poll()

    def take(self, numbers: Places) -> Any:
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._table is None:
                try:
                    self._table = self._read.table()
                except HeadraceError as error:
                    self._error = error
                    raise
        return picked(self._table, numbers)

    def cancel(self) -> None:
        self._read.cancel()

    def close(self) -> None:
        self._read.drain()
