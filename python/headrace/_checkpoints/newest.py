"""Which of several checkpoints is the newest: by the numbers in their names, else by times."""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace._base.errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace._base.options import require
from headrace._engine import ObjectInfo
from headrace._store.location import is_local
from headrace._store.store import Store

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


Order = Callable[[Candidate], tuple[Any, ...]]
"""What candidates are sorted by, the newest last."""
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

    That is the one written last; but of those whose names differ from its name in whole numbers
    alone, it is the one with the greatest numbers, compared from left to right.

    Raises:
        InvalidArgumentError: nothing tells which of several is the newest, `by` is another text, or
            the store has refused a request as malformed.
    """
    require(by in ("number", "time"), f"by is {by!r}; it must be 'number' or 'time'")
    search = _Search(root, require_whole)
    left = list(candidates)
    if all(each.info.updated is not None for each in left):
        found = search.first_whole(left, _order_by_time)
        if found is not None and by == "number":
            found = search.greatest(found, left)
    elif by == "time":
        raise InvalidArgumentError(
            f"{root.url}: the store does not tell when objects were written, so by='time' finds "
            "nothing: leave it out, and numbers in names decide"
        )
    else:
        found = search.the_only_one(left)
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


class _Search:
    def __init__(self, root: Store, require_whole: RequireWhole) -> None:
        self._root, self._require_whole = root, require_whole
        self._known: dict[str, bool] = {}

    def url_of(self, candidate: Candidate) -> str:
        return self._root.url_of(candidate.name) if candidate.name else self._root.url

    def first_whole(self, candidates: list[Candidate], order: Order) -> Candidate | None:
        """Return the last of those that are complete; only it and those behind it are opened."""
        candidates = sorted(candidates, key=order, reverse=True)
        return next(filter(self._is_whole, candidates), None)

    def greatest(self, last: Candidate, candidates: list[Candidate]) -> Candidate:
        """Return the one with the greatest numbers in the group of the one written last."""
        text = group_of(last.called)
        group = [each for each in candidates if group_of(each.called) == text]
        found = self.first_whole(group, _order_by_number) or last
        if _time_of(last) - _time_of(found) > _SAME_TIME:
            _log.warning(
                "%s is the newest checkpoint by the numbers in names, but %s was written later, at "
                '%s instead of %s: pass by="time" if times decide',
                self.url_of(found),
                self.url_of(last),
                _time_of(last).isoformat(),
                _time_of(found).isoformat(),
            )
        return found

    def the_only_one(self, candidates: list[Candidate]) -> Candidate | None:
        """Return the newest where no times are known: there must be one group."""
        groups: dict[str, list[Candidate]] = {}
        for each in candidates:
            groups.setdefault(group_of(each.called), []).append(each)
        newest = (self.first_whole(group, _order_by_number) for group in groups.values())
        found = sorted((each for each in newest if each is not None), key=self.url_of)
        if len(found) > 1:
            raise InvalidArgumentError(
                f"{self._root.url}: is {self.url_of(found[0])} or {self.url_of(found[1])} the "
                "newest? The store does not tell when they were written, and their names differ in "
                "more than numbers; search a folder that has checkpoints of one kind, or name the "
                "checkpoint"
            )
        return found[0] if found else None

    def _is_whole(self, candidate: Candidate) -> bool:
        if candidate.info.name not in self._known:
            self._known[candidate.info.name] = self._look(candidate)
        return self._known[candidate.info.name]

    def _look(self, candidate: Candidate) -> bool:
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
