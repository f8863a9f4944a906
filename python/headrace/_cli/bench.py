"""`headrace bench`: reads as a training job does, and says how fast that was."""

from __future__ import annotations

import dataclasses
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import headrace
from headrace import GiB, KiB, ObjectIndex, ObjectInfo, _engine
from headrace._cli.location import Location, missing_bucket, not_found
from headrace._cli.progress import listed
from headrace._cli.report import Report, binary_size, shown

__all__ = ["Measured", "bench", "shuffled_batches"]


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
    requests: int
    retries: int
    throttled: int
    connections: int
    checksums_verified: int


def bench(
    location: Location,
    report: Report,
    *,
    batch_size: int,
    seconds: float,
    epochs: int | None,
    seed: int,
) -> None:
    """List, shuffle, read batch after batch, and print what that took.

    Args:
        seconds: stop after this long, if `epochs` is None.
        epochs: stop after so many passes over all objects.
        seed: of the order.
    """
    begin_s = time.perf_counter()
    try:
        index = listed(location.store, location.below, report)
    except headrace.HeadraceError as error:
        raise missing_bucket(error, location.store) or error from None
    list_s = time.perf_counter() - begin_s
    if not len(index):
        raise not_found(location, "no object below it")
    measured = _read(location, index, list_s, batch_size, seconds, epochs, seed)
    if report.as_json:
        print(json.dumps(dataclasses.asdict(measured)))
    else:
        _print(measured)


def shuffled_batches(index: ObjectIndex, batch_size: int, seed: int) -> Iterator[list[ObjectInfo]]:
    """Yield batches for ever, each epoch in an order of its own, which is that of a dataset."""
    epoch = 0
    while True:
        order = _engine.Order(len(index), seed, epoch, True)
        for begin in range(0, len(index), batch_size):
            end = min(begin + batch_size, len(index))
            yield list(index.select(order.indices(begin, end)))
        epoch += 1


def _read(
    location: Location,
    index: ObjectIndex,
    list_s: float,
    batch_size: int,
    seconds: float,
    epochs: int | None,
    seed: int,
) -> Measured:
    per_epoch = -(-len(index) // batch_size)
    last_batch = None if epochs is None else epochs * per_epoch
    waits: list[float] = []
    object_count = byte_count = 0
    batches = shuffled_batches(index, batch_size, seed)
    if last_batch is not None:
        batches = (batch for _, batch in zip(range(last_batch), batches, strict=False))
    before = headrace.metrics()
    cpu_begin_s = time.process_time()
    begin_s = waiting_since_s = time.perf_counter()
    for samples in location.store.read_batches(batches):
        now_s = time.perf_counter()
        waits.append(now_s - waiting_since_s)
        object_count += len(samples)
        byte_count += sum(map(len, samples))
        if epochs is None and now_s - begin_s >= seconds:
            break
        waiting_since_s = time.perf_counter()
    duration_s = time.perf_counter() - begin_s
    cpu_s = time.process_time() - cpu_begin_s
    after = headrace.metrics()
    ordered = sorted(waits)

    def quantile(fraction: float) -> float:
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]

    return Measured(
        url=location.url,
        batch_size=batch_size,
        listed_objects=len(index),
        list_s=list_s,
        duration_s=duration_s,
        epochs=object_count / len(index),
        objects=object_count,
        bytes=byte_count,
        batches=len(waits),
        objects_per_s=object_count / duration_s,
        gib_per_s=byte_count / GiB / duration_s,
        first_batch_s=waits[0],
        batch_p50_s=quantile(0.5),
        batch_p90_s=quantile(0.9),
        batch_p99_s=quantile(0.99),
        cpu_us_per_object=1e6 * cpu_s / object_count,
        cpu_s_per_gib=cpu_s * GiB / byte_count if byte_count else 0.0,
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KiB,
        peak_object_bytes=after.memory_peak_live_bytes,
        requests=after.requests_total - before.requests_total,
        retries=after.retries_total - before.retries_total,
        throttled=after.throttled_total - before.throttled_total,
        connections=after.connections_opened_total,
        checksums_verified=after.checksums_verified_total - before.checksums_verified_total,
    )


def _print(measured: Measured) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def milliseconds(duration_s: float) -> str:
        return f"{1e3 * duration_s:.2f} ms"

    m = measured
    rows = [
        ("objects", f"{m.objects:,} of {m.listed_objects:,} listed ({m.epochs:.2f} epochs)"),
        ("bytes", binary_size(m.bytes)),
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
    ]
    table = Table(title=Text(f"{shown(m.url)}, batches of {m.batch_size}"), show_header=False)
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    Console().print(table)
