"""What a `Loader` reads: one dataset, or several combined by torch, under one numbering."""

from __future__ import annotations

import hashlib
import itertools
import time
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy
import torch
from torch.utils.data import ConcatDataset, Subset

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace._store.read_ahead import Reads as BeingRead
from headrace.torch._by_number import ByNumber
from headrace.torch._mix import Mixture
from headrace.torch._objects import Objects
from headrace.torch._parquet_dataset import ParquetDataset
from headrace.torch._parquet_part import TableReads
from headrace.torch._pinning import Pinning
from headrace.torch._shard_stream import ShardStream
from headrace.torch._token_dataset import TokenDataset
from headrace.torch._unit_reads import UnitPart
from headrace.torch._units import Units, by_value, numbers_below
from headrace.torch._whole_part import WholePart

__all__ = ["Reads", "Source", "Together", "source_of"]

_TYPES = {"d": torch.float64, "q": torch.int64, "?": torch.bool}
# Methods that a subclass must not override, because `Loader` would not call them.
_NOT_CALLED = ("__getitem__", "__getitems__", "__iter__", "__len__")


class Reads(BeingRead, Protocol):
    """Objects that are being read together."""

    def poll(self, at_most_s: float) -> bool:
        """Wait so long at most; return whether all are there."""
        ...

    def wait(self) -> None: ...
    def take(self, *, return_errors: bool) -> list[Any]: ...


Part = Objects | UnitPart


class Source:
    """Objects of one or several datasets, numbered from 0, and how to make an item of each.

    Args:
        of: the datasets, or sources, of which the numbers follow each other.
        numbers: the objects to read, by these numbers; None: each one once.
        units: what an order has to know of each dataset; None: none is read in units.
    """

    def __init__(
        self,
        of: Sequence[Part] | Sequence[Source],
        numbers: numpy.ndarray[Any, Any] | None = None,
        units: Sequence[Units] | None = None,
    ) -> None:
        self._of = of
        self.numbers = numbers
        self.units = units
        self.parts: list[Part] = []
        for each in of:
            self.parts += each.parts if isinstance(each, Source) else [each]
        self.of_datasets: Sequence[Part] = self.parts
        """The part of each dataset; of one that torch has combined of several, the first."""
        self._begins = [0, *itertools.accumulate(map(_size, of))]
        self._ends = numpy.array(self._begins[1:])
        count = sum(len(each) if isinstance(each, Source) else len(each.objects) for each in of)
        self._count = count if numbers is None else len(numbers)

    @property
    def size(self) -> int:
        """How many numbers it has: more than samples, where nobody has counted these."""
        return self._begins[-1] if self.numbers is None else len(self.numbers)

    @property
    def is_plain(self) -> bool:
        """Whether all samples of its parts follow each other."""
        return self.numbers is None and not any(isinstance(each, Source) for each in self._of)

    def __len__(self) -> int:
        return self._count

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all names, ranges, sizes and checksums in their order."""
        if len(self.parts) == 1 and self.is_plain:
            return self.parts[0]._fingerprint
        hashed = hashlib.sha256()
        for each in self._of:
            of_each = each.fingerprint if isinstance(each, Source) else each._fingerprint
            hashed.update(f"{_size(each)} {of_each} ".encode())
        if self.numbers is not None:
            hashed.update(self.numbers.tobytes())
        return hashed.hexdigest()

    @property
    def chosen(self) -> str:
        """How its objects were chosen from listings; empty: all were given."""
        parts = (getattr(part, "_chosen", None) for part in self.parts)
        rules = dict.fromkeys(each.rule for each in parts if each is not None and each.has_listed)
        return " and ".join(rules)

    @property
    def is_counted(self) -> bool:
        """Whether its samples have numbers; if not, they are read before anybody asks for them."""
        return not any(isinstance(part, WholePart) for part in self.parts)

    @property
    def has_columns(self) -> bool:
        """Whether a batch may be made of whole columns, by `columns`."""
        return len(self.parts) == 1 and getattr(self.parts[0], "has_columns", False)

    @property
    def samples_at_once(self) -> int:
        """How many samples are best read together, if it `has_columns`."""
        part: Any = self.parts[0]
        return int(part.rows_at_once)

    def start_tables(self, batches: Sequence[Sequence[int]]) -> list[TableReads]:
        """Begin to read the samples of some batches together, if it `has_columns`."""
        part: Any = self.parts[0]
        started: list[TableReads] = part.start_tables(batches)
        return started

    def let_go(self) -> None:
        """Keep nothing for further reads."""
        for part in self.parts:
            if isinstance(part, UnitPart):
                part.let_go()

    @cached_property
    def makes(self) -> bool:
        """Whether its items are more than the bytes of the objects."""
        return any(part._makes for part in self.parts)

    @cached_property
    def reads_straight(self) -> bool:
        """Whether the engine can read straight into a batch."""
        if self.makes or len(self.parts) > 1 or self.parts[0].objects.total_size_bytes is None:
            return False
        # Objects that are decompressed, or read anew after a change, have another size than the
        # listed one, and nobody knows it in advance.
        settings = [store._settings for store in self.parts[0].stores]
        return all(
            each.content_encoding == "stored" and each.on_change == "error" for each in settings
        )

    def opened(self) -> tuple[_engine.Engine, _engine.IndexReader]:
        """Return the engine and reader of this process; with several parts, those of the first."""
        return self.parts[0]._opened()

    def start(self, indices: Sequence[int]) -> Reads:
        """Begin to read the objects with these numbers."""
        shares = self._shares(indices)
        if len(shares) == 1:
            part, local, _ = shares[0]
            return part._start(local, None)
        return Together([(part._start(local), places) for part, local, places in shares])

    def start_straight(self, indices: Sequence[int], into: Any) -> Reads:
        """Begin to read the objects with these numbers into a batch, if it `reads_straight`."""
        ((part, local, _),) = self._shares(indices)
        return part._start(local, into)

    def batch(self, raw: torch.Tensor, indices: Sequence[int], pinning: Pinning) -> torch.Tensor:
        """Return the batch of these objects, which were read straight into `raw`."""
        ((part, local, _),) = self._shares(indices)
        assert isinstance(part, Objects)
        return part._batch(raw, local, pinning)

    def seed_and_label(
        self,
        samples: list[Any],
        indices: Sequence[int],
        seed: int,
        epoch: int,
        positions: Sequence[int],
    ) -> None:
        """Give each sample, read by this number, the seed of its position and its label."""
        for part, local, places in self._shares(indices):
            own, at = samples, positions
            if places is not None:
                own, at = [samples[i] for i in places], [positions[i] for i in places]
            part._seed_samples(own, seed, epoch, at)
            part._label(own, local)

    def makers(self, indices: Sequence[int]) -> list[Callable[[Any], Any]]:
        """Return the functions that make items of these samples."""
        if len(self.parts) == 1:
            return [self.parts[0]._maker] * len(indices)
        makers: list[Any] = [None] * len(indices)
        for part, _, places in self._shares(indices):
            for at in range(len(indices)) if places is None else places:
                makers[at] = part._maker
        return makers

    def require_sizes(self, argument: str) -> None:
        """Check that the sizes of all objects are known, as this argument needs them."""
        for part in self.parts:
            require(
                part.objects.total_size_bytes is not None,
                f"{argument} needs the sizes of all objects, and {part!r} does not know them: a "
                "listing does, and MapDataset.from_table(..., check=True) asks the stores",
            )

    def sizes(self, indices: Sequence[int]) -> Sequence[int]:
        """Return the stored sizes of these objects in bytes."""
        shares = self._shares(indices)
        if len(shares) == 1:
            part, local, _ = shares[0]
            return part.objects.sizes(local)
        sizes = array("q", bytes(8 * len(indices)))
        for part, local, places in shares:
            found = part.objects.sizes(local)
            for at, size in zip(
                range(len(found)) if places is None else places, found, strict=True
            ):
                sizes[at] = size
        return sizes

    def column(self, argument: str, name: str) -> torch.Tensor:
        """Return the numbers of a column, one for each object, as this argument needs them.

        Raises:
            InvalidArgumentError: a part has no such column, or it has no numbers.
        """
        columns = [
            each.column(argument, name)
            if isinstance(each, Source)
            else _column(each, argument, name)
            for each in self._of
        ]
        values = torch.cat(columns)
        return values if self.numbers is None else values[torch.from_numpy(self.numbers)]

    def sum_bytes(self, indices: Sequence[int]) -> int:
        """Return how many bytes these objects have together."""
        size_bytes = 0
        for part, local, _ in self._shares(indices):
            size_bytes += part.objects.sum_bytes(local, part._opened()[1].expected_object_bytes)
        return size_bytes

    def url(self, index: int) -> str:
        """Return the URL of an object."""
        ((part, local, _),) = self._shares([index])
        return part.url(local[0])

    def known_number(self, index: int) -> int | None:
        """Return the number of a sample; None: nobody has counted those of its dataset."""
        ((part, _, _),) = self._shares([index])
        return None if isinstance(part, WholePart) else index

    def member(self, index: int) -> str | None:
        """Return what a sample or member of a shard is called in it; None: it is an object."""
        ((part, local, _),) = self._shares([index])
        return part._member(local[0])

    def _shares(self, indices: Sequence[int]) -> list[tuple[Part, Any, list[int] | None]]:
        """Return which part reads which of these objects.

        For each part: its own numbers, and their places in `indices` (None: all of them).
        """
        if len(self.parts) == 1 and self.is_plain:
            return [(self.parts[0], indices, None)]
        if not len(indices):
            return [(self.parts[0], [], None)]
        numbers = numpy.asarray(
            indices if isinstance(indices, memoryview | numpy.ndarray) else list(indices)
        )
        if self.numbers is not None:
            numbers = self.numbers[numbers]
        shares: list[tuple[Part, Any, list[int] | None]] = []
        for owner, places in by_value(numbers_below(self._ends, numbers)):
            each = self._of[owner]
            local: Any = numbers[places] - self._begins[owner]
            everything = len(places) == len(numbers)
            if isinstance(each, Source):
                for part, own, at in each._shares(local):
                    of_part = places if at is None else places[at]
                    is_whole = everything and at is None
                    shares.append((part, own, None if is_whole else of_part.tolist()))
            else:
                shares.append((each, local, None if everything else places.tolist()))
        return shares


def _size(each: Part | Source) -> int:
    """Return how many numbers this has."""
    if isinstance(each, Source):
        return each.size
    # Shards that nobody has counted take more numbers than they have samples.
    return each.units.samples if isinstance(each, UnitPart) else len(each.objects)


def _column(part: Part, argument: str, name: str) -> torch.Tensor:
    index = part.objects
    require(
        name in index.columns,
        f"{argument} is {name!r}, but {part!r} has no such column; it has "
        f"{', '.join(map(repr, index.columns)) or 'none'}",
    )
    values = index.column(name)
    if not isinstance(values, memoryview):
        raise InvalidArgumentError(
            f"{argument} is {name!r}, a column of {type(values[0]).__name__}; it must be one of "
            "numbers"
        )
    return torch.frombuffer(values, dtype=_TYPES[values.format]).to(torch.float64)


class Together:
    """Several reads, whose samples form one list; each is with the places of its own."""

    def __init__(self, shares: list[tuple[Reads, list[int] | None]]) -> None:
        self._shares = shares

    def cancel(self) -> None:
        for batch, _ in self._shares:
            batch.cancel()

    def drain(self) -> None:
        for batch, _ in self._shares:
            batch.drain()

    def poll(self, at_most_s: float) -> bool:
        deadline = time.monotonic() + at_most_s
        return all(batch.poll(max(0.0, deadline - time.monotonic())) for batch, _ in self._shares)

    def wait(self) -> None:
        for batch, _ in self._shares:
            batch.wait()

    def take(self, *, return_errors: bool) -> list[Any]:
        samples: list[Any] = [None] * sum(len(places or ()) for _, places in self._shares)
        for batch, places in self._shares:
            for at, sample in zip(
                places or (), batch.take(return_errors=return_errors), strict=True
            ):
                samples[at] = sample
        return samples


_KINDS: tuple[Any, ...] = (
    ByNumber,
    TokenDataset,
    ParquetDataset,
    ShardStream,
    Subset,
    ConcatDataset,
)


def source_of(dataset: Any, *, reads: bool = True) -> Source:
    """Return the objects of a dataset of headrace, or of a torch dataset built from some.

    Args:
        dataset: the dataset.
        reads: whether they will be read past the methods of the dataset.

    Raises:
        InvalidArgumentError: `Loader` cannot read the dataset as its author intended.
    """
    if isinstance(dataset, Mixture):
        sources = [source_of(part, reads=reads) for part in dataset.datasets]
        whole = _together(sources)
        if any(source.units is not None for source in sources):
            of_each = (each.units or [Units(None, len(each), 1)] for each in sources)
            whole.units = [units for [units] in of_each]
            whole.of_datasets = [each.parts[0] for each in sources]
        return whole
    for kind in _KINDS:
        if isinstance(dataset, kind):
            if reads:
                _require_no_overrides(dataset, kind)
            break
    else:
        raise InvalidArgumentError(
            f"dataset is a {type(dataset).__name__}; it must be a dataset of headrace.torch, a mix "
            "of some, or a ConcatDataset or Subset of torch over some (torch's DataLoader takes "
            "any dataset)"
        )
    if isinstance(dataset, ParquetDataset | ShardStream):
        _require_no_own_order(dataset)
        require(
            reads or len(dataset._firsts) > 0,
            f"nobody knows how many samples the shards of {dataset!r} have, which is necessary "
            "here: give an index of the members as the source (`headrace index`, or "
            "headrace.index_members; of compressed shards, the JSON of webdataset's wids)",
        )
        part = dataset._as_part()
        return Source([part], units=[part.units])
    if isinstance(dataset, Objects):
        return Source([dataset])
    if isinstance(dataset, Subset):
        whole = source_of(_unmixed(dataset.dataset), reads=reads)
        require(
            whole.units is None,
            f"the Subset is of {dataset.dataset!r}, which is read in units of many samples: give "
            "fewer files to it",
        )
        return _subset(whole, dataset.indices)
    return _together([source_of(_unmixed(part), reads=reads) for part in dataset.datasets])


def _unmixed(part: Any) -> Any:
    """Return a part of a combined dataset, of which its order would have to be forgotten."""
    require(
        not isinstance(part, Mixture),
        "a mixture is part of a ConcatDataset or Subset, and its shares would be lost: combine the "
        "datasets first, then mix them",
    )
    return part


def _subset(whole: Source, indices: Any) -> Source:
    given = torch.as_tensor(indices if torch.is_tensor(indices) else list(indices), device="cpu")
    numbers = given.to(torch.int64).reshape(-1).numpy()
    if len(numbers) == 0:
        raise InvalidArgumentError("the Subset is empty; there is nothing to read")
    low, high = int(numbers.min()), int(numbers.max())
    require(
        -len(whole) <= low and high < len(whole),
        f"the Subset has the number {low if low < -len(whole) else high}, but its dataset has only "
        f"{len(whole)} objects",
    )
    numbers = numpy.where(numbers < 0, numbers + len(whole), numbers)
    return Source(whole._of, numbers if whole.numbers is None else whole.numbers[numbers])


def _together(sources: list[Source]) -> Source:
    if all(source.is_plain for source in sources):
        return Source([part for source in sources for part in source.parts])
    return Source(sources)


def _require_no_own_order(stream: Any) -> None:
    """Refuse what a stream says for torch's DataLoader, and a `Loader` says for all datasets."""
    given = {
        "shuffle": stream._place.shuffle,
        "uneven": stream._uneven != "drop",
        "epoch_samples": stream._epoch_samples is not None and len(stream._firsts) > 0,
        "batch_size": getattr(stream, "_batch_size", None) is not None,
        "rank": stream._ranks.are_given,
        "on_error": stream._skipping.skips,
    }
    names = [f"{name}=" for name, is_given in given.items() if is_given]
    require(
        not names,
        f"{stream!r} was made with {', '.join(names)}: leave it out there, and give it to the "
        "Loader, which says it for all datasets",
    )


def _require_no_overrides(dataset: Any, kind: type) -> None:
    for name in _NOT_CALLED:
        if getattr(type(dataset), name, None) is not getattr(kind, name, None):
            raise InvalidArgumentError(
                f"{type(dataset).__name__} has a {name} of its own, which Loader would not call, "
                "because it reads the objects of a batch all at once. Give what that does as "
                "transform=, or use torch's DataLoader"
            )
