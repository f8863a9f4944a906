"""A dataset that streams samples from tar shards."""

from __future__ import annotations

import bisect
import functools
import itertools
import logging
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Unpack
from zlib import crc32

from headrace import _engine
from headrace._base.errors import HeadraceError, InvalidArgumentError, add_note
from headrace._base.on_error import OnError
from headrace._base.options import require, require_bytes
from headrace._engine import ObjectIndex
from headrace._index.shard_samples import field_names, is_indexed, samples_of
from headrace._index.shards import ShardSource, shards_of
from headrace._index.wids import is_wids, shards_in_wids
from headrace._store.chosen import Chosen
from headrace._store.keywords import OF_LOADERS, refuse_options
from headrace._store.location import is_local
from headrace._store.settings import StoreOptions
from headrace.torch._arguments import (
    Ranks,
    count,
    flag,
    seed_or_epoch,
)
from headrace.torch._epochs import made_before_fork, reader_number
from headrace.torch._error_notes import about_sample
from headrace.torch._left import Left
from headrace.torch._objects import Objects
from headrace.torch._part_stream import PartStream, Start, shares
from headrace.torch._pieces import Ahead
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._shard_dataset import tensors_of
from headrace.torch._shard_part import Numbered, ShardPart, joined
from headrace.torch._shard_windows import ShardWindows, WholeReader
from headrace.torch._signatures import Fields, Item, Made, StreamKeywords, overload
from headrace.torch._skipping import Skipped, Skipping
from headrace.torch._unit_reads import UnitPart
from headrace.torch._units import OF_WINDOWS, Places
from headrace.torch._whole_part import WholePart
from headrace.torch._whole_shards import Begun, Rest, Whole

__all__ = ["ShardStream"]

_logger = logging.getLogger("headrace")
_IDLE = 4  # a message that is given once
# Where an answer takes 30 ms, twice what a link of 20 Gbit/s has under way.
_PREFETCH_BYTES, _LOCAL_PREFETCH_BYTES = 192 << 20, 32 << 20
_LEAST_PIECE_BYTES, _MOST_PIECE_BYTES = 64 << 10, 2 << 20
_BLOCK = 512
_NOTES = 10  # numbers that say where an epoch has ended
_NO_LIMIT = _LAST_NOTED = 1 << 62
# That are taken out of shards together, where their number is known.
_MOST_AT_ONCE, _BYTES_AT_ONCE = 256, 1 << 20


class _Ahead(NamedTuple):
    """How many bytes of shards are read ahead."""

    window_bytes: int
    piece_bytes: int
    ready_bytes: int
    """Of samples of each open shard that nobody has taken."""


class ShardStream(PartStream[Item], Objects):
    """Samples of tar shards, one after the other, each shard read as a whole from its beginning.

    Take it for compressed shards (``.tar.gz``, ``.tgz``, ``.tar.zst``), and for small samples in
    large shards, where one request for each sample would be slow. `ShardDataset` reads any sample
    of plain shards by one request, and shuffles all of them.

    Samples are those of `ShardDataset`, and a transform sees the same dict. Use the stream with
    `Loader`, with torch's DataLoader or in a plain ``for`` loop. Shards are read ahead,
    decompressed and taken apart by the engine's threads; each byte of a field is copied once.

    **Order.** With ``shuffle=True``, each epoch has an order of the shards that depends on `seed`
    and the epoch alone. With `shuffle_window`, samples are also shuffled: each comes at most so
    many samples earlier or later than without. Each pass is of the next epoch, from 0 on;
    `set_epoch` names another one.

    **Ranks and workers.** If you give an index of the members (`headrace.index_members`), or the
    JSON of webdataset's ``wids``, the numbers of samples are known: the order is that of `Loader`,
    each reader takes a piece of it, and every rank yields the same number. Where a piece begins
    amid a shard, both readers read it. Otherwise, whole shards are dealt in turn, and with several
    ranks you say what an epoch is: ``epoch_samples=n`` or ``uneven="keep"``.

    **State.** `state_dict` records what was yielded. A reader of a plain tar continues at the byte
    where its next sample begins; a compressed shard is read again from its beginning, and so are up
    to `shuffle_window` samples. To continue with other ranks or workers, give `load_state_dict` the
    states of all readers.

    There is no ``len()``, because DataLoader would take it for the number of samples of this rank.

    Examples:
        >>> def decode(sample):
        ...     return sample["jpg"].tensor(), int(sample["cls"])
        >>> shards = "gs://bucket/shards/train-{000..001}.tar"
        >>> stream = ShardStream(shards, decode, shuffle=True, shuffle_window=1000)
        >>> for epoch in range(90):  # doctest: +SKIP
        ...     for images, labels in DataLoader(stream, batch_size=256, num_workers=4):
        ...         train(images, labels)

    Args:
        source: the shards, as for `headrace.index_members`, or an index that it returned; or the
            URL of an index of shards that webdataset's ``wids`` writes, whose name ends with
            ``.json``: it names the shards, compressed ones too, and has the number of samples of
            each.
        transform: a function of a dict of fields; see `ShardDataset`.
        shuffle: whether each epoch has an order of the shards of its own.
        seed: of that order, of the window and of the samples' own seeds; any integer from 0 to
            2^63 - 1. Give the same to every rank.
        shuffle_window: within how many samples to shuffle, also without `shuffle`; a `Loader` does
            so with its own. 0: as they are in the shards.
        fields: the names of the fields that are wanted. Each sample must have them. Default: all.
        hidden: as for `headrace.index_members`.
        epoch_samples: how many samples all ranks together yield in an epoch; what does not divide
            evenly by the ranks is left out. An epoch continues where the one before has ended. With
            an index, each sample therefore comes as often as any other over the epochs, or once
            more. Without one, this is so for the samples of each reader: it gets every sample once
            before it gets one again, first those of shards that no other reader begins with. This
            needs the same ranks and workers in each epoch, and that no epoch is left early;
            otherwise, and in an epoch that `set_epoch` names and that is not the next one, a reader
            begins with the first shards of that epoch's order. Without an index, a sample that
            comes twice in one epoch has the same random numbers both times. Default: as many as
            there are. A `Loader` takes it of a stream without an index only; of others, it has a
            `mix`.
        uneven: how to treat a remainder of fewer samples than ranks, if their number is known:
            ``"drop"`` leaves it out, ``"pad"`` repeats the first samples of the epoch's order,
            ``"keep"`` gives it to the first ranks. If their number is not known, only ``"keep"``
            works with several ranks: each yields what its shards have, which may be very different
            numbers.
        on_error: ``"raise"``: a shard that cannot be read, or has samples that cannot be, is an
            error, which comes after the samples before, and so is what the transform raises.
            ``"skip"``: the rest of the shard, or the sample, is left out. The log names the first
            one of a pass, and says at its end how many there were. A function: it is called with
            the error, which has the shard's ``url`` and, of a transform, the key as ``member``; it
            runs in the process that reads, and what it raises ends the pass. Other errors are
            raised in any case, as by `Loader`. Ranks may then yield unequal numbers of samples,
            unless `epoch_samples` is given without an index: readers then go on with others.
        max_skipped: how many samples each reader may leave out in a pass; one more is a
            `CorruptDataError` that names the first ones. The rest of a shard counts as its samples,
            or as one if their number is not known. Default: 1 % of the epoch's samples (of what
            it has yielded so far, if nobody knows), and at least 10.
        shards_ahead: how many shards are read ahead of the one whose samples are yielded. Each
            shard is decompressed by one thread.
        prefetch_bytes: how much each process may hold of what is read ahead. Default: 192 MiB, of
            files 32 MiB, and at most a quarter of the memory budget. The samples of a window, a
            sample that is larger, and samples that you keep come on top.
        seed_generators: whether to seed the global generators of `random`, NumPy and torch for each
            sample that is transformed, and to restore them after it. This takes about 30 µs a
            sample.
        rank: which of `world_size` trainer processes this is. Default for both: the values of
            torch.distributed, if it is initialised when the iteration begins (or when the dataset
            is sent to workers); otherwise one process.
        world_size: see `rank`.
        options: options of `headrace.Store`, if a URL is given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such shard.
        InvalidArgumentError: an argument cannot work.
        TypeError: there is no such argument.
    """

    @overload
    def __init__(
        self: ShardStream[Fields],
        source: ShardSource | Iterable[ShardSource],
        transform: None = None,
        **keywords: Unpack[StreamKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: ShardStream[Made],
        source: ShardSource | Iterable[ShardSource],
        transform: Callable[[dict[str, Any]], Made],
        **keywords: Unpack[StreamKeywords],
    ) -> None: ...
    def __init__(
        self,
        source: ShardSource | Iterable[ShardSource],
        transform: Callable[[Any], Any] | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        shuffle_window: int = 0,
        fields: Sequence[str] | None = None,
        hidden: bool = False,
        epoch_samples: int | None = None,
        uneven: Literal["drop", "pad", "keep"] = "drop",
        on_error: OnError = "raise",
        max_skipped: int | None = None,
        shards_ahead: int = 3,
        prefetch_bytes: int | None = None,
        seed_generators: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        refuse_options(type(self).__name__, options, ShardStream, OF_LOADERS)
        seed, shuffle = seed_or_epoch("seed", seed), flag("shuffle", shuffle)
        self._window = count("shuffle_window", shuffle_window, minimum=0)
        self._fields = () if fields is None else field_names(fields)
        if epoch_samples is not None:
            epoch_samples = count("epoch_samples", epoch_samples, minimum=1)
        require(
            epoch_samples is None or uneven == "drop",
            "epoch_samples says how many samples an epoch has; leave out uneven",
        )
        skipping = Skipping.of(on_error, max_skipped)
        self._shards_ahead = count("shards_ahead", shards_ahead, minimum=0)
        if prefetch_bytes is not None:
            prefetch_bytes = require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        self._prefetch_bytes = prefetch_bytes
        self._seeds_generators = flag("seed_generators", seed_generators)
        ranks = Ranks(rank, world_size)
        require(
            transform is None or callable(transform),
            f"transform is {transform!r}; it must be callable",
        )
        chosen = Chosen(hidden=hidden)
        self._samples: ObjectIndex | None = None
        firsts: Sequence[int] = ()
        if isinstance(source, ObjectIndex) and is_indexed(source):
            self._samples = samples_of(source, None, on_error)
            source, firsts = _engine.shards_of_samples(self._samples)
            firsts = [*firsts, len(self._samples)]
        if is_wids(source):
            shards, stores, counts = shards_in_wids(source, options)
            firsts = list(itertools.accumulate(counts, initial=0))
        else:
            shards, stores = shards_of(source, None, options, chosen)
        Objects.__init__(self, list(stores), None, shards, None, None, False, {})
        self._chosen, self._transform = chosen, transform
        self._generators: GlobalGenerators | None = None
        # Who reads what depends on these numbers.
        self._counts = f"{crc32(array('q', firsts).tobytes()):08x}" if firsts else None
        PartStream.__init__(
            self,
            self._objects,
            firsts,
            seed=seed,
            shuffle=shuffle,
            uneven=uneven,
            ranks=ranks,
            epoch_samples=epoch_samples,
            chosen=chosen,
            skipping=skipping,
            notes=0 if firsts or epoch_samples is None else _NOTES,
        )

    _has_windows = True

    def _as_part(self) -> ShardPart:
        if not self._firsts:
            return WholePart(self)
        return ShardPart(self, self._firsts, self._window)

    # ---- shards whose numbers of samples nobody knows

    def _rests_of(self, state: Sequence[Any]) -> tuple[Begun, ...]:
        shards = len(self._objects)
        return tuple(Begun.from_state(each, shards, self._window) for each in state)

    def _reader_from(self, start: Start) -> Any:
        if self._firsts:
            return super()._reader_from(start)
        reader = WholeReader(start)
        if reader.yielded == start.share[1]:
            self._note(reader)
        return reader

    def _first_base(self, epoch: int, world_size: int) -> Whole | Left:
        if self._firsts:
            return super()._first_base(epoch, world_size)
        if self._epoch_samples is not None:
            return Whole(following=epoch, left=self._epoch_samples)
        return Whole(passes=((epoch, ((0, len(self._objects)),)),))

    def _base_of(self, state: Any) -> Whole | Left:
        if self._firsts:
            return super()._base_of(state)
        base = Whole.from_state(state, len(self._objects), self._window)
        is_endless = self._epoch_samples is not None
        require(
            (base.following >= 0) == (base.left >= 0) == is_endless
            and base.left <= (self._epoch_samples or 0),
            f"the state's base is {state!r}, and that is none",
        )
        return base

    def _share(self, base: Whole | Left, lane: int, lanes: int, world_size: int) -> tuple[int, int]:
        if isinstance(base, Left):
            return super()._share(base, lane, lanes, world_size)
        if base.left < 0:
            return 0, _NO_LIMIT
        total = base.left - base.left % world_size
        return 0, shares(total, lanes)[lane]

    def _left_of(self, starts: Sequence[Start]) -> Whole | Left:
        base = starts[0].base
        if isinstance(base, Left):
            return super()._left_of(starts)
        readers = [(each.yielded, each.begun, each.rests) for each in starts]
        return base.without(readers, len(self._objects))

    def _begin(self, epoch: int, lane: int, lanes: int, world_size: int) -> Start:
        fresh = self._fresh(epoch, lane, lanes, world_size)
        if self._firsts or self._epoch_samples is None:
            return fresh
        following, of_lane, of_lanes, loads, turn, begun, *rest = self._shared.noted(
            reader_number()
        )
        is_next = (following, of_lane, of_lanes, loads) == (epoch, lane, lanes, self._shared.loads)
        if not is_next:
            return fresh
        base = Whole(following=turn) if turn >= 0 else self._loaded.base
        base = replace(base, left=self._epoch_samples)
        rests = (Begun((Rest(*rest),)),) if rest[0] >= 0 else ()
        return replace(fresh, base=base, begun=begun, rests=rests)

    def _note(self, reader: WholeReader) -> None:
        """Let the next epoch of this reader, in whatever process, go on where this one ends."""
        now = reader.now()
        base, rests = now.base, now.rests
        assert isinstance(base, Whole)
        if self._epoch_samples is None or now.epoch >= _LAST_NOTED:
            return
        if len(rests) > 1 or any(each.done >= 0 for each in rests):
            return  # there is no room for more than one shard
        turn = base.following
        if base.begun or base.passes:
            turn, loaded = -1, self._loaded  # where whoever goes on finds it, too
            if self._loads != self._shared.loads or loaded is None:
                return
            if replace(loaded.base, left=base.left) != base:
                return
        rest = rests[0].rests[0] if rests else Rest(-1)
        place = now.epoch + 1, now.lane, now.lanes, self._shared.loads, turn, now.begun
        self._shared.note(reader_number(), (*place, *rest))

    def _ways(self) -> dict[str, Any]:
        return {
            "shuffle_window": self._window,
            "epoch_samples": self._epoch_samples,
            "uneven": self._uneven,
            "counts": self._counts,
        }

    def _tell_more(self, lane: int, lanes: int, world_size: int) -> None:
        require(
            self._epoch_samples is None or self._epoch_samples >= world_size,
            f"epoch_samples is {self._epoch_samples}, and there are {world_size} ranks: that is "
            "not one for each",
        )
        if self._firsts:
            return
        require(
            world_size == 1 or self._epoch_samples is not None or self._uneven == "keep",
            f"nobody knows how many samples the shards have, and {world_size} ranks must yield the "
            "same number of them: give an index of the members as the source "
            "(headrace.index_members; of compressed shards, the JSON of webdataset's wids), say "
            "how many samples an epoch has (epoch_samples=...), or let each rank yield what its "
            'shards have (uneven="keep")',
        )
        if lanes > len(self._objects) and lane == 0 and self._shared.is_first_to(_IDLE):
            _logger.warning(
                "%r is read by %d readers (ranks times workers), which is more than there are "
                "shards: %s",
                self, lanes,
                "some have nothing to read" if self._epoch_samples is None
                else "shards are repeated",
            )  # fmt: skip

    # ---- reading

    def _ahead(self, part: UnitPart) -> Ahead:
        sizes = self._sizes_ahead()
        mean_bytes = max(1, part.objects.total_size_bytes // max(1, self._firsts[-1]))
        samples = max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE // mean_bytes))
        # Each open shard has a sample that is ready, and one of which pieces have come.
        cost = max(sizes.window_bytes // max(1, self._shards_ahead), 2 * mean_bytes), 1
        return Ahead(samples, sizes.window_bytes, sys.maxsize, lambda _: cost)

    def _joined(self, found: Sequence[Any], places: Sequence[Places]) -> list[Numbered]:
        return joined(found, places)

    def _items(
        self,
        values: Any,
        numbers: Places,  # noqa: ARG002
        epoch: int,  # noqa: ARG002
        rule: Skipping | None = None,
    ) -> Iterator[Any]:
        values.reverse()
        while values:
            yield self._item(*values.pop(), rule=rule)

    def _lost(self, error: HeadraceError, number: int) -> tuple[int, Skipped]:
        shard = bisect.bisect_right(self._firsts, number) - 1
        what = f"from sample {number - self._firsts[shard]} on"
        return shard, Skipped(error, error.url or self.url(shard), part=what)

    def _iterate(self, reader: Any) -> Iterator[Item]:
        return super()._iterate(reader) if self._firsts else self._iterate_whole(reader)

    def _iterate_whole(self, reader: WholeReader) -> Iterator[Item]:
        fork_epoch = _engine.fork_epoch  # the interpreter's end takes modules apart before us
        forks = fork_epoch()
        start, rule = reader.start, self._skipping
        self._tell(start.lane, start.lanes, start.world_size)
        quota = start.share[1]
        skips = self._skips(start)
        windows = self._windows(reader)
        try:
            while reader.yielded < quota:
                window = windows.next(quota - reader.yielded)
                skips.seen = reader.yielded
                skips.add(self._lost_rest(*each) for each in windows.take_lost())
                reader.skipped = skips.count
                windows.publish(window)
                if len(window) == 0:
                    break
                while reader.yielded < quota and (sample := window.first()) is not None:
                    item = self._item(sample.seed, sample.fields, rule=rule)
                    if isinstance(item, Skipped):
                        skips.seen = reader.yielded
                        skips.add([item])
                        reader.skipped = skips.count
                        window.leave()
                        continue
                    del sample
                    window.leave()
                    reader.yielded += 1
                    if reader.yielded == quota:
                        self._note(reader)
                    box = [item]
                    del item  # nothing here refers to it after it was yielded
                    yield box.pop()
                    if forks != fork_epoch():
                        raise made_before_fork()
                    windows.fill_beside(window, quota - reader.yielded)
            if self._epoch_samples is not None and reader.yielded < quota:
                if windows.broken is not None:
                    raise skips.nothing_left(None) from windows.broken
                raise InvalidArgumentError(
                    f"none of the {len(self._objects)} shards has a sample, and an epoch is to "
                    f"have {self._epoch_samples}",
                )
            skips.tell_total()
            # A reader cannot know it of the others, or of what others have yielded before.
            is_first = start.base == self._first_base(start.epoch, start.world_size)
            if skips.count > 0 and not reader.yielded and start.lanes == 1 and is_first:
                raise skips.nothing_left(None)
        finally:
            reader.window.clear()
            if forks == fork_epoch():
                windows.close()

    def _windows(self, reader: WholeReader) -> ShardWindows:
        """Begin to read what is left of a reader's share."""
        start, place, shards = reader.start, self._place, len(self._objects)
        base = start.base
        assert isinstance(base, Whole)
        order: Any = functools.lru_cache(lambda turn: place.at(turn % (1 << 63)).order())
        sizes = self._sizes_ahead()
        ahead = _engine.PieceWindow(sizes.window_bytes)

        def open_rest(rest: Rest) -> _engine.ShardRead | None:
            return self._read_from(*rest, start.epoch, sizes, ahead)

        def seed_of(rest: Rest, epoch: int) -> int:
            at = OF_WINDOWS + (rest.shard << 32) + rest.begin
            [seed] = _engine.sample_seeds(place.seed, epoch, at, at + 1)
            return seed

        return ShardWindows(
            reader,
            lambda number: base.taken(start.lane, start.lanes, shards, number, order),
            functools.partial(base.begins_pass, start.lane, start.lanes, shards),
            open_rest,
            self._shards_ahead,
            self._window,
            seed_of,
            self._skipping,
            shards,
        )

    def _lost_rest(self, error: HeadraceError, rest: Rest) -> Skipped:
        """Return what is said of a shard that cannot be read from there on."""
        url = error.url or self.url(rest.shard)
        return Skipped(error, url, samples=None, part=f"from sample {rest.begin} on")

    # ---- opening shards

    def _shard_read(self, shard: int, first: int, epoch: int, end: int = -1) -> _engine.ShardRead:
        """Begin to read a shard by itself, from this sample on; up to `end`, if that is not -1."""
        sizes = self._sizes_ahead()
        # So many are open at the same time, on average.
        in_window = self._window * len(self._objects) // max(1, self._firsts[-1])
        own = sizes.window_bytes // (1 + self._shards_ahead + in_window)
        window = _engine.PieceWindow(max(own, sizes.piece_bytes))
        read = self._read_from(shard, first, 0, end, epoch, sizes, window)
        assert read is not None
        return read

    def _sizes_ahead(self) -> _Ahead:
        """Return how much of shards is read ahead."""
        engine, _ = self._opened()
        limit = self._prefetch_bytes
        if limit is None:
            local = is_local(self._stores[0].url)
            limit = _LOCAL_PREFETCH_BYTES if local else _PREFETCH_BYTES
            limit = min(limit, engine.budget_bytes // 4)
        # Of what may be held, three quarters are under way, of which one piece is being taken
        # apart. The rest are samples of each open shard that are ready, and as many that were just
        # taken.
        ahead = limit - limit // 4
        piece = min(max(limit // 32, _LEAST_PIECE_BYTES), _MOST_PIECE_BYTES)
        return _Ahead(max(ahead - piece, piece), piece, limit // 4 // (2 + self._shards_ahead))

    def _read_from(
        self,
        shard: int,
        begin: int,
        offset: int,
        last: int,
        epoch: int,
        sizes: _Ahead,
        window: _engine.PieceWindow,
    ) -> _engine.ShardRead | None:
        """Begin to read the samples ``[begin, last)`` of a shard; None: there are none.

        `offset` is where the first one begins, if that is known, else 0; `last` is -1 for all.
        """
        entries, settings = self._opened()[1], self._stores[0]._settings
        first_key = ""
        end: int | None = last if last >= 0 else None
        samples: int | None = None
        if self._firsts:
            samples = self._firsts[shard + 1] - self._firsts[shard]
            end = None if end is None or end >= samples else end
            if self._samples is not None and offset == 0 and 0 < begin < samples:
                before = self._firsts[shard] + begin - 1
                _, behind = self._samples.range(before) or (0, 0)
                offset = -(-behind // _BLOCK) * _BLOCK
                first_key = str(self._samples.column("key", [before + 1])[0])
        if end is not None and begin >= end:
            return None
        likely_end: int | None = None
        if end is not None and self._samples is not None:
            _, likely_end = self._samples.range(self._firsts[shard] + end - 1) or (0, None)
        elif end is not None and samples:
            size_bytes = self._objects.size_bytes(shard)
            likely_end = None if size_bytes is None else size_bytes * end // samples
        return entries.start_shard(
            shard,
            first=begin,
            offset=offset,
            first_key=first_key,
            end=end,
            count=samples,
            fields=self._fields,
            seed=self._place.seed,
            epoch=epoch,
            verify=bool(settings.verify),
            asks_checksum=not is_local(self._stores[0].url),
            likely_end_offset=likely_end,
            piece_bytes=sizes.piece_bytes,
            window=window,
            max_ready_bytes=sizes.ready_bytes,
        )

    def _item(self, seed: int, fields: dict[str, Any], *, rule: Skipping | None) -> Any:
        """Return what the transform makes of a sample, or a `Skipped`, if the rule lets it be."""
        url, key = fields["__url__"], fields["__key__"]
        handled = sys.exception()
        make: Callable[[Any], Any] = self._transform or tensors_of
        try:
            if self._transform is None or not self._seeds_generators:
                return make(fields)
            if self._generators is None:
                self._generators = GlobalGenerators()
            with self._generators as generators:
                generators.seed(seed)
                return make(fields)
        except Exception as error:
            told = about_sample(error, url)
            add_note(told, f"in the sample {key!r}")
            if rule is not None and rule.may_skip(error, handled):
                return Skipped(told, url, None, key)
            if told is error:
                raise
            raise told from error

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_generators": None}
