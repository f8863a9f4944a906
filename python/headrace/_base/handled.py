"""Exceptions that are being handled when a file is closed, and were not when it was opened."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

__all__ = ["Handled"]

_log = logging.getLogger("headrace")


class Handled:
    """The exceptions that are being handled now: later on they are no reason to give a file up.

    It holds them, and by their frames maybe the file: a file that has ended calls `forget`.
    """

    def __init__(self) -> None:
        self._found: list[tuple[BaseException, TracebackType | None]] = []
        error = sys.exception()
        while error is not None and all(error is not each for each, _ in self._found):
            self._found.append((error, error.__traceback__))
            error = error.__context__  # this one was raised while that one was handled

    def newer(self) -> BaseException | None:
        """Return the exception that is being handled now, unless it was then.

        That it is the same is told by its traceback, too, which grows when it is raised again.
        """
        error = sys.exception()
        if error is None:
            return None
        was_handled = any(
            error is each and error.__traceback__ is trace for each, trace in self._found
        )
        return None if was_handled else error

    def forget(self) -> None:
        """Let go of them."""
        self._found.clear()

    @staticmethod
    def tell_left(url: str, error: BaseException) -> None:
        """Log that a file is given up since `error`, which may pass unseen, leaves its ``with``."""
        _log.warning("%s: given up, since %s left its `with`", url, type(error).__name__)

    @staticmethod
    def tell(url: str, error: BaseException) -> None:
        """Log that a file is given up since it is closed while `error` is handled."""
        _log.warning(
            "%s: given up, since it was closed while %s was being handled (a file that is written "
            "because of an exception is opened in the `except`, or closed by its own `with`)",
            url,
            type(error).__name__,
        )
