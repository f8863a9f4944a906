"""Samples that are left out because of errors: which, how many, and who is told."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from headrace._base.errors import CorruptDataError, add_note, text_of
from headrace._base.on_error import OnError, is_of_the_data, require_on_error
from headrace._base.options import require
from headrace.torch._arguments import count

__all__ = [
    "NOTHING",
    "Skipped",
    "Skipping",
    "Skips",
    "errors_among",
    "places_left",
    "require_skippable",
    "skipped_of",
]

_logger = logging.getLogger("headrace")
_MOST_CLEARED = 100  # errors, of one that has others as causes
_LEAST_LIMIT, _SHARE = 10, 100  # 1 % of the samples of an epoch, and at least 10
_MOST_NAMED = 5
# The attribute in which an exception keeps the names of those that we have given to it.
_OURS = "_headrace_about"
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _Nothing:
    """A batch of which nothing is left."""


NOTHING: Final = _Nothing()


@dataclass(frozen=True)
class Skipped:
    """A sample, or a unit of several, that is left out because of an error."""

    error: Exception
    url: str
    """Of the object, or the shard."""
    index: int | None = None
    """The number of the sample in its dataset."""
    member: str | None = None
    """Which sample or member of a shard it is."""
    samples: int | None = 1
    """How many there were; None: nobody knows."""
    part: str = ""
    """What of the object it is, in words, unless it is all of it."""

    @property
    def name(self) -> str:
        """What messages say of it."""
        text, where = text_of(self.error), self.url
        if self.member is not None:
            where += f", {self.member!r}"
        named = text if self.url in text else f"{text} ({where})"
        return f"{type(self.error).__name__}: {named}{self.part and f', {self.part}'}"


@dataclass(frozen=True)
class Skipping:
    """What a user wants to be done about samples with errors."""

    on_error: OnError = "raise"
    max_skipped: int | None = None
    """Of one reader in an epoch; None: 1 % of the epoch's samples, and at least 10."""

    @classmethod
    def of(cls, on_error: OnError, max_skipped: int | None) -> Skipping:
        """Return what these arguments mean.

        Raises:
            InvalidArgumentError: they mean nothing.
        """
        require_on_error(on_error)
        if max_skipped is not None:
            max_skipped = count("max_skipped", max_skipped, minimum=0)
        rule = cls(on_error, max_skipped)
        require(
            rule.skips or max_skipped is None,
            "max_skipped is given, and nothing is skipped: give on_error, too ('skip', or a "
            "function of an error)",
        )
        return rule

    @property
    def skips(self) -> bool:
        """Whether anything may be left out."""
        return callable(self.on_error) or self.on_error == "skip"

    def may_skip(self, error: BaseException, handled: BaseException | None = None) -> bool:
        """Return whether the sample or unit with this error is left out.

        `handled` is the exception that was being handled before it was raised, if any.
        """
        return self.skips and is_of_the_data(error, handled)


class Skips:
    """What one reader has left out of an epoch. It belongs to one thread at a time.

    Args:
        rule: what the user wants.
        reader: whose `repr` messages begin with.
        epoch: the epoch.
        samples: how many samples, or units, all readers have in it; None: nobody knows.
        before: how many of them were left out before.
    """

    def __init__(
        self, rule: Skipping, reader: object, epoch: int, samples: int | None, before: int = 0
    ) -> None:
        self._rule, self._reader, self._epoch = rule, reader, epoch
        self._samples = samples or 0
        self.seen = 0
        """How many samples the reader has yielded, where their number is not known before."""
        self.count = before
        """How many samples were left out; a unit with an unknown number of them counts as one."""
        self._units = 0  # of unknown numbers of samples
        self._first: list[str] = []
        self._has_told = False

    @property
    def _limit(self) -> int:
        if self._rule.max_skipped is not None:
            return self._rule.max_skipped
        return max(_LEAST_LIMIT, max(self._samples, self.seen) // _SHARE)

    def add(self, skipped: Iterable[Skipped], *, again: bool = False) -> int:
        """Leave out samples, tell of them unless it is `again`, and return how many that were.

        Raises:
            CorruptDataError: they are too many. Or whatever the user's function raises.
        """
        added = 0
        for each in skipped:
            samples = 1 if each.samples is None else each.samples
            _describe(each)
            if len(self._first) < _MOST_NAMED and not again:
                self._first.append(each.name)
            if self.count + samples > self._limit:
                raise self._too_many(samples) from each.error
            if again:
                pass
            elif callable(self._rule.on_error):
                self._rule.on_error(each.error)
            elif not self._has_told:
                self._has_told = True
                _logger.warning(
                    "%r has left out %s (on_error). Others of epoch %d are counted, and told at "
                    "its end",
                    self._reader, each.name, self._epoch,
                )  # fmt: skip
            self.count += samples
            self._units += each.samples is None
            added += samples
            with contextlib.suppress(Exception):  # of a class that refuses it
                _let_go(each.error)
        return added

    def tell_total(self) -> None:
        """Say at the end of an epoch what was left out, unless a function was told of it."""
        if self.count > 0 and not callable(self._rule.on_error):
            _logger.warning(
                "%r has left out %s of epoch %d because of errors%s",
                self._reader, self._told(), self._epoch, self._named(),
            )  # fmt: skip

    def nothing_left(
        self, samples: int | None, advice: str = "", skipped: Sequence[Skipped] = ()
    ) -> CorruptDataError:
        """Return the error that says that nothing but errors was there: these, or all so far."""
        what = "there is no sample" if samples is None else f"nothing is left of {samples} samples"
        if skipped:
            self._first = [each.name for each in skipped[:_MOST_NAMED]]
        return CorruptDataError(
            f"{self._reader!r}: {what}, because of errors{advice}{self._named()}"
        )

    def _too_many(self, samples: int) -> CorruptDataError:
        return CorruptDataError(
            f"{self._reader!r}: {self.count + samples} samples of epoch {self._epoch} had to be "
            f"left out because of errors, and max_skipped is {self._limit}{self._named()}"
        )

    def _told(self) -> str:
        known = self.count - self._units
        told = [f"{known} sample{'' if known == 1 else 's'}"] if known or not self._units else []
        if self._units:
            told.append(f"{self._units} unit{'' if self._units == 1 else 's'} of unknown size")
        return " and ".join(told)

    def _named(self) -> str:
        return f", the first of them: {'; '.join(self._first)}" if self._first else ""


def errors_among(samples: Sequence[Any]) -> dict[int, Exception]:
    """Return the errors among samples that were read together, by their places."""
    return {at: each for at, each in enumerate(samples) if isinstance(each, Exception)}


def require_skippable(
    lost: Mapping[int, Exception],
    count: int,
    rule: Skipping,
    handled: BaseException | None = None,
) -> None:
    """Raise the first of the errors, by their places among `count` samples that were read together,
    that is not about a sample alone.
    """
    for each in lost.values():
        if not rule.may_skip(each, handled):
            if len(lost) > 1:
                others = f"{len(lost) - 1} other object{'s' if len(lost) > 2 else ''}"
                add_note(each, f"{others} of the {count} that were read together failed, too")
            raise each


def places_left(count: int, lost: Mapping[int, object], *, fills: bool) -> list[int]:
    """Return the places in a batch of what it consists of once some of it is lost.

    Args:
        count: how many samples the batch had.
        lost: the places of those that are lost.
        fills: whether a lost one's neighbour takes its place: the one before, if there is any.
    """
    good = [at for at in range(count) if at not in lost]
    if not fills or not good:
        return good
    left, before = [], good[0]
    for at in range(count):
        before = before if at in lost else at
        left.append(before)
    return left


def skipped_of(lost: Mapping[int, Exception], source: Any, indices: Sequence[int]) -> list[Skipped]:
    """Return the samples of a `Source` that are lost, in their order."""
    numbers = [(lost[at], int(indices[at])) for at in sorted(lost)]
    return [
        Skipped(
            error,
            source.url(number),
            source.known_number(number),
            source.member(number),
        )
        for error, number in numbers
    ]


def _describe(skipped: Skipped) -> None:
    """Give an error attributes that say what it is about; those that it has of its own stay."""
    with contextlib.suppress(Exception):  # of a class that refuses it
        error = skipped.error
        ours: dict[str, Any] = error.__dict__.setdefault(_OURS, {})
        for name in ("url", "index", "member"):
            if name in ours or getattr(error, name, None) is None:
                ours[name] = error.__dict__[name] = getattr(skipped, name)


def _let_go(error: Exception) -> None:
    """Free what the frames of an error refer to: samples, and batches. Whoever keeps the error
    still has its text and the lines of its traceback.
    """
    seen: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left and len(seen) < _MOST_CLEARED:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen[id(each)] = each
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
    for each in seen.values():
        trace = each.__traceback__
        caller = None if trace is None else trace.tb_frame.f_back
        while trace is not None:
            _clear(trace.tb_frame)
            trace = trace.tb_next
        while caller is not None and _clear(caller):
            caller = caller.f_back


def _clear(frame: FrameType) -> bool:
    """Free what a frame refers to that has ended; return whether it has."""
    if frame.f_code.co_flags & _GENERATORS:
        return False  # it may be suspended, and would be closed
    try:
        frame.clear()
    except RuntimeError:
        return False
    return True
