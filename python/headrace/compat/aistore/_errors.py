"""Errors of headrace that handlers of the SDK's errors catch.

Programs written for the SDK have ``except aistore.sdk.errors.ErrObjNotFound``, and ``except
requests.ConnectionError``. If the SDK is installed, an error is raised as a class of both families:
its own `HeadraceError`, and the class that the SDK would have raised.
"""

from __future__ import annotations

import contextlib
import functools
import re
from contextlib import AbstractContextManager
from typing import Any

import headrace
from headrace import HeadraceError, NotFoundError, TimedOutError, UnavailableError
from headrace.compat._raising import as_raises
from headrace.compat.aistore._sdk import sdk_error

__all__ = ["as_sdk_raises"]

# As the engine says it, and as AIStore says it of a bucket that it would have to look up elsewhere.
_OF_A_BUCKET = ("there is no such bucket", "failed to lookup Cloud bucket")
_OF_AN_ETL = "etl job"
_ELSEWHERE = ("ais+", "ais://@")

_STATUS = re.compile(r"\(HTTP (\d{3}),")


def as_sdk_raises() -> AbstractContextManager[None]:
    """Turn every `HeadraceError` raised inside into an error of both families."""
    return as_raises(_of_both_families)


def _of_both_families(error: HeadraceError) -> HeadraceError:
    # An error from a nested call has been converted already.
    if type(error).__module__ == __name__:
        return error
    name = _name_in_sdk(error)
    if name is None or sdk_error("AISError") is None:
        return error
    if sdk_error(name) is None:
        name = "AISError"  # an older SDK
    both: HeadraceError = _class_named(f"{type(error).__name__}_{name}")(str(error))
    vars(both).update(vars(error))
    if error.http_status is not None:
        vars(both).update(status_code=error.http_status, req_url=error.url or "")
    return both


def _name_in_sdk(error: HeadraceError) -> str | None:
    if isinstance(error, NotFoundError):
        text = str(error)
        if _OF_AN_ETL in text:
            return "ErrETLNotFound"
        if not any(each in text for each in _OF_A_BUCKET):
            return "ErrObjNotFound"
        is_elsewhere = (error.url or "").startswith(_ELSEWHERE)
        return "ErrRemoteBckNotFound" if is_elsewhere else "ErrBckNotFound"
    if error.http_status is not None:
        return "AISError"
    if isinstance(error, TimedOutError):
        return "ReadTimeout"
    return "ConnectionError" if isinstance(error, UnavailableError) else None


@functools.cache
def _class_named(name: str) -> type[HeadraceError]:
    """Return the class of both families by their names: ``NotFoundError_ErrObjNotFound``."""
    ours_name, _, sdk_name = name.partition("_")
    ours: type[HeadraceError] = getattr(headrace, ours_name)
    theirs: Any = sdk_error(sdk_name)
    if theirs is None:
        raise AttributeError(f"the class {sdk_name} is not installed")

    of_an_answer = issubclass(theirs, sdk_error("AISError") or ())

    # Built from one text, like all our errors, to cross the pipe of a DataLoader worker: torch
    # keeps nothing but the text, and what handlers ask for must be there.
    def init(self: Any, text: str = "") -> None:
        ours.__init__(self, text)
        self.args = (text,)
        self.req = None
        if of_an_answer:
            told = _STATUS.findall(text)
            self.status_code = int(told[-1]) if told else 404 if sdk_name != "AISError" else 0
            self.message, self.req_url = text, ""

    def to_text(self: Any) -> str:
        return str(self.args[0]) if self.args else ""

    members = {"__init__": init, "__str__": to_text, "__module__": __name__}
    made: type[HeadraceError] = type(name, (ours, theirs), members)
    return made


def __getattr__(name: str) -> Any:
    # Pickle finds a class by its name in its module, even in a process that has not made it yet.
    if "_" in name.strip("_"):
        with contextlib.suppress(AttributeError):
            return _class_named(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
