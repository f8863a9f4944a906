"""Loads the engine before anything else does, and says what to do where it cannot be loaded."""

from __future__ import annotations

import platform
import sys

_NEEDED_GLIBC = "2.34"


def _advice(error: ImportError) -> str:
    """What to do about an engine that could not be loaded."""
    if "GLIBC" in str(error):  # of libc, or of libstdc++ (GLIBCXX)
        _, version = platform.libc_ver()
        return (
            f"headrace's wheels need glibc {_NEEDED_GLIBC} (Debian 12, Ubuntu 22.04, RHEL 9, or "
            f"newer), and this system has {version or 'another C library'}: use a newer system or "
            "container image, or build headrace here, from its source"
        )
    if isinstance(error, ModuleNotFoundError):
        python = ".".join(map(str, sys.version_info[:2]))
        return (
            f"no compiled headrace._engine for Python {python} is beside {__file__}: install "
            f"headrace with this Python ({sys.executable} -m pip install headrace), or, in a "
            "clone, run make build"
        )
    return f"reinstall headrace with this Python: {sys.executable} -m pip install headrace"


try:
    import headrace._engine  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error}\n{_advice(error)}", name=error.name, path=error.path) from error
