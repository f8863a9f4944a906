"""What the demo says at its end, out of what its processes recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from headrace import KiB, Metrics, MiB
from headrace.demo.training import Record

__all__ = ["Summary", "as_text", "faults", "plot", "summarize"]

_COUNTERS = (
    "requests_total",
    "bytes_read_total",
    "connections_opened_total",
    "checksums_verified_total",
    "retries_total",
)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The numbers of one run. Times are of the training loops of all processes together."""

    accuracy: float
    images: int
    training_s: float
    images_per_s: float
    waiting_fraction: float
    """Of the time in the training loops, the part spent waiting for a batch."""
    batch_latency_p50_s: float
    batch_latency_p99_s: float
    first_batch_s: list[float]
    """In each process, from asking for its first batch."""
    peak_memory_bytes: int
    """Resident, of the largest process."""
    peak_object_bytes: int
    """Of that, objects: in flight, read ahead and held."""
    model_bytes: int
    model_is_equal: bool
    counters: dict[str, dict[str, int]]
    """`headrace.Metrics` of the writing process and of all training processes."""
    objects: int
    """Training objects."""
    epochs: int
    deliveries_min: int
    """How often the least frequent (object, epoch) was in a batch. Must be 1."""
    deliveries_max: int
    """How often the most frequent (object, epoch) was in a batch. Must be 1."""
    objects_read: int
    """By the engine, for training. Must be `images`: nothing was read in vain, nothing twice."""
    stopped_after: int | None
    """Batches of the interrupted epoch that were done when the first process was killed."""
    batches_per_epoch: int


def summarize(records: list[Record], written: Metrics, epochs: int, training_count: int) -> Summary:
    """Add up what the processes recorded."""
    waits_s = [wait for record in records for wait in record.waits_s]
    training_s = sum(record.training_s for record in records)
    images = sum(record.images for record in records)
    deliveries: dict[tuple[str, str], int] = {}
    for record in records:
        for epoch, counts in record.delivered.items():
            for url, count in counts.items():
                deliveries[str(epoch), url] = deliveries.get((str(epoch), url), 0) + count
    complete = len(deliveries) == epochs * training_count
    percentiles = quantiles(waits_s, n=100, method="inclusive")
    return Summary(
        accuracy=records[-1].accuracy or 0.0,
        images=images,
        training_s=training_s,
        images_per_s=images / training_s,
        waiting_fraction=sum(waits_s) / training_s,
        batch_latency_p50_s=percentiles[49],
        batch_latency_p99_s=percentiles[98],
        first_batch_s=[record.first_batch_s for record in records],
        peak_memory_bytes=max(record.peak_memory_bytes for record in records),
        peak_object_bytes=max(record.metrics["memory_peak_live_bytes"] for record in records),
        model_bytes=records[-1].model_bytes,
        model_is_equal=records[-1].model_is_equal,
        counters={
            "writing": {name: getattr(written, name) for name in _COUNTERS},
            "training": {
                name: sum(record.metrics[name] for record in records) for name in _COUNTERS
            },
        },
        objects=training_count,
        epochs=epochs,
        deliveries_min=min(deliveries.values()) if complete else 0,
        deliveries_max=max(deliveries.values()),
        objects_read=sum(record.objects_read for record in records),
        stopped_after=records[0].batch_in_epoch if len(records) > 1 else None,
        batches_per_epoch=len(waits_s) // epochs,
    )


def faults(summary: Summary, required_accuracy: float) -> list[str]:
    """Return a sentence on each thing that is not as it should be."""
    found = []
    if summary.accuracy < required_accuracy:
        found.append(f"the accuracy is {summary.accuracy:.3f}, less than {required_accuracy}")
    if not summary.model_is_equal:
        found.append("the model that was read back is not the one that was written")
    if (summary.deliveries_min, summary.deliveries_max) != (1, 1):
        found.append(
            "not every object was in exactly one batch of every epoch: between "
            f"{summary.deliveries_min} and {summary.deliveries_max}"
        )
    if summary.objects_read != summary.images:
        found.append(
            f"{summary.objects_read:,} objects were read to train on {summary.images:,} images"
        )
    if summary.stopped_after is not None and not (
        0 < summary.stopped_after < summary.batches_per_epoch
    ):
        found.append("the training was not stopped in the middle of an epoch")
    return found


def as_text(summary: Summary) -> str:
    """Return the report that is printed."""
    firsts = ", ".join(f"{seconds * 1e3:.0f} ms" for seconds in summary.first_batch_s)
    lines = [
        "",
        f"accuracy             {summary.accuracy:.3f} on the held-out digits",
        f"speed                {summary.images_per_s:,.0f} images/s"
        f" ({summary.images:,} images in {summary.training_s:.2f} s)",
        f"waiting for data     {summary.waiting_fraction * 100:.1f} % of the training loop",
        f"batch latency        p50 {summary.batch_latency_p50_s * 1e3:.2f} ms,"
        f" p99 {summary.batch_latency_p99_s * 1e3:.2f} ms",
        f"first batch after    {firsts}" + (" (after the stop)" if "," in firsts else ""),
        f"peak memory          {summary.peak_memory_bytes / MiB:,.0f} MiB,"
        f" of which objects {summary.peak_object_bytes / MiB:,.1f} MiB",
        f"model                {summary.model_bytes:,} bytes written and read back"
        + (", bit for bit the same" if summary.model_is_equal else ": DIFFERENT"),
        "",
        f"{'':20} {'requests':>10} {'read':>12} {'connections':>12} {'checksums verified':>19}",
    ]
    for what, counters in summary.counters.items():
        lines.append(
            f"{what:20} {counters['requests_total']:>10,}"
            f" {counters['bytes_read_total'] / KiB:>8,.0f} KiB"
            f" {counters['connections_opened_total']:>12,}"
            f" {counters['checksums_verified_total']:>19,}"
        )
    if not summary.counters["training"]["checksums_verified_total"]:
        lines.append("(files have no stored checksum that could be verified)")
    once = (summary.deliveries_min, summary.deliveries_max) == (1, 1)
    lines += [
        "",
        f"trained on           each of {summary.objects:,} objects "
        + ("exactly once" if once else "NOT EXACTLY ONCE")
        + f" in each of {summary.epochs} epochs, over stop and resume",
        f"read for training    {summary.objects_read:,} objects for {summary.images:,} images",
        "",
    ]
    return "\n".join(lines)


def plot(records: list[Record], file: Path) -> None:
    """Draw the loss after each batch and the histogram of batch latencies into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.set_title("loss")
    left.set_xlabel("batch")
    left.set_yscale("log")
    for record in records:
        begin = record.first_batch_number
        left.plot(range(begin, begin + len(record.losses)), record.losses, linewidth=0.8)
        if begin:
            left.axvline(begin, color="black", linestyle=":", label="stopped and resumed")
            left.legend()
    right.set_title("waiting for a batch")
    right.set_xlabel("ms")
    right.set_ylabel("batches")
    waits_ms = [wait * 1e3 for record in records for wait in record.waits_s]
    right.hist(waits_ms, bins=60)
    right.set_yscale("log")
    figure.savefig(file, format="png", dpi=110)
