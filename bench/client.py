"""One measurement in a process of its own: `python -m bench.client '{"client": ..., ...}'`.

The last line printed is a JSON object. CPU is that of this process, all its threads, between the
end of the warm-up and the last byte; imports, listings and warm-up are before it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, Any]

_CHECKED_BATCHES = 4


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _measured(read: Callable[[float], tuple[int, int]], duration_s: float) -> Answer:
    """`read` starts objects for that many seconds and gives their number and bytes when all came"""
    begin_cpu_s, begin_s = _cpu_s(), time.perf_counter()
    object_count, size_bytes = read(duration_s)
    return {
        "objects": object_count,
        "bytes": size_bytes,
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": _cpu_s() - begin_cpu_s,
    }


def _connections(endpoint: str) -> int:
    """Connections to the endpoint's port that are established now, by the kernel's own table."""
    remote = f":{int(endpoint.rsplit(':', 1)[1]):04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[2].endswith(remote) and row[3] == "01" for row in rows)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(field)


# ---- headrace


def _store(request: Answer) -> Any:
    import headrace

    return headrace.Store(
        f"gs://{request['bucket']}", endpoint=request["endpoint"], credentials="anonymous"
    )


def _batches_for(items: Sequence[Any], batch_size: int, duration_s: float) -> Iterator[list[Any]]:
    """Batches of the items, round and round, until the time is over."""
    until = time.perf_counter() + duration_s
    begin = 0
    while time.perf_counter() < until:
        end = begin + batch_size
        batch = list(items[begin:end])
        # The last batch of a round goes on with the first items, so that all are of one size.
        while len(batch) < batch_size:
            batch += items[: batch_size - len(batch)]
        begin = end % len(items)
        yield batch


def _check(store: Any, infos: Sequence[Any], batch_size: int) -> None:
    import google_crc32c

    count = min(_CHECKED_BATCHES * batch_size, len(infos))
    batches = [infos[i : i + batch_size] for i in range(0, count, batch_size)]
    for batch, samples in zip(batches, store.read_batches(batches), strict=True):
        for info, sample in zip(batch, samples, strict=True):
            if google_crc32c.value(bytes(sample)) != info.crc32c:
                raise AssertionError(f"{info.name} was read with other bytes than listed")


def read_batches(request: Answer) -> Answer:
    """headrace: Store.read_batches, every object checked against its listed CRC32C."""
    store = _store(request)
    infos = list(store.list())
    _check(store, infos, request["batch_size"])

    def read(duration_s: float) -> tuple[int, int]:
        object_count = size_bytes = 0
        for samples in store.read_batches(_batches_for(infos, request["batch_size"], duration_s)):
            object_count += len(samples)
            size_bytes += len(samples) * len(samples[0])
        return object_count, size_bytes

    read(request["warm_up_s"])
    answer = _measured(read, request["duration_s"])
    answer["connections"] = _connections(request["endpoint"])
    return answer


def read_into(request: Answer) -> Answer:
    """headrace: one large object into memory that the caller has."""
    import google_crc32c
    import numpy

    store = _store(request)
    (info,) = store.list()
    # Written once: the memory of a caller who reads more than one object exists already.
    memory = numpy.full(info.size_bytes, 255, dtype=numpy.uint8)

    def read(_: float) -> tuple[int, int]:
        store.read(info, into=memory)
        return 1, info.size_bytes

    answer = _measured(read, 0)
    crc32c, piece_bytes = 0, 16 << 20
    for begin in range(0, len(memory), piece_bytes):
        # google_crc32c takes bytes and no view.
        crc32c = google_crc32c.extend(crc32c, memory[begin : begin + piece_bytes].tobytes())
    if crc32c != info.crc32c:
        raise AssertionError("the object was read with other bytes than listed")
    answer["connections"] = _connections(request["endpoint"])
    return answer


def memory(request: Answer) -> Answer:
    """headrace: the most memory that the process had while it read, above what it began with."""
    import headrace

    headrace.configure(headrace.EngineOptions(memory_budget_bytes=request["budget_bytes"]))
    start_bytes = _status_bytes("VmRSS")
    # 5: the high-water mark begins anew from here.
    Path("/proc/self/clear_refs").write_text("5")
    store = _store(request)
    items = list(store.list())
    if request["by_name"]:
        items = [info.name for info in items]

    def read(duration_s: float) -> tuple[int, int]:
        object_count = size_bytes = 0
        for samples in store.read_batches(_batches_for(items, request["batch_size"], duration_s)):
            object_count += len(samples)
            size_bytes += sum(len(sample) for sample in samples)
        return object_count, size_bytes

    answer = _measured(read, request["duration_s"])
    answer["above_start_bytes"] = _status_bytes("VmHWM") - start_bytes
    return answer


def idle(request: Answer) -> Answer:
    """headrace: what an engine that has connections and nothing to do costs."""
    store = _store(request)
    infos = list(store.list())
    for samples in store.read_batches(_batches_for(infos, 64, 0.2)):
        del samples

    def wait(duration_s: float) -> tuple[int, int]:
        time.sleep(duration_s)
        return 0, 0

    return _measured(wait, request["duration_s"])


# ---- peers


def _names(request: Answer) -> list[str]:
    return Path(request["names_file"]).read_text().split()


def obstore_many(request: Answer) -> Answer:
    """obstore: as many asyncio tasks as are asked for, each reading whole objects. No checksums."""
    from obstore.store import HTTPStore

    store = HTTPStore(
        f"{request['endpoint']}/download/storage/v1/b/{request['bucket']}/o",
        client_options={"allow_http": True, "allow_invalid_certificates": True},
    )
    names = _names(request)

    async def read_all(duration_s: float) -> tuple[int, int]:
        until = time.perf_counter() + duration_s
        order = itertools.cycle(names)
        object_count = size_bytes = 0

        async def reader() -> None:
            nonlocal object_count, size_bytes
            while time.perf_counter() < until:
                answer = await store.get_async(next(order))
                body = await answer.bytes_async()
                object_count += 1
                size_bytes += len(body)

        await asyncio.gather(*(reader() for _ in range(request["concurrency"])))
        return object_count, size_bytes

    with asyncio.Runner() as runner:

        def read(duration_s: float) -> tuple[int, int]:
            return runner.run(read_all(duration_s))

        read(request["warm_up_s"])
        return _measured(read, request["duration_s"])


def obstore_into(request: Answer) -> Answer:
    """obstore: the large object by ranges of 8 MiB, 16 at once, copied to the caller's memory."""
    import numpy
    from obstore.store import HTTPStore

    store = HTTPStore(
        f"{request['endpoint']}/download/storage/v1/b/{request['bucket']}/o",
        client_options={"allow_http": True},
    )
    (name,) = _names(request)
    memory = numpy.full(request["size_bytes"], 255, dtype=numpy.uint8)
    range_bytes = 8 << 20

    async def read_all() -> None:
        begins = iter(range(0, len(memory), range_bytes))

        async def reader() -> None:
            for begin in begins:
                end = min(begin + range_bytes, len(memory))
                body = await store.get_range_async(name, start=begin, end=end)
                memory[begin:end] = numpy.frombuffer(body, dtype=numpy.uint8)

        await asyncio.gather(*(reader() for _ in range(16)))

    def read(_: float) -> tuple[int, int]:
        asyncio.run(read_all())
        return 1, len(memory)

    return _measured(read, 0)


def google_many(request: Answer) -> Answer:
    """google-cloud-storage: threads, each downloading whole objects."""
    import requests.adapters
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="bench",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": request["endpoint"]},
    )
    adapter = requests.adapters.HTTPAdapter(
        pool_connections=request["concurrency"], pool_maxsize=request["concurrency"]
    )
    client._http.mount("http://", adapter)
    bucket = client.bucket(request["bucket"])
    names = _names(request)

    def read(duration_s: float) -> tuple[int, int]:
        until = time.perf_counter() + duration_s
        order = itertools.cycle(names)
        lock = threading.Lock()
        sums: queue.Queue[tuple[int, int] | BaseException] = queue.Queue()

        def reader() -> None:
            object_count = size_bytes = 0
            try:
                while time.perf_counter() < until:
                    with lock:
                        name = next(order)
                    size_bytes += len(bucket.blob(name).download_as_bytes())
                    object_count += 1
            except BaseException as error:
                sums.put(error)
                raise
            sums.put((object_count, size_bytes))

        threads = [threading.Thread(target=reader) for _ in range(request["concurrency"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results = [sums.get() for _ in threads]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        totals = [result for result in results if isinstance(result, tuple)]
        return sum(t[0] for t in totals), sum(t[1] for t in totals)

    read(request["warm_up_s"])
    return _measured(read, request["duration_s"])


CLIENTS: dict[str, Callable[[Answer], Answer]] = {
    "headrace": read_batches,
    "headrace-into": read_into,
    "headrace-memory": memory,
    "headrace-idle": idle,
    "obstore": obstore_many,
    "obstore-into": obstore_into,
    "google-cloud-storage": google_many,
}


def main() -> None:
    request = json.loads(sys.argv[1])
    print(json.dumps(CLIENTS[request["client"]](request)), flush=True)
    if request["client"].startswith("obstore"):
        # It aborts now and then while the interpreter ends, after the answer; that is not measured.
        os._exit(0)


if __name__ == "__main__":
    main()
