"""Samples of tar shards as a part of what a `Loader` or a stream reads, each shard as a stream."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from headrace import _engine
from headrace._base.errors import CorruptDataError, HeadraceError, add_note, again, with_url
from headrace._engine import Sample
from headrace._index.shard_samples import KEY
from headrace.torch._shard_dataset import tensors_of
from headrace.torch._unit_reads import Held, MeanSizes, UnitPart
from headrace.torch._units import Places

if TYPE_CHECKING:
    from headrace.torch._shard_stream import ShardStream

__all__ = ["Numbered", "ShardPart", "joined"]

_logger = logging.getLogger("headrace")

Numbered = tuple[int, dict[str, Any]]
"""The seed and the fields of a sample."""


class ShardPart(UnitPart):
    """The samples of a `ShardStream`, of which a shard is a unit.

    A shard is read from its beginning, and its samples are kept until they are asked for.
    """

    def __init__(self, stream: ShardStream[Any], firsts: Sequence[int], window: int) -> None:
        self._stream = stream
        self._chosen = stream._chosen
        self._samples: Any = stream._samples
        self._fingerprint = f"{stream._fingerprint} {stream._counts}"
        objects: Any = self._samples
        if objects is None:
            shards = stream.objects
            of_each = [shards.size_bytes(shard) or 0 for shard in range(len(shards))]
            objects = MeanSizes(shards, firsts, of_each)
        super().__init__(objects, firsts, window)
        self.stores = stream.stores

    has_columns = False

    def url(self, index: int) -> str:
        """Return the URL of the shard of a sample."""
        return self._stream.url(self._unit_of(index))

    def _member(self, index: int) -> str | None:
        if self._samples is None:
            return None
        [key] = self._samples.column(KEY, [index])
        return str(key)

    def _opened(self) -> Any:
        return self._stream._opened()

    def _open(self, unit: int, first: int) -> _Shard:
        last, end = self._last
        read = self._stream._shard_read(unit, first, self.epoch, end if unit == last else -1)
        return _Shard(read, self._stream.url(unit), first, self._count(unit))

    def _held(self, found: Sequence[tuple[Any, Places]], indices: Sequence[int]) -> list[Held]:
        fields = joined(*zip(*found, strict=True))
        return [Held(each, self, index) for (_, each), index in zip(fields, indices, strict=True)]

    def _seed_samples(
        self, samples: list[Held], seed: int, epoch: int, positions: Sequence[int]
    ) -> None:
        super()._seed_samples(samples, seed, epoch, positions)
        for held, at in zip(samples, positions, strict=True):
            fields = [each for each in held.value.values() if isinstance(each, Sample)]
            if fields:
                _engine.seed_samples(fields, seed, epoch, [at] * len(fields))

    def _made(self, held: Held) -> Any:
        fields = held.value
        held.value = None  # its memory is free when the transform is done with it
        key = fields["__key__"]
        try:
            return (self._stream._transform or tensors_of)(fields)
        except Exception as error:
            add_note(error, f"in the sample {key!r}")
            raise

    def __repr__(self) -> str:
        return repr(self._stream)


def joined(found: Sequence[list[Numbered]], places: Sequence[Places]) -> list[Numbered]:
    """Return what shards gave for some places each, in the order of the places."""
    if len(found) == 1 and isinstance(places[0], range):
        return found[0]
    every = [each for of_shard in found for each in of_shard]
    return [every[at] for at in numpy.concatenate(places).argsort().tolist()]


class _Shard:
    """A shard that is being read, and those of its samples that nobody has taken yet.

    Its last sample comes when its end was read, and nothing is wrong with it.
    """

    def __init__(self, read: _engine.ShardRead, url: str, first: int, count: int) -> None:
        self._read, self._url, self._first, self._count = read, url, first, count
        self._lock = threading.Lock()
        self._asked: NDArray[numpy.bool_] = numpy.zeros(count, bool)
        self._asked[:first] = True
        self._held: dict[int, Numbered] = {}
        self._last: dict[int, Numbered] = {}  # until it was read on to the end
        self._error: HeadraceError | None = None

    def has(self, numbers: Places) -> bool:
        return not self._asked[_chosen(numbers)].any()

    def ask(self, numbers: Places) -> bool:
        self._asked[_chosen(numbers)] = True
        return bool(self._asked.all())

    def poll(self) -> bool:
        return False  # nobody knows

    def take(self, numbers: Places) -> list[Numbered]:
        order = [int(number) for number in numbers]
        wanted = set(order)
        with self._lock:
            while not wanted <= self._held.keys():
                if self._error is not None:
                    raise again(self._error)
                self._read_on()
            taken = {number: self._held.pop(number) for number in dict.fromkeys(order)}
        if len(taken) == len(order):
            return list(taken.values())
        # A mixture has it twice, each time with random numbers of its own.
        return [
            (seed, {name: copy(field) for name, field in fields.items()})
            for seed, fields in map(taken.__getitem__, order)
        ]

    def is_there(self, numbers: Places) -> NDArray[numpy.bool_]:
        with self._lock:
            return numpy.array([int(number) in self._held for number in numbers], bool)

    def _read_on(self) -> None:
        try:
            samples = self._read.take()
        except HeadraceError as error:
            self._error = error
            return
        for number, _, seed, fields in samples:
            held = self._held if number + 1 < self._count else self._last
            held[number] = seed, fields
        if samples:
            return
        for warning in self._read.warnings():
            _logger.warning("%s", warning)
        self._held |= self._last
        self._error = with_url(
            CorruptDataError(f"{self._url}: it has fewer samples than its index says"), self._url
        )

    def cancel(self) -> None:
        self._read.cancel()

    def close(self) -> None:
        self._read.close()
        self._held.clear()
        self._last.clear()


def _chosen(numbers: Places) -> Any:
    return slice(numbers.start, numbers.stop) if isinstance(numbers, range) else numbers
