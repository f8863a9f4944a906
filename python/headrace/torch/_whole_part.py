"""Samples of shards that nobody has counted, one after the other, for a `Loader`."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._base.errors import HeadraceError, InvalidArgumentError, add_note, with_url
from headrace._base.options import require
from headrace.torch._arguments import Ranks
from headrace.torch._grid import Grid, Slice, Spot
from headrace.torch._part_stream import PartStream, Start
from headrace.torch._place import Place
from headrace.torch._shard_part import ShardPart
from headrace.torch._shard_windows import ShardWindows, WholeReader, Window
from headrace.torch._skipping import Skipping
from headrace.torch._unit_reads import Held
from headrace.torch._units import UnitOrder, Units, seeds_of_parts
from headrace.torch._whole_shards import Begun, Rest, Whole

if TYPE_CHECKING:
    from headrace.torch._shard_stream import ShardStream

__all__ = ["ByDrawn", "ByWhole", "Uncounted", "WholePart"]

_SAMPLE_BITS = 34  # of the number of a sample; the others are those of its shard
_ADVICE = (
    "give an index of the members as the source (`headrace index`, or headrace.index_members; of "
    "compressed shards, the JSON of webdataset's wids)"
)
_ENDLESS = 1 << 60  # samples: more than an epoch can have
Found = tuple[int, dict[str, Any]] | HeadraceError
"""The seed and the fields of a sample, or why the rest of a shard cannot be read."""


class _Shards:
    """What is known of the samples: nothing but their shards."""

    common_size_bytes = total_size_bytes = None
    columns: Sequence[str] = ()

    def __init__(self, part: WholePart) -> None:
        self._part, self.files = part, part._stream.objects

    def __len__(self) -> int:
        return len(self.files)

    def sizes(self, indices: Any) -> list[int]:
        """Return how many bytes these samples have, which wait to be taken."""
        return [self._part.size_bytes(int(index)) for index in indices]

    def sum_bytes(self, indices: Any, _: int) -> int:
        return sum(self.sizes(indices))


class WholePart(ShardPart):
    """The samples of a `ShardStream` without an index.

    Nobody can ask for one by its number. `ByWhole` and `ByDrawn` read them one after the other, and
    then ask for what they have read.
    """

    def __init__(self, stream: ShardStream[Any]) -> None:
        self._stream, self._chosen, self.stores = stream, stream._chosen, stream.stores
        self._fingerprint = stream._fingerprint
        self.objects: Any = _Shards(self)
        self.units = Units(None, len(stream.objects) << _SAMPLE_BITS, stream._window)
        self.windows: ShardWindows | None = None
        self.let_go()

    def url(self, index: int) -> str:
        """Return the URL of the shard of a sample."""
        return self.shard_url(index >> _SAMPLE_BITS)

    def shard_url(self, shard: int) -> str:
        return self._stream.url(shard)

    def _member(self, index: int) -> str | None:
        return self._failed.get(index)

    def _made(self, held: Held) -> Any:
        key = held.value["__key__"]
        try:
            return super()._made(held)
        except Exception:
            self._failed[held.index] = key  # nobody else knows it afterwards
            raise

    def _seed_samples(self, samples: list[Held], *_: Any) -> None:
        """They have seeds of their own, which do not depend on ranks."""

    def hold(self, shard: int, number: int, found: Found) -> int:
        """Keep a sample until it is taken, and return by which number."""
        number += shard << _SAMPLE_BITS
        self._found[number].append(found)
        return number

    def size_bytes(self, index: int) -> int:
        found = self._found.get(index)
        if not found or isinstance(found[-1], HeadraceError):
            return 0
        fields = found[-1][1].values()
        return sum(each.size_bytes for each in fields if isinstance(each, _engine.Sample))

    def _start(self, indices: Any, into: Any = None) -> Any:  # noqa: ARG002
        return _Taken([self._take(int(index)) for index in indices])

    def _take(self, index: int) -> Held | HeadraceError:
        waiting = self._found[index]
        found = waiting.popleft()
        if not waiting:
            del self._found[index]
        if isinstance(found, HeadraceError):
            return found
        held = Held(found[1], self, index)
        held.seed = found[0]
        return held

    def let_go(self) -> None:
        """Keep nothing for further reads, and end those that are under way."""
        if self.windows is not None:
            self.windows.close()
        self.windows = None
        self._found: defaultdict[int, deque[Found]] = defaultdict(deque)
        # The keys of samples whose transforms have failed.
        self._failed: dict[int, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "windows": None, "_found": defaultdict(deque), "_failed": {}}

    def drawn(self, *, shuffle: bool) -> Uncounted:
        """Return what takes the place of an order of their numbers."""
        stream = self._stream
        window = stream._window if shuffle else 0
        return Uncounted(len(stream.objects), window, stream._epoch_samples)


class _Taken:
    """Samples that were read before somebody asked for them."""

    def __init__(self, samples: list[Held | HeadraceError]) -> None:
        self._samples = samples

    def cancel(self) -> None:
        pass

    def drain(self) -> None:
        pass

    def poll(self, _: float) -> bool:
        return True

    def wait(self) -> None:
        pass

    def take(self, *, return_errors: bool) -> list[Any]:
        samples, self._samples = self._samples, []
        if not return_errors:
            for each in samples:
                if isinstance(each, HeadraceError):
                    raise each
        return samples


class _Behind(Window):
    """A window, and shards before it that cannot be read, and of which nobody knows yet."""

    def __init__(self, lost: Sequence[Rest], window: Window) -> None:
        super().__init__()
        self._lost, self._window = lost, window

    def left(self) -> Iterator[Begun]:
        # The rest of a window is in the state of the window.
        yield from (Begun((rest,)) for rest in self._lost if rest.end < 0)
        yield from self._window.left()


@dataclass(frozen=True)
class Uncounted:
    """A place's `Drawn` of shards that nobody has counted."""

    shards: int
    window: int
    epoch_samples: int | None

    count = (1 << 63) - 1
    is_counted = False

    @property
    def origin(self) -> str:
        length = "" if self.epoch_samples is None else f", {self.epoch_samples} in an epoch"
        return f"the samples of {self.shards} shards, shuffled in windows of {self.window}{length}"

    def order(self, seed: int, epoch: int) -> Any:  # noqa: ARG002
        raise AssertionError("nobody knows the order of samples that were not counted")


@dataclass(frozen=True)
class ByWhole:
    """Batches of the samples of a rank's shards, as they come."""

    part: WholePart
    batch_size: int | None
    max_bytes: int | None
    drop_last: bool
    is_counted_by_making = False

    def steps(self, place: Place, rank: int, world_size: int) -> _WholeSteps:
        coming = _Coming(self.part, place, place.seed, Ranks(rank, world_size))
        require(
            world_size == 1 or self.max_bytes is None,
            f"nobody knows how many batches of max_batch_bytes the shards of {coming.stream!r} "
            f"have, and {world_size} ranks must take the same number of steps: {_ADVICE}, or give "
            "batch_size alone",
        )
        return _WholeSteps(self, coming)


@dataclass(frozen=True)
class ByDrawn:
    """Batches of a mixture, of which some datasets have samples that nobody has counted.

    The order says from which dataset each sample is. Where that has not been counted, the next
    sample of the rank's shards takes its place.
    """

    parts: Sequence[Any]
    batch_size: int
    drop_last: bool
    is_counted_by_making = False

    def steps(self, place: Place, rank: int, world_size: int) -> _DrawnSteps:
        grid = Grid(place.count, self.batch_size, rank, world_size, self.drop_last)
        coming = {
            number: _Coming(part, place, seed, Ranks(rank, world_size), _ENDLESS)
            for number, (part, seed) in enumerate(
                zip(self.parts, seeds_of_parts(place.seed, len(self.parts)), strict=True)
            )
            if isinstance(part, WholePart)
        }
        return _DrawnSteps(grid, place, coming)


class _Coming:
    """Samples that come to a rank, from the shards of one part, in an epoch.

    A state has the readers of the part: that of this rank, or those of all ranks that there were.
    """

    def __init__(
        self,
        part: WholePart,
        place: Place,
        seed: int,
        ranks: Ranks,
        epoch_samples: int | None = None,
    ) -> None:
        self._part, self._epoch = part, place.epoch
        self.stream = stream = copy(part._stream)
        stream._place = Place(stream._place._objects, seed, place.shuffle, chosen=place.chosen)
        stream._ranks = ranks
        stream._window = stream._window if place.shuffle else 0
        stream._skipping = Skipping("skip")  # what cannot be read has a place in a batch
        stream._epoch_samples = epoch_samples or stream._epoch_samples
        _, world_size = ranks.now()
        require(
            world_size == 1 or stream._epoch_samples is not None,
            f"nobody knows how many samples the shards of {stream!r} have, and {world_size} ranks "
            f"must take the same number of steps: {_ADVICE}, or say how many samples an epoch has "
            "(ShardStream(..., epoch_samples=...))",
        )

    def start(self, readers: Any, *, is_begin: bool) -> Start:
        """Return where this rank begins, given the readers of a state; None: there are none."""
        stream, epoch = self.stream, self._epoch
        rank, world_size = stream._ranks.now()
        if readers is None:
            return PartStream._fresh(stream, epoch, rank, world_size, world_size)
        require(
            isinstance(readers, Sequence) and len(readers) > 0,
            f"the state has the readers {readers!r}, and that is none",
        )
        starts = [stream._start_of(each) for each in readers]
        # At the end of the epoch before, there may have been too few samples for all ranks.
        has_ended = is_begin and starts[0].epoch + 1 == epoch
        require(
            has_ended or starts[0].epoch == epoch,
            f"the state's reader is of epoch {starts[0].epoch}",
        )
        # Says if one is missing, to all ranks.
        together = stream._together(starts) if len(starts) > 1 or starts[0].lanes == 1 else None
        own = next((s for s in starts if (s.lane, s.lanes) == (rank, world_size)), None)
        if own is None and together is not None:
            share = stream._share(together.base, rank, world_size, world_size)
            own = replace(together, lane=rank, lanes=world_size, world_size=world_size, share=share)
        if own is not None:
            return self._following(own) if has_ended else own
        if is_begin and starts[0].lanes != world_size:
            # It says where the epoch before has ended, for as many ranks.
            return PartStream._fresh(stream, epoch, rank, world_size, world_size)
        raise InvalidArgumentError(
            f"the state is of rank {starts[0].lane} of {starts[0].lanes}, and this is rank {rank} "
            f"of {world_size}: without an index of the members, each rank goes on from its own "
            "state, and with as many ranks as there were; or give load_state_dict the states of "
            "all ranks"
        )

    def state(self, now: Start) -> list[Any]:
        """Return what a state has of this rank, given where it is."""
        return [self.stream._state_of(now)]

    def next_state(self, reader: WholeReader) -> list[Any] | None:
        """Return where the next epoch begins, if it goes on where this one has ended."""
        if self.stream._epoch_samples is None:
            return None
        return [self.stream._state_of(self._following(reader.now()))]

    def _following(self, end: Start) -> Start:
        """Return where the next epoch begins, given where this one has ended."""
        base, samples = end.base, self.stream._epoch_samples
        assert isinstance(base, Whole)
        assert samples is not None
        base = replace(base, left=samples)
        share = self.stream._share(base, end.lane, end.lanes, end.world_size)
        return replace(end, epoch=end.epoch + 1, base=base, share=share, yielded=0, skipped=0)

    def numbers(self, reader: WholeReader) -> Iterator[int]:
        """Read samples, and yield by which numbers the part has them."""
        part, quota = self._part, reader.start.share[1]
        start = reader.start
        self.stream._tell(start.lane, start.lanes, start.world_size)
        part.let_go()  # what another iterator has left
        part.windows = windows = self.stream._windows(reader)
        while reader.yielded < quota:
            window = windows.next(quota - reader.yielded)
            lost = windows.take_lost()
            for at, (error, rest) in enumerate(lost, 1):
                windows.publish(_Behind([each for _, each in lost[at:]], window))
                # It takes the place of a sample, so that all ranks have as many.
                reader.yielded += 1
                add_note(error, f"it was left out from sample {rest.begin} on")
                yield part.hold(rest.shard, rest.begin, with_url(error, part.shard_url(rest.shard)))
                if reader.yielded == quota:
                    break
            else:
                windows.publish(window)
            if len(window) == 0:
                break
            while reader.yielded < quota and (sample := window.first()) is not None:
                window.leave()
                reader.yielded += 1
                number = part.hold(sample.shard, sample.number, (sample.seed, sample.fields))
                del sample
                yield number
                windows.fill_beside(window, quota - reader.yielded)
        windows.close()
        if self.stream._epoch_samples is not None and reader.yielded < quota:
            raise InvalidArgumentError(
                f"the shards of {self.stream!r} have no sample"
            ) from windows.broken


class _WholeSteps:
    """The steps of one epoch of one dataset."""

    def __init__(self, by: ByWhole, coming: _Coming) -> None:
        self._by, self._coming = by, coming
        _, self.world_size = coming.stream._ranks.now()

    def has_step(self, spot: Spot) -> bool:
        if self._is_end(spot):
            return False
        # With other ranks than there were, fewer samples than ranks may be left.
        is_counted = self._coming.stream._epoch_samples is not None
        by = self._by
        least = (by.batch_size or 1) if by.drop_last and by.max_bytes is None else 1
        return spot.sampler is None or not is_counted or self._left(spot) >= least

    def _is_end(self, spot: Spot) -> bool:
        return bool((spot.sampler or {}).get("is_end", False))

    def step_count(self, spot: Spot) -> int:
        if self._is_end(spot):
            return 0
        stream, by = self._coming.stream, self._by
        if stream._epoch_samples is None:
            raise TypeError(
                f"nobody knows how many samples the shards of {stream!r} have, and so how many "
                f"batches there are: {_ADVICE}, or ShardStream(..., epoch_samples=...)"
            )
        if by.max_bytes is not None or by.batch_size is None:
            raise TypeError(
                f"nobody knows how large the samples in the shards of {stream!r} are, and so how "
                f"many batches there are: {_ADVICE}, or batch_size alone"
            )
        left, size = self._left(spot), by.batch_size
        return left // size if by.drop_last else -(-left // size)

    def _left(self, spot: Spot) -> int:
        """Return how many samples are left of `epoch_samples` for this rank."""
        start = self._start(spot)
        return start.share[1] - start.yielded

    def _start(self, spot: Spot) -> Start:
        [readers] = _readers(spot, 1)
        return self._coming.start(readers, is_begin=spot.position == 0)

    def slices(self, spot: Spot) -> Iterator[Slice]:
        if not self.has_step(spot):
            return
        position = spot.position
        reader = WholeReader(self._start(spot))
        batches = self._batches(reader)
        batch, failure = next(batches, None), None
        require(
            reader.yielded > 0 or position > 0,
            f"there is no batch: the shards of {self._coming.stream!r} have no sample",
        )
        while batch is not None:
            numbers, behind = batch
            begin, position = position, position + len(numbers)
            after: dict[str, Any] = {"is_end": False, "readers": [self._coming.state(behind)]}
            following = None
            try:
                following = next(batches, None)
            except Exception as error:
                failure = error  # of the step that follows
            if failure is None and following is None:
                ended = self._coming.next_state(reader)
                after = {"is_end": True, "next": ended and {"readers": [ended]}}
            yield Slice(range(begin, position), Spot(position, (), after), numbers)
            if failure is not None:
                try:
                    raise failure
                finally:
                    failure = None  # its traceback refers to this frame
            batch = following

    def _batches(self, reader: WholeReader) -> Iterator[tuple[list[int], Start]]:
        """Yield the numbers of each batch, and where the reader is behind its samples."""
        by, behind = self._by, reader.start
        batch: list[int] = []
        size_bytes = 0
        for number in self._coming.numbers(reader):
            if by.max_bytes is not None:
                size = by.part.size_bytes(number)
                if batch and size_bytes + size > by.max_bytes:
                    yield batch, behind
                    batch, size_bytes = [], 0
                size_bytes += size
            batch.append(number)
            if len(batch) == by.batch_size:
                yield batch, reader.now()
                batch, size_bytes = [], 0
            elif by.max_bytes is not None:
                behind = reader.now()
        # One that has reached the limit is full, as where its samples are counted.
        is_full = by.max_bytes is not None and size_bytes >= by.max_bytes
        if batch and (is_full or not by.drop_last):
            yield batch, reader.now()


class _DrawnSteps:
    """The steps of one epoch of a mixture."""

    def __init__(self, grid: Grid, place: Place, coming: Mapping[int, _Coming]) -> None:
        self._grid, self._place, self._coming = grid, place, coming
        self.world_size = grid.world_size

    def has_step(self, spot: Spot) -> bool:
        return self._grid.has_step(spot)

    def step_count(self, spot: Spot) -> int:
        return self._grid.step_count(spot)

    def slices(self, spot: Spot) -> Iterator[Slice]:
        order, coming = self._place.order(), self._coming
        assert isinstance(order, UnitOrder)
        states = zip(coming, _readers(spot, len(coming)), strict=True)
        readers = {
            number: WholeReader(coming[number].start(saved, is_begin=spot.position == 0))
            for number, saved in states
        }
        further = {number: coming[number].numbers(readers[number]) for number in coming}
        for positions, after, _ in self._grid.slices(spot):
            assert isinstance(positions, range)
            numbers = order.numbers(positions)
            indices = [int(number) for number in numbers]
            for at, part in enumerate(order.parts_of(numbers)):
                if part in further:
                    number = next(further[part], None)
                    require(number is not None, "the state says that its readers have no sample")
                    indices[at] = order.begins[part] + (number or 0)
            state: dict[str, Any] = {
                "readers": [coming[each].state(readers[each].now()) for each in coming]
            }
            if not self.has_step(after):
                ended = [coming[each].next_state(readers[each]) for each in coming]
                state = {"next": {"readers": ended}}
            yield Slice(positions, after._replace(sampler=state), indices)


def _readers(spot: Spot, count: int) -> Sequence[Any]:
    """Return the readers of each of so many parts that a state has."""
    if spot.sampler is None:
        return [None] * count
    readers: Any = spot.sampler.get("readers")
    require(
        isinstance(readers, Sequence) and len(readers) == count,
        f"the state has the readers {readers!r}, and there are {count} datasets that nobody has "
        "counted",
    )
    found: Sequence[Any] = readers
    return found
