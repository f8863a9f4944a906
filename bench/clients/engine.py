"""headrace without torch: what the engine and its Python face cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.clients.measure import (
    CHECKED_OBJECTS,
    Answer,
    batches_for,
    check_all,
    connections,
    forget_peak,
    measured,
    objects_of,
    status_bytes,
)


def store_of(request: Answer) -> Any:
    """The bucket that is measured."""
    import headrace

    if request.get("scheme") == "ais":
        return headrace.Store(
            f"ais://{request['bucket']}",
            endpoint=request["endpoint"],
            provider=headrace.AisOptions(get_batch=request.get("get_batch", "auto")),
            parallel=headrace.ParallelOptions(**request.get("parallel", {})),
        )
    if request.get("scheme") == "s3":
        return headrace.Store(
            f"s3://{request['bucket']}",
            endpoint=request["endpoint"],
            credentials=headrace.AwsKeys(request["access_key"], request["secret_key"]),
            provider=headrace.S3Options(region=request["region"]),
        )
    return headrace.Store(
        f"gs://{request['bucket']}",
        endpoint=request["endpoint"],
        credentials="anonymous",
        provider=headrace.GcsOptions(
            compose_small_objects=headrace.ComposeOptions() if request.get("join") else None
        ),
        parallel=headrace.ParallelOptions(**request.get("parallel", {})),
    )


def sums_of(request: Answer, infos: Sequence[Any]) -> dict[str, int]:
    """CRC32Cs by name: of the bench's own table, or where it has none those of the listing."""
    if "objects_file" in request:
        return dict(zip(*objects_of(request), strict=True))
    return {info.name: info.crc32c for info in infos}


def _check(store: Any, infos: Sequence[Any], request: Answer) -> None:
    sums, batch_size = sums_of(request, infos), request["batch_size"]
    infos = infos[:CHECKED_OBJECTS]
    batches = [infos[i : i + batch_size] for i in range(0, len(infos), batch_size)]
    for batch, samples in zip(batches, store.read_batches(batches), strict=True):
        check_all([i.name for i in batch], samples, [sums[i.name] for i in batch])


def read_batches(request: Answer) -> Answer:
    """headrace: Store.read_batches, every object checked against the CRC32C that is told of it."""
    import headrace

    store = store_of(request)
    infos = list(store.list())
    _check(store, infos, request)

    def read(duration_s: float) -> tuple[int, int]:
        object_count = size_bytes = 0
        for samples in store.read_batches(batches_for(infos, request["batch_size"], duration_s)):
            object_count += len(samples)
            size_bytes += len(samples) * len(samples[0])
        return object_count, size_bytes

    read(request["warm_up_s"])
    before = headrace.metrics()
    answer = measured(read, request["duration_s"])
    metrics = headrace.metrics()
    answer["requests"] = metrics.requests_total - before.requests_total
    opened = metrics.connections_opened_total - before.connections_opened_total
    answer["connections_opened"] = opened
    answer["in_flight_limit"] = metrics.in_flight_limit
    answer["connections"] = connections(request.get("target", request["endpoint"]))
    return answer


def read_into(request: Answer) -> Answer:
    """headrace: one large object into memory that the caller has."""
    import google_crc32c
    import numpy

    store = store_of(request)
    (info,) = store.list()
    # Written once: the memory of a caller who reads more than one object exists already.
    memory = numpy.full(info.size_bytes, 255, dtype=numpy.uint8)

    def read(_: float) -> tuple[int, int]:
        store.read(info, into=memory)
        return 1, info.size_bytes

    answer = measured(read, 0)
    crc32c, piece_bytes = 0, 16 << 20
    for begin in range(0, len(memory), piece_bytes):
        # google_crc32c takes bytes and no view.
        crc32c = google_crc32c.extend(crc32c, memory[begin : begin + piece_bytes].tobytes())
    if crc32c != sums_of(request, [info])[info.name]:
        raise AssertionError("the object was read with other bytes than listed")
    answer["connections"] = connections(request.get("target", request["endpoint"]))
    return answer


def write_whole(request: Answer) -> Answer:
    """headrace: one large object by parts, from memory that the caller has."""
    import numpy

    store = store_of(request)
    memory = numpy.fromfile(request["file"], dtype=numpy.uint8)

    def write(_: float) -> tuple[int, int]:
        with store.open_writer(request["object_name"]) as writer:
            writer.write_lent(memory)
        return 1, len(memory)

    return measured(write, 0)


def memory(request: Answer) -> Answer:
    """headrace: the most memory that the process had while it read, above what it began with."""
    import headrace

    headrace.configure(memory_budget_bytes=request["budget_bytes"])
    start_bytes = status_bytes("VmRSS")
    forget_peak()
    store = store_of(request)
    items = list(store.list())
    if request["by_name"]:
        items = [info.name for info in items]

    def read(duration_s: float) -> tuple[int, int]:
        object_count = size_bytes = 0
        for samples in store.read_batches(batches_for(items, request["batch_size"], duration_s)):
            object_count += len(samples)
            size_bytes += sum(len(sample) for sample in samples)
        return object_count, size_bytes

    answer = measured(read, request["duration_s"])
    answer["above_start_bytes"] = status_bytes("VmHWM") - start_bytes
    return answer


def idle(request: Answer) -> Answer:
    """headrace: what an engine that has connections and nothing to do costs."""
    store = store_of(request)
    infos = list(store.list())
    for samples in store.read_batches(batches_for(infos, 64, 0.2)):
        del samples

    def wait(duration_s: float) -> tuple[int, int]:
        time.sleep(duration_s)
        return 0, 0

    return measured(wait, request["duration_s"])
