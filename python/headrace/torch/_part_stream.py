"""What streams have in common whose samples lie in parts: who takes what, and how it is resumed."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

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
from headrace.torch._epochs import Epochs, failing, reader_of
from headrace.torch._left import Left
from headrace.torch._place import Objects, Place, skipped_in_state, skipped_of_state
from headrace.torch._shard_window import has_left, may_have_left
from headrace.torch._shard_work import (
    Base,
    Deal,
    EvenDeal,
    Part,
    WholeDeal,
    left_over,
    readers_of,
    require_all,
    shares,
    with_end,
)
from headrace.torch._signatures import Item
from headrace.torch._skipping import Skipping, Skips

__all__ = ["PartStream", "Reader", "Start", "turn"]

_REMAINDER, _OVERLOOKED = 1, 2  # messages that are given once; further ones are of subclasses
_logger = logging.getLogger("headrace")


@dataclass(frozen=True)
class Start:
    """Where a reader begins: its share of a base, and how far it is with it."""

    epoch: int
    lane: int
    lanes: int
    world_size: int
    base: Base | Left
    yielded: int = 0
    begun: int = 0
    parts: tuple[Part, ...] = ()
    sharing: tuple[int, ...] = ()  # what the readers' shares depend on beside their number
    skipped: int = 0  # how many samples the reader has left out because of errors


class Reader(Protocol):
    """What one reader has yielded of its share, and where it is."""

    start: Start

    def now(self) -> Start:
        """Return where a reader begins that is to continue from here."""
        ...


class PartStream(Epochs, torch.utils.data.IterableDataset[Item]):
    """A stream of samples that lie in parts, such as shards; see `ShardStream`.

    Args:
        parts: the parts, which an epoch puts in an order.
        firsts: the number of the first sample of each part, and how many there are in all. Empty:
            nobody knows.
    """

    _window = 0
    """Within how many samples each reader shuffles."""

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
    ) -> None:
        Epochs.__init__(self)
        self._count_of_parts = len(parts)
        self._firsts = firsts
        self._place = Place(parts, seed, shuffle, chosen=chosen.rule if chosen.has_listed else "")
        self._uneven = choice("uneven", uneven, ("drop", "pad", "keep"))
        self._ranks = ranks
        self._skipping = skipping
        self._epoch_samples = epoch_samples

    # ---- for whoever has such parts

    @abstractmethod
    def _reader_from(self, start: Start) -> Any:
        """Return a reader that begins there."""

    @abstractmethod
    def _iterate(self, reader: Any) -> Iterator[Item]:
        """Yield the samples of a reader, and count them there."""

    @abstractmethod
    def _ways(self) -> dict[str, Any]:
        """Return what a state depends on beside the place."""

    def _sharing(self) -> tuple[int, ...]:
        """Return what `_shares` depends on beside the numbers of samples and readers."""
        return ()

    def _shares(
        self,
        total: int,
        lanes: int,
        world_size: int,  # noqa: ARG002
        sharing: tuple[int, ...],  # noqa: ARG002
    ) -> tuple[int, ...]:
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
        return {
            **self._place.identity(),
            **self._ways(),
            "epoch": start.epoch,
            "lane": start.lane,
            "lanes": start.lanes,
            "world_size": start.world_size,
            "yielded": start.yielded,
            "begun": start.begun,
            "parts": [part.to_state() for part in start.parts],
            "base": start.base.to_state(),
            "sharing": list(start.sharing),
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
        is_one = isinstance(state, Mapping) and {"lane", "lanes", "base"} <= state.keys()
        found = {str(sorted(each.items(), key=str)): each for each in readers_of(state)}
        if not found:
            self._place.read(state if isinstance(state, Mapping) else {}, ())  # says what is wrong
        starts = [self._read(each) for each in found.values()] or [self._read(state)]
        start = starts[0] if is_one else self._together(starts)
        self._load(start)

    def _read(self, state: Any) -> Start:
        numbers = ("epoch", "lane", "lanes", "world_size", "yielded", "begun")
        values = self._place.read(state, numbers)
        for name, value in self._ways().items():
            require(
                state.get(name) == value,
                f"the state has {name}={state.get(name)!r}, but here it is {value!r}: they must be "
                "the same, or a place means something else",
            )
        lane, lanes, world_size = values["lane"], values["lanes"], values["world_size"]
        require(
            lane < lanes and 0 < world_size <= lanes and lanes % world_size == 0,
            f"the state is of reader {lane} of {lanes}, on {world_size} ranks; that cannot be",
        )
        parts = state.get("parts")
        require(isinstance(parts, Sequence), f"the state's parts are {parts!r}")
        sharing = state.get("sharing")
        require(
            isinstance(sharing, Sequence)
            and len(sharing) == len(self._sharing())
            and all(isinstance(each, int) and each >= 0 for each in sharing),
            f"the state's sharing is {sharing!r}",
        )
        return Start(
            **values,
            parts=tuple(Part.from_state(part) for part in parts),
            base=self._base_of(state.get("base")),
            sharing=tuple(sharing),
            skipped=skipped_of_state(state),
        )

    def _together(self, starts: list[Start]) -> Start:
        """Return the start of all readers that may be, from those of all that were."""
        first = starts[0]
        require(
            all(
                (each.epoch, each.lanes, each.world_size, each.base, each.sharing)
                == (first.epoch, first.lanes, first.world_size, first.base, first.sharing)
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
        require_all([each.lane for each in starts], first.lanes)
        left = self._left_of(starts)
        return Start(first.epoch, 0, 0, 0, left, skipped=max(each.skipped for each in starts))

    def _left_of(self, starts: Sequence[Start]) -> Base | Left:
        """Return what all readers together have left, given all that there were in turn."""
        deal, _ = self._deal(starts[0])
        readers = [(each.yielded, each.begun, each.parts) for each in starts]
        base = starts[0].base
        assert isinstance(base, Base)
        return left_over(deal, base, readers)

    def _start_at(self, epoch: int, start: Start | None) -> Start:
        """Return where this reader begins a pass of an epoch, or the rest of one."""
        lane, lanes = self._lane()
        _, world_size = self._ranks.now()
        if start is None:
            base, sharing = self._first_base(), self._sharing()
            return Start(epoch, lane, lanes, world_size, base, sharing=sharing)
        if start.lanes == 0:  # for any readers
            sharing = self._sharing()
            return replace(start, lane=lane, lanes=lanes, world_size=world_size, sharing=sharing)
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

    def _first_base(self) -> Base | Left:
        """Return what is left of an epoch that begins."""
        return Base(left=-1 if self._epoch_samples is None else self._epoch_samples)

    def _base_of(self, state: Any) -> Base | Left:
        """Return what a saved state says is left for all readers."""
        return Base.from_state(state)

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

    def _deal(self, start: Start) -> tuple[Deal, tuple[int, ...] | None]:
        """Return who reads what of a base, and how many samples each reader yields."""
        epoch, base, lanes, world_size = start.epoch, start.base, start.lanes, start.world_size
        assert isinstance(base, Base)
        shards = self._count_of_parts
        if not self._firsts:
            if base.left < 0:
                return WholeDeal(base, lanes, shards, rounds=False), None
            total = base.left - base.left % world_size
            quotas = self._shares(total, lanes, world_size, start.sharing)
            return WholeDeal(base, lanes, shards, rounds=True), quotas
        order = self._place.at(epoch).order()

        def count_at(position: int) -> int:
            shard = order[turn(position, shards)]
            return self._firsts[shard + 1] - self._firsts[shard]

        def gone_of(part: Part) -> list[int]:
            end = min(part.end, may_have_left(part))
            if end <= part.begin:
                return []
            shard = order[part.position % shards]
            seeds = _engine.sample_seeds(
                self._place.seed, epoch, (shard << 32) + part.begin, (shard << 32) + end
            )
            numbers = range(part.begin, end)
            return [
                number
                for number, seed in zip(numbers, seeds, strict=True)
                if has_left(part, number, seed, self._window)
            ]

        total = base.left
        if total < 0:
            parts = [with_end(part, count_at) for part in base.parts]
            total = sum(part.end - part.begin - len(gone_of(part)) for part in parts)
            total += sum(count_at(position) for position in range(base.frontier, shards))
        quotas = self._quotas(start, total)
        return EvenDeal(base, quotas, count_at, gone_of), quotas

    def _quotas(self, start: Start, total: int) -> tuple[int, ...]:
        """Return how many of the samples that are left each reader yields."""
        remainder = total % start.world_size
        if remainder and self._uneven != "keep":
            total += start.world_size - remainder if self._uneven == "pad" else -remainder
        return self._shares(total, start.lanes, start.world_size, start.sharing)

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "_latest": None}


def turn(position: int, shards: int) -> int:
    """Return the place in the order of shards of a position, of which a reader has every n-th.

    Each round begins one place later, so that no reader has the same shards again and again.
    """
    return (position + position // shards) % shards
