"""What a `Loader` is told about order and batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require, require_bytes
from headrace.torch._arguments import Ranks, count, flag, seed_or_epoch
from headrace.torch._batch_costs import Costs
from headrace.torch._batch_sampler import CostBatchSampler
from headrace.torch._batch_steps import BatchLimits
from headrace.torch._batching import Batching, ByCost, BySize
from headrace.torch._mix import Mixture
from headrace.torch._place import Place
from headrace.torch._sampled import ByThem, Sampled
from headrace.torch._shuffling import Shuffle, shuffling
from headrace.torch._source import Source
from headrace.torch._units import UnitsDrawn
from headrace.torch._weighted_sampler import WeightedSampler
from headrace.torch._whole_part import ByDrawn, ByWhole, Uncounted, WholePart

__all__ = ["Ordered", "ordered"]


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """Where a loader begins, and how it goes on."""

    place: Place
    batching: Batching
    ranks: Ranks
    seed: int
    """Of the samples' own seeds."""


def ordered(
    source: Source,
    *,
    mixture: Mixture[Any] | None,
    batch_size: int | None,
    max_batch_bytes: int | None,
    shuffle: Shuffle,
    block_size: int | None,
    shuffle_window: int | None,
    seed: int,
    drop_last: bool,
    sampler: Iterable[int] | None,
    batch_sampler: Iterable[Iterable[int]] | None,
    rank: int | None,
    world_size: int | None,
) -> Ordered:
    """Return what these arguments of `Loader` mean.

    Raises:
        InvalidArgumentError: they cannot work, or contradict each other.
    """
    seed = seed_or_epoch("seed", seed)
    rule = shuffling(shuffle, block_size, shuffle_window)
    drop_last = flag("drop_last", drop_last)
    ranks = Ranks(rank, world_size)
    if batch_sampler is not None:
        require(
            source.units is None,
            "batch_sampler names single samples, and the dataset is read in units of many: leave "
            "it out",
        )
        given = {
            "batch_size": batch_size is not None,
            "max_batch_bytes": max_batch_bytes is not None,
            "shuffle": rule.shuffle,
            "drop_last": drop_last,
            "sampler": sampler is not None,
        }
        _refuse("batch_sampler", "makes the batches", given)
        if isinstance(batch_sampler, CostBatchSampler):
            batch_sampler._require_of(mixture)
            return _as_sampled(source, batch_sampler, batch_sampler._batching, seed, rank, ranks)
        require(
            mixture is None,
            "dataset is a mixture, which says the order: leave out batch_sampler, or give "
            "headrace.torch.CostBatchSampler(mixture, ...)",
        )
        return _by_them(source, batch_sampler, "batch_sampler", None, False, seed, ranks)
    part = source.parts[0]
    if mixture is not None and not source.is_counted:
        given = {"max_batch_bytes": max_batch_bytes is not None}
        _refuse("the mixture", "has samples that nobody has counted", given)
    batch_size, max_batch_bytes = _limits(batch_size, max_batch_bytes)
    batching: Batching
    if isinstance(part, WholePart) and mixture is None:
        batching = ByWhole(part, batch_size, max_batch_bytes, drop_last)
    elif max_batch_bytes is None:
        assert batch_size is not None
        batching = BySize(batch_size, drop_last)
    else:
        limits = BatchLimits(max_size=batch_size, max_bytes=max_batch_bytes, drop_last=drop_last)
        costs = Costs(source, len(source), None, limits, refuse_oversized=False)
        batching = ByCost(costs, limits, _nobody)
    if source.units is not None:
        _refuse("a dataset", "is read in units of many samples", {"sampler": sampler is not None})
        require(
            rule.block_size == 0,
            "shuffle is 'block', and the dataset has units of its own, whose samples stay "
            "together: say shuffle=True",
        )
        drawn: UnitsDrawn | Uncounted = UnitsDrawn(source.units, len(source), rule.shuffle)
        if mixture is not None:
            drawn = mixture.drawn_in_units(source.units, rule.shuffle)
            if not source.is_counted:
                assert batch_size is not None
                batching = ByDrawn(source.of_datasets, batch_size, drop_last)
        elif isinstance(part, WholePart):
            drawn = part.drawn(shuffle=rule.shuffle)
        place = Place(source, seed, rule.shuffle, drawn)
        return Ordered(place=place, batching=batching, ranks=ranks, seed=seed)
    if mixture is not None:
        _refuse("a mixture", "says the order", {"sampler": sampler is not None})
        place = rule.place(source, seed, mixture)
        return Ordered(place=place, batching=batching, ranks=ranks, seed=seed)
    if sampler is None:
        place = rule.place(source, seed)
        return Ordered(place=place, batching=batching, ranks=ranks, seed=seed)
    _refuse("sampler", "says the order", {"shuffle": rule.shuffle})
    if isinstance(sampler, WeightedSampler):
        return _as_sampled(source, sampler, batching, seed, rank, ranks)
    require(
        max_batch_bytes is None,
        f"max_batch_bytes works with a WeightedSampler, and sampler is a "
        f"{type(sampler).__name__}: give a batch_sampler that makes batches of its samples",
    )
    return _by_them(source, sampler, "sampler", batch_size, drop_last, seed, ranks)


def _limits(batch_size: int | None, max_batch_bytes: int | None) -> tuple[int | None, int | None]:
    require(
        batch_size is not None or max_batch_bytes is not None,
        "give batch_size, the samples of a batch, or max_batch_bytes, its bytes, or both",
    )
    if batch_size is not None:
        batch_size = count("batch_size", batch_size, minimum=1)
    if max_batch_bytes is not None:
        max_batch_bytes = require_bytes("max_batch_bytes", max_batch_bytes, minimum=1)
    return batch_size, max_batch_bytes


def _as_sampled(
    source: Source,
    sampler: CostBatchSampler | WeightedSampler,
    batching: Batching,
    seed: int,
    rank: int | None,
    ranks: Ranks,
) -> Ordered:
    """Return the order of a sampler of ours. Its own place stays where it is."""
    name = type(sampler).__name__
    place = sampler._place
    require(
        seed in (0, place.seed),
        f"seed is {seed}, but that of the {name} is {place.seed}: leave out the loader's",
    )
    require(
        place.count_of_objects == len(source),
        f"the {name} is of {place.count_of_objects} samples, and the dataset has {len(source)}",
    )
    place = Place(source, place.seed, place.shuffle, place.drawn)
    return Ordered(
        place=place,
        batching=batching,
        ranks=sampler._ranks if rank is None else ranks,
        seed=place.seed,
    )


def _by_them(
    source: Source,
    sampler: Any,
    argument: str,
    batch_size: int | None,
    drop_last: bool,
    seed: int,
    ranks: Ranks,
) -> Ordered:
    if not isinstance(sampler, Iterable):
        raise InvalidArgumentError(
            f"{argument} is a {type(sampler).__name__}; it must be iterable, as torch's samplers "
            "are"
        )
    require(
        not hasattr(sampler, "__next__"),
        f"{argument} is an iterator, which has one epoch alone; give what makes it: a list, or an "
        "object with __iter__",
    )
    return Ordered(
        place=Place(source, seed, False, Sampled(f"{type(sampler).__name__}")),
        batching=ByThem(sampler, batch_size, drop_last, len(source)),
        ranks=ranks,
        seed=seed,
    )


def _refuse(argument: str, does: str, given: dict[str, bool]) -> None:
    names = [name for name, is_given in given.items() if is_given]
    require(not names, f"{argument} {does}: leave out {', '.join(names)}")


def _nobody(_: list[int]) -> None:
    raise AssertionError("an oversized sample is a batch of its own")
