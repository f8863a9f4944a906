"""`headrace bench`: reads as a training job does, and says how fast that was."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace import GiB, InvalidArgumentError, ObjectIndex, Verdict
from headrace._cli.bench_against import bench_against
from headrace._cli.bench_reads import Reads, quantile, read_for
from headrace._cli.location import Location, missing_bucket, not_found
from headrace._cli.progress import listed
from headrace._cli.report import Report, binary_size, shown
from headrace._store.chosen import Chosen

__all__ = ["Measured", "bench"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one `bench` found."""

    url: str
    batch_size: int
    listed_objects: int
    list_s: float
    duration_s: float
    """Reading alone, from the first request to the last batch."""
    epochs: float
    complete_epochs: int
    """Each of them gave every listed object exactly once."""
    objects: int
    bytes: int
    batches: int
    objects_per_s: float
    gib_per_s: float
    first_batch_s: float
    batch_p50_s: float
    """How long the consumer waited for a batch; it does nothing else."""
    batch_p90_s: float
    batch_p99_s: float
    cpu_us_per_object: float
    """CPU time of this process, user and system, all threads."""
    cpu_s_per_gib: float
    peak_rss_bytes: int
    peak_object_bytes: int
    """Object bytes in memory at most: in flight, read ahead, or with the consumer."""
    read_bytes: int
    """Object bytes that came from the server, as much as this process knows."""
    read_amplification: float
    """The same, over `bytes`. Batches read ahead and not taken count, too: take whole epochs."""
    requests: int
    retries: int
    throttled: int
    connections: int
    checksums_verified: int
    verdict: Verdict
    """What limits these reads."""


def bench(
    location: Location,
    report: Report,
    *,
    batch_size: int,
    seconds: float | None,
    epochs: int | None,
    seed: int,
    step_s: float,
    html: Path | None,
    repeats: int,
    against: str | None,
    ranks: int,
    chosen: Chosen,
) -> None:
    """List, shuffle, read batch after batch, and print what that took.

    Args:
        seconds: stop after this long, if `epochs` is None. None: 10, or 2 for each of several
            measurements.
        epochs: stop after so many passes over all objects.
        seed: of the order.
        step_s: how long the consumer works on each batch.
        html: measure other batch sizes, too, and more; and write a page about all of it there.
        repeats: how often each of several measurements is made.
        against: ``module:function`` of a loader that is measured in turn with headrace.
        ranks: so many processes read at a time, each its share of the objects.
        chosen: chooses the samples.

    Raises:
        InvalidArgumentError: a page cannot be made as asked, or matplotlib is not installed; or the
            loader gives something else.
    """
    if html is not None:
        _require_page(html, epochs)
        if against is not None or ranks > 1:
            raise InvalidArgumentError("--html is without --against and --ranks: leave them out")
        report.stop_s = 30.0  # what was measured until then becomes a page
    begin_s = time.perf_counter()
    try:
        index = listed(location.store, location.below, report, chosen)
    except headrace.HeadraceError as error:
        raise missing_bucket(error, location.store) or error from None
    list_s = time.perf_counter() - begin_s
    if not len(index):
        raise not_found(location, "no sample below it" + chosen.hint)
    if against is not None or ranks > 1:
        bench_against(
            location,
            index,
            list_s,
            report,
            against=against,
            ranks=ranks,
            batch_size=batch_size,
            seconds=2.0 if seconds is None else seconds,
            epochs=epochs,
            seed=seed,
            step_s=step_s,
            repeats=repeats,
        )
        return
    if html is None:
        reads = read_for(
            location.store,
            index,
            batch_size=batch_size,
            seconds=10.0 if seconds is None else seconds,
            epochs=epochs,
            seed=seed,
            step_s=step_s,
            is_stopping=lambda: report.stopping,
        )
    else:
        seconds = 2.0 if seconds is None else seconds
        reads = _page(
            location, index, list_s, report, batch_size, seconds, seed, step_s, html, repeats
        )
    if reads.verdict is None or not reads.waits_s:
        report.check()
        return
    measured = _measured(location, index, list_s, batch_size, reads, reads.verdict)
    if report.as_json:
        print(json.dumps(dataclasses.asdict(measured)))
    else:
        _print(measured)


def _require_page(html: Path, epochs: int | None) -> None:
    if epochs is not None:
        raise InvalidArgumentError("--html measures for --seconds each time; leave out --epochs")
    if not html.absolute().parent.is_dir():
        raise headrace.NotFoundError(f"{html}: the folder for this page does not exist")
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidArgumentError("--html needs matplotlib: pip install 'headrace[report]'")


def _page(
    location: Location,
    index: ObjectIndex,
    list_s: float,
    report: Report,
    batch_size: int,
    seconds: float,
    seed: int,
    step_s: float,
    html: Path,
    repeats: int,
) -> Reads:
    """Measure, write the page, and return the reads of the first settings' median run."""
    from headrace._cli.bench_page import write_page
    from headrace._cli.bench_series import measure_all, settings_of

    every = settings_of(batch_size, max(2, len(os.sched_getaffinity(0))))
    found = measure_all(
        location.store,
        index,
        every,
        report,
        seconds=seconds,
        repeats=repeats,
        seed=seed,
        step_s=step_s,
    )
    if not found:
        return Reads()
    write_page(
        html,
        found,
        url=location.url,
        sizes=[info.size_bytes for info in index],
        list_s=list_s,
        seconds=seconds,
        repeats=repeats,
        step_s=step_s,
        is_whole=not report.stopping,
    )
    report.note(f"wrote {shown(str(html))}")
    rates = found[0].objects_per_s
    return found[0].runs[rates.index(statistics.median_high(rates))][0]


def _measured(
    location: Location,
    index: ObjectIndex,
    list_s: float,
    batch_size: int,
    reads: Reads,
    verdict: Verdict,
) -> Measured:
    return Measured(
        url=location.url,
        batch_size=batch_size,
        listed_objects=len(index),
        list_s=list_s,
        duration_s=reads.duration_s,
        epochs=reads.objects / len(index),
        complete_epochs=reads.complete_epochs,
        objects=reads.objects,
        bytes=reads.bytes,
        batches=len(reads.waits_s),
        objects_per_s=reads.objects / reads.duration_s,
        gib_per_s=reads.bytes / GiB / reads.duration_s,
        first_batch_s=reads.waits_s[0],
        batch_p50_s=quantile(reads.waits_s, 0.5),
        batch_p90_s=quantile(reads.waits_s, 0.9),
        batch_p99_s=quantile(reads.waits_s, 0.99),
        cpu_us_per_object=1e6 * reads.cpu_s / reads.objects,
        cpu_s_per_gib=reads.cpu_s * GiB / reads.bytes if reads.bytes else 0.0,
        peak_rss_bytes=reads.peak_rss_bytes,
        peak_object_bytes=reads.peak_object_bytes,
        read_bytes=reads.read_bytes,
        read_amplification=reads.read_bytes / reads.bytes if reads.bytes else 0.0,
        requests=reads.requests,
        retries=reads.retries,
        throttled=reads.throttled,
        connections=reads.connections,
        checksums_verified=reads.checksums_verified,
        verdict=verdict,
    )


def _print(measured: Measured) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def milliseconds(duration_s: float) -> str:
        return f"{1e3 * duration_s:.2f} ms"

    m = measured
    rows = [
        ("objects", f"{m.objects:,} reads of {m.listed_objects:,} ({m.epochs:.2f} epochs)"),
        ("each object exactly once", f"in {m.complete_epochs:,} whole epochs"),
        ("bytes", binary_size(m.bytes)),
        ("read, over these bytes", f"{m.read_amplification:.3f}"),
        ("time", f"{m.duration_s:.2f} s, and {m.list_s:.2f} s to list"),
        ("throughput", f"{m.objects_per_s:,.0f} objects/s, {m.gib_per_s:.3f} GiB/s"),
        ("first batch after", milliseconds(m.first_batch_s)),
        ("wait for a batch, p50", milliseconds(m.batch_p50_s)),
        ("p90", milliseconds(m.batch_p90_s)),
        ("p99", milliseconds(m.batch_p99_s)),
        ("CPU time", f"{m.cpu_us_per_object:.1f} us per object, {m.cpu_s_per_gib:.3f} s per GiB"),
        (
            "peak memory",
            f"{binary_size(m.peak_rss_bytes)}, of it objects: {binary_size(m.peak_object_bytes)}",
        ),
        ("requests", f"{m.requests:,} ({m.retries:,} retries, {m.throttled:,} throttled)"),
        ("connections", f"{m.connections:,}"),
        ("checksums verified", f"{m.checksums_verified:,}"),
        ("limited by", m.verdict.limit),
    ]
    table = Table(title=Text(f"{shown(m.url)}, batches of {m.batch_size}"), show_header=False)
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    Console().print(table)
    print(f"{m.verdict.reason}. {m.verdict.advice}")
