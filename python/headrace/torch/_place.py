"""A loader's place in an order, and how it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace import ObjectIndex, _engine
from headrace._errors import InvalidArgumentError
from headrace._options import require

__all__ = ["Place"]

_VERSION = 2


class Objects(Protocol):
    """The objects that an order permutes."""

    def __len__(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """A hash of everything that the meaning of a position depends on."""
        ...


class Place:
    """An epoch, and a position in its order: how much all ranks together have yielded.

    The position advances as batches are yielded. To go anywhere else, make another place (`at`):
    then an iterator that still yields from the old place does not move the new one.
    """

    def __init__(self, objects: Objects, seed: int, shuffle: bool) -> None:
        self._objects = objects
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self.position = 0
        self.begun = False
        """Whether an iterator has begun here and has not ended."""
        self.is_loaded = False
        """Whether this place was loaded from a saved state."""
        self.is_named = False
        """Whether `Loader.set_epoch` named this epoch: the next pass is of it, even if empty."""

    @property
    def count(self) -> int:
        return len(self._objects)

    def order(self) -> _engine.Order:
        """Return the order of the epoch."""
        return _engine.Order(self.count, self.seed, self.epoch, self.shuffle)

    def at(self, epoch: int, position: int) -> Place:
        """Return the place of the same data at this epoch and position."""
        place = Place(self._objects, self.seed, self.shuffle)
        place.epoch, place.position = epoch, position
        return place

    def end_epoch(self) -> None:
        """Go to the beginning of the next epoch."""
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {**self.identity(), "epoch": self.epoch, "position": self.position}

    def at_state(self, state: Mapping[str, Any]) -> Place:
        """Return the place of a saved state."""
        values = self.read(state, ("epoch", "position"))
        epoch, position = values["epoch"], values["position"]
        require(
            position <= self.count,
            f"the state's position is {position}, but there are only {self.count} objects",
        )
        place = self.at(epoch, position)
        place.is_loaded = True
        return place

    def read(self, state: Mapping[str, Any], numbers: tuple[str, ...]) -> dict[str, int]:
        """Return the `numbers` of a saved state after checking that it has this identity.

        Raises:
            InvalidArgumentError: this is not a state, or it is of other data or of another order.
        """
        return _read(state, self.identity(), numbers, self._objects)

    def identity(self) -> dict[str, Any]:
        """Return the values that must be equal for a position to mean the same."""
        return {
            "version": _VERSION,
            "count": self.count,
            "fingerprint": self._objects.fingerprint,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }


def _read(
    state: Mapping[str, Any],
    identity: Mapping[str, Any],
    numbers: tuple[str, ...],
    objects: Objects,
) -> dict[str, int]:
    require(
        isinstance(state, Mapping) and {*identity, *numbers} <= state.keys(),
        f"this is not a state of a headrace loader or dataset: it must be a mapping with "
        f"{', '.join(sorted({*identity, *numbers}))}",
    )
    require(
        state["version"] == identity["version"],
        f"the state's version is {state['version']!r}, and this headrace reads version "
        f"{identity['version']} alone: a position meant something else in others. Begin the epoch "
        "anew with set_epoch()",
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
    for name in identity:
        require(
            state[name] == identity[name],
            f"the state has {name}={state[name]!r}, but here it is {identity[name]!r}: they must "
            "be the same, or a position means something else",
        )
    values = {}
    for name in numbers:
        value = state[name]
        require(
            isinstance(value, int) and not isinstance(value, bool) and value >= 0,
            f"the state's {name} is {value!r}; it must be an integer of at least 0",
        )
        require(value < 1 << 63, f"the state's {name} is {value!r}; it must be below 2^63")
        values[name] = value
    return values


def _on_checksums(objects: Objects) -> str:
    """Say in which way checksums may be what differs."""
    index: Any = objects
    if not isinstance(index, ObjectIndex):
        index = index.parts[0].objects
    if any(index[at].checksum is not None for at in range(min(len(index), 10))):
        return (
            "These have checksums; those of a directory, or of a table without check=True, have "
            "none."
        )
    return (
        "These have no checksums, as in every directory and in tables without check=True; those of "
        "a bucket have some."
    )
