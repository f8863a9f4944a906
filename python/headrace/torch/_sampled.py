"""Epochs whose order somebody else's sampler says."""

from __future__ import annotations

import operator
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace.torch._grid import Order, Slice, Spot, Steps
from headrace.torch._place import Place

__all__ = ["ByThem", "Sampled"]


@dataclass(frozen=True)
class Sampled:
    """A place's `Drawn` of a sampler of which nothing else is known."""

    what: str

    count = (1 << 63) - 1
    is_counted = False

    @property
    def origin(self) -> str:
        return f"the order of a {self.what}"

    def order(self, seed: int, epoch: int) -> Order:  # noqa: ARG002
        raise AssertionError("nobody knows the order of somebody else's sampler")


@dataclass
class _Reached:
    """Where the sampler has ended an epoch itself: to go on, it needs no state."""

    end: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ByThem:
    """Batches of what somebody else's sampler yields, which are this rank's own.

    A sampler that has ``state_dict``, or whose iterator has one, is asked for it after each batch,
    and gets it back, also where an epoch begins: what it yields next may depend on what it has
    yielded before. Any other is asked anew for the epoch, and what was yielded is passed over: a
    checksum tells whether it is the same as before.
    """

    sampler: Iterable[Any]
    batch_size: int | None
    """How many numbers make a batch; None: the sampler yields batches."""
    drop_last: bool
    count: int
    """How many samples there are."""
    reached: _Reached = field(default_factory=_Reached)

    is_counted_by_making = False

    def steps(self, place: Place, rank: int, world_size: int) -> Steps:  # noqa: ARG002
        # With several ranks, one of them may save the state of all: no checksum is of them all.
        return _TheirSteps(self, place.epoch, checks=world_size == 1)


class _TheirSteps:
    """The steps of one epoch."""

    world_size = 1  # the sampler knows of no other ranks, or has taken them into account

    def __init__(self, by: ByThem, epoch: int, checks: bool) -> None:
        self._by = by
        self._epoch = epoch
        self._checks = checks

    def slices(self, spot: Spot) -> Iterator[Slice]:
        if not self.has_step(spot):
            return
        state = spot.sampler or {}
        sampler: Any = self._by.sampler
        if spot.position == 0 and state and spot.sampler is not self._by.reached.end:
            self._end_epoch_before(state)
        for each in (sampler, getattr(sampler, "sampler", None)):  # a batch sampler's, too
            set_epoch = getattr(each, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(self._epoch)
        iterator, crc = self._iterator(spot, state)
        steps, position = state.get("steps", 0), spot.position
        batch = self._batch(iterator)
        while batch:
            crc = zlib.crc32(array("q", batch).tobytes(), crc)
            begin, position, steps = position, position + len(batch), steps + 1
            after = {"steps": steps, "is_end": False, **_states(sampler, iterator)}
            if self._checks:
                after["crc32"] = crc
            following = self._batch(iterator)
            if not following:
                # What the sampler has now is also what it begins the next epoch with.
                self._by.reached.end = _states(sampler, iterator) or None
                after |= {"is_end": True, "next": self._by.reached.end}
            yield Slice(range(begin, position), Spot(position, (), after), batch)
            batch = following

    def has_step(self, spot: Spot) -> bool:
        return not (spot.sampler or {}).get("is_end", False)

    def step_count(self, spot: Spot) -> int:
        sampler: Any = self._by.sampler
        if not self.has_step(spot):
            return 0
        total: int = len(sampler)  # TypeError, if it does not know
        size = self._by.batch_size
        if size is None:
            return max(0, total - int((spot.sampler or {}).get("steps", 0)))
        left = max(0, total - spot.position)
        return left // size if self._by.drop_last else -(-left // size)

    def _batch(self, iterator: Iterator[Any]) -> list[int]:
        size = self._by.batch_size
        if size is None:
            found = next(iterator, None)
            if found is None:
                return []
            numbers = list(found)
            require(len(numbers) > 0, "the batch_sampler yielded an empty batch")
        else:
            numbers = list(islice(iterator, size))
            if self._by.drop_last and len(numbers) < size:
                return []
        return [self._checked(number) for number in numbers]

    def _checked(self, number: Any) -> int:
        count: int = self._by.count
        try:
            index = int(operator.index(number))
        except TypeError:
            index = count
        if not -count <= index < count:
            raise InvalidArgumentError(
                f"the sampler yielded {number!r}; the dataset has the numbers 0 to {count - 1}"
            )
        return index % count

    def _iterator(self, spot: Spot, state: Mapping[str, Any]) -> tuple[Iterator[Any], int]:
        """Return the sampler's iterator at a spot, and the checksum of what is before."""
        sampler: Any = self._by.sampler
        if spot.position == 0:
            return iter(sampler), 0
        iterator = self._restored(state)
        if "sampler" in state or "iterator" in state:
            return iterator, state.get("crc32", 0)
        crc = self._pass_over(iterator, spot.position)
        if self._checks and crc != state.get("crc32", crc):
            raise InvalidArgumentError(
                f"the {type(sampler).__name__} yields another order in epoch {self._epoch} than "
                "the one that the state was saved in the middle of. Give it what makes its order "
                "the same again, such as a generator with a seed, or a set_epoch or state_dict of "
                "its own; or begin the epoch anew with set_epoch()"
            )
        return iterator, crc

    def _restored(self, state: Mapping[str, Any]) -> Iterator[Any]:
        """Return the sampler's iterator after giving back the states that there are."""
        sampler: Any = self._by.sampler
        if "sampler" in state:
            _require_stateful(sampler, sampler)
            sampler.load_state_dict(state["sampler"])
        iterator: Any = iter(sampler)
        if "iterator" in state:
            _require_stateful(sampler, iterator)
            iterator.load_state_dict(state["iterator"])
        return iter(iterator)

    def _end_epoch_before(self, state: Mapping[str, Any]) -> None:
        """Bring the sampler to where it was when it had ended the epoch before."""
        # Some have to be asked once more, or they would only end that epoch again.
        has_ended = next(self._restored(state), None) is None
        if not has_ended and "sampler" in state:  # it begins anew from this state: undo that
            sampler: Any = self._by.sampler
            sampler.load_state_dict(state["sampler"])

    def _pass_over(self, iterator: Iterator[Any], position: int) -> int:
        crc = passed = 0
        while passed < position:
            numbers: Sequence[Any]
            if self._by.batch_size is None:
                numbers = list(next(iterator, ()))
            else:
                numbers = list(islice(iterator, min(position - passed, 1 << 14)))
            if not numbers:
                raise InvalidArgumentError(
                    f"the sampler ended after {passed} samples, but the state is of a place "
                    f"{position} samples into the epoch"
                )
            checked = [self._checked(number) for number in numbers]
            crc = zlib.crc32(array("q", checked).tobytes(), crc)
            passed += len(numbers)
        return crc


def _states(sampler: Any, iterator: Any) -> dict[str, Any]:
    """Return the states that a sampler and its iterator have."""
    states = {}
    if _is_stateful(sampler):
        states["sampler"] = sampler.state_dict()
    if iterator is not sampler and _is_stateful(iterator):
        states["iterator"] = iterator.state_dict()
    return states


def _is_stateful(what: Any) -> bool:
    return callable(getattr(what, "state_dict", None)) and callable(
        getattr(what, "load_state_dict", None)
    )


def _require_stateful(sampler: Any, what: Any) -> None:
    require(
        _is_stateful(what),
        f"the state has a state of the sampler, and this {type(sampler).__name__} takes none",
    )
