"""How far a long save or load is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from headrace._errors import InvalidArgumentError

__all__ = ["Progress", "ProgressOption", "choose_progress"]

ProgressOption = bool | Callable[[int, int], object]
"""Whether to show a bar, or what to call with the bytes that are done and all bytes."""


class Progress(Protocol):
    """Counts bytes."""

    def add(self, size_bytes: int) -> None:
        """So many bytes more are done."""
        ...


class _Silent:
    def add(self, size_bytes: int) -> None:
        pass


class _Calls:
    def __init__(self, call: Callable[[int, int], object], total_bytes: int) -> None:
        self._call, self._total_bytes, self._done_bytes = call, total_bytes, 0

    def add(self, size_bytes: int) -> None:
        if size_bytes:
            self._done_bytes += size_bytes
            self._call(self._done_bytes, self._total_bytes)


class _Bar:
    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def add(self, size_bytes: int) -> None:
        self._bar.update(size_bytes)


@contextmanager
def choose_progress(option: ProgressOption, name: str, total_bytes: int) -> Iterator[Progress]:
    """Give what counts for `option`; a bar says what it is about, and how long it will take."""
    if option is False:
        yield _Silent()
    elif option is True:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise InvalidArgumentError(
                "progress=True shows a bar of tqdm, which is not installed: "
                "pip install 'headrace[progress]', or pass a function (done_bytes, total_bytes)"
            ) from None
        with tqdm(
            total=total_bytes, desc=name, unit="B", unit_scale=True, unit_divisor=1024
        ) as bar:
            yield _Bar(bar)
    else:
        yield _Calls(option, total_bytes)
