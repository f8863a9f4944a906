"""Errors of headrace that handlers of Google's errors catch.

Programs written for google-cloud-storage have ``except google.api_core.exceptions.NotFound``. If
that package is installed, an error with an HTTP status is raised as a class of both families: its
own `HeadraceError` and Google's class for that status.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from contextlib import AbstractContextManager
from typing import Any

import headrace
from headrace import HeadraceError
from headrace.compat._raising import as_raises

__all__ = ["as_google_raises"]


def as_google_raises() -> AbstractContextManager[None]:
    """Turn every `HeadraceError` raised inside into an error of both families."""
    return as_raises(_of_both_families)


def _of_both_families(error: HeadraceError) -> HeadraceError:
    exceptions = _google_exceptions()
    # An error from a nested call has been converted already.
    if error.http_status is None or exceptions is None or type(error).__module__ == __name__:
        return error
    google: type[Exception] = type(
        exceptions.from_http_status(error.http_status, "", response=None)
    )
    both: HeadraceError = _class_named(f"{type(error).__name__}_{google.__name__}")(str(error))
    code = vars(both).pop("code")
    vars(both).update(vars(error))
    vars(both)["code"] = code
    return both


@functools.cache
def _google_exceptions() -> Any:
    try:
        return importlib.import_module("google.api_core.exceptions")
    except ImportError:
        return None


@functools.cache
def _class_named(name: str) -> type[HeadraceError]:
    """Return the class of both families, by their names joined: ``NotFoundError_NotFound``."""
    ours_name, _, google_name = name.partition("_")
    ours: type[HeadraceError] = getattr(headrace, ours_name)
    google: Any = getattr(_google_exceptions(), google_name)

    # Built from one text, like all our errors, to cross the pipe of a DataLoader worker.
    def init(self: Any, text: str = "") -> None:
        ours.__init__(self, text)
        google.__init__(self, text)
        self.code = google.code

    def to_text(self: Any) -> str:
        return str(self.args[0]) if self.args else ""

    members = {"__init__": init, "__str__": to_text, "__module__": __name__}
    made: type[HeadraceError] = type(google)(name, (ours, google), members)
    return made


def __getattr__(name: str) -> Any:
    # Pickle finds a class by its name in its module, even in a process that has not made it yet.
    if "_" in name.strip("_"):
        with contextlib.suppress(AttributeError):
            return _class_named(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
