"""How far a long save, load or listing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headrace._base.contexts import context
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require

__all__ = [
    "CountOption",
    "Progress",
    "ProgressOption",
    "choose_progress",
    "count_names",
    "require_progress",
]

ProgressOption = bool | Callable[[int, int], object]
"""Whether to show a bar, or what to call with the bytes that are done and all bytes."""

CountOption = bool | Callable[[int, None], object]
"""The same where nobody knows how many there will be: the total is None."""


class Progress(Protocol):
    """Counts bytes."""

    def add(self, size_bytes: int) -> None:
        """So many bytes more are done."""
        ...

    def tick(self) -> None:
        """Some time has passed; what shows progress may want to end it."""
        ...


class _Silent:
    def add(self, size_bytes: int) -> None:
        pass

    def tick(self) -> None:
        pass


class _Calls:
    def __init__(self, call: Callable[[int, int], object], total_bytes: int) -> None:
        self._call, self._total_bytes, self._done_bytes = call, total_bytes, 0

    def add(self, size_bytes: int) -> None:
        if size_bytes:
            self._done_bytes += size_bytes
            self._call(self._done_bytes, self._total_bytes)

    def tick(self) -> None:
        self._call(self._done_bytes, self._total_bytes)


class _Bar:
    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def add(self, size_bytes: int) -> None:
        self._bar.update(size_bytes)

    def tick(self) -> None:
        self._bar.refresh()


def require_progress(
    option: ProgressOption | CountOption, arguments: str = "done_bytes, total_bytes"
) -> None:
    """Refuse what neither says whether to show progress nor can be called with it."""
    require(
        isinstance(option, bool) or callable(option),
        f"progress is {option!r}; it must be True, False or a function ({arguments})",
    )


@context
def choose_progress(option: ProgressOption, name: str, total_bytes: int) -> Iterator[Progress]:
    """Give what counts for `option`; a bar says what it is about, and how long it will take."""
    require_progress(option)
    if option is False:
        yield _Silent()
    elif option is True:
        tqdm = _tqdm()
        with tqdm(
            total=total_bytes, desc=name, unit="B", unit_scale=True, unit_divisor=1024
        ) as bar:
            yield _Bar(bar)
    else:
        yield _Calls(option, total_bytes)


@context
def count_names(option: CountOption, what: str) -> Iterator[Callable[[int], object] | None]:
    """Give what to call with how many names have arrived; None if nobody wants to know."""
    require_progress(option, "names, None")
    if option is False:
        yield None
    elif option is True:
        with _tqdm()(desc=what, unit=" objects", unit_scale=True) as bar:
            yield lambda names: bar.update(names - bar.n)
    else:
        yield lambda names: option(names, None)


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise InvalidArgumentError(
            "progress=True shows a bar of tqdm, which is not installed: "
            "pip install 'headrace[progress]', or pass a function (done, total)"
        ) from None
    return tqdm
