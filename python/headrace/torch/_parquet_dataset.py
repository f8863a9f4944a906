"""A dataset of rows of Parquet files."""

from __future__ import annotations

import itertools
import operator
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Unpack

from headrace import _engine
from headrace._base.errors import CancelledError, HeadraceError, add_note
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
from headrace.torch._parquet_files import GroupRead, GroupReads, row_groups_of
from headrace.torch._parquet_rows import (
    OpenGroup,
    RowReader,
    Rows,
    Slot,
    columns_of,
    picked,
    rows_of,
)
from headrace.torch._part_stream import PartStream, Start, turn
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._shard_work import Deal, Part
from headrace.torch._signatures import Item, Made, ParquetKeywords, overload
from headrace.torch._skipping import Skipped, Skipping, Skips

__all__ = ["ParquetDataset"]

_SUFFIXES = (".parquet",)
_PREFETCH_BYTES = 256 << 20
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1024, 8 << 20  # that are taken out of the row groups, at most
_MOST_REQUESTS_AHEAD = 128  # each has a place in the engine, of a local file a descriptor
_ORDERS = 1 << 62  # seeds of the orders of row groups are none of their rows'
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
    torch's DataLoader, or in a plain ``for`` loop.

    **Rows or batches.** Without `batch_size`, an item is a row: a dict of Python's numbers, texts,
    bytes and so on, and of tensors for lists of numbers; a transform gets this dict. With
    `batch_size`, an item is a batch: a transform gets a ``pyarrow.Table``. Without a transform, it
    is a dict of tensors for columns of numbers and of lists for others. That is much faster, since
    no Python runs per row. Give ``batch_size=None`` to torch's DataLoader then.

    **Order.** With ``shuffle=True``, each epoch has an order of all row groups, and one of the rows
    in each, that depend on `seed` and the epoch alone. Each reader has `shuffle_groups` of its row
    groups open, and takes each row from one of them at random. The epoch is the one that
    `set_epoch` names, at first 0.

    **Ranks and workers** share the row groups, and all ranks yield the same number of items. A row
    group is cut where that is necessary; both readers then read it.

    **State.** `state_dict` records what was yielded. A reader that continues reads its open row
    groups again. To continue with other ranks or workers, give `load_state_dict` the states of all
    readers.

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
        shuffle_groups: from how many row groups each reader takes its rows, if it shuffles. All of
            them are in memory, decoded.
        uneven: how to treat a remainder of fewer rows than ranks: ``"drop"`` leaves it out,
            ``"pad"`` repeats the first rows of the epoch's order, ``"keep"`` gives it to the first
            ranks.
        on_error: ``"raise"``: a file or row group that cannot be read is an error, and so is what
            the transform raises. ``"skip"``: the file, row group, row or (with `batch_size`) batch
            is left out; ranks may then yield unequal numbers of rows. The log names each file that
            is left out when the dataset is made, then the first one of a pass, and says at its end
            how many rows there were. A function: it is called with the error, which has the file's
            ``url`` and, of a transform, the row's number as ``index``; what it raises ends the
            pass. Other errors are raised in any case, as by `Loader`.
        max_skipped: how many rows each reader may leave out in a pass; one more is a
            `CorruptDataError` that names the first ones. A row group counts as its rows. Default:
            1 % of the epoch's rows, and at least 10.
        prefetch_bytes: how much each process reads ahead of the row groups that are open. Default:
            256 MiB, and at most a quarter of the memory budget. One row group is always read ahead.
        seed_generators: whether the global random generators are seeded for each call of a
            transform, as for `IterableDataset`.
        rank: which of `world_size` trainer processes this is; as for `IterableDataset`.
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
        seed, self._shuffles = seed_or_epoch("seed", seed), flag("shuffle", shuffle)
        self._batch_size = (
            None if batch_size is None else count("batch_size", batch_size, minimum=1)
        )
        self._drop_last = flag("drop_last", drop_last)
        require(
            batch_size is not None or not drop_last,
            "drop_last leaves out a short batch, and there is no batch_size",
        )
        self._open_groups = count("shuffle_groups", shuffle_groups, minimum=1) if shuffle else 1
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
        order = array("q", bytes(8 * len(wanted)))
        taken, done = [], 0
        for group, table in self._tables(list(places)):
            own = places[group]
            first = self._groups.firsts[group]
            own_rows = array("q", [wanted[at] - first for at in own])
            taken.append(picked(table, first, memoryview(own_rows)))
            for at in own:
                order[at] = done
                done += 1
            self._last = group, table
        rows = Rows.joined(taken, memoryview(order))
        if self._batch_size is not None:
            return self._made_batch(rows, self.epoch)
        return list(self._made_rows(rows, self.epoch))

    # ---- order

    def _ways(self) -> dict[str, Any]:
        return {
            "shuffle_groups": self._open_groups,
            "uneven": self._uneven,
        }

    def _reader_from(self, start: Start) -> RowReader:
        return RowReader(start, self._place.seed)

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

    def _iterate(self, reader: RowReader) -> Iterator[Item]:
        fork_epoch = _engine.fork_epoch  # the interpreter's end takes modules apart before us
        forks = fork_epoch()
        start = reader.start
        self._tell(start.lane, start.lanes, start.world_size)
        deal, quotas = self._deal(start)
        assert quotas is not None
        quota = quotas[start.lane]
        skips = self._skips(start)
        feed = _Feed(self, reader, deal, skips)
        is_barren = True
        try:
            while reader.yielded < quota and feed.fill():
                left = quota - reader.yielded
                if self._batch_size is None:
                    reader.keep()
                    rows = reader.draw(min(left, self._at_once(feed)))
                    for item in self._made_rows(rows, start.epoch, self._skipping):
                        if isinstance(item, Skipped):
                            skips.add([item])
                            reader.count_row(skipped=skips.count)
                            continue
                        reader.count_row()
                        is_barren = False
                        box = [item]
                        del item  # nothing here refers to it after it was yielded
                        yield box.pop()
                        _require_same_process(forks)
                else:
                    wanted = min(left, self._batch_size)
                    drawn = [reader.draw(wanted)]
                    while (missing := wanted - sum(map(len, drawn))) > 0 and feed.fill():
                        drawn.append(reader.draw(missing))
                    if missing > 0 and self._drop_last:
                        break
                    batch = self._made_batch(Rows.joined(drawn), start.epoch, self._skipping)
                    del drawn
                    if isinstance(batch, Skipped):
                        skips.add([batch])
                        reader.skipped = skips.count
                        reader.keep()
                        continue
                    reader.keep()
                    is_barren = False
                    box = [batch]
                    del batch
                    yield box.pop()
                    _require_same_process(forks)
            skips.tell_total()
            # A reader cannot know it of the others, or of what others have yielded before.
            is_all = start.lanes == 1 and start.base.frontier == 0 and not start.base.parts
            if skips.count > 0 and is_barren and is_all and start.yielded == 0:
                raise skips.nothing_left(None)
        finally:
            feed.close(is_here=forks == fork_epoch())

    def _at_once(self, feed: _Feed) -> int:
        return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // max(feed.row_bytes, 1)))

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

    def _made_batch(self, rows: Rows, epoch: int, rule: Skipping | None = None) -> Any:
        if self._transform is None:
            return columns_of(rows.table)
        return self._made(self._transform, rows.table, rows.number(0), epoch, len(rows), rule)

    def _made_rows(self, rows: Rows, epoch: int, rule: Skipping | None = None) -> Iterator[Any]:
        items = rows_of(rows.table)
        items.reverse()
        if self._transform is None:
            while items:
                yield items.pop()
            return
        for row in range(len(rows)):
            yield self._made(self._transform, items.pop(), rows.number(row), epoch, 1, rule)

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


class _Feed:
    """Opens row groups for a reader, and reads further ones ahead."""

    def __init__(
        self, dataset: ParquetDataset[Any], reader: RowReader, deal: Deal, skips: Skips
    ) -> None:
        self._dataset, self._reader, self._skips = dataset, reader, skips
        self._most_open = dataset._open_groups
        self._groups = dataset._groups
        start = reader.start
        place = dataset._place.at(start.epoch)
        self._order, self._seed, self._epoch = place.order(), place.seed, start.epoch
        self._shuffles = dataset._shuffles
        self._most_ahead = dataset._ahead_bytes()
        self._ahead: deque[tuple[Part, GroupRead]] = deque()
        self._size_bytes = self._request_count = 0  # of what is read ahead
        of_state = [slot.part for slot in reader.slots if slot.left > 0]
        self._parts = itertools.chain(of_state, self._new_parts(deal))
        self.row_bytes = 0
        """Of the rows of the row group that was opened last, on average."""

    def fill(self) -> bool:
        """Open row groups until enough of them are; return whether there are rows."""
        slots = self._reader.slots
        for slot in slots:
            if slot.left > 0 and slot.group is None:  # of the state
                self._open_next(slot)
        at = 0
        while at < self._most_open:
            if at < len(slots) and slots[at].left > 0:
                at += 1
            elif (opened := self._new_slot()) is None:
                if at == len(slots):
                    break
                del slots[at]
            else:
                slots[at : at + 1] = [opened]
        self._read_ahead()
        return len(slots) > 0

    def close(self, *, is_here: bool) -> None:
        """Read no more; unless this is another process than began to."""
        for slot in self._reader.slots:
            slot.group = None
        if is_here:
            for _, read in self._ahead:
                read.cancel()
            for _, read in self._ahead:
                read.drain()
        self._ahead.clear()

    def _new_slot(self) -> Slot | None:
        """Open the next part that can be read; None: there is none."""
        while self._read_ahead():
            slot = Slot(self._ahead[0][0])
            self._reader.begun += 1
            if self._open_next(slot):
                return slot
        return None

    def _open_next(self, slot: Slot) -> bool:
        """Open the part that was read ahead first, in this slot; false: it is left out."""
        self._read_ahead()
        part, read = self._ahead.popleft()
        self._size_bytes -= read.size_bytes
        self._request_count -= read.request_count
        assert part is slot.part
        group = read.group
        self._read_ahead()
        handled = sys.exception()
        try:
            table = read.table()
        except HeadraceError as error:
            if not self._dataset._skipping.may_skip(error, handled):
                raise
            part_of_file = f"row group {self._groups.number_in_file[group]}"
            self._skips.add(
                [Skipped(error, self._groups.url(group), samples=slot.left, part=part_of_file)]
            )
            self._reader.skipped = self._skips.count
            slot.leave_out()
            return False
        [seed] = _engine.sample_seeds(self._seed, self._epoch, _ORDERS + group, _ORDERS + group + 1)
        order = _engine.Order(table.num_rows, seed, self._epoch, self._shuffles)
        slot.group = OpenGroup(table, self._groups.firsts[group], order, shuffled=self._shuffles)
        self.row_bytes = table.nbytes // table.num_rows
        return True

    def _read_ahead(self) -> bool:
        """Begin to read what may be; return whether anything is under way."""
        while not self._ahead or (
            self._size_bytes < self._most_ahead and self._request_count < _MOST_REQUESTS_AHEAD
        ):
            part = next(self._parts, None)
            if part is None:
                break
            group = self._order[turn(part.position, len(self._groups))]
            read = self._dataset._reads_here().start(group)
            self._ahead.append((part, read))
            self._size_bytes += read.size_bytes
            self._request_count += read.request_count
        return len(self._ahead) > 0

    def _new_parts(self, deal: Deal) -> Iterator[Part]:
        lane = self._reader.start.lane
        for number in itertools.count(self._reader.begun):
            part = deal.item(lane, number)
            if part is None:
                return
            yield part


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


def _require_same_process(forks: int) -> None:
    if forks != _engine.fork_epoch():
        raise CancelledError(
            "this iterator was made before a fork, in the parent process; make one here"
        )
