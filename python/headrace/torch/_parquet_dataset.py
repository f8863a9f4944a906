"""A dataset of rows of Parquet files."""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Unpack

import numpy

from headrace import _engine
from headrace._base.errors import HeadraceError
from headrace._base.on_error import OnError
from headrace._base.options import require, require_bytes
from headrace._base.pyarrow import pyarrow_for
from headrace._engine import ObjectIndex
from headrace._index.shards import ShardSource, shards_of
from headrace._store.chosen import OF_TABLES, Chosen
from headrace._store.keywords import OF_LOADERS, refuse_options
from headrace._store.settings import StoreOptions
from headrace._store.store import Store
from headrace.torch._arguments import Ranks, class_name, count, flag, function, seed_or_epoch
from headrace.torch._error_notes import about_sample
from headrace.torch._parquet_files import GroupRead, row_groups_of
from headrace.torch._parquet_part import ParquetPart
from headrace.torch._parquet_rows import columns_of, joined, picked, rows_of
from headrace.torch._part_stream import PartStream
from headrace.torch._pieces import Ahead
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._signatures import Fields, Item, Made, ParquetKeywords, overload
from headrace.torch._skipping import Skipped, Skipping
from headrace.torch._unit_reads import UnitPart
from headrace.torch._units import Places

__all__ = ["ParquetDataset"]

_SUFFIXES = (".parquet",)
_PREFETCH_BYTES = 256 << 20
_ROWS_AT_ONCE = 1024  # that become Python's values together
_MOST_REQUESTS_AHEAD = 128  # each has a place in the engine, of a local file a descriptor


class ParquetDataset(PartStream[Item]):
    """Rows of Parquet files, row group after row group, of the columns that are wanted.

    The footers of all files are read when it is made, many at the same time. Then only the chunks
    of the wanted columns are read, ahead of their use, and pyarrow decodes them. Use it with
    `Loader`, with torch's DataLoader, or in a plain ``for`` loop: the order is the same.

    **Rows or batches.** Without `batch_size`, an item is a row: a dict of Python's numbers, texts,
    bytes and so on, and of tensors for lists of numbers; a transform gets this dict. With
    `batch_size`, an item is a batch: a transform gets a ``pyarrow.Table``. Without a transform, it
    is a dict of tensors for columns of numbers and of lists for others. That is much faster, since
    no Python runs per row. Give ``batch_size=None`` to torch's DataLoader then.

    **Order.** With ``shuffle=True``, each epoch has an order of all row groups, and the rows of
    every `shuffle_groups` that follow each other are shuffled together. It depends on `seed` and
    the epoch alone. Each pass is of the next epoch, from 0 on; `set_epoch` names another one.

    **Ranks and workers** each take a piece of this order, and all ranks yield the same number of
    items. Where a piece begins amid a row group, both readers read it.

    **State.** `state_dict` records what was yielded. A reader that continues reads again the row
    groups of which rows are left. To continue with other ranks or workers, give `load_state_dict`
    the states of all readers.

    There is no ``len()``; `row_count` says how many rows there are.

    Examples:
        >>> dataset = ParquetDataset(
        ...     "gs://bucket/tables/*.parquet", columns=["image", "label"], shuffle=True
        ... )
        >>> dataset.row_count
        10
        >>> batches = ParquetDataset("gs://bucket/tables/", columns=["label"], batch_size=256)
        >>> for batch in DataLoader(batches, batch_size=None):
        ...     train(batch["label"])

    Args:
        source: the URL or path of a file, or of a folder, which stands for all objects below it
            whose names end with ``.parquet``, and which may itself be called so, as Spark writes
            it; a pattern with braces (``part-{000..099}.parquet``) or wildcards (``*``, ``?``,
            ``[a-z]``, ``**``); a `headrace.Store`; a `headrace.ObjectIndex` of files; or several
            of these.
        transform: a function of a row or, with `batch_size`, of a ``pyarrow.Table``.
        hidden: whether files are read, too, whose names have a part that begins with ``.`` or ``_``
            below the folder. Hive and Spark keep there what is no part of the table; a part such as
            ``_day=1`` is one. A pattern with such a part takes them, and so does a file's name.
        columns: the names of the columns that are wanted. Each file must have them, of one type.
            Default: all.
        batch_size: how many rows a batch has. Only the last one of a rank's epoch may have fewer.
        drop_last: whether that one is left out.
        shuffle: whether each epoch has an order of its own.
        seed: of that order and of the rows' own seeds; any integer from 0 to 2^63 - 1. Give the
            same to every rank.
        shuffle_groups: the rows of how many row groups are shuffled together, with `shuffle`. That
            many are in memory, decoded, and one more.
        uneven: how to treat a remainder of fewer rows than ranks: ``"drop"`` leaves it out,
            ``"pad"`` repeats the first rows of the epoch's order, ``"keep"`` gives it to the first
            ranks.
        on_error: ``"raise"``: a file or row group that cannot be read is an error, and so is what
            the transform raises. ``"skip"``: the file, row group, row or (with `batch_size`) batch
            is left out; batches are shorter without rows of theirs, and ranks may yield unequal
            numbers of rows. The log names each file that is left out when the dataset is made, then
            the first one of a pass, and says at its end how many rows there were. A function: it is
            called with the error, which has the file's ``url`` and, of a transform, the row's
            number as ``index``; what it raises ends the pass. Other errors are raised in any case,
            as by `Loader`.
        max_skipped: how many rows each reader may leave out in a pass; one more is a
            `CorruptDataError` that names the first ones. A row group counts as its rows. Default:
            1 % of the epoch's rows, and at least 10.
        prefetch_bytes: how much each process reads ahead of the row groups that are open. Default:
            256 MiB, and at most a quarter of the memory budget. Something is always read ahead.
        seed_generators: as for `ShardStream`.
        rank: which of `world_size` trainer processes this is; as for `ShardStream`.
        world_size: see `rank`.
        options: options of `headrace.Store`, if a URL is given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such file.
        CorruptDataError: a file is no Parquet file, or was cut.
        InvalidArgumentError: an argument cannot work; a file is encrypted or lacks a column; there
            are no rows.
        HeadraceError: pyarrow is not installed.
        TypeError: there is no such argument.
    """

    @overload
    def __init__(
        self: ParquetDataset[Fields],
        source: ShardSource | Iterable[ShardSource],
        transform: None = None,
        **keywords: Unpack[ParquetKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: ParquetDataset[Made],
        source: ShardSource | Iterable[ShardSource],
        transform: Callable[[Any], Made],
        **keywords: Unpack[ParquetKeywords],
    ) -> None: ...
    def __init__(
        self,
        source: ShardSource | Iterable[ShardSource],
        transform: Callable[[Any], Any] | None = None,
        *,
        hidden: bool = False,
        columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        drop_last: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        shuffle_groups: int = 4,
        uneven: Literal["drop", "pad", "keep"] = "drop",
        on_error: OnError = "raise",
        max_skipped: int | None = None,
        prefetch_bytes: int | None = None,
        seed_generators: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        refuse_options(type(self).__name__, options, ParquetDataset, OF_LOADERS)
        seed, shuffle = seed_or_epoch("seed", seed), flag("shuffle", shuffle)
        self._batch_size = (
            None if batch_size is None else count("batch_size", batch_size, minimum=1)
        )
        self._drop_last = flag("drop_last", drop_last)
        require(
            batch_size is not None or not drop_last,
            "drop_last leaves out a short batch, and there is no batch_size",
        )
        self._shuffle_groups = count("shuffle_groups", shuffle_groups, minimum=1)
        skipping = Skipping.of(on_error, max_skipped)
        if prefetch_bytes is not None:
            prefetch_bytes = require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        self._prefetch_bytes = prefetch_bytes
        self._seeds_generators = flag("seed_generators", seed_generators)
        function("transform", transform)
        self._transform = transform
        ranks = Ranks(rank, world_size)
        pyarrow_for("ParquetDataset")
        names = None if columns is None else _names(columns)
        self._chosen = Chosen(hidden=hidden, marks=OF_TABLES)
        files, stores = shards_of(source, None, options, self._chosen, _SUFFIXES)
        self._groups = row_groups_of(files, stores, names, on_error)
        self._generators: GlobalGenerators | None = None
        self._last: tuple[int, Any] | None = None  # the row group that `rows` has read last
        super().__init__(
            self._groups,
            self._groups.firsts,
            seed=seed,
            shuffle=shuffle,
            uneven=uneven,
            ranks=ranks,
            chosen=self._chosen,
            skipping=skipping,
        )

    @property
    def files(self) -> ObjectIndex:
        """The Parquet files."""
        return self._groups.files

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores of the files."""
        return self._groups.stores

    @property
    def row_count(self) -> int:
        """How many rows all files have together."""
        return self._groups.firsts[-1]

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of the wanted columns."""
        return self._groups.schema

    def rows(self, numbers: Sequence[int]) -> Any:
        """Read some rows by their numbers, which count on from file to file.

        Each row group with such a row is read and decoded whole, once per call, so that a single
        row costs as much as its row group. The row group that was read last is kept for the next
        call. To read many rows in random order, iterate.

        Args:
            numbers: the numbers; a negative one counts from the end.

        Returns:
            A list of items; with `batch_size`, one batch of these rows, whatever their number.

        Examples:
            >>> dataset = ParquetDataset("gs://bucket/tables/", columns=["label"])
            >>> [row["label"] for row in dataset.rows([0, 7, -1])]
            [0, 7, 9]

        Raises:
            IndexError: a number is out of range.
            HeadraceError: a row group cannot be read.
        """
        wanted = [self._number(each) for each in numbers]
        if not wanted:
            require(self._batch_size is None, "there are no rows in an empty batch")
            return []
        places: dict[int, list[int]] = {}
        for at, number in enumerate(wanted):
            places.setdefault(self._groups.group_of(number), []).append(at)
        taken, of_taken = [], []
        for group, table in self._tables(list(places)):
            own = numpy.array(places[group])
            rows = numpy.array(wanted)[own] - self._groups.firsts[group]
            taken.append(picked(table, rows))
            of_taken.append(own)
            self._last = group, table
        rows_there = joined(taken, of_taken)
        if self._batch_size is not None:
            return self._made_batch(rows_there, wanted[0], self.epoch)
        return list(self._items(rows_there, numpy.array(wanted), self.epoch))

    # ---- as a part of what a `Loader` reads

    def _as_part(self) -> ParquetPart:
        return ParquetPart(
            self._groups, self._shuffle_groups, self._transform, self._chosen, repr(self)
        )

    # ---- order

    def _ways(self) -> dict[str, Any]:
        return {
            "shuffle_groups": self._shuffle_groups if self._place.shuffle else 1,
            "uneven": self._uneven,
        }

    def _tell_more(self, lane: int, lanes: int, world_size: int) -> None:  # noqa: ARG002
        left_out = self._groups.left_out
        require(
            world_size == 1 or left_out == 0,
            f"{left_out} of the files were left out (on_error) when this rank opened them. Each of "
            f"the {world_size} ranks may have left out others and number rows otherwise, so that "
            "rows would be repeated and lost: give only files that can be read",
        )

    def _shares(self, total: int, lanes: int, world_size: int) -> Sequence[int]:
        """Deal whole batches to the workers of a rank, so that only its last one may be short."""
        size, workers = self._batch_size or 1, lanes // world_size
        quotas = []
        for lane in range(lanes):
            worker, rank = divmod(lane, world_size)
            rows = len(range(rank, total, world_size))
            batches = rows // size if self._drop_last else -(-rows // size)
            quota = len(range(worker, batches, workers)) * size
            if batches and (batches - 1) % workers == worker:
                quota -= max(0, batches * size - rows)
            quotas.append(quota)
        return quotas

    # ---- reading

    def _ahead(self, part: UnitPart) -> Ahead:  # noqa: ARG002
        groups = self._groups

        def cost(group: int) -> tuple[int, int]:
            return groups.size_bytes(group), len(groups.requests(group))

        return Ahead(self._at_once(), self._ahead_bytes(), _MOST_REQUESTS_AHEAD, cost)

    def _joined(self, found: Sequence[Any], places: Sequence[Places]) -> Any:
        return joined(found, places)

    def _lost(self, error: HeadraceError, number: int) -> tuple[int, Skipped]:
        group = self._groups.group_of(number)
        what = f"row group {self._groups.number_in_file[group]}"
        return group, Skipped(error, self._groups.url(group), part=what)

    def _at_once(self) -> int:
        """Return how many rows are taken out of the row groups together: whole batches."""
        size = self._groups.rows_at_once(self._ahead_bytes() // 4)
        batch_size = self._batch_size or 1
        return max(1, size // batch_size) * batch_size

    def _ahead_bytes(self) -> int:
        if self._prefetch_bytes is not None:
            return self._prefetch_bytes
        return min(_PREFETCH_BYTES, self._groups.opened()[0].budget_bytes // 4)

    def _tables(self, groups: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Read row groups ahead, and yield each with its table."""
        ahead: deque[GroupRead | int] = deque()
        following = iter(groups)
        most = self._ahead_bytes()
        try:
            while True:
                while not ahead or (
                    sum(_size(each) for each in ahead) < most
                    and sum(_request_count(each) for each in ahead) < _MOST_REQUESTS_AHEAD
                ):
                    group = next(following, None)
                    if group is None:
                        break
                    is_kept = self._last is not None and self._last[0] == group
                    ahead.append(group if is_kept else self._groups.start(group))
                if not ahead:
                    return
                first = ahead.popleft()
                if isinstance(first, int):
                    assert self._last is not None
                    yield self._last
                else:
                    yield first.group, first.table()
        finally:
            for each in ahead:
                if not isinstance(each, int):
                    each.drain()

    # ---- what is made of rows

    def _made_batch(self, values: Any, first: int, epoch: int, rule: Skipping | None = None) -> Any:
        if self._transform is None:
            return columns_of(values)
        return self._made(self._transform, values, first, epoch, values.num_rows, rule)

    def _items(
        self, values: Any, numbers: Places, epoch: int, rule: Skipping | None = None
    ) -> Iterator[Any]:
        for begin in range(0, len(numbers), _ROWS_AT_ONCE):
            items = rows_of(values.slice(begin, _ROWS_AT_ONCE))
            items.reverse()
            if self._transform is None:
                while items:
                    yield items.pop()
                continue
            for number in map(int, numbers[begin : begin + _ROWS_AT_ONCE]):
                yield self._made(self._transform, items.pop(), number, epoch, 1, rule)

    def _made(
        self,
        make: Callable[[Any], Any],
        given: Any,
        number: int,
        epoch: int,
        rows: int,
        rule: Skipping | None,
    ) -> Any:
        """Return what the transform makes of rows, the first of which has this number.

        It is a `Skipped`, if the rule lets these rows be left out because of an error.
        """
        handled = sys.exception()
        try:
            if not self._seeds_generators:
                return make(given)
            if self._generators is None:
                self._generators = GlobalGenerators()
            with self._generators as generators:
                [seed] = _engine.sample_seeds(self._place.seed, epoch, number, number + 1)
                generators.seed(seed)
                return make(given)
        except Exception as error:
            groups = self._groups
            group = groups.group_of(number)
            told = about_sample(error, groups.url(group))
            what = "in row" if rows == 1 else f"in a batch of {rows} rows that begins with row"
            groups.add_note_of_row(told, number, what)
            if rule is not None and rule.may_skip(error, handled):
                return Skipped(told, groups.url(group), number, samples=rows)
            if told is error:
                raise
            raise told from error

    def _number(self, number: int) -> int:
        at = operator.index(number)
        if not -self.row_count <= at < self.row_count:
            raise IndexError(f"row {at} is out of range: there are {self.row_count} rows")
        return at % self.row_count

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_last": None, "_generators": None}

    def __repr__(self) -> str:
        urls = ", ".join(repr(store.url) for store in self.stores)
        count = f"{len(self.files)} files{self._chosen.in_repr}"
        return f"{class_name(self)}({urls}, {count})"


def _names(columns: Any) -> tuple[str, ...]:
    names = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else ()
    require(
        len(names) > 0 and all(isinstance(name, str) for name in names),
        f"columns is {columns!r}; it must be a list of names, such as ['image', 'label']",
    )
    for name in names:
        require(names.count(name) == 1, f"columns has {name!r} twice")
    return names


def _size(ahead: GroupRead | int) -> int:
    return 0 if isinstance(ahead, int) else ahead.size_bytes


def _request_count(ahead: GroupRead | int) -> int:
    return 0 if isinstance(ahead, int) else ahead.request_count
