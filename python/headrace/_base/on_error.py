"""What ``on_error`` may be, and which errors it is about."""

from __future__ import annotations

import concurrent.futures
import errno
from collections.abc import Callable
from typing import Any, Literal

from headrace._base.errors import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace._base.imported import imported
from headrace._base.options import require

__all__ = ["OnError", "is_of_the_data", "require_on_error"]

OnError = Literal["raise", "skip"] | Callable[[Any], object]
"""What to do about data that cannot be read or used; a function gets the error."""

_OURS = (NotFoundError, CorruptDataError, PreconditionFailedError)
_NEVER = (MemoryError, concurrent.futures.CancelledError, concurrent.futures.BrokenExecutor)
# Of services that a transform has asked: rights, and what another try may bring.
_NO_ANSWERS = (401, 403, 407, 408, 425, 429, 500, 502, 503, 504)
_MOST_READ = 200  # characters of an error's text
# With any other number, an OSError tells of the machine, of a connection, or of rights.
_NUMBERS = (
    None,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EINVAL,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def require_on_error(on_error: OnError) -> None:
    """Refuse what says nothing about errors."""
    require(
        on_error in ("raise", "skip") or callable(on_error),
        f"on_error is {on_error!r}; it must be 'raise', 'skip' or a function of an error",
    )


def is_of_the_data(error: BaseException, handled: BaseException | None = None) -> bool:
    """Return whether an error is about the very data that were being read or transformed.

    An outage, a refusal of rights, a wrong argument, a lack of memory or an interruption is not,
    and neither is what was raised because of one of these.

    Args:
        error: what was raised.
        handled: what the caller was handling before, which is no cause.
    """
    cause: BaseException | None = error
    seen: set[int] = set()
    try:
        while cause is not None and cause is not handled and id(cause) not in seen:
            seen.add(id(cause))
            if not _is_of_the_data(cause, handled):
                return False
            is_told = cause.__cause__ is not None or cause.__suppress_context__
            cause = cause.__cause__ if is_told else cause.__context__
    except Exception:  # of a class that cannot be asked
        return False
    return True


def _is_of_the_data(error: BaseException, handled: BaseException | None) -> bool:
    kind = type(error)
    if issubclass(kind, BaseExceptionGroup):
        group: Any = error
        return all(is_of_the_data(each, handled) for each in group.exceptions)
    if not issubclass(kind, Exception) or issubclass(kind, (*_NEVER, *_of_a_device())):
        return False
    if issubclass(kind, InvalidArgumentError):
        ours: Any = error  # one that names an object says that its content cannot be
        return ours.url is not None and ours.http_status is None
    if issubclass(kind, HeadraceError):
        return issubclass(kind, _OURS)
    if issubclass(kind, PermissionError | ConnectionError | TimeoutError):
        return False
    if _status_of(error) in _NO_ANSWERS:
        return False
    if issubclass(kind, RuntimeError) and "CUDA error" in str(error)[:_MOST_READ]:
        return False  # older torch has no class for it
    return not issubclass(kind, OSError) or getattr(error, "errno", None) in _NUMBERS


def _status_of(error: BaseException) -> Any:
    """Return the status of HTTP that an error of urllib, requests or httpx has."""
    answer = getattr(error, "response", None)
    return getattr(answer, "status_code", None) or getattr(error, "code", None)


def _of_a_device() -> tuple[type[BaseException], ...]:
    """Return torch's exceptions about a device: its memory, and whatever has stopped it."""
    kinds = [imported("torch", name) for name in ("OutOfMemoryError", "AcceleratorError")]
    return tuple(kind for kind in kinds if kind is not None)
