"""Context managers made of generators, through which every exception passes as it is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

__all__ = ["context"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def context(function: Callable[_P, Iterator[_T]]) -> Callable[_P, AbstractContextManager[_T]]:
    """Make a context manager of a generator function, as `contextlib.contextmanager` does.

    contextlib's assigns to the exception's ``__traceback__``, which one of a frozen dataclass
    refuses: whoever waits for the user's exception gets another one.
    """

    @wraps(function)
    def make(*args: _P.args, **kwargs: _P.kwargs) -> AbstractContextManager[_T]:
        return _Context(function(*args, **kwargs))

    return make


class _Context(AbstractContextManager[_T], Generic[_T]):
    def __init__(self, steps: Iterator[_T]) -> None:
        assert isinstance(steps, Generator)
        self._steps = steps

    def __enter__(self) -> _T:
        value: _T = next(self._steps)
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            next(self._steps, None)
            return False
        try:
            self._steps.throw(error)
        except StopIteration as ended:
            return ended is not error
        except BaseException as raised:
            # A generator turns StopIteration into a RuntimeError.
            if raised is error or (isinstance(error, StopIteration) and raised.__cause__ is error):
                return False
            raise
        return False
