"""What a package that is optional has, if this program uses it."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["imported"]


def imported(module: str, name: str) -> Any:
    """Return `name` of `module`, or None as long as this process has not imported it.

    Another thread may be amid that import: the module exists by then, and its names come one by
    one. Whatever has no name yet, nobody has made an object of.
    """
    return getattr(sys.modules.get(module), name, None)
