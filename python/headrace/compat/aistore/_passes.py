"""One pass over the objects of an iterable dataset: their order, and who reads which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from headrace import InvalidArgumentError, _engine
from headrace.compat.aistore._objects import ObjectList, Prefetched, StoredObject
from headrace.torch._shared_place import Reader

__all__ = ["ObjectsIter", "Uneven"]

Uneven = Literal["keep", "drop", "pad"]

_FIRST_OBJECTS, _BLOCK_OBJECTS = 2, 32


class ObjectsIter(Iterator[Any]):
    """The objects that one reader takes in one pass, listed when the first is asked for.

    A dataset that reads each object itself, by ``get_reader().read_all()``, has the next ones read
    ahead: after the first two, objects come with contents that are under way.

    Args:
        listed: gives the objects.
        reader: the pass, which of the readers that share it this is, and where it begins. Its place
            moves with the objects that are taken.
        begin: called before the first object is taken; None: they are not taken for a pass.
        seed: of the order.
        shuffle: whether there is an order other than that of the listing.
        uneven: how to treat a remainder of fewer objects than `world_size`.
        world_size: the number of ranks.
    """

    def __init__(
        self,
        listed: Callable[[], ObjectList],
        reader: Reader,
        *,
        begin: Callable[[ObjectsIter], None] | None = None,
        seed: int = 0,
        shuffle: bool = False,
        uneven: Uneven = "keep",
        world_size: int = 1,
    ) -> None:
        self._listed = listed
        self.reader = reader
        self._begin = begin
        self._order = (seed, shuffle)
        self._uneven: Uneven = uneven
        self._world_size = world_size
        self._listing: ObjectList | None = None
        self._found: Iterator[Any] | None = None
        self.reads_ahead = True
        """Whether to read ahead for a caller who reads the objects one by one. If not, the caller
        moves the place, too, by `advance`."""
        self.samples = 0
        """How many samples of the object behind the place have been taken, if it has several."""

    @property
    def listing(self) -> ObjectList:
        if self._listing is None:
            self._listing = self._listed()
        return self._listing

    def of(self, reader: Reader) -> ObjectsIter:
        """Return the iterator of another reader of the same pass."""
        seed, shuffle = self._order
        return ObjectsIter(
            self._listed,
            reader,
            begin=self._begin,
            seed=seed,
            shuffle=shuffle,
            uneven=self._uneven,
            world_size=self._world_size,
        )

    def advance(self) -> None:
        """Move the place behind one object more."""
        self.samples = 0
        self.reader.position += self.reader.lanes

    def remaining(self) -> int:
        """Return how many objects this reader takes in the whole pass."""
        return len(range(self.reader.lane, self._end(), self.reader.lanes))

    def _end(self) -> int:
        count = len(self.listing)
        remainder = count % self._world_size
        if remainder == 0 or self._uneven == "keep":
            return count
        return count - remainder + (self._world_size if self._uneven == "pad" and count else 0)

    def __next__(self) -> Any:
        if self._found is None:
            if self._begin is not None:
                self._begin(self)
            self._found = self._watched() if self.reads_ahead else self._objects()
        return next(self._found)

    def _blocks(self) -> Iterator[list[int]]:
        reader, listing = self.reader, self.listing
        count = len(listing)
        order = _engine.Order(count, self._order[0], reader.epoch, self._order[1])
        positions = range(reader.position + reader.lane, self._end(), reader.lanes)
        if len(positions) == 0 and reader.position > count + 2 * reader.lanes:
            raise InvalidArgumentError(
                f"the state's position is {reader.position}, and there are only {count} objects"
            )
        size = _FIRST_OBJECTS  # what happens to them decides about the others
        while positions:
            block, positions = positions[:size], positions[size:]
            size = _BLOCK_OBJECTS
            if block[-1] < count:
                yield order.indices(block.start, block[-1] + 1, reader.lanes).tolist()
            else:
                yield [order[position % count] for position in block]

    def _objects(self) -> Iterator[Any]:
        listing = self.listing
        for block in self._blocks():
            for index in block:
                yield listing[index]

    def _watched(self) -> Iterator[Any]:
        """Yield the objects, with contents under way if the ones before were read."""
        watch: Prefetched | None = None
        blocks = self._blocks()
        ahead: list[tuple[list[Any], list[Prefetched]]] = []
        is_read = False
        try:
            for block in blocks:
                ahead.append(self._block(block, is_read))
                if is_read and len(ahead) < 2:
                    continue  # one block more is under way than is in use
                objects, prefetched = ahead.pop(0)
                for each in objects:
                    if not is_read and each is objects[-1] and isinstance(each, StoredObject):
                        watch = each._prefetched = Prefetched(each._part, [each._index], wait=True)
                    self.advance()
                    yield each
                is_read = any(each.was_used for each in prefetched) or (
                    watch is not None and watch.was_used
                )
                watch = None
                _close(prefetched)
            while ahead:
                objects, prefetched = ahead.pop(0)
                for each in objects:
                    self.advance()
                    yield each
                _close(prefetched)
        finally:
            for _, prefetched in ahead:
                _close(prefetched)

    def _block(self, block: list[int], is_read: bool) -> tuple[list[Any], list[Prefetched]]:
        objects = [self.listing[index] for index in block]
        if not is_read:
            return objects, []
        parts: dict[int, tuple[Any, list[StoredObject]]] = {}
        for each in objects:
            if isinstance(each, StoredObject):
                parts.setdefault(id(each._part), (each._part, []))[1].append(each)
        prefetched = []
        for part, found in parts.values():
            under_way = Prefetched(part, [each._index for each in found])
            prefetched.append(under_way)
            for each in found:
                each._prefetched = under_way
        return objects, prefetched


def _close(prefetched: list[Prefetched]) -> None:
    for each in prefetched:
        each.close()
