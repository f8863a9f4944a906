"""The demo's report, made from the records of its processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import quantiles

from headrace import KiB, Metrics, MiB
from headrace.demo.training import Record

__all__ = ["Resumption", "Summary", "as_text", "faults", "plot", "resumption_of", "summarize"]

_COUNTERS = (
    "requests_total",
    "bytes_read_total",
    "connections_opened_total",
    "checksums_verified_total",
    "retries_total",
)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The numbers of all training processes together. Times exclude listing and saving."""

    accuracy: float
    images: int
    training_s: float
    images_per_s: float
    waiting_fraction: float
    """The share of the training loops' time that was spent waiting for a batch."""
    batch_latency_p50_s: float
    batch_latency_p99_s: float
    first_batch_s: list[float]
    """The time from asking for the first batch until it came, in each process."""
    peak_memory_bytes: int
    """The resident memory of the largest process."""
    peak_object_bytes: int
    """The part of it for objects: in flight, read ahead and held."""
    model_bytes: int
    model_is_equal: bool
    """Whether the model read back equals the one written."""
    counters: dict[str, dict[str, int]]
    """The `headrace.Metrics` of the writing process and of all training processes."""
    objects: int
    """The number of training images: objects, or samples in shards."""
    epochs: int
    is_once: bool
    """Whether, in the first run, each image was in exactly one batch of each epoch."""
    objects_read: int
    """Images that the engine read for the first run. Must be `epochs` times `objects`."""


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """A comparison of the second run, which was stopped once and killed once, with the first."""

    stopped_at: int
    """The step after which the process got a notice to end."""
    drained_at: int
    """The step at which it had trained on everything it had read, and saved a checkpoint."""
    saved_at: int
    """The step of the newest checkpoint that the killed process saved."""
    killed_at: int
    """The step whose checkpoint was being written when the process was killed."""
    resumed_at: int
    """The step from which the next process continued. Must be `saved_at`."""
    is_same: bool
    """Whether, apart from the lost steps, both runs trained on the same batches in order."""
    is_repeated_exactly: bool
    """Whether exactly the images of the steps from `saved_at` to `killed_at` came twice."""
    repeated_images: int
    """The number of images that came twice."""
    read_in_vain: int
    """The number of images that the killed process had read ahead."""
    read_without_need: int
    """The number of images that the other processes read but did not train on. Must be 0."""
    left_bytes: int | None
    """Bytes of the unfinished checkpoint that were in temporary objects when the process was
    killed. Must not be 0; None for files and ``s3://``, which show nothing of it."""
    weights_are_equal: bool
    """Whether the models of both runs are equal, bit for bit."""


Batch = tuple[int, list[str]]


def images_of(batches: Iterable[Batch]) -> Counter[tuple[int, str]]:
    """Count how often each object was trained on in each epoch."""
    return Counter((epoch, url) for epoch, urls in batches for url in urls)


def summarize(records: list[Record], written: Metrics, epochs: int, training_count: int) -> Summary:
    """Add up the records of all processes; the first record is the whole first run."""
    waits_s = [wait for record in records for wait in record.waits_s]
    training_s = sum(waits_s) + sum(chain.from_iterable(record.steps_s for record in records))
    images = images_of(chain.from_iterable(record.batches for record in records)).total()
    deliveries = images_of(records[0].batches)
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
        model_is_equal=all(each.model_is_equal for each in records if each.accuracy is not None),
        counters={
            "writing": {name: getattr(written, name) for name in _COUNTERS},
            "training": {
                name: sum(record.metrics[name] for record in records) for name in _COUNTERS
            },
        },
        objects=training_count,
        epochs=epochs,
        is_once=len(deliveries) == deliveries.total() == epochs * training_count,
        objects_read=records[0].objects_read,
    )


def resumption_of(
    first: Record, second: list[Record], stopped_at: int, left_bytes: int | None, equal: bool
) -> Resumption:
    """Compare the second run, whose middle process was killed, with the first."""
    stopped, killed, resumed = second
    saved_at = killed.saved_steps[-1]
    kept = stopped.batches + killed.batches[: saved_at - killed.first_step] + resumed.batches
    lost = first.batches[saved_at : killed.last_step]
    trained_on = images_of(stopped.batches + killed.batches + resumed.batches)
    repeated = trained_on - images_of(first.batches)

    def unused(*records: Record) -> int:
        return sum(each.objects_read - images_of(each.batches).total() for each in records)

    return Resumption(
        stopped_at=stopped_at,
        drained_at=stopped.last_step,
        saved_at=saved_at,
        killed_at=killed.last_step,
        resumed_at=resumed.first_step,
        is_same=kept == first.batches,
        is_repeated_exactly=repeated == images_of(lost),
        repeated_images=repeated.total(),
        read_in_vain=unused(killed),
        read_without_need=unused(stopped, resumed),
        left_bytes=left_bytes,
        weights_are_equal=equal,
    )


def faults(summary: Summary, resumption: Resumption | None, required_accuracy: float) -> list[str]:
    """Return a sentence for each check that fails."""
    images = summary.epochs * summary.objects
    checks = [
        (
            summary.accuracy >= required_accuracy,
            f"the accuracy is {summary.accuracy:.3f}, less than {required_accuracy}",
        ),
        (
            summary.model_is_equal,
            "the model read back is not the one written",
        ),
        (summary.is_once, "not every image was in exactly one batch of every epoch"),
        (
            summary.objects_read == images,
            f"{summary.objects_read:,} images were read to train on {images:,} images",
        ),
    ]
    if resumption is not None:
        each = resumption
        checks += [
            (
                each.drained_at < each.saved_at < each.killed_at,
                f"the process that resumed from step {each.drained_at} saved step {each.saved_at}, "
                f"and was killed at step {each.killed_at}: these should rise",
            ),
            (
                each.left_bytes != 0,
                "the unfinished checkpoint left nothing in the bucket",
            ),
            (
                each.resumed_at == each.saved_at,
                f"it resumed from step {each.resumed_at}, but the newest complete checkpoint is of "
                f"step {each.saved_at}",
            ),
            (each.is_same, "the second run did not train on the batches of the first"),
            (
                each.is_repeated_exactly,
                "the images trained on twice are not those after the newest checkpoint",
            ),
            (
                each.read_without_need == 0,
                f"{each.read_without_need:,} images were read in vain",
            ),
            (each.weights_are_equal, "the weights of both runs differ"),
        ]
    return [sentence for is_right, sentence in checks if not is_right]


def as_text(summary: Summary, resumption: Resumption | None) -> str:
    """Return the report as text."""
    firsts = ", ".join(f"{seconds * 1e3:.0f} ms" for seconds in summary.first_batch_s)
    lines = [
        "",
        f"accuracy             {summary.accuracy:.3f} on the held-out digits",
        f"speed                {summary.images_per_s:,.0f} images/s"
        f" ({summary.images:,} images in {summary.training_s:.2f} s)",
        f"waiting for data     {summary.waiting_fraction * 100:.1f} % of the training loop",
        f"batch latency        p50 {summary.batch_latency_p50_s * 1e3:.2f} ms,"
        f" p99 {summary.batch_latency_p99_s * 1e3:.2f} ms",
        f"first batch after    {firsts}" + (" (in each process)" if "," in firsts else ""),
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
    lines += [
        "",
        f"run 1                each of {summary.objects:,} images trained on "
        + ("exactly once" if summary.is_once else "NOT EXACTLY ONCE")
        + f" in each of {summary.epochs} epochs;",
        f"                     {summary.objects_read:,} images read for that",
    ]
    if resumption is not None:
        each = resumption
        lines += [
            "run 2                "
            + ("the same batches in the same order" if each.is_same else "OTHER BATCHES")
            + ", over a stop and a kill;",
            f"                     trained on twice: {each.repeated_images:,} images, "
            + ("exactly those" if each.is_repeated_exactly else "NOT THOSE")
            + f" of steps {each.saved_at + 1} to {each.killed_at};",
            f"                     read in vain: {each.read_in_vain} images that the killed "
            "process had read ahead",
            "weights              of both runs: "
            + ("bit for bit the same" if each.weights_are_equal else "DIFFERENT"),
        ]
        if each.left_bytes is not None:
            lines.append(
                f"left by the kill     {each.left_bytes / MiB:.1f} MiB in temporary objects"
            )
    return "\n".join([*lines, ""])


def plot(records: list[Record], file: Path) -> None:
    """Draw the loss after each step and the histogram of batch latencies into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.set_title("loss")
    left.set_xlabel("step")
    left.set_yscale("log")
    for record in records:
        begin = record.first_step
        left.plot(range(begin, record.last_step), record.losses, linewidth=0.8)
        if begin:
            left.axvline(begin, color="black", linestyle=":", label="resumed")
    right.set_title("waiting for a batch")
    right.set_xlabel("ms")
    right.set_ylabel("batches")
    waits_ms = [wait * 1e3 for record in records for wait in record.waits_s]
    right.hist(waits_ms, bins=60)
    right.set_yscale("log")
    figure.savefig(file, format="png", dpi=110)
