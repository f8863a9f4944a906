"""`headrace bench --against`: a loader of the user's beside headrace, on the same objects."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from headrace import GiB, HeadraceError, InvalidArgumentError, ObjectIndex, _engine
from headrace._cli.bench_reads import Reads, family_cpu_s, quantile
from headrace._cli.location import Location
from headrace._cli.packing import function_at
from headrace._cli.report import Report, counted, shown, with_notes
from headrace._store.location import after_scheme, is_local

__all__ = ["bench_against", "read_by"]

_Number = dict[str, float]


def read_by(
    against: str,
    index: ObjectIndex,
    *,
    batch_size: int,
    seconds: float,
    epochs: int | None = None,
    seed: int = 0,
    step_s: float = 0.0,
) -> Reads:
    """Read by a function of the user's as `read_for` reads, and say what that took.

    Args:
        against: ``module:function``. It is called once for each epoch, with the URLs (or paths) in
            the order of the epoch, and `batch_size`, and yields batches of whole objects.

    Raises:
        InvalidArgumentError: it gives what are no batches of these objects.
        HeadraceError: it fails.
    """
    load = function_at("--against", against)
    sizes = sorted(info.size_bytes for info in index)
    found = Reads()
    named: Callable[[str], str] = after_scheme if is_local(index.url(0)) else str
    cpu_begin_s, begin_s = family_cpu_s(), time.perf_counter()
    for epoch in itertools.count():
        if epoch == epochs:
            break
        order = _engine.Order(len(index), seed, epoch, True).indices(0, len(index))
        urls = [named(index.url(i)) for i in order]
        came: list[int] = []
        try:
            is_over = _epoch(load, urls, batch_size, found, came, begin_s, seconds, epochs, step_s)
        except HeadraceError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {with_notes(error)}"
            raise HeadraceError(f"--against {against}: {told}") from error
        if is_over:
            break
        if sorted(came) != sizes:
            raise InvalidArgumentError(
                f"--against {against}: an epoch of {len(sizes)} objects, {sum(sizes)} bytes, gave "
                f"{len(came)} samples of {sum(came)} bytes: let it yield every object once, whole"
            )
        found.complete_epochs += 1
    found.duration_s = found.ends_s[-1]
    found.cpu_s = family_cpu_s() - cpu_begin_s
    found.bytes = sum(found.batch_bytes)
    return found


def _epoch(
    load: Callable[[list[str], int], Any],
    urls: list[str],
    batch_size: int,
    found: Reads,
    came: list[int],
    begin_s: float,
    seconds: float,
    epochs: int | None,
    step_s: float,
) -> bool:
    """Take the batches of one epoch; return whether the time is over."""
    waiting_since_s = begin_s if not found.ends_s else time.perf_counter()
    batches = load(urls, batch_size)
    try:
        for batch in batches:
            now_s = time.perf_counter()
            found.waits_s.append(now_s - waiting_since_s)
            found.ends_s.append(now_s - begin_s)
            of_batch = [_size_bytes(sample) for sample in batch]
            came += of_batch
            if len(came) > len(urls):
                return False  # which the caller refuses
            found.objects += len(of_batch)
            found.batch_bytes.append(sum(of_batch))
            if epochs is None and now_s - begin_s >= seconds:
                return True
            if step_s > 0:
                time.sleep(step_s)
            waiting_since_s = time.perf_counter()
        return False
    finally:
        # Worker processes end, so that their CPU counts.
        if hasattr(batches, "close"):
            batches.close()
        del batches


def _size_bytes(sample: Any) -> int:
    size_bytes = getattr(sample, "nbytes", None)
    if size_bytes is None:
        size_bytes = memoryview(sample).nbytes
    return int(size_bytes)


def bench_against(
    location: Location,
    index: ObjectIndex,
    list_s: float,
    report: Report,
    *,
    against: str | None,
    ranks: int,
    batch_size: int,
    seconds: float,
    epochs: int | None,
    seed: int,
    step_s: float,
    repeats: int,
) -> None:
    """Measure headrace, and what `against` names, in turn, each in fresh processes; print both.

    Raises:
        InvalidArgumentError: there are fewer objects than ranks, or as `read_by` has it.
        HeadraceError: a measurement has failed.
    """
    from headrace._cli.bench_series import Settings, measure_all

    if len(index) < ranks:
        raise InvalidArgumentError(f"--ranks is {ranks}, and there are {len(index)} objects")
    names = [None] if against is None else [None, against]
    every = [
        Settings(batch_size=batch_size, processes=ranks, shares=True, against=name)
        for name in names
    ]
    found = measure_all(
        location.store,
        index,
        every,
        report,
        seconds=seconds,
        epochs=epochs,
        repeats=repeats,
        seed=seed,
        step_s=step_s,
    )
    if not found:
        report.check()
        return
    sides = [_side(each.settings.against or "headrace", each.runs) for each in found]
    if report.as_json:
        facts = {
            "url": location.url,
            "batch_size": batch_size,
            "ranks": ranks,
            "listed_objects": len(index),
            "list_s": list_s,
            "sides": sides,
        }
        print(json.dumps(facts))
    else:
        _print(location.url, batch_size, ranks, sides)


def _side(by: str, runs: Sequence[Sequence[Reads]]) -> dict[str, Any]:
    """Return what one of both took: numbers of each run, over its ranks."""

    def over_runs(number: Callable[[Sequence[Reads]], float]) -> _Number:
        numbers = [number(run) for run in runs]
        return {"median": statistics.median(numbers), "min": min(numbers), "max": max(numbers)}

    def objects(run: Sequence[Reads]) -> int:
        return sum(each.objects for each in run)

    def size_bytes(run: Sequence[Reads]) -> int:
        return sum(each.bytes for each in run)

    def waits(run: Sequence[Reads]) -> list[float]:
        return [wait_s for each in run for wait_s in each.waits_s]

    side: dict[str, Any] = {
        "by": by,
        "runs": len(runs),
        # Of each rank; whatever was not complete and exact has raised an error.
        "complete_epochs": sum(each.complete_epochs for run in runs for each in run),
        "objects": sum(map(objects, runs)),
        "bytes": sum(map(size_bytes, runs)),
        "objects_per_s": over_runs(lambda run: sum(r.objects / r.duration_s for r in run)),
        "gib_per_s": over_runs(lambda run: sum(r.bytes / GiB / r.duration_s for r in run)),
        "first_batch_s": over_runs(lambda run: max(r.waits_s[0] for r in run)),
        "first_batch_fastest_rank_s": over_runs(lambda run: min(r.waits_s[0] for r in run)),
        "batch_p50_s": over_runs(lambda run: quantile(waits(run), 0.5)),
        "batch_p99_s": over_runs(lambda run: quantile(waits(run), 0.99)),
        "cpu_us_per_object": over_runs(
            lambda run: 1e6 * sum(r.cpu_s for r in run) / max(1, objects(run))
        ),
    }
    if by == "headrace":
        side["read_amplification"] = over_runs(
            lambda run: sum(r.read_bytes for r in run) / max(1, size_bytes(run))
        )
    return side


def _print(url: str, batch_size: int, ranks: int, sides: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [
        ("objects/s", "objects_per_s", 1.0, ",.0f"),
        ("GiB/s", "gib_per_s", 1.0, ".3f"),
        ("last rank's first batch, ms", "first_batch_s", 1e3, ",.1f"),
        ("first rank's first batch, ms", "first_batch_fastest_rank_s", 1e3, ",.1f"),
        ("wait for a batch, p50, ms", "batch_p50_s", 1e3, ",.2f"),
        ("p99, ms", "batch_p99_s", 1e3, ",.2f"),
        ("CPU per object, us", "cpu_us_per_object", 1.0, ",.1f"),
        ("read, over these bytes", "read_amplification", 1.0, ".3f"),
    ]
    if ranks == 1:
        del rows[3]
        rows[2] = ("first batch, ms", *rows[2][1:])
    print(f"{shown(url)}, batches of {batch_size}, {counted(ranks, 'rank')}: median (min .. max)")
    table = Table()
    table.add_column("", no_wrap=True)
    for side in sides:
        table.add_column(Text(side["by"]), justify="right")
    table.add_row("runs", *(str(side["runs"]) for side in sides))
    table.add_row("exact epochs", *(f"{side['complete_epochs']:,}" for side in sides))
    for name, key, factor, style in rows:
        table.add_row(name, *(_cell(side.get(key), factor, style) for side in sides))
    Console().print(table)


def _cell(number: _Number | None, factor: float, style: str) -> str:
    """Return the median, and below it the smallest and the largest where these differ."""
    if number is None:
        return ""
    median, low, high = (f"{number[each] * factor:{style}}" for each in ("median", "min", "max"))
    return median if low == high else f"{median}\n{low} .. {high}"
