"""Samples that are read in units of many, for a `Loader`: a unit is read once for all of them."""

from __future__ import annotations

import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray

from headrace import _engine
from headrace._base.errors import HeadraceError, again
from headrace._store.chosen import Chosen
from headrace._store.store import Store
from headrace.torch._units import Places, Units, by_value, numbers_below

__all__ = ["Held", "MeanSizes", "OpenUnit", "UnitPart", "UnitReads"]

# A window begins within a unit and ends in another, which are kept beside those in between.
_SPARE_UNITS = 2


class OpenUnit(Protocol):
    """A unit that is being read. Thread: any."""

    def has(self, numbers: Places) -> bool:
        """Return whether these samples, by their numbers in the unit, can still be asked for."""
        ...

    def ask(self, numbers: Places) -> bool:
        """Note that these samples will be taken; return whether no others are left."""
        ...

    def poll(self) -> bool:
        """Return whether `take` would not wait."""
        ...

    def take(self, numbers: Places) -> Any:
        """Wait for samples that were asked for, and return them.

        Raises:
            HeadraceError: the unit cannot be read.
        """
        ...

    def is_there(self, numbers: Places) -> NDArray[numpy.bool_]:
        """Return which of these samples can be taken although `take` has failed."""
        ...

    def cancel(self) -> None:
        """Ask for an early end."""
        ...

    def close(self) -> None:
        """Cancel, and wait until the engine is done with it."""
        ...


class Held:
    """A sample that was read, before anything is made of it."""

    __slots__ = ("_part", "index", "seed", "value")

    def __init__(self, value: Any, part: UnitPart, index: int) -> None:
        self.value, self._part, self.index = value, part, index
        self.seed = 0

    @property
    def url(self) -> str:
        """The URL of the object in which it is."""
        return self._part.url(self.index)


class MeanSizes:
    """The objects of a part, as `Source` asks for them, where only the sizes of units are known."""

    common_size_bytes = None
    columns: Sequence[str] = ()

    def __init__(self, files: Any, firsts: Sequence[int], unit_bytes: Sequence[int]) -> None:
        self.files = files
        self._firsts = numpy.array(firsts, numpy.int64)
        self._unit_bytes = numpy.array(unit_bytes, numpy.int64)
        self.total_size_bytes = int(self._unit_bytes.sum())

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def sizes(self, indices: Any) -> Any:
        """Return how many bytes of its unit each sample takes, on average."""
        units = numbers_below(self._firsts, numpy.asarray(indices, numpy.int64)) - 1
        counts = self._firsts[units + 1] - self._firsts[units]
        return array("q", (self._unit_bytes[units] // counts).tolist())

    def sum_bytes(self, indices: Any, _: int) -> int:
        return sum(self.sizes(indices))


class UnitPart:
    """A dataset that is read in units, as a part of a `Source`.

    Args:
        objects: what is known of the samples: their number and their sizes.
        firsts: the number of the first sample of each unit, and how many there are in all.
        window: how many samples that follow each other are shuffled together.
    """

    epoch = 0
    """Of which the samples' own random numbers are, until somebody seeds them."""
    _makes = True
    _fingerprint: str
    _chosen: Chosen
    stores: Sequence[Store]

    def __init__(self, objects: Any, firsts: Sequence[int], window: int) -> None:
        self.objects = objects
        self._firsts = numpy.array(firsts, numpy.int64)
        counts = numpy.diff(self._firsts)
        self.units = Units(counts, int(self._firsts[-1]), window)
        self._last = -1, 0
        """The unit of the last sample that is asked for, and the end of its samples."""
        self._most_samples = window + _SPARE_UNITS * int(counts.max())
        self._forget()

    # ---- for whoever has units

    def url(self, index: int) -> str:
        """Return the URL of the object in which a sample is."""
        raise NotImplementedError

    def _member(self, index: int) -> str | None:
        """Return what a sample is called in its object; None: nothing."""
        raise NotImplementedError

    def _opened(self) -> tuple[_engine.Engine, _engine.IndexReader]:
        raise NotImplementedError

    def _made(self, held: Held) -> Any:
        """Return what the dataset makes of a sample."""
        raise NotImplementedError

    def _open(self, unit: int, first: int) -> OpenUnit:
        """Begin to read a unit, from its sample `first` on at the latest."""
        raise NotImplementedError

    def _held(self, found: Sequence[tuple[Any, Places]], indices: Sequence[int]) -> list[Held]:
        """Return samples with these numbers, of what units gave for some of their places each."""
        raise NotImplementedError

    def _seed_samples(
        self, samples: list[Held], seed: int, epoch: int, positions: Sequence[int]
    ) -> None:
        """Give each sample the seed of its position."""
        for held, at in zip(samples, positions, strict=True):
            [held.seed] = _engine.sample_seeds(seed, epoch, at, at + 1)

    def _label(self, samples: list[Held], indices: Sequence[int]) -> None:
        """Nothing: they have no labels but their fields."""

    # ---- as `Source` reads it

    @property
    def _maker(self) -> Callable[[Held], Any]:
        return self._made

    def _start(self, indices: Any, into: Any = None) -> UnitReads:  # noqa: ARG002
        if self._pid != os.getpid():
            self._forget()  # the engine's reads are another process's
        numbers = _numbers(indices)
        shares, begun = [], []
        for unit, own, places in self._units_of(numbers):
            shared = self._opened_unit(unit, own)
            if not shared.is_begun:
                begun.append(unit)
                shared.is_begun = True
            shares.append((shared, own, places))
        return UnitReads(self, numbers, shares, begun)

    def _units_of(self, numbers: Places) -> Iterator[tuple[int, Places, Places]]:
        """Yield the units in the order in which they are needed, with the numbers of the samples
        in each, and their places.
        """
        if not isinstance(numbers, range):
            for unit, places in by_value(numbers_below(self._firsts, numbers) - 1):
                yield unit, numbers[places] - self._firsts[unit], places
            return
        at = 0
        while at < len(numbers):
            unit = self._unit_of(numbers[at])
            first, last = self._firsts[unit : unit + 2].tolist()
            end = min(last - numbers[0], len(numbers))
            yield unit, range(numbers[at] - first, numbers[0] + end - first), range(at, end)
            at = end

    def _opened_unit(self, unit: int, numbers: Places) -> _Shared:
        kept = self._kept.get(unit)
        if kept is not None and not kept.unit.has(numbers):
            self._let_go_of(unit)
            kept = None
        if kept is None:
            lowest = numbers[0] if isinstance(numbers, range) else int(numbers.min())
            # Later samples of a window may come earlier in their unit.
            first = max(0, lowest - max(0, self.units.window - 1))
            kept = _Shared(self._open(unit, first))
            self._kept[unit] = kept
            self._kept_samples += self._count(unit)
        self._kept.move_to_end(unit)
        kept.use()
        if kept.unit.ask(numbers):
            self._let_go_of(unit)
        else:
            while self._kept_samples > self._most_samples and len(self._kept) > 1:
                self._let_go_of(next(iter(self._kept)))
        return kept

    def _let_go_of(self, unit: int) -> None:
        self._kept_samples -= self._count(unit)
        self._kept.pop(unit).let_go()

    def _count(self, unit: int) -> int:
        return int(self._firsts[unit + 1] - self._firsts[unit])

    def end_at(self, number: int) -> None:
        """Say that this sample will be the last one that is asked for."""
        unit = self._unit_of(number)
        # Those behind it in its window may have come before it.
        self._last = unit, number - int(self._firsts[unit]) + max(1, self.units.window)

    def let_go(self) -> None:
        """Keep no units for further reads."""
        if self._pid == os.getpid():
            for kept in self._kept.values():
                kept.let_go()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._kept: OrderedDict[int, _Shared] = OrderedDict()
        self._kept_samples = 0  # that these units have

    def _unit_of(self, index: int) -> int:
        return int(self._firsts.searchsorted(index, side="right")) - 1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": OrderedDict(), "_kept_samples": 0}


class _Shared:
    """A unit, and how many reads use it; closed when none does and it is not kept."""

    def __init__(self, unit: OpenUnit) -> None:
        self.unit = unit
        self.is_begun = False
        """Whether somebody has counted it as begun."""
        self._lock = threading.Lock()
        self._users = 1  # whoever keeps it

    def use(self) -> None:
        with self._lock:
            self._users += 1

    def let_go(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self.unit.close()


class UnitReads:
    """Samples of some units that are being read."""

    def __init__(
        self,
        part: UnitPart,
        indices: Places,
        shares: list[tuple[_Shared, Places, Places]],
        begun: Sequence[int],
    ) -> None:
        self._part, self._shares = part, shares
        self.indices = indices
        """The numbers of the samples."""
        self.begun = begun
        """The units that nobody was reading before."""
        self._lock = threading.Lock()

    def cancel(self) -> None:
        for shared, _, _ in self._shares:
            shared.unit.cancel()

    def drain(self) -> None:
        """Cancel, and wait until the engine is done with it."""
        for shared, _, _ in self._shares:
            shared.unit.cancel()
            shared.unit.close()
        self._let_go()

    def poll(self, at_most_s: float) -> bool:  # noqa: ARG002
        """Return whether all is there. Nobody waits: `Loader` refuses max_wait_s of units."""
        return all(shared.unit.poll() for shared, _, _ in self._shares)

    def wait(self) -> None:
        """Nothing: what a unit gives is taken."""

    def take(self, *, return_errors: bool) -> list[Any]:
        """Wait, and return what was read, or the errors in its place."""
        found, lost = self.take_units()
        if lost and not return_errors:
            raise lost[0][0]
        samples: list[Any] = [None] * len(self.indices)
        for error, places in lost:
            for at in places:
                samples[at] = again(error)
        there = [at for at, each in enumerate(samples) if each is None]
        if there:
            held = self._part._held(found, [int(self.indices[at]) for at in there])
            for at, each in zip(there, held, strict=True):
                samples[at] = each
        return samples

    def take_units(self) -> tuple[list[tuple[Any, Places]], list[tuple[Any, Places]]]:
        """Wait, and return what the units gave, or their errors, each with the places of its
        samples among all.
        """
        found, lost = [], []
        try:
            for shared, numbers, places in self._shares:
                try:
                    found.append((shared.unit.take(numbers), places))
                except HeadraceError as error:
                    is_there = shared.unit.is_there(numbers)
                    if is_there.any():
                        own = numpy.asarray(places)
                        there = numpy.asarray(numbers)[is_there]
                        found.append((shared.unit.take(there), own[is_there]))
                        places = own[~is_there]
                    lost.append((error, places))
        finally:
            self._let_go()
        return found, lost

    def _let_go(self) -> None:
        with self._lock:
            shares, self._shares = self._shares, []
        for shared, _, _ in shares:
            shared.let_go()


def _numbers(indices: Any) -> Places:
    return indices if isinstance(indices, range) else numpy.asarray(indices, numpy.int64)
