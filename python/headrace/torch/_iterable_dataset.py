"""Objects one after the other."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.utils.data

from headrace import ObjectIndex, Sample, _engine
from headrace._errors import CancelledError, InvalidArgumentError
from headrace._options import require, require_bytes
from headrace._read_ahead import ReadAhead
from headrace._store import Store
from headrace.torch._arguments import flag, rank_and_world_size, seed_or_epoch
from headrace.torch._map_dataset import ObjectsOfStore
from headrace.torch._place import Place, read_state
from headrace.torch._shared_place import Reader, SharedPlace

__all__ = ["IterableDataset"]

# What is read together, at most. More would keep the first sample waiting, less would cost more per
# sample.
_BLOCK_OBJECTS = 32
_BLOCK_BYTES = 8 << 20


class IterableDataset(ObjectsOfStore, torch.utils.data.IterableDataset[Any]):
    """The objects below a URL, one after the other, read ahead inside the process.

    For torch's DataLoader where batches are made of a stream, and for a plain ``for`` loop. The
    order depends on `seed` and the epoch alone. It is split by rank and by DataLoader worker: of
    ``world_size * num_workers`` readers each takes every so-many-th position, so each object comes
    exactly once per epoch. An epoch is what `set_epoch` says, 0 before that; workers see it at
    the beginning of their next pass, also with ``persistent_workers``. A trainer process shares it
    with its own workers, and with no other process that gets a copy of the dataset.

    `state_dict` is what was yielded, not what was read ahead, and belongs to one reader, and to the
    same number of readers: torchdata's StatefulDataLoader keeps one for each worker; where there
    are no workers, the dataset's own is right. What a worker yields is not known to the dataset in
    the trainer's process.

    There is no ``len()``, because DataLoader would take it for the number of samples that it gets
    in this rank; ``len(dataset.objects)`` is the number of all.

    Args:
        url_or_store: a URL, a path, or a `headrace.Store` for more options (``endpoint`` and such).
        transform: makes a sample of a `headrace.Sample`; see `MapDataset`. It runs in the thread
            that iterates.
        shuffle: whether each epoch has an order of its own.
        seed: of that order, any integer from 0 to 2^63 - 1; give the same to every rank.
        index: the objects, if they were listed before; then nothing is listed.
        prefetch_bytes: how much may be read ahead, in stored bytes, in each process. Default: what
            keeps the connections busy, and at most half of the memory budget. While one object is
            in use, the next is always under way.
        rank: which of `world_size` trainer processes this is. Default for both: what
            torch.distributed says, if it is initialised when the iteration begins (or the dataset
            is sent to workers); else there is one.
        world_size: see `rank`.

    Raises:
        NotFoundError: no object is below the URL.
        InvalidArgumentError: an argument cannot work.
    """

    def __init__(
        self,
        url_or_store: str | os.PathLike[str] | Store,
        transform: Callable[[Sample], Any] | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        index: ObjectIndex | None = None,
        prefetch_bytes: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        seed, shuffle = seed_or_epoch("seed", seed), flag("shuffle", shuffle)
        if prefetch_bytes is not None:
            require_bytes("prefetch_bytes", prefetch_bytes, minimum=0)
        self._rank_and_world_size = (rank, world_size)
        rank_and_world_size(rank, world_size)  # raises now if it cannot work
        super().__init__(url_or_store, transform, index)
        self._place = Place(self._objects, seed, shuffle)
        self._prefetch_bytes = prefetch_bytes
        self._shared = SharedPlace()
        self._resume: Reader | None = None  # what was loaded in this very worker
        self._reader: Reader | None = None  # of the latest iterator

    @property
    def epoch(self) -> int:
        """The epoch that the next pass will be."""
        return self._shared.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let passes that begin from now on be of this epoch, also those of workers.

        The rest of it, if `load_state_dict` has gone into the middle of this very epoch.
        """
        epoch = seed_or_epoch("epoch", epoch)
        self._shared.move(epoch)
        self._reader = None
        if self._resume is not None and self._resume.epoch != epoch:
            self._resume = None

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass, or what is left of one after `load_state_dict`."""
        lane, lanes = self._lane()
        reader = self._resume or self._shared.resume
        if reader is None:
            reader = Reader(self.epoch, lane, lanes)
        elif (reader.lane, reader.lanes) != (lane, lanes):
            raise InvalidArgumentError(
                f"the state is of reader {reader.lane} of {reader.lanes}, and this is reader "
                f"{lane} of {lanes}: go on with as many ranks and workers as there were"
            )
        elif self._resume is None and _worker_count() > 1:
            raise InvalidArgumentError(
                f"the state is of one reader, and there are {_worker_count()} workers, each a "
                "reader of its own: torchdata's StatefulDataLoader keeps a state for each"
            )
        self._resume = None
        self._shared.consume_resume()
        self._reader = reader
        return self._iterate(reader)

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the sample that the latest iterator yielded last."""
        reader = self._resume or self._reader or self._shared.resume
        if reader is None:
            reader = Reader(self.epoch, *self._lane())
        return {
            **self._place.identity(),
            "epoch": reader.epoch,
            "position": reader.position,
            "lane": reader.lane,
            "lanes": reader.lanes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iterator go on from a place that `state_dict` has told.

        It may be in the one worker of a DataLoader, too, that the next iterator is.

        Raises:
            InvalidArgumentError: it is a place in other data, in another order, or none at all.
        """
        values = read_state(state, self._place.identity(), ("epoch", "position", "lane", "lanes"))
        reader = Reader(**values)
        count = self._place.count
        require(
            reader.lane < reader.lanes,
            f"the state's lane is {reader.lane}; it must be less than its lanes, {reader.lanes}",
        )
        # Where some readers had one sample more than others, the others stop beyond the count.
        require(
            reader.position < count + reader.lanes and reader.position % reader.lanes == 0,
            f"the state's position is {reader.position}; it must be a multiple of its lanes, "
            f"{reader.lanes}, and there are only {count} objects",
        )
        self._reader = None
        if _worker_count() > 0:
            self._resume = reader  # the other workers have states of their own
            self._shared.move(reader.epoch)
        else:
            self._shared.go_on_with(reader)

    def _lane(self) -> tuple[int, int]:
        """Return which reader this is, of how many."""
        rank, world_size = rank_and_world_size(*self._rank_and_world_size)
        info = torch.utils.data.get_worker_info()
        if info is None:
            return rank, world_size
        return rank * info.num_workers + info.id, world_size * info.num_workers

    def _iterate(self, reader: Reader) -> Iterator[Any]:
        pid = os.getpid()
        order = self._place.at(reader.epoch, reader.position).order()
        opened, limit_bytes = self.opened(), self._prefetch_bytes
        if limit_bytes is None:
            block_bytes = min(_BLOCK_BYTES, opened[0].budget_bytes // 8)
        else:
            # The block whose samples are yielded has been read ahead, too.
            block_bytes = min(_BLOCK_BYTES, limit_bytes // 4)
            limit_bytes -= block_bytes
        blocks = self._blocks(order, reader, block_bytes)
        ahead: ReadAhead[_engine.Batch] = ReadAhead(opened, limit_bytes)

        def fill() -> None:
            while ahead.has_room():
                block = next(blocks, None)
                if block is None:
                    break
                indices, size_bytes = block
                batch = self.start(indices)
                ahead.append(batch, batch, size_bytes, len(indices))

        try:
            fill()
            while ahead:
                samples = ahead[0].take(return_errors=False)
                ahead.popleft()
                fill()
                samples.reverse()
                while samples:
                    made = [self.make(samples.pop())]
                    reader.position += reader.lanes
                    yield made.pop()
                    if pid != os.getpid():
                        raise CancelledError(
                            "this iterator was made before a fork, in the parent process; make one "
                            "here"
                        )
                fill()
        finally:
            ahead.cancel()

    def _blocks(
        self, order: _engine.Order, reader: Reader, most_bytes: int
    ) -> Iterator[tuple[array[int], int]]:
        """Yield the numbers of the objects that are read together, and their bytes."""
        size_of = self._objects.size_bytes
        indices, block_bytes = array("q"), 0
        for position in range(reader.position + reader.lane, len(self._objects), reader.lanes):
            i = order[position]
            size_bytes = size_of(i)
            is_full = len(indices) == _BLOCK_OBJECTS or block_bytes + size_bytes > most_bytes
            if indices and is_full:
                yield indices, block_bytes
                indices, block_bytes = array("q"), 0
            indices.append(i)
            block_bytes += size_bytes
        if indices:
            yield indices, block_bytes

    def __getstate__(self) -> dict[str, Any]:
        # In a worker torch.distributed is not initialised.
        ranks = rank_and_world_size(*self._rank_and_world_size)
        return {**super().__getstate__(), "_rank_and_world_size": ranks, "_reader": None}

    def __repr__(self) -> str:
        return f"headrace.torch.IterableDataset({self._store.url!r}, {len(self._objects)} objects)"


def _worker_count() -> int:
    """Return how many workers of a DataLoader there are, if this is one; else 0."""
    info = torch.utils.data.get_worker_info()
    return 0 if info is None else info.num_workers
