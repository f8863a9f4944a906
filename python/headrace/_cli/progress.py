"""How far a copy or a listing is, for people who look at a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

from headrace import ObjectIndex, Store
from headrace._base.contexts import context
from headrace._cli.report import Report
from headrace._store.chosen import Chosen

__all__ = ["Progress", "is_watched", "listed", "progress"]


class Progress:
    """Shows nothing: stderr is no terminal. Thread: any."""

    def found(self, size_bytes: int) -> None:
        """Another object was listed."""

    def found_all(self) -> None:
        """There are no more."""

    def done(self, size_bytes: int) -> None:
        """An object was copied, skipped, or has failed."""

    def arrived(self, size_bytes: int) -> None:
        """So many bytes more of an object that is not done yet are copied."""

    def close(self) -> None:
        """Give the line back."""


class _Bar(Progress):
    """Bytes and objects; a bar once all is listed."""

    def __init__(self, report: Report) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        self._lock = threading.Lock()
        self._report = report
        self._found_count = self._found_bytes = self._done_count = 0
        self._bar = RichProgress(
            TextColumn("{task.fields[done]}/{task.fields[of]} objects"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, done=0, of="?")
        self._bar.start()
        # Errors go above the bar.
        report.write = lambda line: self._bar.console.out(line, highlight=False)

    def found(self, size_bytes: int) -> None:
        self._found_count += 1
        self._found_bytes += size_bytes

    def found_all(self) -> None:
        self._bar.update(self._task, total=self._found_bytes, of=self._found_count)

    def done(self, size_bytes: int) -> None:
        with self._lock:
            self._done_count += 1
            done = self._done_count
        self._bar.update(self._task, advance=size_bytes, done=done)

    def arrived(self, size_bytes: int) -> None:
        self._bar.update(self._task, advance=size_bytes)

    def close(self) -> None:
        self._report.write = None
        self._bar.stop()


def progress(report: Report) -> Progress:
    """Return what shows progress: on a terminal only, and not to a script."""
    return _Bar(report) if is_watched(report) else Progress()


def listed(
    store: Store, prefix: str, report: Report, chosen: Chosen | None = None, *, pattern: str = ""
) -> ObjectIndex:
    """Return the index of what begins with `prefix`; meanwhile show how many names have come.

    Args:
        chosen: chooses the samples; None: all are wanted.
        pattern: which of their names are meant.

    Raises:
        NotFoundError: as `Store.index`.
    """
    with _counter(report) as show:

        def tell(names: int, _: None) -> None:
            report.check()
            if show is not None:
                show(names)

        index = store.index(prefix, progress=tell)
    if chosen is None:
        return index
    index = chosen.of(index, store.url_of(prefix), below="" if pattern else prefix, pattern=pattern)
    if chosen.left_out:
        report.note(f"left out: {chosen.left_out}")
    return index


def is_watched(report: Report) -> bool:
    """Return whether somebody looks at a terminal."""
    return sys.stderr.isatty() and not report.as_json


@context
def _counter(report: Report) -> Iterator[Callable[[int], object] | None]:
    """Give what shows how many names have come; None if nobody looks."""
    if not is_watched(report):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = RichProgress(
        SpinnerColumn(),
        TextColumn("{task.completed:,} objects listed"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task("", total=None)
    # Errors and warnings go above the line.
    report.write = lambda line: shown.console.out(line, highlight=False)
    try:
        with shown:
            yield lambda names: shown.update(task, completed=names)
    finally:
        report.write = None
