"""A dataset that streams samples from tar shards."""

from __future__ import annotations

import itertools
import logging
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Unpack
from zlib import crc32

from headrace import _engine
from headrace._base.errors import CancelledError, HeadraceError, add_note
from headrace._base.on_error import OnError
from headrace._base.options import require, require_bytes
from headrace._engine import ObjectIndex
from headrace._index.shard_samples import field_names, is_indexed, samples_of
from headrace._index.shards import ShardSource, shards_of
from headrace._index.wids import is_wids, shards_in_wids
from headrace._store.chosen import Chosen
from headrace._store.keywords import refuse_options
from headrace._store.location import is_local
from headrace._store.settings import StoreOptions
from headrace.torch._arguments import (
    Ranks,
    count,
    flag,
    seed_or_epoch,
)
from headrace.torch._error_notes import about_sample
from headrace.torch._objects import Objects
from headrace.torch._part_stream import PartStream, Start, turn
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._shard_dataset import tensors_of
from headrace.torch._shard_part import ShardPart
from headrace.torch._shard_window import OpenPart, Window
from headrace.torch._shard_work import (
    Deal,
    Part,
)
from headrace.torch._signatures import Item, Made, StreamKeywords, overload
from headrace.torch._skipping import Skipped, Skipping

__all__ = ["ShardStream"]

_logger = logging.getLogger("headrace")
_IDLE, _NEVER = 4, 8  # messages that are given once
# Where an answer takes 30 ms, twice what a link of 20 Gbit/s has under way.
_PREFETCH_BYTES, _LOCAL_PREFETCH_BYTES = 192 << 20, 32 << 20
_LEAST_PIECE_BYTES, _MOST_PIECE_BYTES = 64 << 10, 2 << 20
_BLOCK = 512
_INSTEAD = {
    "batch_size": "torch's DataLoader(dataset, batch_size=...) makes batches of it",
    "collate_fn": "torch's DataLoader(dataset, collate_fn=...) takes it",
    "decode": "transform makes something of the fields of a sample",
    "detshuffle": "shuffle=True is deterministic",
    "handler": "on_error says what to do about a shard that cannot be read",
    "nodesplitter": "ranks share the shards by themselves; rank and world_size name others",
    "num_workers": "torch's DataLoader(dataset, num_workers=...) has workers",
    "resampled": "epoch_samples makes epochs of any length, which repeat shards if necessary",
    "shardshuffle": "it is called shuffle",
    "urls": "the first argument is the URL, a pattern, or several of them",
    "workersplitter": "workers share the shards by themselves",
}


class _Ahead(NamedTuple):
    """How many bytes of shards are read ahead."""

    window_bytes: int
    piece_bytes: int
    ready_bytes: int
    """Of samples of each open shard that nobody has taken."""


class _Reader:
    """What one reader has yielded of its share, and where it is."""

    def __init__(self, start: Start, window: int) -> None:
        self.start = start
        self.yielded, self.begun = start.yielded, start.begun
        self.skipped = start.skipped
        self.waiting = deque(start.parts)  # those of the state that are not open yet
        self.window = Window(window)

    def now(self) -> Start:
        return replace(
            self.start,
            yielded=self.yielded,
            begun=self.begun,
            parts=(*self.window.left(), *self.waiting),
            skipped=self.skipped,
        )


class ShardStream(PartStream[Item], Objects):
    """Samples of tar shards, one after the other, each shard read as a whole from its beginning.

    Take it for compressed shards (``.tar.gz``, ``.tgz``, ``.tar.zst``), and for small samples in
    large shards, where one request for each sample would be slow. `ShardDataset` reads any sample
    of plain shards by one request, and shuffles all of them.

    Samples are those of `ShardDataset`, and a transform sees the same dict. Use the stream with
    torch's DataLoader, in a plain ``for`` loop or, if it has an index of the members, with
    `Loader`. Shards are read ahead, decompressed and taken apart by the engine's threads; each byte
    of a field is copied once.

    **Order.** With ``shuffle=True``, each epoch has an order of the shards that depends on `seed`
    and the epoch alone. With `shuffle_window`, each reader also shuffles its samples: a sample
    comes at most so many samples earlier or later than without. Each pass is of the next epoch,
    from 0 on; `set_epoch` names another one.

    **Ranks and workers** share the shards. If you give an index of the members
    (`headrace.index_members`), or the JSON of webdataset's ``wids``, the numbers of samples are
    known, and every rank yields the same number; shards are cut where that is necessary. Otherwise,
    whole shards are dealt in turn, and with several ranks you say what an epoch is:
    ``epoch_samples=n`` or ``uneven="keep"``.

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
        shuffle_window: within how many samples each reader shuffles. It holds half as many on
            average. 0: as they are in the shards.
        fields: the names of the fields that are wanted. Each sample must have them. Default: all.
        hidden: as for `headrace.index_members`.
        epoch_samples: how many samples all ranks together yield in an epoch; what does not divide
            evenly by the ranks is left out. Each epoch begins each shard at its first sample: of a
            shard with more samples than a reader yields in an epoch, those at its end never come,
            unless you give an index. The log warns of the first such shard. If there are fewer,
            readers go on with another round of shards. Default: as many as there are.
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
            unless `epoch_samples` is given: readers go on with others.
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
        self: ShardStream[dict[str, Any]],
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
        refuse_options(type(self).__name__, options, ShardStream, _INSTEAD)
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
        )

    def _sample_count(self) -> int:
        require(
            len(self._firsts) > 0,
            f"nobody knows how many samples the shards of {self!r} have, and a Loader counts its "
            "steps: give an index of the members as the source (`headrace index`, or "
            "headrace.index_members; of compressed shards, the JSON of webdataset's wids), or use "
            "torch's DataLoader",
        )
        return int(self._firsts[-1])

    def _as_part(self) -> ShardPart:
        self._sample_count()
        return ShardPart(self, self._firsts, self._window)

    def _reader_from(self, start: Start) -> _Reader:
        return _Reader(start, self._window)

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

    def _tell_of_rest(
        self, current: OpenPart, shard: _engine.ShardRead | None, quota: int, epoch: int
    ) -> None:
        """Warn of a shard that is longer than what a reader yields in an epoch.

        Each epoch begins it at its first sample, so that those at its end come in no epoch. The
        window brings a sample forward by its size at most.
        """
        reached, read = quota + self._window, current.next
        while read <= reached and shard is not None and (samples := shard.take()):
            read = samples[-1][0] + 1
        if read <= reached or not self._shared.is_first_to(_NEVER):
            return
        order = self._place.at(epoch).order()
        _logger.warning(
            "%s has more samples than the %d that a reader yields in an epoch: those at its end "
            "come in no epoch, and so it is with every shard that is as long. Give an index of the "
            "members as the source (headrace.index_members), larger epoch_samples, or shorter "
            "shards",
            self.url(order[turn(current.part.position, len(self._objects))]), quota,
        )  # fmt: skip

    # ---- reading

    def _iterate(self, reader: _Reader) -> Iterator[Item]:
        fork_epoch = _engine.fork_epoch  # the interpreter's end takes modules apart before us
        forks = fork_epoch()
        start, window = reader.start, reader.window
        world_size = start.world_size
        self._tell(start.lane, start.lanes, world_size)
        deal, quotas = self._deal(start)
        quota = None if quotas is None else quotas[start.lane]
        make, rule = self._maker_here(), self._skipping
        skips = self._skips(start)
        opened: deque[tuple[Part, bool, _engine.ShardRead | None]] = deque()
        open_shard = self._opener(start.epoch)
        parts = self._parts(reader, deal)
        failed = 0  # in a row

        def fill() -> None:
            while len(opened) <= self._shards_ahead:
                part, is_new = next(parts, (None, False))
                if part is None:
                    break
                opened.append((part, is_new, open_shard(part)))

        def yielded(*, ended: bool) -> Iterator[Any]:
            for held in window.ready(ended=ended):
                if reader.yielded == quota:
                    return
                url, key = held.fields["__url__"], held.fields["__key__"]
                handled = sys.exception()
                try:
                    item = make(held.fields, held.seed)
                except Exception as error:
                    told = about_sample(error, url)
                    add_note(told, f"in the sample {key!r}")
                    if not rule.may_skip(error, handled):
                        if told is error:
                            raise
                        raise told from error
                    skips.seen = reader.yielded
                    skips.add([Skipped(told, url, None, key)])
                    held.fields = {}
                    window.leave(held)
                    reader.skipped = skips.count
                    continue
                held.fields = {}
                window.leave(held)
                reader.yielded += 1
                box = [item]
                del item  # nothing here refers to it after it was yielded
                yield box.pop()
                if forks != fork_epoch():
                    raise CancelledError(
                        "this iterator was made before a fork, in the parent process; make one here"
                    )

        empty = 0  # shards in a row without a sample
        try:
            while reader.yielded != quota:
                fill()
                if not opened:
                    break
                part, is_new, shard = opened[0]
                if is_new:
                    reader.begun += 1
                else:
                    reader.waiting.popleft()
                current = window.open(part)
                is_empty, handled = True, sys.exception()
                broken: HeadraceError | None = None
                # If the samples are counted, the last one is followed by what is wrong.
                while shard is not None and (self._firsts or reader.yielded != quota):
                    try:
                        samples = shard.take()
                    except HeadraceError as error:
                        if not rule.may_skip(error, handled):
                            raise
                        broken = error
                        break
                    if not samples:
                        break
                    is_empty = False
                    samples.reverse()
                    while samples:
                        window.add(current, *samples.pop())
                    yield from yielded(ended=False)
                if broken is not None:
                    skips.seen = reader.yielded
                    skips.add([self._lost(broken, current, start.epoch)])
                    reader.skipped = skips.count
                    failed = failed + 1 if is_empty else 0
                    if failed >= len(self._objects):
                        raise skips.nothing_left(None) from broken
                    broken = None
                else:
                    failed = 0
                    if reader.yielded == quota and not self._firsts:
                        if reader.begun == 1:
                            self._tell_of_rest(current, shard, quota, start.epoch)
                        break
                    for warning in shard.warnings() if shard is not None else ():
                        _logger.warning("%s", warning)
                empty = empty + 1 if is_empty else 0
                require(
                    empty < len(self._objects) or self._epoch_samples is None,
                    f"{empty} shards in a row have no sample, and an epoch is to have "
                    f"{self._epoch_samples}",
                )
                window.end(current)
                opened.popleft()
                if shard is not None:
                    shard.close()
            yield from yielded(ended=True)
            # A reader cannot know it of the others, or of what others have yielded before.
            start = reader.start
            is_all = start.lanes == 1 and start.base == self._first_base()
            skips.tell_total()
            if skips.count > 0 and not reader.yielded and is_all:
                raise skips.nothing_left(None)
        finally:
            window.drop()
            if forks == fork_epoch():
                for _, _, shard in opened:
                    if shard is not None:
                        shard.cancel()
                for _, _, shard in opened:
                    if shard is not None:
                        shard.close()

    def _parts(self, reader: _Reader, deal: Deal) -> Iterator[tuple[Part, bool]]:
        """Yield what the reader reads, and whether it is more than its state had begun."""
        for part in list(reader.waiting):
            yield part, False
        for number in itertools.count(reader.begun):
            item = deal.item(reader.start.lane, number)
            if item is None:
                return
            yield item, True

    def _opener(self, epoch: int) -> Callable[[Part], _engine.ShardRead | None]:
        """Return what begins to read a part; it returns None if the part has no samples."""
        sizes = self._sizes_ahead()
        window = _engine.PieceWindow(sizes.window_bytes)
        shards = len(self._objects)
        order = self._place.at(epoch).order()

        def open_shard(part: Part) -> _engine.ShardRead | None:
            shard = order[turn(part.position, shards)]
            return self._read_from(shard, part.begin, part.offset, part.end, epoch, sizes, window)

        return open_shard

    def _shard_read(self, shard: int, first: int) -> _engine.ShardRead:
        """Begin to read a shard by itself, from this sample on."""
        sizes = self._sizes_ahead()
        own = sizes.window_bytes // (1 + self._shards_ahead)
        window = _engine.PieceWindow(max(own, sizes.piece_bytes))
        read = self._read_from(shard, first, 0, -1, 0, sizes, window)
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

    def _lost(self, error: HeadraceError, current: OpenPart, epoch: int) -> Skipped:
        """Return what is lost of a part that cannot be read any further."""
        part, samples = current.part, None
        shard = self._place.at(epoch).order()[turn(part.position, len(self._objects))]
        if self._firsts:
            end = part.end if part.end >= 0 else self._firsts[shard + 1] - self._firsts[shard]
            samples = max(1, end - current.next)
        url = error.url or self.url(shard)
        return Skipped(error, url, samples=samples, part=f"from sample {current.next} on")

    def _maker_here(self) -> Callable[[dict[str, Any], int], Any]:
        make: Callable[[Any], Any] = self._transform or tensors_of
        if self._transform is None or not self._seeds_generators:
            return lambda fields, _: make(fields)
        generators = GlobalGenerators()

        def seeded(fields: dict[str, Any], seed: int) -> Any:
            with generators:
                generators.seed(seed)
                return make(fields)

        return seeded
