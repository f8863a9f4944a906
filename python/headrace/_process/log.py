"""The logger ``headrace``: what the engine tells while it works.

The engine prints nothing and calls no Python from its threads. It keeps its latest records, and a
thread that waits for a read, a write or a listing passes them on (docs/guide/troubleshooting.md).
"""

from __future__ import annotations

import logging

__all__ = ["debugs", "emit", "logger"]

logger = logging.getLogger("headrace")


def debugs() -> bool:
    """Return whether single retries are of interest to anybody."""
    return logger.isEnabledFor(logging.DEBUG)


def emit(level: int, text: str) -> None:
    """Log one record of the engine."""
    logger.log(level, "%s", text)
