"""Reads batches as a training job does, and keeps what happened to each."""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import headrace
from headrace import InternalError, KiB, ObjectIndex, ObjectInfo, Store, Verdict, _engine
from headrace._process.process import engine_number
from headrace._process.verdict import Watch, has_free_places, verdict_of

__all__ = ["Reads", "family_cpu_s", "quantile", "read_for", "shuffled_batches"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# How far apart looks at the memory are; one takes some 15 µs.
_LOOK_S = 0.02


@dataclass(kw_only=True)
class Reads:
    """What one pass of reads took. Lists have an entry for each batch."""

    objects: int = 0
    bytes: int = 0
    duration_s: float = 0.0
    """From the first request to the last batch."""
    cpu_s: float = 0.0
    """CPU time of this process and of children that have ended, user and system, all threads."""
    complete_epochs: int = 0
    """Each of them gave every object exactly once; anything else is an error."""
    waits_s: list[float] = field(default_factory=list)
    """How long the consumer waited for the batch."""
    ends_s: list[float] = field(default_factory=list)
    """When it came, since the beginning."""
    batch_bytes: list[int] = field(default_factory=list)
    memory: list[tuple[float, int, int]] = field(default_factory=list)
    """Now and then: when, resident bytes of the process, and object bytes among them."""
    peak_rss_bytes: int = 0
    peak_object_bytes: int = 0
    read_bytes: int = 0
    """Of objects, as they came from the server: with what was read and not used."""
    requests: int = 0
    retries: int = 0
    throttled: int = 0
    connections: int = 0
    checksums_verified: int = 0
    queue_s: float = 0.0
    """Over all requests, as in `headrace.Metrics`; so are the next two."""
    first_byte_s: float = 0.0
    body_s: float = 0.0
    verdict: Verdict | None = None
    """None before anything was read."""

    @property
    def steps_s(self) -> list[float]:
        """How long each step took: the wait for its batch, and the work on the one before."""
        begins_s = [0.0, *self.ends_s]
        return [end_s - begins_s[at] for at, end_s in enumerate(self.ends_s)]


def family_cpu_s() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def quantile(values: list[float], fraction: float) -> float:
    """Return the value below which that share of `values` lies; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0


def shuffled_batches(index: ObjectIndex, batch_size: int, seed: int) -> Iterator[list[ObjectInfo]]:
    """Yield batches for ever, each epoch in an order of its own, which is that of a dataset."""
    epoch = 0
    while True:
        order = _engine.Order(len(index), seed, epoch, True)
        for begin in range(0, len(index), batch_size):
            end = min(begin + batch_size, len(index))
            yield list(index.select(order.indices(begin, end)))
        epoch += 1


def read_for(
    store: Store,
    index: ObjectIndex,
    *,
    batch_size: int,
    seconds: float,
    epochs: int | None = None,
    seed: int = 0,
    prefetch_bytes: int | None = None,
    step_s: float = 0.0,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Reads:
    """Read shuffled batches of `index`, which is not empty, and say what that took.

    Args:
        seconds: stop after this long, if `epochs` is None.
        epochs: stop after so many passes over all objects.
        prefetch_bytes: as for `Store.read_batches`.
        step_s: how long the consumer works on each batch, without using the CPU.
        is_stopping: once this is so, an error ends the reads, and what was read until then counts.

    Raises:
        InternalError: a batch is not the one that was asked for.
        HeadraceError: an object could not be read.
    """
    found = Reads()
    asked: deque[list[ObjectInfo]] = deque()

    def remembered(batches: Iterable[list[ObjectInfo]]) -> Iterator[list[ObjectInfo]]:
        for batch in batches:
            asked.append(batch)
            yield batch

    batches = shuffled_batches(index, batch_size, seed)
    if epochs is not None:
        last = epochs * -(-len(index) // batch_size)
        batches = (batch for _, batch in zip(range(last), batches, strict=False))
    before, engine, watch = headrace.metrics(), engine_number(), Watch()
    looks = held = 0
    cpu_begin_s = family_cpu_s()
    begin_s = waiting_since_s = time.perf_counter()
    looked_s = -_LOOK_S
    try:
        for samples in store.read_batches(remembered(batches), prefetch_bytes=prefetch_bytes):
            now_s = time.perf_counter()
            found.waits_s.append(now_s - waiting_since_s)
            found.ends_s.append(now_s - begin_s)
            found.objects += len(samples)
            if [sample.name for sample in samples] != [info.name for info in asked.popleft()]:
                raise InternalError(f"batch {len(found.waits_s)} has other objects than it should")
            found.batch_bytes.append(sum(map(len, samples)))
            if found.ends_s[-1] - looked_s >= _LOOK_S:
                looked_s, now = found.ends_s[-1], headrace.metrics()
                found.memory.append((looked_s, _resident_bytes(), now.memory_live_bytes))
                # What `read_batches` reads ahead at most.
                room_bytes = prefetch_bytes or now.memory_budget_bytes // 2
                looks += 1
                is_full = now.memory_live_bytes + found.batch_bytes[-1] > room_bytes
                held += is_full and has_free_places(now)
            if epochs is None and now_s - begin_s >= seconds:
                break
            if step_s > 0:
                time.sleep(step_s)
            waiting_since_s = time.perf_counter()
    except headrace.HeadraceError:
        if not is_stopping():
            raise
    found.duration_s = time.perf_counter() - begin_s
    found.cpu_s = family_cpu_s() - cpu_begin_s
    found.complete_epochs = found.objects // len(index)
    found.bytes = sum(found.batch_bytes)
    waited_s = sum(found.waits_s)
    found.verdict = verdict_of(
        watch.evidence(
            duration_s=found.duration_s,
            wait_s=waited_s,
            bytes_wait_s=waited_s,
            held_wait_s=waited_s * held / max(1, looks),
        )
    )
    after = headrace.metrics()
    if engine_number() != engine:  # `before` is of one that was stopped
        before = headrace.Metrics()
    found.peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KiB
    found.peak_object_bytes = after.memory_peak_live_bytes
    found.read_bytes = after.bytes_read_total - before.bytes_read_total
    found.requests = after.requests_total - before.requests_total
    found.retries = after.retries_total - before.retries_total
    found.throttled = after.throttled_total - before.throttled_total
    found.connections = after.connections_opened_total
    found.checksums_verified = after.checksums_verified_total - before.checksums_verified_total
    found.queue_s = after.queue_s_total - before.queue_s_total
    found.first_byte_s = after.first_byte_s_total - before.first_byte_s_total
    found.body_s = after.body_s_total - before.body_s_total
    return found


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
