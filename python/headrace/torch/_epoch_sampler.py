"""What samplers have in common whose epochs are computed: they have a place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch.utils.data import Sampler

from headrace.torch._arguments import Ranks, seed_or_epoch, warn_of_overlooked_ranks
from headrace.torch._batching import Batching
from headrace.torch._place import Place

__all__ = ["EpochSampler"]

Item = TypeVar("Item", covariant=True)


class EpochSampler(Sampler[Item]):
    """A sampler with epochs, ranks, and a place that can be saved."""

    def __init__(self, place: Place, batching: Batching, ranks: Ranks) -> None:
        self._place = place
        self._batching = batching
        self._ranks = ranks
        self._length: tuple[int, int, int] | None = None  # world size, epoch, and that
        self._has_warned = False

    @abstractmethod
    def _yielded(self, place: Place) -> Iterator[Item]:
        """Yield what is left of the epoch for this rank, and move `place` before each."""

    def __iter__(self) -> Iterator[Item]:
        """Begin the next epoch, or what is left of it after `load_state_dict`.

        The iterator looks at the epoch and the ranks when it is first asked.
        """
        if self._ranks.are_overlooked() and not self._has_warned:
            self._has_warned = True
            warn_of_overlooked_ranks("sampler", stacklevel=3)
        place = self._place
        if place.begun:
            place = place.at(place.epoch + 1)
        elif not place.is_named:
            place = self._after_end(place) or place
        self._place = place
        place.begun = True
        yield from self._yielded(place)
        if place is self._place:  # nobody has sent the sampler elsewhere
            self._place = place.at(place.epoch + 1)

    def __len__(self) -> int:
        """Return how many batches a whole epoch has on this rank; all ranks have as many.

        If that is not the same for each epoch, it is the number of the current one.
        """
        epoch, (rank, world_size) = self.epoch, self._ranks.now()
        if self._length is None or self._length[:2] != (world_size, epoch):
            place = self._place.at(epoch)
            count = self._batching.steps(place, rank, world_size).step_count(place.spot)
            self._length = world_size, epoch, count
        return self._length[2]

    def _after_end(self, place: Place) -> Place | None:
        """Return the beginning of the next epoch if too little is left for a step here."""
        if not place.is_begin:
            steps = self._batching.steps(place, *self._ranks.now())
            if not steps.has_step(place.spot):
                return place.following()
        return None

    @property
    def epoch(self) -> int:
        """The current epoch; after its end, the next one.

        Examples:
            >>> checkpoint = {"epoch": sampler.epoch}
        """
        place = self._place
        if place.is_named:
            return place.epoch
        return (self._after_end(place) or place).epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterator begin this epoch.

        If `load_state_dict` has left the sampler in the middle or at the end of this very epoch,
        the next iterator yields the rest of it. A loop over epochs may call this each time.

        Examples:
            >>> for epoch in range(sampler.epoch, 90):
            ...     sampler.set_epoch(epoch)

        Raises:
            InvalidArgumentError: `epoch` is not an integer from 0 to 2^63 - 1.
        """
        self._place = self._place.named(seed_or_epoch("epoch", epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the last batch that was yielded, as a few plain values.

        It is the same on all ranks that have taken the same number of steps.

        Examples:
            >>> checkpoint = {"model": model.state_dict(), "sampler": sampler.state_dict()}
        """
        place = self._place
        return (self._after_end(place) or place).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a place that `state_dict` returned; the next iterator continues from there.

        Ranks and limits may differ; the data, the seed and `shuffle` may not.

        Examples:
            >>> state = sampler.state_dict()
            >>> sampler.load_state_dict(state)

        Raises:
            InvalidArgumentError: the state is of other data, of another order, or of another
                version of headrace.
        """
        self._place = self._place.at_state(state)
