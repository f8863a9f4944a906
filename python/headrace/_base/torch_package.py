"""torch itself: there, and new enough. Imported before anything else that needs it."""

from __future__ import annotations

import re

__all__ = ["OLDEST", "require_new_enough"]

OLDEST = (2, 3)
"""The oldest release, which pyproject.toml names, too."""

_REMEDY = "pip install --upgrade 'headrace[torch]'"

try:
    import torch
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"headrace.torch and headrace.checkpoint need torch, which is not installed: {_REMEDY}",
        name=_error.name,
    ) from _error


def require_new_enough(version: str) -> None:
    """Refuse releases before `OLDEST`.

    Raises:
        ImportError: it is older.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"headrace.torch and headrace.checkpoint need torch {oldest} or newer, and {version} "
            f"is installed: {_REMEDY}",
            name="torch",
        )


require_new_enough(torch.__version__)
