"""Exceptions of users' code with which nothing can be done but raise them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["AWKWARD", "ORDINARY", "NoNotesError", "raiser"]


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    path: str = "here"


class NoAttributesError(Exception):
    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(name)


class ReadOnlyArgsError(Exception):
    args = property(lambda _: ("a text",))  # type: ignore[assignment]


class NoArgsError(Exception):
    @property
    def args(self) -> NoReturn:  # type: ignore[override]
        raise LookupError


class OddNotesError(Exception):
    __notes__ = "no list"  # type: ignore[assignment]


class FewNotesError(Exception):
    __notes__ = 3  # type: ignore[assignment]


class NoNotesError(Exception):
    @property
    def __notes__(self) -> NoReturn:  # type: ignore[override]
        raise LookupError


class NoTextError(Exception):
    def __str__(self) -> NoReturn:
        raise LookupError

    __repr__ = __str__


class NoTextOSError(OSError):
    def __str__(self) -> NoReturn:
        raise LookupError


class NoReduceError(Exception):
    def __reduce__(self) -> NoReturn:
        raise LookupError


class NoUnpicklingError(Exception):
    def __init__(self, text: str, *more: str) -> None:
        super().__init__(text, *more)
        if more:
            raise LookupError

    def __reduce__(self) -> Any:
        return NoUnpicklingError, ("a text", "and more")


class FalseError(Exception):
    def __bool__(self) -> bool:
        return False


class NeverError(BaseException):
    pass


@dataclasses.dataclass(frozen=True)
class FrozenNeverError(BaseException):
    path: str = "here"


AWKWARD: list[type[BaseException]] = [
    FrozenError,
    NoAttributesError,
    ReadOnlyArgsError,
    NoArgsError,
    OddNotesError,
    FewNotesError,
    NoNotesError,
    NoTextError,
    NoTextOSError,
    NoReduceError,
    NoUnpicklingError,
    FalseError,
    NeverError,
    FrozenNeverError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
]
# Those that stand for the rest where a case is expensive.
ORDINARY: list[type[BaseException]] = [
    FrozenError,
    NoTextError,
    NoReduceError,
    FrozenNeverError,
]


def raiser(error: type[BaseException]) -> Callable[..., Any]:
    """Return a function that raises a new one, whatever it is given."""

    def function(*_: Any, **__: Any) -> NoReturn:
        raise error("a text")

    return function
