"""How many emulated accelerators of MLPerf Storage one process keeps busy."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bench.clients.engine import store_of
from bench.clients.measure import Answer, check_all, cpu_s, objects_of
from bench.clients.s3_peers import s3torchconnector_dataset, use_keys

# Batches of an accelerator that are started before it asks, as those of a worker of DLIO's loader.
_AHEAD = 2
_MOST = 64

# Of one accelerator: batches of bodies, without an end.
Batches = Generator[Sequence[Any], None, None]
# Makes those of accelerator `rank` of so many.
Open = Callable[[int, int], Batches]


def headrace(request: Answer) -> Answer:
    """A Loader for each accelerator; they share the engine of the process."""
    from headrace.torch import Loader, MapDataset

    store = store_of(request)
    index = store.index()
    # An epoch whose end no run here reaches.
    index = index.select([i % len(index) for i in range(request["epoch_objects"])])
    dataset = MapDataset(store, index=index)
    batch_bytes = request["batch_size"] * request["size_bytes"]

    def batches_of(rank: int, count: int) -> Batches:
        # Each batch is one tensor, with a row for each object.
        for batch in Loader(
            dataset,
            request["batch_size"],
            prefetch_bytes=_AHEAD * batch_bytes,
            rank=rank,
            world_size=count,
        ):
            yield batch.numpy()

    return _most(request, batches_of)


def s3torchconnector(request: Answer) -> Answer:
    """Threads that all accelerators share, each reading whole objects."""
    dataset = s3torchconnector_dataset(request)

    with ThreadPoolExecutor(request["concurrency"]) as threads:

        def started(numbers: Sequence[int]) -> list[Future[list[Any]]]:
            return [threads.submit(lambda i: [dataset[i]], number) for number in numbers]

        return _most(request, _ahead(request, started))


def s3dlio(request: Answer) -> Answer:
    """`get_many` of whole batches, as many at once as an accelerator has started."""
    use_keys(request)
    # Else it asks for the size of each object first, to read large ones by ranges.
    os.environ["S3DLIO_ENABLE_RANGE_OPTIMIZATION"] = "0"
    import s3dlio

    uris = [f"s3://{request['bucket']}/{name}" for name in objects_of(request)[0]]

    def get(numbers: Sequence[int]) -> list[Any]:
        wanted = [uris[number] for number in numbers]
        bodies = dict(s3dlio.get_many(wanted, max_in_flight=request["concurrency"]))
        return [memoryview(bodies[uri]) for uri in wanted]

    with ThreadPoolExecutor(_MOST * (_AHEAD + 1)) as threads:
        return _most(request, _ahead(request, lambda numbers: [threads.submit(get, numbers)]))


def _ahead(request: Answer, started: Callable[[Sequence[int]], list[Future[list[Any]]]]) -> Open:
    """Start batches before they are asked for; `started` takes the numbers of a batch's objects."""
    object_count = len(objects_of(request)[0])

    def batches_of(rank: int, count: int) -> Batches:
        numbers = itertools.cycle(range(rank, object_count, count))
        waiting: deque[list[Future[list[Any]]]] = deque()
        try:
            while True:
                while len(waiting) <= _AHEAD:
                    waiting.append(started(list(itertools.islice(numbers, request["batch_size"]))))
                yield [body for future in waiting.popleft() for body in future.result()]
        finally:
            for future in itertools.chain.from_iterable(waiting):
                future.cancel()

    return batches_of


def _most(request: Answer, batches_of: Open) -> Answer:
    """The most accelerators whose utilization is at least `au`, by doubling, then by halving."""
    runs: list[Answer] = []

    def is_enough(count: int) -> bool:
        for _ in range(2):  # a disturbance does not end the search
            runs.append(_run(request, batches_of, count))
            if runs[-1]["au"] >= request["au"]:
                return True
        return False

    first = batches_of(0, 1)
    names, sums = (each[: request["batch_size"]] for each in objects_of(request))
    check_all(names, (bytes(memoryview(body)) for body in next(first)), sums)
    first.close()
    _run(request, batches_of, 1)  # opens connections
    good, bad = 0, 1
    while bad <= _MOST and is_enough(bad):
        good, bad = bad, 2 * bad
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_enough(middle):
            good = middle
        else:
            bad = middle
    best = [run for run in runs if run["accelerators"] == good]
    return {
        "runs": runs,
        "accelerators": good,
        "objects": sum(run["objects"] for run in best or runs),
        "wall_s": sum(run["wall_s"] for run in best or runs),
        "cpu_s": sum(run["cpu_s"] for run in best or runs),
    }


def _run(request: Answer, batches_of: Open, count: int) -> Answer:
    """`count` accelerators, each a thread that computes by sleeping; their mean utilization."""
    utilizations = [0.0] * count
    taken = [0] * count
    failures: list[BaseException] = []
    size_bytes, computation_s = request["size_bytes"], request["computation_s"]

    def accelerate(rank: int) -> None:
        batches = batches_of(rank, count)
        try:
            begin_s = first_s = end_s = time.perf_counter()
            steps = 0
            while steps < 2 or end_s - begin_s < request["duration_s"]:
                batch = next(batches)
                if any(memoryview(body).nbytes != size_bytes for body in batch):
                    raise AssertionError("an object was read with another size")
                time.sleep(computation_s)
                end_s = time.perf_counter()
                taken[rank] += len(batch)
                steps += 1
                if steps == 1:
                    first_s = end_s
            # As DLIO counts: the first step is left out.
            utilizations[rank] = (steps - 1) * computation_s / (end_s - first_s)
        except BaseException as error:
            failures.append(error)
        finally:
            batches.close()

    begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
    threads = [threading.Thread(target=accelerate, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return {
        "accelerators": count,
        "au": sum(utilizations) / count,
        "objects": sum(taken),
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": cpu_s() - begin_cpu_s,
    }
