"""Batches of samples by what they cost."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace._engine import ObjectIndex
from headrace.torch._arguments import (
    Ranks,
    choice,
    class_name,
    count,
    flag,
    function,
    seed_or_epoch,
)
from headrace.torch._batch_costs import Cost, Costs
from headrace.torch._batch_steps import BatchLimits, Fits
from headrace.torch._batching import ByCost
from headrace.torch._epoch_sampler import EpochSampler
from headrace.torch._error_notes import about_call
from headrace.torch._mix import Mixture
from headrace.torch._place import Place
from headrace.torch._samples import Samples, samples_of
from headrace.torch._shuffling import Shuffle, shuffling
from headrace.torch._weighted_sampler import WeightedSampler

__all__ = ["CostBatchSampler"]

_MOST_NAMED = 5
_OVERSIZED = ("alone", "raise", "skip")
_logger = logging.getLogger("headrace")


class CostBatchSampler(EpochSampler[list[int]]):
    """Batches of as many samples as fit into a number of bytes, of tokens, or of any other cost.

    Give it to torch's ``DataLoader(batch_sampler=)``, to torchdata's ``StatefulDataLoader``, or to
    `Loader`, which then has epochs and a place of its own. A batch is a list of the numbers of
    samples.

    **Batches** form over the whole epoch's order, which depends on `seed` and the epoch alone, and
    the ranks take them in turn: a step takes the next `world_size` batches. A batch takes the
    samples that come next, and is full when it has reached a limit or the next sample would exceed
    one. Each sample comes once per epoch over all ranks. At the end, batches are halved until each
    rank has one, so all ranks take the same number of steps. Samples are left out only where fewer
    than `world_size` are left; at most that many at the end of an epoch.

    **Place.** `state_dict` is a position in the order, and with `cost_boundaries` the few positions
    before it that no batch has had. Ranks and all limits may differ when it is loaded. It records
    the batches that were *asked for*. torch's DataLoader asks ahead if it has workers; torchdata's
    StatefulDataLoader keeps the place of each batch, and `Loader` that of the last one it yielded.

    **Speed.** Batches are made by the engine, in about 0.1 µs a sample, unless `cost` or `fits` is
    a function. Such functions run in the thread that asks for batches.

    Examples:
        >>> sampler = CostBatchSampler(dataset, cost=lengths, max_batch_cost=16_384, shuffle=True)
        >>> for batch in DataLoader(dataset, batch_sampler=sampler):
        ...     train(batch)

    Args:
        data: what the numbers are of: a dataset, an `ObjectIndex`, or a number of samples. Bytes
            and columns need a dataset of this package (or torch's ``ConcatDataset`` or ``Subset``
            of some), or an index. A `mix` says the order, too; its batches are for `Loader`.
        max_batch_size: the most samples of a batch.
        max_batch_bytes: the most bytes of a batch, counted by the stored size of its samples.
        cost: what each sample costs: the name of a column of the index, one number for each sample,
            or a function of the sample's number. A function is called once for each sample, and
            must always return the same.
        max_batch_cost: the most that the samples of a batch cost together.
        cost_boundaries: ascending costs. Samples whose costs lie between the same two of them are
            batched together, as far as the order goes; a cost equal to a boundary belongs to the
            dearer ones. With lengths as costs, this is known as bucketing by length.
        fits: a function that is called as ``fits(batch, index)``, with what the batch has so far
            (`BatchSoFar`), and says whether the next sample still goes in. It is asked where the
            other limits allow that and the batch is not empty, and must always answer the same to
            the same question. A call costs about a microsecond besides its own time.
        oversized: what to do with a sample that exceeds a limit alone: ``"alone"`` makes it a batch
            of its own, ``"raise"`` is an error, ``"skip"`` leaves it out, with a warning in the
            log; see `skipped`.
        drop_last: leave out, at the end, batches that are not full, and batches that are too few
            for a step of all ranks.
        saturation: with `drop_last`, a batch at the end that is filled to more than this share of a
            limit counts as full.
        shuffle: whether each epoch has an order of its own. ``"block"`` keeps neighbours together;
            this, `block_size` and `shuffle_window` are as for `Loader`.
        block_size: see `shuffle`.
        shuffle_window: see `shuffle`.
        sampler: a `WeightedSampler`, whose samples take the place of the order, and whose seed and
            ranks are taken.
        seed: of the order; any integer from 0 to 2^63 - 1. Give all ranks the same.
        rank: which of `world_size` trainer processes this is. Default for both: the values of
            torch.distributed, if it is initialised when an epoch begins; otherwise one process.
        world_size: see `rank`.

    Raises:
        InvalidArgumentError: an argument cannot work.
    """

    def __init__(
        self,
        data: Any,
        *,
        max_batch_size: int | None = None,
        max_batch_bytes: int | None = None,
        cost: Cost | None = None,
        max_batch_cost: float | None = None,
        cost_boundaries: Sequence[float] | None = None,
        fits: Fits | None = None,
        oversized: str = "alone",
        drop_last: bool = False,
        saturation: float | None = None,
        shuffle: Shuffle = False,
        block_size: int | None = None,
        shuffle_window: int | None = None,
        sampler: WeightedSampler | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        samples = samples_of(data)
        require(
            any(
                limit is not None
                for limit in (max_batch_size, max_batch_bytes, max_batch_cost, fits)
            ),
            "give max_batch_size, max_batch_bytes, cost and max_batch_cost, or fits: something has "
            "to say when a batch is full",
        )
        if max_batch_size is not None:
            max_batch_size = count("max_batch_size", max_batch_size, minimum=1)
        if max_batch_bytes is not None:
            max_batch_bytes = count("max_batch_bytes", max_batch_bytes, minimum=1)
        if max_batch_cost is not None:
            max_batch_cost = _number("max_batch_cost", max_batch_cost)
            require(
                0 < max_batch_cost < math.inf,
                f"max_batch_cost is {max_batch_cost!r}; it must be a finite number above 0",
            )
            require(cost is not None, "max_batch_cost is given, but cost does not say of what")
        require(
            cost is None or any(x is not None for x in (max_batch_cost, cost_boundaries, fits)),
            "cost is given, but none of max_batch_cost, cost_boundaries and fits, which use it",
        )
        function("fits", fits)
        choice("oversized", oversized, _OVERSIZED)
        self._skipped: set[int] = set()
        limits = BatchLimits(
            max_size=max_batch_size,
            max_bytes=max_batch_bytes,
            max_cost=max_batch_cost,
            boundaries=_boundaries(cost_boundaries, cost),
            skip_oversized=oversized == "skip",
            drop_last=flag("drop_last", drop_last),
            saturation=_saturation(saturation, drop_last),
            fits=None if fits is None else self._fits,
            calls=fits is not None or callable(cost),
        )
        self._asked = fits
        self._costs = Costs(samples.source, len(samples), cost, limits, oversized == "raise")
        self._costs.check()
        seed = seed_or_epoch("seed", seed)
        rule = shuffling(shuffle, block_size, shuffle_window)
        self._mixture = data if isinstance(data, Mixture) else None
        require(
            self._mixture is None or sampler is None,
            "data is a mixture, which says the order: leave out sampler",
        )
        if sampler is None:
            place, ranks = rule.place(samples, seed, self._mixture), Ranks(rank, world_size)
        else:
            place, ranks = _drawn_by(sampler, samples, seed, rule.shuffle, rank, world_size)
        super().__init__(place, ByCost(self._costs, limits, self._leave_out), ranks)
        self._data = data

    def _require_of(self, mixture: Mixture[Any] | None) -> None:
        """Check that batches are of this mixture, or of none."""
        require(
            self._mixture is mixture,
            "the batch_sampler is of other data than the loader: give the same mixture to both",
        )

    def _yielded(self, place: Place) -> Iterator[list[int]]:
        require(
            self._mixture is None,
            "batches of a mixture are for Loader(mixture, batch_sampler=...); torch's DataLoader "
            "numbers the samples of a mixture in another way",
        )
        order = place.order()
        for own in self._batching.steps(place, *self._ranks.now()).slices(place.spot):
            place.spot = own.after
            yield order.pick(own.positions).tolist()

    @property
    def skipped(self) -> list[int]:
        """The numbers of the samples that ``oversized="skip"`` has left out so far, ascending.

        Examples:
            >>> sampler.skipped
            []
        """
        return sorted(self._skipped)

    def __repr__(self) -> str:
        limits = self._batching.limits  # type: ignore[attr-defined]
        given = {
            "max_batch_size": limits.max_size,
            "max_batch_bytes": limits.max_bytes,
            "max_batch_cost": limits.max_cost,
        }
        told = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        data = self._data
        what = f"{len(data)} objects" if isinstance(data, ObjectIndex) else repr(data)
        rank, world_size = self._ranks.now()
        return (
            f"{class_name(self)}({what}{', ' if told else ''}{told}, rank {rank} of {world_size})"
        )

    def _fits(self, batch: Any, index: int) -> object:
        assert self._asked is not None
        try:
            return self._asked(batch, index)
        except Exception as error:
            told = about_call(error, f"fits, asked about {self._costs.named(index)}")
            if told is error:
                raise
            raise told from error

    def _leave_out(self, indices: list[int]) -> None:
        new = sorted(set(indices) - self._skipped)
        if not new:
            return
        self._skipped.update(new)
        named = ", ".join(self._costs.named(index) for index in new[:_MOST_NAMED])
        _logger.warning(
            "%r leaves out %d samples that exceed a limit alone: %s%s",
            self, len(new), named, " and others" if len(new) > _MOST_NAMED else "",
        )  # fmt: skip


def _drawn_by(
    sampler: WeightedSampler,
    samples: Samples,
    seed: int,
    shuffle: bool,
    rank: int | None,
    world_size: int | None,
) -> tuple[Place, Ranks]:
    if not isinstance(sampler, WeightedSampler):
        raise InvalidArgumentError(
            f"sampler is a {type(sampler).__name__}; CostBatchSampler takes a WeightedSampler "
            "of headrace.torch alone"
        )
    require(
        not shuffle and seed == 0 and rank is None and world_size is None,
        "sampler is given, which has a seed and ranks of its own: leave out shuffle, seed, rank "
        "and world_size",
    )
    place = sampler._place
    require(
        place.is_of(samples),
        f"sampler draws from other data than the {len(samples)} samples of the batches",
    )
    return place.at(0), sampler._ranks


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    require(
        not math.isnan(number) and not isinstance(value, str | bool),
        f"{name} is {value!r}; it must be a number",
    )
    return number


def _boundaries(values: Sequence[float] | None, cost: Cost | None) -> tuple[float, ...]:
    if values is None:
        return ()
    require(cost is not None, "cost_boundaries is given, but there is no cost")
    try:
        boundaries = tuple(_number("each of cost_boundaries", value) for value in values)
    except (TypeError, InvalidArgumentError):
        boundaries = ()
    require(
        len(boundaries) > 0
        and all(math.isfinite(each) for each in boundaries)
        and all(low < high for low, high in pairwise(boundaries)),
        f"cost_boundaries is {values!r}; it must be ascending, finite numbers",
    )
    return boundaries


def _saturation(value: float | None, drop_last: bool) -> float:
    if value is None:
        return 1.0
    saturation = _number("saturation", value)
    require(0 <= saturation <= 1, f"saturation is {value!r}; it must be from 0 to 1")
    require(
        drop_last,
        "saturation says which batches drop_last=True keeps at the end; without that, all are kept",
    )
    return saturation
