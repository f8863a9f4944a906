"""headrace.torch: what a training job reads with, an epoch of it at a time."""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.clients.engine import store_of
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


def _dataset(request: Answer, object_count: int, transform: Any = None) -> Any:
    """That many objects: those of the bucket in order, round and round."""
    from headrace.torch import MapDataset

    store = store_of(request)
    index = store.index()
    rounds = [i % len(index) for i in range(object_count)]
    return MapDataset(store, transform, index=index.select(rounds))


def _check(dataset: Any, batches: Iterable[Any]) -> None:
    """Compare the first samples that come with the listing."""
    samples = itertools.islice(itertools.chain.from_iterable(batches), CHECKED_OBJECTS)
    infos = [dataset.objects[i] for i in range(CHECKED_OBJECTS)]
    check_all(
        [info.name for info in infos],
        (sample.numpy().tobytes() for sample in samples),
        [info.crc32c for info in infos],
    )


def _epoch(request: Answer, batches_of: Callable[[Any], Iterable[Any]]) -> Answer:
    """A whole epoch, from `iter` to the last batch; before it a part of one, to warm up."""
    dataset = _dataset(request, request["epoch_objects"])
    _check(dataset, batches_of(dataset))

    def read(dataset: Any) -> tuple[int, int]:
        object_count = size_bytes = 0
        for batch in batches_of(dataset):
            object_count += len(batch)
            size_bytes += len(batch) * batch[0].numel()
        return object_count, size_bytes

    read(_dataset(request, request["warm_up_objects"]))
    answer = measured(lambda _: read(dataset), 0)
    assert answer["objects"] == request["epoch_objects"]
    answer["connections"] = connections(request["endpoint"])
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

    A thread takes the next image when it is done with one; nothing waits for anything else.
    """
    _two_cores()
    from torchvision.io import decode_jpeg

    dataset = _dataset(request, request["epoch_objects"])
    distinct = dataset.__getitems__(list(range(min(len(dataset), request["distinct_objects"]))))
    images = [distinct[i % len(distinct)] for i in range(request["epoch_objects"])]

    def read(images: Sequence[Any]) -> tuple[int, int]:
        order = iter(range(len(images)))
        decoded_bytes = [0] * len(images)
        lock = threading.Lock()

        def decode() -> None:
            while True:
                with lock:
                    index = next(order, None)
                if index is None:
                    return
                decoded_bytes[index] = decode_jpeg(images[index]).numel()

        threads = [threading.Thread(target=decode) for _ in os.sched_getaffinity(0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(decoded_bytes)
        return len(images), sum(decoded_bytes)

    read(images[: request["warm_up_objects"]])
    return measured(lambda _: read(images), 0)


# ---- the loader's own work


def overhead(request: Answer) -> Answer:
    """What Loader adds to the engine's reading: CPU of all threads, by sample and by batch.

    The objects are small files in memory, so that the data is there. An epoch through Loader and
    an epoch of the same batches that the engine reads alone alternate in this process; the
    difference of their medians, for several batch sizes, is fitted as
    `per_sample * samples + per_batch * batches`.
    """
    import torch

    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-bench-") as folder:
        for i in range(OVERHEAD_OBJECTS):
            Path(folder, f"object-{i:06d}").write_bytes(os.urandom(OVERHEAD_SIZE_BYTES))
        kinds: dict[str, Callable[[Any, int], int]] = {
            "collated": _collated_epoch,
            "transformed": _transformed_epoch,
        }
        answer: Answer = {}
        for kind, epoch_of in kinds.items():
            import headrace
            from headrace.torch import MapDataset

            dataset = MapDataset(headrace.Store(folder))
            alone = _alone_into if kind == "collated" else _alone
            differences = []
            for batch_size in OVERHEAD_BATCH_SIZES:
                costs: dict[Any, list[float]] = {epoch_of: [], alone: []}
                for epoch in range(1 + request["epochs"]):
                    order = (epoch_of, alone) if epoch % 2 else (alone, epoch_of)
                    for function in order:
                        begin_s = cpu_s()
                        count = function(dataset, batch_size)
                        cost_s = cpu_s() - begin_s
                        assert count == OVERHEAD_OBJECTS
                        if epoch:  # the first warms up
                            costs[function].append(cost_s)
                loader_s, alone_s = (statistics.median(costs[f]) for f in (epoch_of, alone))
                differences.append(loader_s - alone_s)
                answer[f"{kind}_{batch_size}_loader_us"] = loader_s / OVERHEAD_OBJECTS * 1e6
                answer[f"{kind}_{batch_size}_alone_us"] = alone_s / OVERHEAD_OBJECTS * 1e6
            samples_batches = torch.tensor(
                [[OVERHEAD_OBJECTS, OVERHEAD_OBJECTS / size] for size in OVERHEAD_BATCH_SIZES],
                dtype=torch.float64,
            )
            per_sample_s, per_batch_s = torch.linalg.lstsq(
                samples_batches, torch.tensor(differences, dtype=torch.float64)[:, None]
            ).solution[:, 0]
            answer[f"{kind}_per_sample_us"] = float(per_sample_s) * 1e6
            answer[f"{kind}_per_batch_us"] = float(per_batch_s) * 1e6
        answer["ready_us"] = _ready(dataset) * 1e6
        answer["objects"] = OVERHEAD_OBJECTS
        return answer


def _collated_epoch(dataset: Any, batch_size: int) -> int:
    from headrace.torch import Loader

    return sum(len(batch) for batch in Loader(dataset, batch_size))


def _transformed_epoch(dataset: Any, batch_size: int) -> int:
    """Each sample goes through a transform that does as little as one can."""
    from headrace.torch import Loader, MapDataset

    transformed = MapDataset(dataset.store, len, index=dataset.objects)
    return sum(len(batch) for batch in Loader(transformed, batch_size, collate_fn=list))


def _alone(dataset: Any, batch_size: int, *, into: bool = False) -> int:
    """The engine reads the batches, several in flight, and nobody looks at them."""
    import torch

    def start(begin: int) -> tuple[Any, Any]:
        indices = torch.arange(begin, min(begin + batch_size, len(dataset)))
        memory = None
        if into:
            memory = torch.empty(len(indices) * OVERHEAD_SIZE_BYTES, dtype=torch.uint8).numpy()
        return dataset.start(indices.numpy(), memory), indices

    count = 0
    begins = iter(range(0, len(dataset), batch_size))
    ahead = deque(map(start, itertools.islice(begins, 64)))
    while ahead:
        batch, indices = ahead.popleft()
        if into:
            batch.wait()
        else:
            batch.take()
        count += len(indices)
        ahead.extend(map(start, itertools.islice(begins, 1)))
    return count


def _alone_into(dataset: Any, batch_size: int) -> int:
    """The same into memory for a whole batch, as Loader reads where nothing transforms."""
    return _alone(dataset, batch_size, into=True)


def _ready(dataset: Any) -> float:
    """Seconds that `next` takes when the batch has long been there."""
    from headrace.torch import Loader

    iterator = iter(Loader(dataset, 64))
    waits_s = []
    next(iterator)
    for _ in range(20):
        time.sleep(0.01)  # the trainer computes; the loader has all the time it needs
        begin_s = time.perf_counter()
        next(iterator)
        waits_s.append(time.perf_counter() - begin_s)
    return statistics.median(waits_s)
