"""Which of the objects that a listing has are samples: decided here for all that reads data.

Copying, removing and counting do not ask here: they see every object.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headrace._base.options import require
from headrace._engine import ObjectIndex
from headrace._store.location import before_wildcards

__all__ = ["OF_SAMPLES", "OF_TABLES", "Chosen", "OptionalSuffix"]

OF_SAMPLES = "."
"""What the parts of hidden names begin with ..."""
OF_TABLES = "._"
"""... and those of files that Hive and Spark do not take for parts of a table."""

OptionalSuffix = str | Iterable[str] | None

_logger = logging.getLogger("headrace")


class Chosen:
    """Chooses the samples of listings, and knows what it has left out.

    Folder markers are no samples, and neither are hidden names, unless somebody wants them.

    Args:
        suffix: what the names of samples end with, if only some are wanted.
        hidden: whether hidden names are samples.
        marks: what the parts of hidden names begin with.

    Raises:
        InvalidArgumentError: an argument cannot work.
    """

    def __init__(
        self, suffix: OptionalSuffix = None, *, hidden: bool = False, marks: str = OF_SAMPLES
    ) -> None:
        require(isinstance(hidden, bool), f"hidden is {hidden!r}; it must be True or False")
        self._suffixes: tuple[str, ...] | None = None
        if suffix is not None:
            texts = (suffix,) if isinstance(suffix, str) else tuple(suffix)
            require(
                len(texts) > 0 and all(isinstance(each, str) and each for each in texts),
                f"suffix is {suffix!r}; it must be what names end with, or several of these",
            )
            self._suffixes = texts
        self._marks = "" if hidden else marks
        self.has_listed = False
        """Whether it has chosen from a listing."""
        self._markers = self._hidden = 0

    @property
    def is_asked_for(self) -> bool:
        """Whether it chooses otherwise than by default."""
        return self._suffixes is not None or not self._marks

    def of(
        self, index: ObjectIndex, url: str, *, below: str = "", pattern: str = ""
    ) -> ObjectIndex:
        """Return the samples among what was listed; the log says what is left out.

        Args:
            index: what was listed.
            url: what messages call it.
            below: what all names begin with: hidden folders in it were asked for.
            pattern: which of the names are meant. One with a hidden part means hidden names.
        """
        self.has_listed = True
        if pattern:
            index = index.filter(glob=pattern)
            below = below or before_wildcards(pattern)
        elif below:
            index = index.filter(prefix=below)
        if self._suffixes is not None:
            index = index.filter(suffix=self._suffixes)
        no_markers = index.filter(leave_out="")
        marks = (
            "" if any(part[:1] in set(self._marks) for part in pattern.split("/")) else self._marks
        )
        chosen = no_markers.filter(prefix=below, leave_out=marks) if marks else no_markers
        markers, hidden = len(index) - len(no_markers), len(no_markers) - len(chosen)
        if not markers and not hidden:
            return index
        self._markers += markers
        self._hidden += hidden
        _logger.info("%s: left out as no samples: %s", url, _told(markers, hidden))
        return chosen

    @property
    def left_out(self) -> str:
        """What it has left out of all listings, for messages; empty: nothing."""
        return _told(self._markers, self._hidden)

    @property
    def hint(self) -> str:
        """The end of a message that there is nothing."""
        if not self.left_out:
            return ""
        return f"; left out: {self.left_out}" + (
            " (hidden=True takes hidden names)" if self._hidden else ""
        )

    @property
    def in_repr(self) -> str:
        """The end of what `repr` says."""
        return f", left out: {self.left_out}" if self.left_out else ""

    @property
    def rule(self) -> str:
        """How it chooses, for saved states."""
        texts = ["no folder markers"]
        if self._marks:
            texts.append(f"no names with a part that begins with {' or '.join(self._marks)}")
        if self._suffixes is not None:
            texts.append(f"names that end with {', '.join(self._suffixes)}")
        return "; ".join(texts)


def _told(markers: int, hidden: int) -> str:
    kinds = ((markers, "folder marker"), (hidden, "hidden object"))
    return ", ".join(f"{n:,} {what}{'s' * (n != 1)}" for n, what in kinds if n)
