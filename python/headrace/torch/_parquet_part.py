"""Rows of Parquet files as a part of what a `Loader` reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy
from numpy.typing import NDArray

from headrace._base.errors import HeadraceError, again
from headrace._store.chosen import Chosen
from headrace.torch._parquet_files import GroupRead, RowGroups
from headrace.torch._parquet_rows import columns_of, joined, picked, rows_of
from headrace.torch._pieces import Piece
from headrace.torch._unit_reads import Held, MeanSizes, UnitPart, UnitReads
from headrace.torch._units import Places, is_run

__all__ = ["ParquetPart", "TableReads"]


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

    @property
    def rows_at_once(self) -> int:
        """How many rows are best taken out of the row groups together."""
        return self._groups.rows_at_once()

    def start_tables(self, batches: Sequence[Sequence[int]]) -> list[TableReads]:
        """Begin to read the rows of some batches together; each is a table of its own then."""
        numbers: Places = numpy.concatenate([numpy.asarray(each, numpy.int64) for each in batches])
        if is_run(numbers):
            numbers = range(int(numbers[0]), int(numbers[-1]) + 1)
        together = _Together(self._start(numbers))
        ends = list(accumulate(map(len, batches), initial=0))
        return [TableReads(together, range(*span)) for span in pairwise(ends)]

    def url(self, index: int) -> str:
        """Return the URL of the file of a row."""
        return self._groups.url(self._groups.group_of(index))

    def _member(self, _: int) -> None:
        return None

    def _opened(self) -> Any:
        return self._groups.opened()

    def _open(self, unit: int, first: int) -> _Group:  # noqa: ARG002
        return _Group(self._groups.start(unit), self._groups.rows[unit])

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
            self._groups.add_note_of_row(error, held.index)
            raise

    def __repr__(self) -> str:
        return self._name


class _Together:
    """Rows of some batches that are being read. Thread: any."""

    def __init__(self, reads: UnitReads) -> None:
        self.reads = reads
        self._lock = threading.Lock()
        self._piece: Piece | None = None
        self._error: BaseException | None = None

    def piece(self) -> Piece:
        """Wait, and return the rows."""
        with self._lock:
            if self._piece is None and self._error is None:
                try:
                    self._piece = Piece(self.reads, joined)
                except BaseException as error:
                    self._error = error  # what was read can be taken once
            if self._piece is None:
                assert self._error is not None
                raise again(self._error)
            return self._piece


class TableReads:
    """The rows of a batch that are being read, beside those of others."""

    def __init__(self, together: _Together, places: range) -> None:
        self._together, self._places = together, places
        self._table: Any = None
        self._lost: dict[int, Exception] = {}

    def cancel(self) -> None:
        self._together.reads.cancel()

    def drain(self) -> None:
        """Cancel, and wait until the engine is done with it."""
        self._together.reads.drain()

    def poll(self, at_most_s: float) -> bool:
        """Return whether all is there."""
        return self._together.reads.poll(at_most_s)

    def take_lost(self) -> dict[int, Exception]:
        """Wait, and return the errors of rows that cannot be read, by their places in the batch."""
        piece, begin = self._together.piece(), self._places.start
        before = 0
        if piece.lost:
            lost = {at: piece.lost[at] for at in self._places if at in piece.lost}
            self._lost = {at - begin: again(error) for at, error in lost.items()}
            before = sum(at < begin for at in piece.lost)
        if piece.values is not None:
            self._table = piece.values.slice(begin - before, len(self._places) - len(self._lost))
        return dict(self._lost)

    def columns(self, places: Sequence[int], times: int) -> dict[str, Any]:
        """Return the columns of the rows at these places of the batch, so many times over."""
        table, self._table = self._table, None
        if self._lost or times > 1:
            there = [at for at in range(len(self._places)) if at not in self._lost]
            table = picked(table, numpy.tile(numpy.searchsorted(there, places), times))
        return columns_of(table)


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
            if self._table is None and self._error is None:
                try:
                    self._table = self._read.table()
                except HeadraceError as error:
                    self._error = error
            if self._error is not None:
                raise again(self._error)
        return picked(self._table, numbers)

    def is_there(self, numbers: Places) -> NDArray[numpy.bool_]:
        return numpy.zeros(len(numbers), bool)

    def cancel(self) -> None:
        self._read.cancel()

    def close(self) -> None:
        self._read.drain()
