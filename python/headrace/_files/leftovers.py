"""Writers that end without an object: who waits for the removal, and who is told what is left."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from headrace._engine import ObjectInfo, ObjectWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Writer", "give_up", "patience_s_after", "tell_left_behind"]

_log = logging.getLogger("headrace")


class Writer(Protocol):
    """What a file needs of an `ObjectWriter`."""

    @property
    def url(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def left_behind(self) -> str | None: ...
    def write(self, data: Buffer) -> int: ...
    def close(self) -> ObjectInfo: ...
    def abort(self, *, patience_s: float = 5.0) -> None: ...


def patience_s_after(error: BaseException) -> float:
    """Return how long to wait for the removal, which goes on by itself: Ctrl-C is not held up."""
    return 5.0 if isinstance(error, Exception) else 0.1


def give_up(writer: ObjectWriter, error: BaseException) -> None:
    """End a writer without an object, because of `error`."""
    writer.abort(patience_s=patience_s_after(error))


def tell_left_behind(writer: Writer, url: str, *, is_saved: bool) -> None:
    """Log what temporary objects a writer that is done could not remove, if any.

    Not as a warning, which ``python -W error`` would make an error: the object itself is as its
    ``close`` has told.
    """
    left = writer.left_behind
    if left is None:
        return
    held = "retention" in left.lower()
    advice = "; upload='resumable' needs no temporary objects" if held else ""
    told = f"{url}: {left}; `headrace clean` removes what is left{advice}"
    _log.warning("it is saved, but %s" if is_saved else "%s", told)
