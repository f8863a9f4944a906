"""What streams have in common whose samples lie in parts: who takes what, and how it is resumed."""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import torch.utils.data

from headrace import _engine
from headrace._base.errors import HeadraceError, InvalidArgumentError
from headrace._base.options import require
from headrace._store.chosen import Chosen
from headrace.torch._arguments import (
    Ranks,
    choice,
    warn_of_overlooked_ranks,
)
from headrace.torch._epochs import Epochs, failing, made_before_fork, reader_of
from headrace.torch._left import Left
from headrace.torch._pieces import Ahead, Piece, Pieces
from headrace.torch._place import Objects, Place, skipped_in_state, skipped_of_state
from headrace.torch._signatures import Item
from headrace.torch._skipping import Skipped, Skipping, Skips
from headrace.torch._unit_reads import UnitPart
from headrace.torch._units import Places, UnitsDrawn
from headrace.torch._whole_shards import Begun, Whole

__all__ = ["PartStream", "Reader", "Start", "shares"]

_REMAINDER, _OVERLOOKED = 1, 2  # messages that are given once; further ones are of subclasses
_OF_READERS = {"lane", "lanes", "base"}  # what such states have, and no others
_NUMBERS = ("epoch", "lane", "lanes", "world_size", "yielded", "begun")
_logger = logging.getLogger("headrace")


@dataclass(frozen=True)
class Start:
    """Where a reader begins: its share of a base, and how far it is with it."""

    epoch: int
    lane: int
    lanes: int
    world_size: int
    base: Whole | Left
    share: tuple[int, int]
    """The places in the base that are the reader's; of whole shards, how many samples it yields."""
    yielded: int = 0
    """How many of these are done with: yielded, or left out because of errors."""
    begun: int = 0
    """How many shards of the base the reader has begun, if nobody knows how many samples they have,
    and what is left of these."""
    rests: tuple[Begun, ...] = ()
    skipped: int = 0  # how many samples the reader has left out because of errors


class Reader:
    """How far one reader is with its share."""

    def __init__(self, start: Start) -> None:
        self.start, self.done, self.skipped = start, start.yielded, start.skipped

    def now(self) -> Start:
        """Return where a reader begins that is to continue from here."""
        return replace(self.start, yielded=self.done, skipped=self.skipped)


class PartStream(Epochs, torch.utils.data.IterableDataset[Item]):
    """A stream of samples that lie in parts, such as shards; see `ShardStream`.

    Args:
        parts: the parts, which an epoch puts in an order.
        firsts: the number of the first sample of each part, and how many there are in all. Empty:
            nobody knows.
    """

    _batch_size: int | None = None
    """How many samples an item is made of; None: one."""
    _has_windows = False
    """Whether samples are shuffled in windows even if their units are not."""

    def __init__(
        self,
        parts: Objects,
        firsts: Sequence[int],
        *,
        seed: int,
        shuffle: bool,
        uneven: str,
        ranks: Ranks,
        epoch_samples: int | None = None,
        chosen: Chosen,
        skipping: Skipping,
        notes: int = 0,
    ) -> None:
        Epochs.__init__(self, notes)
        self._count_of_parts = len(parts)
        self._firsts = firsts
        self._place = Place(parts, seed, shuffle, chosen=chosen.rule if chosen.has_listed else "")
        self._uneven = choice("uneven", uneven, ("drop", "pad", "keep"))
        self._ranks = ranks
        self._skipping = skipping
        self._epoch_samples = epoch_samples

    # ---- for whoever has such parts

    @abstractmethod
    def _as_part(self) -> UnitPart:
        """Return what the samples are read from."""

    @abstractmethod
    def _ahead(self, part: UnitPart) -> Ahead:
        """Return how much is read ahead."""

    @abstractmethod
    def _joined(self, found: Sequence[Any], places: Sequence[Places]) -> Any:
        """Return what units gave for some places each, in the order of the places."""

    @abstractmethod
    def _items(
        self, values: Any, numbers: Places, epoch: int, rule: Skipping | None = None
    ) -> Iterator[Any]:
        """Yield what is made of such values; a `Skipped` for what the rule leaves out."""

    @abstractmethod
    def _lost(self, error: HeadraceError, number: int) -> tuple[int, Skipped]:
        """Return the unit that could not be read from this sample on, and what is said of it."""

    @abstractmethod
    def _ways(self) -> dict[str, Any]:
        """Return what a state depends on beside the place."""

    def _reader_from(self, start: Start) -> Any:
        """Return a reader that begins there."""
        return Reader(start)

    def _rests_of(self, state: Sequence[Any]) -> tuple[Begun, ...]:
        """Return what a saved state says a reader has begun."""
        require(len(state) == 0, f"the state's rests are {state!r}; that cannot be")
        return ()

    def _shares(self, total: int, lanes: int, world_size: int) -> Sequence[int]:  # noqa: ARG002
        """Return how many of so many samples each reader yields."""
        return shares(total, lanes)

    def _tell_more(self, lane: int, lanes: int, world_size: int) -> None:
        """Give more messages about a pass, and refuse what cannot work."""

    # ---- passes and states

    def __iter__(self) -> Iterator[Item]:
        """Begin a pass, or the rest of one after `load_state_dict`."""
        try:
            start = self._begun(self._start_at)
        except HeadraceError as error:
            return failing(error)
        self._latest = reader = self._reader_from(start)
        return self._iterate(reader)

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the sample that the latest iterator yielded last.

        Examples:
            >>> state = stream.state_dict()
        """
        start = self._resume
        if start is None and self._latest is not None:
            start = self._latest.now()
        if start is None:
            now, loaded = self._next_pass()
            start = self._start_at(now.epoch, loaded)
        return {**self._place.identity(), **self._ways(), **self._state_of(start)}

    def _state_of(self, start: Start) -> dict[str, Any]:
        return {
            "epoch": start.epoch,
            "lane": start.lane,
            "lanes": start.lanes,
            "world_size": start.world_size,
            "yielded": start.yielded,
            "begun": start.begun,
            "rests": [each.to_state() for each in start.rests],
            "base": start.base.to_state(),
            "share": list(start.share),
            **skipped_in_state(start.skipped),
        }

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Any]) -> None:
        """Let the next pass of the state's epoch continue from a state.

        Whoever begins that pass: this process, or a DataLoader, of which each worker takes its
        share of what is left. Every pass after it is a whole one.

        Args:
            state: what `state_dict` returned, to go on with as many ranks and workers as there
                were; or the states of all readers, to go on with any number of them: a list that
                has them, or whatever has them inside, such as a list of the states of the
                StatefulDataLoaders of all ranks. Give that to every rank, before workers start.

        Examples:
            >>> stream = ShardStream("gs://bucket/shards/", shuffle=True)
            >>> state = stream.state_dict()
            >>> stream.load_state_dict(state)
            >>> stream.load_state_dict([state])  # with any ranks and workers

        Raises:
            InvalidArgumentError: the state is of other data or of another order, or not a state;
                states of readers are missing, or are of different moments.
        """
        is_one = isinstance(state, Mapping) and state.keys() >= _OF_READERS
        found = {str(sorted(each.items(), key=str)): each for each in _readers_of(state)}
        if not found:
            self._place.read(state if isinstance(state, Mapping) else {}, ())  # says what is wrong
        starts = [self._read(each) for each in found.values()] or [self._read(state)]
        start = starts[0] if is_one else self._together(starts)
        self._load(start)

    def _read(self, state: Any) -> Start:
        self._place.read(state, _NUMBERS)
        for name, value in self._ways().items():
            require(
                state.get(name) == value,
                f"the state has {name}={state.get(name)!r}, but here it is {value!r}: they must be "
                "the same, or a place means something else",
            )
        return self._start_of(state)

    def _start_of(self, state: Any) -> Start:
        """Return what `_state_of` gave."""
        require(isinstance(state, Mapping), f"the state of a reader is {state!r}, and that is none")
        values = {name: state.get(name) for name in _NUMBERS}
        require(
            all(type(value) is int and 0 <= value < 1 << 63 for value in values.values()),
            f"the state has {values!r} of a reader, and that is none",
        )
        lane, lanes, world_size = values["lane"], values["lanes"], values["world_size"]
        require(
            lane < lanes and 0 < world_size <= lanes and lanes % world_size == 0,
            f"the state is of reader {lane} of {lanes}, on {world_size} ranks; that cannot be",
        )
        rests = state.get("rests")
        require(isinstance(rests, Sequence), f"the state's rests are {rests!r}")
        base = self._base_of(state.get("base"))
        return Start(
            **values,
            base=base,
            share=_share_of(state.get("share"), base, values["yielded"]),
            rests=self._rests_of(rests),
            skipped=skipped_of_state(state),
        )

    def _together(self, starts: list[Start]) -> Start:
        """Return the start of all readers that may be, from those of all that were."""
        first = starts[0]
        require(
            all(
                (each.epoch, each.lanes, each.world_size, each.base)
                == (first.epoch, first.lanes, first.world_size, first.base)
                for each in starts
            ),
            "the states are of different epochs, of different resumes, or of readers on different "
            "numbers of ranks: give those of one moment",
        )
        require(
            self._uneven != "pad",
            'with uneven="pad", a pass goes on with as many ranks and workers as there were: what '
            "is repeated to fill up belongs to them",
        )
        starts.sort(key=lambda each: each.lane)
        _require_all([each.lane for each in starts], first.lanes)
        left = self._left_of(starts)
        skipped = max(each.skipped for each in starts)
        return Start(first.epoch, 0, 0, 0, left, (0, 0), skipped=skipped)

    def _left_of(self, starts: Sequence[Start]) -> Whole | Left:
        """Return what all readers together have left, given all that there were."""
        base = starts[0].base
        assert isinstance(base, Left)
        shares = sorted((*each.share, each.yielded) for each in starts)
        require(
            all(one[1] <= other[0] for one, other in pairwise(shares)),
            "the states are of readers that shared the same samples: give those of one moment",
        )
        return base.without((begin, begin + done) for begin, _, done in shares)

    def _start_at(self, epoch: int, start: Start | None) -> Start:
        """Return where this reader begins a pass of an epoch, or the rest of one."""
        lane, lanes = self._lane()
        _, world_size = self._ranks.now()
        if start is None:
            return self._begin(epoch, lane, lanes, world_size)
        if start.lanes == 0:  # for any readers
            share = self._share(start.base, lane, lanes, world_size)
            return replace(start, lane=lane, lanes=lanes, world_size=world_size, share=share)
        if (start.lane, start.lanes) != (lane, lanes):
            raise InvalidArgumentError(
                f"the state is of reader {start.lane} of {start.lanes}, and this is reader "
                f"{lane} of {lanes}: go on with as many ranks and workers as there were, or give "
                "load_state_dict the states of all readers"
            )
        return start

    def _skips(self, start: Start) -> Skips:
        """Return what a reader has left out, to go on counting."""
        samples = self._firsts[-1] if self._firsts else self._count_of_parts
        if self._epoch_samples is not None:
            samples = self._epoch_samples
        return Skips(self._skipping, self, start.epoch, samples, start.skipped)

    def _begin(self, epoch: int, lane: int, lanes: int, world_size: int) -> Start:
        """Return where a reader begins the next epoch, whatever was before."""
        return self._fresh(epoch, lane, lanes, world_size)

    def _fresh(self, epoch: int, lane: int, lanes: int, world_size: int) -> Start:
        """Return where a reader begins an epoch that has no history."""
        base = self._first_base(epoch, world_size)
        share = self._share(base, lane, lanes, world_size)
        return Start(epoch, lane, lanes, world_size, base, share)

    def _first_base(self, epoch: int, world_size: int) -> Whole | Left:  # noqa: ARG002
        """Return what is left of an epoch that begins."""
        samples = self._epoch_samples
        if samples is None:
            return Left.all_of(self._firsts[-1])
        return Left.all_of(samples - samples % world_size)

    def _base_of(self, state: Any) -> Whole | Left:
        """Return what a saved state says is left for all readers."""
        left, most = Left.from_state(state), self._epoch_samples
        require(
            left.count == self._firsts[-1] if most is None else 0 < left.count <= most,
            f"the state's base is of an epoch of {left.count} samples; that cannot be",
        )
        return left

    def _share(self, base: Whole | Left, lane: int, lanes: int, world_size: int) -> tuple[int, int]:
        """Return which places of what is left for all are a reader's."""
        assert isinstance(base, Left)
        total = len(base)
        remainder = total % world_size
        if remainder and self._uneven != "keep":
            total += world_size - remainder if self._uneven == "pad" and len(base) else -remainder
        quotas = self._shares(total, lanes, world_size)
        begin = sum(quotas[:lane])
        return begin, begin + quotas[lane]

    def _lane(self) -> tuple[int, int]:
        return reader_of(self._ranks)

    def _tell(self, lane: int, lanes: int, world_size: int) -> None:
        """Give the messages about this pass, once for all processes that share the place."""
        if self._ranks.are_overlooked() and self._shared.is_first_to(_OVERLOOKED):
            warn_of_overlooked_ranks("stream", stacklevel=4)
        remainder = self._firsts[-1] % world_size if self._firsts else 0
        drops = self._uneven == "drop" and self._epoch_samples is None
        if remainder and drops and lane == 0 and self._shared.is_first_to(_REMAINDER):
            _logger.warning(
                "%r leaves out the last %s of each epoch's order, so that all %d ranks have "
                'the same number of samples; uneven="pad" repeats some instead, '
                'uneven="keep" gives all that there are',
                self, "sample" if remainder == 1 else f"{remainder} samples", world_size,
            )  # fmt: skip
        self._tell_more(lane, lanes, world_size)

    # ---- reading

    def _iterate(self, reader: Any) -> Iterator[Item]:
        """Yield the samples of a reader, and count them there."""
        fork_epoch = _engine.fork_epoch  # the interpreter's end takes modules apart before us
        forks = fork_epoch()
        start, rule = reader.start, self._skipping
        self._tell(start.lane, start.lanes, start.world_size)
        skips, told = self._skips(start), set[int]()
        pieces = self._pieces(start)
        is_barren = True

        def made_of(
            piece: Piece, handled: BaseException | None
        ) -> Iterator[tuple[int, Iterator[Any]]]:
            """Yield items, and how many samples are done with each."""
            there, items = piece.there, None
            if self._batch_size is None:
                items = self._items(piece.values, there, start.epoch, rule)
                if not piece.lost:
                    yield 1, items
                    return
            size, begin = self._batch_size or 1, 0
            for at in range(0, len(piece.numbers), size):
                places = range(at, min(at + size, len(piece.numbers)))
                lost = [place for place in places if place in piece.lost] if piece.lost else ()
                for place in lost:
                    error = piece.lost[place]
                    if not rule.may_skip(error, handled):
                        raise error
                    unit, skipped = self._lost(error, int(piece.numbers[place]))
                    skips.add([skipped], again=unit in told)
                    told.add(unit)
                    reader.skipped = skips.count
                if len(lost) == len(places):
                    reader.done += len(places)
                    continue
                end = begin + len(places) - len(lost)
                if items is not None:
                    yield 1, islice(items, 1)
                else:
                    # Made when it is asked for, so that nothing here refers to it.
                    values, first = [piece.values.slice(begin, end - begin)], int(there[begin])
                    yield (
                        len(places),
                        (self._made_batch(v, first, start.epoch, rule) for v in values),
                    )
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
                            raise made_before_fork()
            skips.tell_total()
            # A reader cannot know it of the others, or of what others have yielded before.
            is_first = (
                start.base == self._first_base(start.epoch, start.world_size) and not start.yielded
            )
            if skips.count > 0 and is_barren and start.lanes == 1 and is_first:
                raise skips.nothing_left(None)
        finally:
            pieces.close(is_here=forks == fork_epoch())

    def _pieces(self, start: Start) -> Pieces:
        """Begin to read what is left of a reader's share."""
        part, base = self._as_part(), start.base
        assert isinstance(base, Left)
        part.epoch = start.epoch
        shuffle, windows = self._place.shuffle, self._has_windows
        drawn = UnitsDrawn([part.units], base.count, shuffle, windows=windows)
        if self._epoch_samples is not None:
            # Each epoch goes on where the one before has ended, as in a mixture.
            drawn = replace(drawn, weights=(1.0,))
        order = drawn.order(self._place.seed, start.epoch)
        begin, end = start.share
        if self._epoch_samples is None and begin + start.yielded < end <= len(base):
            part.end_at(int(order.numbers(base.positions(end - 1, end))[0]))
        return Pieces(
            part, order, base, begin + start.yielded, end, self._ahead(part), self._joined
        )

    def _made_batch(self, values: Any, first: int, epoch: int, rule: Skipping) -> Any:
        raise NotImplementedError  # only of a dataset that makes batches

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "_latest": None}


def shares(total: int, lanes: int) -> list[int]:
    """Return how many of `total` samples each reader yields, if they take turns."""
    return [len(range(lane, total, lanes)) for lane in range(lanes)]


def _share_of(state: Any, base: Any, yielded: int) -> tuple[int, int]:
    """Return the places in the base that a saved state says are the reader's."""
    good = isinstance(state, Sequence) and len(state) == 2
    good = good and all(type(at) is int for at in state)
    good = good and 0 <= state[0] <= state[1] and yielded <= state[1] - state[0]
    good = good and (state[0] == state[1] or isinstance(base, Whole) or len(base) > 0)
    require(good, f"the state's share is {state!r}, with {yielded} done; that cannot be")
    return state[0], state[1]


def _readers_of(states: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the states of streams in a structure, such as those of all ranks' DataLoaders."""
    if isinstance(states, Mapping):
        if states.keys() >= _OF_READERS:
            yield states
            return
        states = list(states.values())
    if isinstance(states, Sequence) and not isinstance(states, str | bytes):
        for each in states:
            yield from _readers_of(each)


def _require_all(lanes: Sequence[int], of: int) -> None:
    """Check that the states are those of all readers, each once."""
    there = set(lanes)
    missing = next((lane for lane in range(of) if lane not in there), None)
    if missing is not None or len(lanes) != of:
        raise InvalidArgumentError(
            f"there are states of {len(lanes)} readers, and there were {of}"
            + (f"; that of reader {missing} is missing" if missing is not None else "")
            + ": give the states of all workers of all ranks"
        )
