"""What can go wrong, as exceptions.

::

    HeadraceError
     ├─ InvalidArgumentError    (also a ValueError)
     ├─ NotFoundError           (also a FileNotFoundError)
     ├─ PermissionDeniedError   (also a PermissionError)
     ├─ PreconditionFailedError
     ├─ ThrottledError
     ├─ UnavailableError        (also a ConnectionError)
     ├─ TimedOutError           (also a TimeoutError)
     ├─ CorruptDataError
     ├─ CancelledError
     ├─ ResourceError
     └─ InternalError           (also a RuntimeError)

Every instance says what an operator needs:

* ``code``: the kind of error, as text: ``"not found"``;
* ``url``: the object that it is about, or ``None``;
* ``http_status``: the status of the last answer, or ``None`` if none came;
* ``request_id``: what the service calls the last attempt, or ``None``;
* ``attempts``: how many requests were sent; 0 if none was.

Those that are an ``OSError`` for which the system has a number (`NotFoundError`,
`PermissionDeniedError`, `TimedOutError`) have ``errno``, ``strerror`` and ``filename``, which is
the URL, as well.

The text of the exception names object, status and attempts:
``gs://b/o: no such object (HTTP 404, 1 attempt)``. Each class can be built from one string, and
instances pickle with their attributes: both are needed to cross the pipe of a DataLoader worker.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import pickle
from typing import TypeVar

__all__ = [
    "CancelledError",
    "CorruptDataError",
    "HeadraceError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "PreconditionFailedError",
    "ResourceError",
    "ThrottledError",
    "TimedOutError",
    "UnavailableError",
]


class HeadraceError(Exception):
    """Base of all exceptions of headrace."""

    # There is no attribute called `message`: torch would then pass it by that keyword when it
    # raises a worker's exception again, and fail.
    code: str
    url: str | None
    http_status: int | None
    request_id: str | None
    attempts: int

    _code = "internal error"

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.code = self._code
        self.url = None
        self.http_status = None
        self.request_id = None
        self.attempts = 0


class _SystemsError(HeadraceError):
    """One that is an OSError, too, and says what programs ask of these."""

    _errno: int

    # As properties: with these fields of its own, an OSError would tell another text.
    @property
    def errno(self) -> int:
        """As of the system's own error: ``errno.ENOENT`` of `NotFoundError`."""
        return self._errno

    @property
    def strerror(self) -> str:
        """The system's text for `errno`."""
        return os.strerror(self._errno)

    @property
    def filename(self) -> str | None:
        """The URL of the object, as `url`."""
        return self.url


class InvalidArgumentError(HeadraceError, ValueError):
    """An option, a name or a URL cannot work, or the service refused the request as malformed."""

    _code = "invalid argument"


class NotFoundError(_SystemsError, FileNotFoundError):  # type: ignore[misc]
    """The object, or its bucket, does not exist."""

    _code = "not found"
    _errno = errno.ENOENT


class PermissionDeniedError(_SystemsError, PermissionError):  # type: ignore[misc]
    """We are not allowed to, or nobody knows who we are."""

    _code = "permission denied"
    _errno = errno.EACCES


class PreconditionFailedError(HeadraceError):
    """The object is not the generation that was expected."""

    _code = "precondition failed"


class ThrottledError(HeadraceError):
    """The service said "slow down" until our patience was at its end."""

    _code = "throttled"


class UnavailableError(HeadraceError, ConnectionError):
    """The service could not be reached, or failed, until our patience was at its end."""

    _code = "unavailable"


class TimedOutError(_SystemsError, TimeoutError):  # type: ignore[misc]
    """The request took longer than its ``TimeoutOptions`` allow."""

    _code = "timed out"
    _errno = errno.ETIMEDOUT


class CorruptDataError(HeadraceError):
    """The bytes are not those that were stored: checksum, length or format do not agree."""

    _code = "corrupt data"


class CancelledError(HeadraceError):
    """The request was ended by us: the engine was stopped, or somebody cancelled."""

    _code = "cancelled"


class ResourceError(HeadraceError):
    """An object alone exceeds the memory budget, or there are no file descriptors left."""

    _code = "resource exhausted"


class InternalError(HeadraceError, RuntimeError):
    """A bug of headrace."""

    _code = "internal error"


_Error = TypeVar("_Error", bound=HeadraceError)
_Any = TypeVar("_Any", bound=BaseException)


def with_url(error: _Error, url: str) -> _Error:
    """Return an error after saying which object it is about."""
    error.url = url
    return error


def again(error: _Any) -> _Any:
    """Return a copy to raise of an error that is kept, because others will meet it, too.

    If it were raised itself, its traceback and its notes would grow each time.
    """
    try:
        other = copy.copy(error)
        other.__cause__, other.__suppress_context__ = error.__cause__, error.__suppress_context__
        if notes := notes_of(error):
            other.__notes__ = notes
        return other.with_traceback(error.__traceback__)
    except Exception:  # of a class that refuses it
        return error.with_traceback(None)


# The class of an exception of the user's code may do anything in the place of what follows.


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, also if its class cannot make it."""
    try:
        return str(error)
    except Exception:
        return "an exception that has no text"


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception."""
    try:
        notes = error.__notes__
        return [str(note) for note in notes] if isinstance(notes, list) else []
    except Exception:
        return []  # it has none


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an exception; to one that takes none, none."""
    with contextlib.suppress(Exception):
        error.add_note(text)


def travels(error: BaseException) -> bool:
    """Return whether other processes can raise this error: whether it pickles, there and back."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def portable(error: BaseException) -> Exception:
    """Return the error, or one that says the same if other processes cannot raise this one."""
    if isinstance(error, Exception) and travels(error):
        return error
    other = HeadraceError(f"{type(error).__name__}: {text_of(error)}")
    for note in notes_of(error):
        other.add_note(note)
    return other
