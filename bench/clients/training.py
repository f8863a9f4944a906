"""headrace.torch: what a training job reads with, an epoch of it at a time."""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from bench.clients.engine import store_of, sums_of
from bench.clients.measure import (
    CHECKED_OBJECTS,
    Answer,
    check_all,
    connections,
    cpu_s,
    measured,
)

# What the overhead is fitted over.
OVERHEAD_BATCH_SIZES = (16, 64, 256)
OVERHEAD_OBJECTS = 4096
OVERHEAD_SIZE_BYTES = 1 << 10
# As Loader has by default for files; and at least two batches.
OVERHEAD_OBJECTS_IN_FLIGHT = 128
RANK_STEP_S = 0.5


def _dataset(request: Answer, object_count: int, transform: Any = None) -> Any:
    """That many objects: those of the bucket in order, round and round."""
    from headrace.torch import MapDataset

    store = store_of(request)
    index = store.index()
    rounds = [i % len(index) for i in range(object_count)]
    return MapDataset(store, transform, index=index.select(rounds))


def _check(request: Answer, dataset: Any, batches: Iterable[Any]) -> None:
    """Compare the first samples that come with the bench's own sums, or with the listing."""
    samples = itertools.islice(itertools.chain.from_iterable(batches), CHECKED_OBJECTS)
    infos = [dataset.objects[i] for i in range(CHECKED_OBJECTS)]
    sums = sums_of(request, infos)
    check_all(
        [info.name for info in infos],
        (sample.numpy().tobytes() for sample in samples),
        [sums[info.name] for info in infos],
    )


def _epoch(request: Answer, batches_of: Callable[[Any], Iterable[Any]]) -> Answer:
    """A whole epoch, from `iter` to the last batch; before it a part of one, to warm up."""
    dataset = _dataset(request, request["epoch_objects"])
    _check(request, dataset, batches_of(dataset))

    def read(dataset: Any) -> tuple[int, int]:
        object_count = size_bytes = 0
        for batch in batches_of(dataset):
            object_count += len(batch)
            size_bytes += len(batch) * batch[0].numel()
        return object_count, size_bytes

    read(_dataset(request, request["warm_up_objects"]))
    answer = measured(lambda _: read(dataset), 0)
    assert answer["objects"] == request["epoch_objects"]
    answer["connections"] = connections(request.get("target", request["endpoint"]))
    return answer


def map_batches(request: Answer) -> Answer:
    """MapDataset: batch after batch by `__getitems__`, without a DataLoader."""

    def batches_of(dataset: Any) -> Iterable[Any]:
        for begin in range(0, len(dataset), request["batch_size"]):
            end = min(begin + request["batch_size"], len(dataset))
            yield dataset.__getitems__(list(range(begin, end)))

    return _epoch(request, batches_of)


def map_dataloader(request: Answer) -> Answer:
    """The same through torch's DataLoader in the trainer's process."""
    import torch

    return _epoch(
        request,
        lambda dataset: torch.utils.data.DataLoader(
            dataset, batch_size=request["batch_size"], num_workers=0, collate_fn=list
        ),
    )


def loader(request: Answer) -> Answer:
    """Loader at its defaults: each batch is one tensor."""
    from headrace.torch import Loader

    return _epoch(request, lambda dataset: Loader(dataset, request["batch_size"]))


def loader_waits(request: Answer) -> Answer:
    """The same, with how long each batch was waited for, and what the engine sent for it."""
    from headrace.torch import Loader

    return _waits(request, lambda dataset: Loader(dataset, request["batch_size"]))


def map_waits(request: Answer) -> Answer:
    """The same of batch after batch by `MapDataset.__getitems__`."""

    def batches_of(dataset: Any) -> Iterable[Any]:
        for begin in range(0, len(dataset), request["batch_size"]):
            yield dataset.__getitems__(list(range(begin, begin + request["batch_size"])))

    return _waits(request, batches_of)


def _waits(request: Answer, batches_of: Callable[[Any], Iterable[Any]]) -> Answer:
    import headrace

    waits: list[float] = []

    def read(object_count: int) -> tuple[int, int]:
        waits.clear()
        batches = iter(batches_of(_dataset(request, object_count)))
        object_count = size_bytes = 0
        while True:
            began_s = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return object_count, size_bytes
            waits.append(time.perf_counter() - began_s)
            object_count += len(batch)
            size_bytes += len(batch) * batch[0].numel()

    read(request["warm_up_objects"])
    before = headrace.metrics()
    answer = measured(lambda _: read(request["epoch_objects"]), 0)
    after = headrace.metrics()
    for name in (
        *("requests_total", "hedges_total", "hedges_won_total", "hedges_cut_total"),
        *("hedge_bytes_dropped_total", "connections_opened_total", "bytes_read_total"),
    ):
        answer[name] = getattr(after, name, 0) - getattr(before, name, 0)
    answer["in_flight_limit"] = after.in_flight_limit
    # The first batches wait for the pipeline to fill, with a tail and without.
    rest = sorted(waits[len(waits) // 10 :])
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p995", 0.995)):
        answer[f"wait_{name}_s"] = rest[int(len(rest) * share)]
    answer["wait_max_s"] = rest[-1]
    return answer


def rank(request: Answer) -> Answer:
    """One of several processes that begin together, and how much it reads each half second."""
    import headrace
    from headrace.torch import Loader

    folder = Path(request["folder"])
    # More than there is time for.
    batches = iter(Loader(_dataset(request, request["epoch_objects"]), request["batch_size"]))
    counts = [0] * int(request["duration_s"] / RANK_STEP_S)
    (folder / str(request["rank"])).touch()
    while len(list(folder.iterdir())) < request["ranks"]:
        time.sleep(0.001)
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    while (step := int((time.perf_counter() - began_s) / RANK_STEP_S)) < len(counts):
        counts[step] += len(next(batches))
    return {
        "objects": sum(counts),
        "wall_s": request["duration_s"],
        "cpu_s": cpu_s() - began_cpu_s,
        "each_step": counts,
        "in_flight_limit": headrace.metrics().in_flight_limit,
    }


# ---- decoding


def _two_cores() -> None:
    """As on a machine of two cores, whatever this one has."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def _decode(sample: Any) -> Any:
    from torchvision.io import decode_jpeg

    return decode_jpeg(sample.tensor())


def jpeg_loader(request: Answer) -> Answer:
    """Loader with a JPEG decode as transform, in its threads."""
    _two_cores()
    from headrace.torch import Loader

    def read(object_count: int) -> tuple[int, int]:
        dataset = _dataset(request, object_count, _decode)
        object_count = size_bytes = 0
        for batch in Loader(dataset, request["batch_size"], collate_fn=list):
            object_count += len(batch)
            size_bytes += sum(image.numel() for image in batch)
        return object_count, size_bytes

    read(request["warm_up_objects"])
    return measured(lambda _: read(request["epoch_objects"]), 0)


def jpeg_memory(request: Answer) -> Answer:
    """The same decode of the same bytes from memory, in as many threads as Loader has by default.

    A thread takes the next image when it is done with one. The images of a batch are kept until it
    is whole and the main thread has taken it, as they are for a trainer.
    """
    _two_cores()
    from torchvision.io import decode_jpeg

    batch_size = request["batch_size"]
    distinct = _dataset(request, request["distinct_objects"])
    images = distinct.__getitems__(list(range(len(distinct))))

    def read(object_count: int) -> tuple[int, int]:
        order = iter(range(object_count))
        batches: list[list[Any]] = [
            [None] * min(batch_size, object_count - b) for b in range(0, object_count, batch_size)
        ]
        missing = [len(batch) for batch in batches]
        whole: SimpleQueue[list[Any]] = SimpleQueue()
        lock = threading.Lock()

        def decode() -> None:
            while True:
                with lock:
                    index = next(order, None)
                if index is None:
                    return
                number, place = divmod(index, batch_size)
                batches[number][place] = decode_jpeg(images[index % len(images)])
                with lock:
                    missing[number] -= 1
                    if missing[number] == 0:
                        whole.put(batches[number])
                        batches[number] = []

        threads = [threading.Thread(target=decode) for _ in os.sched_getaffinity(0)]
        for thread in threads:
            thread.start()
        done_count = size_bytes = 0
        while done_count < object_count:
            batch = whole.get()
            done_count += len(batch)
            size_bytes += sum(image.numel() for image in batch)
            del batch
        for thread in threads:
            thread.join()
        return done_count, size_bytes

    read(request["warm_up_objects"])
    return measured(lambda _: read(request["epoch_objects"]), 0)


# ---- the loader's own work


def overhead(request: Answer) -> Answer:
    """What Loader does itself, by sample and by batch, in two ways.

    `ready`: all that an epoch reads is there before the clock starts. The time of the batches that
    are then taken is what a trainer loses although it need not wait for any byte.

    `cpu`: the CPU of a whole epoch, all threads, less that of the engine when it reads the same
    batches without Loader. So the planning ahead counts, too.

    The objects are small files in memory. Both ways are tried with several batch sizes, and fitted
    as `per_sample * samples + per_batch * batches`; with batches that the engine reads straight
    into one tensor, and with samples that go through a transform which does as good as nothing.
    """
    import headrace
    from headrace.torch import MapDataset

    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-bench-") as folder:
        for i in range(OVERHEAD_OBJECTS):
            Path(folder, f"object-{i:06d}").write_bytes(os.urandom(OVERHEAD_SIZE_BYTES))
        store = headrace.Store(folder)
        answer: Answer = {"objects": OVERHEAD_OBJECTS}
        for kind, transform, collate in (("collated", None, None), ("transformed", len, list)):
            dataset = MapDataset(store, transform)
            ready: dict[int, list[float]] = {size: [] for size in OVERHEAD_BATCH_SIZES}
            whole: dict[int, list[float]] = {size: [] for size in OVERHEAD_BATCH_SIZES}
            alone: dict[int, list[float]] = {size: [] for size in OVERHEAD_BATCH_SIZES}
            for epoch in range(1 + request["epochs"]):
                for size in OVERHEAD_BATCH_SIZES:
                    found = (
                        _ready_s(dataset, size, collate),
                        _epoch_cpu_s(dataset, size, collate),
                        _engine_cpu_s(dataset, size, into_one=transform is None),
                    )
                    if epoch == 0:  # to warm up
                        continue
                    for series, value in zip((ready, whole, alone), found, strict=True):
                        series[size].append(value)
            ready_s, whole_s, alone_s = (
                {size: statistics.median(values) for size, values in series.items()}
                for series in (ready, whole, alone)
            )
            more_s = {size: whole_s[size] - alone_s[size] for size in OVERHEAD_BATCH_SIZES}
            answer[f"{kind}_ready_us"] = _fit_us(ready_s)
            answer[f"{kind}_cpu_us"] = _fit_us(more_s)
            answer[f"{kind}_engine_us"] = _fit_us(alone_s)
            for size in OVERHEAD_BATCH_SIZES:
                per_batch_us = ready_s[size] / (OVERHEAD_OBJECTS / size) * 1e6
                answer[f"{kind}_ready_batch_of_{size}_us"] = per_batch_us
        return answer


def _fit_us(totals_s: dict[int, float]) -> tuple[float, float]:
    """Microseconds per sample and per batch, by least squares over the batch sizes."""
    import torch

    counts = [[OVERHEAD_OBJECTS, OVERHEAD_OBJECTS / size] for size in totals_s]
    found = torch.linalg.lstsq(
        torch.tensor(counts, dtype=torch.float64),
        torch.tensor(list(totals_s.values()), dtype=torch.float64)[:, None],
    )
    per_sample_s, per_batch_s = found.solution[:, 0].tolist()
    return per_sample_s * 1e6, per_batch_s * 1e6


def _ready_s(dataset: Any, batch_size: int, collate: Any) -> float:
    """Seconds to take an epoch's batches when everything has been read."""
    from headrace.torch import Loader

    batch_count = OVERHEAD_OBJECTS // batch_size
    loader = Loader(
        dataset,
        batch_size,
        collate_fn=collate,
        prefetch_bytes=2 * OVERHEAD_OBJECTS * OVERHEAD_SIZE_BYTES,
    )
    iterator = iter(loader)
    next(iterator)
    while True:  # until this process has nothing to do
        begin_s = cpu_s()
        time.sleep(0.02)
        if cpu_s() - begin_s < 0.0005:
            break
    begin_s = time.perf_counter()
    taken = sum(1 for _ in iterator)
    took_s = time.perf_counter() - begin_s
    assert taken == batch_count - 1
    return took_s * batch_count / taken


def _epoch_cpu_s(dataset: Any, batch_size: int, collate: Any) -> float:
    """CPU seconds of an epoch at the loader's defaults."""
    from headrace.torch import Loader

    loader = Loader(dataset, batch_size, collate_fn=collate)
    begin_s = cpu_s()
    count = sum(len(batch) for batch in loader)
    took_s = cpu_s() - begin_s
    assert count == OVERHEAD_OBJECTS
    return took_s


def _engine_cpu_s(dataset: Any, batch_size: int, into_one: bool) -> float:
    """CPU seconds of the engine with the same batches, as many in flight as Loader would have.

    What it takes to say which objects, and where to, is prepared before.
    """
    import numpy

    indices = numpy.arange(OVERHEAD_OBJECTS)
    memory = numpy.zeros((OVERHEAD_OBJECTS, OVERHEAD_SIZE_BYTES), numpy.uint8)
    slices = [slice(b, b + batch_size) for b in range(0, OVERHEAD_OBJECTS, batch_size)]
    calls = [(indices[s], memory[s].reshape(-1) if into_one else None) for s in slices]
    in_flight = max(2, OVERHEAD_OBJECTS_IN_FLIGHT // batch_size)
    begin_s = cpu_s()
    batches = deque(dataset._start(*call) for call in calls[:in_flight])
    for call in [*calls[in_flight:], *[None] * in_flight]:
        if into_one:
            batches.popleft().wait()
        else:
            batches.popleft().take(return_errors=False)
        if call is not None:
            batches.append(dataset._start(*call))
    return cpu_s() - begin_s
