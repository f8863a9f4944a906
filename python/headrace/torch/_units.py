"""The order of datasets that are read in units of many samples: row groups, and shards."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

from headrace import _engine

__all__ = [
    "OF_WINDOWS",
    "Lanes",
    "Numbers",
    "Places",
    "UnitOrder",
    "Units",
    "UnitsDrawn",
    "by_value",
    "is_run",
    "numbers_below",
    "seeds_of_parts",
]

# torch's operations wake its threads, which takes milliseconds where others use the cores.
Numbers: TypeAlias = NDArray[numpy.int64]
# What is one more each time costs nothing per number.
Places: TypeAlias = Numbers | range

# Seeds of the orders of windows, and of the parts of a mixture, are none of the samples' own.
OF_WINDOWS, _OF_PARTS = 1 << 61, 1 << 62
_PASS_BITS = 50  # a mixture has less than 2^12 datasets
_KEPT_PASSES = 4


class Units(NamedTuple):
    """What an order knows of one dataset."""

    counts: Numbers | None
    """How many samples each unit has; None: each sample is a unit."""
    samples: int
    window: int
    """How many samples that follow each other are shuffled together."""


class Lanes(NamedTuple):
    """How an epoch is laid out, so that each rank reads units of its own.

    The epoch is cut into `number` lanes of equal length. The order takes `run` samples of the first
    lane, as many of the next, and so on. It is fixed when an epoch begins, and part of the state.
    """

    number: int = 1
    run: int = 1


_ONE_LANE = Lanes()


@dataclass(frozen=True)
class UnitsDrawn:
    """A place's `Drawn` of one dataset with units, or of a mixture of datasets some of which have.

    Args:
        parts: the datasets.
        count: how many samples an epoch has.
        shuffle: whether each pass over a dataset has an order of its own.
        weights: of the datasets, by which each sample comes from one; None: there is one dataset,
            and each epoch is a pass over it.
        lanes: how the epoch is laid out.
        windows: whether samples are shuffled in windows although the units are not.
    """

    parts: Sequence[Units]
    count: int
    shuffle: bool
    weights: tuple[float, ...] | None = None
    lanes: Lanes = _ONE_LANE
    windows: bool = False

    @property
    def is_mixed(self) -> bool:
        """Whether samples do not come in the order of their numbers."""
        return self.shuffle or self.windows

    is_counted = True

    @cached_property
    def schedule(self) -> _engine.MixtureSchedule | None:
        """From which dataset each sample comes."""
        if self.weights is None:
            return None
        weights: Any = numpy.array(self.weights, numpy.float64)
        return _engine.MixtureSchedule(weights)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "schedule"}

    @property
    def origin(self) -> str:
        hashed = hashlib.sha256()
        windows = [window if self.is_mixed else 1 for _, _, window in self.parts]
        for counts, samples, _ in self.parts:
            hashed.update(f"{samples} ".encode())
            if counts is not None:
                hashed.update(counts.tobytes())
        if self.schedule is not None:
            hashed.update(repr(self.schedule.parts).encode())
        what = "its units" if self.schedule is None else "a mixture with units"
        return (
            f"{self.count} samples of {what} of the hash {hashed.hexdigest()[:16]}, shuffled in "
            f"windows of {', '.join(map(str, windows))} (shuffle_groups=, shuffle_window=)"
        )

    def laid(self, lanes: Lanes) -> UnitsDrawn:
        """Return the same, in so many lanes."""
        return replace(self, lanes=lanes)

    def order(self, seed: int, epoch: int) -> UnitOrder:
        return UnitOrder(self, seed, epoch)


class UnitOrder:
    """Position in an epoch → number of the sample, as `headrace._engine.Order`.

    Nothing is stored but the order of the units; any position is computed without those before it.
    """

    def __init__(self, drawn: UnitsDrawn, seed: int, epoch: int) -> None:
        self._drawn, self._epoch = drawn, epoch
        self._sources: _engine.MixtureOrder | None = None
        if drawn.schedule is not None:
            sizes = [1 << _PASS_BITS] * len(drawn.parts)
            self._sources = _engine.MixtureOrder(
                drawn.schedule, sizes, drawn.count, 0, epoch, False
            )
        self.begins = [0]
        """The number of the first sample of each dataset."""
        for part in drawn.parts:
            self.begins.append(self.begins[-1] + part.samples)
        self._seeds = [seed]
        if drawn.schedule is not None:
            self._seeds = seeds_of_parts(seed, len(drawn.parts))
        self._passes: dict[tuple[int, int], _Pass] = {}

    def __getitem__(self, position: int) -> int:
        return self.pick([position])[0]

    def indices(self, begin: int, end: int, step: int = 1) -> memoryview:
        return _view(self.numbers(numpy.arange(begin, end, step)))

    def pick(self, positions: Sequence[int]) -> memoryview:
        return _view(self.numbers(numpy.array(positions, numpy.int64)))

    def numbers(self, positions: Places) -> Places:
        """Return the numbers of the samples at these positions."""
        if isinstance(positions, range):
            if self._sources is None and self._drawn.lanes.number == 1 and not self._drawn.is_mixed:
                return positions
            positions = numpy.arange(positions.start, positions.stop)
        places = self._unlaid(positions)
        if self._sources is None:
            return self._pass(0, self._epoch).numbers(places)
        drawn = numpy.asarray(self._sources.pick(places.tolist()), numpy.int64)
        owners, places = drawn >> _PASS_BITS, drawn & ((1 << _PASS_BITS) - 1)
        found = numpy.empty_like(places)
        for owner, own in by_value(owners):
            samples = self._drawn.parts[owner].samples
            passes = places[own] // samples
            taken = numpy.empty_like(passes)
            for number, of_pass in by_value(passes):
                at = places[own][of_pass] - number * samples
                taken[of_pass] = self._pass(owner, number).numbers(at)
            found[own] = taken + self.begins[owner]
        return found

    def parts_of(self, numbers: Places) -> list[int]:
        """Return the datasets of the samples with these numbers."""
        ends = numpy.array(self.begins[1:])
        found: list[int] = numbers_below(ends, numpy.array(numbers)).tolist()
        return found

    def _pass(self, part: int, number: int) -> _Pass:
        found = self._passes.pop((part, number), None)
        if found is None:
            found = _Pass(self._drawn, self._drawn.parts[part], self._seeds[part], number)
            while len(self._passes) >= _KEPT_PASSES * len(self._drawn.parts):
                del self._passes[next(iter(self._passes))]
        self._passes[part, number] = found
        return found

    def _unlaid(self, positions: Numbers) -> Numbers:
        """Return where these positions are when all lanes are laid end to end."""
        count, (lanes, run) = self._drawn.count, self._drawn.lanes
        if lanes == 1:
            return positions
        rounds = count // lanes // run
        body = rounds * run * lanes
        # What is left of each lane after whole runs is less than another run.
        begins = numpy.array(
            [count * lane // lanes - rounds * run * lane for lane in range(lanes + 1)]
        )
        lane, in_lane = positions // run % lanes, positions // (run * lanes) * run + positions % run
        rest = positions >= body
        behind = positions[rest] - body
        lane[rest] = numbers_below(begins, behind) - 1
        in_lane[rest] = rounds * run + behind - begins[lane[rest]]
        firsts: Numbers = numpy.array([count * lane // lanes for lane in range(lanes)])
        return firsts[lane] + in_lane


class _Pass:
    """One pass over a dataset: its units in an order, and its samples shuffled within windows."""

    def __init__(self, drawn: UnitsDrawn, units: Units, seed: int, number: int) -> None:
        self._units, self._seed, self._number = units, seed, number
        self._is_mixed = drawn.is_mixed
        if not self._is_mixed:
            return
        if units.counts is None:
            self._order = _engine.Order(units.samples, seed, number, drawn.shuffle)
            return
        order = _engine.Order(len(units.counts), seed, number, drawn.shuffle)
        chosen = numpy.asarray(order.indices(0, len(units.counts)))
        firsts = units.counts.cumsum() - units.counts
        self._ends: Numbers = units.counts[chosen].cumsum()
        # What has to be added to a place in the pass.
        self._shifts: Numbers = firsts[chosen] - (self._ends - units.counts[chosen])

    def numbers(self, places: Numbers) -> Numbers:
        """Return the numbers of the samples at these places of the pass."""
        if not self._is_mixed:
            return places
        if self._units.counts is None:
            return _picked(self._order, places)
        window = self._units.window
        if window > 1:
            places = places.copy()
            for at, own in by_value(places // window):
                begin = at * window
                size = min(window, self._units.samples - begin)
                [seed] = _engine.sample_seeds(
                    self._seed, self._number, OF_WINDOWS + at, OF_WINDOWS + at + 1
                )
                order = _engine.Order(size, seed, self._number, True)
                places[own] = _picked(order, places[own] - begin) + begin
        return places + self._shifts[numbers_below(self._ends, places)]


def seeds_of_parts(seed: int, count: int) -> list[int]:
    """Return the seeds of so many datasets of a mixture."""
    return list(_engine.sample_seeds(seed, 0, _OF_PARTS, _OF_PARTS + count))


def _view(numbers: Any) -> memoryview:
    return memoryview(numbers)


def _picked(order: _engine.Order, places: Numbers) -> Numbers:
    found: Any
    if len(places) > 0 and is_run(places):
        found = order.indices(int(places[0]), int(places[-1]) + 1)
    else:
        found = order.pick(places.tolist())
    return numpy.asarray(found, numpy.int64)


def is_run(numbers: Places) -> bool:
    """Return whether each number is one more than that before it."""
    if isinstance(numbers, range):
        return True
    return bool((numbers[1:] - numbers[:-1] == 1).all())


def by_value(values: Numbers) -> list[tuple[int, Numbers]]:
    """Return each value with the places where it stands, in the order of their first places."""
    if len(values) > 0 and values.min() == values.max():
        return [(int(values[0]), numpy.arange(len(values)))]
    found = [(int(value), (values == value).nonzero()[0]) for value in numpy.unique(values)]
    return sorted(found, key=lambda each: int(each[1][0]))


def numbers_below(ends: Numbers, places: Numbers) -> Numbers:
    """Return for each place how many of the ascending `ends` it has reached."""
    return ends.searchsorted(places, side="right")
