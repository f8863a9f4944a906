"""A dataset of rows of Parquet files."""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, Unpack

import numpy

from headrace import _engine
from headrace._base.errors import CancelledError, add_note
from headrace._base.on_error import OnError
from headrace._base.options import require, require_bytes
from headrace._base.pyarrow import pyarrow_for
from headrace._engine import ObjectIndex
from headrace._index.shards import ShardSource, shards_of
from headrace._store.chosen import OF_TABLES, Chosen
from headrace._store.keywords import refuse_options
from headrace._store.settings import StoreOptions
from headrace._store.store import Store
from headrace.torch._arguments import Ranks, class_name, count, flag, seed_or_epoch
from headrace.torch._error_notes import about_sample
from headrace.torch._left import Left
from headrace.torch._parquet_files import GroupRead, GroupReads, row_groups_of
from headrace.torch._parquet_part import ParquetPart
from headrace.torch._parquet_rows import columns_of, joined, picked, rows_of
from headrace.torch._part_stream import PartStream, Start
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._signatures import Item, Made, ParquetKeywords, overload
from headrace.torch._skipping import Skipped, Skipping
from headrace.torch._unit_reads import UnitReads
from headrace.torch._units import Places, UnitsDrawn

__all__ = ["ParquetDataset"]

_SUFFIXES = (".parquet",)
_PREFETCH_BYTES = 256 << 20
# That are taken out of small row groups together.
_ROWS_AT_ONCE, _BYTES_AT_ONCE, _GROUPS_AT_ONCE = 1024, 64 << 10, 32
_SMALL_ROWS_AT_ONCE, _SMALL_FACTOR = 16 << 10, 16  # of a row group, where they are in few bytes
_MOST_REQUESTS_AHEAD = 128  # each has a place in the engine, of a local file a descriptor
_INSTEAD = {
    "batch": "it is called batch_size",
    "collate_fn": "with batch_size, the transform gets all rows of a batch as a pyarrow.Table",
    "filters": "a transform of batches may return any rows of a pyarrow.Table",
    "num_workers": "torch's DataLoader(dataset, num_workers=...) has workers",
    "shuffle_buffer": "shuffle_groups says how many row groups are mixed",
    "shuffle_window": "shuffle_groups says how many row groups are mixed",
    "split": "the first argument is the URL, a pattern, or several of them",
    "streaming": "rows are read while they are needed",
}


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
        self: ParquetDataset[dict[str, Any]],
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
        refuse_options(type(self).__name__, options, ParquetDataset, _INSTEAD)
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
        require(
            transform is None or callable(transform),
            f"transform is {transform!r}; it must be callable",
        )
        self._transform = transform
        ranks = Ranks(rank, world_size)
        pyarrow_for("ParquetDataset")
        names = None if columns is None else _names(columns)
        self._chosen = Chosen(hidden=hidden, marks=OF_TABLES)
        files, stores = shards_of(source, None, options, self._chosen, _SUFFIXES)
        self._groups = row_groups_of(files, stores, names, on_error)
        self._reads: GroupReads | None = None
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
        return list(self._made_rows(rows_there, numpy.array(wanted), self.epoch))

    # ---- as a part of what a `Loader` reads

    def _sample_count(self) -> int:
        return self.row_count

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

    def _first_base(self) -> Left:
        return Left(((0, self.row_count),))

    def _base_of(self, state: Any) -> Left:
        return Left.from_state(state, self.row_count)

    def _left_of(self, starts: Sequence[Start]) -> Left:
        gone, base = [], starts[0].base
        assert isinstance(base, Left)
        for each in starts:
            begin, _ = self._share(each)
            gone.append((begin, begin + each.yielded))
        return base.without(gone)

    def _share(self, start: Start) -> tuple[int, int]:
        """Return the places of a reader's share in what is left for all."""
        assert isinstance(start.base, Left)
        quotas = self._quotas(start, len(start.base))
        begin, size = sum(quotas[: start.lane]), quotas[start.lane]
        require(
            start.yielded <= size,
            f"the state is of a reader that has yielded {start.yielded} of its {size} rows; that "
            "cannot be",
        )
        return begin, begin + size

    def _reader_from(self, start: Start) -> _Reader:
        return _Reader(start)

    def _tell_more(self, lane: int, lanes: int, world_size: int) -> None:  # noqa: ARG002
        left_out = self._groups.left_out
        require(
            world_size == 1 or left_out == 0,
            f"{left_out} of the files were left out (on_error) when this rank opened them. Each of "
            f"the {world_size} ranks may have left out others and number rows otherwise, so that "
            "rows would be repeated and lost: give only files that can be read",
        )

    def _sharing(self) -> tuple[int, ...]:
        return self._batch_size or 1, int(self._drop_last)

    def _shares(
        self, total: int, lanes: int, world_size: int, sharing: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Deal whole batches to the workers of a rank, so that only its last one may be short."""
        size, drop_last = sharing
        workers = lanes // world_size
        quotas = []
        for lane in range(lanes):
            worker, rank = divmod(lane, world_size)
            rows = len(range(rank, total, world_size))
            batches = rows // size if drop_last else -(-rows // size)
            quota = len(range(worker, batches, workers)) * size
            if batches and (batches - 1) % workers == worker:
                quota -= max(0, batches * size - rows)
            quotas.append(quota)
        return tuple(quotas)

    # ---- reading

    def _iterate(self, reader: _Reader) -> Iterator[Item]:
        fork_epoch = _engine.fork_epoch  # the interpreter's end takes modules apart before us
        forks = fork_epoch()
        start, rule = reader.start, self._skipping
        self._tell(start.lane, start.lanes, start.world_size)
        skips, told = self._skips(start), set[int]()
        pieces = _Pieces(self, start)
        is_barren = True

        def made_of(
            piece: _Piece, handled: BaseException | None
        ) -> Iterator[tuple[int, Iterator[Any]]]:
            """Yield items, and how many rows are done with each."""
            there, rows_made = piece.there, None
            if self._batch_size is None:
                rows_made = self._made_rows(piece.table, there, start.epoch, rule)
                if not piece.lost:
                    yield 1, rows_made
                    return
            size, begin = self._batch_size or 1, 0
            for at in range(0, len(piece.numbers), size):
                rows = range(at, min(at + size, len(piece.numbers)))
                lost = [place for place in rows if place in piece.lost] if piece.lost else ()
                for place in lost:
                    error, number = piece.lost[place], int(piece.numbers[place])
                    if not rule.may_skip(error, handled):
                        raise error
                    groups, group = self._groups, self._groups.group_of(number)
                    what = f"row group {groups.number_in_file[group]}"
                    skips.add([Skipped(error, groups.url(group), part=what)], again=group in told)
                    told.add(group)
                    reader.skipped = skips.count
                if len(lost) == len(rows):
                    reader.done += len(rows)
                    continue
                end = begin + len(rows) - len(lost)
                if rows_made is not None:
                    yield 1, islice(rows_made, 1)
                else:
                    # Made when it is asked for, so that nothing here refers to it.
                    tables, first = [piece.table.slice(begin, end - begin)], int(there[begin])
                    yield len(rows), (self._made_batch(t, first, start.epoch, rule) for t in tables)
                begin = end

        try:
            while (piece := pieces.next()) is not None:
                for done, made in made_of(piece, sys.exception()):
                    for item in made:
                        reader.done += done
                        if isinstance(item, Skipped):
                            skips.add([item])
                            reader.skipped = skips.count
                            continue
                        is_barren = False
                        box = [item]
                        del item  # nothing here refers to it after it was yielded
                        yield box.pop()
                        if forks != fork_epoch():
                            raise CancelledError(
                                "this iterator was made before a fork, in the parent process; make "
                                "one here"
                            )
            skips.tell_total()
            # A reader cannot know it of the others, or of what others have yielded before.
            is_all = start.lanes == 1 and start.base == self._first_base() and not start.yielded
            if skips.count > 0 and is_barren and is_all:
                raise skips.nothing_left(None)
        finally:
            pieces.close(is_here=forks == fork_epoch())

    def _at_once(self) -> int:
        """Return how many rows are taken out of the row groups together: whole batches."""
        groups, rows = self._groups, self.row_count
        stored_bytes = sum(map(groups.size_bytes, range(len(groups))))
        in_bytes = min(_BYTES_AT_ONCE, self._ahead_bytes() // 4) * rows // max(stored_bytes, 1)
        of_group = -(-rows // len(groups))
        most = max(_ROWS_AT_ONCE, min(_SMALL_ROWS_AT_ONCE, _SMALL_FACTOR * in_bytes))
        size = min(most, max(of_group, min(in_bytes, _GROUPS_AT_ONCE * of_group)))
        batch_size = self._batch_size or 1
        return max(1, size // batch_size) * batch_size

    def _reads_here(self) -> GroupReads:
        reads = self._reads
        if reads is None or not reads.is_valid:
            reads = self._reads = GroupReads(self._groups)
        return reads

    def _ahead_bytes(self) -> int:
        if self._prefetch_bytes is not None:
            return self._prefetch_bytes
        return min(_PREFETCH_BYTES, self._reads_here().budget_bytes // 4)

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
                    ahead.append(group if is_kept else self._reads_here().start(group))
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

    def _made_batch(self, table: Any, first: int, epoch: int, rule: Skipping | None = None) -> Any:
        if self._transform is None:
            return columns_of(table)
        return self._made(self._transform, table, first, epoch, table.num_rows, rule)

    def _made_rows(
        self, table: Any, numbers: Places, epoch: int, rule: Skipping | None = None
    ) -> Iterator[Any]:
        for begin in range(0, len(numbers), _ROWS_AT_ONCE):
            items = rows_of(table.slice(begin, _ROWS_AT_ONCE))
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
            add_note(
                told,
                f"{what} {number - groups.firsts[group]} of row group "
                f"{groups.number_in_file[group]}, number {number} of the dataset",
            )
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
        return {**super().__getstate__(), "_reads": None, "_last": None, "_generators": None}

    def __repr__(self) -> str:
        urls = ", ".join(repr(store.url) for store in self.stores)
        count = f"{len(self.files)} files{self._chosen.in_repr}"
        return f"{class_name(self)}({urls}, {count})"


class _Reader:
    """How many rows of its share one reader has yielded, or left out."""

    def __init__(self, start: Start) -> None:
        self.start, self.done, self.skipped = start, start.yielded, start.skipped

    def now(self) -> Start:
        return replace(self.start, yielded=self.done, skipped=self.skipped)


class _Piece:
    """Some rows that were read, one after the other in the order of an epoch."""

    def __init__(self, reads: UnitReads) -> None:
        found, lost = reads.take_units()
        self.numbers = self.there = reads.indices
        self.lost = {place: error for error, places in lost for place in map(int, places)}
        """The places of rows whose row groups could not be read, and why."""
        if lost:
            self.there = numpy.delete(self.numbers, list(self.lost))
        self.table: Any = None
        """The other rows, whose numbers are in `there`."""
        if found:
            self.table = joined(*zip(*found, strict=True))


class _Pieces:
    """The rows of a reader's share in pieces, of which further ones are read ahead."""

    def __init__(self, dataset: ParquetDataset[Any], start: Start) -> None:
        self._part = part = dataset._as_part()
        self._groups, self._most_ahead = dataset._groups, dataset._ahead_bytes()
        assert isinstance(start.base, Left)
        self._base = start.base
        drawn = UnitsDrawn([part.units], dataset.row_count, dataset._place.shuffle)
        self._order = drawn.order(dataset._place.seed, start.epoch)
        self._at, self._end = dataset._share(start)
        self._at += start.yielded
        self._size = dataset._at_once()
        self._ahead: deque[UnitReads] = deque()
        self._size_bytes = self._request_count = 0  # of the row groups that they have begun

    def next(self) -> _Piece | None:
        """Wait for the next piece; None: there is none."""
        self._fill()
        if not self._ahead:
            return None
        reads = self._ahead.popleft()
        self._count(reads, -1)
        self._fill()
        return _Piece(reads)

    def _fill(self) -> None:
        while self._at < self._end and (
            not self._ahead
            or (self._size_bytes < self._most_ahead and self._request_count < _MOST_REQUESTS_AHEAD)
        ):
            end = min(self._at + self._size, self._end)
            numbers = self._order.numbers(self._base.positions(self._at, end))
            self._ahead.append(self._part._start(numbers))
            self._count(self._ahead[-1], 1)
            self._at = end

    def _count(self, reads: UnitReads, sign: int) -> None:
        for group in reads.begun:
            self._size_bytes += sign * self._groups.size_bytes(group)
            self._request_count += sign * len(self._groups.requests(group))

    def close(self, *, is_here: bool) -> None:
        """Read no more; unless this is another process than began to."""
        if is_here:
            for reads in self._ahead:
                reads.cancel()
            for reads in self._ahead:
                reads.drain()
            self._part.let_go()
        self._ahead.clear()


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
