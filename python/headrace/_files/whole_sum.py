"""Whether pieces are those of an object whose sum is known: a CRC in any order, others in order."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Protocol

from headrace import _engine

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headrace._base.options import VerifyOption
    from headrace._engine import ObjectInfo
    from headrace._store.store import Store

__all__ = [
    "InOrderSum",
    "WholeSum",
    "crc_of",
    "damage_of",
    "in_order_sum_of",
    "running_sum",
    "tell_not_compared",
]

# Sums that take longer than reading does, and their names in messages.
_DIGESTS = {"sha1": "SHA-1", "sha256": "SHA-256", "md5": "MD5"}

# Bounds of the memory that this takes. Beyond the first one the whole cannot be told any more.
_MAX_RUNS = 1 << 16
_MAX_MARKS = 1 << 10


def crc_of(info: ObjectInfo) -> tuple[_engine.CrcKind, int] | None:
    """Return the kind and the value of the object's CRC; None if it has none, or a digest."""
    kind, value = info.checksum or ("", b"")
    try:
        return _engine.CrcKind(kind), int.from_bytes(value, "big")
    except ValueError:
        return None


def in_order_sum_of(info: ObjectInfo, verify: VerifyOption) -> InOrderSum | None:
    """Return the sum of an object whose bytes have to come in order to be compared.

    None if it has none, or a CRC, which `WholeSum` compares; and for a digest unless `verify` is
    ``"all"``.
    """
    kind, value = info.checksum or ("", b"")
    is_compared = bool(verify) if kind == "xxh64" else verify == "all" and kind in _DIGESTS
    return InOrderSum(info.size_bytes, kind, value) if is_compared else None


class RunningSum(Protocol):
    """A sum of bytes that come in order."""

    def update(self, data: Buffer, /) -> object:
        """Add these bytes, which follow those before."""

    def digest(self) -> bytes:
        """Return the sum so far."""


class _Xxh64:
    def __init__(self) -> None:
        self._sum = _engine.Xxh64()

    def update(self, data: Buffer, /) -> None:
        self._sum.extend(data)

    def digest(self) -> bytes:
        return self._sum.value().to_bytes(8, "big")


class _Crc:
    def __init__(self, kind: str) -> None:
        self._kind = _engine.CrcKind(kind)
        self._value = 0

    def update(self, data: Buffer, /) -> None:
        with memoryview(data) as view:
            self._value = self._kind.joined(self._value, self._kind.of(view), view.nbytes)

    def digest(self) -> bytes:
        return self._value.to_bytes(8 if self._kind.name == "crc64nvme" else 4, "big")


def running_sum(kind: str) -> RunningSum:
    """Return a sum of this kind, one of those of `ObjectInfo.checksum`."""
    if kind == "xxh64":
        return _Xxh64()
    return hashlib.new(kind, usedforsecurity=False) if kind in _DIGESTS else _Crc(kind)


def damage_of(kind: _engine.CrcKind, came: int, told: int) -> str:
    """Say that the CRC of the bytes that came is not that of the object."""
    digits = 16 if kind.name == "crc64nvme" else 8
    return (
        f"the bytes that came have {kind.label} {came:0{digits}x}, the object has {kind.label} "
        f"{told:0{digits}x}"
    )


def tell_not_compared(store: Store, info: ObjectInfo) -> None:
    """Log, once for each host, that there was nothing to compare an object's bytes with."""
    store._handle().not_compared(info.name, (info.checksum or ("",))[0])


class _Run:
    """Bytes without a gap that have arrived: ``sums[i]`` covers ``[marks[0], marks[i])``."""

    __slots__ = ("_crc", "marks", "sums")

    def __init__(self, crc: _engine.CrcKind, begin: int) -> None:
        self._crc = crc
        self.marks, self.sums = [begin], [0]

    @property
    def begin(self) -> int:
        return self.marks[0]

    @property
    def end(self) -> int:
        return self.marks[-1]

    def append(self, end: int, crc: int) -> None:
        """Add the bytes that follow, up to `end`."""
        self.sums.append(self._crc.joined(self.sums[-1], crc, end - self.end))
        self.marks.append(end)
        self._thin_out()

    def extend(self, other: _Run) -> None:
        """Add a run that begins where this one ends."""
        before = self.sums[-1]
        for mark, crc in zip(other.marks[1:], other.sums[1:], strict=True):
            self.sums.append(self._crc.joined(before, crc, mark - other.begin))
            self.marks.append(mark)
        self._thin_out()

    def _thin_out(self) -> None:
        while len(self.marks) > _MAX_MARKS:
            del self.marks[1:-1:2]
            del self.sums[1:-1:2]

    def cuts(self, begin: int, end: int) -> tuple[int, int] | None:
        """Return the outermost marks within ``[begin, end]``, if there are any."""
        first, last = bisect_left(self.marks, begin), bisect_right(self.marks, end) - 1
        return (self.marks[first], self.marks[last]) if first <= last else None

    def agrees(self, begin: int, end: int, crc: int) -> bool:
        """Return whether a copy of ``[begin, end)`` can be right, as far as that is known.

        One end that is a mark makes a mark of the other, so that a copy that comes piece by piece
        is compared by its last one.
        """
        first, last = bisect_left(self.marks, begin), bisect_left(self.marks, end)
        knows_begin, knows_end = self.marks[first] == begin, self.marks[last] == end
        if knows_begin and knows_end:
            return crc == self._crc.of_rest(self.sums[last], self.sums[first], end - begin)
        if knows_begin:
            self.marks.insert(last, end)
            self.sums.insert(last, self._crc.joined(self.sums[first], crc, end - begin))
        elif knows_end:
            self.marks.insert(first, begin)
            self.sums.insert(first, self._crc.of_beginning(self.sums[last], crc, end - begin))
        self._thin_out()
        return True


class InOrderSum:
    """The sum of an object that is read from its beginning to its end.

    XXH64, SHA-1, SHA-256 and MD5 cannot be joined from those of pieces. Bytes that come again are
    passed over; once some were left out, the whole cannot be told any more.

    Args:
        size_bytes: the object's.
        kind: of the object's sum.
        value: the object's sum.
    """

    def __init__(self, size_bytes: int, kind: str, value: bytes) -> None:
        self._size_bytes, self._kind, self._whole = size_bytes, kind, value
        self._sum = running_sum(kind)
        self._end = 0
        self.is_hopeless = False
        """Whether bytes were left out."""

    def add(self, begin: int, end: int, data: Buffer) -> str:
        """Add the piece ``[begin, end)``, and return what is wrong with all: ``""`` for nothing."""
        self.is_hopeless = self.is_hopeless or begin > self._end
        if self.is_hopeless or end <= self._end:
            return ""
        with memoryview(data) as view, view[self._end - begin :] as new:
            self._sum.update(new)
        self._end = end
        if end < self._size_bytes or (came := self._sum.digest()) == self._whole:
            return ""
        label = _DIGESTS.get(self._kind, self._kind.upper())
        return (
            f"the bytes that came have {label} {came.hex()}, the object has {label} "
            f"{self._whole.hex()}"
        )


class WholeSum:
    """Pieces of one object, and their sums, until they are the whole.

    Pieces may overlap, and come again. The first copy of each byte counts. A later copy is compared
    with it wherever both begin and end at the same places; pieces in a row are one copy.
    Each piece is summed by whoever reads it; only bytes that overlap others are summed once more.

    Args:
        size_bytes: the object's.
        kind: of its CRC.
        crc: its CRC.
    """

    def __init__(self, size_bytes: int, kind: _engine.CrcKind, crc: int) -> None:
        self._crc, self._whole_crc = kind, crc
        self._runs: list[_Run] = []  # in order, with gaps between them
        self.missing_bytes = size_bytes
        """Bytes that have not come yet."""

    @property
    def kind(self) -> str:
        return self._crc.name

    @property
    def is_hopeless(self) -> bool:
        """Whether there are too many gaps to remember them all."""
        return len(self._runs) > _MAX_RUNS

    def add(self, begin: int, end: int, crc: int | None, data: Buffer) -> str:
        """Add the piece ``[begin, end)``, and return what is wrong with it: ``""`` for nothing.

        Args:
            crc: of `data`; ``None``: to be computed.
            data: the piece itself.
        """
        if begin == end:
            return ""
        if crc is None:
            crc = self._crc.of(data)
        first, last = self._touched(begin, end)
        touched = self._runs[first:last]
        self.missing_bytes += sum(run.end - run.begin for run in touched)
        cuts = {begin, end}
        for run in touched:
            cuts.update(run.cuts(begin, end) or ())
        merged = touched[0] if touched and touched[0].begin <= begin else _Run(self._crc, begin)
        rest = touched[1:] if touched and merged is touched[0] else touched
        for a, b, piece in _split(self._crc, sorted(cuts), crc, data):
            if b <= merged.end:
                if not merged.agrees(a, b, piece):
                    return f"bytes [{a}, {b}) came twice, and are not the same"
                continue
            merged.append(b, piece)
            if rest and merged.end == rest[0].begin:
                merged.extend(rest.pop(0))
        self._runs[first:last] = [merged]
        self.missing_bytes -= merged.end - merged.begin
        if self.missing_bytes == 0 and merged.sums[-1] != self._whole_crc:
            return damage_of(self._crc, merged.sums[-1], self._whole_crc)
        return ""

    def _touched(self, begin: int, end: int) -> tuple[int, int]:
        """Return which runs overlap ``[begin, end)``, or end or begin there."""
        first = bisect_left(self._runs, begin, key=lambda run: run.end)
        return first, bisect_right(self._runs, end, lo=first, key=lambda run: run.begin)


def _split(
    crcs: _engine.CrcKind, cuts: list[int], crc: int, data: Buffer
) -> list[tuple[int, int, int]]:
    """Return the sums of the pieces between `cuts`; the longest one's follows from the others'."""
    pieces = list(itertools.pairwise(cuts))
    if len(pieces) == 1:
        return [(*pieces[0], crc)]
    longest = max(pieces, key=lambda piece: piece[1] - piece[0])
    sums: dict[tuple[int, int], int] = {}
    with memoryview(data) as whole, whole.cast("B") as view:
        for piece in pieces:
            if piece != longest:
                with view[piece[0] - cuts[0] : piece[1] - cuts[0]] as part:
                    sums[piece] = crcs.of(part)
    before = after = 0
    for a, b in pieces:
        if b <= longest[0]:
            before = crcs.joined(before, sums[a, b], b - a)
        elif a >= longest[1]:
            after = crcs.joined(after, sums[a, b], b - a)
    kept = crcs.of_beginning(crc, after, cuts[-1] - longest[1])
    sums[longest] = crcs.of_rest(kept, before, longest[1] - longest[0])
    return [(a, b, sums[a, b]) for a, b in pieces]
