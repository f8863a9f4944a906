"""Which of several checkpoints is the newest: by the numbers in their names, else by times."""

from __future__ import annotations

import bisect
import datetime
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace._engine import ObjectInfo
from headrace._errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace._location import is_local
from headrace._options import require
from headrace._store import Store

__all__ = [
    "By",
    "Candidate",
    "NoCheckpointError",
    "Objects",
    "group_of",
    "newest",
    "numbers_in",
    "read",
]

_log = logging.getLogger("headrace")

By = Literal["number", "time"]

# Some stores keep whole seconds, and the clocks of their machines differ a little.
_SAME_TIME = datetime.timedelta(seconds=2)
_NO_TIME = datetime.datetime.min.replace(tzinfo=datetime.UTC)

# A measured value is no place in an order: a loss of 0.25, a rate of 1e-05, what became nan. Two
# dots are those of a date or a version, and those are whole numbers.
_VALUE = (
    r"[-+]?(?<![0-9.])[0-9]+(?:\.[0-9]+(?:e[-+]?[0-9]+)?|e[-+][0-9]+)(?!\.?[0-9])"
    r"|(?<==)[-+]?(?:nan|inf)(?![a-z])"
)
_NUMBER = re.compile(rf"({_VALUE})|[0-9]+", re.IGNORECASE)


class NoCheckpointError(Exception):
    """The object is no checkpoint: something else, or a part of one. The text names it."""


@dataclass(frozen=True)
class Candidate:
    """What may be a checkpoint."""

    name: str
    """Of the file or the folder; ``""`` for the root itself."""
    info: ObjectInfo
    """The object without which it is none; the checkpoint is as new as this."""
    called: str
    """The name by which it is compared with others."""


RequireWhole = Callable[[Candidate], Any]
"""Raises a `NoCheckpointError`, or an error of headrace, unless a candidate is complete."""


class Objects:
    """The objects below a root, by one listing."""

    def __init__(self, root: Store) -> None:
        self.root = root
        self.by_name = {info.name: info for info in _all_below(root)}

    def beside(self, info: ObjectInfo) -> Mapping[str, ObjectInfo]:
        """Return at least the objects below the folder of `info`, as they were when it was seen."""
        if self.by_name.get(info.name) is info:
            return self.by_name
        folder = info.name[: info.name.rfind("/") + 1]
        return {each.name: each for each in self.root.list(folder)}


def read(store: Store, info: ObjectInfo) -> bytes:
    """Return the bytes of a small object.

    Raises:
        PreconditionFailedError: it has been replaced since it was listed.
    """
    data = bytearray(info.size_bytes)
    store._derived(on_change="error").read_ranges([(info, 0, len(data))], into=[data])
    return bytes(data)


def newest(
    root: Store, candidates: Iterable[Candidate], require_whole: RequireWhole, by: By
) -> str | None:
    """Return the URL of the newest candidate that is complete; None if there is none.

    Names that differ in whole numbers alone make a group, which these order from left to right. The
    newest of each group are compared by their times.

    Raises:
        InvalidArgumentError: nothing tells which of several is the newest, `by` is another text, or
            the store has refused a request as malformed.
    """
    require(by in ("number", "time"), f"by is {by!r}; it must be 'number' or 'time'")
    search = _Search(root, require_whole)
    groups = _groups(candidates, by)
    infos = [each.info for group in groups for each in group]
    if all(info.updated is not None for info in infos):
        found = search.by_times(groups)
    elif by == "time":
        raise InvalidArgumentError(
            f"{root.url}: the store does not tell when objects were written, so by='time' finds "
            "nothing: leave it out, and numbers in names decide"
        )
    else:
        found = search.the_only_one(groups)
    return None if found is None else search.url_of(found)


def _all_below(root: Store) -> list[ObjectInfo]:
    infos: list[ObjectInfo] = []
    token = ""
    try:
        # By pages, which raise no error if there is nothing yet: before a run's first save.
        while True:
            page = root.list_page(page_token=token)
            infos += page.objects
            token = page.next_page_token
            if not token:
                return infos
    except NotFoundError:
        if not is_local(root.url):
            raise
        return []  # a directory that does not exist yet


class _Head:
    """The newest candidate of a group that has not been dropped."""

    def __init__(self, group: list[Candidate]) -> None:
        self.group, self.is_whole = group, False
        # The greatest time of each candidate and those before it.
        self._times = list(itertools.accumulate(map(_time_of, group), max))

    @property
    def candidate(self) -> Candidate:
        return self.group[-1]

    def drop(self) -> bool:
        """Drop it, and return whether there is another."""
        self.group.pop()
        self._times.pop()
        return bool(self.group)

    def order(self) -> tuple[Any, ...]:
        """Return what heads are sorted by, the next to look at last.

        Until it is known to be whole, an older one with a later time may take its place.
        """
        time = _time_of(self.candidate) if self.is_whole else self._times[-1]
        return time, not self.is_whole, *_order_by_number(self.candidate)


class _Search:
    def __init__(self, root: Store, require_whole: RequireWhole) -> None:
        self._root, self._require_whole = root, require_whole

    def url_of(self, candidate: Candidate) -> str:
        return self._root.url_of(candidate.name) if candidate.name else self._root.url

    def by_times(self, groups: list[list[Candidate]]) -> Candidate | None:
        """Return the one that was written last of the newest of each group."""
        heads = sorted(map(_Head, groups), key=_Head.order)
        while heads:
            head = heads.pop()
            if head.is_whole:
                self._warn_of_later(head.candidate, heads + [head])
                return head.candidate
            head.is_whole = self._is_whole(head.candidate)
            if head.is_whole or head.drop():
                bisect.insort(heads, head, key=_Head.order)
        return None

    def _warn_of_later(self, found: Candidate, heads: list[_Head]) -> None:
        """Say so if times contradict the numbers."""
        left = [each for head in heads for each in head.group]
        later = [each for each in left if _time_of(each) - _time_of(found) > _SAME_TIME]
        for other in sorted(later, key=_time_of, reverse=True):
            if self._is_whole(other):
                _log.warning(
                    "%s is the newest checkpoint by the numbers in names, but %s was written "
                    'later, at %s instead of %s: pass by="time" if times decide',
                    self.url_of(found),
                    self.url_of(other),
                    _time_of(other).isoformat(),
                    _time_of(found).isoformat(),
                )
                return

    def the_only_one(self, groups: list[list[Candidate]]) -> Candidate | None:
        """Return the newest where no times are known: there must be one group."""
        wholes = (next(self._wholes(group), None) for group in groups)
        found = sorted((each for each in wholes if each is not None), key=self.url_of)
        if len(found) > 1:
            raise InvalidArgumentError(
                f"{self._root.url}: is {self.url_of(found[0])} or {self.url_of(found[1])} the "
                "newest? The store does not tell when they were written, and their names differ in "
                "more than numbers; search a folder that has checkpoints of one kind, or name the "
                "checkpoint"
            )
        return found[0] if found else None

    def _wholes(self, group: list[Candidate]) -> Iterator[Candidate]:
        return filter(self._is_whole, reversed(group))

    def _is_whole(self, candidate: Candidate) -> bool:
        """Return whether a candidate is complete; log why not. Errors of the store are raised."""
        try:
            try:
                self._require_whole(candidate)
            except PreconditionFailedError:
                # It was replaced after the listing, maybe by a newer checkpoint.
                again = self._root.stat(candidate.info.name)
                self._require_whole(replace(candidate, info=again))
        except (NoCheckpointError, NotFoundError) as error:
            _log.info("latest() passes over %s", error)
        except (CorruptDataError, InvalidArgumentError, PreconditionFailedError) as error:
            if isinstance(error, InvalidArgumentError) and error.http_status is not None:
                raise  # the store refuses to tell
            _log.warning("latest() passes over %s", error)
        else:
            return True
        return False


def _groups(candidates: Iterable[Candidate], by: By) -> list[list[Candidate]]:
    """Return the candidates that numbers can order, the newest last in each group."""
    groups: dict[str, list[Candidate]] = {}
    for each in candidates:
        groups.setdefault(group_of(each.called) if by == "number" else "", []).append(each)
    for group in groups.values():
        group.sort(key=_order_by_number if by == "number" else _order_by_time)
    return list(groups.values())


def group_of(called: str) -> str:
    """Return what two names have in common that numbers can order."""
    return _NUMBER.sub(lambda found: "0" if found[1] is None else "0.0", called)


def numbers_in(called: str) -> list[int]:
    """Return the whole numbers in a name, from left to right."""
    return [int(found[0]) for found in _NUMBER.finditer(called) if found[1] is None]


def _order_by_number(candidate: Candidate) -> tuple[Any, ...]:
    return numbers_in(candidate.called), _time_of(candidate), candidate.name


def _order_by_time(candidate: Candidate) -> tuple[Any, ...]:
    return _time_of(candidate), *_order_by_number(candidate)


def _time_of(candidate: Candidate) -> datetime.datetime:
    return candidate.info.updated or _NO_TIME
