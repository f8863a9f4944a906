"""A dataset that yields objects one after the other."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Unpack

import torch
import torch.utils.data

from headrace import _engine
from headrace._base.errors import CancelledError, InvalidArgumentError
from headrace._base.on_error import OnError
from headrace._base.options import require, require_bytes
from headrace._base.progress import CountOption
from headrace._engine import ObjectIndex, Sample
from headrace._store.chosen import Chosen, OptionalSuffix
from headrace._store.entry_reads import EntryReads
from headrace._store.keywords import refuse_options
from headrace._store.read_ahead import ReadAhead
from headrace._store.settings import StoreOptions
from headrace.torch._arguments import (
    Ranks,
    choice,
    flag,
    seed_or_epoch,
    warn_of_overlooked_ranks,
)
from headrace.torch._epochs import Epochs, reader_of, worker_count
from headrace.torch._error_notes import about_sample
from headrace.torch._grid import Order
from headrace.torch._objects import Labels, Objects, Source
from headrace.torch._place import skipped_in_state, skipped_of_state
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._shared_place import Reader, SharedPlace
from headrace.torch._shuffling import Shuffle, shuffling
from headrace.torch._signatures import (
    Item,
    IterableKeywords,
    Label,
    LabelOf,
    LabelsOf,
    Made,
    overload,
)
from headrace.torch._skipping import Skipped, Skipping, Skips, lost_reads

__all__ = ["IterableDataset"]

# The most that is read together. More would delay the first sample; less would cost more per
# sample.
_BLOCK_OBJECTS = 32
_BLOCK_BYTES = 8 << 20
# How many blocks of neighbours are shuffled together, unless the user says so: all are read before
# the first is yielded.
_WINDOW_BLOCKS = 16
_MOST_AT_ONCE = 1 << 16

_logger = logging.getLogger("headrace")
# Messages that are given once.
_REMAINDER, _OVERLOOKED = 1, 2
_INSTEAD = {
    "batch_size": "torch's DataLoader(dataset, batch_size=...) makes batches of it",
    "num_workers": "torch's DataLoader(dataset, num_workers=...) has workers",
    "drop_last": "it has uneven instead, for the remainder that ranks cannot share evenly; "
    "DataLoader has drop_last",
    "collate_fn": "torch's DataLoader(dataset, collate_fn=...) takes it",
}


class IterableDataset(Epochs, Objects, torch.utils.data.IterableDataset[Item]):
    """The objects below a URL, one after the other, read ahead inside the process.

    Use it with torch's DataLoader to make batches of a stream, or in a plain ``for`` loop.

    **Order.** It depends on `seed` and the epoch alone. Ranks and DataLoader workers split it, so
    each object comes at most once per epoch. The epoch is the one that `set_epoch` names, at first
    0; workers see it at the beginning of their next pass, also with ``persistent_workers``. A
    trainer process shares it with its own workers only; a copy of the dataset in any other process
    has an epoch of its own.

    **Blocks.** With ``shuffle="block"``, blocks of `block_size` consecutive objects come in a
    random order, and the objects of a window of blocks are shuffled. Each reader takes whole
    windows. It reads a window at once, and in it each block of neighbouring ranges by one request
    (`headrace.ParallelOptions.max_gap_bytes`). A larger window mixes better and takes more memory.
    A window above 65,536 objects, an eighth of the memory budget, or a quarter of `prefetch_bytes`
    is read in parts. At the end of an epoch, the readers share the windows that are too few to give
    one to each.

    **Ranks.** Every rank yields the same number of samples. With the same number of workers, all
    ranks therefore get the same number of batches from their DataLoaders. If the objects do not
    divide evenly, the remainder, fewer than there are ranks, is left out of the epoch, and the log
    says so once. (Each shuffled epoch leaves out others.) `uneven` offers other ways.

    **State.** `state_dict` records what was yielded, not what was read ahead. It belongs to one of
    a fixed number of readers: torchdata's StatefulDataLoader keeps one for each worker; without
    workers, use the dataset's own. The dataset in the trainer's process does not know what its
    workers yield.

    There is no ``len()``, because DataLoader would take it for the number of samples of this rank;
    ``len(dataset.objects)`` is the number of all objects.

    Examples:
        >>> stream = IterableDataset("gs://bucket/train/", decode, shuffle=True)
        >>> for epoch in range(90):  # doctest: +SKIP
        ...     stream.set_epoch(epoch)
        ...     for images, labels in DataLoader(stream, batch_size=256, num_workers=4):
        ...         train(images, labels)

    Args:
        source: a URL, a path, a `headrace.Store`, or a `headrace.ObjectIndex` with the URLs of its
            objects; or several of these, of any providers, each with objects.
        transform: a function of a `headrace.Sample`; see `MapDataset`. It runs in the thread that
            iterates. Draw random numbers from ``sample.rng()``: they depend only on `seed`, the
            epoch and the position of the sample.
        shuffle: whether each epoch has an order of its own. ``"block"`` keeps neighbours together,
            so that fewer requests read them; see **Blocks**.
        block_size: with ``shuffle="block"``, how many neighbours stay together. Default: 32.
        shuffle_window: with ``shuffle="block"``, how many objects are shuffled together, rounded up
            to whole blocks. Default: 16 blocks.
        seed: of that order, and of the samples' own seeds; any integer from 0 to 2^63 - 1. Give the
            same to every rank.
        index: the objects, if you have listed them already; the dataset then lists nothing.
        labels: as for `MapDataset`; with labels, each item is a pair with the label.
        classes: as for `MapDataset`.
        suffix: as for `MapDataset`.
        hidden: as for `MapDataset`.
        prefetch_bytes: how much each process may read ahead, in stored bytes. Default: as much as
            keeps the connections busy, and at most half of the memory budget. While one object is
            in use, the next is always in flight.
        uneven: how to treat a remainder of fewer objects than ranks: ``"drop"`` leaves it out,
            ``"pad"`` repeats the first objects of the epoch's order until all ranks have the same
            number, ``"keep"`` gives it to the first ranks, which then have one sample more.
        seed_generators: whether to seed the global generators of `random`, NumPy and torch for each
            sample that is transformed, and to restore them after it. This takes about 30 µs a
            sample.
        on_error: ``"raise"``: an object that cannot be read or transformed is an error. ``"skip"``:
            it is left out; ranks may then yield unequal numbers of samples. The log names the first
            one of a pass, and says at its end how many there were. A function: it is called with
            the error, which has the object's ``url`` and ``index``, and the object is left out
            unless the function raises; it runs in the process that reads. Other errors are raised
            in any case, as by `Loader`.
        max_skipped: how many samples each reader may leave out in a pass; one more is a
            `CorruptDataError` that names the first ones. Default: 1 % of the epoch's samples, and
            at least 10.
        rank: which of `world_size` trainer processes this is. Default for both: the values of
            torch.distributed, if it is initialised when the iteration begins (or when the dataset
            is sent to workers); otherwise one process.
        world_size: see `rank`.
        progress: shows how many names have been listed; as for `MapDataset`.
        options: options of `headrace.Store`, if a URL is given: ``endpoint=...``.

    Raises:
        NotFoundError: no object is below the URL, or below one of several.
        InvalidArgumentError: an argument cannot work.
        TypeError: there is no such argument.
    """

    @overload
    def __init__(
        self: IterableDataset[torch.Tensor],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: None = None,
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: IterableDataset[Made],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: None = None,
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: IterableDataset[tuple[torch.Tensor, Label]],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: str,
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: IterableDataset[tuple[Made, Label]],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: str,
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: IterableDataset[tuple[torch.Tensor, LabelOf]],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: LabelsOf[LabelOf],
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: IterableDataset[tuple[Made, LabelOf]],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: LabelsOf[LabelOf],
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: IterableDataset[tuple[torch.Tensor, Any]],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: Labels,
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: IterableDataset[tuple[Made, Any]],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: Labels,
        **keywords: Unpack[IterableKeywords],
    ) -> None: ...
    def __init__(
        self,
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Any] | None = None,
        *,
        shuffle: Shuffle = False,
        block_size: int | None = None,
        shuffle_window: int | None = None,
        seed: int = 0,
        index: ObjectIndex | None = None,
        labels: Labels | None = None,
        classes: bool | Sequence[str] | None = None,
        suffix: OptionalSuffix = None,
        hidden: bool = False,
        prefetch_bytes: int | None = None,
        uneven: Literal["drop", "pad", "keep"] = "drop",
        seed_generators: bool = True,
        on_error: OnError = "raise",
        max_skipped: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        progress: CountOption = False,
        **options: Unpack[StoreOptions],
    ) -> None:
        refuse_options(type(self).__name__, options, IterableDataset, _INSTEAD)
        seed = seed_or_epoch("seed", seed)
        self._rule = shuffling(shuffle, block_size, shuffle_window, window_blocks=_WINDOW_BLOCKS)
        if prefetch_bytes is not None:
            prefetch_bytes = require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        self._ranks = Ranks(rank, world_size)
        self._uneven = choice("uneven", uneven, ("drop", "pad", "keep"))
        self._seeds_generators = flag("seed_generators", seed_generators)
        self._skipping = Skipping.of(on_error, max_skipped)
        chosen = Chosen(suffix, hidden=hidden)
        super().__init__(source, transform, index, labels, classes, progress, options, chosen)
        self._place = self._rule.place(self._objects, seed)
        self._place.chosen = chosen.rule if chosen.has_listed else ""
        self._prefetch_bytes = prefetch_bytes
        self._shared = SharedPlace()
        self._resume: Reader | None = None  # the state loaded in this very worker
        self._latest: Reader | None = None  # of the latest iterator

    def __iter__(self) -> Iterator[Item]:
        """Begin a pass, or the rest of one after `load_state_dict`."""
        lane, lanes = reader_of(self._ranks)
        reader = self._resume or self._shared.resume
        if reader is None:
            reader = Reader(self.epoch, lane, lanes)
            if lane == 0:
                self._shared.note_pass(self, reader.epoch, shuffle=self._place.shuffle)
        elif (reader.lane, reader.lanes) != (lane, lanes):
            raise InvalidArgumentError(
                f"the state is of reader {reader.lane} of {reader.lanes}, and this is reader "
                f"{lane} of {lanes}: go on with as many ranks and workers as there were"
            )
        elif self._resume is None and worker_count() > 1:
            raise InvalidArgumentError(
                f"the state is of one reader, and there are {worker_count()} workers, each a "
                "reader of its own: torchdata's StatefulDataLoader keeps a state for each"
            )
        self._resume = None
        self._shared.consume_resume()
        self._latest = reader
        return self._iterate(reader)

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the sample that the latest iterator yielded last.

        Examples:
            >>> state = stream.state_dict()
        """
        reader = self._resume or self._latest or self._shared.resume
        if reader is None:
            reader = Reader(self.epoch, *reader_of(self._ranks))
        return {
            **self._place.identity(),
            "epoch": reader.epoch,
            "position": reader.position,
            "lane": reader.lane,
            "lanes": reader.lanes,
            **skipped_in_state(reader.skipped),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iterator continue from a state that `state_dict` returned.

        The next iterator may also be that of the single worker of a DataLoader.

        Examples:
            >>> state = stream.state_dict()
            >>> stream.load_state_dict(state)

        Raises:
            InvalidArgumentError: the state is of other data or of another order, or not a state.
        """
        values = self._place.read(state, ("epoch", "position", "lane", "lanes"))
        reader = Reader(**values, skipped=skipped_of_state(state))
        count = self._place.count
        require(
            reader.lane < reader.lanes,
            f"the state's lane is {reader.lane}; it must be less than its lanes, {reader.lanes}",
        )
        # A reader at its end is beyond the count; with uneven="pad", further.
        require(
            reader.position < count + 2 * reader.lanes - 1 and reader.position % reader.lanes == 0,
            f"the state's position is {reader.position}; it must be a multiple of its lanes, "
            f"{reader.lanes}, and there are only {count} objects",
        )
        self._latest = None
        if worker_count() > 0:
            self._resume = reader  # the other workers have states of their own
            self._shared.move(reader.epoch)
        else:
            self._shared.go_on_with(reader)

    def _end(self, world_size: int) -> int:
        """Return the end of this epoch's positions for so many ranks."""
        remainder = self._place.count % world_size
        if remainder == 0 or self._uneven == "keep":
            return self._place.count
        return self._place.count - remainder + (world_size if self._uneven == "pad" else 0)

    def _tell(self, lane: int, world_size: int) -> None:
        """Give the messages about this pass, once for all processes that share the place."""
        if self._ranks.are_overlooked() and self._shared.is_first_to(_OVERLOOKED):
            warn_of_overlooked_ranks("dataset", stacklevel=4)
        remainder = self._place.count % world_size
        if remainder > 0 and self._uneven == "drop" and lane == 0:
            if not self._shared.is_first_to(_REMAINDER):
                return
            _logger.warning(
                "%r leaves out the last %s of each epoch's order, so that all %d ranks have "
                'the same number of samples; uneven="pad" repeats some instead, '
                'uneven="keep" gives all that there are',
                self, "object" if remainder == 1 else f"{remainder} objects", world_size,
            )  # fmt: skip

    def _iterate(self, reader: Reader) -> Iterator[Item]:
        forks = _forks
        _, world_size = self._ranks.now()
        self._tell(reader.lane, world_size)
        order = self._place.at(reader.epoch).order()
        opened, limit_bytes = self._opened(), self._prefetch_bytes
        most_bytes = _BLOCK_BYTES if self._rule.window_size == 0 else opened[0].budget_bytes
        if limit_bytes is None:
            block_bytes = min(most_bytes, opened[0].budget_bytes // 8)
        else:
            # The block whose samples are being yielded counts as read ahead, too.
            block_bytes = min(most_bytes, limit_bytes // 4)
            limit_bytes -= block_bytes
        unknown_bytes = opened[1].expected_object_bytes
        blocks = self._blocks(order, reader, self._end(world_size), block_bytes, unknown_bytes)
        ahead: ReadAhead[tuple[EntryReads, range, Sequence[int]]]
        ahead = ReadAhead(opened, limit_bytes)

        def fill() -> None:
            while ahead.has_room():
                block = next(blocks, None)
                if block is None:
                    break
                positions, indices, size_bytes = block
                batch = self._start(indices)
                ahead.append((batch, positions, indices), batch, size_bytes, len(indices))

        make, lanes, rule = self._maker_here(), reader.lanes, self._skipping
        skips = Skips(rule, self, reader.epoch, self._place.count, reader.skipped)
        is_barren, is_whole = True, reader.position == 0
        try:
            fill()
            while ahead:
                batch, positions, indices = ahead[0]
                samples = batch.take(return_errors=rule.skips)
                ahead.popleft()
                fill()
                lost = lost_reads(samples, rule) if rule.skips else {}
                self._prepare(samples, lost, reader.epoch, positions, indices)
                samples.reverse()
                while samples:
                    sample = samples.pop()
                    # Now, so that nothing here refers to the sample after it was yielded.
                    reader.position += lanes
                    at = len(indices) - len(samples) - 1
                    error, handled = lost.get(at), sys.exception()
                    try:
                        box = [make(sample)] if error is None else []
                    except Exception as raised:
                        told = about_sample(raised, self.url(indices[at]))
                        if not rule.may_skip(raised, handled):
                            reader.position -= lanes
                            if told is raised:
                                raise
                            raise told from raised
                        error = told
                    del sample
                    if error is not None:
                        self._skip(skips, error, int(indices[at]), reader)
                        continue
                    is_barren = False
                    yield box.pop()
                    if forks != _forks:
                        raise CancelledError(
                            "this iterator was made before a fork, in the parent process; make one "
                            "here"
                        )
                fill()
            skips.tell_total()
            if skips.count > 0 and is_barren and is_whole and lanes == 1:
                raise skips.nothing_left(skips.count)
        finally:
            if forks == _forks:
                ahead.cancel()

    def _prepare(
        self,
        samples: list[Any],
        lost: Mapping[int, Exception],
        epoch: int,
        positions: Sequence[int],
        indices: Sequence[int],
    ) -> None:
        """Give samples that were read their seeds and labels."""
        if not self._makes:
            return
        if lost:
            there = [at for at in range(len(samples)) if at not in lost]
            samples = [samples[at] for at in there]
            positions, indices = [positions[at] for at in there], [indices[at] for at in there]
        if samples:
            _engine.seed_samples(samples, self._place.seed, epoch, positions)
            self._label(samples, indices)

    def _skip(self, skips: Skips, error: Exception, index: int, reader: Reader) -> None:
        """Leave out a sample; if that is refused, the reader is still before it."""
        try:
            skips.add([Skipped(error, self.url(index), index, self._member(index))])
        except BaseException:
            reader.position -= reader.lanes
            raise
        reader.skipped = skips.count

    def _maker_here(self) -> Callable[[Sample], Any]:
        make = self._maker
        if not self._makes or not self._seeds_generators:
            return make
        generators = GlobalGenerators()

        def seeded(sample: Sample) -> Any:
            with generators:
                generators.seed(sample.seed or 0)
                return make(sample)

        return seeded

    def _blocks(
        self,
        order: Order,
        reader: Reader,
        end: int,
        most_bytes: int,
        unknown_bytes: int,
    ) -> Iterator[tuple[range, Sequence[int], int]]:
        """Yield the positions, numbers and size of the objects to read together."""
        count = len(self._objects)
        common = self._objects.common_size_bytes
        size = min(self._rule.window_size, _MOST_AT_ONCE) or _BLOCK_OBJECTS
        if common:
            size = max(1, min(size, most_bytes // common))
        for block in self._shares(reader, end, size):
            indices: Sequence[int]
            if block[-1] < count:
                indices = order.indices(block.start, block[-1] + 1, block.step)
            else:
                indices = [order[position % count] for position in block]
            sizes = self._objects.sizes(indices).tolist()
            begin, block_bytes = 0, 0
            for at, size_bytes in enumerate(sizes):
                if size_bytes < 0:
                    size_bytes = unknown_bytes
                if block_bytes + size_bytes > most_bytes and at > begin:
                    yield block[begin:at], indices[begin:at], block_bytes
                    begin, block_bytes = at, 0
                block_bytes += size_bytes
            yield block[begin:], indices[begin:], block_bytes

    def _shares(self, reader: Reader, end: int, most: int) -> Iterator[range]:
        """Yield the positions that are left to a reader, at most so many at a time."""
        lane, lanes, window = reader.lane, reader.lanes, self._rule.window_size
        if window == 0:
            yield from _cut(range(reader.position + lane, end, lanes), most)
            return
        # Whole windows in turn, and equal parts of the rest. Each reader has as many as above, and,
        # but for a last one, the same whatever `end` is.
        count, done = len(self._objects), reader.position // lanes
        rounds = count // (window * lanes)
        for number in range(done // window, rounds):
            begin = (number * lanes + lane) * window
            yield from _cut(range(begin + max(0, done - number * window), begin + window), most)
        begin, done = rounds * window * lanes, max(0, done - rounds * window)
        share, more = divmod(count - begin, lanes)
        first = begin + lane * share + min(lane, more)
        rest = range(first, first + share + (lane < more))
        wanted = len(range(begin + lane, end, lanes))
        yield from _cut(rest[done:wanted], most)
        if wanted > max(done, len(rest)):  # a repeated one, to fill up
            yield range(count + lane - more, count + lane - more + 1)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_latest": None}


def _cut(positions: range, most: int) -> Iterator[range]:
    for begin in range(0, len(positions), most):
        yield positions[begin : begin + most]


_forks = 0
"""The number of forks between the start of the program and this process."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)
