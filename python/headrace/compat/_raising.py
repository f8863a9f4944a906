"""Errors of headrace, raised as errors that handlers of another package's errors catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace import HeadraceError
from headrace._base.contexts import context

__all__ = ["as_raises"]


@context
def as_raises(convert: Callable[[HeadraceError], HeadraceError]) -> Iterator[None]:
    """Raise what `convert` makes of a `HeadraceError` that is raised inside.

    Args:
        convert: returns the error itself if it is to stay as it is.
    """
    try:
        yield
    except HeadraceError as error:
        converted = convert(error)
        if converted is error:
            raise
        raise converted.with_traceback(error.__traceback__) from None
