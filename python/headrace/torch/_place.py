"""A loader's place in an order, and how it is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any, Protocol

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import integer, require
from headrace._engine import ObjectIndex
from headrace.torch._grid import Order, Spot
from headrace.torch._units import Lanes, UnitsDrawn

__all__ = ["Drawn", "Place", "skipped_in_state", "skipped_of_state"]

_VERSION = 2


class Objects(Protocol):
    """The objects that an order permutes."""

    def __len__(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """A hash of everything that the meaning of a position depends on."""
        ...


class Drawn(Protocol):
    """What takes the place of the order of all objects."""

    @property
    def count(self) -> int:
        """How many positions an epoch has, or more, if nobody knows."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether an epoch has exactly `count` positions."""
        ...

    @property
    def origin(self) -> str:
        """Says what it is; a state is only for the same."""
        ...

    def order(self, seed: int, epoch: int) -> Order:
        """Return the order of an epoch."""
        ...


class Place:
    """An epoch, and a position in its order: how much all ranks together have yielded.

    The position advances as batches are yielded. To go anywhere else, make another place (`at`):
    then an iterator that still yields from the old place does not move the new one.
    """

    def __init__(
        self,
        objects: Objects,
        seed: int,
        shuffle: bool,
        drawn: Drawn | None = None,
        *,
        chosen: str | None = None,
    ) -> None:
        self._objects = objects
        self.chosen: str = getattr(objects, "chosen", "") if chosen is None else chosen
        """How the objects were chosen from listings; empty: somebody gave them."""
        self.drawn = drawn
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self.position = 0
        """That of `spot`, which may be changed alone if nothing waits."""
        self._waiting: Sequence[int] = ()
        self._sampler: Mapping[str, Any] | None = None
        self.skipped = 0
        """How many samples of the epoch were left out here because of errors."""
        self.begun = False
        """Whether an iterator has begun here and has not ended."""
        self.is_loaded = False
        """Whether this place was loaded from a saved state."""
        self.is_named = False
        """Whether `Loader.set_epoch` named this epoch: the next pass is of it, even if empty."""

    @property
    def spot(self) -> Spot:
        return Spot(self.position, self._waiting, self._sampler)

    @spot.setter
    def spot(self, spot: Spot) -> None:
        self.position, self._waiting, self._sampler = spot

    @property
    def count(self) -> int:
        """How many positions an epoch has, or more, if nobody knows."""
        return len(self._objects) if self.drawn is None else self.drawn.count

    @property
    def count_of_objects(self) -> int:
        return len(self._objects)

    @property
    def left(self) -> int:
        """How many positions of the epoch are left; 0 if nobody knows."""
        if self.drawn is not None and not self.drawn.is_counted:
            return 0
        return self.count - self.position + len(self._waiting)

    @property
    def is_begin(self) -> bool:
        """Whether nothing of the epoch was yielded."""
        return self.position == 0

    def is_of(self, objects: Objects) -> bool:
        """Return whether these are the objects that positions are of."""
        return len(self._objects) == len(objects) and (
            self._objects.fingerprint == objects.fingerprint
        )

    def order(self) -> Order:
        """Return the order of the epoch."""
        if self.drawn is not None:
            return self.drawn.order(self.seed, self.epoch)
        return _engine.Order(len(self._objects), self.seed, self.epoch, self.shuffle)

    def laid(self, lanes: Lanes) -> Place:
        """Return the place with the epoch laid out so, if it begins here."""
        if not isinstance(self.drawn, UnitsDrawn) or not self.is_begin:
            return self
        place = copy(self)
        place.drawn = self.drawn.laid(lanes)
        return place

    def at(self, epoch: int, spot: Spot = Spot(), skipped: int = 0) -> Place:  # noqa: B008
        """Return the place of the same data at this epoch and spot."""
        place = Place(self._objects, self.seed, self.shuffle, self.drawn, chosen=self.chosen)
        place.epoch, place.spot, place.skipped = epoch, spot, skipped
        return place

    def named(self, epoch: int) -> Place:
        """Return the place at which an epoch begins that the user names.

        If this place was loaded and lies in that epoch or at its end, it is what is left of it.
        """
        spot, skipped = Spot(), 0
        if epoch == self.epoch and not self.begun:
            spot, skipped = self.spot, self.skipped
        elif epoch + 1 == self.epoch and self.is_loaded and not self.begun and self.is_begin:
            # An epoch's end and the next one's beginning have one state.
            spot = self._end_before()
        place = self.at(epoch, spot, skipped)
        place.is_named = True
        return place

    def _end_before(self) -> Spot:
        """Return the end of the epoch before, if this is where an epoch begins."""
        if self.drawn is not None and not self.drawn.is_counted:
            return Spot(1, (), {"is_end": True, "next": self._sampler})
        return Spot(self.count, (), self._sampler and {"next": self._sampler})

    def following(self) -> Place:
        """Return the beginning of the next epoch, if this is the end of one."""
        return self.at(self.epoch + 1, self.spot.after_end())

    def end_epoch(self) -> None:
        """Go to the beginning of the next epoch."""
        self.epoch, self.spot, self.is_loaded = self.epoch + 1, self.spot.after_end(), False
        self.skipped = 0

    def state_dict(self) -> dict[str, Any]:
        state = {**self.identity(), "epoch": self.epoch, "position": self.position}
        if len(self._waiting) > 0:
            state["waiting"] = sorted(self._waiting)
        if self._sampler is not None:
            state["sampler"] = dict(self._sampler)
        if isinstance(self.drawn, UnitsDrawn) and not self.is_begin:
            state["lanes"] = list(self.drawn.lanes)
        return state | skipped_in_state(self.skipped)

    def at_state(self, state: Mapping[str, Any]) -> Place:
        """Return the place of a saved state."""
        values = self.read(state, ("epoch", "position"))
        epoch, position = values["epoch"], values["position"]
        require(
            position <= self.count,
            f"the state's position is {position}, but there are only {self.count} objects",
        )
        sampler = state.get("sampler")
        for each in (sampler, sampler.get("next") if isinstance(sampler, Mapping) else None):
            require(
                each is None or isinstance(each, Mapping),
                f"the state's sampler is {sampler!r}; it must be a mapping",
            )
        spot = Spot(position, _waiting(state, position), sampler)
        place = self.at(epoch, spot, skipped_of_state(state))
        if isinstance(self.drawn, UnitsDrawn) and not place.is_begin:
            place.drawn = self.drawn.laid(_lanes(state))
        place.is_loaded = True
        return place

    def at_states(self, states: Sequence[Mapping[str, Any]]) -> Place:
        """Return the place of the states that all ranks have saved at one moment."""
        require(len(states) > 0, "there is no state in the list")
        places = [self.at_state(state) for state in states]
        first = places[0]
        others = [(each.epoch, each.position, each._waiting, _lanes_of(each)) for each in places]
        require(
            all(each == others[0] for each in others),
            "the states are of different moments: give those that the ranks have saved after the "
            "same batch",
        )
        first.skipped = max(place.skipped for place in places)
        first._sampler = _together([place._sampler for place in places])
        return first

    def read(self, state: Mapping[str, Any], numbers: tuple[str, ...]) -> dict[str, int]:
        """Return the `numbers` of a saved state after checking that it has this identity.

        Raises:
            InvalidArgumentError: this is not a state, or it is of other data or of another order.
        """
        return _read(state, self.identity(), numbers, self._objects)

    def identity(self) -> dict[str, Any]:
        """Return the values that must be equal for a position to mean the same."""
        identity = {
            "version": _VERSION,
            "count": len(self._objects),
            "fingerprint": self._objects.fingerprint,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "chosen": self.chosen,
        }
        if self.drawn is not None:
            identity["drawn"] = self.drawn.origin
        return identity


def skipped_in_state(skipped: int) -> dict[str, int]:
    """Return what a state says of samples that were left out: nothing, if none was."""
    return {"skipped": skipped} if skipped > 0 else {}


def skipped_of_state(state: Mapping[str, Any]) -> int:
    """Return how many samples were left out before a state was saved."""
    return integer("the state's skipped", state.get("skipped", 0), minimum=0, end=1 << 63)


def _lanes_of(place: Place) -> Lanes | None:
    return place.drawn.lanes if isinstance(place.drawn, UnitsDrawn) else None


def _together(samplers: Sequence[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    """Return what all ranks have alike, or what has the readers of all ranks."""
    first = samplers[0]
    if all(each == first for each in samplers):
        return first
    of_ranks = [(each or {}).get("readers") for each in samplers]
    require(
        all(
            isinstance(parts, Sequence) and all(isinstance(each, Sequence) for each in parts)
            for parts in of_ranks
        ),
        "the states have different places of a sampler, and nobody knows how to join these: give "
        "each rank its own",
    )
    parts = zip(*(parts or () for parts in of_ranks), strict=False)
    readers = [[reader for some in of_part for reader in some] for of_part in parts]
    return {**(first or {}), "readers": readers}


def _lanes(state: Mapping[str, Any]) -> Lanes:
    """Return how the epoch of a saved state is laid out."""
    lanes: Any = state.get("lanes")
    require(
        isinstance(lanes, list | tuple) and len(lanes) == 2,
        f"the state's lanes are {lanes!r}; they must be two integers",
    )
    # Of ranks, and of samples of a batch.
    return Lanes(
        integer("the number of the state's lanes", lanes[0], minimum=1, end=1 << 20),
        integer("the run of the state's lanes", lanes[1], minimum=1, end=1 << 40),
    )


def _waiting(state: Mapping[str, Any], position: int) -> list[int]:
    """Return the waiting positions of a saved state."""
    waiting = state.get("waiting", [])
    is_right = isinstance(waiting, list | tuple) and all(
        isinstance(at, int) and not isinstance(at, bool) for at in waiting
    )
    require(
        is_right
        and all(0 <= at < position for at in waiting)
        and all(low < high for low, high in pairwise(waiting)),
        f"the state's waiting positions must be ascending integers below its position, {position}",
    )
    return list(waiting)


def _read(
    state: Mapping[str, Any],
    identity: Mapping[str, Any],
    numbers: tuple[str, ...],
    objects: Objects,
) -> dict[str, int]:
    needed = sorted({*identity, *numbers} - {"chosen"})
    require(
        isinstance(state, Mapping) and {*needed} - {"drawn"} <= state.keys(),
        f"this is not a state of a headrace loader or dataset: it must be a mapping with "
        f"{', '.join(needed)}",
    )
    require(
        state["version"] == identity["version"],
        f"the state's version is {state['version']!r}, and this headrace reads version "
        f"{identity['version']} alone: a position meant something else in others. Begin the epoch "
        "anew with set_epoch()",
    )
    data = ("count", "fingerprint")
    here, there = identity["chosen"], state.get("chosen", "every object of a listing")
    if here and here != there and any(state[name] != identity[name] for name in data):
        raise InvalidArgumentError(
            f"the state is of other data, whose {state['count']} samples were chosen by another "
            f"rule: {there or 'an index was given'}. The {identity['count']} here: {here}. "
            "hidden= and suffix= choose others, and so does index="
        )
    if state["count"] != identity["count"]:
        raise InvalidArgumentError(
            f"the state is of other data: it knows {state['count']} objects, and here are "
            f"{identity['count']}; all names, sizes and checksums must be the same. Keep the "
            "index with the state and give it as `index`, if the bucket has changed since"
        )
    if state["fingerprint"] != identity["fingerprint"]:
        raise InvalidArgumentError(
            f"the state is of other data: its {state['count']} objects differ from these in names, "
            f"sizes or checksums. {_on_checksums(objects)} If objects have changed, or lie "
            "elsewhere, give the index that the state was saved with: index=index, or for a copy "
            "of the objects index=index.at(url)"
        )
    if (drawn := state.get("drawn")) != (own := identity.get("drawn")):
        every = "each object once per epoch"
        raise InvalidArgumentError(
            f"the state is of {drawn or every}, but here it is {own or every}: a position means "
            "something else"
        )
    for name in identity.keys() - {"chosen"}:  # the data is the same
        require(
            state[name] == identity[name],
            f"the state has {name}={state[name]!r}, but here it is {identity[name]!r}: they must "
            "be the same, or a position means something else",
        )
    return {
        name: integer(f"the state's {name}", state[name], minimum=0, end=1 << 63)
        for name in numbers
    }


def _on_checksums(objects: Objects) -> str:
    """Say in which way checksums may be what differs."""
    index: Any = objects
    if not isinstance(index, ObjectIndex):
        index = index.parts[0].objects
        index = getattr(index, "files", index)
    if any(index[at].checksum is not None for at in range(min(len(index), 10))):
        return (
            "These have checksums; those of a directory, or of a table without check=True, have "
            "none."
        )
    return (
        "These have no checksums, as in every directory and in tables without check=True; those of "
        "a bucket have some."
    )
