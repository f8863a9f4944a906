"""Which measurements `headrace bench --html` makes, and how."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from headrace import HeadraceError, MiB, ObjectIndex, Store
from headrace._base.contexts import context
from headrace._cli.bench_reads import Reads
from headrace._cli.progress import is_watched
from headrace._cli.report import Report, Stopped, binary_size

__all__ = ["Measurement", "Settings", "measure_all", "settings_of"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How one measurement reads."""

    batch_size: int
    prefetch_bytes: int | None = None
    """None: what the engine chooses."""
    processes: int = 1
    shares: bool = False
    """Whether processes are ranks, each with a share of the objects; else each reads all."""
    against: str | None = None
    """``module:function`` of the user's that reads instead of headrace."""

    @property
    def text(self) -> str:
        """What is not as usual, for people."""
        parts = [f"batches of {self.batch_size}"]
        if self.prefetch_bytes is not None:
            ahead = binary_size(self.prefetch_bytes) if self.prefetch_bytes else "one batch"
            parts.append(f"{ahead} ahead")
        if self.processes > 1:
            parts.append(f"{self.processes} {'ranks' if self.shares else 'processes'}")
        if self.against is not None:
            parts.append(self.against)
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one way to read took, each time that it was measured."""

    settings: Settings
    runs: list[list[Reads]] = field(default_factory=list)
    """Each with the reads of every process."""
    starts_s: list[float] = field(default_factory=list)
    """How long a process took from its start until it could begin to read."""

    @property
    def objects_per_s(self) -> list[float]:
        """Of each run, over all processes."""
        return [sum(each.objects / each.duration_s for each in run) for run in self.runs]

    @property
    def bytes_per_s(self) -> list[float]:
        """Of each run, over all processes."""
        return [sum(each.bytes / each.duration_s for each in run) for run in self.runs]

    @property
    def waits_s(self) -> list[float]:
        """Of all batches of all runs."""
        return [wait_s for run in self.runs for each in run for wait_s in each.waits_s]

    @property
    def steps_s(self) -> list[float]:
        """Of all batches of all runs."""
        return [step_s for run in self.runs for each in run for step_s in each.steps_s]


def settings_of(batch_size: int, most_processes: int) -> list[Settings]:
    """Return what is measured; the first is what the others differ from in one thing each."""
    every = [Settings(batch_size=batch_size)]
    every += [
        Settings(batch_size=other)
        for other in (max(1, batch_size // 4), batch_size * 4)
        if other != batch_size
    ]
    every += [
        Settings(batch_size=batch_size, prefetch_bytes=size) for size in (0, 1 * MiB, 16 * MiB)
    ]
    processes = 2
    while processes <= most_processes:
        every.append(Settings(batch_size=batch_size, processes=processes))
        processes *= 2
    return every


def measure_all(
    store: Store,
    index: ObjectIndex,
    every: list[Settings],
    report: Report,
    *,
    seconds: float,
    repeats: int,
    seed: int,
    step_s: float,
    epochs: int | None = None,
) -> list[Measurement]:
    """Measure all, one after the other, and then all once more.

    What slows the machine down for a while so harms all of them alike. If the command is stopped,
    this returns what was measured until then.

    Raises:
        HeadraceError: a measurement has failed.
    """
    all_of_them = [Measurement(settings=settings) for settings in every]
    with suppress(Stopped), _shown(report, repeats * len(every)) as tell:
        for repeat in range(repeats):
            for measurement in all_of_them:
                tell(measurement.settings, repeat)
                job = {"seconds": seconds, "epochs": epochs, "step_s": step_s}
                run, start_s = _run(_jobs(measurement.settings, store, index, seed, job), report)
                measurement.runs.append(run)
                measurement.starts_s.append(start_s)
    return [measurement for measurement in all_of_them if measurement.runs]


def _jobs(
    settings: Settings, store: Store, index: ObjectIndex, seed: int, job: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return what each process is to do."""
    count = settings.processes
    job = {**job, "batch_size": settings.batch_size}
    if settings.against is None:
        job |= {"store": store, "prefetch_bytes": settings.prefetch_bytes}
    else:
        job |= {"against": settings.against}
    if settings.shares:
        shares = [index.select(range(rank, len(index), count)) for rank in range(count)]
        return [{**job, "index": share, "seed": seed} for share in shares]
    return [{**job, "index": index, "seed": seed + number} for number in range(count)]


def _run(jobs: list[dict[str, Any]], report: Report) -> tuple[list[Reads], float]:
    """Let processes read at the same time; return what they found, and how long the start took."""
    begin_s = time.perf_counter()
    processes: list[subprocess.Popen[bytes]] = []
    # Files, not pipes: a process must not wait until somebody reads what it says there.
    errors = [tempfile.TemporaryFile() for _ in jobs]  # noqa: SIM115
    try:
        for job, stderr in zip(jobs, errors, strict=True):
            process = subprocess.Popen(
                [sys.executable, "-m", "headrace._cli.bench_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for this process
            )
            processes.append(process)
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it says why
                pickle.dump(job, process.stdin)
                process.stdin.flush()
        for process, stderr in zip(processes, errors, strict=True):
            _answer_of(process, stderr, report, lambda stdout: stdout.readline())
        start_s = time.perf_counter() - begin_s
        for process in processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(b"go\n")
                process.stdin.flush()
        found = [
            pickle.loads(_answer_of(process, stderr, report, lambda out: out.read()))
            for process, stderr in zip(processes, errors, strict=True)
        ]
        for each in found:
            if isinstance(each, HeadraceError):
                raise each
        return found, start_s
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        for stderr in errors:
            stderr.close()


def _answer_of(
    process: subprocess.Popen[bytes],
    stderr: IO[bytes],
    report: Report,
    take: Callable[[IO[bytes]], bytes],
) -> bytes:
    """Return what a process says next; meanwhile look whether the command is stopped.

    Raises:
        Stopped: it is.
        HeadraceError: the process has ended without a word.
    """
    stdout = process.stdout
    assert stdout is not None
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(take(stdout)), daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(0.05)
        report.check()
    if found and found[0]:
        return found[0]
    process.wait()
    stderr.seek(0)
    last = stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
    raise HeadraceError(f"a process of the measurement has ended: {last or process.returncode}")


@context
def _shown(report: Report, count: int) -> Iterator[Callable[[Settings, int], object]]:
    """Give what shows, on a terminal, which measurement is next."""
    if not is_watched(report):
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown = Progress(
        TextColumn("measuring"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task("", total=count)
    begun = 0

    def tell(settings: Settings, repeat: int) -> None:
        nonlocal begun
        shown.update(task, completed=begun, description=f"{settings.text}, round {repeat + 1}")
        begun += 1

    report.write = lambda line: shown.console.out(line, highlight=False)
    try:
        with shown:
            yield tell
    finally:
        report.write = None
