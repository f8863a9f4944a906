"""What a writer could not remove, and who is told."""

from __future__ import annotations

import logging

from headrace._engine import ObjectWriter

__all__ = ["tell_left_behind"]

_log = logging.getLogger("headrace")


def tell_left_behind(writer: ObjectWriter, url: str, *, is_saved: bool) -> None:
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
