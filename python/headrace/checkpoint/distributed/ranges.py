"""Parts of objects, read into given memory with few requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.options import MiB
from headrace.store import NameOrInfo, Store

__all__ = ["Part", "joined", "read_parts"]

# Below this a request of its own costs more than the gap that it saves.
_MAX_GAP_BYTES = 1 * MiB
# What is joined is copied once more, so it is worth it for small parts only.
_MAX_JOINED_PART_BYTES = 1 * MiB
_MAX_JOINED_BYTES = 16 * MiB


@dataclass(frozen=True, eq=False)
class Part:
    """The bytes [begin, end) of an object, and where they go: memory of exactly that size."""

    object: NameOrInfo
    begin: int
    end: int
    into: memoryview


def joined(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts of one object, by `begin`, in groups that one request each reads."""
    groups: list[list[Part]] = []
    group_begin = group_end = 0
    for part in sorted(parts, key=lambda each: each.begin):
        end = max(group_end, part.end)
        if (
            groups
            and part.begin - group_end <= _MAX_GAP_BYTES
            and end - group_begin <= _MAX_JOINED_BYTES
            and part.end - part.begin <= _MAX_JOINED_PART_BYTES
            and groups[-1][0].end - groups[-1][0].begin <= _MAX_JOINED_PART_BYTES
        ):
            groups[-1].append(part)
            group_end = end
        else:
            groups.append([part])
            group_begin, group_end = part.begin, part.end
    return groups


def read_parts(store: Store, parts: Iterable[Part]) -> None:
    """Read all parts at once; when this returns, each has its bytes.

    Raises:
        NotFoundError: an object is missing.
        CorruptDataError: an object ends before a part does.
    """
    by_object: dict[NameOrInfo, list[Part]] = {}
    for part in parts:
        if part.end > part.begin:
            by_object.setdefault(part.object, []).append(part)
    requests: list[tuple[NameOrInfo, int, int]] = []
    targets: list[memoryview] = []
    copies: list[tuple[memoryview, list[Part]]] = []
    for name, wanted in by_object.items():
        for group in joined(wanted):
            begin, end = group[0].begin, max(part.end for part in group)
            if len(group) == 1:
                target = group[0].into
            else:
                target = memoryview(bytearray(end - begin))
                copies.append((target, group))
            requests.append((name, begin, end))
            targets.append(target)
    store.read_ranges(requests, into=targets)
    for source, group in copies:
        for part in group:
            offset = part.begin - group[0].begin
            part.into[:] = source[offset : offset + part.end - part.begin]
