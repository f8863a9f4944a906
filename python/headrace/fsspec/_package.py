"""fsspec itself: there, and new enough."""

from __future__ import annotations

import re

__all__ = ["OLDEST", "require_new_enough"]

OLDEST = (2024, 10)
"""The oldest release that the tests of this package pass with; pyproject.toml names it, too."""

_REMEDY = "pip install --upgrade 'headrace[fsspec]'"

try:
    import fsspec
except ImportError as _error:
    raise ImportError(f"headrace.fsspec needs fsspec: {_REMEDY}", name="fsspec") from _error


def require_new_enough(version: str) -> None:
    """Refuse releases before `OLDEST`; what has no number of a release is somebody's own build.

    Raises:
        ImportError: it is older.
    """
    found = re.match(r"(20\d\d)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"headrace.fsspec needs fsspec {oldest} or newer, and {version} is installed: "
            f"{_REMEDY}",
            name="fsspec",
        )


require_new_enough(fsspec.__version__)
